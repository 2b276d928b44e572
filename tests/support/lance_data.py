"""Lance data sets and the zone indexes that pylance itself builds over them."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from parquet_bloom.output.atomic_file import AtomicFile
from parquet_bloom.zones.container import ZoneFile, ZoneWriter

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import lance
    import lance.file
    from lance.indices import IndexConfig

UTC = "UTC"
KINDS: dict[str, pa.DataType] = {
    **{f"{sign}int{bits}": getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "string_view": pa.string_view(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "binary_view": pa.binary_view(),
    "date32": pa.date32(),
    "date64": pa.date64(),
    **{f"ts_{unit}": pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")},
    "ts_us_utc": pa.timestamp("us", UTC),
    "time32_s": pa.time32("s"),
    "time32_ms": pa.time32("ms"),
    "time64_us": pa.time64("us"),
    "time64_ns": pa.time64("ns"),
}
REFUSED: dict[str, pa.DataType] = {
    "float16": pa.float16(),
    "fixed": pa.binary(4),
    "bool": pa.bool_(),
    "duration": pa.duration("us"),
    "decimal128": pa.decimal128(9, 2),
    "decimal256": pa.decimal256(50, 2),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "list": pa.list_(pa.int32()),
}


def values(kind: pa.DataType, rows: int, seed: int = 0, nulls: bool = True) -> pa.Array:
    """Random values of a type, every seventh or so a null."""
    rng = np.random.default_rng(seed)
    mask = rng.random(rows) < 0.15 if nulls else np.zeros(rows, bool)
    t = pa.types
    if t.is_floating(kind):
        numbers = rng.normal(size=rows)
        numbers[rng.random(rows) < 0.1] = -0.0
        numbers[rng.random(rows) < 0.05] = np.nan
        return pa.array(numbers, kind, mask=mask, from_pandas=False)
    if t.is_integer(kind):
        info = np.iinfo(kind.to_pandas_dtype())
        return pa.array(rng.integers(info.min, info.max, rows, info.dtype, endpoint=True), kind, mask=mask)
    if t.is_date(kind):
        days = pa.array(rng.integers(-(10**4), 10**4, rows), pa.int32(), mask=mask).view(pa.date32())
        return days.cast(kind)
    if t.is_time(kind):
        most = 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
        plain = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.array(rng.integers(0, most, rows), plain, mask=mask).view(kind)
    if t.is_temporal(kind):
        plain = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.array(rng.integers(-(2**30), 2**30, rows), plain, mask=mask).view(kind)
    texts = [None if m else f"{'é' * (i % 3)}{i}" for m, i in zip(mask, rng.integers(0, 5000, rows), strict=True)]
    return pa.array(texts, pa.string()).cast(kind)


def their_index(dataset: Any, column: str, items: int = 8192, probability: float = 0.00057) -> Path:
    """Let pylance build a zone index; returns its file."""
    config = IndexConfig("bloomfilter", {"number_of_items": items, "probability": probability})
    before = set(Path(dataset.uri).glob("_indices/*"))
    dataset.create_scalar_index(column, config, name=f"{column.replace('.', '_')}_theirs", replace=True)
    (made,) = set(Path(dataset.uri).glob("_indices/*")) - before
    return made / "bloomfilter.lance"


def content(path: str | os.PathLike[str]) -> tuple[pa.Table, bytes, dict[bytes, bytes]]:
    """Everything in an index that the format knows: zones, null bitmap, metadata."""
    reader = lance.file.LanceFileReader(str(path))
    table = reader.read_all().to_table().combine_chunks()
    ours = b"parquet_bloom"
    metadata = {k: v for k, v in table.schema.metadata.items() if not k.startswith(ours)}
    return table.replace_schema_metadata(None), reader.read_global_buffer(1), metadata


def crafted(index: str | os.PathLike[str], folder: Path, **changes: str) -> Path:
    """An index that says other things of itself, with a checksum that fits: whoever crafts can do that too."""
    file, table = ZoneFile(str(index)), lance.file.LanceFileReader(str(index)).read_all().to_table()
    path = folder / "id/bloomfilter.lance"
    with ZoneWriter(AtomicFile.new(path, False, False, by_name=True), {**file.metadata, **changes}) as writer:
        for batch in table.to_batches():
            writer.write(batch)
        writer.commit()
    return path

"""Files of very many small row groups: built in runs, byte for byte what one by one gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.samples import digest

import parquet_bloom
from parquet_bloom.edit import writer
from parquet_bloom.errors import DamagedFileError


def write(path: Path) -> Path:
    """600 row groups: mostly a few values, some thousands, none, only nulls; numbers, texts, floats, a list."""
    rng = np.random.default_rng(5)
    sizes = rng.choice([1, 2, 5, 30, 300], 600, p=[0.4, 0.3, 0.2, 0.08, 0.02])
    schema = pa.schema([("n", pa.int64()), ("s", pa.string()), ("f", pa.float64()), ("l", pa.list_(pa.int32()))])
    with pq.ParquetWriter(path, schema, use_dictionary=["s"]) as writer:
        for i, n in enumerate(sizes.tolist()):
            numbers = [None if i % 50 == 0 or v % 7 == 0 else v for v in rng.integers(0, 2**62, n).tolist()]
            floats = [None if v is None else float(v % 3) for v in numbers]
            lists = [None if v is None else [v % 1000] * (v % 3) for v in numbers]
            columns = [numbers, [None if v is None else str(v) for v in numbers], floats, lists]
            writer.write_table(pa.table(columns, schema=schema))
    return path


@pytest.mark.parametrize(
    "spec", ["final", *(pytest.param(spec, marks=pytest.mark.more) for spec in ("parquet-41", "statistics"))]
)
def test_runs_give_what_one_by_one_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str) -> None:
    source = write(tmp_path / "x.parquet")
    out, single = tmp_path / "out.parquet", tmp_path / "single.parquet"
    parquet_bloom.add_filters(source, out, columns=["*"], spec=spec, sync=False)
    monkeypatch.setattr(writer, "MOST", 1)
    parquet_bloom.add_filters(source, single, columns=["*"], spec=spec, sync=False)
    assert digest(out) == digest(single)
    assert not parquet_bloom.verify(out).files[0].wrong


def test_damage_in_a_run_is_told_with_its_row_group(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    values = pa.table({"n": np.arange(1000, 1200)})
    pq.write_table(
        values,
        path,
        row_group_size=2,
        use_dictionary=False,
        compression="none",
        write_page_checksum=True,
        write_statistics=False,
    )
    data = bytearray(path.read_bytes())
    data[data.index((1140).to_bytes(8, "little"))] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedFileError, match="row group 70, column n"):
        parquet_bloom.add_filters(path, tmp_path / "out.parquet", columns=["n"], sync=False)
    assert not (tmp_path / "out.parquet").exists()

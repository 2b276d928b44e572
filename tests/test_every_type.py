"""Every type that pyarrow, DuckDB and Polars write goes through every command and function, with no column named.

One file of each writer has all its types: each as a column that ascends, is random, constant, half NULL, and at the
extremes of its type. A type that spoils a file alone has a file of its own.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.commands import in_this_process

import parquet_bloom

ROWS, GROUP = 400, 100
ORDERS = ("ascending", "random", "constant", "nulls", "extremes")
Make = Callable[[np.ndarray[Any, Any]], pa.Array]
UNITS = ("s", "ms", "us", "ns")


def cast(to: pa.DataType, stride: int = 1) -> Make:
    return lambda n: pa.array(n * stride).cast(to)


def units(to: pa.DataType, stride: int) -> Make:
    width = pa.int32() if to.bit_width == 32 else pa.int64()
    return lambda n: pa.array(n * stride).cast(width).cast(to)


def text(to: pa.DataType) -> Make:
    if pa.types.is_binary_view(to) or pa.types.is_string_view(to):
        return lambda n: pa.array([f"key {i:06}" for i in n.tolist()], to)
    return lambda n: pa.array([f"key {i:06}".encode() for i in n.tolist()]).cast(to)


def fixed(n: np.ndarray[Any, Any]) -> pa.Array:
    return pa.array([int(i).to_bytes(16, "big") for i in n], pa.binary(16))


def decimals(to: pa.DataType) -> Make:
    return lambda n: pa.array([decimal.Decimal(int(i)).scaleb(-to.scale) for i in n], to)


def whole(kind: str) -> tuple[Make, list[Any]]:
    info = np.iinfo(kind)
    span = min(ROWS, int(info.max))
    return (lambda n: pa.array((n % span).astype(kind))), [info.min, info.max, 0, 1]


def inside(made: pa.Array, to: pa.DataType) -> pa.Array:
    """Each value as a list, struct or map of its own."""
    if pa.types.is_struct(to):
        return pa.StructArray.from_arrays([made], ["value"])
    if pa.types.is_map(to):
        return pa.array([[(f"k{i % 5}", v)] for i, v in enumerate(made.to_pylist())], to)
    return pa.array([[v, v] for v in made.to_pylist()], to)


# name -> values by number, and extremes of the type
TYPES: dict[str, tuple[Make, list[Any]]] = {
    **{kind: whole(kind) for kind in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
    **{
        kind: (cast(getattr(pa, kind)()), [float("inf"), float("-inf"), float("nan"), -0.0, 0.0])
        for kind in ("float16", "float32", "float64")
    },
    "bool": (lambda n: pa.array(n % 2 == 0), [True, False]),
    **{f"{kind}": (text(getattr(pa, kind)()), ["", "\U0010ffff" * 40]) for kind in ("string", "large_string")},
    "string_view": (text(pa.string_view()), ["", "\U0010ffff" * 40]),
    **{f"{kind}": (text(getattr(pa, kind)()), [b"", b"\xff" * 200]) for kind in ("binary", "large_binary")},
    "binary_view": (text(pa.binary_view()), [b"", b"\xff" * 200]),
    "fixed": (fixed, [b"\0" * 16, b"\xff" * 16]),
    "uuid": (lambda n: pa.ExtensionArray.from_storage(pa.uuid(), fixed(n)), []),
    "json": (lambda n: pa.ExtensionArray.from_storage(pa.json_(), pa.array([f'{{"n": {i}}}' for i in n])), []),
    "bool8": (lambda n: pa.ExtensionArray.from_storage(pa.bool8(), pa.array((n % 2).astype("int8"))), []),
    "date32": (units(pa.date32(), 1), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "date64": (units(pa.date64(), 86_400_000), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    **{f"time32[{u}]": (units(pa.time32(u), 1), [dt.time(0), dt.time(23, 59, 59)]) for u in UNITS[:2]},
    **{f"time64[{u}]": (units(pa.time64(u), 1), [dt.time(0), dt.time(23, 59, 59)]) for u in UNITS[2:]},
    **{
        f"timestamp[{u}{zone and ', ' + zone}]": (units(pa.timestamp(u, zone), 3600), [-(1 << 52), 1 << 52])
        for u in UNITS
        for zone in ("", "UTC", "Europe/Berlin")
    },
    **{f"duration[{u}]": (units(pa.duration(u), 3600), [-(1 << 62), 1 << 62]) for u in UNITS},
    **{
        f"{to}": (decimals(to), [decimal.Decimal(s + "9" * to.precision).scaleb(-to.scale, CONTEXT) for s in ("-", "")])
        for CONTEXT in [decimal.Context(prec=80)]
        for to in (
            *(pa.decimal32(9, 2), pa.decimal64(18, 4), pa.decimal128(4, 0), pa.decimal128(9, 3), pa.decimal128(18, 6)),
            *(pa.decimal128(38, 10), pa.decimal256(38, 0), pa.decimal256(50, 5), pa.decimal256(76, 0)),
        )
    },
    "dictionary": (lambda n: text(pa.string())(n).dictionary_encode(), []),
    "dictionary of ints": (lambda n: pa.array(n).dictionary_encode(), []),
    "null": (lambda n: pa.nulls(len(n)), []),
    "list": (lambda n: inside(pa.array(n), pa.list_(pa.int64())), []),
    "large_list": (lambda n: inside(text(pa.string())(n), pa.large_list(pa.string())), []),
    "fixed_size_list": (lambda n: inside(pa.array(n.astype("uint32")), pa.list_(pa.uint32(), 2)), []),
    "struct": (lambda n: inside(pa.array(n.astype("uint16")), pa.struct([("value", pa.uint16())])), []),
    "map": (lambda n: inside(pa.array(n), pa.map_(pa.string(), pa.int64())), []),
}


def column(name: str, order: str) -> pa.Array:
    make, extremes = TYPES[name]
    numbers = np.arange(ROWS)
    if order == "random":
        numbers = np.random.default_rng(7).permutation(numbers)
    elif order == "constant":
        numbers = np.full(ROWS, 7)
    made = make(numbers)
    if order == "nulls":
        return pc.if_else(pa.array(numbers % 2 == 0), made, pa.scalar(None, made.type)) if _selects(made) else made
    if order == "extremes" and extremes:
        plain = [v.value if isinstance(v, pa.TimestampScalar) else v for v in extremes]
        few = pa.array(plain, pa.int64()).cast(made.type) if _counts(made) else pa.array(plain, made.type)
        return few.take(pa.array(numbers % len(few))) if _takes(few) else pa.array(
            [extremes[i % len(few)] for i in numbers.tolist()], made.type
        )  # fmt: skip
    return made


def _selects(made: pa.Array) -> bool:
    return not (isinstance(made, pa.ExtensionArray) or pa.types.is_null(made.type) or pa.types.is_nested(made.type)
                or not _takes(made))  # fmt: skip


def _takes(made: pa.Array) -> bool:
    return not (pa.types.is_string_view(made.type) or pa.types.is_binary_view(made.type))


def _counts(made: pa.Array) -> bool:
    return pa.types.is_timestamp(made.type) or pa.types.is_duration(made.type)


def by_pyarrow(folder: Path, step: int = 1) -> Iterator[Path]:
    """Each type in all its orders; with a step of 2 in each second one, by turns, as there are five."""
    table = pa.table({f"{name} {order}": column(name, order) for name in TYPES for order in ORDERS})
    for path, options in (
        ("plain", {}),
        ("int96", {"use_deprecated_int96_timestamps": True, "data_page_version": "2.0"}),
        ("old", {"version": "1.0", "store_decimal_as_integer": True, "write_statistics": False}),
    ):
        some = [c for c in table.column_names if c.endswith("random") and not c.startswith(("float16", "timestamp[ns"))]
        coerced = table.select(table.column_names[::step] if path == "plain" else some)
        pq.write_table(coerced, folder / f"{path}.parquet", row_group_size=GROUP, **options)
        yield folder / f"{path}.parquet"


def by_pyarrow_half(folder: Path) -> Iterator[Path]:
    return by_pyarrow(folder, 2)


DUCKDB_TYPES = (
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UHUGEINT", "UTINYINT", "USMALLINT", "UINTEGER"),
    *("UBIGINT", "FLOAT", "DOUBLE", "DECIMAL(4,1)", "DECIMAL(9,4)", "DECIMAL(18,6)", "DECIMAL(38,10)", "VARCHAR"),
)


def by_duckdb(folder: Path) -> Iterator[Path]:
    import duckdb

    with duckdb.connect() as con:
        parts = [
            text
            for kind in DUCKDB_TYPES
            for text in (
                f'(i % 100)::{kind} AS "{kind} ascending"',
                f'(hash(i) % 100)::{kind} AS "{kind} random"',
                f'7::{kind} AS "{kind} constant"',
                f'CASE WHEN i % 2 = 0 THEN (i % 100)::{kind} END AS "{kind} nulls"',
            )
        ]
        made = f"SELECT {', '.join(parts)} FROM range({ROWS}) t(i)"
        con.sql(f"COPY ({made}) TO '{folder / 'numbers.parquet'}' (ROW_GROUP_SIZE {GROUP})")
        yield folder / "numbers.parquet"
        kinds = [(row[0], row[1]) for row in con.sql("DESCRIBE SELECT * FROM test_all_types()").fetchall()]
        written = []
        for name, kind in kinds:
            if re.search(r"\[\d", kind):
                continue  # pyarrow does not decode arrays of a fixed length with a NULL among them
            try:
                con.sql(f"COPY (SELECT \"{name}\" FROM test_all_types()) TO '{folder / 'try'}' (FORMAT parquet)")
                written.append(name)
            except duckdb.Error:
                pass  # a type that DuckDB does not write
        some = ", ".join(f'"{name}"' for name in written)
        con.sql(f"COPY (SELECT {some} FROM test_all_types(), range(50)) TO '{folder / 'all.parquet'}'")
        yield folder / "all.parquet"


def by_polars(folder: Path) -> Iterator[Path]:
    import polars as pl

    types = [
        *(pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float32),
        *(pl.Float64, pl.Boolean, pl.String, pl.Date, pl.Datetime("ms"), pl.Datetime("us", "UTC"), pl.Datetime("ns")),
        *(pl.Time, pl.Duration("us"), pl.Decimal(18, 3), pl.Decimal(38, 3), pl.Categorical),
    ]
    numbers = pl.Series("n", np.arange(ROWS) % 100)
    random = pl.Series("n", np.random.default_rng(7).integers(0, 100, ROWS))
    columns = {}
    for kind in types:
        for order, some in (("ascending", numbers), ("random", random), ("constant", numbers * 0 + 7)):
            made = some.cast(pl.String).cast(kind) if kind == pl.Categorical else some.cast(kind)
            columns[f"{kind} {order}"] = made
        columns[f"{kind} nulls"] = columns[f"{kind} ascending"].to_frame("n").select(
            pl.when(numbers % 2 == 0).then(pl.col("n"))
        )["n"]  # fmt: skip
    columns["list"], columns["binary"] = numbers.reshape((-1, 1)).arr.to_list(), numbers.cast(pl.String).cast(pl.Binary)
    columns["struct"] = pl.DataFrame({"a": numbers, "b": random}).to_struct()
    pl.DataFrame(columns).write_parquet(folder / "polars.parquet", row_group_size=GROUP)
    yield folder / "polars.parquet"


@pytest.fixture
def written(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    (tmp_path / "data").mkdir()
    found: list[Path] = list(request.param(tmp_path / "data"))
    return found


@pytest.mark.parametrize(
    "written", [by_pyarrow_half, by_duckdb, by_polars, pytest.param(by_pyarrow, marks=pytest.mark.more)], indirect=True
)
def test_every_function_takes_files_of_all_types(written: list[Path], tmp_path: Path) -> None:
    for path in written:
        out = tmp_path / "out" / path.name
        out.parent.mkdir(exist_ok=True)
        added = parquet_bloom.add_filters(path, out)
        assert not added.failed
        judged = [c.column for c in parquet_bloom.advise(path).columns if c.fpp is not None]
        assert judged
        assert parquet_bloom.advise(out).columns
        assert parquet_bloom.status(path).files
        assert parquet_bloom.status(out).columns
        assert parquet_bloom.inspect(out).files
        assert {f.status for one in parquet_bloom.verify(out).files for f in one.filters} <= {"right", "unknown"}
        parquet_bloom.write_report(out, tmp_path / "report.html", overwrite=True)
        rows = pq.read_metadata(path).num_rows
        assert parquet_bloom.count(out) == rows
        assert parquet_bloom.read_table(out).num_rows == rows
        assert sum(batch.num_rows for batch in parquet_bloom.read_batches(out)) == rows
        assert parquet_bloom.dataset(out).count_rows() == rows
        assert parquet_bloom.build_index(path, judged, tmp_path / "index", overwrite=True).columns
        parquet_bloom.remove_filters(out, in_place=True)
        assert out.read_bytes() == path.read_bytes() or path.name != "plain.parquet"
        if path.name == "plain.parquet":
            continue  # one of the smaller files shows the same
        for options in ({"fpp": "auto"}, {"placement": "tail"}, {"placement": "chunk-start"}, {"spec": "parquet-41"}):
            parquet_bloom.add_filters(path, out, overwrite=True, **options)


@pytest.mark.parametrize("written", [by_duckdb, by_polars], indirect=True)
def test_every_command_takes_files_of_all_types(written: list[Path], tmp_path: Path) -> None:
    path, out = written[0], tmp_path / "out.parquet"
    first = pq.read_schema(path).names[0]
    for arguments in (
        *(("advise", path), ("add", path, "-o", out), ("status", out), ("inspect", out), ("verify", out)),
        *(("report", out, "-o", "page.html"), ("check", out, f'"{first}" = 5'), ("read", out, "-o", "rows.parquet")),
        *(("index", "build", path, "--column", first, "-o", "index"), ("remove", out, "--in-place")),
    ):
        ran = in_this_process(*arguments, cwd=tmp_path)
        assert ran.returncode == 0, (arguments, ran.stderr)


def test_a_file_of_one_type_gets_filters_and_advice(tmp_path: Path) -> None:
    for at, name in enumerate(TYPES):
        path = tmp_path / f"{at}.parquet"
        table = pa.table({order: column(name, order) for order in ORDERS[1::3]})  # random, and the type's extremes
        pq.write_table(table, path, row_group_size=GROUP)
        parquet_bloom.add_filters(path, tmp_path / f"{at}.new")
        assert len(parquet_bloom.advise(path).columns) >= 2, name


def test_rows_are_found_in_columns_of_every_type(tmp_path: Path) -> None:
    table = pq.read_table(next(by_pyarrow(tmp_path)))
    # pyarrow filters no table with views; as texts they are asked above.
    table = table.select([c for c in table.column_names if "view" not in c and c.endswith(" random")])
    path = tmp_path / "found.parquet"
    pq.write_table(table, path, row_group_size=GROUP)
    parquet_bloom.add_filters(path, in_place=True)
    not_compared = {"float16", "bool8", "json", "null", "list", "large_list", "fixed_size_list", "struct", "map"}
    for name in [name for name in TYPES if "view" not in name and name not in not_compared]:
        values = table[f"{name} random"]
        if pa.types.is_dictionary(values.type):
            values = pc.cast(values, values.type.value_type)
        value = values[17]
        plain = value.value if isinstance(value, pa.ExtensionScalar) else value
        stored = values.combine_chunks()
        stored = stored.storage if isinstance(stored, pa.ExtensionArray) else stored
        there = pc.sum(pc.equal(stored, plain)).as_py()
        assert parquet_bloom.count(path, pc.field(f"{name} random") == value) == there, name


def test_polars_is_refused_decimals_that_it_does_not_have(tmp_path: Path) -> None:
    for precision in (38, 50):
        values = pa.array([decimal.Decimal(1)], pa.decimal256(precision, 0))
        for made in (values, inside(values, pa.struct([("value", values.type)]))):
            pq.write_table(pa.table({"x": made}), tmp_path / "x.parquet")
            with pytest.raises(parquet_bloom.RequestError, match="column x has a DECIMAL of 256 bits, which Polars"):
                parquet_bloom.scan_polars(tmp_path / "x.parquet")
    pq.write_table(pa.table({"x": values.cast(pa.decimal128(38, 0))}), tmp_path / "x.parquet")
    assert parquet_bloom.scan_polars(tmp_path / "x.parquet").collect().height == 1

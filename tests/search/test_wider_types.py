"""Files of one data set with a column in several types: rows have the wider type, whichever file comes first."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.repeats import first_then_more

import parquet_bloom
from parquet_bloom.cli import run
from parquet_bloom.errors import DamagedFileError, RequestError

FLOAT = 0.10000000149011612  # the FLOAT next to 0.1
DAY = dt.datetime(2026, 1, 2)


def after(**past: int) -> dt.datetime:
    return DAY + dt.timedelta(**past)


def decimals(*texts: str) -> list[Decimal]:
    return [Decimal(text) for text in texts]


# Two types, values of each, and the type of both.
PAIRS: dict[str, tuple[pa.DataType, list[Any], pa.DataType, list[Any], pa.DataType]] = {
    "int32 int64": (pa.int32(), [1, 2, -5], pa.int64(), [2, 2**40, 7], pa.int64()),
    "int8 int16": (pa.int8(), [1, 2, -5], pa.int16(), [2, 300, 7], pa.int16()),
    "uint8 int8": (pa.uint8(), [1, 200, 2], pa.int8(), [2, -100, 7], pa.int16()),
    "uint32 int32": (pa.uint32(), [1, 2**32 - 1, 2], pa.int32(), [2, -5, 7], pa.int64()),
    "uint32 uint64": (pa.uint32(), [1, 2**32 - 1, 2], pa.uint64(), [2, 2**62, 7], pa.uint64()),
    "float double": (pa.float32(), [0.5, FLOAT, 2.0], pa.float64(), [0.1, 2.0, 1e300], pa.float64()),
    "int32 double": (pa.int32(), [1, 2**31 - 1, 2], pa.float64(), [1.5, 2.0, 0.1], pa.float64()),
    "int16 float": (pa.int16(), [1, 2, -5], pa.float32(), [1.5, 2.0, FLOAT], pa.float32()),
    "int32 float": (pa.int32(), [1, 2**24 + 1, 2], pa.float32(), [1.5, 2.0, FLOAT], pa.float64()),
    "decimals": (pa.decimal128(5, 2), decimals("1.25", "999.99", "2.00"),
                 pa.decimal128(12, 2), decimals("1.25", "9999999999.99", "2.00"), pa.decimal128(12, 2)),
    "scales": (pa.decimal128(5, 2), decimals("1.25", "999.99", "2.00"),
               pa.decimal128(5, 4), decimals("1.2500", "1.2345", "2.0000"), pa.decimal128(7, 4)),
    "ms us": (pa.timestamp("ms"), [DAY, after(milliseconds=1), after(days=9)],
              pa.timestamp("us"), [DAY, after(microseconds=1), after(days=9)], pa.timestamp("us")),
    "times": (pa.time32("ms"), [dt.time(1), dt.time(2)],
              pa.time64("us"), [dt.time(1), dt.time(1, 0, 0, 1)], pa.time64("us")),
    "texts": (pa.string(), ["a", "b"], pa.large_string(), ["b", "c"], pa.string()),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["a", "b"], pa.string(), ["b", "c"], pa.string()),
    "null int64": (pa.null(), [None, None], pa.int64(), [2, 2**40], pa.int64()),
}  # fmt: skip
CASES = [(name, order) for name in PAIRS for order in ("narrow first", "wide first")]


def of_case(name: str, order: str) -> tuple[list[tuple[pa.DataType, list[Any]]], pa.DataType]:
    one, ones, other, others, both = PAIRS[name]
    parts = [(one, ones), (other, others)]
    return (parts if order == "narrow first" else parts[::-1]), both


def write(root: Path, parts: list[tuple[pa.DataType, list[Any]]], group: int = 2) -> Path:
    """A file for each part; id counts through all."""
    root.mkdir(exist_ok=True)
    first = 0
    for number, (kind, values) in enumerate(parts):
        ids = pa.array(range(first, first + len(values)), pa.int64())
        pq.write_table(
            pa.table({"id": ids, "k": pa.array(values, kind)}), root / f"{number}.parquet", row_group_size=group
        )
        first += len(values)
    return root


def spelled(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value}'"
    if isinstance(value, dt.time):
        return f"TIME '{value}'"
    if isinstance(value, float):
        return f"{value!r}" if "e" in repr(value) else f"{value!r}e0"
    return f"'{value}'" if isinstance(value, str) else str(value)


READERS: dict[str, Callable[[Path, str], list[tuple[int, Any]]]] = {
    "read_table": lambda root, where: pairs(parquet_bloom.read_table(root, where)),
    "read_batches": lambda root, where: [
        pair for batch in parquet_bloom.read_batches(root, where, batch_rows=2) for pair in pairs(batch)
    ],
    "Source": lambda root, where: pairs(parquet_bloom.Source(root).read_table(where)),
}


def pairs(rows: Any) -> list[tuple[int, Any]]:
    return list(zip(rows["id"].to_pylist(), rows["k"].to_pylist(), strict=True))


def test_rows_have_the_wider_type_and_all_values(tmp_path: Path) -> None:
    for name, order in CASES:
        parts, both = of_case(name, order)
        root = write(tmp_path / f"{name} {order}", parts)
        found = parquet_bloom.read_table(root)
        values = [value for _, own in parts for value in own]
        assert found["k"].to_pylist() == values, (name, order)
        if name not in ("texts", "dictionary"):  # these keep the first file's layout
            assert found.schema.field("k").type == both, (name, order)
        assert parquet_bloom.dataset(root).to_table()["k"].to_pylist() == values, (name, order)
        assert parquet_bloom.read_table(root, columns=["id"])["id"].to_pylist() == list(range(len(values)))


@pytest.mark.parametrize("part", first_then_more(range(4), 2))
def test_predicates_are_those_of_brute_force(tmp_path: Path, part: int) -> None:
    """Parts 0 and 1 have each pair of types in one order, by turns; 2 and 3 in the other."""
    for name, order in [case for n, case in enumerate(CASES) if n % 4 == (0, 3, 1, 2)[part]]:
        parts, _ = of_case(name, order)
        root = write(tmp_path / f"{name} {order}", parts, group=1)
        parquet_bloom.add_filters(root, columns="k", in_place=True, sync=False)
        rows = list(enumerate(value for _, own in parts for value in own))
        for literal in {value for _, value in rows if value is not None}:
            if name == "null int64" and order == "narrow first":
                continue  # nothing is compared with a column of NULLs alone
            hold(root, rows, literal)


def hold(root: Path, rows: list[tuple[int, Any]], literal: Any) -> None:
    """Every reader has the rows of brute force."""
    for op, holds in OPERATORS.items():
        expected = [row for row in rows if row[1] is not None and holds(row[1], literal)]
        where = f"k {op} {spelled(literal)}"
        for reader in READERS.values():
            assert reader(root, where) == expected, where
        assert parquet_bloom.count(root, where) == len(expected), where
        assert parquet_bloom.count(root, f"NOT ({where})") == sum(v is not None for _, v in rows) - len(expected)
        assert pairs(parquet_bloom.read_table(root, comparison(op, literal))) == expected, where
        assert pairs(parquet_bloom.dataset(root, where).to_table(filter=comparison(op, literal))) == expected, where
    expected = [row for row in rows if row[1] == literal]
    assert pairs(parquet_bloom.read_table(root, [("k", "in", [literal])])) == expected


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b),
    "<": lambda a, b: bool(a < b),
    ">=": lambda a, b: bool(a >= b),
}


def comparison(op: str, literal: Any) -> Any:
    k = pc.field("k")
    return {"=": k == literal, "<": k < literal, ">=": k >= literal}[op]


NESTED: list[tuple[pa.DataType, list[Any], pa.DataType, list[Any]]] = [
    (pa.struct({"x": pa.int32()}), [{"x": 1}], pa.struct({"x": pa.int64()}), [{"x": 2**40}, None]),
    (pa.list_(pa.float32()), [[0.5], None], pa.list_(pa.float64()), [[0.1, None], []]),
    (pa.list_(pa.struct({"t": pa.timestamp("ms")})), [[{"t": DAY}]], pa.list_(pa.struct({"t": pa.timestamp("us")})),
     [[{"t": after(microseconds=1)}]]),
    (pa.map_(pa.string(), pa.int8()), [[("a", 1)]], pa.map_(pa.string(), pa.int32()), [[("b", 1000)]]),
]  # fmt: skip


def test_nested_columns(tmp_path: Path) -> None:
    for at, (one, ones, other, others) in enumerate(NESTED):
        for number, parts in enumerate(([(one, ones), (other, others)], [(other, others), (one, ones)])):
            root = write(tmp_path / f"{at} {number}", parts)
            values = [value for _, own in parts for value in own]
            found = parquet_bloom.read_table(root)
            assert (found["k"].to_pylist(), found.schema.field("k").type) == (values, other)
            assert [v for _, v in pairs(parquet_bloom.read_table(root, "id >= 1"))] == values[1:]


@pytest.mark.parametrize(("order", "zone"), [(1, None), (-1, "UTC")])
def test_days_among_times_are_their_midnights(tmp_path: Path, order: int, zone: str | None) -> None:
    days, times = [DAY.date(), after(days=1).date()], [DAY, after(hours=1), after(days=1)]
    root = write(tmp_path / "t", [(pa.date32(), days), (pa.timestamp("us", zone), times)][::order], group=1)
    parquet_bloom.add_filters(root, columns="k", in_place=True, sync=False)
    utc = dt.UTC if zone else None
    midnights = [dt.datetime.combine(day, dt.time()).replace(tzinfo=utc) for day in days]
    parts = [midnights, [time.replace(tzinfo=utc) for time in times]][::order]
    rows = list(enumerate(parts[0] + parts[1]))
    assert pairs(parquet_bloom.read_table(root)) == rows
    for literal in (DAY, after(hours=1), after(days=1)):
        value = literal.replace(tzinfo=utc)
        for op, holds in OPERATORS.items():
            expected = [row for row in rows if holds(row[1], value)]
            for where in (f"k {op} TIMESTAMP '{value}'", f"k {op} DATE '{literal.date()}'"):
                if "DATE" in where and literal.hour:
                    continue
                with suppress(RequestError):  # a literal that the first file's column never equals
                    found = pairs(parquet_bloom.read_table(root, where))
                    assert found == expected, where
            assert pairs(parquet_bloom.dataset(root).to_table(filter=comparison(op, value))) == expected


MISFITS = {
    "uint64 int64": (pa.uint64(), [1, 2**63], pa.int64(), [-1, 2]),
    "int64 double": (pa.int64(), [1, 2], pa.float64(), [1.5]),
    "double int64": (pa.float64(), [1.5], pa.int64(), [2**53 + 1]),
    "int32 string": (pa.int32(), [1, 2], pa.string(), ["x"]),
    "string binary": (pa.string(), ["a"], pa.binary(), [b"\xff"]),
    "far times": (pa.timestamp("ns"), [DAY], pa.timestamp("us"), [dt.datetime(9999, 12, 31)]),
    "far times, us first": (pa.timestamp("us"), [dt.datetime(9999, 12, 31)], pa.timestamp("ns"), [DAY]),
}


def test_a_value_without_a_place_is_an_error_that_names_file_and_column(tmp_path: Path) -> None:
    message = r"{}/[01]\.parquet: column k is .*, and .* in .*0\.parquet and the rows: .*; read other columns, or"
    for name, (one, ones, other, others) in MISFITS.items():
        root = write(tmp_path / name, [(one, ones), (other, others)])
        for read in (
            lambda root=root: parquet_bloom.read_table(root), lambda root=root: list(parquet_bloom.read_batches(root)),
            lambda root=root: parquet_bloom.read_table(root, "id >= 0", columns=["k"]),
        ):  # fmt: skip
            with pytest.raises(RequestError, match=message.format(name)):
                read()
        assert parquet_bloom.read_table(root, columns=["id"]).num_rows == len(ones) + len(others)
        assert parquet_bloom.count(root, "id >= 1") == len(ones) + len(others) - 1


def test_a_file_that_is_damaged_stays_damaged(tmp_path: Path) -> None:
    root = write(tmp_path / "t", [(pa.int32(), [1, 2]), (pa.int64(), [3, 2**40])])
    path = root / "1.parquet"
    data = bytearray(path.read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    data[4:footer] = bytes(footer - 4)
    path.write_bytes(data)
    with pytest.raises(DamagedFileError):
        parquet_bloom.read_table(root)


def test_a_file_of_int96_makes_no_column_narrower_in_years(tmp_path: Path) -> None:
    root = write(tmp_path / "t", [(pa.timestamp("us"), [dt.datetime(9999, 12, 31), DAY])])
    times = pa.table({"id": [2], "k": pa.array([after(microseconds=1)], pa.timestamp("us"))})
    pq.write_table(times, root / "1.parquet", use_deprecated_int96_timestamps=True)
    found = parquet_bloom.read_table(root)
    assert found["k"].to_pylist() == [dt.datetime(9999, 12, 31), DAY, after(microseconds=1)]


def test_a_file_that_is_not_opened_has_no_say(tmp_path: Path) -> None:
    for day, kind in ((1, pa.int32()), (2, pa.int64())):
        write(tmp_path / f"day={day}", [(kind, [day, day])])
    assert parquet_bloom.read_table(tmp_path, "day = 1").schema.field("k").type == pa.int32()
    assert parquet_bloom.read_table(tmp_path, "day = 2").schema.field("k").type == pa.int64()
    assert parquet_bloom.read_table(tmp_path).schema.field("k").type == pa.int64()


def collected(frame: pl.LazyFrame) -> pl.DataFrame | Exception:
    try:
        return frame.collect()
    except (RequestError, pl.exceptions.ComputeError) as error:
        return error


def test_polars_has_the_first_files_type_or_an_error(tmp_path: Path) -> None:
    for name, order in CASES:
        parts, _ = of_case(name, order)
        root = write(tmp_path / f"{name} {order}", parts)
        frame = parquet_bloom.scan_polars(root)
        values = [value for _, own in parts for value in own]
        first = pl.from_arrow(pq.read_table(root / "0.parquet")).schema
        assert frame.collect_schema() == first, (name, order)
        rows = collected(frame)
        if isinstance(rows, pl.DataFrame):
            assert rows.schema == first
            assert rows["k"].to_list() == values, f"{name}, {order}: no value was rounded"
        else:
            assert "1.parquet: column k is" in str(rows), (name, order)
            own = pq.read_schema(root / "0.parquet").field("k").type
            assert parquet_bloom.read_table(root).schema.field("k").type != own
        assert frame.select("id").collect()["id"].to_list() == list(range(len(values)))


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write(tmp_path / "t", [(pa.int32(), [1, 2]), (pa.int64(), [2, 2**40])])
    assert run(["read", str(root), "k >= 2", "--format", "ndjson"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        '{"id": 1, "k": 2}', '{"id": 2, "k": 2}', f'{{"id": 3, "k": {2**40}}}',
    ]  # fmt: skip
    root = write(tmp_path / "u", [(pa.int32(), [1]), (pa.string(), ["x"])])
    assert run(["read", str(root), "id = 1"]) == 2
    assert "1.parquet: column k is string, and int32 in" in capsys.readouterr().err


KINDS: dict[str, list[pa.DataType]] = {
    "numbers": [pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.float32(), pa.float64()],
    "whole": [pa.int8(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64()],
    "decimals": [pa.decimal128(5, 2), pa.decimal128(9, 0), pa.decimal128(18, 4), pa.decimal128(20, 6)],
    "times": [pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns")],
}


def value_of(kind: pa.DataType, chance: Random) -> Any:
    if chance.random() < 0.15:
        return None
    if pa.types.is_decimal(kind):
        return (
            Decimal(chance.randint(-300, 300))
            .scaleb(-min(kind.scale, chance.randint(0, 3)))
            .quantize(Decimal(1).scaleb(-kind.scale))
        )
    if pa.types.is_timestamp(kind):
        step = {"ms": 1000, "us": 1, "ns": 1}[kind.unit]
        return after(microseconds=chance.choice([0, 1, 2, 500]) * step)
    if pa.types.is_floating(kind):
        number = chance.choice([0.1, 0.5, 1.0, 2.0, 3.7, -1.0, FLOAT, 100.0])
        return number if kind == pa.float64() else pa.scalar(number, kind).as_py()
    low = 0 if pa.types.is_unsigned_integer(kind) else -3
    most = 2 ** (kind.bit_width - pa.types.is_signed_integer(kind)) - 1
    return chance.choice([*range(low, 4), 100, most])


@pytest.mark.parametrize("examples", first_then_more([20, 60], 1))
def test_random_types_and_values(tmp_path_factory: pytest.TempPathFactory, examples: int) -> None:
    """Rows of several files against brute force over exact values, with bounds, filters and several row groups."""

    @settings(max_examples=examples, deadline=None)
    @given(seed=st.integers(0, 2**32 - 1))
    def try_all(seed: int) -> None:
        rows_are_those_of_brute_force(tmp_path_factory.mktemp("t"), Random(seed))

    try_all()


def rows_are_those_of_brute_force(folder: Path, chance: Random) -> None:
    kinds = KINDS[chance.choice(sorted(KINDS))]
    parts = []
    for _ in range(chance.randint(2, 4)):
        kind = chance.choice(kinds)
        parts.append((kind, [value_of(kind, chance) for _ in range(chance.randint(1, 6))]))
    root = write(folder, parts, group=chance.randint(1, 3))
    parquet_bloom.add_filters(root, columns="k", in_place=True, sync=False)
    rows = list(enumerate(value for _, own in parts for value in own))
    assert pairs(parquet_bloom.read_table(root)) == rows
    literal = next((v for _, v in chance.sample(rows, len(rows)) if v is not None), None)
    if literal is not None:
        hold(root, rows, literal)

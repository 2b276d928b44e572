"""prune(path, column=, values=): many keys at once, and no row group that holds one of them is lost."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engines import made, ordered
from support.repeats import first_then_more

from parquet_bloom import add_filters, prune
from parquet_bloom.errors import RequestError, UnknownColumnError


def files(folder: Path, tables: Any) -> list[Path]:
    """With filters and bounds, with filters alone, with bounds alone."""
    bounds, bare = made.write(folder / "bounds.parquet", tables), folder / "bare.parquet"
    made.write(bare, tables, write_statistics=False)
    for source in (bounds, bare):
        add_filters(source, folder / f"filtered_{source.name}", columns=made.leaves(source), sync=False)
    return [folder / "filtered_bounds.parquet", folder / "filtered_bare.parquet", bounds]


def kept(path: Path, column: str, values: Any, **options: Any) -> list[int]:
    found = prune(path, column=column, values=values, **options)
    return found[0][1] if found else []


def holding(tables: Any, column: str, values: Any) -> list[int]:
    """Row groups with one of the keys, by Python's equality: 0.0 is -0.0; NULL and NaN are nothing."""
    wanted = set(values) - {None}
    return [at for at, table in enumerate(tables) if wanted & {v for v in table[column].to_pylist() if v == v}]


# --- every type -------------------------------------------------------------------------------------

FIXTURES = made.row_groups((40, 30, 20, 30))
STORED, ELSEWHERE = FIXTURES[:-1], FIXTURES[-1]
NO_KEYS = ("null_type", "duration_us", "all_nulls")


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return files(tmp_path_factory.mktemp("fixtures"), STORED)


WITH_KEYS = [name for name in made.flat(FIXTURES[0]) if name not in NO_KEYS]


@pytest.mark.parametrize("names", first_then_more([WITH_KEYS[::3], WITH_KEYS[1::3] + WITH_KEYS[2::3]], 1), ids=len)
def test_never_loses_a_key(fixtures: list[Path], names: list[str]) -> None:
    """Each stored value alone, and random mixtures of stored values and others, as lists and as arrays."""
    for name in names:
        rng = random.Random(name)
        column, kind = made.quoted(name), STORED[0].schema.field(name).type
        stored = [v for table in STORED for v in table[name] if v.is_valid]
        others = [v for v in ELSEWHERE[name] if v.is_valid]
        chosen = [[v] for v in rng.sample(stored, 4)]
        mixed = [[*rng.sample(stored, rng.randrange(4)), *rng.sample(others, 5)] for _ in range(4)]
        for scalars in [*chosen, *([*some, pa.scalar(None, kind)] for some in mixed)]:
            values = [scalar.as_py() for scalar in scalars]
            wanted = set(holding(STORED, name, values))
            for i, path in enumerate(fixtures, len(values)):
                # Every second time; Python's times have no nanoseconds, so that a list cannot ask for them.
                if i % 2 and name != "time_ns":
                    assert wanted <= set(kept(path, column, values)), f"{path.name}: {values}"
                    continue
                array = pa.chunked_array([pa.concat_arrays([pa.repeat(s, 1) for s in scalars])])
                assert wanted <= set(kept(path, column, array)), f"{path.name}: {array}"


SKIPPABLE = ["random_int64", "random_int32", "uint64", "utf8", "binary", "fixed_binary_5", "uuid", "decimal_38", "date",
             "timestamp_us", "timestamp_us_utc", "random_double", "dictionary_utf8", "dotted.name"]  # fmt: skip


def test_skips_by_filters_alone(fixtures: list[Path]) -> None:
    """One key of one row group: at most now and then another row group is kept."""
    for name in SKIPPABLE:
        column, extra = made.quoted(name), 0
        for group, table in enumerate(STORED):
            for value in table[name][:8]:
                found = kept(fixtures[1], column, pa.repeat(value, 1))
                assert group in found, name
                extra += len(found) - len(holding(STORED, name, [value.as_py()]))
        assert extra <= 3, f"{name}: {extra} of 48 row groups kept for nothing"


# --- how keys are given -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def by_row(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return files(tmp_path_factory.mktemp("ordered"), ordered.row_groups())


INTEGERS: list[Any] = [
    [50], (50,), {50}, range(50, 51), np.array([50]), np.array([50], np.int8), np.array([50], np.uint64),
    pa.array([50]), pa.array([50], pa.uint8()), pa.chunked_array([[50], [None]], pa.int64()), [np.int32(50)],
    [pa.scalar(50)], [50, None], [50, 2**40, -(2**70)], [50.0], np.array([50.0]), [Decimal("50.0")], [50, 50, 50],
    [50, 1.5], pa.array([50, None, 51], pa.int16()), {50: "a key of a dict"},
]  # fmt: skip


def test_integers_in_any_form(by_row: list[Path]) -> None:
    for values in INTEGERS:
        assert kept(by_row[0], "i", values) == [1], f"50 is in row 35, of the second row group: {values!r}"


def test_an_iterator_is_used_once_for_all_files(by_row: list[Path]) -> None:
    found = prune(list(map(str, by_row)), column="i", values=iter([50]))
    assert [groups for _, groups in found] == [[1]] * 3


KEYS: list[tuple[str, Any, list[int]]] = [
    ("i", [], []), ("i", [None], []), ("i", pa.array([], pa.int64()), []), ("i", np.array([], np.int64), []),
    ("i", [2**31, -(2**31) - 1, 2**100], []), ("i", [1.5, 50.5], []), ("i", [-300, 690], [0, 3]),
    ("small", [-1, 256, 300], []), ("small", [0, 99, 1000], [0, 3]), ("unsigned", [-1], []),
    ("unsigned", [99 << 57], [3]), ("unsigned", pa.array([2**64 - 1], pa.uint64()), []),
    ("wide", np.array([-50 << 50, 49 << 50]), [0, 3]), ("wide", [2**63], []),
    ("s", ["name-001", "name-099", "x", None], [0, 3]), ("s", np.array(["name-030"]), [1]),
    ("s", pa.array(["name-001"], pa.large_string()), [0]), ("s", pa.array(["name-001"]).dictionary_encode(), [0]),
    ("s", pa.array(["name-001"], pa.string_view()), [0]), ("s", [""], []), ("colour", [""], [0, 1, 2, 3]),
    ("s", [b"name-030"], [1]),
    ("b", [b"\x07\0"], [0]), ("b", [b"\x07"], []), ("b", [b"\0\0", b"\x63\0"], [0, 3]), ("b", [b""], []),
    ("fixed", [b"\x07\0\0"], [0]), ("fixed", [b"\0\0\0"], [0]), ("fixed", [b"\x07"], []),
    ("id", [uuid.UUID(int=0), uuid.UUID(int=99 << 120)], [0, 3]), ("id", [str(uuid.UUID(int=7 << 120))], [0]),
    ("id", [uuid.UUID(int=7 << 120).bytes], [0]), ("id", [uuid.UUID(int=1)], []),
    ("day", [dt.date(2026, 1, 1), dt.date(1, 1, 1)], [0]),
    ("day", np.array(["2026-01-01"], "datetime64[D]"), [0]),
    ("day", ["2026-02-01"], [1]), ("day", pa.array([dt.date(2026, 4, 10)], pa.date64()), [3]),
    ("ts", [dt.datetime(2026, 1, 2, 0, 0, 0, 4)], [0]),
    ("ts", np.array(["2026-01-02T00:00:00.000004"], "M8[us]"), [0]),
    ("ts", np.array(["2026-01-02T00:00:00.000004000"], "M8[ns]"), [0]), ("ts", [dt.datetime(2026, 1, 2)], []),
    ("ts_ms", np.array(["2026-01-01T06:00:00.001"], "M8[ns]"), [0]),
    ("ts_ms", pa.array([dt.datetime(2026, 1, 1, 6, 0, 0, 1001)], pa.timestamp("us")), []),
    ("utc", [dt.datetime(2026, 1, 2, tzinfo=dt.UTC)], [0]), ("clock", [dt.time(0, 14)], [0]),
    ("utc", pa.array([dt.datetime(2026, 1, 25, 18, tzinfo=dt.UTC)], pa.timestamp("us", "Asia/Tokyo")), [3]),
    ("price", [Decimal("-20.00"), Decimal("103.75")], [0, 3]),
    ("price", [Decimal("-20"), 5, Decimal("1.001")], [0]),
    ("price", pa.array([Decimal("103.7500")], pa.decimal128(20, 4)), [3]), ("price", [Decimal("1e20")], []),
    ("big", [Decimal("-5000000000000000")], []), ("big", [-50 * 10**20], [0]), ("big", [0], [2]),
    ("x", [0.0], [1]), ("x", [-0.0], [1]), ("x", np.array([-10.0, 14.75]), [0, 3]), ("x", [float("inf")], []),
    ("f", np.array([0.1], np.float32), [1]),
    ("nothing", [1, 2], []), ("person.id", [-40, 59], [0, 3]), ("person.mail", ["099@x"], [3]),
    ("tags", [3], [0]), ("words", ["w7", "w99"], [0, 3]), ("words.list.element", ["w30"], [1]),
    ('"dotted.name"', [7], [0]), ('"say ""hi"""', [99], [3]), ("select", range(50, 60), [2]),
]  # fmt: skip


def test_keys_of_every_type(by_row: list[Path]) -> None:
    """Where bounds tell exactly, no other row group is kept; without them a filter may err."""
    both, filters, _ = by_row
    for column, values, groups in KEYS:
        assert kept(both, column, values) == groups, (column, values)
        assert set(groups) <= set(kept(filters, column, values)), (column, values)


def test_a_key_without_a_certain_meaning_keeps_all(by_row: list[Path]) -> None:
    for column, values in (
        ("x", [10**400]), ("x", [float("nan")]), ("day", ["2026-01-01 12:30"]), ("id", ["no uuid, 16 long"]),
        ("ok", [True]), ("s", pa.array([dt.timedelta(1)])), ("wide", [float(2**60)]), ("i", [[50]]),
    ):  # fmt: skip
        for path in by_row:
            assert len(kept(path, column, values)) >= 3, (column, values)  # the last row group of `ok` has nulls alone


def test_a_key_of_another_kind_is_an_error(by_row: list[Path]) -> None:
    for column, values in (
        ("i", ["50"]), ("s", [5]), ("s", pa.array([5])), ("id", ["no uuid"]), ("day", [5]), ("i", [object()]),
        ("ts", [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]), ("utc", [dt.datetime(2026, 1, 1)]), ("day", ["2026-13-45"]),
        ("i", [50, "x"]),
    ):  # fmt: skip
        for path in by_row:
            with pytest.raises(RequestError, match=f"column {column} is .* is no literal for it"):
                prune(path, column=column, values=values)


def test_hits_say_how_many_keys_may_be_there(by_row: list[Path]) -> None:
    keys = [*range(-300, 0, 10), 1, 2, 3]
    assert prune(by_row[0], column="i", values=keys).hits == {}
    found = prune(by_row[0], column="i", values=keys, count_hits=True)
    assert found.row_groups == 4
    assert {group: n for (_, group), n in found.hits.items()} == {0: 25, 1: 5}
    assert prune(by_row[2], column="i", values=keys, count_hits=True).hits == {}, "without filters nothing is counted"
    assert prune(by_row[2], column="i", values=keys)[0][1] == [0, 1]


def test_filters_are_not_used_if_asked_so(by_row: list[Path]) -> None:
    assert kept(by_row[0], "i", [55]) == []
    assert kept(by_row[0], "i", [55], use_filters=False) == [1]


def test_requests_that_make_no_sense(by_row: list[Path]) -> None:
    path = by_row[0]
    for options in ({}, {"column": "i"}, {"values": [1]}, {"predicate": "i = 1", "column": "i", "values": [1]}):
        with pytest.raises(RequestError, match="give a predicate, or else"):
            prune(path, **options)
    for values in ("text", b"bytes", 5):
        with pytest.raises(RequestError, match="array or a list"):
            prune(path, column="i", values=values)
    with pytest.raises(UnknownColumnError, match="smal.*small"):
        prune(path, column="smal", values=[1])


def test_one_column_of_two_types(tmp_path: Path) -> None:
    """Keys are cast anew for a file whose column is wider."""
    for name, kind in (("a", pa.int32()), ("b", pa.int64()), ("c", pa.string())):
        values = pa.array([1, 2, 3]).cast(kind)
        pq.write_table(pa.table({"k": values}), tmp_path / f"{name}.parquet")
    add_filters(tmp_path, in_place=True, sync=False, columns=["*"])
    found = prune(tmp_path, column="k", values=[2, 2**40])
    assert [(Path(p).name, groups) for p, groups in found] == [(f"{name}.parquet", [0]) for name in "abc"]
    assert [Path(p).name for p, _ in prune(tmp_path, column="k", values=[2**40])] == ["c.parquet"]


def test_a_column_that_one_file_lacks_and_partition_columns(tmp_path: Path) -> None:
    for year, columns in ((2025, {"k": [1, 2], "other": [1, 2]}), (2026, {"other": [1, 2]})):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(pa.table(columns), tmp_path / f"year={year}" / "x.parquet")
    for column, values, year in (("k", [1], 2025), ("year", [2026, 2030], 2026)):
        assert [Path(p).parent.name for p, _ in prune(tmp_path, column=column, values=values)] == [f"year={year}"]


def test_many_keys(tmp_path: Path) -> None:
    """Against the naive answer, over random keys: every row group that holds one is kept, hardly any else."""
    rng = np.random.default_rng(5)
    stored = rng.integers(0, 2**62, 20_000)
    made.write(tmp_path / "a.parquet", [pa.table({"k": part}) for part in np.split(stored, 20)], write_statistics=False)
    add_filters(tmp_path / "a.parquet", tmp_path / "b.parquet", fpp=1e-6, sync=False, columns=["*"])
    for n in (1, 3, 1000):
        keys = np.concatenate([rng.choice(stored, n), rng.integers(0, 2**62, 1000)])
        holds = [g for g, part in enumerate(np.split(stored, 20)) if np.isin(part, keys).any()]
        found = kept(tmp_path / "b.parquet", "k", keys)
        assert set(holds) <= set(found)
        assert len(found) <= len(holds) + 1

"""Key indexes as evidence: data sets whose files differ, every function that asks, and how much an index closes.

Random files of every type, footers of old writers and brute force over their rows: tests/property/test_key_indexes.py.
"""

from __future__ import annotations

import datetime as dt
import pickle
import uuid
from collections.abc import Callable
from decimal import Decimal
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.random_questions import few_of, literal_in, random_predicate, random_rows
from support.repeats import more_then_slow

import parquet_bloom
from keys.key_indexes import manifest_of, rows_of, same_rows
from parquet_bloom.errors import FilterWarning, RequestError
from parquet_bloom.keys.build import build_index
from parquet_bloom.keys.update import update_index
from parquet_bloom.predicates.tree import Compare, Contains, IsIn
from parquet_bloom.search import together

NAN, INF = float("nan"), float("inf")
DAY, NOON = dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, 12, 0, 0, 1000)
# One column of several types: what files of one data set may have under one name.
MIXED: dict[str, list[tuple[pa.DataType, list[Any]]]] = {
    "whole": [(pa.int32(), [-1, 0, 7, 2**31 - 1]), (pa.int64(), [-1, 0, 7, 2**40]), (pa.uint32(), [0, 7, 2**32 - 1]),
              (pa.uint64(), [0, 7, 2**64 - 1]), (pa.int8(), [-1, 7, 127])],
    "decimal": [(pa.decimal128(9, 2), [Decimal("1.25"), Decimal("-7.00")]),
                (pa.decimal128(18, 2), [Decimal("1.25"), Decimal("123456789012.00")]),
                (pa.decimal128(38, 2), [Decimal("1.25"), Decimal(10**20)]), (pa.decimal128(9, 3), [Decimal("1.250")])],
    "real": [(pa.float64(), [0.0, -0.0, 1.5, 0.1, NAN, INF]), (pa.float32(), [0.0, -0.0, 1.5, NAN]),
             (pa.float16(), [0.0, -0.0, 1.5, NAN, -INF])],
    "time": [(pa.timestamp("us"), [NOON]), (pa.timestamp("ms"), [NOON]), (pa.timestamp("ns"), [NOON])],
    "zoned": [(pa.timestamp("us", "UTC"), [NOON.replace(tzinfo=dt.UTC)]),
              (pa.timestamp("ms", "UTC"), [NOON.replace(tzinfo=dt.UTC)])],
    "day": [(pa.date32(), [DAY, dt.date(1969, 12, 31)])],
    "text": [(pa.string(), ["", "a", "é", "z" * 70, "z" * 71]), (pa.dictionary(pa.int32(), pa.string()), ["a", "b"]),
             (pa.large_string(), ["a", "z" * 70]), (pa.binary(), [b"a", b"\xff"])],
    "key": [(pa.uuid(), [uuid.UUID(int=5).bytes, uuid.UUID(int=2**127).bytes])],
    "list": [(pa.list_(pa.int64()), [[1, None], [], [5, 7]])],
}  # fmt: skip


def array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.UuidType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, pa.binary(16)))
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).cast(kind)
    return pa.array(values, kind)


def write_mixed(folder: Path, rng: Random, name: str, files: int = 6) -> list[pa.DataType]:
    """Files with a column of one name and several types; some lack it, some have its name in another case."""
    kinds = []
    for number in range(files):
        kind, values = rng.choice(MIXED[name]) if number else MIXED[name][0]
        kinds.append(kind)
        spelled = "c" if number == 0 or rng.random() < 0.75 else rng.choice(["C", "other"])
        groups = []
        for _ in range(rng.randint(1, 3)):
            nulls = rng.choice([0.0, 0.2, 1.0])
            some = few_of(rng, {"c": values})
            rows = random_rows(rng, some, rng.choice([0, 1, 5, 9]), nulls)
            groups.append(pa.table({"row": pa.array(range(len(rows)), pa.int64()),
                                    spelled: array([row["c"] for row in rows], kind)}))  # fmt: skip
        place = folder / rng.choice(["p=1", "p=2"])
        place.mkdir(parents=True, exist_ok=True)
        options = {"use_dictionary": rng.random() < 0.5, "store_decimal_as_integer": rng.random() < 0.5,
                   "write_statistics": rng.random() < 0.5}  # fmt: skip
        with pq.ParquetWriter(place / f"{number}.parquet", groups[0].schema, **options) as writer:
            for table in groups:
                writer.write_table(table)
    return kinds


@pytest.mark.parametrize("seed", [0, *more_then_slow(range(1, 60), 1)])
@pytest.mark.parametrize("name", MIXED)
def test_files_of_several_types_lose_no_row(name: str, seed: int, tmp_path: Path) -> None:
    """Whatever reading does without an index, rows or an error, it does with one."""
    rng = Random(f"{name} {seed}")
    data, index = tmp_path / "data", tmp_path / "index"
    write_mixed(data, rng, name)
    paths = sorted(data.rglob("*.parquet"), key=lambda path: path.name)
    build_index(paths, ["c"] if name != "list" else ["c.list.element"], index)
    values = {repr(v): (v, kind) for kind, some in MIXED[name] for v in some if v is not None}
    for at, (value, kind) in enumerate(values.values()):
        if name == "list":
            trees: list[Any] = [Contains(("c",), one) for one in value if one is not None]
        else:
            plain = kind.value_type if pa.types.is_dictionary(kind) else kind
            literal = value if name == "key" else literal_in(value, plain)
            trees = [] if literal is None else [
                Compare(("c",), "=", literal), IsIn(("c",), (literal, None)), Compare(("c",), ">=", literal)
            ][: 3 if at < 2 else 1]  # fmt: skip
        for tree in trees:
            hold(paths, tree, index)
        if trees:
            hold_places(paths, trees[0], trees[0].value if name == "list" else value, index)
    first = MIXED[name][0]
    if name not in ("key", "list"):
        for _ in range(5):
            leaves = {("c",): first, ("row",): (pa.int64(), [0, 3]), ("p",): (pa.int32(), [1, 2, 3])}
            hold(paths, random_predicate(rng, leaves), index)


def left_of(source: Any, tree: Any, index: Path | None = None) -> set[tuple[str, int]]:
    return {(path, n) for path, groups in parquet_bloom.prune(source, tree, index=index) for n in groups}


def hold(source: Any, tree: Any, index: Path) -> None:
    """Hold verdicts, rows and counts with an index against those without, or errors against errors."""
    try:
        wanted = parquet_bloom.read_table(source, tree, columns=["row"])
    except RequestError as error:
        if " and the rows: " in str(error):  # a value has no place in the column's type; what is not read has none
            return
        with pytest.raises(RequestError):
            parquet_bloom.read_table(source, tree, columns=["row"], index=index)
        return
    found = parquet_bloom.read_table(source, tree, columns=["row"], index=index)
    assert rows_of(found) == rows_of(wanted), tree
    assert parquet_bloom.count(source, tree, index=index) == wanted.num_rows, tree
    with_rows = {(str(path), n) for path in source for n in range(pq.read_metadata(path).num_row_groups)}
    assert left_of(source, tree, index) <= left_of(source, tree) & with_rows, tree


def hold_places(paths: list[Path], tree: Any, value: Any, index: Path) -> None:
    """Each row group that holds a value is left, if it is without an index: by brute force."""
    before, after = left_of(paths, tree), left_of(paths, tree, index)
    for path in paths:
        with pq.ParquetFile(path) as file:
            if "c" not in file.schema_arrow.names:
                continue
            for n in range(file.num_row_groups):
                held = file.read_row_group(n)["c"].to_pylist()
                inside = [one for some in held for one in (some if isinstance(some, list) else [some])]
                if value in inside and (str(path), n) in before:
                    assert (str(path), n) in after, (path, n, tree)


# --- how much it closes -----------------------------------------------------------------------------


def test_a_value_that_is_nowhere_is_closed_in_all_types(tmp_path: Path) -> None:
    """In each type that its column may have, without bounds and filters."""
    nowhere = {"real": 1.5, "whole": 7, "decimal": MIXED["decimal"][0][1][0]}
    for name in [one for one in MIXED if one not in ("list", "key")]:
        data, index = tmp_path / name, tmp_path / f"index of {name}"
        data.mkdir()
        kinds = [kind for kind, _ in MIXED[name] if not pa.types.is_binary(kind)]
        value = nowhere.get(name, MIXED[name][0][1][-1])
        for number, kind in enumerate(kinds):
            values = [one for one in MIXED[name][number][1] if one != value and one == one] + [None]
            pq.write_table(pa.table({"c": array(values, kind)}), data / f"{number}.parquet", write_statistics=False)
        paths = sorted(data.iterdir())
        build_index(paths, "c", index, false_places=1e-6)
        assert len(manifest_of(index).segments) >= min(len(kinds), 2) - (name in ("text", "day", "zoned")), name
        for path in paths:
            kind = pq.read_schema(path).field("c").type
            plain = kind.value_type if pa.types.is_dictionary(kind) else kind
            verdicts = parquet_bloom.check(path, Compare(("c",), "=", literal_in(value, plain)), index=index)
            assert [one.decided_by for one in verdicts] == ["index"], (path, kind)


def test_expected_and_measured_false_places_agree(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    rng = Random(4)
    for number in range(4):
        ids = [rng.randrange(2**60) * 2 for _ in range(1500)]
        pq.write_table(
            pa.table({"id": ids}), tmp_path / f"data/{number}.parquet", row_group_size=25, write_statistics=False
        )
    report = build_index(tmp_path / "data", "id", tmp_path / "index", false_places=64.0)
    [column] = report.columns
    asked, met = 300, 0
    for _ in range(asked):
        closed = parquet_bloom.check(tmp_path / "data", f"id = {rng.randrange(2**60) * 2 + 1}", use_filters=False,
                                     index=tmp_path / "index")  # fmt: skip
        met += sum(not one.skipped for one in closed)
    assert 0.5 < column.false_places < 1.01
    assert 0.75 * column.false_places < met / asked < 1.25 * column.false_places


# --- every function that asks -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that no test changes; their index lies beside them."""
    rng, folder = Random(9), tmp_path_factory.mktemp("evidence")
    for number in range(12):
        path = folder / f"data/p={number % 3}/{number:02}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.table(
            {"id": [number * 100 + i for i in range(60)], "s": [f"s{rng.randrange(200)}" for _ in range(60)]}
        )
        pq.write_table(table, path, row_group_size=20, write_statistics=False)
    build_index(folder / "data", ["id", "s"], folder / "index")
    return folder / "data"


PREDICATES = ["id = 707", "id IN (5, 707, 99999) AND p = 1", "s = 's5' AND NOT id = 3", "NOT (id = 5 OR s = 's7')",
              "id BETWEEN 300 AND 303", "id IS NULL", "s IS NOT NULL AND p IN (0, 2) AND id = 800", "id = 5 AND id = 6",
              "id IS NOT DISTINCT FROM 5", "p = 2 OR id = 0", "id = 1 OR length(s) = 2"]  # fmt: skip


@pytest.mark.parametrize("fewest", [1, 1000])
def test_all_functions_give_the_same_rows(fewest: int, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files decided together, and one by one."""
    monkeypatch.setattr(together, "FEWEST", fewest)
    index, refused = data.parent / "index", 0
    for predicate in PREDICATES:
        try:
            wanted = parquet_bloom.read_table(data, predicate)
        except RequestError:
            with pytest.raises(RequestError):
                parquet_bloom.read_table(data, predicate, index=index)
            refused += 1
            continue
        assert same_rows(data, predicate, index) == wanted.num_rows
        batches = list(parquet_bloom.read_batches(data, predicate, index=index))
        assert sum(batch.num_rows for batch in batches) == wanted.num_rows, predicate
        found = parquet_bloom.dataset(data, predicate, index=index)
        assert set(wanted["id"].to_pylist()) <= set(found.to_table()["id"].to_pylist()), predicate
        verdicts = parquet_bloom.check(data, predicate, index=index)
        pruned = [(path, n) for path, groups in parquet_bloom.prune(data, predicate, index=index) for n in groups]
        assert pruned == [(one.path, one.row_group) for one in verdicts if not one.skipped], predicate
        source = parquet_bloom.Source(data, index=index)
        assert source.count(predicate) == wanted.num_rows, predicate
        assert rows_of(source.read_table(predicate)) == rows_of(wanted), predicate
    assert refused == 1, "length(s) is no column"


def test_files_between_excluded_ones_keep_their_order(tmp_path: Path) -> None:
    """By brute force: value n is in files of its own choice, alone, neighbours, or all but some."""
    rng = Random(3)
    data, index, files = tmp_path / "data", tmp_path / "index", range(24)
    data.mkdir()
    holders = {n: sorted(rng.sample(files, (0, 1, 3, 9, 17, 23, 24)[n % 7])) for n in range(21)}
    paths = [str(data / f"{number:02}.parquet") for number in files]
    for number in files:
        ids = [*sorted(n for n, own in holders.items() if number in own), 1000 + number]
        pq.write_table(pa.table({"id": [*ids, -1]}), paths[number], row_group_size=len(ids) + 1)
    build_index(data, "id", index)
    for (n, own), listing in product(holders.items(), (True, False)):
        how: Any = {"index": index, "listing": listing}
        seen = [0, *(number for number in own if number)]  # the first file is opened for its columns
        verdicts = parquet_bloom.check(data, f"id = {n}", **how)
        assert [one.path for one in verdicts] == [paths[number] for number in seen]
        assert [one.path for one in verdicts if not one.skipped] == [paths[number] for number in own]
        assert [one.path for one in pickle.loads(pickle.dumps(verdicts)).excluded] == [
            paths[number] for number in files if number not in seen
        ]
        assert {one.decided_by for one in verdicts.excluded} <= {"index"}
        assert verdicts.to_dict()["totals"]["files_excluded"] == len(files) - len(seen)
        pruned = parquet_bloom.prune(data, f"id = {n}", **how)
        assert [path for path, groups in pruned if groups] == [paths[number] for number in own]
        calls: list[Any] = []
        parquet_bloom.check(data, f"id = {n}", **how, progress=calls.append)
        assert [one.path for one in calls] == paths


@pytest.mark.parametrize("seed", range(4))
def test_and_or_in_over_folders_and_segments(seed: int, tmp_path: Path) -> None:
    """By brute force: parts of an AND leave few places, others leave many; each folder and segment for itself."""
    rng = Random(seed)
    data, index = tmp_path / "data", tmp_path / "index"
    rows: dict[str, list[dict[str, Any]]] = {}

    def write(number: int) -> None:
        path = data / f"p={number % 3}/{number:02}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        own = [
            {"a": rng.choice([None, *range(40)]), "b": f"t{rng.randrange(25)}", "c": rng.randrange(1000)}
            for _ in range(24)
        ]
        pq.write_table(pa.Table.from_pylist(own), path, row_group_size=rng.choice([4, 8, 24]))
        rows[str(path)] = own

    for number in range(9):
        write(number)
    build_index(data, ["a", "b"], index)
    for number in range(9, 15):
        write(number)
    update_index(index, data)
    questions: list[tuple[str, Callable[[dict[str, Any], int], bool]]] = [
        ("a = 7 AND b = 't3'", lambda r, p: r["a"] == 7 and r["b"] == "t3"),
        ("a IN (1, 2, 3) AND b IN ('t1', 't2') AND p = 1",
         lambda r, p: r["a"] in (1, 2, 3) and r["b"] in ("t1", "t2") and p == 1),
        ("a = 5 OR b = 't9'", lambda r, p: r["a"] == 5 or r["b"] == "t9"),
        ("a = 5 AND (b = 't9' OR b = 't8')", lambda r, p: r["a"] == 5 and r["b"] in ("t8", "t9")),
        ("a IS NULL AND b = 't4'", lambda r, p: r["a"] is None and r["b"] == "t4"),
        ("a IS NOT DISTINCT FROM 12 AND NOT b = 't4'", lambda r, p: r["a"] == 12 and r["b"] != "t4"),
        ("a BETWEEN 10 AND 12 AND c < 500", lambda r, p: r["a"] in (10, 11, 12) and r["c"] < 500),
        ("NOT a = 3 AND p = 2 AND b = 't0'", lambda r, p: r["a"] not in (3, None) and p == 2 and r["b"] == "t0"),
        ("a = 100 AND b = 't1'", lambda r, p: False),
        ("c = 77 AND a = 9", lambda r, p: r["c"] == 77 and r["a"] == 9),
    ]  # fmt: skip
    for text, is_wanted in questions:
        wanted = sum(is_wanted(r, int(path.split("p=")[1][0])) for path, own in rows.items() for r in own)
        for listing in (True, False):
            assert parquet_bloom.count(data, text, index=index, listing=listing) == wanted, text
        kept = parquet_bloom.check(data, text, index=index)
        plain = parquet_bloom.check(data, text)
        assert {(v.path, v.row_group) for v in kept if not v.skipped} <= {
            (v.path, v.row_group) for v in plain if not v.skipped
        }


def test_polars_and_keys(data: Path) -> None:
    lazy = parquet_bloom.scan_polars(data, index=data.parent / "index")
    for where in (pl.col("id") == 707, pl.col("id").is_in([5, 707, 9]), (pl.col("s") == "s5") & (pl.col("p") == 1)):
        plain = parquet_bloom.scan_polars(data).filter(where).collect()
        assert lazy.filter(where).collect().equals(plain)
    keys = [5, 707, 1159, 99999]
    with_index = parquet_bloom.prune(data, column="id", values=keys, index=data.parent / "index")
    without = parquet_bloom.prune(data, column="id", values=keys)
    assert {path for path, _ in with_index} <= {path for path, _ in without}
    for key in keys[:3]:
        path = next(str(p) for p in data.rglob("*.parquet") if key in pq.ParquetFile(p).read()["id"].to_pylist())
        assert path in {str(one) for one, _ in with_index}


def test_a_folder_key_of_the_columns_name_is_the_folders(tmp_path: Path) -> None:
    """Files have the column, and their folders' names say something else."""
    for number in range(3):
        path = tmp_path / f"data/id={number}/a.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"id": [50, 60], "k": [number, 9]}), path)
    files = sorted((tmp_path / "data").rglob("*.parquet"))
    build_index(tmp_path / "data", "k", tmp_path / "index")
    closed = parquet_bloom.check(tmp_path / "data", "k = 1", index=tmp_path / "index")
    assert [Path(one.path).parent.name for one in closed if not one.skipped] == ["id=1"]
    with pytest.warns(FilterWarning, match="column id has other values than its folder"):
        assert same_rows(tmp_path / "data", "id = 1", tmp_path / "index") == 2
    assert same_rows(tmp_path / "data", "id = 50 AND k = 1", tmp_path / "index") == 0
    copies = tmp_path / "flat"
    copies.mkdir()
    for number, path in enumerate(files):
        (copies / f"{number}.parquet").write_bytes(path.read_bytes())
    build_index(copies, ["id", "k"], tmp_path / "index2")
    assert same_rows(copies, "id = 50", tmp_path / "index2") == 3
    assert same_rows(copies, "id = 1", tmp_path / "index2") == 0


def test_names_in_another_case(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number, name in enumerate(["id", "ID", "id", "Id"]):
        pq.write_table(pa.table({name: [number, number + 10]}), tmp_path / f"data/{number}.parquet")
    build_index(tmp_path / "data", "id", tmp_path / "index")
    for value in (0, 1, 11, 12, 3, 99):
        same_rows(tmp_path / "data", f"id = {value}", tmp_path / "index")
        same_rows(tmp_path / "data", f"id IS NULL OR id = {value}", tmp_path / "index")
        same_rows(tmp_path / "data", f"NOT id = {value}", tmp_path / "index")

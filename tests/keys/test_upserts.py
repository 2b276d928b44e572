"""docs/upserts.md: its functions change what a model changes, in one commit, and read only files that hold a key."""

from __future__ import annotations

import datetime as dt
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from support import delta_tables as made
from support import iceberg_tables as iceberg
from support.iceberg_tables import Warehouse
from support.repeats import more_then_slow

import parquet_bloom

PAGE = Path(__file__).resolve().parents[2] / "docs" / "upserts.md"
Row = tuple[Any, ...]
INT64 = pa.int64()


def blocks_of(heading: str) -> list[str]:
    """The blocks of Python below a heading."""
    section = re.split(rf"^## {heading}$", PAGE.read_text(), flags=re.MULTILINE)[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def run(blocks: list[str], names: dict[str, Any]) -> dict[str, Any]:
    for block in blocks:
        exec(compile(block, "upserts.md", "exec"), names)
    return names


def recipes() -> dict[str, Any]:
    """The functions of the page, in names of their own."""
    return run([*blocks_of("What they do"), blocks_of("Delta")[0], blocks_of("Iceberg")[0]], {})


def meanwhile(names: dict[str, Any], work: Callable[[], object]) -> None:
    """Have something happen once, after the next `locate` of the functions of the page."""

    def locate(*arguments: Any, **options: Any) -> pa.Table:
        found = parquet_bloom.locate(*arguments, **options)
        names["parquet_bloom"] = parquet_bloom
        work()
        return found

    names["parquet_bloom"] = SimpleNamespace(locate=locate)


# --- tables of two kinds ----------------------------------------------------------------------------


class Delta:
    """A Delta table with columns id, v and day."""

    conflicts: tuple[type[Exception], ...] = (CommitFailedError,)
    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, base: Path, kind: pa.DataType = INT64, partitioned: bool = False) -> None:
        self.path, self.index, self.names = base / "t", base / "index", recipes()
        self.source = f"delta:{self.path}"
        self.schema = pa.schema([("id", kind), ("v", pa.string()), ("day", pa.string())])
        DeltaTable.create(self.path, self.schema, partition_by=["day"] if partitioned else None)

    def arrow(self, rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(self.schema.names, row, strict=True)) for row in rows], self.schema)

    def append(self, rows: list[Row]) -> None:
        write_deltalake(self.path, self.arrow(rows), mode="append")

    def build(self) -> None:
        parquet_bloom.build_index(self.source, "id", self.index)

    def update(self) -> None:
        parquet_bloom.update_index(self.index, self.source)

    def change(self, deletes: Any = None, upserts: list[Row] | None = None, index: bool = True) -> tuple[int, int]:
        new = None if upserts is None else self.arrow(upserts)
        found: tuple[int, int]
        found = self.names["change_delta"](str(self.path), "id", deletes, new, self.index if index else None)
        return found

    def delete(self, predicate: str) -> None:
        DeltaTable(self.path).delete(predicate)

    def compact(self) -> None:
        DeltaTable(self.path).optimize.compact()

    def rows(self) -> list[Row]:
        return sorted((tuple(row.values()) for row in DeltaTable(self.path).to_pyarrow_table().to_pylist()), key=repr)

    def files(self) -> list[str]:
        return [uri.removeprefix("file://") for uri in DeltaTable(self.path).file_uris()]

    def version(self) -> Any:
        return DeltaTable(self.path).version()


class Iceberg:
    """An Iceberg table with columns id, v and day."""

    conflicts = (CommitFailedException, ValidationException)

    def __init__(self, base: Path, kind: pa.DataType = INT64, partitioned: bool = False) -> None:
        self.index, self.names, self.warehouse = base / "index", recipes(), Warehouse(base)
        key = NestedField(1, "id", LongType() if kind == pa.int64() else StringType())
        schema = Schema(key, NestedField(2, "v", StringType()), NestedField(3, "day", StringType()))
        fields = [PartitionField(3, 1000, IdentityTransform(), "day")]
        if find_spec("pyiceberg_core"):  # pyiceberg computes no bucket without it
            fields.append(PartitionField(1, 1001, BucketTransform(2), "bucket"))
        spec = {"partition_spec": PartitionSpec(*fields)} if partitioned else {}
        self.warehouse.create(schema, **spec)
        self.source = "iceberg:cat/ns.t"
        self.options: dict[str, Any] = {"catalog_properties": self.warehouse.properties}
        self.schema = pa.schema([("id", kind), ("v", pa.string()), ("day", pa.string())])

    arrow = Delta.arrow

    def append(self, rows: list[Row]) -> None:
        self.warehouse.load().append(self.arrow(rows))

    def build(self) -> None:
        parquet_bloom.build_index(self.source, "id", self.index, **self.options)

    def update(self) -> None:
        parquet_bloom.update_index(self.index, self.source, **self.options)

    def change(self, deletes: Any = None, upserts: list[Row] | None = None, index: bool = True) -> tuple[int, int]:
        new = None if upserts is None else self.arrow(upserts)
        found: tuple[int, int]
        function = self.names["change_iceberg"]
        found = function(self.warehouse.catalog, "ns.t", "id", deletes, new, self.index if index else None)
        return found

    def delete(self, predicate: str) -> None:
        self.warehouse.load().delete(predicate)

    def compact(self) -> None:
        """All files get new paths, by a `replace` that changes no row."""
        parquet_bloom.add_filters(self.source, columns=["v"], **self.options)

    def rows(self) -> list[Row]:
        return sorted((tuple(row.values()) for row in self.warehouse.load().scan().to_arrow().to_pylist()), key=repr)

    def files(self) -> list[str]:
        tasks = self.warehouse.load().scan().plan_files()
        return [task.file.file_path.removeprefix("file://") for task in tasks]

    def version(self) -> Any:
        return self.warehouse.load().metadata.current_snapshot_id


KINDS: Any = pytest.mark.parametrize("kind", [Delta, Iceberg], ids=["delta", "iceberg"])


def some_rows(first: int, n: int) -> list[Row]:
    return [(i, f"v{i}", f"day {i % 3}") for i in range(first, first + n)]


def tens(table: Delta | Iceberg, files: int = 4) -> list[Row]:
    """Files of ten rows; returns these."""
    for number in range(files):
        table.append(some_rows(10 * number, 10))
    return some_rows(0, 10 * files)


# --- the page ---------------------------------------------------------------------------------------


def test_every_block_of_python_runs_in_a_test() -> None:
    headings = {"What they do": 1, "Delta": 2, "Iceberg": 2, "File lists for engines": 6}
    assert {heading: len(blocks_of(heading)) for heading in headings} == headings
    assert PAGE.read_text().count("```python\n") == sum(headings.values())


def test_the_calls_for_delta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for first in (0, 39_990, 50_000):
        ids = list(range(first, first + 20))
        write_deltalake("lake/events", pa.table({"id": ids, "status": ["x"] * 20, "day": ["d"] * 20}), mode="append")
    names = run([*blocks_of("What they do"), *blocks_of("Delta")], {})
    assert (names["deleted"], names["replaced"], names["files"]) == (2, 1, 1)
    found = {row["id"]: row["status"] for row in DeltaTable("lake/events").to_pyarrow_table().to_pylist()}
    assert found[5] == found[70_000] == "new"
    assert found.keys() == {*range(20), *range(39_990, 40_010), *range(50_000, 50_020), 70_000} - {17, 40_000}
    assert DeltaTable("lake/events").version() == 4, "a commit for the delete, and one for the upsert"
    left = parquet_bloom.locate("delta:lake/events", "id", [5, 17, 70_000], "events-index")
    assert b'"searched": 0' in left.schema.metadata[b"parquet_bloom"]
    assert left["key"].to_pylist() == [5, 70_000]


def test_the_calls_for_iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    warehouse = Warehouse(tmp_path)
    for name, value in warehouse.properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{name.upper()}", value)
    import pyiceberg.catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())  # which it reads once a process
    prod = pyiceberg.catalog.load_catalog("prod")
    prod.create_namespace("web")
    fields = [
        NestedField(1, "id", LongType()),
        NestedField(2, "status", StringType()),
        NestedField(3, "day", StringType()),
    ]
    table = prod.create_table("web.events", Schema(*fields))
    for first in (0, 39_990, 50_000):
        table.append(pa.table({"id": range(first, first + 20), "status": ["x"] * 20, "day": ["d"] * 20}))
    names = run([*blocks_of("What they do"), *blocks_of("Iceberg")], {})
    assert (names["deleted"], names["replaced"], names["files"]) == (2, 1, 1)
    table.refresh()
    found = {row["id"]: row["status"] for row in table.scan().to_arrow().to_pylist()}
    assert found[5] == found[70_000] == "new"
    assert found.keys() == {*range(20), *range(39_990, 40_010), *range(50_000, 50_020), 70_000} - {17, 40_000}
    assert [one.summary.operation.value for one in table.snapshots()[3:]] == ["overwrite"] * 2
    left = parquet_bloom.locate("iceberg:prod/web.events", "id", [5, 17, 70_000], "events-index")
    assert b'"searched": 0' in left.schema.metadata[b"parquet_bloom"]
    assert left["key"].to_pylist() == [5, 70_000]


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A folder of plain files, and the names of the block that lists some of them."""
    monkeypatch.chdir(tmp_path)
    Path("events").mkdir()
    for number in range(5):
        ids = pa.array(range(10_000 * number, 10_000 * number + 100))
        pq.write_table(pa.table({"id": ids, "n": [number] * 100}), f"events/{number}.parquet", row_group_size=20)
    parquet_bloom.build_index("events", "id", "events-index")
    names = run(blocks_of("File lists for engines")[:1], {})
    assert (names["files"], names["groups"]) == (["events/0.parquet", "events/4.parquet"], [[0], [0]])
    return names


def test_file_lists(listed: dict[str, Any]) -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("polars")
    _, duckdb, polars, _, _, pyarrow = blocks_of("File lists for engines")
    run([duckdb, polars, pyarrow], listed)
    assert sorted(row[:2] for row in listed["joined"]) == [(17, 0), (40_000, 4)]
    assert sorted(listed["frame"].rows()) == [(17, 0), (40_000, 4)]
    assert listed["few"].to_pylist() == [{"id": 17, "n": 0}, {"id": 40_000, "n": 4}]
    assert sum(part.to_table().num_rows for part in listed["parts"]) == 40


def test_the_file_list_of_daft(listed: dict[str, Any]) -> None:
    pytest.importorskip("daft", reason="Daft is not installed")
    run([blocks_of("File lists for engines")[4]], listed)
    assert listed["rows_of_daft"] == {"id": [17, 40_000], "n": [0, 4]}


# --- rows -------------------------------------------------------------------------------------------


@KINDS
def test_files_without_a_key_stay_as_they_are(kind: Any, tmp_path: Path) -> None:
    table = kind(tmp_path)
    rows = tens(table)
    table.build()
    before = table.files()
    with_17 = [file for file in before if 17 in pq.read_table(file)["id"].to_pylist()]
    for path in set(before) - set(with_17):  # whoever reads them finds no Parquet
        shutil.move(path, f"{path}.away")
    assert table.change(deletes=[17, 99]) == (1, 1)
    for path in set(before) - set(with_17):
        shutil.move(f"{path}.away", path)
    assert table.rows() == sorted((row for row in rows if row[0] != 17), key=repr)
    assert len(set(before) & set(table.files())) == 3
    version = table.version()
    assert table.change(deletes=[17, 99]) == table.change() == table.change(upserts=[]) == (0, 0)
    assert table.version() == version, "nothing to do is no commit"


@KINDS
def test_a_delete_and_an_upsert_are_one_commit(kind: Any, tmp_path: Path) -> None:
    table = kind(tmp_path)
    rows = tens(table, 3)
    assert table.change([0, 7], [(5, "new", None), (12, "new", "a"), (77, "new", "b")], index=False) == (4, 2)
    wanted = [row for row in rows if row[0] not in (0, 7, 5, 12)]
    assert table.rows() == sorted([*wanted, (5, "new", None), (12, "new", "a"), (77, "new", "b")], key=repr)


@KINDS
def test_all_rows_of_a_file_and_of_a_table(kind: Any, tmp_path: Path) -> None:
    table = kind(tmp_path)
    rows = tens(table, 2)
    table.build()
    assert table.change(deletes=pa.array(range(10))) == (10, 1)
    assert (table.rows(), len(table.files())) == (sorted(rows[10:], key=repr), 1)
    assert table.change(deletes=pa.chunked_array([range(5), range(5, 40)])) == (10, 1)
    assert table.rows() == [] == table.files()
    assert table.change(upserts=[(1, "again", "x")]) == (0, 0)
    assert table.rows() == [(1, "again", "x")]


@KINDS
def test_an_upsert_into_an_empty_table(kind: Any, tmp_path: Path) -> None:
    table = kind(tmp_path)
    assert table.change(deletes=[5], index=False) == (0, 0)
    assert table.change(upserts=some_rows(0, 5), index=False) == (0, 0)
    assert table.rows() == some_rows(0, 5)


def random_rows(rng: Random, kind: pa.DataType, n: int, twice: bool = False) -> list[Row]:
    """Rows with keys of a small domain, NULL among the values; with `twice` a key may be NULL, or there again."""
    numbers = [rng.randrange(120) for _ in range(n)] if twice else rng.sample(range(120), n)
    keys: list[Any] = numbers if kind == pa.int64() else [f"key {number * 7919 % 1009} \u00e9" for number in numbers]
    if twice:
        keys = [None if rng.random() < 0.05 else key for key in keys]
    days = ["2026-11-01", "a b", "50%", None]  # Delta has no empty text as a partition
    days = days if rng.random() < 0.2 else days[:1]  # paths of such partitions are spelt differently
    return [(key, rng.choice(["", None, "x", "\u00fc"]), rng.choice(days)) for key in keys]


@KINDS
@pytest.mark.parametrize("seed", [0, *more_then_slow(range(1, 60), 5)])
def test_rounds_of_changes(kind: Any, seed: int, tmp_path: Path) -> None:
    """Against a list of rows: changes, appends, compactions, deletes of others; the index is updated now and then."""
    rng = Random(seed)
    column = rng.choice([pa.int64(), pa.string()])
    table = kind(tmp_path, column, rng.random() < 0.5)
    model: list[Row] = []
    for _ in range(rng.randint(1, 4)):
        rows = random_rows(rng, column, 30, twice=True)
        table.append(rows)
        model += rows
    if rng.random() < 0.9:
        table.build()
    for _ in range(8):
        step = rng.random()
        if step < 0.6:
            rows = random_rows(rng, column, rng.randrange(25))
            cut = rng.randrange(len(rows) + 1) if rng.random() < 0.7 else 0
            deletes, upserts = [row[0] for row in rows[:cut]], rows[cut:]
            keys = {row[0] for row in rows}
            before, files = table.version(), set(table.files())
            hits = sum(row[0] in keys for row in model)
            try:
                done = table.change(deletes, upserts, table.index.exists())
            except ValueError as refusal:
                if kind is Iceberg or "spell" not in str(refusal):
                    raise
                assert table.version() == before
                continue
            assert done == (hits, len(files - set(table.files())))
            assert (table.version() == before) == (not hits and not upserts)
            model = [row for row in model if row[0] not in keys] + upserts
        elif step < 0.75:
            rows = random_rows(rng, column, 10, twice=True)
            table.append(rows)
            model += rows
        elif step < 0.85 and table.index.exists():
            table.update()
        elif step < 0.9:
            table.compact()
        elif any(row[1] == "x" for row in model):
            table.delete("v = 'x'")
            model = [row for row in model if row[1] != "x"]
        assert table.rows() == sorted(model, key=repr)
    read = parquet_bloom.read_table(table.source, columns=table.schema.names, **table.options).to_pylist()
    assert sorted((tuple(row.values()) for row in read), key=repr) == sorted(model, key=repr), "by this library"


KEY_KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int32": (pa.int32(), [-1, 2, 3, 4, 5]),
    "text": (pa.string(), ["", "a", "\u00e9", "\U0001f600", "x" * 300]),
    "binary": (pa.binary(), [b"", b"a", b"\xff", b"\x00", b"x" * 300]),
    "decimal": (pa.decimal128(30, 2), [Decimal(i) / 4 for i in range(-2, 3)]),
    "date": (pa.date32(), [dt.date(1969, 12, 30 + i) for i in range(2)] + [dt.date(2026, 1, i) for i in range(1, 4)]),
    "timestamp": (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, i, 5, 6, 7, 89, dt.UTC) for i in range(1, 6)]),
    "uuid": (pa.uuid(), [UUID(int=i << 120 | i) for i in range(5)]),
}


# By turns, but Delta has no uuid.
@pytest.mark.parametrize(
    ("kind", "name"), [(Iceberg if at % 2 or name == "uuid" else Delta, name) for at, name in enumerate(KEY_KINDS)]
)
def test_keys_of_all_kinds(kind: Any, name: str, tmp_path: Path) -> None:
    arrow, values = KEY_KINDS[name]
    rows = pa.table({"id": pa.array(values, arrow), "n": range(5)})
    if kind is Delta:
        write_deltalake(tmp_path / "t", rows)
        source, options, first = f"delta:{tmp_path}/t", {}, (str(tmp_path / "t"),)
    else:
        warehouse = Warehouse(tmp_path)
        warehouse.create(rows.schema).append(rows)
        source, options, first = (
            "iceberg:cat/ns.t",
            {"catalog_properties": warehouse.properties},
            (warehouse.catalog, "ns.t"),
        )
    parquet_bloom.build_index(source, "id", tmp_path / "index", **options)
    function = recipes()["change_delta" if kind is Delta else "change_iceberg"]
    new = pa.table({"id": pa.array(values[3:4], arrow), "n": [77]})
    assert function(*first, "id", pa.array(values[1:2], arrow), new, tmp_path / "index") == (2, 1)
    found = parquet_bloom.read_table(source, **options)
    assert sorted(found["n"].to_pylist()) == [0, 2, 4, 77]


# --- others at work ---------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("other", ["append", "delete", "change", "compact"])
def test_a_commit_between_locate_and_ours_is_never_lost(kind: Any, other: str, tmp_path: Path) -> None:
    table = kind(tmp_path)
    tens(table, 3)
    table.build()
    second = kind.__new__(kind)  # the same table for another writer, with functions of its own
    second.__dict__.update(table.__dict__, names=recipes())
    work = {
        "append": lambda: second.append([(12, "another", "x"), (99, "another", "x")]),
        "delete": lambda: second.delete("id = 12 or id = 13"),
        "change": lambda: second.change([3], [(12, "another", "x"), (99, "another", "x")]),
        "compact": second.compact,
    }[other]
    after: list[Any] = []
    meanwhile(table.names, lambda: after.append((work(), table.rows(), table.version())))
    with pytest.raises(table.conflicts):
        table.change([12], [(25, "ours", "x"), (99, "ours", "x")])
    _, rows, version = after[0]
    assert (table.rows(), table.version()) == (rows, version)
    table.change([12], [(25, "ours", "x"), (99, "ours", "x")])
    kept = [row for row in rows if row[0] not in (12, 25, 99)]
    assert table.rows() == sorted([*kept, (25, "ours", "x"), (99, "ours", "x")], key=repr)


@KINDS
@pytest.mark.parametrize("turns", [2, pytest.param(5, marks=pytest.mark.more)])
def test_three_writers_at_one_time(kind: Any, turns: int, tmp_path: Path) -> None:
    """Each upserts keys that all have and one of its own, and tries again where another came first."""
    table = kind(tmp_path)
    tens(table, 2)
    table.build()
    conflicts: list[int] = []

    def write(number: int) -> None:
        names, rng = recipes(), Random(number)
        for turn in range(turns):
            keys = [*rng.sample(range(25), 4), 1000 * number + turn]
            rows = table.arrow([(key, f"{number} {turn}", "d") for key in keys])
            while True:
                try:
                    if kind is Delta:
                        names["change_delta"](str(table.path), "id", None, rows, table.index)
                    else:
                        catalog = SqlCatalog("cat", **table.warehouse.properties)
                        names["change_iceberg"](catalog, "ns.t", "id", None, rows, table.index)
                    break
                except table.conflicts:
                    conflicts.append(number)

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(write, number) for number in (1, 2, 3)]:
            done.result()
    found = [row[0] for row in table.rows()]
    own = {1000 * number + turn for number in (1, 2, 3) for turn in range(turns)}
    assert len(found) == len(set(found)), "no key is doubled"
    assert {*range(20), *own} <= set(found) <= {*range(25), *own}, "and no row is lost"


def test_iceberg_takes_a_delete_of_other_files_that_came_first(tmp_path: Path) -> None:
    table = Iceberg(tmp_path)
    rows = tens(table, 3)
    meanwhile(table.names, lambda: table.delete("id >= 20"))
    assert table.change(deletes=[12], index=False) == (1, 1)
    assert table.rows() == sorted((row for row in rows if row[0] < 20 and row[0] != 12), key=repr)


def test_position_deletes_that_came_first_are_not_lost(tmp_path: Path) -> None:
    table = Iceberg(tmp_path)
    rows = tens(table, 2)

    def delete_a_row() -> None:
        loaded = table.warehouse.load()
        [file] = [one.data_file for one in iceberg.entries(loaded) if 12 in _ids(one.data_file.file_path)]
        at = _ids(file.file_path).index(13)
        iceberg.add_deletes(loaded, iceberg.position_deletes(loaded, {file.file_path: [at]}, file))

    meanwhile(table.names, delete_a_row)
    with pytest.raises(table.conflicts):
        table.change(deletes=[12], index=False)
    assert table.rows() == sorted((row for row in rows if row[0] != 13), key=repr)
    assert table.change(deletes=[12], index=False) == (1, 1)
    assert table.rows() == sorted((row for row in rows if row[0] not in (12, 13)), key=repr)


def _ids(path: str) -> list[Any]:
    found: list[Any] = pq.read_table(path.removeprefix("file://"))["id"].to_pylist()
    return found


@pytest.mark.parametrize("first", [[5], None], ids=["with-removes", "appends-alone"])
@pytest.mark.parametrize(
    "work",
    [
        lambda table: table.optimize.compact(),
        lambda table: table.optimize.z_order(["v"]),
        lambda table: table.delete(),
        lambda table: table.delete("id = 3"),
        lambda table: table.update({"v": "'other'"}, predicate="id = 3"),
        lambda table: write_deltalake(table, ONE, mode="overwrite"),
        lambda table: write_deltalake(table, ONE, mode="overwrite", predicate="id = 99"),
        lambda table: _merge(table),
    ],
    ids=["compact", "z_order", "delete-all", "delete", "update", "overwrite", "overwrite-predicate", "merge"],
)
def test_operations_of_deltalake_that_began_before(
    work: Any, first: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """One that read a file which we rewrote is refused; no row comes back, and with one exception no key twice."""
    table = Delta(tmp_path)
    tens(table, 2)
    began = DeltaTable(table.path)
    table.change(first, [(99, "ours", "d")], index=False)
    rows = table.rows()
    try:
        work(began)
    except CommitFailedError:
        assert table.rows() == rows
        return
    assert first is None, "the files that it read are no longer there"
    overwritten = request.node.callspec.id.startswith("overwrite-appends")  # which no append of others stops
    assert [row[0] for row in table.rows()].count(99) == (2 if overwritten else 1)


def _merge(table: DeltaTable) -> None:
    merger = table.merge(ONE, "s.id = t.id", "s", "t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


ONE = pa.table({"id": [99], "v": ["theirs"], "day": ["d"]})

# --- what tables may have ---------------------------------------------------------------------------


def test_rows_with_position_deletes_stay_deleted(tmp_path: Path) -> None:
    table = Iceberg(tmp_path)
    rows = tens(table, 2)
    table.build()
    loaded = table.warehouse.load()
    [file] = [one.data_file for one in iceberg.entries(loaded) if 12 in _ids(one.data_file.file_path)]
    gone = [_ids(file.file_path).index(i) for i in (12, 14)]
    iceberg.add_deletes(loaded, iceberg.position_deletes(loaded, {file.file_path: gone}, file))
    assert table.change(deletes=[12]) == (0, 0), "no living row has it"
    assert table.change(upserts=[(12, "new", "d"), (13, "new", "d")]) == (1, 1)
    wanted = [row for row in rows if row[0] not in (12, 13, 14)]
    assert table.rows() == sorted([*wanted, (12, "new", "d"), (13, "new", "d")], key=repr)
    table.update()
    assert table.change(deletes=[12, 13, 14]) == (2, 1)


def test_a_key_column_that_was_renamed_and_one_that_was_added(tmp_path: Path) -> None:
    table = Iceberg(tmp_path)
    rows = tens(table, 2)
    table.build()
    with table.warehouse.load().update_schema() as change:
        change.rename_column("id", "key")
        change.add_column("more", LongType())
    function, catalog = table.names["change_iceberg"], table.warehouse.catalog
    assert function(catalog, "ns.t", "key", [12], None, table.index) == (1, 1)
    new = pa.table({"key": [7, 70], "v": ["a", "b"], "more": [1, 2], "day": ["d", "d"]})
    assert function(catalog, "ns.t", "key", None, new, table.index) == (1, 1)
    table.update()
    assert function(catalog, "ns.t", "key", [1], None, table.index) == (1, 1)
    wanted = [(*row, None) for row in rows if row[0] not in (1, 7, 12)]
    assert table.rows() == sorted([*wanted, (7, "a", "d", 1), (70, "b", "d", 2)], key=repr)


def test_a_spec_of_partitions_that_was_changed(tmp_path: Path) -> None:
    table = Iceberg(tmp_path, partitioned=True)
    rows = tens(table, 2)
    with table.warehouse.load().update_spec() as change:
        change.remove_field("day")
        change.add_identity("v")
    assert table.change([1], [(12, "new", "day 7")], index=False)[0] == 2
    assert table.rows() == sorted([*(row for row in rows if row[0] not in (1, 12)), (12, "new", "day 7")], key=repr)


def test_columns_that_were_added_to_a_delta_table(tmp_path: Path) -> None:
    table = Delta(tmp_path)
    rows = tens(table, 2)
    new = pa.table({"id": [50], "v": ["x"], "day": ["d"], "more": [1]})
    write_deltalake(table.path, new, mode="append", schema_mode="merge")
    assert table.names["change_delta"](str(table.path), "id", [3, 50]) == (2, 2)
    assert table.rows() == sorted(((*row, None) for row in rows if row[0] != 3), key=repr)


def test_a_vacuum_takes_only_what_no_version_names(tmp_path: Path) -> None:
    table = Delta(tmp_path, partitioned=True)
    rows = [(i, "v", f"2026-01-0{i % 3 + 1}") for i in range(20)]
    table.append(rows)
    meanwhile(table.names, lambda: table.append([(99, "x", "d")]))
    with pytest.raises(CommitFailedError):
        table.change(deletes=[5, 15], index=False)
    table.change(deletes=[5, 15], index=False)
    DeltaTable(table.path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert {str(path) for path in table.path.rglob("*.parquet")} == set(table.files())
    assert table.rows() == sorted([*(row for row in rows if row[0] not in (5, 15)), (99, "x", "d")], key=repr)


@pytest.mark.parametrize("name", ["file://{}/a b/t", "{}/a b/t/", "a b/t", "./a b/t"])
def test_names_of_a_delta_table(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a b").mkdir()
    tens(Delta(tmp_path / "a b"), 2)
    assert recipes()["change_delta"](name.format(tmp_path), "id", [5]) == (1, 1)
    assert DeltaTable("a b/t").count() == 19


def test_statistics_of_new_files(tmp_path: Path) -> None:
    """The log has bounds of them, so that engines skip them as they skip files that deltalake wrote."""
    table = Delta(tmp_path, partitioned=True)
    table.append([(i, "a", "2026-01-01") for i in range(10)] + [(50, "b", "2026-01-02")])
    table.change([3], [(20, "c", "2026-01-02")], index=False)
    found = pa.table(DeltaTable(table.path).get_add_actions()).to_pylist()
    told = sorted((one["partition"]["day"], one["min"]["id"], one["max"]["id"], one["num_records"]) for one in found)
    assert told == [("2026-01-01", 0, 9, 9), ("2026-01-02", 20, 20, 1), ("2026-01-02", 50, 50, 1)]
    assert not list(table.path.glob("rewrite-*/*/_delta_log"))
    assert {one["v"] for one in parquet_bloom.read_table(table.source, "id = 20").to_pylist()} == {"c"}


# --- refused ----------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize(
    ("deletes", "upserts", "reason"),
    [
        ([1, None], None, "a key is NULL"),
        (None, [(None, "x", "d")], "a key is NULL"),
        ([1, 1], None, "a key is there twice"),
        (None, [(1, "x", "d"), (1, "y", "d")], "a key is there twice"),
        ([1], [(1, "x", "d")], "a key is there twice"),
        (["x"], None, "parse|convert"),
        ([2**70], None, "too big|too large"),
    ],
)
def test_keys_that_are_refused(kind: Any, deletes: Any, upserts: Any, reason: str, tmp_path: Path) -> None:
    table = kind(tmp_path)
    rows = tens(table, 1)
    with pytest.raises((ValueError, OverflowError), match=reason):
        table.change(deletes, upserts, index=False)
    assert table.rows() == rows


@KINDS
def test_rows_that_are_refused(kind: Any, tmp_path: Path) -> None:
    table = kind(tmp_path)
    rows = tens(table, 1)
    first = (str(table.path),) if kind is Delta else (table.warehouse.catalog, "ns.t")
    function = table.names["change_delta" if kind is Delta else "change_iceberg"]
    for wrong in (
        {"id": [1], "v": ["x"]},
        {"id": [1], "v": ["x"], "day": ["d"], "e": [1]},
        {"id": [1], "v": [1], "d": [1]},
    ):
        with pytest.raises(ValueError, match="the rows have the columns"):
            function(*first, "id", None, pa.table(wrong))
    with pytest.raises(KeyError):
        function(*first, "nothing", [1])
    assert table.rows() == rows


def test_delta_tables_that_are_refused(tmp_path: Path) -> None:
    change = recipes()["change_delta"]
    fields = [made.field("id", "long"), made.field("k", "string")]
    rows = pa.table({"id": [1, 2], "k": ["a", "b"]})

    def refused(name: str, reason: str, protocol: Any, file: str = "0.parquet", **properties: str) -> None:
        root = tmp_path / name
        made.commit(root, 0, protocol, made.metadata(fields, **properties), made.file_of(root, file, rows))
        with pytest.raises(ValueError, match=reason):
            change(str(root), "id", [1])
        assert len(list((root / "_delta_log").iterdir())) == 1

    refused("vectors", "needs more of a writer", made.protocol(["deletionVectors"], ["deletionVectors"]))
    refused("mapped", "needs more of a writer", made.protocol(2, 5))
    refused("feed", "needs more of a writer", made.protocol(1, 4), delta__enableChangeDataFeed="true")
    refused("append", "may not be deleted", made.protocol(1, 2), delta__appendOnly="true")
    refused("spelling", "spell", made.protocol(1, 2), file="a b.parquet")
    write_deltalake(tmp_path / "checked", rows)
    DeltaTable(tmp_path / "checked").alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(ValueError, match="needs more of a writer"):
        change(str(tmp_path / "checked"), "id", [1])
    write_deltalake(tmp_path / "floats", pa.table({"id": [1.5]}))
    with pytest.raises(ValueError, match="floats are no keys"):
        change(str(tmp_path / "floats"), "id", [1.5])


NESTED: dict[str, pa.Array] = {
    "list": pa.array([["a"], [], None]),
    "struct": pa.array([{"a": [1], "b": {"c": 1}}, {"a": None, "b": None}, None]),
    "lists": pa.array([[["a"], None], [], None]),
    "map": pa.array([[("k", [1])], [], None], pa.map_(pa.string(), pa.list_(pa.int64()))),
    "structs": pa.array([[{"a": 1}, None], [], None]),
    "map-of-structs": pa.array([[("k", {"a": 1})], [], None], pa.map_(pa.string(), pa.struct([("a", pa.int64())]))),
    "struct-of-structs": pa.array([{"a": [{"b": 1}]}, {"a": []}, {"a": None}]),
}


@pytest.mark.parametrize("name", NESTED)
def test_nested_values_of_other_rows_stay_as_they_are(name: str, tmp_path: Path) -> None:
    """pyiceberg 0.12 loses NULL lists of structs, in its own deletes too: there the function refuses the table."""
    rows = pa.table({"id": [1, 2, 3], "n": NESTED[name]})
    write_deltalake(tmp_path / "t", rows)
    assert recipes()["change_delta"](str(tmp_path / "t"), "id", [1]) == (1, 1)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist() == rows.to_pylist()[1:]
    warehouse = Warehouse(tmp_path)
    table = warehouse.create(rows.schema)
    iceberg.append(table, rows.to_pylist())
    change = recipes()["change_iceberg"]
    if "structs" in name:
        with pytest.raises(ValueError, match="an empty list in the place of NULL: n"):
            change(warehouse.catalog, "ns.t", "id", [1])
        return
    assert change(warehouse.catalog, "ns.t", "id", [1]) == (1, 1)
    [entry] = iceberg.entries(warehouse.load())
    stored = pq.read_table(entry.data_file.file_path.removeprefix("file://"))
    assert stored.to_pylist() == rows.to_pylist()[1:]


def test_null_where_a_delta_table_has_none(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.string(), False)])
    DeltaTable.create(tmp_path / "t", schema)
    with pytest.raises((ValueError, DeltaError)):
        recipes()["change_delta"](
            str(tmp_path / "t"), "id", None, pa.table({"id": [1], "v": pa.array([None], pa.string())})
        )
    assert DeltaTable(tmp_path / "t").version() == 0


def test_iceberg_tables_that_are_refused(tmp_path: Path) -> None:
    warehouse, change = Warehouse(tmp_path), recipes()["change_iceberg"]
    table = warehouse.create(iceberg.SCHEMA)
    iceberg.append(table, iceberg.rows_of(1, 2, 3))
    [entry] = iceberg.entries(table)
    iceberg.add_deletes(table, iceberg.equality_deletes(table, ["id"], pa.table({"id": [1]}), entry.data_file))
    with pytest.raises(ValueError, match="equality deletes"):
        change(warehouse.catalog, "ns.t", "id", [2])
    iceberg.as_version_3(warehouse, "ns.third")
    with pytest.raises(ValueError, match="format version 3"):
        change(warehouse.catalog, "ns.third", "id", [2])
    table = warehouse.create(iceberg.SCHEMA, "ns.lax", properties={"write.delete.isolation-level": "snapshot"})
    with pytest.raises(ValueError, match="serializable"):
        change(warehouse.catalog, "ns.lax", "id", [2])
    table = warehouse.create(iceberg.SCHEMA, "ns.spec", partition_spec=iceberg.BY_NAME)
    iceberg.append(table, iceberg.rows_of(1, 2, name="a"))
    with table.update_spec() as spec:
        spec.remove_field("name")
    with table.update_schema() as columns:
        columns.delete_column("name")
    with pytest.raises(ValueError, match="was dropped"):
        change(warehouse.catalog, "ns.spec", "id", [2])


@KINDS
def test_a_file_that_changed_under_its_name_is_not_rewritten(kind: Any, tmp_path: Path) -> None:
    """The count of rows protects rows that `locate` did not find."""
    table = kind(tmp_path)
    tens(table, 2)
    version = table.version()
    [path] = [file for file in table.files() if 12 in _ids(file)]

    def write_another() -> None:
        old = pq.read_table(path)
        ids = pa.array([12 if i == 13 else i for i in old["id"].to_pylist()])
        pq.write_table(old.set_column(old.schema.get_field_index("id"), old.schema.field("id"), ids), path)

    meanwhile(table.names, write_another)
    with pytest.raises((RuntimeError, pa.ArrowInvalid), match="1 rows were expected|not a parquet file"):
        table.change(deletes=[12], index=False)
    assert table.version() == version

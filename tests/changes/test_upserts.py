"""delete_keys and upsert change what a model changes, in one commit, and read only files that hold a key."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any, ClassVar
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, convert_to_deltalake, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import ListType, LongType, NestedField, StringType, UUIDType
from support import delta_tables as made
from support import iceberg_tables as iceberg
from support.commands import command
from support.iceberg_tables import Warehouse
from support.meanwhile import meanwhile
from support.repeats import more_then_slow

import parquet_bloom
from parquet_bloom import KeyChanges, RequestError, TableFormatError

Row = tuple[Any, ...]
INT64 = pa.int64()


def once(work: Callable[[], object]) -> Callable[[Any], None]:
    """A progress callback: something happens once, when the rows are located and the first file is read."""
    return meanwhile(work, lambda _: True)


# --- tables of two kinds ----------------------------------------------------------------------------


class Delta:
    """A Delta table with columns id, v and day."""

    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, base: Path, kind: pa.DataType = INT64, partitioned: bool = False) -> None:
        self.path, self.index = base / "t", base / "index"
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

    def change(self, deletes: Any = None, upserts: list[Row] | None = None, index: bool = True, **more: Any) -> Any:
        """The counts of a change: rows that were deleted or replaced, and files that were rewritten."""
        report = self.report(deletes, upserts, index, **more)
        return report.deleted + report.replaced, len(report.rewritten)

    def report(
        self, deletes: Any = None, upserts: list[Row] | None = None, index: bool = True, **more: Any
    ) -> KeyChanges:
        how: Any = {**self.options, "index": self.index if index and self.index.exists() else None, **more}
        if upserts is None:
            return parquet_bloom.delete_keys(self.source, "id", [] if deletes is None else deletes, **how)
        return parquet_bloom.upsert(self.source, self.arrow(upserts), "id", deletes=deletes, **how)

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

    def stored(self) -> set[Path]:
        """All data files that are there, and logs of other tables below this one."""
        return {*self.path.rglob("*.parquet"), *self.path.glob("*/**/_delta_log")}


class Iceberg:
    """An Iceberg table with columns id, v and day."""

    def __init__(self, base: Path, kind: pa.DataType = INT64, partitioned: bool = False) -> None:
        self.index, self.warehouse = base / "index", Warehouse(base)
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

    change, report = Delta.change, Delta.report

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

    def stored(self) -> set[Path]:
        """All data files that are there."""
        return {*self.index.parent.rglob("data/**/*.parquet")}


KINDS: Any = pytest.mark.parametrize("kind", [Delta, Iceberg], ids=["delta", "iceberg"])


def some_rows(first: int, n: int) -> list[Row]:
    return [(i, f"v{i}", f"day {i % 3}") for i in range(first, first + n)]


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Sorted, with NULL somewhere."""
    return sorted(rows, key=repr)


def tens(table: Delta | Iceberg, files: int = 4) -> list[Row]:
    """Files of ten rows; returns these."""
    for number in range(files):
        table.append(some_rows(10 * number, 10))
    return some_rows(0, 10 * files)


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
    assert table.rows() == in_order(row for row in rows if row[0] != 17)
    assert len(set(before) & set(table.files())) == 3
    version = table.version()
    assert table.change(deletes=[17, 99]) == table.change() == table.change(upserts=[]) == (0, 0)
    assert table.version() == version, "nothing to do is no commit"


@KINDS
def test_a_delete_and_an_upsert_are_one_commit(kind: Any, tmp_path: Path) -> None:
    table = kind(tmp_path)
    rows, version = tens(table, 3), table.version()
    assert table.change([0, 7], [(5, "new", None), (12, "new", "a"), (77, "new", "b")], index=False) == (4, 2)
    past = parquet_bloom.read_table(f"{table.source}@{version}", **table.options)
    assert in_order(new_rows(past)) == in_order(rows), "the older version is as it was"
    wanted = [row for row in rows if row[0] not in (0, 7, 5, 12)]
    assert table.rows() == in_order([*wanted, (5, "new", None), (12, "new", "a"), (77, "new", "b")])


@KINDS
def test_all_rows_of_a_file_and_of_a_table(kind: Any, tmp_path: Path) -> None:
    table = kind(tmp_path)
    assert table.change(deletes=[5], index=False) == (0, 0)
    assert table.change(upserts=some_rows(0, 10), index=False) == (0, 0), "a table without a file"
    rows = some_rows(0, 20)
    table.append(rows[10:])
    table.build()
    assert table.change(deletes=pa.array(range(10))) == (10, 1)
    assert (table.rows(), len(table.files())) == (in_order(rows[10:]), 1)
    assert table.change(deletes=pa.chunked_array([range(5), range(5, 40)])) == (10, 1)
    assert table.rows() == [] == table.files()
    assert table.change(upserts=[(1, "again", "x")]) == (0, 0)
    assert table.rows() == [(1, "again", "x")]


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
            except parquet_bloom.TableFormatError as refusal:
                if kind is Iceberg or "a form that deltalake would change" not in str(refusal):
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
        assert table.rows() == in_order(model)
    read = parquet_bloom.read_table(table.source, columns=table.schema.names, **table.options).to_pylist()
    assert sorted((tuple(row.values()) for row in read), key=repr) == in_order(model), "by this library"


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
        source, options = f"delta:{tmp_path}/t", {}
    else:
        warehouse = Warehouse(tmp_path)
        warehouse.create(rows.schema).append(rows)
        source, options = "iceberg:cat/ns.t", {"catalog_properties": warehouse.properties}
    parquet_bloom.build_index(source, "id", tmp_path / "index", **options)
    new = pa.table({"id": pa.array(values[3:4], arrow), "n": [77]})
    gone = pa.array(values[1:2], arrow)
    report = parquet_bloom.upsert(source, new, "id", deletes=gone, index=tmp_path / "index", **options)
    assert (report.deleted, report.replaced, report.appended, len(report.rewritten)) == (1, 1, 0, 1)
    found = parquet_bloom.read_table(source, **options)
    assert sorted(found["n"].to_pylist()) == [0, 2, 4, 77]


# --- others at work ---------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("other", ["append", "delete", "change", "compact"])
def test_a_commit_between_locate_and_ours_is_never_lost(kind: Any, other: str, tmp_path: Path) -> None:
    table = kind(tmp_path)
    tens(table, 3)
    table.build()
    work = {
        "append": lambda: table.append([(12, "another", "x"), (99, "another", "x")]),
        "delete": lambda: table.delete("id = 12 or id = 13"),
        "change": lambda: table.change([3], [(12, "another", "x"), (99, "another", "x")]),
        "compact": table.compact,
    }[other]
    after: list[Any] = []
    during = once(lambda: after.append((work(), table.rows(), table.version(), table.stored())))
    with pytest.raises(parquet_bloom.ConflictError, match="try again"):
        table.change([12], [(25, "ours", "x"), (99, "ours", "x")], progress=during)
    _, rows, version, stored = after[0]
    assert (table.rows(), table.version()) == (rows, version)
    assert table.stored() == stored, "nothing is there of the change that was refused"
    table.change([12], [(25, "ours", "x"), (99, "ours", "x")])
    kept = [row for row in rows if row[0] not in (12, 25, 99)]
    assert table.rows() == in_order([*kept, (25, "ours", "x"), (99, "ours", "x")])


@KINDS
def test_three_writers_at_one_time(kind: Any, tmp_path: Path) -> None:
    """Each upserts keys that all have and one of its own, and tries again where another came first."""
    table, turns = kind(tmp_path), 2
    tens(table, 2)
    table.build()

    def write(number: int) -> None:
        rng = Random(number)
        for turn in range(turns):
            keys = [*rng.sample(range(25), 4), 1000 * number + turn]
            rows = table.arrow([(key, f"{number} {turn}", "d") for key in keys])
            while True:
                with suppress(parquet_bloom.ConflictError):
                    parquet_bloom.upsert(table.source, rows, "id", index=table.index, **table.options)
                    break

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
    during = once(lambda: table.delete("id >= 20"))
    assert table.change(deletes=[12], index=False, progress=during) == (1, 1)
    assert table.rows() == in_order(row for row in rows if row[0] < 20 and row[0] != 12)


def delete_rows(table: Iceberg, *keys: int) -> None:
    """Position deletes of rows that lie in one file."""
    loaded = table.warehouse.load()
    [file] = [one.data_file for one in iceberg.entries(loaded) if keys[0] in _ids(one.data_file.file_path)]
    at = [_ids(file.file_path).index(key) for key in keys]
    iceberg.add_deletes(loaded, iceberg.position_deletes(loaded, {file.file_path: at}, file))


def test_position_deletes_that_came_first_are_not_lost(tmp_path: Path) -> None:
    table = Iceberg(tmp_path)
    rows = tens(table, 2)
    with pytest.raises(parquet_bloom.ConflictError):
        table.change(deletes=[12], index=False, progress=once(lambda: delete_rows(table, 13)))
    assert table.rows() == in_order(row for row in rows if row[0] != 13)
    assert table.change(deletes=[12], index=False) == (1, 1)
    assert table.rows() == in_order(row for row in rows if row[0] not in (12, 13))


def _ids(path: str) -> list[Any]:
    found: list[Any] = pq.read_table(path.removeprefix("file://"))["id"].to_pylist()
    return found


WORKS: dict[str, Callable[[DeltaTable], object]] = {
    "compact": lambda table: table.optimize.compact(),
    "z_order": lambda table: table.optimize.z_order(["v"]),
    "delete all": lambda table: table.delete(),
    "delete": lambda table: table.delete("id = 3"),
    "update": lambda table: table.update({"v": "'other'"}, predicate="id = 3"),
    "overwrite": lambda table: write_deltalake(table, ONE, mode="overwrite"),
    "overwrite a predicate": lambda table: write_deltalake(table, ONE, mode="overwrite", predicate="id = 99"),
    "merge": lambda table: _merge(table),
}


@pytest.mark.parametrize("first", [[5], None], ids=["with-removes", "appends-alone"])
def test_operations_of_deltalake_that_began_before(first: Any, tmp_path: Path) -> None:
    """One that read a file which we rewrote is refused; no row comes back, and with one exception no key twice."""
    for name, work in WORKS.items():
        table = Delta(tmp_path / name)
        tens(table, 2)
        began = DeltaTable(table.path)
        table.change(first, [(99, "ours", "d")], index=False)
        rows = table.rows()
        try:
            work(began)
        except CommitFailedError:
            assert table.rows() == rows, name
            continue
        assert first is None, f"{name}: the files that it read are no longer there"
        overwritten = name == "overwrite"  # which no append of others stops
        assert [row[0] for row in table.rows()].count(99) == (2 if overwritten else 1), name


def _merge(table: DeltaTable) -> None:
    merger = table.merge(ONE, "s.id = t.id", "s", "t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


ONE = pa.table({"id": [99], "v": ["theirs"], "day": ["d"]})

# --- what tables may have ---------------------------------------------------------------------------


def test_rows_with_position_deletes_stay_deleted(tmp_path: Path) -> None:
    table = Iceberg(tmp_path)
    rows = tens(table, 2)
    table.build()
    delete_rows(table, 12, 14)
    assert table.change(deletes=[12]) == (0, 0), "no living row has it"
    assert table.change(upserts=[(12, "new", "d"), (13, "new", "d")]) == (1, 1)
    wanted = [row for row in rows if row[0] not in (12, 13, 14)]
    assert table.rows() == in_order([*wanted, (12, "new", "d"), (13, "new", "d")])
    table.update()
    assert table.change(deletes=[12, 13, 14]) == (2, 1)


def test_rows_with_equality_deletes_stay_deleted(tmp_path: Path) -> None:
    """pyiceberg 0.12 reads no such table; a new row is newer than the delete of its key."""
    warehouse = Warehouse(tmp_path)
    table = warehouse.create(iceberg.SCHEMA)
    iceberg.append(table, iceberg.rows_of(1, 2, 3, 4))
    [entry] = iceberg.entries(table)
    iceberg.add_deletes(table, iceberg.equality_deletes(table, ["id"], pa.table({"id": [1]}), entry.data_file))
    options: Any = {"catalog_properties": warehouse.properties}

    def ids() -> list[int]:
        return sorted(parquet_bloom.read_table("iceberg:cat/ns.t", **options)["id"].to_pylist())

    assert ids() == [2, 3, 4]
    report = parquet_bloom.delete_keys("iceberg:cat/ns.t", "id", [1, 2], **options)
    assert (report.deleted, report.rewritten[0].rows) == (1, 3)
    assert ids() == [3, 4]
    row = parquet_bloom.read_table("iceberg:cat/ns.t", "id = 3", **options)
    new = pa.concat_tables([row.set_column(0, row.schema.field(0), pa.array([id], row["id"].type)) for id in (1, 4)])
    report = parquet_bloom.upsert("iceberg:cat/ns.t", new, "id", **options)
    assert (report.replaced, report.appended) == (1, 1)
    assert ids() == [1, 3, 4]


def test_a_key_column_that_was_renamed_and_one_that_was_added(tmp_path: Path) -> None:
    table = Iceberg(tmp_path)
    rows = tens(table, 2)
    table.build()
    with table.warehouse.load().update_schema() as change:
        change.rename_column("id", "key")
        change.add_column("more", LongType())
    how: Any = {**table.options, "index": table.index}
    assert parquet_bloom.delete_keys(table.source, "key", [12], **how).deleted == 1
    new = pa.table({"key": [7, 70], "v": ["a", "b"], "more": [1, 2], "day": ["d", "d"]})
    report = parquet_bloom.upsert(table.source, new, "key", **how)
    assert (report.replaced, report.appended) == (1, 1)
    table.update()
    assert parquet_bloom.delete_keys(table.source, "key", [1], **how).deleted == 1
    wanted = [(*row, None) for row in rows if row[0] not in (1, 7, 12)]
    assert table.rows() == in_order([*wanted, (7, "a", "d", 1), (70, "b", "d", 2)])


def test_a_spec_of_partitions_that_was_changed(tmp_path: Path) -> None:
    table = Iceberg(tmp_path, partitioned=True)
    rows = tens(table, 2)
    with table.warehouse.load().update_spec() as change:
        change.remove_field("day")
        change.add_identity("v")
    assert table.change([1], [(12, "new", "day 7")], index=False)[0] == 2
    assert table.rows() == in_order([*(row for row in rows if row[0] not in (1, 12)), (12, "new", "day 7")])


def test_columns_that_were_added_to_a_delta_table(tmp_path: Path) -> None:
    table = Delta(tmp_path)
    rows = tens(table, 2)
    new = pa.table({"id": [50], "v": ["x"], "day": ["d"], "more": [1]})
    write_deltalake(table.path, new, mode="append", schema_mode="merge")
    assert table.change([3, 50]) == (2, 2)
    assert table.rows() == sorted(((*row, None) for row in rows if row[0] != 3), key=repr)


def test_a_vacuum_takes_only_what_no_version_names(tmp_path: Path) -> None:
    table = Delta(tmp_path, partitioned=True)
    rows = [(i, "v", f"2026-01-0{i % 3 + 1}") for i in range(20)]
    table.append(rows)
    with pytest.raises(parquet_bloom.ConflictError):
        table.change(deletes=[5, 15], index=False, progress=once(lambda: table.append([(99, "x", "d")])))
    table.change(deletes=[5, 15], index=False)
    DeltaTable(table.path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert {str(path) for path in table.path.rglob("*.parquet")} == set(table.files())
    assert table.rows() == in_order([*(row for row in rows if row[0] not in (5, 15)), (99, "x", "d")])


def test_names_of_a_delta_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a b").mkdir()
    tens(Delta(tmp_path / "a b"), 2)
    for key, name in enumerate([f"file://{tmp_path}/a b/t", f"{tmp_path}/a b/t/", "a b/t", "./a b/t"]):
        assert parquet_bloom.delete_keys(f"delta:{name}", "id", [key]).deleted == 1, name
    assert DeltaTable("a b/t").count() == 16


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


# --- reports, filters, indexes ------------------------------------------------------------------------


@KINDS
def test_a_dry_run_counts_the_same_and_writes_nothing(kind: Any, tmp_path: Path) -> None:
    table = kind(tmp_path)
    rows = tens(table, 3)
    table.build()
    version, stored = table.version(), table.stored()
    asked: Any = {"deletes": [0, 7, 99], "upserts": [(5, "new", None), (12, "new", "a"), (77, "new", "b")]}
    dry = table.report(**asked, dry_run=True)
    assert (table.rows(), table.version(), table.stored()) == (in_order(rows), version, stored)
    real = table.report(**asked)
    assert (real.deleted, real.replaced, real.appended, real.files, len(real.rewritten)) == (2, 2, 1, 3, 2)
    assert real.commit == str(table.version())
    assert real.bytes_written == sum(Path(file).stat().st_size for file in set(table.files()) - {*map(str, stored)})
    written = {"commit": None, "bytes_written": 0, "dry_run": True}
    files = [{**one, "bytes_after": 0} for one in real.to_dict()["rewritten"]]
    assert dry.to_dict() == {**real.to_dict(), **written, "rewritten": files}
    assert [one.bytes_before for one in real.rewritten] == [Path(one.path).stat().st_size for one in real.rewritten]


def lacking(table: Delta | Iceberg) -> dict[str, int]:
    """Column -> row groups that lack a filter, by `status`."""
    return {one.column: one.row_groups_lacking for one in parquet_bloom.status(table.source, **table.options).columns}


@KINDS
def test_new_files_have_filters_as_an_add_chose_them(kind: Any, tmp_path: Path) -> None:
    """On the same columns, of the same rate, and none on a column whose filters were removed."""
    table = kind(tmp_path, partitioned=True)
    table.append([(i, f"v{i}", "d") for i in range(4000)])
    parquet_bloom.add_filters(table.source, columns=["id", "v"], fpp={"id": 0.2, "*": 0.001}, **table.options)
    parquet_bloom.remove_filters(table.source, columns=["v"], **table.options)
    before = table.files()
    sizes = {one.num_bytes for info in parquet_bloom.inspect(before).files for one in info.filters}
    assert len(sizes) == 1
    assert table.change([3], [(12, "new", "day 1"), (5000, "new", "day 9")], index=False)[0] == 2
    new = sorted(set(table.files()) - set(before))
    assert len(new) >= 3
    infos = parquet_bloom.inspect(new).files
    assert [[one.column for one in info.filters] for info in infos] == [["id"]] * len(new)
    assert max(one.num_bytes for info in infos for one in info.filters) in sizes
    assert lacking(table) == {"id": 0}
    assert {one.status for file in parquet_bloom.verify(new).files for one in file.filters} == {"right"}


@KINDS
def test_new_files_have_filters_where_old_ones_have_them(kind: Any, tmp_path: Path) -> None:
    """Those of another writer, of which the log says nothing."""
    table = kind(tmp_path)
    path = tmp_path / ("t" if kind is Delta else "warehouse/ns/t/data") / "theirs.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.arrow(some_rows(0, 10)), path, bloom_filter_options={"v": {"ndv": 10}})
    if kind is Delta:
        shutil.rmtree(table.path / "_delta_log")
        convert_to_deltalake(table.path)
    else:
        table.warehouse.load().add_files([str(path)])
    table.change([3], [(500, "new", "x")], index=False)
    assert lacking(table) == {"v": 0}
    table.change(None, [(501, "new", "x")], index=False)
    assert lacking(table) == {"v": 0}, "where no file is rewritten either"
    assert len(table.files()) == 3


def test_new_files_have_filters_as_the_properties_of_a_table_ask_for(tmp_path: Path) -> None:
    table = Iceberg(tmp_path)
    tens(table, 1)
    with table.warehouse.load().transaction() as change:
        change.set_properties(
            {"write.parquet.bloom-filter-enabled.column.id": "true", "write.parquet.bloom-filter-fpp.column.id": "0.3"}
        )
    table.change([3], [(500, "new", "x")], index=False)
    assert [one.column for info in parquet_bloom.inspect(table.files()).files for one in info.filters] == ["id"] * 2


@KINDS
def test_an_index_follows_a_change_if_it_knew_the_table(kind: Any, tmp_path: Path) -> None:
    table = kind(tmp_path)
    tens(table, 3)
    table.build()
    report = table.report([3], [(12, "new", "x"), (500, "new", "x")])
    assert report.notes == []
    found = parquet_bloom.locate(table.source, "id", [3, 4, 500], table.index, strict_index=True, **table.options)
    assert found["key"].to_pylist() == [4, 500]
    table.append([(600, "another", "x")])
    assert "did not know 1 files of the table and is behind" in table.report([600]).notes[0]
    assert table.report([600], dry_run=True).notes == []


@KINDS
def test_keys_of_several_columns(kind: Any, tmp_path: Path) -> None:
    """Rows go by the whole key, wherever the index is; a partition column may be a part of it."""
    table = kind(tmp_path, partitioned=True)
    model = [(i % 7, f"v{i % 5}", f"day {i % 3}") for i in range(60)]
    for at in range(0, 60, 20):
        table.append(model[at : at + 20])
    table.build()
    keys = pa.table({"id": [1, 2, 3], "day": ["day 1", "day 2", "none"]})
    how: Any = {**table.options, "index": table.index}
    report = parquet_bloom.delete_keys(table.source, ["id", "day"], keys, **how)
    gone = [row for row in model if (row[0], row[2]) in [(1, "day 1"), (2, "day 2")]]
    assert report.deleted == len(gone) > 0
    model = [row for row in model if row not in gone]
    assert table.rows() == in_order(model)
    new = table.arrow([(1, "v4", "day 0"), (1, "v9", "day 0")])
    report = parquet_bloom.upsert(table.source, new, ["v", "id"], **how)
    replaced = [row for row in model if row[:2] == (1, "v4")]
    assert (report.replaced, report.appended) == (len(replaced), 1)
    assert table.rows() == sorted([row for row in model if row not in replaced] + new_rows(new), key=repr)
    with pytest.raises(parquet_bloom.RequestError, match="give a table or a mapping"):
        parquet_bloom.delete_keys(table.source, ["id", "day"], [1], **how)
    with pytest.raises(parquet_bloom.RequestError, match="a key is there twice"):
        parquet_bloom.delete_keys(table.source, ["id", "day"], {"id": [1, 1], "day": ["a", "a"]}, **how)


@pytest.mark.parametrize("partitioned", [True, False])
def test_a_truth_value_may_be_a_part_of_a_key(partitioned: bool, tmp_path: Path) -> None:
    """It finds no row, as it has no filters; it says which of those that the other column finds are meant."""
    source = f"delta:{tmp_path}/t"
    rows = pa.table({"id": [1, 2, 1, 1], "b": [True, False, None, False]})
    write_deltalake(tmp_path / "t", rows, partition_by=["b"] if partitioned else None)
    assert parquet_bloom.delete_keys(source, ["b", "id"], {"b": [True, True], "id": [1, 2]}).deleted == 1
    report = parquet_bloom.upsert(source, pa.table({"id": [1, 2], "b": [False, True]}), ["id", "b"])
    assert (report.replaced, report.appended) == (1, 1)
    left = parquet_bloom.read_table(source).to_pylist()
    assert in_order([tuple(row.values()) for row in left]) == in_order([(2, False), (1, None), (1, False), (2, True)])
    pq.write_table(rows, tmp_path / "file.parquet")
    before = (tmp_path / "file.parquet").read_bytes()
    for refused in (["b"], ["id", "b"]):
        with pytest.raises(parquet_bloom.RefusedTypeError, match="BOOLEAN has two values"):
            parquet_bloom.delete_keys(tmp_path / "file.parquet", refused, rows.select(refused)[:1], in_place=True)
    assert (tmp_path / "file.parquet").read_bytes() == before
    if not partitioned:
        with pytest.raises(parquet_bloom.RefusedTypeError, match="BOOLEAN has two values"):
            parquet_bloom.delete_keys(source, "b", [True])


def new_rows(table: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_a_partition_column_alone_is_no_key_of_delta(tmp_path: Path) -> None:
    table = Delta(tmp_path, partitioned=True)
    tens(table, 1)
    with pytest.raises(parquet_bloom.RequestError, match="day: is a partition column"):
        parquet_bloom.delete_keys(table.source, "day", ["day 1"])


# --- refused ----------------------------------------------------------------------------------------


REFUSED_KEYS: list[tuple[Any, list[Row] | None, str]] = [
    ([1, None], None, "a key is NULL"),
    (None, [(None, "x", "d")], "a key is NULL"),
    ([1, 1], None, "a key is there twice"),
    (None, [(1, "x", "d"), (1, "y", "d")], "a key is there twice"),
    ([1], [(1, "x", "d")], "a key is there twice"),
    (["x"], None, "parse|convert"),
    ([2**70], None, "too big|too large"),
]


@KINDS
def test_keys_and_rows_that_are_refused(kind: Any, tmp_path: Path) -> None:
    table = kind(tmp_path)
    rows = tens(table, 1)
    for deletes, upserts, reason in REFUSED_KEYS:
        with pytest.raises(parquet_bloom.RequestError, match=reason):
            table.change(deletes, upserts, index=False)
    for wrong in (
        {"id": [1], "v": ["x"]},
        {"id": [1], "v": ["x"], "day": ["d"], "e": [1]},
        {"id": [1], "v": [1], "d": [1]},
    ):
        with pytest.raises(parquet_bloom.RequestError, match="the rows have the columns"):
            parquet_bloom.upsert(table.source, pa.table(wrong), "id", **table.options)
    with pytest.raises(parquet_bloom.UnknownColumnError, match="no column nothing; there are: id, v, day"):
        parquet_bloom.delete_keys(table.source, "nothing", [1], **table.options)
    assert table.rows() == rows


def test_delta_tables_that_are_refused(tmp_path: Path) -> None:
    fields = [made.field("id", "long"), made.field("k", "string")]
    rows = pa.table({"id": [1, 2], "k": ["a", "b"]})

    def refused(name: str, reason: str, protocol: Any, file: str = "0.parquet", **properties: str) -> None:
        root = tmp_path / name
        made.commit(root, 0, protocol, made.metadata(fields, **properties), made.file_of(root, file, rows))
        with pytest.raises(parquet_bloom.TableFormatError, match=reason):
            parquet_bloom.delete_keys(f"delta:{root}", "id", [1])
        assert len(list((root / "_delta_log").iterdir())) == 1

    refused("vectors", "does not heed: deletionVectors", made.protocol(["deletionVectors"], ["deletionVectors"]))
    refused("mapped", "does not heed: .*columnMapping", made.protocol(2, 5))
    refused("feed", "does not heed: .*changeDataFeed", made.protocol(1, 4), delta__enableChangeDataFeed="true")
    refused("append", "no row may be deleted", made.protocol(1, 2), delta__appendOnly="true")
    refused("spelling", "a form that deltalake would change", made.protocol(1, 2), file="a b.parquet")
    write_deltalake(tmp_path / "checked", rows)
    DeltaTable(tmp_path / "checked").alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(parquet_bloom.TableFormatError, match="checkConstraints"):
        parquet_bloom.delete_keys(f"delta:{tmp_path}/checked", "id", [1])
    write_deltalake(tmp_path / "floats", pa.table({"id": [1.5]}))
    with pytest.raises(parquet_bloom.RequestError, match="floats are no keys"):
        parquet_bloom.delete_keys(f"delta:{tmp_path}/floats", "id", [1.5])


NESTED: dict[str, pa.Array] = {
    "list": pa.array([["a"], [], None]),
    "struct": pa.array([{"a": [1], "b": {"c": 1}}, {"a": None, "b": None}, None]),
    "lists": pa.array([[["a"], None], [], None]),
    "map": pa.array([[("k", [1])], [], None], pa.map_(pa.string(), pa.list_(pa.int64()))),
    "structs": pa.array([[{"a": 1}, None], [], None]),
    "map_of_structs": pa.array([[("k", {"a": 1})], [], None], pa.map_(pa.string(), pa.struct([("a", pa.int64())]))),
    "struct_of_structs": pa.array([{"a": [{"b": 1}]}, {"a": []}, {"a": None}]),
}


def test_nested_values_of_other_rows_stay_as_they_are(tmp_path: Path) -> None:
    """pyiceberg 0.12 loses NULL lists of structs, in its own deletes too: there the function refuses the table."""
    rows = pa.table({"id": [1, 2, 3], **NESTED})
    write_deltalake(tmp_path / "t", rows)
    assert parquet_bloom.delete_keys(f"delta:{tmp_path}/t", "id", [1]).deleted == 1
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist() == rows.to_pylist()[1:]
    with closing(Warehouse(tmp_path)) as warehouse:
        options = {"catalog_properties": warehouse.properties}
        for name in NESTED:
            if "structs" in name:
                few = rows.select(["id", name])
                iceberg.append(warehouse.create(few.schema, f"ns.{name}"), few.to_pylist())
                with pytest.raises(TableFormatError, match=f"an empty list in the place of NULL .*: {name}"):
                    parquet_bloom.delete_keys(f"iceberg:cat/ns.{name}", "id", [1], **options)
        rows = rows.select(["id", *(name for name in NESTED if "structs" not in name)])
        iceberg.append(warehouse.create(rows.schema), rows.to_pylist())
        assert parquet_bloom.delete_keys("iceberg:cat/ns.t", "id", [1], **options).deleted == 1
        [entry] = iceberg.entries(warehouse.load())
        stored = pq.read_table(entry.data_file.file_path.removeprefix("file://"))
        assert stored.to_pylist() == rows.to_pylist()[1:]


def test_null_where_a_delta_table_has_none(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.string(), False)])
    DeltaTable.create(tmp_path / "t", schema)
    new = pa.table({"id": [1], "v": pa.array([None], pa.string())})
    with pytest.raises(parquet_bloom.RequestError, match="v: a row has NULL"):
        parquet_bloom.upsert(f"delta:{tmp_path}/t", new, "id")
    assert DeltaTable(tmp_path / "t").version() == 0


def test_iceberg_tables_that_are_refused(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)

    def refused(name: str, reason: str) -> None:
        with pytest.raises(parquet_bloom.TableFormatError, match=reason):
            parquet_bloom.delete_keys(f"iceberg:cat/{name}", "id", [2], catalog_properties=warehouse.properties)

    table = warehouse.create(iceberg.SCHEMA)
    iceberg.append(table, iceberg.rows_of(1, 2, 3))
    iceberg.as_version_3(warehouse, "ns.third")
    refused("ns.third", "format version 3")
    table = warehouse.create(iceberg.SCHEMA, "ns.lax", properties={"write.delete.isolation-level": "snapshot"})
    refused("ns.lax", "isolation-level is snapshot")
    table = warehouse.create(iceberg.SCHEMA, "ns.spec", partition_spec=iceberg.BY_NAME)
    iceberg.append(table, iceberg.rows_of(1, 2, name="a"))
    with table.update_spec() as spec:
        spec.remove_field("name")
    with table.update_schema() as columns:
        columns.delete_column("name")
    refused("ns.spec", "was dropped")
    lists = ListType(3, LongType(), True)
    table = warehouse.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "l", lists)), "ns.lists")
    wrong = pa.table({"id": [1], "l": [[1, None]]})
    with pytest.raises(parquet_bloom.RequestError, match="ns.lists: pyiceberg cannot write these rows: "):
        parquet_bloom.upsert("iceberg:cat/ns.lists", wrong, "id", catalog_properties=warehouse.properties)


def test_a_float_is_no_decimal_that_is_near(tmp_path: Path) -> None:
    """Arrow would round 1.001 to 1.00, and the wrong row would go."""
    source = f"delta:{tmp_path}/t"
    write_deltalake(tmp_path / "t", pa.table({"k": [Decimal("1.00"), Decimal("2.50")], "v": [1, 2]}))
    for keys in ([1.001], [2.5, 1.001]):
        with pytest.raises(RequestError, match=r"k: the column is decimal128\(3, 2\), and double does not fit it"):
            parquet_bloom.delete_keys(source, "k", keys)
    with pytest.raises(RequestError, match="double does not fit it"):
        parquet_bloom.upsert(source, pa.table({"k": [1.001], "v": [1]}), "k")
    prices = [number / 100 for number in range(300, 1000)]  # floats that stand for decimals are these
    new = pa.table({"k": [Decimal(number).scaleb(-2) for number in range(300, 1000)], "v": [3] * 700})
    assert parquet_bloom.upsert(source, pa.table({"k": prices, "v": [3] * 700}), "k").appended == 700
    assert parquet_bloom.upsert(source, new, "k").replaced == 700
    assert parquet_bloom.delete_keys(source, "k", prices).deleted == 700
    assert parquet_bloom.delete_keys(source, "k", [2.5]).deleted == 1
    assert DeltaTable(tmp_path / "t").to_pyarrow_table()["v"].to_pylist() == [1]


STRUCT = pa.struct([("a", pa.int64()), ("b", pa.string())])


OTHER_VALUES: list[tuple[pa.DataType, pa.DataType, Any]] = [  # of a column, of a row, and the row's value
    (pa.list_(pa.decimal128(5, 1)), pa.list_(pa.float64()), [1.55]),
    (pa.list_(pa.date32()), pa.list_(pa.timestamp("us")), [dt.datetime(2026, 1, 1, 5)]),
    (pa.list_(pa.timestamp("us", "UTC")), pa.list_(pa.timestamp("us")), [dt.datetime(2026, 1, 1, 5)]),
    (pa.list_(pa.bool_()), pa.list_(pa.int64()), [5]),
    (STRUCT, pa.struct([("a", pa.int64())]), {"a": 1}),
    (STRUCT, pa.struct([("a", pa.int64()), ("c", pa.string())]), {"a": 1, "c": "x"}),
    (STRUCT, pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.int8())]), {"a": 1, "b": "x", "c": 1}),
    (pa.map_(pa.string(), STRUCT), pa.map_(pa.string(), pa.struct([("a", pa.int64())])), [("k", {"a": 1})]),
    (pa.decimal128(5, 1), pa.dictionary(pa.int8(), pa.float64()), 1.55),
    (pa.float32(), pa.float64(), 1e300),
]


def test_no_value_of_a_row_becomes_another_one(tmp_path: Path) -> None:
    """Arrow's casts would round, drop a field, put NULL for another one, take a time off, or make a number infinite."""
    columns = [pa.field(f"v{at}", kind) for at, (kind, _, _) in enumerate(OTHER_VALUES)]
    schema = pa.schema([("id", pa.int64()), *columns])
    DeltaTable.create(tmp_path / "t", schema)
    for at, (_, other, value) in enumerate(OTHER_VALUES, 1):
        plain = other.value_type if pa.types.is_dictionary(other) else other
        given = pa.array([value], plain)
        rows = pa.table([pa.array([1]), *(pa.nulls(1, column.type) for column in columns)], schema=schema)
        rows = rows.set_column(at, schema.names[at], given if plain == other else given.dictionary_encode())
        with pytest.raises(RequestError, match=f"{schema.names[at]}: the column is .* does not fit it; give values of"):
            parquet_bloom.upsert(f"delta:{tmp_path}/t", rows, "id")
    assert DeltaTable(tmp_path / "t").version() == 0


def test_values_of_other_types_that_stay_what_they_are(tmp_path: Path) -> None:
    inner = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
    DeltaTable.create(
        tmp_path / "t", pa.schema([("id", pa.decimal128(5, 1)), ("v", pa.list_(inner)), ("f", pa.float32())])
    )
    other = pa.large_list(pa.struct([("b", pa.list_(pa.large_string())), ("a", pa.int64())]))
    values = [[{"b": ["x"], "a": 1}, None], None, []]
    floats = [float("inf"), 0.5, None]
    rows = pa.table({"id": [1, 2, 3], "v": pa.array(values, other), "f": floats})
    assert parquet_bloom.upsert(f"delta:{tmp_path}/t", rows, "id").appended == 3
    found = DeltaTable(tmp_path / "t").to_pyarrow_table().sort_by("id")
    assert found["v"].to_pylist() == values
    assert found["f"].to_pylist() == floats
    assert parquet_bloom.delete_keys(f"delta:{tmp_path}/t", "id", [1, 7]).deleted == 1


def test_an_empty_text_in_a_partition_column_of_delta_is_refused(tmp_path: Path) -> None:
    """It would be stored as NULL, which equals no key: each call would append the row once more."""
    schema = pa.schema([("tenant", pa.string()), ("id", pa.int64())])
    DeltaTable.create(tmp_path / "t", schema, partition_by=["tenant"])
    source = f"delta:{tmp_path}/t"
    assert parquet_bloom.upsert(source, pa.table({"tenant": ["a", None], "id": [1, 2]}), "id").appended == 2
    with pytest.raises(RequestError, match="tenant: a row has an empty text, which Delta stores as NULL"):
        parquet_bloom.upsert(source, pa.table({"tenant": ["b", ""], "id": [1, 3]}), ["tenant", "id"])
    assert sorted(DeltaTable(tmp_path / "t").to_pyarrow_table()["id"].to_pylist()) == [1, 2]
    assert parquet_bloom.delete_keys(source, "id", [1]).deleted == 1, "the row beside it has NULL, and stays"


def test_names_in_quotes(tmp_path: Path) -> None:
    """The library quotes a name with a dot; keys and rows have it as it is."""
    rows = pa.table({"a.b": [1, 2, 3, 4], 'say "x"': ["a", "b", "c", "d"]})
    write_deltalake(tmp_path / "t", rows)
    (tmp_path / "f").mkdir()
    pq.write_table(rows, tmp_path / "f" / "a.parquet")
    (tmp_path / "keys.csv").write_text("a.b\n1\n")
    both = ['"a.b"', '"say ""x"""']
    sources: list[tuple[str, dict[str, Any]]] = [
        (f"delta:{tmp_path}/t", {}),
        (str(tmp_path / "f" / "a.parquet"), {"in_place": True}),
    ]
    for source, how in sources:
        place = [] if not how else ["--in-place"]
        assert command("delete", source, "-c", '"a.b"', "--keys", tmp_path / "keys.csv", *place).returncode == 0
        assert parquet_bloom.delete_keys(source, both[0], ["2"], **how).deleted == 1
        assert parquet_bloom.delete_keys(source, both, {"a.b": [3], 'say "x"': ["c"]}, **how).deleted == 1
        assert parquet_bloom.delete_keys(source, both, {both[0]: [4], both[1]: ["c"]}, **how).deleted == 0
        with pytest.raises(parquet_bloom.UnknownColumnError, match='no column a.b; near names: "a.b"'):
            parquet_bloom.delete_keys(source, "a.b", [4], **how)
        assert parquet_bloom.read_table(source).to_pylist() == rows.to_pylist()[3:]
    assert parquet_bloom.upsert(sources[0][0], rows, both[0]).appended == 3


EARLY = dt.date(1582, 10, 14)
MOMENT = pa.timestamp("us", "UTC")


DATES: dict[str, tuple[pa.Array, pa.Array | None]] = {  # an early value of a type, and the first that is not
    "date": (pa.array([EARLY]), pa.array([EARLY + dt.timedelta(1)])),
    "time": (pa.array([dt.datetime(1899, 12, 31, 23)], MOMENT), pa.array([dt.datetime(1900, 1, 1)], MOMENT)),
    "struct": (pa.array([{"a": [EARLY]}]), pa.array([{"a": [None]}], pa.struct([("a", pa.list_(pa.date32()))]))),
    "map": (pa.array([[(1, EARLY)]], pa.map_(pa.int64(), pa.date32())), None),
}


@pytest.mark.parametrize("name", DATES)
def test_dates_by_the_calendar_of_old_releases_of_spark(name: str, tmp_path: Path) -> None:
    """Spark counts the days of such a file by the Julian calendar; those of others it does not."""
    early, late = DATES[name]
    late = pa.nulls(1, early.type) if late is None else late
    rows = pa.table({"id": [1, 2, 3], "d": pa.concat_arrays([early, late, pa.nulls(1, early.type)])})
    old = [{"legacyDateTime": "", "version": "3.5.1"}, {"version": "2.4.8"}]
    for number, mark in enumerate([*old, {"version": "3.5.1"}]):
        root = tmp_path / str(number)
        root.mkdir()
        marked = rows.replace_schema_metadata({f"org.apache.spark.{key}": value for key, value in mark.items()})
        pq.write_table(marked, root / "a.parquet")
        convert_to_deltalake(str(root))
        if mark in old:
            with pytest.raises(TableFormatError, match="column d has dates before 1582-10-15, .* committed"):
                parquet_bloom.delete_keys(f"delta:{root}", "id", [2])
            assert {one.name for one in root.iterdir()} == {"a.parquet", "_delta_log"}
        assert parquet_bloom.delete_keys(f"delta:{root}", "id", [1]).deleted == 1, "the early one goes"
        assert parquet_bloom.delete_keys(f"delta:{root}", "id", [2]).deleted == 1


def test_uuids_of_a_table_as_texts(tmp_path: Path) -> None:
    table, ids = Warehouse(tmp_path), [UUID(int=number) for number in range(1000, 1004)]
    table.create(Schema(NestedField(1, "u", UUIDType()), NestedField(2, "n", LongType())))
    how: Any = {"catalog_properties": table.properties}
    rows = pa.table({"u": [str(one) for one in ids], "n": range(4)})
    assert parquet_bloom.upsert("iceberg:cat/ns.t", rows, "u", **how).appended == 4
    assert parquet_bloom.upsert("iceberg:cat/ns.t", rows.slice(1), "u", deletes=[str(ids[0])], **how).replaced == 3
    assert parquet_bloom.delete_keys("iceberg:cat/ns.t", "u", [ids[1].bytes, ids[2].bytes], **how).deleted == 2
    assert table.load().scan().to_arrow().to_pylist() == [{"u": ids[3], "n": 3}]


def test_a_limit_of_no_rows_a_page_is_refused(tmp_path: Path) -> None:
    """pyarrow would write for ever."""
    table = Iceberg(tmp_path)
    table.append(some_rows(0, 10))
    for rows in ("0", "-1", "many"):
        with table.warehouse.load().transaction() as change:
            change.set_properties({"write.parquet.page-row-limit": rows})
        with pytest.raises(TableFormatError, match=r"page-row-limit is '.*', and pages have one row at least"):
            table.change([3], index=False)
    assert table.rows() == some_rows(0, 10)


def test_new_files_have_filters_where_a_located_file_has_them_and_no_whole_key(tmp_path: Path) -> None:
    pq.write_table(pa.table({"tenant": ["a", "b"] * 50, "id": range(100)}), tmp_path / "a.parquet")
    parquet_bloom.add_filters(tmp_path / "a.parquet", columns=["id"], in_place=True)
    convert_to_deltalake(str(tmp_path))
    report = parquet_bloom.upsert(f"delta:{tmp_path}", pa.table({"tenant": ["b"], "id": [2]}), ["tenant", "id"])
    assert (report.appended, report.rewritten) == (1, [])
    files = parquet_bloom.inspect(f"delta:{tmp_path}").files
    assert [[one.column for one in file.filters] for file in files] == [["id"], ["id"]]


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

    with pytest.raises(parquet_bloom.FileError, match="nothing was committed|changed"):
        table.change(deletes=[12], index=False, progress=once(write_another))
    assert table.version() == version


@KINDS
def test_the_same_rows_as_the_libraries_own(kind: Any, tmp_path: Path) -> None:
    """deltalake's delete and merge, pyiceberg's delete and upsert, and DuckDB's on the same rows."""
    duckdb = pytest.importorskip("duckdb")
    rng = Random(1)
    rows = random_rows(rng, INT64, 100)
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    ours, theirs = kind(tmp_path / "ours"), kind(tmp_path / "theirs")
    for at in range(0, 100, 25):
        ours.append(rows[at : at + 25])
        theirs.append(rows[at : at + 25])
    first = ours.version()
    deletes, upserts = rng.sample(range(140), 20), theirs.arrow(random_rows(rng, INT64, 30))
    ours.change(deletes)
    theirs.delete(f"id in ({', '.join(map(str, deletes))})")
    assert ours.rows() == theirs.rows()
    report = ours.report(None, new_rows(upserts))
    if kind is Delta:
        merger = DeltaTable(theirs.path).merge(upserts, "s.id = t.id", "s", "t")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()
    else:
        done = theirs.warehouse.load().upsert(upserts, ["id"])
        assert done.rows_inserted == report.appended
    assert ours.rows() == theirs.rows()
    base = duckdb.connect()
    base.register("model", ours.arrow(rows))
    base.register("upserts", upserts)
    base.execute("CREATE TABLE t AS FROM model")
    base.execute("DELETE FROM t WHERE id IN (SELECT unnest(?))", [deletes])
    base.execute("DELETE FROM t WHERE id IN (SELECT id FROM upserts)")
    base.execute("INSERT INTO t FROM upserts")
    assert ours.rows() == sorted(base.execute("FROM t").fetchall(), key=repr)
    past = parquet_bloom.read_table(f"{ours.source}@{first}", **ours.options)
    assert sorted(new_rows(past), key=repr) == sorted(rows, key=repr), "the older version is as it was"

"""Commits to Iceberg tables: no row changes, all that an entry says is kept, and other commits are never undone."""

from __future__ import annotations

import gc
import os
import random
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ValidationException
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    UUIDType,
)
from sqlalchemy.exc import OperationalError
from support.duckdb_process import Asked
from support.iceberg_tables import (
    BY_NAME,
    SCHEMA,
    Warehouse,
    add_deletes,
    append,
    as_version_3,
    by_text,
    data_file,
    entries,
    equality_deletes,
    live_rows,
    position_deletes,
    rows_of,
    scanned,
)

import parquet_bloom as pb
from parquet_bloom.errors import ConflictError, RequestError, StorageError, TableFormatError, UnknownCommitError
from parquet_bloom.source.names import TableAccess
from parquet_bloom.source.snapshot import Change, Snapshot, TableFile

WAYS = ["same-path", "new-path"]


def grown(file: TableFile) -> Change:
    """A second footer behind the old one, as a tail has it; the old file is a prefix of the new one."""
    path = Path(file.path)
    data = path.read_bytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") :]
    path.write_bytes(data + footer)
    return Change(file, file, len(data) + len(footer), len(footer) - 8)


def replaced(ours: Any, file: TableFile) -> Change:
    """A copy with a filter beside the old file."""
    place = ours.new_location(file)
    pb.add_filters(file.path, place.path, columns=["id"], force=True)
    size = Path(place.path).stat().st_size
    return Change(file, place, size, int.from_bytes(Path(place.path).read_bytes()[-8:-4], "little"))


def begun(warehouse: Warehouse) -> tuple[Any, Snapshot, Change]:
    """The table as we have it, and a copy of its first file that is to take that one's place."""
    ours = warehouse.open()
    snapshot = ours.snapshot()
    return ours, snapshot, replaced(ours, snapshot.files[0])


def changed(ours: Any, file: TableFile, way: str) -> Change:
    return grown(file) if way == "same-path" else replaced(ours, file)


def sizes_fit(snapshot: Snapshot) -> bool:
    return all(file.size == Path(file.path).stat().st_size for file in snapshot.files)


def told(entry: Any, *without: int) -> list[Any]:
    """All that an entry says of its file, and its data sequence number; but for some fields."""
    values = [v for at, v in enumerate(entry.data_file._data) if at not in without]
    plain = [dict(v) if isinstance(v, Mapping) else v for v in values]
    return [*map(repr, plain), entry.sequence_number, entry.data_file.spec_id]


def files_of(table: Table) -> set[str]:
    """All that lies in a table's folder."""
    root = Path(table.location().removeprefix("file://"))
    return {str(path) for path in root.rglob("*") if path.is_file()}


# --- what is kept ---------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("version", [1, 2])
def test_no_row_changes_and_the_log_says_the_new_sizes(warehouse: Warehouse, way: str, version: int) -> None:
    table = warehouse.create(SCHEMA, version=version)
    for i in range(3):
        append(table, rows_of(*range(100 * i, 100 * i + 100)))
    before, old = scanned(table), table.current_snapshot().snapshot_id
    ours = warehouse.open()
    snapshot = ours.snapshot()
    was = {entry.data_file.file_path: told(entry, 1, 5, 13) for entry in entries(table)}
    committed = ours.commit(snapshot, [changed(ours, f, way) for f in snapshot.files[:2]], {"parquet-bloom": "yes"})
    table = warehouse.load()
    now = table.current_snapshot()
    assert str(now.snapshot_id) == committed == warehouse.read().version
    assert now.summary.operation.value == "replace", "streams of the table pass it over"
    assert now.summary["parquet-bloom"] == "yes"
    assert scanned(table) == before == scanned(table, old), "no version's rows change"
    assert by_text(live_rows(warehouse.read())) == before
    assert sizes_fit(warehouse.read()), "readers trust the log's sizes"
    assert sorted(told(e, 1, 5, 13) for e in entries(table)) == sorted(was.values()), "the rest is carried over"
    total = sum(file.size for file in warehouse.read().files)
    assert now.summary["total-files-size"] == str(total)
    assert (now.summary["total-records"], now.summary["total-data-files"]) == ("300", "3")


def test_a_file_that_keeps_its_path_keeps_its_entry(warehouse: Warehouse) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows_of(1, 2))
    [old] = entries(table)
    ours = warehouse.open()
    snapshot = ours.snapshot()
    ours.commit(snapshot, [grown(snapshot.files[0])], {})
    [new] = entries(warehouse.load())
    assert new.status == ManifestEntryStatus.EXISTING
    assert (new.snapshot_id, new.sequence_number, new.file_sequence_number) == (old.snapshot_id, 1, 1)


def test_a_file_on_a_new_path_is_added_with_the_old_data_sequence_number(warehouse: Warehouse) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows_of(1, 2))
    append(table, rows_of(3, 4))
    ours = warehouse.open()
    snapshot = ours.snapshot()
    file = next(f for f in snapshot.files if f.entry.sequence == 1)
    change = replaced(ours, file)
    ours.commit(snapshot, [change], {})
    new = next(e for e in entries(warehouse.load()) if e.data_file.file_path.endswith(change.location.path))
    assert (new.status, new.sequence_number, new.file_sequence_number) == (ManifestEntryStatus.ADDED, 1, 3)
    assert new.data_file.file_path == f"file://{change.location.path}", "written as the old one was"
    log = warehouse.load()
    gone = [
        e
        for m in log.current_snapshot().manifests(log.io)
        for e in m.fetch_manifest_entry(log.io, discard_deleted=False)
        if e.status == ManifestEntryStatus.DELETED
    ]
    assert [e.data_file.file_path for e in gone] == [file.entry.path]
    assert gone[0].snapshot_id == log.current_snapshot().snapshot_id, "expiry then knows whose file it is"


@pytest.mark.parametrize("way", WAYS)
def test_partitions_of_all_types_and_specs_are_carried_over(warehouse: Warehouse, way: str) -> None:
    import datetime as dt
    import uuid
    from decimal import Decimal

    kinds = [
        ("d", DoubleType(), 13.532769044376774, IdentityTransform()),
        ("when", TimestampType(), dt.datetime(1969, 5, 6, 7), DayTransform()),
        ("day", DateType(), dt.date(1969, 1, 2), IdentityTransform()),
        ("price", DecimalType(30, 3), Decimal("-12345678901234567890.125"), IdentityTransform()),
        ("key", UUIDType(), uuid.uuid4().bytes, BucketTransform(9)),
        ("code", FixedType(3), b"\x00\xff\x01", IdentityTransform()),
        ("text", StringType(), "hällo", TruncateTransform(2)),
        ("id", LongType(), -5, TruncateTransform(10)),
    ]
    schema = Schema(*[NestedField(i + 1, name, kind) for i, (name, kind, _, _) in enumerate(kinds)])
    spec = PartitionSpec(
        *[PartitionField(i + 1, 1000 + i, how, f"p_{name}") for i, (name, _, _, how) in enumerate(kinds)]
    )
    table = warehouse.create(schema, partition_spec=spec)
    row = {name: value for name, _, value, _ in kinds}
    append(table, [row, dict.fromkeys(row)])
    with table.update_spec() as change:
        change.remove_field("p_d")
        change.add_field("day", BucketTransform(3), "other")
    append(table, [row])
    ours = warehouse.open()
    snapshot = ours.snapshot()
    before = sorted(told_partition(file) for file in snapshot.files)
    ours.commit(snapshot, [changed(ours, file, way) for file in snapshot.files[1:]], {})
    after = warehouse.read()
    assert sorted(told_partition(file) for file in after.files) == before
    assert by_text(live_rows(after)) == by_text(live_rows(snapshot))
    assert len({file.entry.partition[0] for file in after.files}) == 2, "each file stays in its spec"


def told_partition(file: TableFile) -> str:
    return repr((file.entry.partition, file.constants, sorted(file.bounds.items()), file.buckets))


def test_offsets_of_row_groups_are_those_of_the_new_file(warehouse: Warehouse) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows_of(*range(50)), row_group_size=10)
    ours, snapshot, change = begun(warehouse)
    ours.commit(snapshot, [change], {})
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(change.location.path)
    firsts = [metadata.row_group(i).column(0) for i in range(5)]
    starts = [c.dictionary_page_offset if c.has_dictionary_page else c.data_page_offset for c in firsts]
    assert entries(warehouse.load())[0].data_file.split_offsets == starts


def test_both_ways_and_removal_go_into_one_table(warehouse: Warehouse) -> None:
    table = warehouse.create(SCHEMA, partition_spec=BY_NAME)
    append(table, rows_of(1, 2, name="a") + rows_of(3, name="b") + rows_of(4, name="c"))
    before = scanned(table)
    ours = warehouse.open()
    first = ours.snapshot()
    ours.commit(first, [grown(first.files[0]), replaced(ours, first.files[1])], {})
    second = ours.snapshot()
    assert scanned(table) == before
    shrink = next(f for f in second.files if f.path == first.files[0].path)
    ours.commit(second, [Change(shrink, shrink, first.files[0].size, 9)], {})
    third = warehouse.read()
    assert {f.path: f.size for f in third.files}[shrink.path] == first.files[0].size, "the old size is the old file"
    assert by_text(live_rows(third)) == before


# --- deleted rows ---------------------------------------------------------------------------------


def test_a_named_file_is_not_moved_even_if_asked(warehouse: Warehouse) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows_of(*range(10)))
    [entry] = entries(table)
    add_deletes(table, position_deletes(table, {entry.data_file.file_path: [1]}, entry.data_file))
    ours = warehouse.open()
    snapshot = ours.snapshot()
    with pytest.raises(ConflictError, match="by its path"):
        ours.commit(snapshot, [replaced(ours, snapshot.files[0])], {})
    assert len(scanned(table)) == 9


@pytest.mark.parametrize("way", WAYS)
def test_equality_deletes_apply_to_the_new_version_as_to_the_old(warehouse: Warehouse, way: str) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows_of(1, 2, 3))
    [entry] = entries(table)
    add_deletes(table, equality_deletes(table, ["id"], pa.table({"id": [2]}), entry.data_file))
    ours = warehouse.open()
    snapshot = ours.snapshot()
    assert {w.default for w in ours.commit_modes(snapshot).values()} == {"new-path"}
    ours.commit(snapshot, [changed(ours, snapshot.files[0], way)], {})
    [file] = warehouse.read().files
    assert file.deletes is not None, "the deletes are still newer than the file"
    assert file.deletes.equality == snapshot.files[0].deletes.equality
    [deletes] = entries(warehouse.load(), DataFileContent.EQUALITY_DELETES)
    assert deletes.sequence_number == 2


@pytest.mark.more
def test_duckdb_reads_what_was_committed(warehouse: Warehouse, iceberg_duckdb: Asked) -> None:
    """Position deletes on the same path, equality deletes on a new one: DuckDB's rows are ours, before and after."""
    table = warehouse.create(SCHEMA, partition_spec=BY_NAME)
    for i in range(3):
        append(table, [{"id": 100 * i + j, "name": "ab"[j % 2]} for j in range(100)])
    first = next(e.data_file for e in entries(table) if e.data_file.partition[0] == "a" and e.sequence_number == 1)
    add_deletes(table, position_deletes(table, {first.file_path: [3, 7]}, first))
    b = next(e.data_file for e in entries(table) if e.data_file.partition[0] == "b")
    add_deletes(table, equality_deletes(table, ["id"], pa.table({"id": [1, 3, 101]}), b))

    def answers() -> tuple[list[Any], list[Any]]:
        rows = sorted([row["id"], row["name"]] for row in live_rows(warehouse.read()))
        metadata = warehouse.load().metadata_location
        return rows, iceberg_duckdb(f"SELECT id, name FROM iceberg_scan('{metadata}') ORDER BY id")

    before, theirs = answers()
    assert before == theirs
    assert len(before) == 295
    ours = warehouse.open()
    snapshot = ours.snapshot()
    ways = ours.commit_modes(snapshot)
    assert {way.default for way in ways.values()} == {"same-path", "new-path"}
    ours.commit(snapshot, [changed(ours, file, ways[file.path].default) for file in snapshot.files], {})
    assert answers() == (before, before)


# --- races ----------------------------------------------------------------------------------------

OTHERS: dict[str, Callable[[Table], Any]] = {
    "append": lambda table: append(table, rows_of(50, 51)),
    "delete of other rows": lambda table: table.delete("id = 50"),
    "delete of the file": lambda table: table.delete("id < 10"),
    "delete of rows": lambda table: table.delete("id = 3"),
    "position deletes": lambda table: add_deletes(
        table, position_deletes(table, {first_of(table).file_path: [3]}, first_of(table))
    ),
    "schema change": lambda table: table.update_schema().add_column("more", LongType()).commit(),
    "overwrite": lambda table: table.overwrite(pa.table({"id": [7], "name": ["y"]})),
}
HARMLESS = {"append", "delete of other rows", "schema change"}


def first_of(table: Table) -> Any:
    return next(e.data_file for e in entries(table) if e.sequence_number == 1)


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records:UserWarning")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("other", OTHERS)
def test_another_commit_came_first(warehouse: Warehouse, other: str, way: str) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows_of(*range(10)))
    append(table, rows_of(60))
    ours = warehouse.open()
    snapshot = ours.snapshot()
    file = next(f for f in snapshot.files if f.rows == 10)
    change = changed(ours, file, way)
    OTHERS[other](warehouse.load())
    after, names = scanned(table), files_of(table)
    fine = HARMLESS | ({"position deletes"} if way == "same-path" else set())
    if other in fine:
        ours.commit(snapshot, [change], {})
        assert warehouse.load().current_snapshot().summary.operation.value == "replace"
    else:
        with pytest.raises(ConflictError, match="nothing was committed"):
            ours.commit(snapshot, [change], {})
        assert files_of(table) == names, "no manifest is left behind"
    assert scanned(table) == after, "the other commit stands, and no row comes back"
    assert by_text(live_rows(warehouse.read())) == after


def test_a_commit_in_the_middle_of_ours_is_met_by_another_attempt(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other lands when our manifests are written and before the catalog is asked."""
    table = warehouse.create(SCHEMA, properties={"commit.retry.min-wait-ms": "1"})
    append(table, rows_of(*range(10)))
    ours = warehouse.open()
    snapshot = ours.snapshot()
    before = SqlCatalog.commit_table
    landed = []

    def slow(self: Any, *arguments: Any) -> Any:
        if not landed:
            landed.append(True)
            append(warehouse.load(), rows_of(77))
        return before(self, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", slow)
    ours.commit(snapshot, [replaced(ours, snapshot.files[0])], {})
    monkeypatch.undo()
    assert [s.summary.operation.value for s in warehouse.load().snapshots()] == ["append", "append", "replace"]
    assert len(scanned(table)) == 11
    lists = [name for name in files_of(table) if "/snap-" in name]
    assert len(lists) == 3, "what the first attempt wrote is gone"


def test_a_delete_in_the_middle_of_ours_ends_it(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    table = warehouse.create(SCHEMA, properties={"commit.retry.min-wait-ms": "1"})
    append(table, rows_of(*range(10)))
    ours = warehouse.open()
    snapshot = ours.snapshot()
    before = SqlCatalog.commit_table
    landed = []

    def slow(self: Any, *arguments: Any) -> Any:
        if not landed:
            landed.append(True)
            warehouse.load().delete("id < 5")
        return before(self, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", slow)
    with pytest.raises(ConflictError):
        ours.commit(snapshot, [replaced(ours, snapshot.files[0])], {})
    assert len(scanned(table)) == 5
    assert len([name for name in files_of(table) if "/snap-" in name]) == len(warehouse.load().snapshots())


def test_who_is_always_late_gives_up(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    table = warehouse.create(SCHEMA, properties={"commit.retry.num-retries": "1", "commit.retry.min-wait-ms": "1"})
    append(table, rows_of(*range(10)))
    ours, snapshot, change = begun(warehouse)
    before = SqlCatalog.commit_table

    def slow(self: Any, *arguments: Any) -> Any:
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(SqlCatalog, "commit_table", before)
            append(warehouse.load(), rows_of(77))
        return before(self, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", slow)
    with pytest.raises(ConflictError, match="other commits came first each time; try again"):
        ours.commit(snapshot, [change], {})
    monkeypatch.undo()
    assert len(scanned(table)) == 12
    assert len([name for name in files_of(table) if "/snap-" in name]) == 3 == len(warehouse.load().snapshots())


@pytest.mark.parametrize("what", ["write_manifest", "write_manifest_list"])
def test_a_disk_that_is_full_leaves_no_manifest(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows_of(*range(10)))
    ours, snapshot, change = begun(warehouse)
    names = files_of(table)

    def full(*arguments: Any, **more: Any) -> Any:
        raise OSError(28, "No space left on device")

    # A manifest that could not be made, or a list of them: what is there goes, what is not is nobody's trouble.
    monkeypatch.setattr(f"pyiceberg.table.update.snapshot.{what}", full)
    with pytest.raises(StorageError, match="the disk of its metadata is full; nothing was committed"):
        ours.commit(snapshot, [change], {})
    assert files_of(table) == names
    assert warehouse.read().version == snapshot.version
    assert not caplog.records, "a command would print pyiceberg's traceback"


@pytest.mark.more
@pytest.mark.parametrize("seed", range(4))
def test_many_writers_at_once_lose_and_double_no_row(warehouse: Warehouse, seed: int) -> None:
    table = warehouse.create(SCHEMA, properties={"commit.retry.num-retries": "50", "commit.retry.min-wait-ms": "5"})
    for i in range(4):
        append(table, rows_of(*range(10 * i, 10 * i + 10)))
    errors: list[BaseException] = []

    def adding(n: int) -> None:
        rng = random.Random(seed * 10 + n)
        for _ in range(3):
            ours = warehouse.open()
            snapshot = ours.snapshot()
            chosen = rng.sample(snapshot.files, 2)
            try:
                ours.commit(snapshot, [replaced(ours, file) for file in chosen], {})
            except ConflictError:
                pass
            except BaseException as error:
                errors.append(error)

    def appending() -> None:
        try:
            for i in range(3):
                warehouse.load().append(pa.table({"id": [1000 + i], "name": ["z"]}))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=adding, args=(n,)) for n in range(3)] + [threading.Thread(target=appending)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    wanted = by_text([*rows_of(*range(40)), *rows_of(1000, 1001, 1002, name="z")])
    assert scanned(table) == wanted
    assert by_text(live_rows(warehouse.read())) == wanted


STALE: dict[str, Callable[[Table], Any]] = {
    name: OTHERS[name] for name in ("append", "delete of the file", "delete of rows", "overwrite")
}


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records:UserWarning")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("other", STALE)
def test_another_commit_that_began_before_ours_ends_after_it(warehouse: Warehouse, other: str, way: str) -> None:
    """pyiceberg's own: it refuses, or gives the rows that it would have given without ours."""
    results = []
    for name in ("ns.with", "ns.without"):
        table = warehouse.create(SCHEMA, name, properties={"commit.retry.min-wait-ms": "1"})
        append(table, rows_of(*range(10)))
        append(table, rows_of(60))
        late = warehouse.load(name)
        ours = warehouse.open(name)
        snapshot = ours.snapshot()
        if name == "ns.with":
            ours.commit(snapshot, [changed(ours, file, way) for file in snapshot.files], {})
        before = scanned(table)
        try:
            STALE[other](late)
        except (ValidationException, CommitFailedException):
            assert name == "ns.with", "nothing is in the way but ours"
            assert scanned(table) == before
            return
        results.append(scanned(table))
        assert by_text(live_rows(warehouse.read(name))) == results[-1]
    assert results[0] == results[1], "no row comes twice or back"


# --- after a commit -------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_older_snapshots_expire_and_are_read_until_then(warehouse: Warehouse, way: str) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows_of(*range(10)))
    old = table.current_snapshot().snapshot_id
    ours = warehouse.open()
    snapshot = ours.snapshot()
    ours.commit(snapshot, [changed(ours, snapshot.files[0], way)], {})
    assert len(live_rows(warehouse.read(version=str(old)))) == 10
    log = warehouse.load()
    log.maintenance.expire_snapshots().by_id(old).commit()
    assert len(scanned(table)) == 10 == len(live_rows(warehouse.read()))
    append(warehouse.load(), rows_of(11))
    warehouse.load().delete("id = 3")
    assert len(scanned(table)) == 10 == len(live_rows(warehouse.read()))


def test_a_commit_may_follow_a_commit(warehouse: Warehouse) -> None:
    table = warehouse.create(SCHEMA)
    for i in range(3):
        append(table, rows_of(i))
    ours = warehouse.open()
    for _ in range(3):
        snapshot = ours.snapshot()
        file = next(f for f in snapshot.files if "-bloom-" not in f.path)
        ours.commit(snapshot, [replaced(ours, file)], {})
    assert all("-bloom-" in file.path for file in warehouse.read().files)
    assert len(scanned(table)) == 3


# --- what is refused ------------------------------------------------------------------------------


def test_format_version_3_is_read_only(warehouse: Warehouse) -> None:
    append(warehouse.create(SCHEMA), rows_of(1))
    as_version_3(warehouse, "ns.modern")
    ours = warehouse.open("ns.modern")
    snapshot = ours.snapshot()
    assert len(live_rows(snapshot)) == 1
    for act in (lambda: ours.commit_modes(snapshot), lambda: ours.commit(snapshot, [grown(snapshot.files[0])], {})):
        with pytest.raises(TableFormatError, match="format version 3, whose manifests pyiceberg cannot write"):
            act()


def test_files_of_a_spec_whose_column_was_dropped_are_left_alone(warehouse: Warehouse) -> None:
    table = warehouse.create(SCHEMA, partition_spec=BY_NAME)
    append(table, rows_of(1, name="a"))
    with table.update_spec() as change:
        change.remove_field("name")
    with table.update_schema() as change:
        change.delete_column("name")
    append(table, [{"id": 2}])
    ours = warehouse.open()
    snapshot = ours.snapshot()
    ways = ours.commit_modes(snapshot)
    told = {file.entry.partition[0]: ways[file.path] for file in snapshot.files}
    assert told[0].default is None
    assert told[0].refusal == "a partition column was dropped from the table, and pyiceberg would lose its values"
    assert told[1].default == "new-path"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("at_work", ["planning", "committing"])
def test_a_partition_column_that_is_dropped_meanwhile(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, at_work: str, way: str
) -> None:
    """It is a conflict, whichever attempt meets it; planned again, the file is refused."""
    table = warehouse.create(SCHEMA, partition_spec=BY_NAME, properties={"commit.retry.min-wait-ms": "1"})
    append(table, rows_of(1, 2, name="a"))
    ours = warehouse.open()
    snapshot = ours.snapshot()
    change, names = changed(ours, snapshot.files[0], way), files_of(table)
    before, dropped = SqlCatalog.commit_table, []

    def drop() -> None:
        dropped.append(True)
        with warehouse.load().update_spec() as update:
            update.remove_field("name")
        with warehouse.load().update_schema() as update:
            update.delete_column("name")

    def late(self: Any, *arguments: Any) -> Any:
        if not dropped:
            drop()
            raise CommitFailedException("another commit came first")
        return before(self, *arguments)

    if at_work == "planning":
        drop()
    else:
        monkeypatch.setattr(SqlCatalog, "commit_table", late)
    with pytest.raises(ConflictError, match="a partition column was dropped.*nothing was committed"):
        ours.commit(snapshot, [change], {})
    assert not {name for name in files_of(table) - names if name.endswith(".avro")}
    again = ours.snapshot()
    assert ours.commit_modes(again)[again.files[0].path].default is None
    assert len(scanned(table)) == 2


@pytest.mark.parametrize(  # of the three settings each with each
    ("way", "version", "dropped"),
    [("same-path", 1, False), ("same-path", 2, True), ("new-path", 1, True), ("new-path", 2, False)],
)
def test_void_fields_of_required_and_of_dropped_columns(
    warehouse: Warehouse, version: int, dropped: bool, way: str
) -> None:
    """What a field of format version 1 becomes that is dropped; NULL in later files, though its column is required."""
    table = warehouse.create(SCHEMA, version=1, partition_spec=BY_NAME)
    if not dropped:
        append(table, rows_of(1, 2, name="a"))
    with table.update_spec() as change:
        change.remove_field("name")
    if version == 2:
        with table.transaction() as change:
            change.upgrade_table_version(2)
    add_deletes(table, data=[data_file(table, rows_of(3, 4), (None,))])
    with table.update_schema(allow_incompatible_changes=True) as change:
        if dropped:
            change.delete_column("name")
        else:
            change.update_column("name", required=True)
    before = scanned(table)
    ours = warehouse.open()
    snapshot = ours.snapshot()
    ours.commit(snapshot, [changed(ours, file, way) for file in snapshot.files], {})
    assert scanned(table) == before == by_text(live_rows(warehouse.read()))
    assert sorted(told_partition(file) for file in warehouse.read().files) == sorted(
        map(told_partition, snapshot.files)
    )


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_is_not_there_whole_is_not_committed(warehouse: Warehouse, way: str) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows_of(1, 2))
    ours = warehouse.open()
    snapshot = ours.snapshot()
    change = changed(ours, snapshot.files[0], way)
    with pytest.raises(StorageError, match="nothing was committed"):
        ours.commit(snapshot, [change._replace(size=change.size + 1)], {})
    Path(change.location.path).unlink()
    with pytest.raises(StorageError, match="(?i)no such file"):
        ours.commit(snapshot, [change], {})
    assert warehouse.read().version == snapshot.version


def test_a_file_with_other_rows_is_not_committed(warehouse: Warehouse) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows_of(1, 2))
    append(table, rows_of(3))
    ours = warehouse.open()
    snapshot = ours.snapshot()
    two = next(f for f in snapshot.files if f.rows == 2)
    one = next(f for f in snapshot.files if f.rows == 1)
    place = ours.new_location(two)
    shutil.copy(one.path, place.path)
    with pytest.raises(StorageError, match="has 1 rows, where the table has 2; nothing was committed"):
        ours.commit(snapshot, [Change(two, place, one.size, 9)], {})
    assert len(scanned(table)) == 3


def test_a_new_version_that_the_log_would_not_lead_to_is_not_committed(warehouse: Warehouse) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows_of(1, 2))
    ours, snapshot, change = begun(warehouse)
    other = Path(change.location.path).parent / "other" / Path(change.location.path).name
    other.parent.mkdir()
    Path(change.location.path).rename(other)
    with pytest.raises(StorageError, match="which is another place; nothing was committed"):
        ours.commit(snapshot, [change._replace(location=replace(change.location, path=str(other)))], {})
    assert len(scanned(table)) == 2


class LostAnswers(SqlCatalog):
    """A catalog whose answers get lost; `lands` says whether what was asked for is done."""

    lands = True

    def commit_table(self, *arguments: Any) -> Any:
        if self.lands:
            super().commit_table(*arguments)
        raise CommitStateUnknownException("the connection broke")


@pytest.mark.parametrize("lands", [True, False], ids=["landed", "did not land"])
def test_an_answer_that_gets_lost(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, lands: bool) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows_of(1, 2))
    monkeypatch.setattr(LostAnswers, "lands", lands)
    properties = {k: v for k, v in warehouse.properties.items() if k != "type"}
    from parquet_bloom.tables.iceberg.table import open_iceberg

    ours = open_iceberg("cat/ns.t", None, TableAccess({**properties, "py-catalog-impl": f"{__name__}.LostAnswers"}))
    snapshot = ours.snapshot()
    change = replaced(ours, snapshot.files[0])
    if lands:
        assert ours.commit(snapshot, [change], {}) == warehouse.read().version
    else:
        with pytest.raises(UnknownCommitError, match="new files stay where they are") as told:
            ours.commit(snapshot, [change], {})
        assert not isinstance(told.value, StorageError), "nobody may delete new files after it"
        assert Path(change.location.path).exists()
    assert len(scanned(table)) == 2


@pytest.mark.parametrize("refused", [0, 1])
def test_a_refusal_of_what_landed(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, refused: int) -> None:
    """The transport sent a commit twice, whose first answer got lost; perhaps after attempts that were too late."""
    table = warehouse.create(
        SCHEMA, properties={"commit.retry.num-retries": str(refused), "commit.retry.min-wait-ms": "1"}
    )
    append(table, rows_of(1, 2))
    ours, snapshot, change = begun(warehouse)
    before, asked = SqlCatalog.commit_table, []

    def twice(self: Any, *arguments: Any) -> Any:
        asked.append(arguments)
        if len(asked) > refused:
            before(self, *arguments)
        raise CommitFailedException("the table has changed")

    monkeypatch.setattr(SqlCatalog, "commit_table", twice)
    assert ours.commit(snapshot, [change], {}) == warehouse.read().version
    monkeypatch.undo()
    assert len(asked) == refused + 1
    assert len(scanned(table)) == 2, "its manifests are there"
    assert len([name for name in files_of(table) if "/snap-" in name]) == 2, "those of other attempts are not"


@pytest.mark.parametrize(
    "error",
    [
        OperationalError("COMMIT", {}, Exception("server closed the connection"), connection_invalidated=True),
        OSError("Connection reset"),
        ConnectionResetError(104, "Connection reset by peer"),
        OSError(5, "Input/output error"),
    ],
)
def test_a_connection_that_breaks_leaves_it_open_whether_a_commit_landed(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows_of(1, 2))
    ours, snapshot, change = begun(warehouse)
    before, sent = SqlCatalog.commit_table, []

    def late(*arguments: Any) -> Any:
        sent.append(arguments)
        raise error

    monkeypatch.setattr(SqlCatalog, "commit_table", late)
    with pytest.raises(UnknownCommitError):
        ours.commit(snapshot, [change], {})
    monkeypatch.undo()
    before(*sent[0])  # the server ends what it was sent
    assert len(scanned(table)) == 2
    assert [Path(file.path).name for file in warehouse.read().files] == [Path(change.location.path).name]


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("at_work", ["planning", "committing"])
def test_a_table_that_is_dropped_meanwhile(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, at_work: str, anew: bool
) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows_of(1, 2))
    ours, snapshot, change = begun(warehouse)
    before = SqlCatalog.commit_table

    def drop() -> None:
        warehouse.catalog.drop_table("ns.t")
        if anew:
            warehouse.create(SCHEMA)

    def late(self: Any, *arguments: Any) -> Any:
        drop()
        return before(self, *arguments)

    told = "was dropped and created again meanwhile" if anew else "was dropped or renamed meanwhile"
    if at_work == "planning":
        drop()
        with pytest.raises(RequestError, match=told):
            ours.commit(snapshot, [change], {})
    else:
        monkeypatch.setattr(SqlCatalog, "commit_table", late)
        with pytest.raises(UnknownCommitError, match=told):
            ours.commit(snapshot, [change], {})
    with pytest.raises(RequestError, match=told):
        ours.snapshot()


def test_a_statement_that_a_database_refuses_is_not_committed(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows_of(1, 2))
    ours = warehouse.open()
    snapshot = ours.snapshot()
    change, names = replaced(ours, snapshot.files[0]), files_of(table)

    def refuses(*arguments: Any) -> Any:
        raise OperationalError("UPDATE", {}, Exception("database is locked"))

    monkeypatch.setattr(SqlCatalog, "commit_table", refuses)
    with pytest.raises(StorageError, match="database is locked.*nothing was committed"):
        ours.commit(snapshot, [change], {})
    assert files_of(table) == names | {change.location.path}


# --- the catalog ----------------------------------------------------------------------------------


def test_no_call_leaves_a_connection_with_the_catalog(warehouse: Warehouse) -> None:
    """Not until Python collects garbage either: a service that asks often would use up those of its server."""
    table = warehouse.create(SCHEMA)
    append(table, [{"id": i, "name": "a"} for i in range(100)])
    options = {"catalog_properties": warehouse.properties}
    database = warehouse.properties["uri"].removeprefix("sqlite:///")

    def connections() -> int:
        return sum(os.path.realpath(f"/proc/self/fd/{fd}") == database for fd in os.listdir("/proc/self/fd"))

    before = connections()
    gc.disable()
    try:
        for _ in range(5):
            pb.count("iceberg:cat/ns.t", "id = 5", **options)
            pb.add_filters("iceberg:cat/ns.t", columns=["id"], **options)
            pb.remove_filters("iceberg:cat/ns.t", **options)
            with pytest.raises(RequestError):
                pb.count("iceberg:cat/ns.u", **options)
        assert connections() == before
    finally:
        gc.enable()

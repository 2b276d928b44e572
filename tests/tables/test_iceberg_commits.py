"""Commits to Iceberg tables: no row changes, all that an entry says is kept, and other commits are never undone."""

from __future__ import annotations

import datetime as dt
import gc
import os
import random
import shutil
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
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
from support.repeats import by_turns

import parquet_bloom as pb
from parquet_bloom.errors import ConflictError, RequestError, StorageError, TableFormatError, UnknownCommitError
from parquet_bloom.source.names import TableAccess
from parquet_bloom.source.snapshot import Change, Snapshot, TableFile
from parquet_bloom.tables.iceberg.table import open_iceberg

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


def begun(warehouse: Warehouse, way: str = "new-path", name: str = "ns.t") -> tuple[Any, Snapshot, Change]:
    """The table as we have it, and a new version of its first file that is to take that one's place."""
    ours = warehouse.open(name)
    snapshot = ours.snapshot()
    return ours, snapshot, changed(ours, snapshot.files[0], way)


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


def lists_of(table: Table) -> int:
    """How many lists of manifests lie there: one a snapshot, unless an attempt left its own."""
    return sum("/snap-" in name for name in files_of(table))


Patch = pytest.MonkeyPatch


def meanwhile(patch: Patch, work: Callable[[], Any], each_time: bool = False) -> None:
    """Let another program work when our manifests are written and before the catalog is asked."""
    commit_table, done = SqlCatalog.commit_table, []

    def late(self: Any, *arguments: Any) -> Any:
        if each_time or not done:
            done.append(True)
            with patch.context() as inner:
                inner.setattr(SqlCatalog, "commit_table", commit_table)
                work()
        return commit_table(self, *arguments)

    patch.setattr(SqlCatalog, "commit_table", late)


QUICK = {"commit.retry.min-wait-ms": "1"}


# --- what is kept ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("way", "version"), [(WAYS[0], 1), (WAYS[1], 2)])
def test_no_row_changes_and_the_log_says_the_new_sizes(warehouse: Warehouse, way: str, version: int) -> None:
    table = warehouse.filled(*(rows_of(*range(i, i + 100)) for i in (0, 100, 200)), version=version)
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
    [old] = entries(warehouse.filled(rows_of(1, 2)))
    ours, snapshot, change = begun(warehouse, "same-path")
    ours.commit(snapshot, [change], {})
    [new] = entries(warehouse.load())
    assert new.status == ManifestEntryStatus.EXISTING
    assert (new.snapshot_id, new.sequence_number, new.file_sequence_number) == (old.snapshot_id, 1, 1)


def test_a_file_on_a_new_path_is_added_with_the_old_data_sequence_number(warehouse: Warehouse) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows_of(*range(50)), row_group_size=10)
    append(table, rows_of(3, 4))
    ours = warehouse.open()
    snapshot = ours.snapshot()
    file = next(f for f in snapshot.files if f.entry.sequence == 1)
    change = replaced(ours, file)
    ours.commit(snapshot, [change], {})
    log = warehouse.load()
    new = next(e for e in entries(log) if e.data_file.file_path.endswith(change.location.path))
    assert (new.status, new.sequence_number, new.file_sequence_number) == (ManifestEntryStatus.ADDED, 1, 3)
    assert new.data_file.file_path == f"file://{change.location.path}", "written as the old one was"
    footer = pq.read_metadata(change.location.path)
    firsts = [footer.row_group(i).column(0) for i in range(5)]
    starts = [c.dictionary_page_offset if c.has_dictionary_page else c.data_page_offset for c in firsts]
    assert new.data_file.split_offsets == starts
    now = log.current_snapshot()
    told = [e for m in now.manifests(log.io) for e in m.fetch_manifest_entry(log.io, discard_deleted=False)]
    [gone] = [e for e in told if e.status == ManifestEntryStatus.DELETED]
    assert gone.data_file.file_path == file.entry.path
    assert gone.snapshot_id == now.snapshot_id, "expiry then knows whose file it is"


def test_partitions_of_all_types_and_specs_are_carried_over(warehouse: Warehouse) -> None:
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
    parts = [PartitionField(i + 1, 1000 + i, how, f"p_{name}") for i, (name, _, _, how) in enumerate(kinds)]
    row = {name: value for name, _, value, _ in kinds}
    table = warehouse.filled([row, dict.fromkeys(row)], schema=schema, partition_spec=PartitionSpec(*parts))
    with table.update_spec() as change:
        change.remove_field("p_d")
        change.add_field("day", BucketTransform(3), "other")
    append(table, [row])
    ours = warehouse.open()
    for way in WAYS:
        snapshot = ours.snapshot()
        before = sorted(map(told_partition, snapshot.files))
        ours.commit(snapshot, [changed(ours, file, way) for file in snapshot.files[1:]], {})
        after = warehouse.read()
        assert sorted(map(told_partition, after.files)) == before
        assert by_text(live_rows(after)) == by_text(live_rows(snapshot))
        assert len({file.entry.partition[0] for file in after.files}) == 2, "each file stays in its spec"


def told_partition(file: TableFile) -> str:
    return repr((file.entry.partition, file.constants, sorted(file.bounds.items()), file.buckets))


def test_both_ways_and_removal_go_into_one_table(warehouse: Warehouse) -> None:
    rows = rows_of(1, 2, name="a") + rows_of(3, name="b") + rows_of(4, name="c")
    table = warehouse.filled(rows, partition_spec=BY_NAME)
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
    table = warehouse.filled(rows_of(*range(10)))
    [entry] = entries(table)
    add_deletes(table, position_deletes(table, {entry.data_file.file_path: [1]}, entry.data_file))
    ours, snapshot, change = begun(warehouse)
    with pytest.raises(ConflictError, match="by its path"):
        ours.commit(snapshot, [change], {})
    assert len(scanned(table)) == 9


def test_equality_deletes_apply_to_the_new_version_as_to_the_old(warehouse: Warehouse) -> None:
    table = warehouse.filled(rows_of(1, 2, 3))
    [entry] = entries(table)
    add_deletes(table, equality_deletes(table, ["id"], pa.table({"id": [2]}), entry.data_file))
    for way in WAYS:
        ours, snapshot, change = begun(warehouse, way)
        assert {w.default for w in ours.commit_modes(snapshot).values()} == {"new-path"}
        ours.commit(snapshot, [change], {})
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
@pytest.mark.parametrize(("other", "way"), [*by_turns(OTHERS, WAYS), ("position deletes", "new-path")])
def test_another_commit_came_first(warehouse: Warehouse, other: str, way: str) -> None:
    table = warehouse.filled(rows_of(*range(10)), rows_of(60))
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


def test_a_commit_in_the_middle_of_ours_is_met_by_another_attempt(warehouse: Warehouse, monkeypatch: Patch) -> None:
    table = warehouse.filled(rows_of(*range(10)), properties=QUICK)
    ours, snapshot, change = begun(warehouse)
    with monkeypatch.context() as patch:
        meanwhile(patch, lambda: append(warehouse.load(), rows_of(77)))
        ours.commit(snapshot, [change], {})
    assert [s.summary.operation.value for s in warehouse.load().snapshots()] == ["append", "append", "replace"]
    assert len(scanned(table)) == 11
    assert lists_of(table) == 3, "what the first attempt wrote is gone"


def test_who_lost_rows_meanwhile_or_is_always_late_gives_up(warehouse: Warehouse, monkeypatch: Patch) -> None:
    table = warehouse.filled(rows_of(*range(10)), properties={**QUICK, "commit.retry.num-retries": "1"})
    ours, snapshot, change = begun(warehouse)
    with monkeypatch.context() as patch:
        meanwhile(patch, lambda: append(warehouse.load(), rows_of(77)), each_time=True)
        with pytest.raises(ConflictError, match="other commits came first each time; try again"):
            ours.commit(snapshot, [change], {})
    assert len(scanned(table)) == 12
    assert lists_of(table) == 3 == len(warehouse.load().snapshots())
    with monkeypatch.context() as patch:
        meanwhile(patch, lambda: warehouse.load().delete("id < 5"))
        with pytest.raises(ConflictError):
            ours.commit(snapshot, [change], {})
    assert len(scanned(table)) == 7
    assert lists_of(table) == len(warehouse.load().snapshots())


def test_a_disk_that_is_full_leaves_no_manifest(
    warehouse: Warehouse, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    """A manifest that could not be made, or a list of them: what is there goes, what is not is nobody's trouble."""
    table = warehouse.filled(rows_of(*range(10)))
    ours, snapshot, change = begun(warehouse)
    names = files_of(table)

    def full(*arguments: Any, **more: Any) -> Any:
        raise OSError(28, "No space left on device")

    for what in ("write_manifest", "write_manifest_list"):
        with monkeypatch.context() as patch:
            patch.setattr(f"pyiceberg.table.update.snapshot.{what}", full)
            with pytest.raises(StorageError, match="the disk of its metadata is full; nothing was committed"):
                ours.commit(snapshot, [change], {})
        assert files_of(table) == names, what
        assert warehouse.read().version == snapshot.version
    assert not caplog.records, "a command would print pyiceberg's traceback"


@pytest.mark.more
@pytest.mark.parametrize("seed", range(2))
def test_many_writers_at_once_lose_and_double_no_row(warehouse: Warehouse, seed: int) -> None:
    patient = {"commit.retry.num-retries": "50", "commit.retry.min-wait-ms": "5"}
    table = warehouse.filled(*(rows_of(*range(i, i + 10)) for i in (0, 10, 20, 30)), properties=patient)
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


STALE = ("append", "delete of the file", "delete of rows", "overwrite")


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records:UserWarning")
@pytest.mark.parametrize(("other", "way"), by_turns(STALE, WAYS))
def test_another_commit_that_began_before_ours_ends_after_it(warehouse: Warehouse, other: str, way: str) -> None:
    """pyiceberg's own: it refuses, or gives the rows that it would have given without ours."""
    results = []
    for name in ("ns.with", "ns.without"):
        table = warehouse.filled(rows_of(*range(10)), rows_of(60), name=name, properties=QUICK)
        late = warehouse.load(name)
        ours = warehouse.open(name)
        snapshot = ours.snapshot()
        if name == "ns.with":
            ours.commit(snapshot, [changed(ours, file, way) for file in snapshot.files], {})
        before = scanned(table)
        try:
            OTHERS[other](late)
        except (ValidationException, CommitFailedException):
            assert name == "ns.with", "nothing is in the way but ours"
            assert scanned(table) == before
            return
        results.append(scanned(table))
        assert by_text(live_rows(warehouse.read(name))) == results[-1]
    assert results[0] == results[1], "no row comes twice or back"


# --- after a commit -------------------------------------------------------------------------------


def test_older_snapshots_expire_and_are_read_until_then(warehouse: Warehouse) -> None:
    for way, name in zip(WAYS, ("ns.same", "ns.new"), strict=True):
        table = warehouse.filled(rows_of(*range(10)), name=name)
        old = table.current_snapshot().snapshot_id
        for _ in range(3):  # a commit may follow a commit
            ours, snapshot, change = begun(warehouse, way, name)
            ours.commit(snapshot, [change], {})
            assert warehouse.read(name).files[0].path == change.location.path
        assert len(live_rows(warehouse.read(name, str(old)))) == 10
        warehouse.load(name).maintenance.expire_snapshots().by_id(old).commit()
        assert len(scanned(table)) == 10 == len(live_rows(warehouse.read(name)))
        append(warehouse.load(name), rows_of(11))
        warehouse.load(name).delete("id = 3")
        assert len(scanned(table)) == 10 == len(live_rows(warehouse.read(name)))


# --- what is refused ------------------------------------------------------------------------------


def test_format_version_3_is_read_only(warehouse: Warehouse) -> None:
    warehouse.filled(rows_of(1))
    as_version_3(warehouse, "ns.modern")
    ours = warehouse.open("ns.modern")
    snapshot = ours.snapshot()
    assert len(live_rows(snapshot)) == 1
    for act in (lambda: ours.commit_modes(snapshot), lambda: ours.commit(snapshot, [grown(snapshot.files[0])], {})):
        with pytest.raises(TableFormatError, match="format version 3, whose manifests pyiceberg cannot write"):
            act()


def test_files_of_a_spec_whose_column_was_dropped_are_left_alone(warehouse: Warehouse) -> None:
    table = warehouse.filled(rows_of(1, name="a"), partition_spec=BY_NAME)
    drop_partition(table)
    append(table, [{"id": 2}])
    ours = warehouse.open()
    snapshot = ours.snapshot()
    ways = ours.commit_modes(snapshot)
    told = {file.entry.partition[0]: ways[file.path] for file in snapshot.files}
    assert told[0].default is None
    assert told[0].refusal == "a partition column was dropped from the table, and pyiceberg would lose its values"
    assert told[1].default == "new-path"


def drop_partition(table: Table) -> None:
    with table.update_spec() as update:
        update.remove_field("name")
    with table.update_schema() as update:
        update.delete_column("name")


@pytest.mark.parametrize(("way", "planning"), [("same-path", True), ("new-path", False), ("same-path", False)])
def test_a_partition_column_that_is_dropped_meanwhile(
    warehouse: Warehouse, monkeypatch: Patch, way: str, planning: bool
) -> None:
    """It is a conflict, whichever attempt meets it; planned again, the file is refused."""
    table = warehouse.filled(rows_of(1, 2, name="a"), partition_spec=BY_NAME, properties=QUICK)
    ours, snapshot, change = begun(warehouse, way)
    names = files_of(table)

    def drop_and_refuse() -> None:
        drop_partition(warehouse.load())
        raise CommitFailedException("another commit came first")

    if planning:
        drop_partition(warehouse.load())
    else:
        meanwhile(monkeypatch, drop_and_refuse)
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
    after = warehouse.read().files
    assert sorted(map(told_partition, after)) == sorted(map(told_partition, snapshot.files))


def test_a_file_that_is_not_there_whole_is_not_committed(warehouse: Warehouse) -> None:
    for way, name in zip(WAYS, ("ns.same", "ns.new"), strict=True):
        warehouse.filled(rows_of(1, 2), name=name)
        ours, snapshot, change = begun(warehouse, way, name)
        with pytest.raises(StorageError, match="nothing was committed"):
            ours.commit(snapshot, [change._replace(size=change.size + 1)], {})
        Path(change.location.path).unlink()
        with pytest.raises(StorageError, match="(?i)no such file"):
            ours.commit(snapshot, [change], {})
        assert warehouse.read(name).version == snapshot.version


def test_a_file_with_other_rows_or_of_another_place_is_not_committed(warehouse: Warehouse) -> None:
    table = warehouse.filled(rows_of(1, 2), rows_of(3))
    ours = warehouse.open()
    snapshot = ours.snapshot()
    two, one = sorted(snapshot.files, key=lambda file: -file.rows)
    change = replaced(ours, two)
    shutil.copy(one.path, change.location.path)
    with pytest.raises(StorageError, match="has 1 rows, where the table has 2; nothing was committed"):
        ours.commit(snapshot, [change._replace(size=one.size, footer_size=9)], {})
    change = replaced(ours, two)
    other = Path(change.location.path).parent / "other" / Path(change.location.path).name
    other.parent.mkdir()
    Path(change.location.path).rename(other)
    with pytest.raises(StorageError, match="which is another place; nothing was committed"):
        ours.commit(snapshot, [change._replace(location=replace(change.location, path=str(other)))], {})
    assert len(scanned(table)) == 3


class LostAnswers(SqlCatalog):
    """A catalog whose answers get lost; `lands` says whether what was asked for is done."""

    lands = True

    def commit_table(self, *arguments: Any) -> Any:
        if self.lands:
            super().commit_table(*arguments)
        raise CommitStateUnknownException("the connection broke")


@pytest.mark.parametrize("lands", [True, False], ids=["landed", "did not land"])
def test_an_answer_that_gets_lost(warehouse: Warehouse, monkeypatch: Patch, lands: bool) -> None:
    table = warehouse.filled(rows_of(1, 2))
    monkeypatch.setattr(LostAnswers, "lands", lands)
    properties = {k: v for k, v in warehouse.properties.items() if k != "type"}

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
def test_a_refusal_of_what_landed(warehouse: Warehouse, monkeypatch: Patch, refused: int) -> None:
    """The transport sent a commit twice, whose first answer got lost; perhaps after attempts that were too late."""
    table = warehouse.filled(rows_of(1, 2), properties={**QUICK, "commit.retry.num-retries": str(refused)})
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
    assert lists_of(table) == 2, "those of other attempts are not"


BROKEN = [
    OperationalError("COMMIT", {}, Exception("server closed the connection"), connection_invalidated=True),
    OSError("Connection reset"),
    ConnectionResetError(104, "Connection reset by peer"),
    OSError(5, "Input/output error"),
]


def test_a_connection_that_breaks_leaves_it_open_whether_a_commit_landed(
    warehouse: Warehouse, monkeypatch: Patch
) -> None:
    for i, error in enumerate(BROKEN):
        name, sent = f"ns.t{i}", []
        table = warehouse.filled(rows_of(1, 2), name=name)
        ours, snapshot, change = begun(warehouse, name=name)

        def late(*arguments: Any, sent: list[Any] = sent, error: Exception = error) -> Any:
            sent.append(arguments)
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(SqlCatalog, "commit_table", late)
            with pytest.raises(UnknownCommitError):
                ours.commit(snapshot, [change], {})
        SqlCatalog.commit_table(*sent[0])  # the server ends what it was sent
        assert len(scanned(table)) == 2
        [file] = warehouse.read(name).files
        assert Path(file.path).name == Path(change.location.path).name


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("planning", [False, True])
def test_a_table_that_is_dropped_meanwhile(
    warehouse: Warehouse, monkeypatch: Patch, planning: bool, anew: bool
) -> None:
    warehouse.filled(rows_of(1, 2))
    ours, snapshot, change = begun(warehouse)

    def drop() -> None:
        warehouse.catalog.drop_table("ns.t")
        if anew:
            warehouse.create(SCHEMA)

    told = "was dropped and created again meanwhile" if anew else "was dropped or renamed meanwhile"
    if planning:
        drop()
    else:
        meanwhile(monkeypatch, drop)
    with pytest.raises(RequestError if planning else UnknownCommitError, match=told):
        ours.commit(snapshot, [change], {})
    with pytest.raises(RequestError, match=told):
        ours.snapshot()


def test_a_statement_that_a_database_refuses_is_not_committed(warehouse: Warehouse, monkeypatch: Patch) -> None:
    table = warehouse.filled(rows_of(1, 2))
    ours, snapshot, change = begun(warehouse)
    names = files_of(table)

    def refuses() -> Any:
        raise OperationalError("UPDATE", {}, Exception("database is locked"))

    meanwhile(monkeypatch, refuses)
    with pytest.raises(StorageError, match="database is locked.*nothing was committed"):
        ours.commit(snapshot, [change], {})
    assert files_of(table) == names


# --- the catalog ----------------------------------------------------------------------------------


def test_no_call_leaves_a_connection_with_the_catalog(warehouse: Warehouse) -> None:
    """Not until Python collects garbage either: a service that asks often would use up those of its server."""
    warehouse.filled(rows_of(*range(100)))
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

"""What is true of every file after rows were deleted from it, whatever was in it: compared with the file before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import parquet_bloom
from parquet_bloom import delete_keys
from parquet_bloom._thrift.parquet.ttypes import ColumnMetaData, FileMetaData
from parquet_bloom.changes.values import KeyChanges
from parquet_bloom.format import compact
from parquet_bloom.format.footer import IndexKind, chunk_extent
from parquet_bloom.format.provenance import all_ranges, read_entries
from parquet_bloom.storage.open_file import OpenFile


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows in order, as values that are equal to themselves."""
    return [tuple(map(repr, row)) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]


def read(file: Path | pq.ParquetFile, group: int | None = None) -> pa.Table:
    """A file or a row group of it; views as plain texts, for which pyarrow has more functions."""
    opened = pq.ParquetFile(file) if isinstance(file, Path) else file
    table = opened.read() if group is None else opened.read_row_group(group)
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    fields = [field.with_type(plain.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields, table.schema.metadata))


def without(table: pa.Table, column: str, keys: pa.Array) -> pa.Table:
    """The rows that have none of the keys, by brute force."""
    return table.filter(pc.invert(pc.is_in(table[column], value_set=keys)))


def footer_of(data: bytes) -> FileMetaData:
    """The footer of a file's bytes."""
    return compact.decode(FileMetaData, data[-8 - int.from_bytes(data[-8:-4], "little") : -8])[0]


def chunk_bytes(data: bytes, meta: ColumnMetaData) -> bytes:
    """The pages of a chunk."""
    start, stop = chunk_extent(meta)
    return data[start:stop]


def bounds(meta: ColumnMetaData) -> bool:
    """Whether a chunk states min and max."""
    one = meta.statistics
    return one is not None and (one.min_value is not None or one.min is not None)


def values_in(meta: ColumnMetaData) -> bool:
    """Whether a chunk may hold a value."""
    return meta.statistics is None or meta.num_values > (meta.statistics.null_count or 0)


def statuses(path: Path) -> tuple[dict[tuple[int, str], str], set[str]]:
    """What `verify` says of each filter, and what it finds wrong in statistics, by column."""
    found = parquet_bloom.verify(path, statistics=True).files[0]
    assert found.statistics is not None
    wrong = {f"{one.column} {one.statistic}" for one in found.statistics.wrong}
    return {(one.row_group, one.column): one.status for one in found.filters}, wrong


def check_erased(
    before: bytes,
    path: Path,
    lost: dict[int, int],
    report: KeyChanges,
    verified: tuple[dict[tuple[int, str], str], set[str]],
) -> None:
    """Compare the parts of a file with the old one's.

    before  the old file
    lost    row group -> how many rows it lost
    verified  as `statuses` said of the old file
    """
    old, data = footer_of(before), path.read_bytes()
    new = footer_of(data)
    stay = [g for g, group in enumerate(old.row_groups) if lost.get(g, 0) < group.num_rows or not group.num_rows]
    assert len(new.row_groups) == len(stay)
    (one,) = report.rewritten
    assert (one.path, one.rows, one.deleted) == (str(path), old.num_rows, sum(lost.values()))
    assert (one.bytes_before, one.bytes_after) == (len(before), len(data))
    assert (report.files, report.deleted, report.bytes_written, report.failed) == (1, one.deleted, len(data), [])
    assert new.num_rows == sum(group.num_rows for group in new.row_groups) == one.rows - one.deleted
    assert (new.schema, new.created_by, new.column_orders) == (old.schema, old.created_by, old.column_orders)
    for number, (group, after) in enumerate(zip(stay, new.row_groups, strict=True)):
        was = old.row_groups[group]
        assert after.num_rows == was.num_rows - lost.get(group, 0)
        assert after.sorting_columns == was.sorting_columns
        assert after.ordinal in (None, number)
        assert (after.ordinal is None) == (was.ordinal is None)
        sizes = [chunk.meta_data.total_compressed_size for chunk in after.columns]
        assert after.total_compressed_size in (None, sum(sizes))
        first = [chunk_extent(chunk.meta_data)[0] for chunk in after.columns]
        assert not after.file_offset or after.file_offset == first[0] or group not in lost
        for one, other in zip(was.columns, after.columns, strict=True):
            if group not in lost:
                assert chunk_bytes(before, one.meta_data) == chunk_bytes(data, other.meta_data)
            else:
                assert other.meta_data.type == one.meta_data.type
            for kind in ("offset_index", "column_index"):
                had, has = (getattr(chunk, f"{kind}_offset") is not None for chunk in (one, other))
                assert had == has or any("column index" in note for note in report.notes)
    for column, element in enumerate(new.row_groups[0].columns if new.row_groups else ()):
        was_all = [
            bounds(g.columns[column].meta_data) for g in old.row_groups if values_in(g.columns[column].meta_data)
        ]
        has = [bounds(g.columns[column].meta_data) for g in new.row_groups if values_in(g.columns[column].meta_data)]
        assert len({*was_all}) > 1 or len({*has}) <= 1, f"{element.meta_data.path_in_schema} has bounds in some alone"
        assert not any(has) or any(was_all)
    # Filters and who is said to have added them; a chunk that lost its last value has none.
    rest = pq.ParquetFile(path)
    groups = [rest.read_row_group(group) for group in range(rest.num_row_groups)]
    values = {(g, c) for g, one in enumerate(groups) for c, v in enumerate(one.columns) if v.null_count < len(v)}
    copy = path.with_name("before.parquet")
    copy.write_bytes(before)
    with OpenFile(copy) as was_open, OpenFile(path) as now_open:
        had, has_now = all_ranges(was_open.footer()), all_ranges(now_open.footer())
        for kind in IndexKind:
            ours = [{key for e in read_entries(o.footer(), kind) for key in e.chunks} for o in (was_open, now_open)]
            there = now_open.footer().index_ranges(kind)
            assert ours[1] == {(stay.index(group), c) for group, c in ours[0] if group in stay} & there.keys()
        ours = [{key for e in read_entries(o.footer()) for key in e.chunks} for o in (was_open, now_open)]
    renumbered = {(stay.index(group), column): (group, column) for group, column in had if group in stay}
    renumbered = {key: was for key, was in renumbered.items() if was[0] not in lost or key in values}
    if not any("filter" in note for note in report.notes):
        assert has_now.keys() == renumbered.keys()
        assert ours[1] == {key for key, was in renumbered.items() if was in ours[0]}
    else:
        assert has_now.keys() <= renumbered.keys()
    copy.unlink()
    found, wrong = statuses(path)
    for (number, name), status in found.items():
        assert status == ("right" if stay[number] in lost else verified[0][stay[number], name])
    assert wrong <= verified[1]


def erase(path: Path, column: str, keys: pa.Array, **options: Any) -> KeyChanges:
    """Delete rows in place, and hold the file against the one before and against brute force."""
    before, table, right = path.read_bytes(), read(path), statuses(path)
    groups = pq.ParquetFile(path)
    lost = {}
    for group in range(groups.num_row_groups):
        one = read(groups, group)
        if gone := one.num_rows - without(one, column, keys).num_rows:
            lost[group] = gone
    stat = path.stat()
    report = delete_keys(path, column, keys, in_place=True, sync=False, **options)
    after = read(path)
    assert after.schema.equals(table.schema, check_metadata=False)
    assert rows_of(after) == rows_of(without(table, column, keys))
    if lost:
        check_erased(before, path, lost, report, right)
    else:
        assert (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) == (
            before,
            stat.st_mtime_ns,
            stat.st_ino,
        )
        assert (report.deleted, report.rewritten) == (0, [])
    assert sorted(one.name for one in path.parent.iterdir()) == [path.name], "no other file is left"
    return report

"""Tails put behind a file, and taken off again: for `remove`, and for tables, whose logs name the sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass

from parquet_bloom.chunks.tails import Tail, as_it_was, older_footers, tails_of
from parquet_bloom.edit.add import add_file
from parquet_bloom.edit.build import BuiltElsewhere
from parquet_bloom.edit.finish import check_written
from parquet_bloom.edit.plan import Run
from parquet_bloom.edit.reports import AddedFile
from parquet_bloom.errors import LayoutError, RequestError, parameter
from parquet_bloom.formats.metadata.edits import Moves
from parquet_bloom.formats.metadata.footer import ChunkKey
from parquet_bloom.formats.provenance import all_ranges
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.source import Source
from parquet_bloom.storage.writing.append import cut_off
from parquet_bloom.storage.writing.draft import Transfer
from parquet_bloom.storage.writing.file_lock import opened
from parquet_bloom.storage.writing.target import WriteOptions, check_appendable, new_version


@dataclass(frozen=True, slots=True)
class Peeled:
    """A file without some of its tails.

    source   it, as if it ended before them
    tails    how many were left out
    gone     chunks whose filters went with them
    holds    whether bytes of it must stay where they are: older footers lie among them
    """

    source: Source
    tails: int
    gone: frozenset[ChunkKey]
    holds: bool


def peeled(source: Source, columns: Collection[int], last: bool) -> Peeled:
    """Leave out tails of ours: all whose filters are of these columns alone, or the last one.

    Raises LayoutError where it is the last one that is wanted, and filters were added after it.
    """
    has = all_ranges(source.footer())
    if {column for _, column in has} <= set(columns):
        columns = range(len(source.footer().leaves))
    at, left_out = source, []
    for tail, before in tails_of(source):
        if last:
            _check_last(source, tail, has)
        elif not {column for _, column in tail.changed} <= set(columns):
            break
        at = before
        left_out.append(tail)
        if last:
            break
    gone = frozenset(key for tail in left_out for key in tail.changed if key in has)
    return Peeled(at, len(left_out), gone, bool(older_footers(at)))


def _check_last(source: Source, tail: Tail, has: Collection[ChunkKey]) -> None:
    if not {key for key in tail.changed if key in has} <= tail.chunks:
        reason = (
            "filters were added to it after its last tail; without " + parameter("last") + " all of them are removed"
        )
        raise LayoutError(source.path, reason)


def write_beginning(source: Source, before: Source, target: Location, how: WriteOptions) -> Transfer:
    """Make the target the beginning of a file: where `how.append` says so by cutting off the file itself.

    source  the file; before  the same, as if it ended earlier
    """
    if how.append:
        check_appendable(target)
        cut_off(source, target, before.size)
        return Transfer()
    with new_version(source, target, how, 0) as new:
        if not new.clone(before):
            new.copy_from(0, source, 0, before.size)
        new.at = before.size
        with new.reopen() as again:
            check_written(before, again, Moves())
        new.commit(source.check_unchanged)
    return new.transfer


# --- for tables -----------------------------------------------------------------------------------


def append_tail(
    file: DataFile, run: Run, built: BuiltElsewhere | None = None, columns: Collection[int] | None = None
) -> AddedFile:
    """Put filters and a second footer behind one file, local or on another storage, in its place.

    run      its request has form final; placement "tail" and in_place are implied. With `append` a local file is
             written behind itself, otherwise a clone or a copy takes its place; S3 puts old and new parts together
    returns  bytes_before and bytes_after are the old and the new size; they are equal where nothing was to be added
    Raises as add_filters does for one file. Run.tables with nothing in it refuses no table.
    """
    if "tail" not in run.request.form.placements:
        raise RequestError(parameter("placement", "tail") + f" is not for {run.request.form.name}")
    request = dataclasses.replace(run.request, placement="tail", in_place=True)
    return add_file(file, file, dataclasses.replace(run, request=request), built, columns)


def take_off_tail(file: DataFile, size: int, how: WriteOptions) -> int:
    """Undo `append_tail`: the file ends at byte `size` again, if nothing but tails of ours lies behind that.

    how      `overwrite` is implied; with `append` the file itself becomes shorter, else a clone or copy replaces it
    returns  the size that it had
    Raises LayoutError where no tail of ours begins at that byte; FileError and its kinds.
    """
    with opened(file, to_replace=True) as source:
        before = as_it_was(source, size)
        if before is source:
            return size
        if before is None:
            raise LayoutError(source.path, f"no tail of ours begins at byte {size:,}; nothing was changed")
        write_beginning(source, before, file, dataclasses.replace(how, overwrite=True))
        return source.size

"""The functions people call to change files, or those of a table: add_filters, remove_filters, repair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from parquet_bloom.edit.add_to_source import add_to_source
from parquet_bloom.edit.changeable import (
    changeable,
    check_append,
    check_placement,
    checked_commits,
    refuse_tails,
    refuse_undo,
)
from parquet_bloom.edit.plan import Request
from parquet_bloom.edit.remove import RemoveRequest, remove_from_source
from parquet_bloom.edit.repair import RepairReport, repair_source
from parquet_bloom.edit.reports import AddReport, RemoveReport
from parquet_bloom.format.forms import Rate
from parquet_bloom.options import (
    AddOptions,
    Form,
    PathLike,
    RemoveOptions,
    RepairOptions,
    RequestOptions,
    WriteOptions,
    column_names,
    part,
    refuse_unknown,
)
from parquet_bloom.output.target import Writing
from parquet_bloom.source.names import TableAccess, refuse_named
from parquet_bloom.source.source import CallSource
from parquet_bloom.storage.workers import ProgressCallback


def add_filters(
    source: PathLike | Sequence[PathLike],
    output: PathLike | None = None,
    *,
    columns: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    form: Form | None = None,
    fpp: Rate | Mapping[str, Rate] | None = None,
    progress: ProgressCallback | None = None,
    **options: Unpack[AddOptions],
) -> AddReport:
    """Add Bloom filters to one Parquet file, several, a folder or a glob, local or on another storage; or to a table.

    source      path or paths, or URIs (file:, s3:, gs:, hdfs: and others); or one table:
                "delta:PATH_OR_URI", "iceberg:CATALOG/namespace.table", "ducklake:CATALOG/schema.table"
    output      a new file, or a folder for several; or else in_place=True. Of a table neither: a commit is the change
    columns     one name or pattern, or a list, of a table its own; None: what an Iceberg table's properties
                write.parquet.bloom-filter-* ask for, or else every column that a filter helps, by its bounds and a
                sample of its values (edit.gain)
    exclude     one name or pattern, or a list, of columns that get none
    form        "final", which is the default, "parquet-41", "parquet-41-early", "parquet-41-raw" or "statistics", which
                Draft2015(family=..., strategy=..., properties=...) says in full
    fpp         false positive rate, 0.01 unless given (statistics: 0.05); "auto": the size at which a filter's own
                bytes and the row groups that its errors make a reader read are least; or a mapping column -> rate, "*"
                for others
    progress    is called with a Progress for every file and every filter
    options     see AddOptions: placement, ndv, max_bytes, threads, page_index, page_bounds, engine, replace; in_place,
                overwrite, force, sync, read_back, append, dry_run; filesystem, raw_files; of tables commit,
                files_per_commit, catalog_properties, allow_roots

    Raises RequestError and its kinds for a wrong request, TypeError for an option that there is not; UnknownColumnError
    before any file is changed, where the first file lacks a column that was named. For one file, FileError and its
    kinds; for several, those come in the report's `failed`. For a table also TableFormatError where it allows no new
    version of its files, and ConflictError where other commits were first again and again; every version then reads as
    it did.
    """
    refuse_unknown("add_filters", options, AddOptions)
    refuse_named(source, "call its own add_filters(...)")
    asked = part(RequestOptions, options)
    written = Writing.of(part(WriteOptions, options))
    about = _source_to_change(source, options, written)
    commits = checked_commits("add", about, output, options, written)
    if commits is not None:
        check_append(commits)
        check_placement(options.get("placement"), commits)
        asked["append"] = False  # not of each file: only of those that keep their path
    request = Request.checked(columns=columns, exclude=exclude, form=form, fpp=fpp, **asked)
    return add_to_source(changeable(about, output, written, commits), request, progress)


def remove_filters(
    source: PathLike | Sequence[PathLike],
    output: PathLike | None = None,
    *,
    columns: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    progress: ProgressCallback | None = None,
    **options: Unpack[RemoveOptions],
) -> RemoveReport:
    """Remove the filters that `add_filters` added, or those of some columns, from Parquet files, or from a table's.

    A file that got its filters from `add_filters` and loses all of them is byte for byte the file
    it was; but footers of tails stay where filters came to the start of chunks later. Page indexes that it added go,
    too, where no column is named or left out. Filters of other programs stay, and the report counts them (`others`),
    unless their columns are named, or with `all_writers`; they are cut out where no byte that must stay is in the way.
    In a table no file is cut that a version names: a commit has the sizes, or files, without filters.
    Arguments and errors are those of `add_filters`, but for

    columns     one name or pattern, or a list: all of their filters go, by any writer
    options     see RemoveOptions: last, which takes off only the last tail; all_writers; in_place, overwrite, force,
                sync, read_back, append, dry_run; filesystem, raw_files; of tables commit, files_per_commit,
                catalog_properties, allow_roots
    """
    refuse_unknown("remove_filters", options, RemoveOptions)
    refuse_named(source, "call its own remove_filters(...)")
    written = Writing.of(part(WriteOptions, options))
    about = _source_to_change(source, options, written)
    commits = checked_commits("remove", about, output, options, written)
    if about.table_name is not None:
        refuse_tails(about.table_name, options)
    request = RemoveRequest(
        columns=column_names(columns, "columns"),
        exclude=column_names(exclude, "exclude"),
        last=options.get("last", False),
        all_writers=options.get("all_writers", False),
        indexes=columns is None and exclude is None and not options.get("last", False),
        how=written,
    )
    return remove_from_source(changeable(about, output, written, commits), request, progress)


def repair(
    source: PathLike | Sequence[PathLike],
    output: PathLike | None = None,
    *,
    undo: bool = False,
    progress: ProgressCallback | None = None,
    **options: Unpack[RepairOptions],
) -> RepairReport:
    """Write wrong statistics right: a footer behind the old one, which stays; no column is written again.

    Each column that has statistics is decoded, and min, max, counts and page indexes are compared with its values, as
    `verify` with statistics=True does. Of chunks with a wrong one all are written right; floats of a chunk with a NaN
    get no min and max; page indexes that are wrong are named no more. A file without a wrong statistic stays as it is.
    The statistics of a repaired file are believed here, whatever program wrote it. `remove_filters` keeps them.

    Of a table its files get new versions, and the commit that names these states their true statistics too, or none
    where its form cannot say them; where the log alone is wrong a commit changes that. Older versions keep what they
    state.

    source      path or paths, URIs, or one table, as add_filters has them
    output      a new file, or a folder for several; or else in_place=True. Of a table neither
    undo        take that footer off again; the file is byte for byte what it was. With filters that were added since it
                is a LayoutError: remove_filters first. Not of a table, whose older version has the old statistics
    progress    is called with a Progress for every file and every column chunk
    options     see RepairOptions: in_place, overwrite, force, sync, read_back, append, dry_run; filesystem, raw_files;
                of tables commit, files_per_commit, catalog_properties, allow_roots

    Raises RequestError; FileError and its kinds for one file; for several, those come in the report's `failed`.
    LayoutError where num_values of a chunk is wrong, which no footer mends. For a table as add_filters.
    """
    refuse_unknown("repair", options, RepairOptions)
    refuse_named(source, "call its own repair(...)")
    written = Writing.of(part(WriteOptions, options))
    about = _source_to_change(source, options, written)
    commits = checked_commits("repair", about, output, options, written)
    if commits is not None:
        check_append(commits)
    if undo and about.table_name is not None:
        refuse_undo(about.table_name)
    return repair_source(changeable(about, output, written, commits), undo, written, progress)


def _source_to_change(
    source: PathLike | Sequence[PathLike], options: AddOptions | RemoveOptions | RepairOptions, written: Writing
) -> CallSource:
    access = TableAccess.from_options(options, written.force)
    return CallSource(source, options.get("filesystem"), options.get("raw_files", False), access)

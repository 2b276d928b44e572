"""The functions people call to change files, or those of a table: add_filters, remove_filters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from parquet_bloom.arguments import column_names
from parquet_bloom.edit.add import add_as
from parquet_bloom.edit.plan import Request
from parquet_bloom.edit.remove import RemoveOptions, remove_as
from parquet_bloom.edit.reports import AddReport, RemoveReport
from parquet_bloom.edit.table_add import add_on_table
from parquet_bloom.edit.table_commit import (
    check_append,
    check_placement,
    commit_options,
    latest,
    refuse_commits,
    refuse_outputs,
    refuse_tails,
)
from parquet_bloom.edit.table_remove import remove_on_table
from parquet_bloom.format.forms.form import Rate
from parquet_bloom.output.target import WriteOptions, outputs_of
from parquet_bloom.source.names import named_table
from parquet_bloom.source.roots import TableAccess
from parquet_bloom.source.snapshot import Way
from parquet_bloom.storage.open_file import PathLike
from parquet_bloom.storage.progress import ProgressCallback
from parquet_bloom.storage.table_folders import Tables


def add_filters(
    source: PathLike | Sequence[PathLike],
    output: PathLike | None = None,
    *,
    columns: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    spec: str = "final",
    placement: str | None = None,
    hash_family: str | None = None,
    strategy: str | None = None,
    fpp: Rate | Mapping[str, Rate] | None = None,
    ndv: int | None = None,
    conf: Mapping[str, str] | None = None,
    max_bytes: int | None = None,
    in_place: bool = False,
    overwrite: bool = False,
    replace: bool = False,
    sync: bool = True,
    read_back: bool = False,
    append: bool = False,
    force: bool = False,
    raw_files: bool = False,
    threads: int | None = None,
    engine: str | None = None,
    filesystem: Any = None,
    commit: Way | None = None,
    files_per_commit: int | None = None,
    catalog_properties: Mapping[str, str] | None = None,
    allow_roots: PathLike | Sequence[PathLike] = (),
    dry_run: bool = False,
    progress: ProgressCallback | None = None,
) -> AddReport:
    """Add Bloom filters to one Parquet file, several, a folder or a glob, local or on another storage; or to a table.

    source      path or paths, or URIs (file:, s3:, gs:, hdfs: and others); or one table:
                "delta:PATH_OR_URI", "iceberg:CATALOG/namespace.table", "ducklake:CATALOG/schema.table"
    output      a new file, or a folder for several; or else in_place=True. Of a table neither: a commit is the change
    columns     one name or pattern, or a list, of a table its own; None: what an Iceberg table's properties
                write.parquet.bloom-filter-* ask for, or else every column that a filter helps, by its bounds and a
                sample of its values (edit.choose)
    spec        "final", "parquet-41", "parquet-41-early", "parquet-41-raw" or "statistics"
    placement   "footer" (default of final), "chunk-start" (default of 2018's) or, of final, "tail": with a second
                footer behind the old one, so that the old file is the beginning of the new one; none for statistics
    hash_family, strategy  of statistics: "orc" (default), "guava" or "hive"; "MURMUR128_32", or for guava
                "MURMUR128_64" (its default)
    fpp         false positive rate, 0.01 unless given (statistics: 0.05); "auto": the size at which a filter's own
                bytes and the row groups that its errors make a reader read are least; or a mapping column -> rate, "*"
                for others
    ndv         first guess of distinct values per row group; the size comes from the data anyway. Of
                statistics it is the size; without it the distinct values are counted
    conf        of statistics: the draft's Hadoop properties, see format.properties
    max_bytes   the most a filter's bitset may take
    replace     old filters of the chosen columns go and are built again; otherwise they stay
    sync        wait for the disk before the new file takes its place
    read_back   and then read all of it from the disk, and compare, before it does; local disks only
    append      with placement "tail" and in_place, on a local disk: write behind the file itself, which no clone or
                copy replaces then. A journal beside it lets a later run undo what a crash cut short. Of a table:
                with commit "same-path"
    force       also inside a table's folder, a file with hard links, a read-only target
    raw_files   with output: also files of an Iceberg, Delta or Hudi table, dead ones too
    threads     that decode and hash at a time; the processors there are, unless given
    engine      that will read the files, NAME or NAME@VERSION, as "duckdb" or "clickhouse@26.3" (see `engines`): the
                report says which of the filters it does not use. A column over whose right filters that version
                loses rows or crashes is left out, with the reason in `skipped`; one that `columns` names gets its
                filter, and `warnings` of the report say so
    filesystem  of pyarrow or fsspec; plain paths, output's too, are then on it
    commit      of a table: "new-path" (a copy with filters takes a file's place) or "same-path" (filters behind the
                file itself, whose new size is committed); None: the way that keeps every promise of the table,
                for each file
    files_per_commit    of a table: a commit after so many files, each of them whole; None: one for all
    catalog_properties  of Iceberg's or DuckLake's catalog, beside those of its own configuration
    progress    is called with a Progress for every file and every filter

    Raises RequestError and its kinds for a wrong request; UnknownColumnError before any file is changed, where
    the first file lacks a column that was named. For one file, FileError and its kinds; for several, those
    come in the report's `failed`. For a table also TableFormatError where it allows no new version of its files, and
    ConflictError where other commits were first again and again; every version then reads as it did.
    """
    arguments: dict[str, Any] = {
        "columns": columns,
        "exclude": exclude,
        "spec": spec,
        "placement": placement,
        "hash_family": hash_family,
        "strategy": strategy,
        "fpp": fpp,
        "ndv": ndv,
        "conf": conf,
        "max_bytes": max_bytes,
        "threads": threads,
        "replace": replace,
        "sync": sync,
        "force": force,
        "dry_run": dry_run,
        "read_back": read_back,
        "engine": engine,
    }
    name, access = named_table(source), TableAccess.of(catalog_properties, allow_roots, force)
    if name is not None:
        how = commit_options("add", commit, files_per_commit, dry_run)
        refuse_outputs(name, output, in_place, overwrite, raw_files)
        check_append(append, commit)
        check_placement(placement, commit)
        how = dataclasses.replace(how, append=append)
        return add_on_table(latest(name, access, filesystem), arguments, how, progress)
    refuse_commits(commit, files_per_commit, access)
    request = Request.checked(**arguments, in_place=in_place, overwrite=overwrite, append=append)
    return add_as(request, source, output, raw_files, filesystem, progress)


def remove_filters(
    source: PathLike | Sequence[PathLike],
    output: PathLike | None = None,
    *,
    columns: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    in_place: bool = False,
    overwrite: bool = False,
    sync: bool = True,
    read_back: bool = False,
    last: bool = False,
    append: bool = False,
    force: bool = False,
    raw_files: bool = False,
    filesystem: Any = None,
    commit: Way | None = None,
    files_per_commit: int | None = None,
    catalog_properties: Mapping[str, str] | None = None,
    allow_roots: PathLike | Sequence[PathLike] = (),
    dry_run: bool = False,
    progress: ProgressCallback | None = None,
) -> RemoveReport:
    """Remove the filters of all columns, or of some, from one Parquet file or several, or from a table's.

    A file that got its filters from `add_filters` and loses all of them is byte for byte the file
    it was. Filters of other programs are cut out too where no byte that must stay is in the way. In a
    table no file is cut that a version names: a commit has the sizes, or files, without filters.
    Arguments and errors are those of `add_filters`, but for

    last        take off only the last tail (placement "tail"): the file is as it was before that `add`
    append      with in_place, of files whose filters all lie in tails: make the file itself shorter, at once; otherwise
                a shorter clone or copy takes its place
    """
    write = WriteOptions(overwrite or in_place, sync, force, read_back=read_back, append=append)
    name, access = named_table(source), TableAccess.of(catalog_properties, allow_roots, force)
    options = RemoveOptions(
        columns=column_names(columns, "columns"),
        exclude=column_names(exclude, "exclude"),
        last=last,
        in_place=in_place or name is not None,
        dry_run=dry_run,
        how=write,
        tables=Tables(),
    )
    if name is not None:
        how = commit_options("remove", commit, files_per_commit, dry_run)
        refuse_outputs(name, output, in_place, overwrite, raw_files)
        refuse_tails(name, last, append)
        return remove_on_table(latest(name, access, filesystem), options, how, progress)
    refuse_commits(commit, files_per_commit, access)
    outputs, tables, notes = outputs_of(source, output, in_place, overwrite, force, raw_files, filesystem)
    return remove_as(dataclasses.replace(options, tables=tables), outputs, notes, progress)

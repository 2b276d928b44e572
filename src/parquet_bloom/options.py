"""The keywords of functions that read, change or write files: each is declared here, once, with its type and meaning.

    add_filters(..., **options: Unpack[AddOptions])         remove_filters(..., **options: Unpack[RemoveOptions])
    spark.add_filters(..., **options: Unpack[SparkAddOptions])
    FilterWriter, write_table(..., **options: Unpack[edit.write.NewFileOptions])
    check, read_table, ...(..., **options: Unpack[search.options.SearchOptions])
    inspect, verify, advise, ...(..., **options: Unpack[ReadOptions])

A type checker finds a keyword that is misspelt; at run time `refuse_unknown` does. Each of these types is
made of pieces that share no key. Pieces become values, which have the defaults and the checks:

    RequestOptions -> edit.plan.Request        WriteOptions  -> output.target.Writing
    CommitOptions  -> edit.table_commit.Committing           ReadOptions -> source.names.TableAccess

Limits are of the whole process (`set_limits`), not of one call.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, TypeVar, cast

from parquet_bloom.errors import RequestError, parameter

PathLike = str | os.PathLike[str]
Placement = Literal["footer", "chunk-start", "tail"]  # of filters in their file
CommitMode = Literal["same-path", "new-path"]  # in which a table's file gets a new version

# --- the form of filters --------------------------------------------------------------------------

Family = Literal["orc", "guava", "hive"]
Strategy = Literal["MURMUR128_32", "MURMUR128_64"]
FormName = Literal["final", "parquet-41", "parquet-41-early", "parquet-41-raw", "statistics"]
DEFAULT_FORM: FormName = "final"


@dataclass(frozen=True, slots=True)
class Draft2015:
    """The form of the draft of 2015, "statistics", in the style of one of its families.

    family      "orc", "guava" or "hive"
    strategy    "MURMUR128_32", or for guava "MURMUR128_64"; None: the family's own, which is guava's second
    properties  the draft's Hadoop properties, name -> value, which may give fpp and ndv: see format.draft_2015

    What makes no sense is a RequestError of the function that gets the value.
    """

    family: Family = "orc"
    strategy: Strategy | None = None
    properties: Mapping[str, str] | None = None


Form = FormName | Draft2015


# --- pieces ---------------------------------------------------------------------------------------


class BuildOptions(TypedDict, total=False):
    """How filters are built, and where they lie.

    spec        a short name of `form`, for the names of forms
    placement   "footer" (default of final), "chunk-start" (default of 2018's) or, of final, "tail": with a second
                footer behind the old one, so that the old file is the beginning of the new one; none for statistics
    ndv         first guess of distinct values per row group; the size comes from the data anyway. Of
                statistics it is the size; without it the distinct values are counted
    max_bytes   the most a filter's bitset may take
    threads     that decode and hash at a time; the processors there are, unless given. On Spark of one task, and 1
                unless given: as many as spark.task.cpus
    """

    spec: FormName | None
    placement: Placement | None
    ndv: int | None
    max_bytes: int | None
    threads: int | None


class IndexOptions(TypedDict, total=False):
    """Page indexes beside filters.

    page_index  also offset indexes, for every column chunk of a file or for none; and column indexes of columns that
                are decoded for filters, where the bounds of their pages exclude half of them or more. Those that are
                there stay
    page_bounds  one name or pattern, or a list, of columns that get a column index in any case; with page_index
    """

    page_index: bool
    page_bounds: str | Sequence[str] | None


class EngineOption(TypedDict, total=False):
    """The engine that will read the files.

    engine      that will read the files, NAME or NAME@VERSION, as "duckdb" or "clickhouse@26.3" (see `engines`): the
                report says which of the filters it does not use. A column over whose right filters that version
                loses rows or crashes is left out, with the reason in `skipped`; one that `columns` names gets its
                filter, and `warnings` of the report say so
    """

    engine: str | None


class ReplaceOption(TypedDict, total=False):
    """The treatment of filters that are there.

    replace     old filters of the chosen columns go and are built again; otherwise they stay
    """

    replace: bool


class SyncOption(TypedDict, total=False):
    """When a new file counts.

    sync        wait for the disk before the new file takes its place, as it does unless told otherwise
    """

    sync: bool


class PlaceOptions(TypedDict, total=False):
    """The place of a file's new version.

    in_place    it takes the place of the old one
    overwrite   it takes the place of an output that exists
    force       also inside a table's folder, a file with hard links, a read-only target; on Spark also in place on HDFS
    """

    in_place: bool
    overwrite: bool
    force: bool


class DryRunOption(TypedDict, total=False):
    """Without a change.

    dry_run     say what would be done; write nothing
    """

    dry_run: bool


class LocalOptions(DryRunOption, total=False):
    """Options of one process, which an `add` on Spark does not have.

    read_back   read all of a new file from the disk, and compare, before it takes its place; local disks only
    append      with in_place, on a local disk: write behind the file itself, which no clone or copy replaces then. Of
                `add_filters` with placement "tail": a journal beside the file lets a later run undo what a crash cut
                short; of a table, with commit "same-path". Of `remove_filters`, of files whose filters all lie in
                tails: make the file itself shorter, at once; otherwise a shorter clone or copy takes its place
    """

    read_back: bool
    append: bool


class WriteOptions(SyncOption, PlaceOptions, LocalOptions, total=False):
    """How new versions of files are written."""


class TableOptions(TypedDict, total=False):
    """Options of a table beside its name.

    catalog_properties  of the catalog of an iceberg: or ducklake: table, beside those of its own configuration:
                name -> value, as pyiceberg's configuration has them
    allow_roots  of a table: paths and URIs of folders, beside its own, below which its log may name files
    """

    catalog_properties: Mapping[str, str] | None
    allow_roots: PathLike | Sequence[PathLike]


class ReadOptions(TableOptions, total=False):
    """Options for reading a table or files.

    raw_files   also files of an Iceberg, Delta or Hudi table, whatever its log says of them, dead ones too; columns
                have the names that the files give them. Where files are changed, with output alone
    """

    raw_files: bool


class CommitOptions(ReadOptions, total=False):
    """How a table's files get new versions.

    commit      of a table: "new-path" (a copy with filters takes a file's place) or "same-path" (filters behind the
                file itself, whose new size is committed); None: the way that keeps every promise of the table,
                for each file
    files_per_commit  of a table: a commit after so many files, each of them whole; None: one for all
    """

    commit: CommitMode | None
    files_per_commit: int | None


class FilesystemOption(TypedDict, total=False):
    """The file system of plain paths.

    filesystem  of pyarrow or fsspec; plain paths, output's too, are then on it
    """

    filesystem: Any


# --- functions ------------------------------------------------------------------------------------


class RequestOptions(BuildOptions, IndexOptions, EngineOption, ReplaceOption, WriteOptions, total=False):
    """Options of filters and of the files that get them, for each file alike."""


class AddOptions(RequestOptions, CommitOptions, FilesystemOption, total=False):
    """Keywords of `add_filters`, beside those that it names; each has a default."""


class RemoveOptions(WriteOptions, CommitOptions, FilesystemOption, total=False):
    """Keywords of `remove_filters`, beside those that it names; each has a default.

    last        take off only the last tail (placement "tail"): the file is as it was before that `add`
    all_writers  also filters that other programs wrote, or whose writer nothing shows; of columns that are named all
                filters go in any case
    """

    last: bool
    all_writers: bool


class RepairOptions(WriteOptions, CommitOptions, FilesystemOption, total=False):
    """Keywords of `repair`, beside those that it names; each has a default."""


class SparkAddOptions(BuildOptions, IndexOptions, ReplaceOption, SyncOption, PlaceOptions, CommitOptions, total=False):
    """Keywords of `spark.add_filters`, beside those that it names; each has a default.

    task_bytes   small files of so many bytes together make a task; 512 MiB unless given
    split_bytes  files from this size on are split: their filters are built by many tasks; 256 MiB unless given. With
                 page_index none is: one task has a file's values for both
    """

    task_bytes: int
    split_bytes: int


class SparkRepairOptions(SyncOption, PlaceOptions, DryRunOption, CommitOptions, total=False):
    """Keywords of `spark.repair`, beside those that it names; each has a default.

    task_bytes   files of so many bytes together make a task; 512 MiB unless given
    """

    task_bytes: int


# --- arguments: names of columns and sources, one or several; and keywords -------------------------

T = TypeVar("T")
_MOVED = {"hash_family": "family", "strategy": "strategy", "conf": "properties"}  # fields of Draft2015 by now


def check_threads(threads: Any) -> None:
    """Raise RequestError for what is no number of threads; None: the caller leaves it to us."""
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        reason = "not positive" if isinstance(threads, int) else "no whole number"
        raise RequestError(f"threads {threads} is {reason}; give 1 or more, or leave it out")


def several(given: Any) -> list[Any]:
    """A list of what a caller named: of one text or path itself, of all else its elements."""
    return [given] if isinstance(given, str | os.PathLike) else list(given)


def column_names(given: str | Iterable[str] | None, name: str) -> list[str] | None:
    """Columns by their names or patterns; None stays None.

    name  the function's parameter, for the message
    Raises RequestError for what is no text.
    """
    if given is None:
        return None
    names = several(given) if isinstance(given, Iterable) else [given]
    for one in names:
        if not isinstance(one, str):
            raise RequestError(parameter(name) + f" takes a name or a list of names, not {one!r}")
    return names


# --- keywords -------------------------------------------------------------------------------------


def refuse_unknown(function: str, options: Mapping[str, object], known: type) -> None:
    """Raise TypeError, as Python does, for a keyword that a function's options have not.

    known  their TypedDict
    Raises RequestError for one that is part of a value by now.
    """
    names = known.__annotations__
    for name, value in options.items():
        if name in names:
            continue
        if name in _MOVED:
            raise RequestError(f"{name} is a part of the form: give form=Draft2015({_MOVED[name]}={value!r})")
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{_near(name, names)}")


def _near(name: str, known: Collection[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name, known, 1)
    return f"; did you mean {found[0]!r}?" if found else ""


def part(kind: type[T], options: Mapping[str, object]) -> T:
    """Those of a function's options that one of the pieces in `options` declares."""
    return cast(T, {name: options[name] for name in kind.__annotations__ if name in options})


# --- limits of the whole process: what a file may claim, and how many requests run at a time -------
#
# A few bytes can claim gigabytes. A file beyond a limit is a LimitError that names it. It may be sound; whoever trusts
# it raises the limit.

RANGE_VALUES = 1000  # of a range of integers or dates, that filters are asked for one by one


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of this process.

    max_list_elements  of one Thrift list in a footer or page index, such as its row groups; parquet-cpp has as many
    max_string_bytes   of one Thrift text or statistic; parquet-cpp has as many
    max_memory         bytes of pages and values that decoding one column takes at a time, in each thread
    concurrency        files on other storages that are read at a time, and requests for each of them; new versions of
                       such files are written 16 at a time, or fewer by this number
    """

    max_list_elements: int = 1_000_000
    max_string_bytes: int = 100_000_000
    max_memory: int = 512 << 20
    concurrency: int = 64


_current = Limits()


def limits() -> Limits:
    """The limits as they are."""
    return _current


def set_limits(
    *,
    max_list_elements: int | None = None,
    max_string_bytes: int | None = None,
    max_memory: int | None = None,
    concurrency: int | None = None,
) -> Limits:
    """Change limits of this process, not of Spark's executors; None leaves one as it is. Returns those before.

    Raises RequestError for what is no positive number.
    """
    values = {
        "max_list_elements": max_list_elements,
        "max_string_bytes": max_string_bytes,
        "max_memory": max_memory,
        "concurrency": concurrency,
    }
    changed = {name: value for name, value in values.items() if value is not None}
    for name, value in changed.items():
        if value < 1:
            raise RequestError(f"{name} {value} is not a positive number")
    global _current
    before, _current = _current, replace(_current, **changed)
    return before

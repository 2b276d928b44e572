"""Folders -> a DataFrame of files, by the executors -> tasks of about the same work.

    level 0   what was named      ->  files, and folders
    level 1   these folders       ->  files, and folders ...      until there are none left

A task lists folders, one level of the tree at a time. No path crosses the driver, but those that were named; it only
asks whether a level has folders. Hidden names (leading "." or "_") are passed over, as Spark does: _SUCCESS,
_metadata, .crc files.
"""

from __future__ import annotations

import contextlib
import functools
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import add, xor
from typing import Any, NamedTuple

import pyarrow as pa

from parquet_bloom.errors import ParquetBloomError, RequestError, StorageError
from parquet_bloom.format.schema import BYTE_ARRAY, INT32, INT64, Leaf
from parquet_bloom.output.folder import SUFFIX, remove_stale
from parquet_bloom.spark.frames import Row, computed, frame_of, kept, mapped, mapped_rows, mark, parallelism, width
from parquet_bloom.spark.storages import Storages
from parquet_bloom.storage.paths import HIVE_NULL, Partitions
from parquet_bloom.storage.remote import Location, arrow_of, storage_error
from parquet_bloom.storage.store import GLOB, is_data
from parquet_bloom.storage.table_folders import SIGNS, Table, Tables, table_in

# --- listing --------------------------------------------------------------------------------------
#
# A listing by tasks, and one of few files by the driver alone.

SCHEMA = pa.schema(
    [("path", pa.string()), ("root", pa.string()), ("size", pa.int64()), ("kind", pa.string()), ("error", pa.string())]
)
_PATTERN = GLOB | {"{"}  # of Hadoop's
_TABLES = 10_000  # of one level, that reach the driver
_FEW, _FEW_FOLDERS = 1000, 100  # files, and folders, that the driver lists itself in less time than a job takes
FILE, FOLDER, FAILED, TABLE = "file", "folder", "failed", "table"


class Entry(NamedTuple):
    """A row of a listing.

    root   the folder that was named, below which it lies; "" for a file that was named itself
    kind   FILE, FOLDER, FAILED (a name or folder that could not be listed, for the reason in `error`) or TABLE (a
           folder that is a table's, whose kind is in `error`)
    """

    path: str
    root: str
    size: int
    kind: str
    error: str | None = None


@dataclass(frozen=True)
class Listing:
    """Files of a listing, and what they are together.

    rows   DataFrame(path, root, size, kind, error), cached, of Entries: FILE or FAILED
    files  how many rows
    size   bytes of them all
    mark   of their paths, by frames.mark
    tables that lie in the folders that were named, or are these
    """

    rows: Any
    files: int
    size: int
    mark: int = 0
    tables: tuple[Table, ...] = ()


def list_files(spark: Any, paths: Sequence[str], where: Storages) -> Listing:
    """List the Parquet files that paths name: files, folders, and globs in their last component."""
    return list_by_size(spark, paths, where, 1 << 62)[0]


def list_by_size(
    spark: Any, paths: Sequence[str], where: Storages, split: int, tidy: bool = False
) -> tuple[Listing, Listing]:
    """As list_files: those of less than `split` bytes, and the others.

    tidy  clean up after killed runs along the way, where this machine can tell that they are dead
    """
    sums: dict[str, Callable[[int, int], int]] = {}  # of one level, and how those of two are joined
    listed_kinds = f"kind IN ('{FILE}', '{FAILED}')"
    for half in (f"{listed_kinds} AND size < {split}", f"{listed_kinds} AND size >= {split}"):
        sums |= {f"count_if({half})": add, f"coalesce(sum(if({half}, size, 0L)), 0L)": add, mark(half): xor}
    # Names travel with the code that lists them: nothing has to be shuffled before the first folder is opened.
    level = spark.range(0, len(paths), 1, min(len(paths), width(spark)))
    names = list(paths)
    found = None
    totals = [0] * len(sums)
    tables: list[Table] = []
    while True:
        work = functools.partial(_list_level, names=names, where=where, tidy=tidy)
        counts = [f"count_if(kind = '{kind}')" for kind in (FOLDER, TABLE)]
        listed, n_folders, n_tables, *these = computed(mapped_rows(level, work, SCHEMA), *counts, *sums)
        if n_tables:
            tables += map(table_of, listed.filter(f"kind = '{TABLE}'").limit(_TABLES).collect())
        some = listed.filter(listed_kinds) if n_folders or n_tables else listed
        found = some if found is None else found.unionAll(some)
        totals = [joined(a, b) for joined, a, b in zip(sums.values(), totals, these, strict=True)]
        if not n_folders:
            break
        level, names = listed.filter(f"kind = '{FOLDER}'").repartition(min(n_folders, width(spark))), []
    if len(paths) > 1:  # they may share files; one file must not be two tasks' work
        found, *totals = computed(found.repartition(width(spark), "path").dropDuplicates(["path"]), *sums)
    files, size, its_mark, *large = totals
    return (
        Listing(found.filter(f"size < {split}") if large[0] else found, files, size, its_mark, tuple(tables)),
        Listing(found.filter(f"size >= {split}"), large[0], large[1], large[2], tuple(tables)),
    )


def list_few(spark: Any, paths: Sequence[str], where: Storages, largest: int, tidy: bool = False) -> Listing | None:
    """List files on the driver, where that is this machine and they are few: no job is needed to find them.

    largest  all are smaller than so many bytes
    Returns a Listing whose rows are a list; None where tasks had better list: other machines, other storages, many
    files or folders.
    """
    if not in_one_process(spark) or any(where.split(path)[0] != "file" for path in paths):
        return None
    found: dict[str, Entry] = {}  # names may share files; one file must not be two tasks' work
    tables: list[Table] = []
    folders = 0
    pending: list[tuple[str, str | None]] = [(path, None) for path in paths]
    while pending:
        name, root = pending.pop()
        folders += 1
        if folders > _FEW_FOLDERS or _crowded(name, where):
            return None
        for entry in _listed_or_failed(name, root, where, tidy):
            if entry.kind == TABLE:
                tables.append(table_of(entry))
            elif entry.kind == FOLDER:
                pending.append((entry.path, entry.root))
            else:
                found.setdefault(entry.path, entry)
            if len(found) > _FEW or entry.size >= largest:
                return None
    rows = [found[path]._asdict() for path in sorted(found)]
    return Listing(rows, len(rows), sum(row["size"] for row in rows), tables=tuple(tables))


def in_one_process(spark: Any) -> bool:
    """Whether the executors are threads of the driver's JVM, on this machine."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return False
    master = str(spark.conf.get("spark.master", ""))
    return master == "local" or master.startswith("local[")


def _crowded(name: str, where: Storages) -> bool:
    """Whether a folder, or that of a pattern, has more entries than are few."""
    path = where.open(name)[1].rstrip("/") or "/"
    is_pattern = set(os.path.basename(path)) & _PATTERN and not os.path.isdir(path)
    return crowded(os.path.dirname(path) if is_pattern else path, _FEW)


def crowded(folder: str, limit: int) -> bool:
    """Whether a local folder has more entries than that; their sizes are not read."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return any(at >= limit for at, _ in enumerate(entries))
    return False


def find_tables(spark: Any, names: Sequence[str], where: Storages, tables: Tables) -> None:
    """Find tables that names are, or lie in, on the driver and before any job. Raises as Tables.join.

    A client of Spark Connect may have no way to the storages, and other disks: there a task looks.
    """
    if not type(spark).__module__.startswith("pyspark.sql.connect"):
        tables_around(names, where, tables)
        return

    def tables_of(rows: Iterator[Row]) -> Iterator[Row]:
        for _ in rows:
            seen = Tables()
            tables_around(names, where, seen)
            for table in seen.found.values():
                yield Entry(table.folder, table.named, 0, table.relation, table.kind)._asdict()

    rows = mapped_rows(spark.range(0, 1, 1, 1), tables_of, SCHEMA).collect()
    tables.join(Table(row.error, row.path, row.root, row.kind) for row in rows)


def tables_around(names: Sequence[str], where: Storages, tables: Tables) -> None:
    """Find tables that names are, or lie in; the listing reports errors."""
    named = []
    for name in (name.rstrip("/") or "/" for name in names):
        with contextlib.suppress(RequestError):
            at = folder = where.data_file(name)
            if set(posixpath.basename(name)) & _PATTERN:
                folder = where.data_file(posixpath.dirname(name))
            real = [Location(os.path.realpath(folder.path))] if folder.is_local else []
            named.append((at, [folder, *real]))
    tables.check_paths(named)


def not_listed(row: Any) -> StorageError:
    """The error of a row of kind "failed"."""
    return StorageError(row["path"], row["error"].removeprefix(f"{row['path']}: "))


def refuse_unlisted(found: Sequence[Listing], names: Sequence[str]) -> None:
    """Raise StorageError where no name gives a file; where some do, the others are rows with errors."""
    if not 0 < sum(one.files for one in found) <= len(names):  # a name without a file is one entry
        return
    rows = [one.rows if isinstance(one.rows, list) else one.rows.collect() for one in found if one.files]
    entries = [row for some in rows for row in some]
    if all(row["kind"] == FAILED for row in entries):
        raise not_listed(entries[0])


def table_of(entry: Any) -> Table:
    """The table of an entry of kind "table"."""
    return Table(entry.error, entry.path, entry.root, "is" if entry.path == entry.root else "holds")


def _list_level(rows: Iterator[Row], names: Sequence[str], where: Storages, tidy: bool) -> Iterator[Row]:
    """One level of the tree: of names by their numbers, of folders by their paths."""
    for row in rows:
        name, root = (names[row["id"]], None) if names else (row["path"], row["root"])
        for entry in _listed_or_failed(name, root, where, tidy):
            yield entry._asdict()


def _listed_or_failed(name: str, root: str | None, where: Storages, tidy: bool) -> Iterable[Entry]:
    try:
        return list(entries_of(name, root, where, tidy))
    except ParquetBloomError as error:
        return [Entry(name, root or "", 0, FAILED, str(error))]


def entries_of(name: str, root: str | None, where: Storages, tidy: bool = False) -> Iterator[Entry]:
    """The entries of a folder; without a root, the meaning of a name. Raises StorageError."""
    return list_named(name, where, tidy) if root is None else list_folder(name, root, where, tidy)


def list_named(name: str, where: Storages, tidy: bool) -> Iterator[Entry]:
    """One name that people gave: a file counts whatever its name, a folder is the root of what is in it."""
    bare = name.rstrip("/") or "/"
    last = posixpath.basename(bare)
    size = _size_of(bare, where)
    if size is not None and size >= 0:
        yield Entry(bare, "", size, FILE)
    elif size is not None:
        yield from list_folder(bare, bare, where, tidy)
    elif set(last) & _PATTERN:
        yield from _list_glob(bare, where)
    else:
        raise StorageError(name, "no such file or folder")


def _list_glob(name: str, where: Storages) -> Iterator[Entry]:
    from fnmatch import fnmatchcase

    folder, last = posixpath.split(name)
    if set(folder) & _PATTERN:
        raise StorageError(name, "patterns are understood in the last component only; name the folder")
    patterns = _alternatives(last.replace("[^", "[!"))
    some = False
    for path, size in _entries(folder, where):
        base = posixpath.basename(path)
        is_hidden = base.startswith((".", "_"))
        if any(fnmatchcase(base, one) and (one[0] in "._" or not is_hidden) for one in patterns if one):
            some = True
            yield Entry(path, folder, max(size, 0), FILE if size >= 0 else FOLDER)
    if not some:
        raise StorageError(name, "no file fits this pattern")


def _alternatives(pattern: str) -> list[str]:
    """The patterns that one with braces stands for: {a,b}*.parquet is a*.parquet and b*.parquet."""
    found = re.search(r"\{([^{}]*)\}", pattern)
    if found is None:
        return [pattern]
    before, after = pattern[: found.start()], pattern[found.end() :]
    return [one for part in found[1].split(",") for one in _alternatives(before + part + after)]


def list_folder(folder: str, root: str, where: Storages, tidy: bool) -> Iterator[Entry]:
    """List a folder: rows of its files, of the folders below, and of a table that it is."""
    entries = list(_entries(folder, where))
    if tidy:
        restored = _tidy(folder, {posixpath.basename(path) for path, _ in entries}, where)
        if restored:
            entries = list(_entries(folder, where))
    below = [name for path, size in entries if size < 0 and (name := posixpath.basename(path)) in SIGNS]
    if below and (kind := table_in(where.data_file(folder), below)) is not None:
        yield Entry(folder, root, 0, TABLE, kind)
    for path, size in entries:
        name = posixpath.basename(path)
        if size < 0:
            if not name.startswith((".", "_")):
                yield Entry(path, root, 0, FOLDER)
        elif is_data(name):
            yield Entry(path, root, size, FILE)


def _size_of(name: str, where: Storages) -> int | None:
    """Bytes of a file, -1 for a folder, None for nothing. Raises StorageError."""
    store, path = where.open(name)
    try:
        return store.size(path)
    except Exception as error:
        raise storage_error(name, error) from error


def _entries(folder: str, where: Storages) -> Iterator[tuple[str, int]]:
    """(name, bytes) of what lies in a folder, -1 for folders; as people see it. Raises StorageError."""
    store, path = where.open(folder)
    base = folder.rstrip("/")
    try:
        for name, size in store.entries(path):
            yield f"{base}/{name}", size
    except Exception as error:
        raise storage_error(folder, error) from error


# --- after killed runs ----------------------------------------------------------------------------
#
# What a listing tidies up along the way, in place.


def _tidy(folder: str, names: set[str], where: Storages) -> bool:
    """Remove temporary files of dead processes; put back a file that was set aside and is missing.

    Returns whether a file was put back.
    """
    store, path = where.open(folder)
    if store.is_local:
        if any(name.startswith(".") and name.endswith(SUFFIX) for name in names):
            remove_stale(path)
        return False
    restored = False
    for name in sorted(names):
        if name.startswith(".") and name.endswith(f"{SUFFIX}.old"):
            # `.NAME.HEX.parquet-bloom.old`: NAME, between the two renames of a storage that replaces nothing
            original = name[1:].removesuffix(f"{SUFFIX}.old").rpartition(".")[0]
            if original and original not in names:
                try:
                    arrow_of(store.filesystem).move(f"{path}/{name}", f"{path}/{original}")
                except Exception as error:
                    raise storage_error(f"{folder}/{name}", error) from error
                restored = True
    return restored


# --- packing --------------------------------------------------------------------------------------
#
# Files -> tasks of about the same work: a bound for the bytes of a task, and one for its files.
#
# Up to 100,000 are sorted by size and dealt out. Of longer listings no task looks at all:
#
#    listing partition 0   [f f f][f f][f         bins, filled one after the other as files stream by
#    listing partition 1   [f f f][f              the last bin of each partition may be nearly empty:
#    tasks                 0 .. 2, and 3 = both of these together
#
# What the driver sees is a row of numbers for each partition of the listing, whatever the count of files.

TASK_BYTES = 4 << 30  # of files whose columns are decoded
TASK_FILES = 1000
_AT_ONCE = 100_000  # files that one task may share out
_OPENING = 8 << 20  # bytes that take as long as opening and committing a file: 12 ms, and 1.4 ms for a MiB
_WORTH_A_TASK = 256 << 20  # starting one takes as long as 40 MiB
_LISTED_FILES = 10_000  # that a partition of a listing is worth having for
_BIN, _LISTED = "_bin", "_listed"
Full = tuple[int, int, int, int]


def packed(listed: Listing, spark: Any, task_bytes: int = TASK_BYTES, task_files: int = TASK_FILES) -> Any:
    """Repartition a listing so that a partition is the files of one task; the same columns.

    task_bytes  a task gets files of about so many bytes at most, or one file alone
    task_files  and about so many files, those of no size too

    Small work is spread over the processors. AQE leaves the tasks as they are.
    """
    if task_bytes < 1 or task_files < 1:
        raise RequestError("a task needs room for at least one byte and one file")
    if listed.files <= _AT_ONCE:
        return _shared_out(listed.rows, _task_count(listed, parallelism(spark), task_bytes, task_files))
    return _in_bins(listed, spark, task_bytes, task_files)


def dealt(few: Listing, processors: int, task_bytes: int) -> list[list[Row]]:
    """The same of rows that the driver has: of each task its own."""
    n = _task_count(few, processors, task_bytes, TASK_FILES)
    tasks: list[list[Row]] = [[] for _ in range(n)]
    for i, row in enumerate(sorted(few.rows, key=lambda row: (-row["size"], row["path"]))):
        at = i % (2 * n)
        tasks[min(at, 2 * n - 1 - at)].append(row)
    return tasks


def by_name(listed: Listing, spark: Any, task_files: int = 2 * TASK_FILES) -> Any:
    """Repartition a listing for work that takes about the same time for each file; the same columns.

    A file's task depends on its name alone. Should Spark lose its copy of a listing with an executor, and
    list again while sizes change, no file is left out: what prunes files must not.
    """
    n = _task_count(replace(listed, size=0), parallelism(spark), 1, task_files)
    return listed.rows.repartition(n, "path")


def _task_count(listed: Listing, processors: int, task_bytes: int, task_files: int) -> int:
    """Tasks within both bounds; some for each processor, if there is work for them."""
    worthwhile = min(4 * processors, (listed.size + listed.files * _OPENING) // _WORTH_A_TASK)
    n = max(-(-listed.size // task_bytes), -(-listed.files // task_files), worthwhile, 1)
    return max(1, min(-(-n // processors) * processors, listed.files))


def _shared_out(frame: Any, n_tasks: int) -> Any:
    """Files by their sizes, dealt to tasks 0 .. n-1, n-1 .. 0, 0 .. and so on.

    Tasks differ by at most one file, and by at most the bytes of the largest. All of it is a stage of
    the job that follows, in Spark itself.
    """
    ordered = frame.coalesce(1).sortWithinPartitions(["size", "path"], ascending=[False, True])
    at = f"monotonically_increasing_id() % {2 * n_tasks}"  # 0, 1, ... in the one partition
    dealt = ordered.selectExpr("*", f"cast(least({at}, {2 * n_tasks - 1} - {at}) as int) _task")
    return dealt.repartitionById(n_tasks, "_task").drop("_task")


def _in_bins(listed: Listing, spark: Any, task_bytes: int, task_files: int) -> Any:
    """Its rows with their tasks stay in Spark's cache."""
    from pyspark.sql import functions as sf

    frame = gathered(listed)
    names = frame.columns
    tasks = width(spark)
    task_bytes = max(1, min(task_bytes, -(-listed.size // tasks)))
    task_files = max(1, min(task_files, -(-listed.files // tasks)))

    binned = frame.withColumn(_LISTED, sf.spark_partition_id())
    kind = binned.withColumn(_BIN, sf.lit(0).cast("bigint")).schema
    binned = kept(mapped(binned, _binning(task_bytes, task_files), kind))
    # Of each partition: how many bins, and what the last one holds.
    last = sf.struct(_BIN, "bytes", "files")
    rows = (
        binned.groupBy(_LISTED, _BIN)
        .agg(sf.sum("size").alias("bytes"), sf.count(sf.lit(1)).alias("files"))
        .groupBy(_LISTED)
        .agg(sf.max(last).alias("last"))
        .orderBy(_LISTED)
        .collect()
    )
    known = [(int(r[0]), int(r[1][0]), int(r[1][1] or 0), int(r[1][2])) for r in rows]
    starts, n = numbered(known, task_bytes, task_files)
    if not starts:
        return frame
    plan = frame_of(spark, starts, f"{_LISTED} int, _full bigint, _start bigint, _rest bigint")
    task = sf.when(sf.col(_BIN) < sf.col("_full"), sf.col("_start") + sf.col(_BIN)).otherwise(sf.col("_rest"))
    placed = binned.join(sf.broadcast(plan), _LISTED, "left").withColumn("_task", task.cast("int"))
    return placed.repartitionById(n, "_task").select(*names)


def gathered(listed: Listing) -> Any:
    """Its rows without many partitions of next to nothing, each of which would start a Python process."""
    return listed.rows.coalesce(max(1, listed.files // _LISTED_FILES))


def numbered(parts: Iterable[Full], task_bytes: int, task_files: int) -> tuple[list[Full], int]:
    """Number the tasks without gaps.

    parts    (partition, its full bins, bytes and files of its last bin)
    returns  (partition, its full bins, task of its first bin, task of its last bin), and how many tasks
    """
    rest: list[tuple[int, int]] = []  # bytes and files of tasks made of last bins
    placed = []
    start = 0
    for part, full, size, files in parts:
        # The open task with the least in it is the last one or none: as with files, none is looked at twice.
        if not rest or rest[-1][0] + size > task_bytes or rest[-1][1] + files > task_files:
            rest.append((0, 0))
        rest[-1] = (rest[-1][0] + size, rest[-1][1] + files)
        placed.append((part, full, start, len(rest) - 1))
        start += full
    return [(part, full, first, start + last) for part, full, first, last in placed], start + len(rest)


def _binning(task_bytes: int, task_files: int) -> Any:
    """Give every file of a partition its bin, in the order in which they come (next-fit)."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        at, held, files = 0, 0, 0
        for batch in batches:
            bins = []
            for size in batch.column(batch.schema.get_field_index("size")).to_pylist():
                size = max(size or 0, 0)
                if files and (held + size > task_bytes or files == task_files):
                    at, held, files = at + 1, 0, 0
                held += size
                files += 1
                bins.append(at)
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, pa.array(bins, pa.int64())], names=[*batch.schema.names, _BIN]
            )

    return run


# --- the keys and values of folders' names, as Spark has them --------------------------------------
#
# /data/year=2026/city=a%20b/x.parquet, below /data   -> (year, 2026), (city, "a b")
# a value -> its shape, of which Spark infers the type of its key   -> a column with index -1, -2, ...


def folders_of(below: str) -> Partitions:
    """The key=value folders of a path below its root, as Spark reads them: outermost first.

    They are looked at from the file upwards, until one is none after some were; `%3D` is one
    character for each code (Source: PartitioningUtils.parsePartition, unescapePathName).
    """
    pairs: list[tuple[str, str | None]] = []
    for folder in reversed(below.strip("/").split("/")[:-1]):
        key, sign, value = folder.partition("=")
        if key and sign:
            pairs.append((_unescaped(key), None if value == HIVE_NULL else _unescaped(value)))
        elif pairs:
            break
    return tuple(reversed(pairs))


def _unescaped(text: str) -> str:
    return re.sub("%([0-9A-Fa-f]{2})", lambda code: chr(int(code[1], 16)), text)


_DOUBLE = re.compile(
    r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?|0[xX][0-9a-fA-F.]+[pP].*)"
)


def shape_of(value: str | None) -> str:
    """Values of one shape have one type for Spark, and few shapes there are."""
    if value is None:
        return "null"
    text = value.strip()
    if re.fullmatch("[+-]?[0-9]+", value):
        bits = next((bits for bits in (32, 64) if -(1 << bits - 1) <= int(value) < 1 << bits - 1), 0)
        return f"int{bits}" if bits else f"{len(value.lstrip('+-0'))} digits"
    if _DOUBLE.fullmatch(text):
        return "double"
    if re.match("[0-9]+[-:]", text):  # dates and times, and what only looks like one
        import datetime as dt

        try:
            dt.datetime.fromisoformat(text)
            return "time " + re.sub("[0-9]", "9", text)
        except ValueError:
            return "like a time " + re.sub("[0-9]+", "9", text)[:20]
    return "text"


_PHYSICAL = {"int": (INT32, None), "bigint": (INT64, None), "string": (BYTE_ARRAY, "STRING"), "date": (INT32, "DATE")}


def pseudo_leaves(fields: Iterable[Any]) -> tuple[Leaf, ...]:
    """Keys as columns, index -1, -2, ...; those of other types than these are known by name and NULL only."""
    leaves = []
    for at, field in enumerate(fields, 1):
        physical, logical = _PHYSICAL.get(field.dataType.simpleString(), (BYTE_ARRAY, "?"))
        leaves.append(Leaf(-at, (field.name,), physical, logical=logical))
    return tuple(leaves)

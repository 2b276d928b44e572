"""Folders -> a DataFrame of files, by the executors: a task lists folders, one level of the tree at a time.

    level 0   what was named      ->  files, and folders
    level 1   these folders       ->  files, and folders ...      until there are none left

No path crosses the driver, but those that were named; it only asks whether a level has folders.
Hidden names (leading "." or "_") are passed over, as Spark does: _SUCCESS, _metadata, .crc files.
"""

from __future__ import annotations

import contextlib
import functools
import os
import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import add, xor
from typing import Any

import pyarrow as pa

from parquet_bloom.errors import ParquetBloomError, RequestError, StorageError
from parquet_bloom.output.folder import SUFFIX, remove_stale
from parquet_bloom.spark.frames import computed, mapped, mark, width
from parquet_bloom.spark.storages import Storages
from parquet_bloom.storage.remote import Location, storage_error
from parquet_bloom.storage.store import GLOB, is_data
from parquet_bloom.storage.table_folders import SIGNS, Table, Tables, table_in

SCHEMA = pa.schema(
    [("path", pa.string()), ("root", pa.string()), ("size", pa.int64()), ("kind", pa.string()), ("error", pa.string())]
)
_BATCH = 10_000
_TABLES = 10_000  # of one level, that the driver is told of
_FEW, _FEW_FOLDERS = 1000, 100  # files, and folders, that the driver lists itself in less time than a job takes
FILE, FOLDER, FAILED, TABLE = "file", "folder", "failed", "table"
Row = tuple[str, str, int, str, str | None]
Work = Callable[[Iterator[dict[str, Any]]], Iterator[Row]]


@dataclass(frozen=True)
class Listing:
    """Files of a listing, and what they are together.

    rows   DataFrame(path, root, size, kind, error), cached; kind is "file", or "failed" for a name or a
           folder that could not be listed, for the reason in error
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
    work: Work = functools.partial(_list_names, names=list(paths), where=where, tidy=tidy)
    found = None
    totals = [0] * len(sums)
    tables: list[Table] = []
    while True:
        listed, n_folders, n_tables, *these = computed(
            mapped(level, _batches_of(work), SCHEMA), *(f"count_if(kind = '{kind}')" for kind in (FOLDER, TABLE)), *sums
        )
        if n_tables:
            tables += map(table_of, listed.filter(f"kind = '{TABLE}'").limit(_TABLES).collect())
        some = listed.filter(listed_kinds) if n_folders or n_tables else listed
        found = some if found is None else found.unionAll(some)
        totals = [joined(a, b) for joined, a, b in zip(sums.values(), totals, these, strict=True)]
        if not n_folders:
            break
        level = listed.filter(f"kind = '{FOLDER}'").repartition(min(n_folders, width(spark)))
        work = functools.partial(_list_folders, where=where, tidy=tidy)
    if len(paths) > 1:  # they may share files; one file must not be two tasks' work
        found, *totals = computed(found.repartition(width(spark), "path").dropDuplicates(["path"]), *sums)
    files, size, its_mark, *large = totals
    return (
        Listing(found.filter(f"size < {split}") if large[0] else found, files, size, its_mark, tuple(tables)),
        Listing(found.filter(f"size >= {split}"), large[0], large[1], large[2], tuple(tables)),
    )


@dataclass(frozen=True)
class FewFiles:
    """Files, and names that could not be listed, that the driver has seen by itself; rows as those of a Listing."""

    rows: list[dict[str, Any]]
    tables: tuple[Table, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of them all."""
        return sum(row["size"] for row in self.rows)


def list_few(spark: Any, paths: Sequence[str], where: Storages, largest: int, tidy: bool = False) -> FewFiles | None:
    """List files on the driver, where that is this machine and they are few: no job is needed to find them.

    largest  all are smaller than so many bytes
    Returns None where tasks had better list: other machines, other storages, many files or folders.
    """
    if not in_one_process(spark) or any(where.split(path)[0] != "file" for path in paths):
        return None
    found: dict[str, Row] = {}  # names may share files; one file must not be two tasks' work
    tables: list[Table] = []
    folders = 0
    pending: list[tuple[str, str | None]] = [(path, None) for path in paths]
    while pending:
        name, root = pending.pop()
        folders += 1
        if folders > _FEW_FOLDERS or _crowded(name, where):
            return None
        try:
            rows = list(list_named(name, where, tidy) if root is None else list_folder(name, root, where, tidy))
        except ParquetBloomError as error:
            rows = [(name, root or "", 0, FAILED, str(error))]
        for row in rows:
            if row[3] == TABLE:
                tables.append(table_of(row))
            elif row[3] == FOLDER:
                pending.append((row[0], row[1]))
            else:
                found.setdefault(row[0], row)
        if len(found) > _FEW or any(row[2] >= largest for row in rows):
            return None
    rows = [found[path] for path in sorted(found)]
    return FewFiles([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], tuple(tables))


def in_one_process(spark: Any) -> bool:
    """Whether the executors are threads of the driver's JVM, on this machine."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return False
    master = str(spark.conf.get("spark.master", ""))
    return master == "local" or master.startswith("local[")


def _crowded(name: str, where: Storages) -> bool:
    """Whether a folder, or that of a pattern, has more entries than are few; their sizes are not asked for."""
    path = where.open(name)[1].rstrip("/") or "/"
    folder = os.path.dirname(path) if set(os.path.basename(path)) & GLOB and not os.path.isdir(path) else path
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return any(at >= _FEW for at, _ in enumerate(entries))
    return False


def find_tables(spark: Any, names: Sequence[str], where: Storages, tables: Tables) -> None:
    """Look, on the driver, for tables that names are, or lie in: before any job. Raises as Tables.join.

    A client of Spark Connect may have no way to the storages, and other disks: there a task looks.
    """
    if not type(spark).__module__.startswith("pyspark.sql.connect"):
        look_around(names, where, tables)
        return

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            seen = Tables()
            look_around(names, where, seen)
            rows = [(table.folder, table.named, 0, table.relation, table.kind) for table in seen.found.values()]
            yield _as_batch(rows)

    rows = mapped(spark.range(0, 1, 1, 1), run, SCHEMA).collect()
    tables.join(Table(kind, folder, named, relation) for folder, named, _, relation, kind in rows)


def look_around(names: Sequence[str], where: Storages, tables: Tables) -> None:
    """Look for tables that names are, or lie in; where that cannot be told, the listing says what is wrong."""
    named = []
    for name in (name.rstrip("/") or "/" for name in names):
        with contextlib.suppress(RequestError):
            at = folder = where.data_file(name)
            if set(posixpath.basename(name)) & GLOB:
                folder = where.data_file(posixpath.dirname(name))
            real = [Location(os.path.realpath(folder.path))] if folder.is_local else []
            named.append((at, [folder, *real]))
    tables.check_paths(named)


def not_listed(row: Any) -> StorageError:
    """The error that a row of kind "failed" tells."""
    return StorageError(row["path"], row["error"].removeprefix(f"{row['path']}: "))


def table_of(row: Sequence[Any]) -> Table:
    """The table that a row of kind "table" tells."""
    folder, root, *_, kind = row
    return Table(kind, folder, root, "is" if folder == root else "holds")


def _batches_of(rows: Work) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pending: list[Row] = []
        for row in rows(row for batch in batches for row in batch.to_pylist()):
            pending.append(row)
            if len(pending) == _BATCH:
                yield _as_batch(pending)
                pending = []
        yield _as_batch(pending)

    return run


def _as_batch(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def _list_names(rows: Iterator[dict[str, Any]], names: Sequence[str], where: Storages, tidy: bool) -> Iterator[Row]:
    for row in rows:
        name = names[row["id"]]
        try:
            yield from list_named(name, where, tidy)
        except ParquetBloomError as error:
            yield name, "", 0, FAILED, str(error)


def _list_folders(rows: Iterator[dict[str, Any]], where: Storages, tidy: bool) -> Iterator[Row]:
    for row in rows:
        try:
            yield from list_folder(row["path"], row["root"], where, tidy)
        except ParquetBloomError as error:
            yield row["path"], row["root"], 0, FAILED, str(error)


def list_named(name: str, where: Storages, tidy: bool) -> Iterator[Row]:
    """One name that people gave: a file counts whatever its name, a folder is the root of what is in it."""
    bare = name.rstrip("/") or "/"
    last = posixpath.basename(bare)
    size = _size_of(bare, where)
    if size is not None and size >= 0:
        yield bare, "", size, FILE, None
    elif size is not None:
        yield from list_folder(bare, bare, where, tidy)
    elif set(last) & GLOB:
        yield from _list_glob(bare, where)
    else:
        raise StorageError(name, "no such file or folder")


def _list_glob(name: str, where: Storages) -> Iterator[Row]:
    from fnmatch import fnmatchcase

    folder, last = posixpath.split(name)
    if set(folder) & GLOB:
        raise StorageError(name, "patterns are understood in the last component only; name the folder")
    some = False
    for path, size in _entries(folder, where):
        base = posixpath.basename(path)
        if fnmatchcase(base, last) and not (base.startswith((".", "_")) and last[0] not in "._"):
            some = True
            yield path, folder, max(size, 0), FILE if size >= 0 else FOLDER, None
    if not some:
        raise StorageError(name, "no file fits this pattern")


def list_folder(folder: str, root: str, where: Storages, tidy: bool) -> Iterator[Row]:
    """List a folder: rows of its files, of the folders below, and of a table that it is."""
    entries = list(_entries(folder, where))
    if tidy:
        restored = _tidy(folder, {posixpath.basename(path) for path, _ in entries}, where)
        if restored:
            entries = list(_entries(folder, where))
    below = [name for path, size in entries if size < 0 and (name := posixpath.basename(path)) in SIGNS]
    if below and (kind := table_in(where.data_file(folder), below)) is not None:
        yield folder, root, 0, TABLE, kind
    for path, size in entries:
        name = posixpath.basename(path)
        if size < 0:
            if not name.startswith((".", "_")):
                yield path, root, 0, FOLDER, None
        elif is_data(name):
            yield path, root, size, FILE, None


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
                    store.filesystem.move(f"{path}/{name}", f"{path}/{original}")
                except Exception as error:
                    raise storage_error(f"{folder}/{name}", error) from error
                restored = True
    return restored

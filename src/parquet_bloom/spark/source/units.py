"""The reading of tasks, decided without listing everything first.

    few files      looked at on the driver:     (file, part 2 of 5), packed to about 128 MB a task
    many           nobody looks before tasks:   Share(folder, 17 of 64): each task lists the folder and takes
                                                the files whose names' CRC-32 is 17 modulo 64

The driver lists at most LOOK files and FOLDERS folders, level by level; what it has not seen by then
becomes shares. A local folder is left as soon as it has more files than that; pyarrow lists a folder
of other storages only as a whole. `partitions=n` makes n shares and lists nothing.
"""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

from pyspark.sql.datasource import InputPartition

from parquet_bloom.errors import StorageError
from parquet_bloom.spark.listing import FILE, TABLE, Entry, crowded, entries_of, table_of
from parquet_bloom.spark.storages import Storages
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import side_by_side
from parquet_bloom.storage.store import is_data
from parquet_bloom.storage.table_folders import read_guard

LOOK, FOLDERS = 10_000, 500
_SHARES, _MOST_UNITS = 64, 4096
_LEAST, _MOST = 16 << 20, 128 << 20  # bytes of a unit
_OPENING = 1 << 20  # opening a file costs as much as reading so many bytes
_SIDE_BY_SIDE = 16


@dataclass(frozen=True, slots=True)
class Share:
    """A folder (or, without a root, a name of the call) and all below: one of `of` shares of its files."""

    path: str
    root: str | None
    part: int = 0
    of: int = 1


T = TypeVar("T")
Folder = tuple[str, str | None]  # or a name; as `path` and `root` of a Share
Part = tuple[T, int, int]  # a file, and one of so many equal parts of its row groups, counted from 0
ListedPart = tuple[DataFile, int, int, int | None]  # a part, and of a file in several the size that it was listed with


class Unit(InputPartition):
    """The reading of one task."""

    def __init__(self, parts: Sequence[Part[Entry] | Share]) -> None:
        super().__init__(tuple(parts))


@dataclass(slots=True)
class PartialListing:
    """Files of the folders that were listed; `unseen`: the other folders."""

    files: list[Entry] = field(default_factory=list)
    unseen: list[Folder] = field(default_factory=list)


def list_some(
    names: Sequence[str], where: Storages, limit: int = LOOK, folders: int = FOLDERS, *, raw_files: bool = False
) -> PartialListing:
    """List level by level, within limits. Raises StorageError for a name that is not there, and as `_entries`."""
    seen = PartialListing()
    pending: deque[Folder] = deque((name, None) for name in _once(names))
    while pending:
        some = [pending.popleft() for _ in range(min(_SIDE_BY_SIDE, len(pending)))]
        if len(seen.files) >= limit or folders <= 0:
            seen.unseen += some
            continue
        folders -= len(some)
        left = limit - len(seen.files)
        full = [one for one in some if _crowded(one[0], where, left)]
        seen.unseen += full
        some = [one for one in some if one not in full]
        for entries in side_by_side(lambda one: _entries(*one, where, raw_files), some):
            seen.files += [entry for entry in entries if entry.kind == FILE]
            pending += [(entry.path, entry.root) for entry in entries if entry.kind != FILE]
    return seen


def _once(names: Sequence[str]) -> list[str]:
    """Names without those that were there before: of folders one of which lies in another, rows come twice."""
    return list({name.rstrip("/") or "/": name for name in names}.values())


def _entries(name: str, root: str | None, where: Storages, raw_files: bool) -> list[Entry]:
    """The files and folders in a folder. Raises TableFormatError, without raw_files, for one that is a table's."""
    entries = list(entries_of(name, root, where))
    tables = read_guard(raw_files)
    if tables is not None:
        tables.join(table_of(entry) for entry in entries if entry.kind == TABLE)
    return [entry for entry in entries if entry.kind != TABLE]


def _crowded(name: str, where: Storages, limit: int) -> bool:
    """Whether a local folder has more entries than that."""
    store, path = where.open(name)
    return store.is_local and os.path.isdir(path) and crowded(path, limit)


def _walk(start: Sequence[Folder], where: Storages, raw_files: bool, any_file: bool = False) -> Iterator[Entry]:
    """The files of folders and names, and of all folders below, depth first.

    any_file  one will do: a local folder is not listed through for it
    """
    pending = list(reversed(start))
    while pending:
        name, root = pending.pop()
        if any_file and (first := _first_local(name, root, where)) is not None:
            yield first
        entries = _entries(name, root, where, raw_files)
        yield from (entry for entry in entries if entry.kind == FILE)
        pending += [(entry.path, entry.root) for entry in reversed(entries) if entry.kind != FILE]


def first_file(seen: PartialListing, where: Storages, raw_files: bool = False) -> Entry | None:
    """Any file, for its schema: one of those seen, or else the first one below; None if there is none."""
    return next(chain(seen.files, _walk(seen.unseen, where, raw_files, any_file=True)), None)


def _first_local(name: str, root: str | None, where: Storages) -> Entry | None:
    """The first file that a local folder gives, without listing it through; None: list it."""
    store, path = where.open(name)
    if not store.is_local or not os.path.isdir(path):
        return None
    base = name.rstrip("/")
    with suppress(OSError), os.scandir(path) as entries:  # listing it meets the same error, and says so
        for entry in entries:
            if is_data(entry.name) and entry.is_file():
                return Entry(f"{base}/{entry.name}", base if root is None else root, entry.stat().st_size, FILE)
    return None


# --- units ----------------------------------------------------------------------------------------
#
# What was listed, packed into tasks; what was not, in shares.


def shares(names: Sequence[str], partitions: int) -> list[Unit]:
    """So many units of a read, of files that nobody has listed."""
    once = _once(names)
    return [Unit([Share(name, None, part, partitions) for name in once]) for part in range(partitions)]


def plan(seen: PartialListing) -> list[Unit]:
    """The units of a read."""
    whole = packed_parts([(file, file.size, False) for file in seen.files])
    return [*map(Unit, whole), *_shared(seen.unseen)] or [Unit([])]


def packed_parts(files: Sequence[tuple[T, int, bool]]) -> list[list[Part[T]]]:
    """Whole small files together, large ones in parts: of each task its own.

    files  each with its bytes, and whether several tasks may not read it
    """
    total = sum(size + _OPENING for _, size, _ in files)
    most = min(max(_LEAST, total // _SHARES), _MOST)
    units: list[list[Part[T]]] = []
    some: list[Part[T]] = []
    room = most
    for file, size, whole in files:
        if size > most and not whole:
            parts = -(-size // most)
            units += [[(file, part, parts)] for part in range(parts)]
            continue
        if some and size + _OPENING > room:
            units.append(some)
            some, room = [], most
        some.append((file, 0, 1))
        room -= size + _OPENING
    return [*units, some] if some else units


def _shared(folders: Sequence[Folder]) -> list[Unit]:
    of = -(-_SHARES // max(1, len(folders)))
    shares = [Share(name, root, part, of) for name, root in folders for part in range(of)]
    step = max(1, -(-len(shares) // _MOST_UNITS))
    return [Unit(shares[at : at + step]) for at in range(0, len(shares), step)]


def files_of(parts: Sequence[Part[Entry] | Share], where: Storages, raw_files: bool = False) -> Iterator[ListedPart]:
    """The files of a unit."""
    for one in parts:
        if not isinstance(one, Share):
            file, part, of = one
            yield where.data_file(file.path, file.root), part, of, file.size if of > 1 else None
            continue
        for file in _walk([(one.path, one.root)], where, raw_files):
            if zlib.crc32(file.path.encode("utf-8", "surrogateescape")) % one.of == one.part:
                yield where.data_file(file.path, file.root), 0, 1, None


def part_of(n_row_groups: int, part: int, parts: int) -> range:
    """The row groups of one of the parts: together they are all, each once."""
    return range(n_row_groups * part // parts, n_row_groups * (part + 1) // parts)


def no_files(names: Sequence[str]) -> StorageError:
    """The error for names without any Parquet file."""
    return StorageError(", ".join(names), "no Parquet file in it; give a schema to read nothing")

"""What a task reads, decided without listing everything first.

    few files      looked at on the driver:     FilePart(file, 2 of 5), packed to about 128 MB a task
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
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, cast

from pyspark.sql.datasource import InputPartition

from parquet_bloom.errors import StorageError
from parquet_bloom.spark.listing import FILE, TABLE, Row, list_folder, list_named, table_of
from parquet_bloom.spark.storages import Storages
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import side_by_side, storage_error
from parquet_bloom.storage.store import is_data
from parquet_bloom.storage.table_folders import Tables, read_guard

LOOK, FOLDERS = 10_000, 500
_SHARES, _MOST_UNITS = 64, 4096
_LEAST, _MOST = 16 << 20, 128 << 20  # bytes of a unit
_OPENING = 1 << 20  # opening a file costs as much as reading so many bytes
_SIDE_BY_SIDE = 16


@dataclass(frozen=True, slots=True)
class FilePart:
    """One of `parts` equal parts of a file's row groups; size in bytes, of the file; whole as Part has it."""

    path: str
    root: str
    size: int
    part: int = 0
    parts: int = 1
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """A folder (or, without a root, a name that was given) and all below: one of `of` shares of its files."""

    path: str
    root: str | None
    part: int = 0
    of: int = 1


class Unit(InputPartition):
    """What one task reads."""

    def __init__(self, parts: Sequence[FilePart | Share]) -> None:
        super().__init__(tuple(parts))


@dataclass(slots=True)
class PartialListing:
    """Files and folders that were looked at; `unseen`: (name, root) of those that were not, root as in Share."""

    files: list[FilePart] = field(default_factory=list)
    unseen: list[tuple[str, str | None]] = field(default_factory=list)


def look(
    names: Sequence[str], where: Storages, limit: int = LOOK, folders: int = FOLDERS, *, raw_files: bool = False
) -> PartialListing:
    """List level by level, within limits. Raises StorageError for a name that is not there, and as `_rows`."""
    seen = PartialListing()
    pending: deque[tuple[str, str | None]] = deque((name, None) for name in names)
    while pending:
        some = [pending.popleft() for _ in range(min(_SIDE_BY_SIDE, len(pending)))]
        if len(seen.files) >= limit or folders <= 0:
            seen.unseen += some
            continue
        folders -= len(some)
        left = limit - len(seen.files)
        crowded = [_crowded(name, where, left) for name, _ in some]
        seen.unseen += [one for one, many in zip(some, crowded, strict=True) if many]
        some = [one for one, many in zip(some, crowded, strict=True) if not many]
        for rows in side_by_side(lambda one: _rows(*one, where, raw_files), some):
            for path, root, size, kind, _ in rows:
                if kind == FILE:
                    seen.files.append(FilePart(path, root, size))
                else:
                    pending.append((path, root))
    return seen


def refusal(raw_files: bool) -> Tables | None:
    """Whom to refuse tables by; None if raw files are wanted."""
    return read_guard(raw_files, '.option("rawFiles", "true")')


def _rows(name: str, root: str | None, where: Storages, raw_files: bool) -> list[Row]:
    """The files and folders in a folder. Raises TableFormatError, without raw_files, for one that is a table's."""
    rows = list(list_named(name, where, False) if root is None else list_folder(name, root, where, False))
    tables = refusal(raw_files)
    if tables is not None:
        tables.join(table_of(row) for row in rows if row[3] == TABLE)
    return [row for row in rows if row[3] != TABLE]


def _crowded(name: str, where: Storages, limit: int) -> bool:
    """Whether a local folder has more entries than that; its files' sizes are not asked for."""
    store, path = where.open(name)
    if not store.is_local or not os.path.isdir(path):
        return False
    try:
        with os.scandir(path) as entries:
            return any(at >= limit for at, _ in enumerate(entries))
    except OSError as error:
        raise storage_error(name, error) from error


def first_file(seen: PartialListing, where: Storages, raw_files: bool = False) -> FilePart | None:
    """Any file, for its schema: of those seen, or else the first on the way down; None if there is none."""
    if seen.files:
        return seen.files[0]
    pending = deque(seen.unseen)
    while pending:
        name, root = pending.popleft()
        quick = _first_local(name, root, where)
        if quick is not None:
            return quick
        folders = []
        for path, below, size, kind, _ in _rows(name, root, where, raw_files):
            if kind == FILE:
                return FilePart(path, below, size)
            folders.append((path, below))
        pending.extendleft(reversed(folders))
    return None


def _first_local(name: str, root: str | None, where: Storages) -> FilePart | None:
    """The first file that a local folder gives, without listing it through; None: list it."""
    store, path = where.open(name)
    if not store.is_local or not os.path.isdir(path):
        return None
    base = name.rstrip("/")
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if is_data(entry.name) and entry.is_file():
                    return FilePart(f"{base}/{entry.name}", base if root is None else root, entry.stat().st_size)
    except OSError as error:
        raise storage_error(name, error) from error
    return None


# --- units ----------------------------------------------------------------------------------------


def plan(names: Sequence[str], where: Storages, partitions: int | None = None, raw_files: bool = False) -> list[Unit]:
    """The units of a read. Raises StorageError for a name that is not there, if anything is listed."""
    if partitions is not None:
        return [Unit([Share(name, None, part, partitions) for name in names]) for part in range(partitions)]
    seen = look(names, where, raw_files=raw_files)
    return [Unit(one) for one in packed_parts(seen.files)] + _shared(seen.unseen) or [Unit([])]


class Part(Protocol):
    """Some of a file's row groups."""

    @property
    def size(self) -> int:
        """Bytes of the file."""

    @property
    def whole(self) -> bool:
        """Whether the file is not to be read by several tasks."""


P = TypeVar("P", bound=Part)


def packed_parts(files: Sequence[P]) -> list[list[P]]:
    """Whole small files together, large ones in parts: of each task its own."""
    total = sum(file.size + _OPENING for file in files)
    most = min(max(_LEAST, total // _SHARES), _MOST)
    units: list[list[P]] = []
    some: list[P] = []
    room = most
    for file in files:
        if file.size > most and not file.whole:
            parts = -(-file.size // most)
            units += [[replace(cast(Any, file), part=part, parts=parts)] for part in range(parts)]
            continue
        cost = file.size + _OPENING
        if some and cost > room:
            units.append(some)
            some, room = [], most
        some.append(file)
        room -= cost
    return [*units, some] if some else units


def _shared(folders: Sequence[tuple[str, str | None]]) -> list[Unit]:
    if not folders:
        return []
    of = -(-_SHARES // len(folders))
    shares = [Share(name, root, part, of) for name, root in folders for part in range(of)]
    step = -(-len(shares) // _MOST_UNITS)
    return [Unit(shares[at : at + step]) for at in range(0, len(shares), step)]


def files_of(unit: Unit, where: Storages, raw_files: bool = False) -> Iterator[tuple[DataFile, int, int]]:
    """The files of a unit, each with the part of its row groups, counted from 0, and how many parts there are."""
    for one in unit.value:
        if isinstance(one, FilePart):
            yield where.data_file(one.path, one.root), one.part, one.parts
        else:
            for path, root in _below(one, where, raw_files):
                yield where.data_file(path, root), 0, 1


def _below(share: Share, where: Storages, raw_files: bool) -> Iterator[tuple[str, str]]:
    pending: list[tuple[str, str | None]] = [(share.path, share.root)]
    while pending:
        folders = []
        for path, root, _, kind, _ in _rows(*pending.pop(), where, raw_files):
            if kind != FILE:
                folders.append((path, root))
            elif zlib.crc32(path.encode("utf-8", "surrogateescape")) % share.of == share.part:
                yield path, root
        pending += reversed(folders)


def part_of(n_row_groups: int, part: int, parts: int) -> range:
    """The row groups of one of the parts: together they are all, each once."""
    return range(n_row_groups * part // parts, n_row_groups * (part + 1) // parts)


def no_files(names: Sequence[str]) -> StorageError:
    """The error for names without any Parquet file."""
    return StorageError(", ".join(names), "no Parquet file in it; give a schema to read nothing")

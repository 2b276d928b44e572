"""A key index that is open: its manifest, the listings of its segments, and the parts that questions touched.

A process keeps the indexes that it has opened last. What is read of one is read once: a manifest, a listing with the
bounds of the columns that questions touched, and the footers of parts. Entries are read anew for each question.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count, islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.errors import FileError
from parquet_bloom.keys.entries import U64, Part, prefixes, ranges
from parquet_bloom.keys.listing import Listing
from parquet_bloom.keys.manifest import MOST_BYTES, NAME, Manifest, Segment, SegmentColumn, from_json
from parquet_bloom.options import PathLike
from parquet_bloom.output.index_files import IndexFiles
from parquet_bloom.process import ForkSafe, Recent
from parquet_bloom.search.question import NO_COST, Cost
from parquet_bloom.source.source import ResolvedSource
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.stores import Stores

if TYPE_CHECKING:
    from concurrent.futures import Future

R = TypeVar("R")
_Wanted = tuple[str, int, bytes]  # a segment's id, a column's number, hashes
_Entries = tuple[NDArray[np.intp], NDArray[np.int32]]
_OPEN_INDEXES = 8
_OPEN_PARTS = 32  # of one index: each has a descriptor
_READERS = 32  # threads that read listings ahead
_BEGUN = 2 * _OPEN_PARTS  # lookups that wait to be taken: a call that fails takes none of those it began


def begun(work: Callable[[], R]) -> Future[R]:
    """Begin work in a thread of its own, which may wait for requests; those of storage.remote wait for nothing.

    Where the system has no more threads, the work is done here.
    """
    from concurrent.futures import Future  # for those alone who ask other storages

    future: Future[R] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    try:
        threading.Thread(target=run, name="parquet-bloom-index", daemon=True).start()
    except RuntimeError:
        run()
        error = future.exception()
        if error is not None and not isinstance(error, Exception):  # the user interrupts
            raise error from None
    return future


@dataclass(frozen=True, slots=True)
class Unlisted:
    """The files that an index names below a folder; keys.coverage finds them.

    name     of the folder: where links lead, and as it was named
    found    these files, by their paths
    segments, numbers  of each: its segment, and its number there: intp[n]
    inside   the folders below that they lie in
    """

    name: tuple[str, str]
    found: ResolvedSource
    segments: NDArray[np.intp]
    numbers: NDArray[np.intp]
    inside: frozenset[str]


class KeyIndex:
    """An index, at the moment when its manifest was read.

    path      of its folder, or URI
    manifest  that it had

    new  local files of the index that are not there yet, or None
    """

    def __init__(self, where: PathLike, new: IndexFiles | None = None) -> None:
        """Raises StorageError, DamagedFileError, RequestError."""
        self.unlisted: Unlisted | None = None  # of the local folder that was named last
        self._new = new
        self._cost = NO_COST
        self._listings: dict[str, Listing] = {}
        self._parts: OrderedDict[str, Part] = OrderedDict()
        self._lock = threading.Lock()  # of these; nothing is read with it
        self._locks: dict[str, threading.Lock] = {}  # of each file: one thread at a time reads it
        self._begun: dict[_Wanted, Future[_Entries]] = {}  # lookups that may be asked for
        self._store, path = Stores().locate(os.fspath(where))
        self.is_remote = not self._store.is_local
        self._path = path.rstrip("/")
        self.path = str(self._store.location(self._path))
        with OpenFile(self.opened(NAME)) as source:
            self.version = source.version_token
            self.manifest: Manifest = from_json(source.read(0, min(source.size, MOST_BYTES + 1)), source.path)
            self._count(source)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Let go of its files; the next question opens them again."""
        with self._lock:
            while self._parts:
                _, part = self._parts.popitem()
                self._count(part.source)
                part.close()
            while self._listings:
                _, listing = self._listings.popitem()
                self._count(listing.source)
                listing.close()

    def take_cost(self) -> Cost:
        """The reads of the index since the last call; those of several threads count for the first that calls."""
        with self._lock:
            for source in (one.source for kind in (self._listings, self._parts) for one in kind.values()):
                self._count(source)
            found, self._cost = self._cost, NO_COST
            self._begun.clear()
        return found

    def _count(self, source: OpenFile) -> None:
        self._cost = self._cost.plus(source.requests, source.bytes_read)
        source.requests = source.bytes_read = 0

    def location(self, name: str) -> Location:
        """The place of a file of the index, for messages."""
        return self._store.location(f"{self._path}/{name}")

    def opened(self, name: str) -> Location:
        """The place of a file of the index, for OpenFile: a local one is open already. Raises StorageError."""
        if self._new is not None and name != NAME and self._new.lstat(name) is not None:
            return self._new.location(name)
        return self.location(name) if self.is_remote else IndexFiles(self._path).location(name)

    def is_current(self) -> bool:
        """Whether its manifest is still the one that was read."""
        with OpenFile(self.opened(NAME)) as source:
            self._count(source)
            return self.version is not None and source.version_token == self.version

    @cached_property
    def names(self) -> dict[str, int]:
        """Path of a file -> its number among those of all segments. Raises DamagedFileError, StorageError."""
        return dict(self.named())

    def named(self) -> Iterator[tuple[str, int]]:
        """The same, one after the other; a path may come again."""
        for segment, first in zip(self.manifest.segments, self._firsts.tolist(), strict=True):
            yield from zip(self.listing(segment).paths, count(first))

    @cached_property
    def _firsts(self) -> NDArray[np.intp]:
        """The number of each segment's first file among those of all segments: intp[segments]."""
        counts = np.array([segment.files for segment in self.manifest.segments], np.intp)
        return np.cumsum(counts) - counts

    def segment_of(self, numbers: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The segment of files by their numbers among those of all segments, and their numbers in it: intp[n] both."""
        segments = np.searchsorted(self._firsts, numbers, "right") - 1
        return segments, numbers - self._firsts[segments]

    def listing(self, segment: Segment) -> Listing:
        """The places of a segment. Raises DamagedFileError, StorageError."""
        found = self._listings.get(segment.id)
        if found is None:
            with self._lock_of(segment.id):
                found = self._listings.get(segment.id)
                if found is None:
                    found = Listing(self.opened(segment.listing_name), segment)
                    with self._lock:  # another thread may go through them
                        self._listings[segment.id] = found
        return found

    def _lock_of(self, name: str) -> threading.Lock:
        with self._lock:
            return self._locks.setdefault(name, threading.Lock())

    def begin(self, wanted: Iterable[tuple[Segment, SegmentColumn, U64]]) -> None:
        """Begin in threads to read listings, and to find values as `find` does: of an index on a store."""
        missing = [segment for segment in self.manifest.segments if segment.id not in self._listings]
        for first in range(min(len(missing), _READERS)):
            begun(partial(self._read_listings, missing[first::_READERS]))
        for segment, column, hashes in islice(wanted, _OPEN_PARTS):
            lookup = begun(partial(self._sought, segment, column, hashes))
            with self._lock:
                self._begun[segment.id, column.number, hashes.tobytes()] = lookup
                while len(self._begun) > _BEGUN:  # those that began first
                    del self._begun[next(iter(self._begun))]

    def _read_listings(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            with suppress(FileError):  # it is raised where the listing is asked for
                self.listing(segment)

    def find(self, segment: Segment, column: SegmentColumn, hashes: U64) -> _Entries:
        """The places that may hold values.

        hashes   XXH64 of each: uint64[n], in any order
        returns  for each pair the number of the hash, and the place
        Raises DamagedFileError, StorageError.
        """
        known = None
        if self._begun:
            with self._lock:
                known = self._begun.pop((segment.id, column.number, hashes.tobytes()), None)
        if known is not None and known.exception() is None:
            return known.result()
        return self._sought(segment, column, hashes)

    def _sought(self, segment: Segment, column: SegmentColumn, hashes: U64) -> _Entries:
        wanted, number_of = np.unique(prefixes(hashes, column.bits), return_inverse=True)
        pairs = list(self._find(segment, column, wanted))
        numbers = np.concatenate([np.empty(0, np.intp), *(one for one, _ in pairs)])
        places = np.concatenate([np.empty(0, np.int32), *(one for _, one in pairs)])
        if len(wanted) == len(hashes):  # each hash is one that is wanted: its number, by turning the order round
            back = np.empty(len(hashes), np.intp)
            back[number_of] = np.arange(len(hashes))
            return back[numbers], places
        # Several hashes begin with the same bits.
        order = np.argsort(number_of, kind="stable")
        counts = np.bincount(number_of, minlength=len(wanted))
        firsts = np.cumsum(counts) - counts
        repeats = counts[numbers]
        return order[ranges(firsts[numbers], repeats)], np.repeat(places, repeats)

    def _find(
        self, segment: Segment, column: SegmentColumn, wanted: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.int32]]]:
        partition_of = wanted >> (column.bits - column.partition_bits)
        for partition in np.unique(partition_of).tolist():
            first, stop = np.searchsorted(partition_of, [partition, partition + 1]).tolist()
            if not column.parts[partition].rows:
                continue
            self._make_room()
            with self._lock_of(segment.part_name(column.number, partition)):
                numbers, places = self._part(segment, column, partition).find(wanted[first:stop])
            yield numbers + first, places

    def entries(
        self, segment: Segment, column: SegmentColumn, low: int, stop: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32]]]:
        """The entries with hashes from `low` up to `stop`, in their order: hashes and places.

        Raises DamagedFileError, StorageError.
        """
        shift = column.bits - column.partition_bits
        for partition in range(low >> shift, min((stop - 1 >> shift) + 1, len(column.parts))):
            if column.parts[partition].rows:
                self._make_room()
                with self._lock_of(segment.part_name(column.number, partition)):
                    part = self._part(segment, column, partition)
                yield from part.between(low, stop)

    def _part(self, segment: Segment, column: SegmentColumn, partition: int) -> Part:
        """A part, with its lock."""
        name = segment.part_name(column.number, partition)
        part = self._parts.get(name) or Part(self.opened(name), column.parts[partition], segment.places)
        with self._lock:
            self._parts[name] = part
            self._parts.move_to_end(name)
        return part

    def _make_room(self) -> None:
        """Close parts where too many are open: those used longest ago, and by no thread at this moment."""
        with self._lock:
            for name in list(self._parts)[: max(0, len(self._parts) - _OPEN_PARTS + 1)]:
                lock = self._locks[name]
                if lock.acquire(blocking=False):
                    part = self._parts.pop(name)
                    self._count(part.source)
                    part.close()
                    lock.release()


_opened: ForkSafe[Recent[str, KeyIndex]] = ForkSafe(lambda: Recent(_OPEN_INDEXES))


def open_key_index(where: PathLike) -> KeyIndex:
    """Open an index, or take the one that this process has open, if its manifest is still the same.

    Raises StorageError, DamagedFileError; RequestError for a newer version of the format.
    """
    key = os.path.abspath(os.fspath(where)) if "://" not in os.fspath(where) else os.fspath(where)
    opened = _opened.own
    with opened.lock:
        known = opened.find(key)
        if known is not None and known.is_current():
            return known
        found = KeyIndex(where)
        opened.keep(key, found)
        return found

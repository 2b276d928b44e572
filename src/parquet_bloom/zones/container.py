"""The container of a zone index: one `bloomfilter.lance`, read and written through pylance.

A file is read a few zones at a time: an index of a billion rows holds four gigabytes of filters.
What the file says of itself is believed only as far as it fits together: a filter that is no
positive multiple of 32 bytes admits everything.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.errors import DamagedFileError, FilterFormatError, StorageError
from parquet_bloom.format import lance as form
from parquet_bloom.format.lance import checksum, checksum_offset, placeholder
from parquet_bloom.format.literals import literal_text
from parquet_bloom.format.roaring import Ranges
from parquet_bloom.kernels.block import BLOCK_BYTES, block_of, masks
from parquet_bloom.output.atomic_file import AtomicFile
from parquet_bloom.output.draft import read_at
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.zones.reader import PLACES, DistantReader, LanceReader, ZoneReader, lance_errors, pylance

FRAGMENTS, COLUMN = "parquet_bloom.fragments", "parquet_bloom.column"
_READ_BYTES = 8 << 20  # of filters, at a time
_WRITE_BYTES = 2 << 20  # of all columns before a page is written; pages this small are encoded in the cache

Fragments = list[dict[str, Any]]
_FRAGMENT = {
    "fragment": int,
    "path": str,
    "size": int,
    "footer_crc32": int,
    "relative": str,
    "rows": list,
    "chunk_xxh3": list,
    "token": dict,
}
_MAY_LACK = {"relative", "rows", "chunk_xxh3", "token"}


class ZoneFile:
    """A zone index in its file; its filters are read when they are queried.

    parameters  what it says it was built with
    fragment, start, length   int64[zones], sorted by fragment and start
    has_null    bool[zones]
    nulls       fragment -> ranges of null rows; None where the file has no null bitmap
    fragments   what we wrote of the data it is of, one entry a fragment; None in files of others
    column      {"name", "type"} that we wrote; None in files of others
    """

    def __init__(self, path: str) -> None:
        """Raises StorageError, DamagedFileError."""
        self.path = path
        self._reader = _reader_of(path)
        found = self._reader.describe()
        self.metadata, self.version, self.zones = found.metadata, found.version, found.places.num_rows
        try:
            self.parameters = form.decode_parameters(self.metadata)
        except FilterFormatError as error:
            raise DamagedFileError(path, str(error)) from error
        columns = [found.places[name].to_numpy() for name in PLACES]
        if any(len(c) and int(c.max()) >= 1 << 48 for c in columns[:3]):
            raise DamagedFileError(path, "a zone lies beyond 2^48 rows")
        self._order = np.lexsort((columns[1], columns[0]))
        self.fragment, self.start, self.length = (c[self._order].astype(np.int64) for c in columns[:3])
        self.has_null: NDArray[np.bool_] = columns[3][self._order].astype(bool)
        self._buffers = found.buffers

    @cached_property
    def nulls(self) -> dict[int, Ranges] | None:
        """Fragment -> ranges of rows that are NULL; None where the index does not say. Raises DamagedFileError."""
        if self.metadata.get(form.NULL_BITMAP) != str(form.NULLS_BUFFER):
            return None
        if self._buffers <= form.NULLS_BUFFER:
            raise DamagedFileError(self.path, f"names a null bitmap, but has {self._buffers} global buffers")
        try:
            return form.decode_nulls(self._reader.buffer(form.NULLS_BUFFER))
        except FilterFormatError as error:
            raise DamagedFileError(self.path, str(error)) from error

    @cached_property
    def fragments(self) -> Fragments | None:
        """The index's entries of its files; None where it has none. Raises DamagedFileError."""
        found = self._json(FRAGMENTS)
        if found is None:
            return None
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise DamagedFileError(self.path, f"{FRAGMENTS} is no list of fragments")
        for one in found:
            for key, wanted in _FRAGMENT.items():
                if type(one.get(key)) is not wanted and (key not in _MAY_LACK or key in one):
                    reason = f"a fragment's {key} is {literal_text(one.get(key))}, and no {wanted.__name__}"
                    raise DamagedFileError(self.path, reason)
            if any(type(n) is not int for n in one.get("rows", ())) or any(
                type(text) is not str for text in one.get("chunk_xxh3", ())
            ):
                raise DamagedFileError(
                    self.path, f"a fragment's rows are no numbers, or its hashes no texts: {literal_text(one['path'])}"
                )
            if not 0 <= one["fragment"] < 1 << 48 or not _is_name(one["path"] + one.get("relative", "")):
                raise DamagedFileError(
                    self.path, f"no fragment is {literal_text(one['fragment'])}, {literal_text(one['path'])}"
                )
        if len({one["fragment"] for one in found}) < len(found):
            raise DamagedFileError(self.path, "names a fragment twice")
        return found

    @cached_property
    def by_number(self) -> dict[int, dict[str, Any]]:
        """Our entry of each fragment."""
        return {one["fragment"]: one for one in self.fragments or []}

    @cached_property
    def column(self) -> dict[str, str] | None:
        """Name and type of the column; None where the index does not say. Raises DamagedFileError."""
        found = self._json(COLUMN)
        if found is not None and not (
            isinstance(found, dict)
            and {"name", "type"} <= set(found)
            and all(type(v) is str and _is_name(v) for v in found.values())
        ):
            raise DamagedFileError(self.path, f"{COLUMN} names no column")
        return found

    def _json(self, key: str) -> Any:
        if key not in self.metadata:
            return None
        try:
            return json.loads(self.metadata[key])
        except (ValueError, RecursionError) as error:
            raise DamagedFileError(self.path, f"{key} is no JSON: {str(error)[:100]}") from error

    @property
    def overlapping(self) -> NDArray[np.bool_]:
        """bool[zones]: the zone begins before the one ahead of it, in the same fragment, ends."""
        if not self.zones:
            return np.zeros(0, bool)
        before = (self.fragment[1:] == self.fragment[:-1]) & (self.start[1:] < self.start[:-1] + self.length[:-1])
        return np.concatenate(([False], before))

    def stacks(self, zones: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint32] | None]]:
        """Yield zones, by their number in our order, and their filters: uint32[zones, n_blocks, 8].

        None where the bytes are no filter. Each stack is of filters of one size, and of a few megabytes.
        """
        per_read = max(1, _READ_BYTES // max(1, self.parameters.num_bytes))
        for at in range(0, len(zones), per_read):
            part = zones[at : at + per_read]
            rows = self._order[part]
            ranked = np.argsort(rows, kind="stable")
            filters = self._reader.filters(rows[ranked].tolist())
            for places, stack in _stacked(filters):
                yield part[ranked[places]], stack

    def admits(self, asked: Sequence[NDArray[np.uint64]], zones: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Query zones: bool[questions, zones], True where any hash of a question may be in the zone.

        asked  one array of hashes a question; none at all: certainly not there
        """
        answers = np.zeros((len(asked), self.zones), bool)
        for part, stack in self.stacks(zones):
            for question, hashes in enumerate(asked):
                answers[question, part] = bool(len(hashes)) if stack is None else _any_in(stack, hashes)
        return answers[:, zones]


def _is_name(text: str) -> bool:
    """Whether a text of JSON can be a file's name: half a character, such as \\ud800, is none to a system."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _stacked(filters: pa.Array) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint32] | None]]:
    """Filters by their sizes, each as one array; None for sizes that no filter has."""
    buffer = filters.buffers()[2]
    data = np.frombuffer(buffer, np.uint8) if buffer else np.empty(0, np.uint8)
    offsets = np.frombuffer(filters.buffers()[1], np.int32)[filters.offset : filters.offset + len(filters) + 1]
    sizes = np.diff(offsets)
    for size in np.unique(sizes).tolist():
        places = np.flatnonzero(sizes == size)
        if size <= 0 or size % BLOCK_BYTES:
            yield places, None
        elif len(places) == len(sizes):
            yield places, data[offsets[0] : offsets[-1]].view("<u4").reshape(len(places), -1, 8)
        else:
            parts = [data[offsets[i] : offsets[i + 1]] for i in places.tolist()]
            yield places, np.concatenate(parts).view("<u4").reshape(len(places), -1, 8)


def _any_in(stack: NDArray[np.uint32], hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether any hash may be in each filter of a stack, without the compiler: bool[filters]."""
    found = np.zeros(len(stack), bool)
    for block, wanted in zip(block_of(hashes, stack.shape[1]).tolist(), masks(hashes), strict=True):
        found |= ((stack[:, block] & wanted) == wanted).all(axis=1)
    return found


def _reader_of(path: str) -> ZoneReader:
    """The reader of a file: this process where a checksum of ours proves that it is whole, else another process.

    Raises StorageError; DamagedFileError where the checksum says otherwise.
    """
    if not os.path.isfile(path):
        raise StorageError(path, "no such file")
    with OpenFile(path) as source:
        offset = checksum_offset(source.read, source.size)
        if offset is None:
            return DistantReader(path, source.size)
        stored, computed = source.read(offset, 8), checksum(source.read, source.size, offset)
        if stored != computed:
            reason = f"is damaged: its checksum is {stored.hex()}, its bytes give {computed.hex()}; build it again"
            raise DamagedFileError(path, reason)
        return LanceReader(path, source.size)


class ZoneWriter:
    """A new `bloomfilter.lance`, complete or not there at all. Leaving it without `commit` gives it up.

    new  the file, which is written by name
    """

    def __init__(self, new: AtomicFile, metadata: Mapping[str, str]) -> None:
        self._new = new
        self.path = path = new.target
        self._nulls: list[tuple[int, bytes]] = []
        self._closed = False
        self.zones = 0
        try:
            with lance_errors(path):
                writer, own = pylance().file.LanceFileWriter, self._new.path
                self._writer = writer(own, form.ZONE_SCHEMA, version=form.FILE_VERSION, data_cache_bytes=_WRITE_BYTES)
                for key, value in metadata.items():
                    self._writer.add_schema_metadata(key, value)
        except BaseException:
            self._new.discard()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if not self._closed:
            with contextlib.suppress(BaseException):
                self._writer.close()
        self._new.discard()

    def write(self, zones: pa.RecordBatch) -> None:
        """Append zones, in ZONE_SCHEMA."""
        with lance_errors(self.path):
            self._writer.write_batch(zones)
        self.zones += zones.num_rows

    def add_nulls(self, fragment: int, bitmap: bytes) -> None:
        """The nulls of a fragment; fragments ascending."""
        self._nulls.append((fragment, bitmap))

    def commit(self, metadata: Mapping[str, str] | None = None) -> None:
        """Close the file, put its checksum in, and give it its name. Raises StorageError, ConflictError."""
        with lance_errors(self.path):
            for key, value in (metadata or {}).items():
                self._writer.add_schema_metadata(key, value)
            self._writer.add_global_buffer(form.encode_nulls(self._nulls))
            self._writer.add_global_buffer(placeholder())
            self._writer.close()
        self._closed = True
        self._new.adopt()
        size = os.fstat(self._new.fd).st_size

        def read(at: int, length: int) -> bytes:
            return read_at(self._new.fd, at, length)

        offset = checksum_offset(read, size)
        if offset is None:
            raise StorageError(self.path, "pylance wrote it in another form than we know; nothing was written")
        self._new.write_at(offset, checksum(read, size, offset))
        self._new.commit()

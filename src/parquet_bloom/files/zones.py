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

from parquet_bloom.errors import (
    DamagedFileError,
    FilterFormatError,
    ParquetBloomError,
    RequestError,
    StorageError,
)  # fmt: skip
from parquet_bloom.files.commit import NewFile, local_target
from parquet_bloom.files.place import EXISTS
from parquet_bloom.formats import lance as form
from parquet_bloom.formats.roaring import Ranges
from parquet_bloom.kernels.split_block import BLOCK_BYTES, SALT, block_index

FRAGMENTS, COLUMN = "parquet_bloom.fragments", "parquet_bloom.column"
_READ_BYTES = 8 << 20  # of filters, at a time
_WRITE_BYTES = 2 << 20  # of all columns before a page is written; pages this small are encoded in the cache

Fragments = list[dict[str, Any]]


def pylance() -> Any:
    """The module `lance`. Raises RequestError where the extra is not installed."""
    try:
        import lance
        import lance.file
    except ImportError as error:
        raise RequestError("zone indexes need pylance: pip install 'parquet-bloom[lance]'") from error
    return lance


@contextlib.contextmanager
def lance_errors(path: object) -> Iterator[None]:
    """Turn what pylance raises into our own errors; a panic of its Rust is no Exception."""
    try:
        yield
    except ParquetBloomError:
        raise
    except (OSError, ValueError, RuntimeError, KeyError, pa.ArrowException, NotImplementedError) as error:
        raise DamagedFileError(path, _first_line(error)) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise DamagedFileError(path, f"pylance gave up on it: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return line.split(", /home/")[0]  # where in pylance's source it was raised


class ZoneFile:
    """A zone index, as it lies in a file; its filters stay there until they are asked.

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
        if not os.path.isfile(path):
            raise StorageError(path, "no such file")
        pylance()
        with lance_errors(path):
            metadata = self._open().metadata()
            schema = metadata.schema
            for field in form.ZONE_SCHEMA:
                at = schema.get_field_index(field.name)
                if at < 0 or schema.field(at).type != field.type:
                    raise DamagedFileError(path, f"is no zone index: it has no column {field.name} of {field.type}")
            self.metadata = {k.decode(): v.decode() for k, v in (schema.metadata or {}).items()}
            self.version = f"{metadata.major_version}.{metadata.minor_version}"
            self.zones = int(metadata.num_rows)
            names = form.ZONE_SCHEMA.names[:-1]
            table = self._open(names).read_all(batch_size=1 << 16).to_table().combine_chunks()
            buffers = len(metadata.global_buffers)
        try:
            self.parameters = form.decode_parameters(self.metadata)
        except FilterFormatError as error:
            raise DamagedFileError(path, str(error)) from error
        columns = [table[name].to_numpy() for name in names]
        if any(len(c) and int(c.max()) >= 1 << 62 for c in columns[:3]):
            raise DamagedFileError(path, "a zone lies beyond 2^62 rows")
        self._order = np.lexsort((columns[1], columns[0]))
        self.fragment, self.start, self.length = (c[self._order].astype(np.int64) for c in columns[:3])
        self.has_null: NDArray[np.bool_] = columns[3][self._order].astype(bool)
        self._buffers = buffers

    def _open(self, columns: Sequence[str] | None = None) -> Any:
        return pylance().file.LanceFileReader(self.path, columns=None if columns is None else list(columns))

    @cached_property
    def nulls(self) -> dict[int, Ranges] | None:
        if self.metadata.get(form.NULL_BITMAP) != str(form.NULLS_BUFFER):
            return None
        if self._buffers <= form.NULLS_BUFFER:
            raise DamagedFileError(self.path, f"names a null bitmap, but has {self._buffers} global buffers")
        with lance_errors(self.path):
            data = self._open().read_global_buffer(form.NULLS_BUFFER)
        try:
            return form.decode_nulls(data)
        except FilterFormatError as error:
            raise DamagedFileError(self.path, str(error)) from error

    @cached_property
    def fragments(self) -> Fragments | None:
        found = self._json(FRAGMENTS)
        if found is not None and not (isinstance(found, list) and all(isinstance(one, dict) for one in found)):
            raise DamagedFileError(self.path, f"{FRAGMENTS} is no list of fragments")
        return found

    @cached_property
    def column(self) -> dict[str, Any] | None:
        found = self._json(COLUMN)
        if found is not None and not (isinstance(found, dict) and {"name", "type"} <= set(found)):
            raise DamagedFileError(self.path, f"{COLUMN} names no column")
        return found

    def _json(self, key: str) -> Any:
        if key not in self.metadata:
            return None
        try:
            return json.loads(self.metadata[key])
        except ValueError as error:
            raise DamagedFileError(self.path, f"{key} is no JSON: {error}") from error

    @property
    def overlapping(self) -> NDArray[np.bool_]:
        """bool[zones]: the zone begins before the one ahead of it, in the same fragment, ends."""
        if not self.zones:
            return np.zeros(0, bool)
        before = (self.fragment[1:] == self.fragment[:-1]) & (self.start[1:] < self.start[:-1] + self.length[:-1])
        return np.concatenate(([False], before))

    def stacks(self, zones: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint32] | None]]:
        """Yield zones, by their place in our order, and their filters: uint32[zones, n_blocks, 8].

        None where the bytes are no filter. Each stack is of filters of one size, and of a few megabytes.
        """
        per_read = max(1, _READ_BYTES // max(1, self.parameters.num_bytes))
        for at in range(0, len(zones), per_read):
            part = zones[at : at + per_read]
            rows = self._order[part]
            ranked = np.argsort(rows, kind="stable")
            filters = self._read(rows[ranked])
            for places, stack in _stacked(filters):
                yield part[ranked[places]], stack

    def _read(self, rows: NDArray[np.int64]) -> pa.Array:
        """The filters of rows of the file, ascending."""
        with lance_errors(self.path):
            reader = self._open(["bloom_filter_data"])
            if len(rows) and int(rows[-1]) - int(rows[0]) == len(rows) - 1:
                results = reader.read_range(int(rows[0]), len(rows), batch_size=len(rows))
            else:
                results = reader.take_rows(rows.tolist(), batch_size=max(1, len(rows)))
            found = results.to_table().column(0).combine_chunks()
        if len(found) != len(rows):
            raise DamagedFileError(self.path, f"{len(found)} filters where {len(rows)} were asked for")
        return found

    def admits(self, asked: Sequence[NDArray[np.uint64]], zones: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Ask zones: bool[questions, zones], True where any hash of a question may be in the zone.

        asked  one array of hashes a question; none at all: certainly not there
        """
        answers = np.zeros((len(asked), self.zones), bool)
        for part, stack in self.stacks(zones):
            for question, hashes in enumerate(asked):
                answers[question, part] = bool(len(hashes)) if stack is None else _any_in(stack, hashes)
        return answers[:, zones]


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


_SALTS = np.array(SALT, np.uint32)


def _any_in(stack: NDArray[np.uint32], hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether any hash may be in each filter of a stack, without the compiler: bool[filters]."""
    found = np.zeros(len(stack), bool)
    for h in hashes.tolist():
        bits = np.uint32(1) << ((np.uint32(h & 0xFFFFFFFF) * _SALTS) >> np.uint32(27))
        block = stack[:, block_index(h, stack.shape[1], "multiply-shift")]
        found |= ((block & bits) == bits).all(axis=1)
    return found


class ZoneWriter:
    """A new `bloomfilter.lance`, complete or not there at all. Leaving it without `commit` gives it up."""

    def __init__(self, path: str, metadata: Mapping[str, str], overwrite: bool = False, sync: bool = True) -> None:
        path = local_target(path)
        if os.path.lexists(path) and not overwrite:
            raise StorageError(path, EXISTS)
        self.path = path
        self._new = NewFile(path, path if os.path.exists(path) else None, overwrite, sync, by_name=True)
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
        """Close the file and give it its name."""
        with lance_errors(self.path):
            for key, value in (metadata or {}).items():
                self._writer.add_schema_metadata(key, value)
            self._writer.add_global_buffer(form.encode_nulls(self._nulls))
            self._writer.close()
        self._closed = True
        self._new.adopt()
        self._new.commit()

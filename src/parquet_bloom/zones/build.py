"""Building zone indexes: values in, zones out, a few megabytes at a time.

    fragment -> rows of all columns -> a ZoneMaker a column -> Pieces -> one file a column

`zone_batches_of` works on one fragment and knows nothing of the others, so that fragments can be shared
out; a file is the pieces of its fragments one after the other.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.errors import CHANGED, RequestError, StorageError, parameter
from parquet_bloom.format import lance as form
from parquet_bloom.format import roaring
from parquet_bloom.kernels.hashes import hash_array
from parquet_bloom.kernels.split_block import BLOCK_BYTES, insert_hashes
from parquet_bloom.options import PathLike, ReadOptions, column_names, refuse_unknown
from parquet_bloom.output.atomic_file import local_target
from parquet_bloom.output.index_files import IndexFiles
from parquet_bloom.source.names import refuse_named
from parquet_bloom.source.results import Result, table_of
from parquet_bloom.source.source import source_of
from parquet_bloom.storage.workers import Meter, ProgressCallback, chain_results, processors
from parquet_bloom.zones.container import COLUMN, FRAGMENTS, ZoneWriter
from parquet_bloom.zones.sources import Column, Data, Fragment, Identity, hashed_kind, open_data

_PIECE_BYTES = 2 << 20  # of filters in one piece, or one filter
_PIECES_AHEAD = 4  # of each fragment that is read ahead, while another's are written


@dataclass(frozen=True, slots=True)
class ZoneBatch:
    """Zones of one column of one fragment, in order.

    zones     RecordBatch of ZONE_SCHEMA
    nulls     Roaring bitmap of the fragment's null rows, with its last piece; else None
    identity  what the index keeps of the fragment, with its last piece; else None
    """

    column: int
    fragment: int
    zones: pa.RecordBatch
    nulls: bytes | None
    identity: Identity | None = None


class ZoneMaker:
    """Turns the rows of one column of one fragment into zones."""

    def __init__(self, column: int, fragment: int, parameters: form.Parameters) -> None:
        self._column, self._fragment = column, fragment
        self._items = parameters.items
        self._blocks = parameters.num_bytes // BLOCK_BYTES
        self._room = max(1, _PIECE_BYTES // parameters.num_bytes)
        self._scratch = np.empty(1 << 16, np.uint64)
        self._nulls = roaring.Writer()
        self._live = 0  # rows in the zone that is open
        self._start()

    def _start(self) -> None:
        self._words = np.zeros((self._room, self._blocks, 8), np.uint32)
        self._first: list[int] = []
        self._last: list[int] = []
        self._has_null: list[bool] = []

    def add(self, offsets: NDArray[np.int64] | int, values: pa.Array) -> Iterator[ZoneBatch]:
        """Take rows; yields what became full."""
        n = len(values)
        before = None  # values that are no nulls, before each row
        if values.null_count:
            nulls = values.is_null().to_numpy(zero_copy_only=False)
            before = np.concatenate(([0], np.cumsum(~nulls)))
            at = np.flatnonzero(nulls)
            self._nulls.add(at + offsets if isinstance(offsets, int) else offsets[at])
        hashes = hash_array(values, "xxh64", 0, self._scratch)
        row = 0
        while row < n:
            if self._live == 0:
                if len(self._first) == self._room:
                    yield self._piece(None)
                self._first.append(_at(offsets, row))
                self._last.append(0)
                self._has_null.append(False)
            stop = min(n, row + self._items - self._live)
            a, b = (row, stop) if before is None else (int(before[row]), int(before[stop]))
            insert_hashes(self._words[len(self._first) - 1], hashes[a:b])
            self._last[-1] = _at(offsets, stop - 1)
            self._has_null[-1] |= b - a < stop - row
            self._live = (self._live + stop - row) % self._items
            row = stop

    def finish(self, identity: Identity) -> ZoneBatch:
        """The rest of the fragment, its nulls, and what the index keeps of it."""
        return self._piece(self._nulls.finish(), identity)

    def _piece(self, nulls: bytes | None, identity: Identity | None = None) -> ZoneBatch:
        n, size = len(self._first), self._blocks * BLOCK_BYTES
        first = np.array(self._first, np.uint64)
        length = np.array(self._last, np.uint64) + np.uint64(1) - first if n else first
        places = pa.py_buffer((np.arange(n + 1) * size).astype(np.int32))
        data = pa.Array.from_buffers(pa.binary(), n, [None, places, pa.py_buffer(self._words[:n])])
        columns = [pa.array(np.full(n, self._fragment, np.uint64)), pa.array(first), pa.array(length)]
        columns += [pa.array(self._has_null, pa.bool_()), data]
        zones = pa.RecordBatch.from_arrays(columns, schema=form.ZONE_SCHEMA)
        self._start()
        return ZoneBatch(self._column, self._fragment, zones, nulls, identity)


def _at(offsets: NDArray[np.int64] | int, row: int) -> int:
    return offsets + row if isinstance(offsets, int) else int(offsets[row])


def zone_batches_of(fragment: Fragment, columns: Sequence[Column], parameters: form.Parameters) -> Iterator[ZoneBatch]:
    """The zones of all columns of one fragment, in one pass over it. Raises FileError, RequestError."""
    makers = [ZoneMaker(i, fragment.number, parameters) for i in range(len(columns))]
    kept: list[Identity] = []
    for rows in fragment.rows(columns, kept):
        yield from makers[rows.column].add(rows.offsets, rows.values)
    for maker, identity in zip(makers, kept, strict=True):
        yield maker.finish(identity)


@dataclass(slots=True, repr=False)
class BuiltIndex(Result):
    """One index that was written: where, over which column, and how large."""

    path: str
    column: str
    type: str
    zones: int
    bytes: int


@dataclass(slots=True, repr=False)
class BuildReport(Result):
    """The report of `build_index`."""

    indexes: list[BuiltIndex] = field(default_factory=list)
    fragments: int = 0
    filter_bytes: int = 0
    seconds: float = 0.0

    def to_arrow(self) -> pa.Table:
        """A row an index."""
        return table_of(BuiltIndex, self.indexes)


def index_name(column: str) -> str:
    """The name of a column's index below the folder of indexes."""
    return f"{column.replace('/', '%2F')}/{form.FILE_NAME}"


def index_columns(columns: str | Sequence[str]) -> list[str]:
    """The columns of an index, as a caller names them. Raises RequestError for none."""
    names = column_names(columns, "columns")
    if not names:
        raise RequestError(parameter("columns") + " takes a name or a list of names, at least one")
    return names


def build_index(
    source: PathLike | Sequence[PathLike],
    columns: str | Sequence[str],
    output: PathLike,
    *,
    items: int = 8192,
    probability: float = 0.00057,
    overwrite: bool = False,
    sync: bool = True,
    threads: int | None = None,
    filesystem: Any = None,
    progress: ProgressCallback | None = None,
    **options: Unpack[ReadOptions],
) -> BuildReport:
    """Build a zone index over each column of Parquet files, or of a Lance data set.

    source       files, folders, globs, URIs; one table (delta:, iceberg:, ducklake:), whose live files are indexed; or
                 one Lance data set
    columns      one name or pattern, or a list
    output       folder; the index of `user.id` becomes `output/user.id/bloomfilter.lance`
    items        live rows a zone
    probability  false positive rate that the size of a zone's filter is chosen for
    overwrite    replace indexes that are there
    sync         wait until an index is on the disk before it gets its name
    threads      that read fragments side by side; default: one a processor
    filesystem   of pyarrow or fsspec; source then names Parquet files on it
    progress     is called with a Progress for every fragment
    options      see ReadOptions: raw_files; of a table catalog_properties, allow_roots

    Raises RefusedTypeError, UnknownColumnError, RequestError, FileError; TypeError for an option that there is not;
    TableFormatError for files of a table without raw_files. Nothing is left of an index that could not be finished.
    """
    refuse_unknown("build_index", options, ReadOptions)
    refuse_named(source, "give build_index the paths")
    begun = time.perf_counter()
    parameters = form.Parameters(items, probability)
    data = open_data(source_of(source, filesystem, options), index_columns(columns))
    report = BuildReport(fragments=len(data.fragments), filter_bytes=parameters.num_bytes)

    def work(fragment: Fragment) -> Iterator[ZoneBatch]:
        return zone_batches_of(fragment, data.columns, parameters)

    with closing(chain_results(work, data.fragments, threads or processors(), _PIECES_AHEAD)) as pieces:
        counted = _with_progress(pieces, data, progress)
        report.indexes = write_indexes(data, parameters, counted, output, overwrite, sync)
    report.seconds = time.perf_counter() - begun
    return report


def _with_progress(pieces: Iterable[ZoneBatch], data: Data, progress: ProgressCallback | None) -> Iterator[ZoneBatch]:
    """The pieces as they are; a fragment is finished with the last column's last piece."""
    meter = Meter(progress, [getattr(f, "data_file", f"fragment {f.number}") for f in data.fragments])
    for piece in pieces:
        yield piece
        if piece.nulls is not None and piece.column == len(data.columns) - 1:
            meter.finish()


def write_indexes(
    data: Data,
    parameters: form.Parameters,
    pieces: Iterable[ZoneBatch],
    output: PathLike,
    overwrite: bool = False,
    sync: bool = True,
) -> list[BuiltIndex]:
    """Join pieces, fragments in the order of `data`, to one file a column."""
    output = local_target(output)
    built = []
    kept: list[dict[int, Identity]] = [{} for _ in data.columns]
    with ExitStack() as stack:
        writers = []
        for column in data.columns:
            metadata = {**parameters.metadata, COLUMN: json.dumps(_description_of(data, column), ensure_ascii=False)}
            new = IndexFiles(output).new(index_name(column.name), overwrite, sync, by_name=True)
            writers.append(stack.enter_context(ZoneWriter(new, metadata)))
        for piece in pieces:
            if piece.zones.num_rows:
                writers[piece.column].write(piece.zones)
            if piece.nulls is not None:
                assert piece.identity is not None
                writers[piece.column].add_nulls(piece.fragment, piece.nulls)
                kept[piece.column][piece.fragment] = piece.identity
        for column, of_column in zip(data.columns, kept, strict=True):
            for fragment in data.fragments:
                if fragment.has_changed(column, of_column[fragment.number]):
                    raise StorageError(of_column[fragment.number]["path"], CHANGED)
        for column, writer, of_column in zip(data.columns, writers, kept, strict=True):
            fragments = [_located(f.number, of_column[f.number], column, output) for f in data.fragments]
            writer.commit({FRAGMENTS: json.dumps(fragments, ensure_ascii=False)})
            size = os.path.getsize(writer.path)
            built.append(BuiltIndex(writer.path, column.name, str(hashed_kind(column.kind)), writer.zones, size))
    return built


def _description_of(data: Data, column: Column) -> dict[str, str]:
    description = {"name": column.name, "type": str(hashed_kind(column.kind))}
    if data.lance is not None:
        description["dataset"] = os.path.abspath(data.lance.uri) if os.path.isdir(data.lance.uri) else data.lance.uri
    return description


def _located(number: int, identity: Identity, column: Column, output: PathLike) -> Identity:
    """The index's entry of a fragment; of a local file also its path relative to the index, as both may move."""
    identity = {"fragment": number, **identity}
    if os.path.isabs(identity["path"]):
        folder = os.path.dirname(os.path.abspath(os.path.join(output, index_name(column.name))))
        identity["relative"] = os.path.relpath(identity["path"], folder)
    return identity

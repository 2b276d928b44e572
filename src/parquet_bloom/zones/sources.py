"""The data of a zone index: fragments, numbered, each with rows in a fixed order.

    Parquet files   a fragment is a file, numbered in the order of `storage.paths.locate`
    a Lance data set   a fragment is a fragment, by its own number; deleted rows keep their places

What an index keeps of a fragment (Identity) is of the very bytes that were indexed, so that an index of other, or
changed, data is noticed.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from parquet_bloom.errors import (
    DamagedFileError,
    FilterFormatError,
    RefusedTypeError,
    RequestError,
    StaleIndexError,
    UnknownColumnError,
)
from parquet_bloom.filters.content import Content, Recording
from parquet_bloom.filters.decode import PYARROW_ERRORS, ColumnReader
from parquet_bloom.format import lance as form
from parquet_bloom.format.arrow_types import is_view
from parquet_bloom.format.footer import decode_footer, footer_length
from parquet_bloom.format.schema import Leaf, find_leaf, select_leaves
from parquet_bloom.options import PathLike, several
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.source.source import CallSource
from parquet_bloom.source.view import FileView
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile, check_text
from parquet_bloom.storage.stores import store_of
from parquet_bloom.storage.table_folders import RAW_FILES
from parquet_bloom.zones.reader import lance_errors, pylance

# --- files that are indexed -----------------------------------------------------------------------
#
# The Parquet files that an index is of: those that were named, or the live ones of a table.


def files_of(source: CallSource) -> tuple[Sequence[DataFile], frozenset[str]]:
    """The files, and columns whose values a table has in its log, whatever its files have.

    The first name among several that gives none is an error; see zones.sources.open_data.
    """
    found = source.resolve(refuses=RAW_FILES)
    found.raise_failed()
    if found.has_log:
        _check_names(found.snapshot)
    return found.files, found.snapshot.logged


def _check_names(snapshot: Snapshot) -> None:
    """Raise RequestError for a table that calls a column of some file otherwise: an index has the files' own names.

    Deleted rows may stay in an index: its zones then admit more than lives.
    """
    if not all(file.stored for file in snapshot.files):
        reason = "its catalog holds rows itself, and an index is of stored files"
        raise RequestError(f"{snapshot.table}: {reason}; flush them first (CALL ducklake_flush_inlined_data)")
    if not snapshot.files:
        raise RequestError(f"{snapshot.table}: has no files at version {snapshot.version}")
    for file in snapshot.files:
        with OpenFile(file) as source:
            schema = source.footer().metadata.schema
        if not FileView(snapshot, file, schema).same_names():
            reason = "has columns under other names than its table, and an index is of files' own columns"
            raise RequestError(f"{file}: {reason}; rewrite it through the table first")


# --- data of an index -----------------------------------------------------------------------------

BATCH_ROWS = 1 << 16

Identity = dict[str, Any]  # what an index keeps of a fragment, as JSON


@dataclass(frozen=True, slots=True)
class Column:
    """A column to index.

    leaf   as Parquet has it, or would have it: what predicates are bound to
    kind   its Arrow type, which decides what is hashed
    """

    leaf: Leaf
    kind: pa.DataType

    @property
    def name(self) -> str:
        """The path in the schema, components joined by dots."""
        return self.leaf.name


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of one column.

    offsets  int64[n], ascending: their places in the fragment; or the first of them, where none is missing
    values   Arrow array of what is hashed, nulls included
    """

    column: int
    offsets: NDArray[np.int64] | int
    values: pa.Array


class Fragment(Protocol):
    """A fragment; may be pickled and read by another process."""

    @property
    def number(self) -> int:
        """The number that zones name it by."""

    def rows(self, columns: Sequence[Column], kept: list[Identity] | None = None) -> Iterator[Rows]:
        """Read the columns, batch by batch, in the order of the rows.

        kept  gets, at the end, what an index over each column keeps to know the fragment again
        """

    def has_changed(self, column: Column, identity: Identity) -> bool:
        """Whether the fragment is seen to have changed since; costs little, and proves nothing."""


@dataclass(slots=True)
class Data:
    """The data to index, or the indexed data.

    columns   that were asked for
    fragments in their order
    lance     the data set; None for Parquet files
    """

    columns: list[Column]
    fragments: Sequence[Fragment]
    leaves: tuple[Leaf, ...]
    lance: Any = None
    kinds: dict[tuple[str, ...], pa.DataType] = field(default_factory=dict)


def is_lance(path: PathLike) -> bool:
    """Whether a name is that of a Lance data set: a folder with versions in it, or one called *.lance."""
    text = os.fspath(path).rstrip("/")
    return os.path.isdir(os.path.join(text, "_versions")) or (text.endswith(".lance") and not os.path.isfile(text))


def open_data(source: CallSource, columns: Sequence[str] | None = None) -> Data:
    """Find the fragments of Parquet files or of one Lance data set, and columns by name or pattern (None: no column).

    Raises UnknownColumnError, RefusedTypeError, RequestError, FileError; TableFormatError for files of a table that are
    not read through its log, without raw_files.
    """
    many = several(source.paths)
    named = [path for path in many if is_lance(path)]
    if not named:
        return _parquet_data(*files_of(source), columns)
    if len(many) > 1:
        raise RequestError(f"{named[0]} is a Lance data set; an index is of one data set, or of Parquet files")
    return _lance_data(os.fspath(named[0]), columns)


# --- Parquet --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ParquetFragment:
    """One Parquet file."""

    number: int
    data_file: DataFile

    def has_changed(self, column: Column, identity: Identity) -> bool:
        """By the token that was kept; where there is none by size and footer, which a rewritten file may share."""
        with OpenFile(self.data_file) as source:
            if "token" in identity:
                return not source.is_known_by(identity["token"])
            return any(identity[name] != value for name, value in fingerprint(source).items())

    def rows(self, columns: Sequence[Column], kept: list[Identity] | None = None) -> Iterator[Rows]:
        """Row group by row group, column by column; each column chunk is decoded once.

        kept  see `identity_of`
        Raises DamagedFileError; RequestError where a column has another type than it was given; where `kept` is a list
        ConflictError for a file that changes meanwhile, and RequestError for one whose name is no text.
        """
        if kept is not None:
            check_text(str(self.data_file), self.data_file)
        with OpenFile(self.data_file) as source:
            recording = Recording(source) if kept is not None else None
            arrow = arrow_schema(source)
            readers = []
            for column in columns:
                leaf = find_leaf(source.footer().leaves, column.leaf.path)
                kind = kind_of(leaf, arrow)
                if not _hash_alike(kind, column.kind):
                    raise RequestError(f"{source.path}: column {leaf.name} is {kind}, in the first file {column.kind}")
                readers.append((ColumnReader(source, leaf), form.conversion_of(leaf, kind)))
            starts = [0] * len(columns)
            for group in range(source.footer().n_row_groups):
                for i, (reader, native) in enumerate(readers):
                    with recording.decoding(reader.leaf, group) if recording is not None else nullcontext():
                        for batch in reader.batches(group):
                            try:
                                yield Rows(i, starts[i], native.array(batch))
                            except FilterFormatError as error:
                                raise DamagedFileError(source.path, f"column {reader.leaf.name}: {error}") from error
                            starts[i] += len(batch)
            if recording is not None and kept is not None:
                named = {**fingerprint(source), "path": absolute(self.data_file)}
                kept += [identity_of(recording.content(reader.leaf), named) for reader, _ in readers]


def hashed_kind(kind: pa.DataType) -> pa.DataType:
    """The type of the values themselves: of a dictionary's entries, of an extension's storage."""
    while isinstance(kind, pa.BaseExtensionType) or pa.types.is_dictionary(kind):
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind.storage_type
    return kind


def _hash_alike(one: pa.DataType, other: pa.DataType) -> bool:
    def plain(kind: pa.DataType) -> str:
        kind = hashed_kind(kind)
        if pa.types.is_timestamp(kind):
            return f"timestamp {kind.unit} {kind.tz is None}"
        return str(kind).removeprefix("large_").removesuffix("_view")

    return plain(one) == plain(other)


def identity_of(content: Content, named: Mapping[str, Any]) -> Identity:
    """The identity of a file in an index: its name, and the content of the indexed column.

    {path, size, footer_crc32, rows: [...], chunk_xxh3: [...]}, rows and hashes by row group; and the token, if any
    """
    known = {**named, "rows": list(content.rows), "chunk_xxh3": list(content.hashes)}
    return known if content.token is None else {**known, "token": content.token}


def content_of(identity: Identity) -> Content | None:
    """The content of a column that an index keeps; None in what older versions have built, with a CRC-32 or none."""
    if "chunk_xxh3" not in identity or "rows" not in identity:
        return None
    return Content(identity["rows"], identity["chunk_xxh3"], identity.get("token"))


def fingerprint(source: OpenFile) -> dict[str, Any]:
    """A file's size and the CRC-32 of its footer: for messages, as files of other values may have both in common."""
    start = source.footer().start
    return {"size": source.size, "footer_crc32": zlib.crc32(source.read(start, source.size - 8 - start))}


def absolute(found: DataFile) -> str:
    """The name of a file in any folder: a local path from the root, or a URI."""
    return store_of(found).names(found)[0]


def arrow_schema(source: OpenFile) -> pa.Schema:
    """As pyarrow reads the file. Raises DamagedFileError."""
    source.footer()  # some encrypted files must not reach pyarrow
    try:
        with source.arrow_file() as file:
            return pq.read_schema(file)
    except PYARROW_ERRORS as error:
        raise DamagedFileError(source.path, (str(error).splitlines() or ["no Arrow schema"])[0]) from error


def kind_of(leaf: Leaf, schema: pa.Schema) -> pa.DataType:
    """The Arrow type of a leaf that lies in structs at most. Raises RefusedTypeError."""
    if leaf.repeated:
        raise RefusedTypeError(f"column {leaf.name}: a list's elements are no rows; an index can be of flat columns")
    fields = list(schema)
    kind = None
    for part in leaf.path:
        kind = next((f.type for f in fields if f.name == part), None)
        if kind is None:
            raise RefusedTypeError(f"column {leaf.name}: pyarrow reads it under another name")
        fields = list(kind) if pa.types.is_struct(kind) else []
    return kind


def _parquet_data(found: Sequence[DataFile], logged: Collection[str], columns: Sequence[str] | None) -> Data:
    with OpenFile(found[0]) as source:
        leaves = tuple(leaf for leaf in source.footer().leaves if leaf.path[0] not in logged)
        arrow = arrow_schema(source)
    chosen = []
    try:
        named = select_leaves(leaves, columns or [], None)
    except UnknownColumnError as error:
        raise UnknownColumnError(f"{found[0]}: {error}") from error
    for leaf in named:
        kind = kind_of(leaf, arrow)
        form.conversion_of(leaf, kind)
        chosen.append(Column(leaf, kind))
    return Data(chosen, [ParquetFragment(i, one) for i, one in enumerate(found)], leaves)


# --- Lance ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LanceFragment:
    """One fragment of a Lance data set, at one version.

    opened  the data set, as opening it takes milliseconds; not pickled
    """

    uri: str
    version: int
    number: int
    opened: Any = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.uri, self.version, self.number)

    def _dataset(self) -> Any:
        return self.opened if self.opened is not None else pylance().dataset(self.uri, version=self.version)

    def has_changed(self, column: Column, identity: Identity) -> bool:
        """Never: this version of the data set stays what it is."""
        return False

    def rows(self, columns: Sequence[Column], kept: list[Identity] | None = None) -> Iterator[Rows]:
        """Live rows, batch by batch, all columns of one scan; `kept` as lance_identity has it.

        Raises DamagedFileError.
        """
        names = [column.name for column in columns]
        with lance_errors(self.uri):
            fragment = self._dataset().get_fragment(self.number)
            holes = fragment.num_deletions > 0
            scanner = fragment.scanner(columns=names, with_row_address=holes, batch_size=BATCH_ROWS)
            start = 0
            for batch in scanner.to_batches():
                offsets: NDArray[np.int64] | int = start
                if holes:
                    offsets = (batch.column("_rowaddr").to_numpy() & 0xFFFFFFFF).astype(np.int64)
                for i, name in enumerate(names):
                    yield Rows(i, offsets, batch.column(name))
                start += batch.num_rows
            if kept is not None:
                kept += [lance_identity(self._dataset(), fragment, name) for name in names]


def lance_identity(dataset: Any, fragment: Any, name: str) -> Identity:
    """The data files of a fragment that hold a column, their size, and the CRC-32 of their description.

    Other columns may come and go, and rows be deleted. No byte of the data files is compared: their names are
    random (UUIDs), and Lance never writes one again. This is as far as Lance's own indexes go, which know fragments by
    their numbers alone. A program that writes other bytes into such a file breaks Lance too.
    """
    field_id = _field_id(dataset, name)
    metadata = fragment.metadata
    files = [file for file in metadata.files if field_id in file.fields]
    overlays = [str(one) for one in getattr(metadata, "overlays", ())]
    description = json.dumps([[file.path, list(file.fields), list(file.column_indices)] for file in files] + overlays)
    return {
        "fragment": fragment.fragment_id,
        "path": " ".join(file.path for file in files),
        "size": sum(file.file_size_bytes or 0 for file in files),
        "footer_crc32": zlib.crc32(description.encode()),
    }


def _field_id(dataset: Any, name: str) -> int:
    fields = dataset.lance_schema.fields()
    found = None
    for part in name.split("."):
        found = next((one for one in fields if one.name() == part), None)
        if found is None:
            raise StaleIndexError(dataset.uri, f"has no column {name}")
        fields = found.children()
    return int(found.id()) if found is not None else -1


def _lance_data(uri: str, columns: Sequence[str] | None) -> Data:
    with lance_errors(uri):
        dataset = pylance().dataset(uri)
        schema = dataset.schema
        fragments = [LanceFragment(uri, dataset.version, int(f.fragment_id), dataset) for f in dataset.get_fragments()]
    leaves, kinds = leaves_of_arrow(schema)
    chosen = []
    for leaf in select_leaves(leaves, columns or [], None):
        kind = kind_of(leaf, schema)
        why = form.refusal(kind)
        if why is not None:
            raise RefusedTypeError(f"column {leaf.name}: {why}")
        chosen.append(Column(leaf, kind))
    return Data(chosen, sorted(fragments, key=lambda f: f.number), leaves, dataset, kinds)


def leaves_of_arrow(schema: pa.Schema) -> tuple[tuple[Leaf, ...], dict[tuple[str, ...], pa.DataType]]:
    """The leaves that an Arrow schema has in Parquet, by pyarrow's own mapping; what it cannot write is bytes."""
    fields = [_writable(one) for one in schema]
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, pa.schema(fields), store_schema=False).close()
    data = sink.getvalue().to_pybytes()
    length = footer_length(data[-8:], len(data))
    leaves = decode_footer(data[-8 - length : -8], 0).leaves
    kinds = {leaf.path: kind_of(leaf, schema) for leaf in leaves if not leaf.repeated}
    return leaves, kinds


def _writable(one: pa.Field) -> pa.Field:
    if is_view(one.type):
        return one.with_type(pa.string() if pa.types.is_string_view(one.type) else pa.binary())
    try:
        pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([one]), store_schema=False).close()
    except (pa.ArrowException, NotImplementedError):
        return one.with_type(pa.binary())
    return one

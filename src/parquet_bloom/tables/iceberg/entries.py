"""The files that a snapshot's manifests name: data files, and files that say which rows of them are deleted.

pyiceberg's own reading stops at the fields of format version 2; version 3 adds to delete files which data file a vector
is of, and where it lies in its file.

Source: Iceberg table spec, "Manifests", "Sequence Number Inheritance".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, TypeVar

from pyarrow.fs import LocalFileSystem
from pyiceberg.avro.decoder import BinaryDecoder, StreamingBinaryDecoder, new_decoder
from pyiceberg.avro.file import SYNC_SIZE, AvroFile, Block
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import StructProtocol

from parquet_bloom.errors import TableFormatError
from parquet_bloom.storage.remote import side_by_side

# --- Avro files -----------------------------------------------------------------------------------
#
# Avro files of an Iceberg log, whose lengths may be lies: no read leaves the bytes of its block.
#
# pyiceberg 0.12's compiled decoder looks at no length: a text that claims more bytes than there are shows what lies
# behind them in memory, or ends the process. It decodes numbers here, with zeros behind the bytes, at which each of
# its reads ends; texts and bytes are sliced. Doubles are read by Python, as the compiled decoder makes them floats.
#
# Source: Apache Avro's specification, "Binary Encoding" and "Object Container Files".

_PADDING = bytes(16)  # no number is longer than 10 bytes
D = TypeVar("D", bound=StructProtocol)


class BoundedDecoder(BinaryDecoder):
    """Decodes bytes, and nothing behind them.

    Raises EOFError for a number, and ValueError for a text or bytes that end behind them.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._length = data, len(data)
        self._inner = new_decoder(data + _PADDING)
        self._int, self._tell, self._skip = self._inner.read_int, self._inner.tell, self._inner.skip

    def tell(self) -> int:
        """How many bytes were read."""
        return self._tell()

    def read(self, n: int) -> bytes:
        """The next n bytes."""
        at = self._tell()
        if not 0 <= n <= self._length - at:
            raise ValueError(f"a value claims {n:,} bytes, of {self._length - at:,} that are left")
        self._skip(n)
        return self._data[at : at + n]

    def read_int(self) -> int:
        """A number."""
        value = self._int()
        if self._tell() > self._length:
            raise EOFError("a number ends behind the bytes that hold it")
        return value

    def read_ints(self, count: int) -> tuple[int, ...]:
        """Several numbers."""
        return tuple(self.read_int() for _ in range(count))

    def read_int_bytes_dict(self, count: int, dest: dict[int, bytes]) -> None:
        """Several pairs of a number and bytes."""
        for _ in range(count):
            key = self.read_int()
            dest[key] = self.read_bytes()

    def read_bytes(self) -> bytes:
        """Bytes, with their length before them."""
        return self.read(self.read_int())

    def read_utf8(self) -> str:
        """A text."""
        return self.read_bytes().decode()

    def read_boolean(self) -> bool:
        """A byte, which is 1 for true."""
        return self.read(1) == b"\1"

    def read_float(self) -> float:
        """A number of 4 bytes."""
        return StreamingBinaryDecoder(self.read(4)).read_float()

    def read_double(self) -> float:
        """A number of 8 bytes."""
        return StreamingBinaryDecoder(self.read(8)).read_double()

    def skip(self, n: int) -> None:
        """Pass over n bytes."""
        self.read(n)

    def skip_int(self) -> None:
        """Pass over a number."""
        self.read_int()

    def skip_boolean(self) -> None:
        """Pass over one byte."""
        self.read(1)

    def skip_float(self) -> None:
        """Pass over 4 bytes."""
        self.read(4)

    def skip_double(self) -> None:
        """Pass over 8 bytes."""
        self.read(8)

    def skip_bytes(self) -> None:
        """Pass over bytes, with their length before them."""
        self.read_bytes()

    def skip_utf8(self) -> None:
        """Pass over a text."""
        self.read_bytes()


class BoundedFile(AvroFile[D]):
    """An Avro file that is read by this decoder."""

    def __enter__(self) -> BoundedFile[D]:
        with self.input_file.open() as stream:
            data = stream.read()
        self.decoder = BoundedDecoder(data)
        self.header = self._read_header()
        self.schema = self.header.get_schema()
        self.read_schema = self.read_schema or self.schema
        self.reader = resolve_reader(self.schema, self.read_schema, self.read_types, self.read_enums)
        return self

    def _read_block(self) -> int:
        if self.block and self.decoder.read(SYNC_SIZE) != self.header.sync:
            raise ValueError("a block does not end with the file's sync marker")
        records = self.decoder.read_int()
        data: Any = self.decoder.read_bytes()
        if codec := self.header.compression_codec():
            data = codec.decompress(data)
        if not 0 <= records <= len(data):
            raise ValueError(f"a block claims {records:,} records in {len(data):,} bytes")
        self.block = Block(reader=self.reader, block_records=records, block_decoder=BoundedDecoder(data))
        return records


# --- entries of manifests -------------------------------------------------------------------------

_REFERENCED, _OFFSET, _SIZE = 17, 18, 19  # positions in a DataFile of format version 3

PartitionKey = tuple[int, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A live file of a snapshot.

    record     pyiceberg's own, with sequence numbers and spec id inherited
    manifest   the path of the manifest that names it
    partition  (spec id, values), floats as bytes: NaN is then one partition, and the zeros are two
    referenced the data file that all deletes in it are of; None where that is not said
    offset, length  where a deletion vector lies in its file
    """

    record: ManifestEntry
    manifest: str
    partition: PartitionKey
    referenced: str | None = None
    offset: int | None = None
    length: int | None = None

    @property
    def file(self) -> DataFile:
        """The file itself: its path, its size, its statistics."""
        return self.record.data_file

    @property
    def path(self) -> str:
        """Its path as the log has it."""
        return self.record.data_file.file_path

    @property
    def sequence(self) -> int:
        """Its data sequence number; 0 in tables of format version 1."""
        return self.record.sequence_number or 0

    @property
    def is_vector(self) -> bool:
        """Whether it is a deletion vector."""
        return self.file.file_format == FileFormat.PUFFIN


@dataclass(frozen=True, slots=True)
class Entries:
    """The live files of a snapshot, in the order of its manifests."""

    data: list[Entry]
    position_deletes: list[Entry]
    equality_deletes: list[Entry]


def read_manifests(manifests: Sequence[ManifestFile], io: FileIO, table: str) -> Entries:
    """Read all manifests of a snapshot. Raises TableFormatError for what this version does not know."""
    found = Entries([], [], [])
    kinds = {
        DataFileContent.DATA: found.data,
        DataFileContent.POSITION_DELETES: found.position_deletes,
        DataFileContent.EQUALITY_DELETES: found.equality_deletes,
    }
    if any(manifest.key_metadata for manifest in manifests):
        raise TableFormatError(table, "has encrypted manifests, which cannot be read")
    for entries in side_by_side(lambda manifest: list(entries_of(manifest, io)), manifests):
        for entry in entries:
            kinds[entry.file.content].append(entry)
    return found


def manifests_of(snapshot: Snapshot, io: FileIO) -> list[ManifestFile]:
    """The manifests of a snapshot. Raises TableFormatError where their list is cut off."""
    source = AvroBytes.read(io, snapshot.manifest_list)
    kinds: dict[str, Any] = {"read_types": _LISTED, "read_enums": {517: ManifestContent}}
    with BoundedFile[ManifestFile](source, MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION], **kinds) as reader:
        source.check(reader)
        found = list(reader)
    files = snapshot.summary["total-data-files"] if snapshot.summary else None
    if not found and files not in (None, "0"):
        raise TableFormatError(
            snapshot.manifest_list, f"is empty, where the snapshot says {files} data files; restore it"
        )
    return found


def entries_of(manifest: ManifestFile, io: FileIO) -> Iterator[Entry]:
    """The live files that one manifest names, with what they inherit. Raises TableFormatError if it is cut off."""
    source = AvroBytes.read(io, manifest.manifest_path)
    with BoundedFile[ManifestEntry](
        source, MANIFEST_ENTRY_SCHEMAS[3], read_types=_RECORDS, read_enums=_ENUMS
    ) as reader:
        source.check(reader)
        records = list(reader)
    told = [manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count]
    if len(records) < sum(count or 0 for count in told):
        raise TableFormatError(manifest.manifest_path, "has fewer entries than its list says; restore it")
    for record in records:
        if record.status != ManifestEntryStatus.DELETED:
            _inherit(record, manifest)
            more = record.data_file._data
            yield Entry(
                record, manifest.manifest_path, _partition(record), more[_REFERENCED], more[_OFFSET], more[_SIZE]
            )


_RECORDS: dict[int, Any] = {-1: ManifestEntry, 2: DataFile}
_LISTED: dict[int, Any] = {-1: ManifestFile, 508: PartitionFieldSummary}
_ENUMS: dict[int, Any] = {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent}


class AvroBytes(PyArrowFile):
    """An Avro file, read once, as a whole: pyiceberg 0.12 takes a file that is cut off for a complete one."""

    def __init__(self, path: str, data: bytes) -> None:
        self._data = data
        super().__init__(path, path, LocalFileSystem())

    @classmethod
    def read(cls, io: FileIO, path: str) -> AvroBytes:
        """Raises as a table's `io` does."""
        with io.new_input(path).open() as stream:
            return cls(path, stream.read())

    def open(self, seekable: bool = True) -> Any:
        """The bytes, as an open file."""
        return BytesIO(self._data)

    def check(self, reader: AvroFile[Any]) -> None:
        """Raise TableFormatError where the file does not end as each of its blocks does."""
        if not self._data.endswith(reader.header.sync):
            raise TableFormatError(self.location, "is cut off; restore it, as it names files of the table")


def _inherit(record: ManifestEntry, manifest: ManifestFile) -> None:
    """Fill in what is not written in an entry: that of the commit which added it, and 0 in format version 1."""
    inherits = record.status == ManifestEntryStatus.ADDED or manifest.sequence_number == 0
    if record.snapshot_id is None and manifest.added_snapshot_id is not None:
        record.snapshot_id = manifest.added_snapshot_id
    if record.sequence_number is None and inherits:
        record.sequence_number = manifest.sequence_number
    if record.file_sequence_number is None and inherits:
        record.file_sequence_number = manifest.sequence_number
    record.data_file.spec_id = manifest.partition_spec_id


def _partition(record: ManifestEntry) -> PartitionKey:
    values = (struct.pack("<d", v) if isinstance(v, float) else v for v in record.data_file.partition._data)
    return record.data_file.spec_id, tuple(values)

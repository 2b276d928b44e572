"""Avro files of an Iceberg log, whose lengths may be lies: no read leaves the bytes of its block.

pyiceberg 0.12's compiled decoder looks at no length: a text that claims more bytes than there are shows what lies
behind them in memory, or ends the process. It decodes numbers here, with zeros behind the bytes, at which each of its
reads ends; texts and bytes are sliced. Doubles are read by Python, as the compiled decoder makes them floats.

Source: Apache Avro's specification, "Binary Encoding" and "Object Container Files".
"""

from __future__ import annotations

from typing import Any, TypeVar

from pyiceberg.avro.decoder import BinaryDecoder, StreamingBinaryDecoder, new_decoder
from pyiceberg.avro.file import SYNC_SIZE, AvroFile, Block
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.typedef import StructProtocol

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

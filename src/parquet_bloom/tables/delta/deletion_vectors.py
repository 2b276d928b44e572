"""The deleted rows of one file of a Delta table: where its deletion vector lies, and what it says.

    i  in the log itself, Z85
    u  in deletion_vector_UUID.bin of the table's folder, or of a folder in it: "ab" + 20 characters of Z85 is ab/...
    p  in a file with an absolute path

Whatever is in doubt is an error: rows of which nobody knows whether they live are never shown. Source: the Delta
protocol, "Deletion Vectors".
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.errors import DamagedFileError, FilterFormatError
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.source import Source
from parquet_bloom.tables.deletion_vector import AROUND, framed, positions
from parquet_bloom.tables.delta.actions import Vector
from parquet_bloom.tables.delta.log_files import TableFolder

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS = {character: i for i, character in enumerate(_Z85)}
_UUID = 20  # characters of a UUID in Z85
_VERSION = b"\1"  # of files of vectors


@dataclass(frozen=True, slots=True)
class VectorDeletes:
    """A file's deletes, read when somebody asks; tables.snapshot.Deletes.

    file    whose rows they are
    stored  rows of that file; None: not known
    """

    folder: TableFolder
    vector: Vector
    file: Location
    stored: int | None

    @property
    def rows(self) -> int:
        """How many rows are deleted, as the log says."""
        return self.vector.rows

    def positions(self) -> NDArray[np.int64]:
        """Their positions: int64[n]. Raises StorageError, DamagedFileError where vector, log and file do not agree."""
        try:
            found = positions(self._bytes(), self.vector.rows)
        except FilterFormatError as error:
            reason = "nobody can tell which of its rows are deleted: " + error.message
            raise DamagedFileError(self.file, reason) from error
        if len(found) and self.stored is not None and int(found[-1]) >= self.stored:
            reason = f"its deletion vector deletes row {int(found[-1])} of {self.stored}"
            raise DamagedFileError(self.file, reason)
        return found

    def _bytes(self) -> bytes:
        vector = self.vector
        if vector.kind == "i":
            data = decode_z85(vector.text)
            if not 0 <= len(data) - vector.size < 4:
                raise FilterFormatError(
                    f"the log holds {len(data)} bytes of a deletion vector, and tells {vector.size}"
                )
            return data[: vector.size]
        if vector.offset is None or vector.offset < 1 or vector.size < 0:
            raise FilterFormatError("the log does not tell where in its file the deletion vector lies")
        with Source(self.place()) as source:
            if vector.offset + vector.size + AROUND > source.size:
                raise FilterFormatError(
                    f"the log has {vector.size} bytes of its deletion vector at {vector.offset} of {source.size}"
                )
            first, data = source.read_ranges([(0, 1), (vector.offset, vector.size + AROUND)])
        if first != _VERSION:
            raise FilterFormatError(f"the file of its deletion vector is of version {first[0]}; this one knows 1")
        return framed(data)

    def place(self) -> Location:
        """The file that the vector lies in. Raises FilterFormatError for a kind that is not known."""
        text = self.vector.text
        if self.vector.kind == "p":
            return self.folder.checked(text)
        if self.vector.kind != "u" or len(text) < _UUID:
            raise FilterFormatError(
                f"its deletion vector is stored as {self.vector.kind!r} {text!r}, which is not known"
            )
        name = f"deletion_vector_{uuid.UUID(bytes=decode_z85(text[-_UUID:]))}.bin"
        prefix = text[:-_UUID]
        return self.folder.checked(quote(f"{prefix}/{name}" if prefix else name))


def decode_z85(text: str) -> bytes:
    """Bytes of a text, 4 of each 5 characters (ZeroMQ RFC 32). Raises FilterFormatError."""
    if len(text) % 5:
        raise FilterFormatError(f"{len(text)} characters are no Z85")
    parts = []
    for at in range(0, len(text), 5):
        number = 0
        for character in text[at : at + 5]:
            if character not in _DIGITS:
                raise FilterFormatError(f"{character!r} is no character of Z85")
            number = number * 85 + _DIGITS[character]
        if number >> 32:
            raise FilterFormatError(f"{text[at : at + 5]!r} is more than 4 bytes of Z85")
        parts.append(number.to_bytes(4, "big"))
    return b"".join(parts)

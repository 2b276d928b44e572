"""A remote file as pyarrow reads it: blocks ahead of it are fetched while it decodes one.

pyarrow reads a column chunk from its start to its end in pieces of a megabyte. Here each piece
comes from a block that was requested some blocks earlier:

    chunk   [block 0][block 1][block 2][block 3][block 4]...
             decoding   ^ requested, side by side   ^ not yet
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parquet_bloom.storage.remote import submit

_BLOCK, _AHEAD = 4 << 20, 3  # at most 16 MiB a reader


class FileObject:
    """The position of a binary file object of `size` bytes, for pyarrow.PythonFile."""

    def __init__(self, size: int) -> None:
        self._size, self._at, self.closed = size, 0, False

    def readable(self) -> bool:
        """Always True, as io.RawIOBase has it."""
        return True

    def seekable(self) -> bool:
        """Always True, as io.RawIOBase has it."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to an offset; nothing is read."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        """The offset of the next byte."""
        return self._at


class ReadAhead(FileObject):
    """A binary file object over `read(offset, length)`.

    span  the bytes that will be read in order, start and end; others are read as they are asked for
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int, span: tuple[int, int] | None) -> None:
        super().__init__(size)
        self._read = read
        self._start, self._stop = (max(0, span[0]), min(span[1], size)) if span else (0, 0)
        self._blocks: dict[int, Any] = {}  # futures of bytes

    def read(self, length: int = -1) -> bytes:
        """Read so many bytes, or all that remain; fewer at the end of the file."""
        left = self._size - self._at
        length = max(0, left if length < 0 else min(length, left))
        inside = self._start <= self._at and self._at + length <= self._stop
        data = self._from_blocks(self._at, length) if inside and length else self._read(self._at, length)
        self._at += len(data)
        return data

    def _from_blocks(self, offset: int, length: int) -> bytes:
        first, last = (offset - self._start) // _BLOCK, (offset + length - 1 - self._start) // _BLOCK
        for old in [block for block in self._blocks if block < first]:
            self._blocks.pop(old).cancel()
        for block in range(first, last + 1 + _AHEAD):
            start = self._start + block * _BLOCK
            if start < self._stop and block not in self._blocks:
                self._blocks[block] = submit(self._read, start, min(_BLOCK, self._stop - start))
        data = b"".join(self._blocks[block].result() for block in range(first, last + 1))
        skip = offset - self._start - first * _BLOCK
        return data if skip == 0 and len(data) == length else data[skip : skip + length]

    def close(self) -> None:
        """Give up what is being fetched."""
        self.closed = True
        for future in self._blocks.values():
            future.cancel()
        self._blocks = {}

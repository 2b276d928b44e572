"""Byte ranges of one file, local or on any pyarrow file system, and what reading them cost.

Only this module and files.commit open anything. No memory map: another program may truncate the
file while we look at it, and that must be an error, not a crash.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from parquet_bloom.errors import (
    DamagedFileError,
    EncryptedFileError,
    EncryptedFooterError,
    FooterError,
    NotParquetError,
    StorageError,
)  # fmt: skip
from parquet_bloom.formats.footer import MAGIC, TAIL_BYTES, Footer, decode_footer, footer_length
from parquet_bloom.formats.outline import Outline, decode_outline

_TAIL_GUESS = 64 << 10  # most footers are shorter; then one request brings all of it
# Ranges that lie closer are read at once. A local read costs a microsecond, a remote one many.
_LOCAL_GAP, _REMOTE_GAP = 64, 64 << 10

PathLike = str | os.PathLike[str]


def storage_error(path: object, error: OSError) -> StorageError:
    """Say what the operating system said, in one line that names the file."""
    return StorageError(path, error.strerror or str(error).splitlines()[0] or type(error).__name__)


class Source:
    """A file that is open for reading.

    requests, bytes_read  what has been asked of the storage since it was opened
    fd                    the descriptor of a local file, else None
    """

    def __init__(self, path: PathLike, filesystem: Any = None) -> None:
        self.path = os.fspath(path)
        self.requests = 0
        self.bytes_read = 0
        self.fd: int | None = None
        self._file: Any = None
        self._filesystem = filesystem
        self.store = None if filesystem is None else id(filesystem)
        self._footer: Footer | None = None
        self._outline: Outline | None = None
        self._tail: tuple[bytes, int] | None = None
        try:
            if filesystem is None:
                # A pipe would make us wait for its other end.
                self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                self._opened = os.fstat(self.fd)
                if not stat.S_ISREG(self._opened.st_mode):
                    raise StorageError(self.path, "is not a regular file")
                self.size = self._opened.st_size
            else:
                self._file = filesystem.open_input_file(self.path)
                self.size = self._file.size()
        except StorageError:
            self.close()
            raise
        except OSError as error:
            self.close()
            raise storage_error(self.path, error) from error

    def arrow_file(self) -> Any:
        """Open the same file once more, for pyarrow: the very file, whatever its path names by now.

        pyarrow would take "~" and "s3:" in a path for more than a name.
        """
        import pyarrow as pa

        if self.fd is None:
            return self._filesystem.open_input_file(self.path)
        same = f"/proc/self/fd/{self.fd}"
        return pa.OSFile(same if os.path.exists(same) else os.path.abspath(self.path), "r")

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def check_unchanged(self) -> None:
        """Raise StorageError if a local file is no longer the one, or not as, it was when opened."""
        now = os.stat(self.path)
        if (now.st_ino, now.st_dev, now.st_size, now.st_mtime_ns) != (
            self._opened.st_ino, self._opened.st_dev, self._opened.st_size, self._opened.st_mtime_ns,
        ):  # fmt: skip
            raise StorageError(self.path, "was changed by another program meanwhile; nothing was written")

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly `length` bytes at `offset`.

        Raises DamagedFileError where the file has fewer, StorageError for the system's errors.
        """
        if offset < 0 or length < 0 or offset + length > self.size:
            raise DamagedFileError(self.path, f"bytes {offset} to {offset + length} lie outside its {self.size}")
        self.requests += 1
        self.bytes_read += length
        parts: list[bytes] = []
        at, left = offset, length
        try:
            while left:
                part = os.pread(self.fd, left, at) if self.fd is not None else self._file.read_at(left, at)
                if not part:
                    raise DamagedFileError(self.path, f"ends at byte {at}, it had {self.size} when it was opened")
                parts.append(part)
                at, left = at + len(part), left - len(part)
        except OSError as error:
            raise storage_error(self.path, error) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def count(self, requests: int, bytes_read: int) -> None:
        """Count what was read of this file by other ways than `read`."""
        self.requests += requests
        self.bytes_read += bytes_read

    def read_up_to(self, offset: int, length: int) -> bytes:
        """Read `length` bytes at `offset`, or as many as there are before the file's end."""
        return self.read(offset, max(0, min(length, self.size - offset)))

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read (offset, length) ranges, those that lie close together in one request."""
        answers: dict[tuple[int, int], bytes] = {}
        gap = _LOCAL_GAP if self.fd is not None else _REMOTE_GAP
        group: list[tuple[int, int]] = []
        for wanted in [*sorted(set(ranges)), None]:
            if group and (wanted is None or wanted[0] > max(o + n for o, n in group) + gap):
                start, stop = group[0][0], max(o + n for o, n in group)
                data = self.read(start, stop - start)
                answers.update(((o, n), data[o - start : o - start + n]) for o, n in group)
                group = []
            if wanted is not None:
                group.append(wanted)
        return [answers[wanted] for wanted in ranges]

    def footer(self) -> Footer:
        """Read and decode the footer, once. Raises NotParquetError, DamagedFileError, EncryptedFileError."""
        if self._footer is None:
            self._footer = self._read_footer()
        return self._footer

    @property
    def stamp(self) -> tuple[int, ...] | None:
        """What changes when a local file is replaced or written to; None where that cannot be told."""
        if self.fd is None:
            return None
        now = self._opened
        return now.st_size, now.st_mtime_ns, now.st_ino, now.st_dev

    def adopt(self, outline: Outline) -> None:
        """Take an outline that was read before from a file of the same stamp."""
        self._outline = outline

    def outline(self) -> Outline:
        """Read the footer, once, as what deciding about row groups needs of it. Raises as `footer`."""
        if self._outline is None:
            with self._footer_errors():
                self._outline = decode_outline(*self._footer_bytes())
        return self._outline

    def _read_footer(self) -> Footer:
        with self._footer_errors():
            return decode_footer(*self._footer_bytes())

    def _footer_bytes(self) -> tuple[bytes, int]:
        if self._tail is None:
            tail = self.read(max(0, self.size - _TAIL_GUESS), min(self.size, _TAIL_GUESS))
            try:
                length = footer_length(tail, self.size)
            except EncryptedFooterError:
                raise
            except FooterError as error:
                # The magic is right and the length is not: damage. Without the magic: something else.
                kind = DamagedFileError if tail[-4:] == MAGIC and self.size >= 12 else NotParquetError
                raise kind(self.path, str(error)) from error
            start = self.size - TAIL_BYTES - length
            held = len(tail) - TAIL_BYTES
            data = tail[held - length : held] if length <= held else self.read(start, length)
            self._tail = data, start
        return self._tail

    @contextmanager
    def _footer_errors(self) -> Iterator[None]:
        try:
            yield
        except EncryptedFooterError as error:
            raise EncryptedFileError(self.path, f"{error}; encrypted files are not supported") from error
        except FooterError as error:
            raise DamagedFileError(self.path, str(error)) from error

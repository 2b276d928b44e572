"""Files that are open together, many at a time, with the last bytes of each in one buffer.

    buffer   [tail of file 0][tail of file 1]...      a file of TAIL_BYTES or less is there as a whole

For verdicts on many files, search.together: it expects sound files. Whatever else a file is, nothing is found out here
about why: `open` and `outline` give None, and the caller opens that file alone, as an OpenFile, which says what it is.

Tails opens local files, and reads more of them where the buffer ends. FarTails has files of other storages whose tails
are there: each is an OpenFile, which goes on alone where its tail is not enough.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.errors import DamagedFileError, FooterError, ParquetBloomError
from parquet_bloom.format.footer import MAGIC, TAIL_BYTES, footer_length
from parquet_bloom.format.outline import Outline
from parquet_bloom.storage.open_file import TAIL_GUESS, OpenFile, decode_outline
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.store import open_regular
from parquet_bloom.storage.version_token import Kept, LocalToken

SUPPORTED = hasattr(os, "preadv")
# Filters and footers of small files lie in so many bytes. What is read for nothing costs more than one more read.
_FIRST_GUESS = 16 << 10


def most_open() -> int:
    """How many files may be open together: not many of the descriptors that this process may have."""
    try:
        import resource  # for those alone who have several files
    except ImportError:  # Windows
        return _MOST
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else max(1, min(_MOST, soft // 8))


_MOST = 256


class TailFile:
    """An open local file. Like an OpenFile it has what FooterCache needs.

    found    its stat when it was opened; size, its bytes by that
    number   among the files that are open together
    kept_at  where its bytes in the buffer begin, bytes from the start of the file; its size: there are none
    """

    is_of_one_version = False

    def __init__(self, tails: Tails, data_file: DataFile, fd: int, found: os.stat_result, number: int) -> None:
        self._tails, self.data_file, self.fd, self.found, self.number = tails, data_file, fd, found, number
        self.path = str(data_file)
        self.size = self.kept_at = found.st_size
        self.requests = self.bytes_read = 0
        self._outline: Outline | None = None
        self._footer: tuple[bytes, int] | None = None

    @property
    def location(self) -> DataFile:
        """As OpenFile has it."""
        return self.data_file

    @property
    def version_token(self) -> LocalToken:
        """As OpenFile has it."""
        return LocalToken.of(self.found)

    @property
    def is_cut(self) -> bool:
        """As OpenFile has it."""
        return os.fstat(self.fd).st_size > self.size

    @property
    def is_pinned(self) -> bool:
        """Whether it is the file that its source has seen before, if it holds its files to that."""
        pins = self.data_file.pins
        if pins is None:
            return True
        token = self.version_token
        before: Any = pins.get(self.path)
        if before is None:
            facts: Kept | None
            try:
                facts = token.facts(self.fd)
            except OSError:
                facts = None
            before = pins.setdefault(self.path, (token, facts))
        return bool(before[0] == token)

    def is_unchanged(self, by_token: bool) -> bool:
        """Whether what was read of it until now is of the file as it was opened."""
        now, then = os.fstat(self.fd), self.found  # the descriptor's: inode and device stay
        return (now.st_size, now.st_ctime_ns, now.st_mtime_ns) == (then.st_size, then.st_ctime_ns, then.st_mtime_ns)

    def outline(self) -> Outline:
        """Read the footer. Raises ParquetBloomError, OSError: what is wrong, OpenFile says."""
        if self._outline is None:
            self._outline = decode_outline(*self.footer())
        return self._outline

    def adopt(self, outline: Outline) -> None:
        """As OpenFile has it."""
        self._outline = outline

    def footer(self) -> tuple[bytes, int]:
        """Read the footer's bytes, once, and where they start. Raises as `outline`."""
        if self._footer is None:
            self._footer = self._read_footer()
        return self._footer

    def _read_footer(self) -> tuple[bytes, int]:
        tail = self._tails.fill(self) if self.kept_at == self.size else self._tails.kept(self)
        length = footer_length(bytes(tail[-TAIL_BYTES:]), self.size)
        start = self.size - TAIL_BYTES - length
        if length <= len(tail) - TAIL_BYTES:
            return bytes(tail[len(tail) - TAIL_BYTES - length : len(tail) - TAIL_BYTES]), start
        self._tails.guess = min(TAIL_GUESS, max(self._tails.guess, 2 * length))
        self.requests += 1
        self.bytes_read += length
        data = os.pread(self.fd, length, start)
        if len(data) != length:
            raise FooterError("the file is shorter by now")
        return data, start


class Tails:
    """Files that are open together. One buffer serves one set of files after the other.

    most   so many may be open
    guess  bytes that are read of the end of the next file; more once a footer was longer
    """

    reads_more = True

    def __init__(self, most: int) -> None:
        self.guess = _FIRST_GUESS
        self.buffer = np.empty(most * TAIL_GUESS, np.uint8)
        self._view = memoryview(self.buffer)  # type: ignore[arg-type]
        self.files: list[TailFile] = []

    def open(self, data_file: DataFile) -> TailFile | None:
        """Open a file; None for what is no sound local file."""
        try:
            fd, found = open_regular(data_file.path)
        except (OSError, ValueError, ParquetBloomError):
            return None
        self.files.append(TailFile(self, data_file, fd, found, len(self.files)))
        return self.files[-1]

    def close(self) -> None:
        """Close all files."""
        files, self.files = self.files, []
        for file in files:
            try:  # `suppress` costs as much as the call
                os.close(file.fd)
            except OSError:
                continue

    def footers(self) -> list[tuple[memoryview, int] | None]:
        """Read the last bytes of all files: their footers, as `footer` of each has them.

        None for a file without one. The views are of the buffer, and good until it is filled anew.
        """
        filled: list[tuple[int, int, int]] = []
        found: list[tuple[memoryview, int] | None] = [None] * len(self.files)
        for file in self.files:
            try:
                self.fill(file)
            except (FooterError, OSError):
                continue
            if file.size >= len(MAGIC) + TAIL_BYTES:
                filled.append((file.number, file.size, file.size - file.kept_at))
        number, size, kept = np.array(filled, np.int64).reshape(-1, 3).T
        stop = number * TAIL_GUESS + kept - TAIL_BYTES
        last = self.buffer[stop[:, None] + np.arange(TAIL_BYTES)]
        length = last[:, :4].copy().view("<u4")[:, 0].astype(np.int64)
        usual = (last[:, 4:] == np.frombuffer(MAGIC, np.uint8)).all(axis=1)
        usual &= (length <= kept - TAIL_BYTES) & (length <= size - TAIL_BYTES - len(MAGIC))
        places = np.array([number, stop - length, stop, size - TAIL_BYTES - length])
        for i, begin, end, start in places[:, usual].T.tolist():
            found[i] = self._view[begin:end], start
        for file in self.files:
            if found[file.number] is None:
                with suppress(ParquetBloomError, OSError):
                    data, start = file.footer()
                    found[file.number] = memoryview(data), start
        return found

    def kept(self, file: TailFile) -> memoryview:
        """The last bytes of a file, as far as they were read."""
        return self._view[file.number * TAIL_GUESS : file.number * TAIL_GUESS + file.size - file.kept_at]

    def fill(self, file: TailFile) -> memoryview:
        """Read a file's last bytes into the buffer. Raises FooterError where it is shorter by now, OSError."""
        length = min(file.size, self.guess)
        tail = self._view[file.number * TAIL_GUESS : file.number * TAIL_GUESS + length]
        file.requests += 1
        file.bytes_read += length
        if os.preadv(file.fd, [tail], file.size - length) != length:
            raise FooterError("the file is shorter by now")
        file.kept_at = file.size - length
        return tail

    def read(self, number: int, offset: int, length: int) -> bytes:
        """Read a range of one file. Raises DamagedFileError where the file ends before, OSError."""
        file = self.files[number]
        if offset < file.kept_at:
            data = os.pread(file.fd, length, offset)
        else:
            at = number * TAIL_GUESS + offset - file.kept_at
            data = bytes(self._view[at : at + min(length, file.size - offset)])
        if len(data) != length:
            raise DamagedFileError(file.path, f"ends before byte {offset + length}")
        return data

    def descriptors(self) -> NDArray[np.int64]:
        """Of each file: int64[files]."""
        return np.array([file.fd for file in self.files], np.int64)

    def kept_from(self) -> NDArray[np.int64]:
        """The place of the bytes in the buffer: in each file, and in the buffer: int64[2, files]."""
        kept = [file.kept_at for file in self.files]
        return np.array([kept, range(0, TAIL_GUESS * len(kept), TAIL_GUESS)], np.int64)


# --- of other storages --------------------------------------------------------------------------


class FarFile:
    """A file of another storage that is open, and whose footer's bytes are in memory, among others. As a TailFile.

    source  the open file; None once it is released
    """

    is_pinned = True  # whoever opened it has compared

    def __init__(self, data_file: DataFile, source: OpenFile, number: int) -> None:
        self.data_file, self.number, self.path = data_file, number, source.path
        self.source: OpenFile = source
        self.location, self.size, self.version_token = source.location, source.size, source.version_token
        self.requests, self.bytes_read = source.requests, source.bytes_read
        self.is_of_one_version = self.is_cut = False

    def footer(self) -> tuple[bytes, int]:
        """As TailFile has it."""
        return self.source.footer_bytes()

    def outline(self) -> Outline:
        """As TailFile has it."""
        return self.source.outline()

    def adopt(self, outline: Outline) -> None:
        """As OpenFile has it."""
        self.source.adopt(outline)

    def is_unchanged(self, by_token: bool) -> bool:
        """Whether what was read of it is sure to be of one version, as OpenFile.is_one_answer."""
        return self.source.is_one_answer(by_token)

    def release(self) -> OpenFile:
        """Let go of the open file: results are kept longer than files are."""
        source = self.source
        self.is_of_one_version = source.is_of_one_version
        del self.source
        return source


class FarTails:
    """Files of other storages that are decided together. Nothing more is read of them here."""

    reads_more = False

    def __init__(self, opened: Sequence[tuple[DataFile, OpenFile]]) -> None:
        self.files = [FarFile(data_file, source, number) for number, (data_file, source) in enumerate(opened)]
        self._ends = [source.end for _, source in opened]

    def footers(self) -> list[tuple[bytes, int] | None]:
        """The footers of all files, as FarFile has them; None where there is none."""
        found: list[tuple[bytes, int] | None] = []
        for file in self.files:
            try:
                found.append(file.footer())
            except (ParquetBloomError, OSError):
                found.append(None)
        return found

    @cached_property
    def buffer(self) -> NDArray[np.uint8]:
        """The tails, one behind the other: uint8[their bytes]."""
        return np.frombuffer(b"".join([data for _, data in self._ends]), np.uint8)

    def read(self, number: int, offset: int, length: int) -> bytes:
        """Take a range of one file that lies in its tail. Raises DamagedFileError for another."""
        start, data = self._ends[number]
        if offset < start or offset + length > start + len(data):
            raise DamagedFileError(self.files[number].path, f"bytes {offset} to {offset + length} are not in memory")
        return data[offset - start : offset - start + length]

    def descriptors(self) -> NDArray[np.int64]:
        """None: int64[files]."""
        return np.full(len(self.files), -1, np.int64)

    def kept_from(self) -> NDArray[np.int64]:
        """As Tails has it."""
        before = accumulate((len(data) for _, data in self._ends), initial=0)
        return np.array([[start for start, _ in self._ends], [*before][:-1]], np.int64)

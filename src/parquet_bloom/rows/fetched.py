"""Files on other storages as pyarrow reads their rows: what a scan needs is fetched before, side by side.

    search    the tail: footer, most filters, of a small file all of it                  the file stays open
    rows      the column chunks that are left, up to 64 files ahead                      nothing that is in memory
              then pyarrow decodes from memory
              of a large file: up to 64 MiB ahead of pyarrow, which decodes chunk by chunk

pyarrow alone opens each file once more, reads its footer once more, and waits for each file in turn. Its requests name
no version.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

import pyarrow as pa
import pyarrow.dataset as ds

from parquet_bloom.errors import RequestError
from parquet_bloom.format.outline import Outline, extents_in
from parquet_bloom.rows.layouts import chunk_by_chunk, own_leaves
from parquet_bloom.rows.unchanged import PYARROW_ERRORS, opened_same, version_of
from parquet_bloom.search.log import FileResult
from parquet_bloom.storage.file_objects import FileObject
from parquet_bloom.storage.open_file import (
    REMOTE_GAP,
    REMOTE_MOST,
    OpenFile,
    Range,
    joined,
    pieces_of,
)
from parquet_bloom.storage.remote import in_order, submit

if TYPE_CHECKING:
    from concurrent.futures import Future

FilePart = tuple[FileResult, list[int]]  # a file, and row groups of it
Meanwhile = Callable[[], object]  # is called once Arrow's threads decode, before the first batch is asked for


def nothing() -> None:
    """Do nothing meanwhile."""


_MOST_BYTES = 8 << 20  # of one file that are all there before pyarrow reads it; a larger one is read ahead
_MOST_AHEAD = 64 << 20  # of a large one
_DECODED = 16  # row groups that pyarrow decodes at a time: as many as have two batches' rows together, so mostly two
_MOST_TOGETHER = 128 << 20  # of the files that wait, and those that are fetched
_PYARROW_END = 64 << 10  # of a file, that pyarrow reads at once for the footer
_TOO_LATE = "the process ends, and rows of objects are not read any more; read them before"
_PATIENCE_S = 2.0  # at the process's end, for threads of Arrow's that are about to read
_SCANNED = 32  # files that go through one scanner


def chunk_ranges(outline: Outline, groups: Sequence[int], names: Collection[str] | None) -> list[Range]:
    """Offset and length of the column chunks of some of a file's top-level columns (None: all) in some row groups."""
    columns = [leaf.index for leaf in own_leaves(outline) if names is None or leaf.path[0] in names]
    chunks = outline.slots[:, list(groups)][:, :, columns]
    start, stop = extents_in(chunks)
    return list(zip(start.ravel().tolist(), (stop - start).ravel().tolist(), strict=True))


class FetchedFile(FileObject):
    """A binary file object for pyarrow.PythonFile, over a file of which the wanted ranges are in memory.

    It raises nothing: Arrow's threads read it, and an error of Python's in one of them can wait for ever for the thread
    that waits for it. What goes wrong is `error`, and pyarrow finds the file too short.
    """

    def __init__(self, source: OpenFile, kept: bool) -> None:
        """kept: somebody else closes the source."""
        super().__init__(source.size)
        self.source, self._kept = source, kept
        self.error: Exception | None = None
        self.ended = False

    def read(self, length: int = -1) -> bytes:
        """Read so many bytes; fewer at the end of the file, none after an error or the scan's end."""
        if self.ended:
            return b""
        rest = max(0, self.source.size - self._at)
        try:
            data = self._read(rest if length < 0 else min(length, rest))
        except Exception as error:
            if not self.ended:  # what was given up is no error
                self.error = self.error or error
            return b""
        self._at += len(data)
        return data

    def _read(self, length: int) -> bytes:
        return self.source.read(self._at, length)

    def close(self) -> None:
        """Nothing: `release` does it, when the scan has ended."""
        self.closed = True

    def end(self) -> None:
        """Give Arrow's threads no more bytes, so that a scan which nobody wants comes to its end."""
        self.ended = True

    def release(self) -> None:
        """Forget what was fetched."""
        self.end()
        self.source.forget()
        if not self._kept:
            self.source.close()


class AheadFile(FetchedFile):
    """The same over a large file: blocks of the wanted ranges are requested while pyarrow decodes one before them.

    A block is forgotten when all that is wanted of it was read. What pyarrow leaves out goes some row groups later.
    """

    def __init__(self, source: OpenFile, kept: bool, row_groups: Sequence[Sequence[Range]]) -> None:
        """row_groups: the ranges of each, in the order in which they will be read."""
        from concurrent.futures import Future

        super().__init__(source, kept)
        blocks = [block for ranges in row_groups for block in _blocks(ranges)]
        self._groups = [number for number, ranges in enumerate(row_groups) for _ in _blocks(ranges)]
        self._blocks = [(block[0][0], block[-1][0] + block[-1][1]) for block in blocks]
        self._unread = [sum(length for _, length in block) for block in blocks]  # bytes of each
        self._by_start = sorted(range(len(blocks)), key=lambda number: self._blocks[number][0])
        self._coming: dict[int, Future[bytes]] = {}  # by number
        self._requested = bytearray(len(blocks))  # 1: once, at least
        self._held = self._next = 0  # bytes of these; the number of the next one to request ahead
        self._end: Future[bytes] = Future()  # done when the scan ends

    def _read(self, length: int) -> bytes:
        numbers = self._covering(self._at, length)
        if numbers is None:  # the footer, or what old writers' files need beside a chunk
            return super()._read(length)
        parts: list[bytes] = []
        reached, stop = self._at, self._at + length
        for n, number in enumerate(numbers):
            first, last = self._blocks[number]
            self._forget_before(self._groups[number] - _DECODED)
            self._request(number)
            for later in numbers[n + 1 :]:
                if not self._has_room(later):
                    break
                self._request(later)
            self._request_ahead(self._groups[number] - _DECODED)
            # Chunks may overlap where a footer is damaged, and so their blocks.
            part = self._wait(number)[reached - first : min(last, stop) - first]
            parts.append(part)
            self._unread[number] -= len(part)
            if self._unread[number] <= 0:
                self._forget(number)
            if len(part) < min(last, stop) - reached:  # the file is shorter than it was
                break
            reached += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _covering(self, at: int, length: int) -> list[int] | None:
        """The numbers of the blocks in which a range lies, one right behind the other."""
        first = bisect_right(self._by_start, at, key=lambda number: self._blocks[number][0]) - 1
        found: list[int] = []
        reached = at
        for number in self._by_start[max(0, first) :]:
            start, stop = self._blocks[number]
            if reached >= at + length or not start <= reached < stop:
                break
            found.append(number)
            reached = stop
        return found if reached >= at + length else None

    def _has_room(self, number: int) -> bool:
        start, stop = self._blocks[number]
        return number in self._coming or self._held + stop - start <= _MOST_AHEAD

    def _request(self, number: int) -> None:
        if number in self._coming:
            return
        start, stop = self._blocks[number]
        self._coming[number] = submit(self.source.read, start, stop - start)
        self._requested[number] = 1
        self._held += stop - start

    def _request_ahead(self, group: int) -> None:
        """Those from a row group on that were not requested, in order."""
        while self._next < len(self._blocks):
            if not self._requested[self._next] and self._groups[self._next] >= group:
                if not self._has_room(self._next):
                    return
                self._request(self._next)
            self._next += 1

    def _wait(self, number: int) -> bytes:
        """A block's bytes; none where the scan ends before they come: a store may be slow."""
        from concurrent.futures import FIRST_COMPLETED, wait

        coming = self._coming[number]
        wait([coming, self._end], return_when=FIRST_COMPLETED)
        return b"" if self.ended else coming.result()

    def _forget(self, number: int) -> None:
        start, stop = self._blocks[number]
        coming = self._coming.pop(number, None)  # another thread may have ended the scan
        if coming is not None:
            coming.cancel()
            self._held -= stop - start

    def _forget_before(self, group: int) -> None:
        for number in list(self._coming):
            if self._groups[number] < group:
                self._forget(number)

    def end(self) -> None:
        """Give up what was requested; a thread that waits for it goes on."""
        from concurrent.futures import InvalidStateError

        super().end()
        with suppress(InvalidStateError):  # ended before
            self._end.set_result(b"")
        for number in list(self._coming):
            self._forget(number)


def _blocks(ranges: Sequence[Range]) -> list[list[Range]]:
    """Ranges, or pieces of large ones, that one request each brings, as they lie in the file."""
    pieces = sorted({piece for offset, length in ranges if length > 0 for piece in pieces_of(offset, length)})
    return joined(pieces, REMOTE_GAP, REMOTE_MOST)


class Fetcher:
    """Fetches what pyarrow will read of files on other storages.

    opened  files that a search has kept open, by id(DataFile)
    """

    def __init__(self, opened: Mapping[int, OpenFile]) -> None:
        self._opened = opened

    def fetches(self, part: FilePart, names: Collection[str] | None) -> bool:
        """Whether this fetches a part: one of another storage."""
        file, _ = part
        return file.outline is not None and not file.file.is_local and file.file.stored

    def _bytes(self, part: FilePart, names: Collection[str] | None) -> int:
        file, groups = part
        assert file.outline is not None
        return sum(max(0, length) for _, length in chunk_ranges(file.outline, groups, names))

    def fetch(self, part: FilePart, names: Collection[str] | None) -> FetchedFile:
        """Fetch the chunks of a part, and the end of the file; of a large one only the end.

        Raises FileChangedError, StorageError.
        """
        file, groups = part
        assert file.outline is not None
        source = self._opened.get(id(file.file))
        kept = source is not None
        if source is None:
            source = opened_same(version_of(file))
            source.size = file.size  # where the footer ends, in one whose append was cut short
        try:
            end = min(source.size, _PYARROW_END)
            is_large = self._bytes(part, names) > _MOST_BYTES
            ranges = [] if is_large else chunk_ranges(file.outline, groups, names)
            source.prefetch([*ranges, (source.size - end, end)])
            if not (source.is_of_one_version or source.is_whole_in_memory):
                file.of_one_version = False
        except BaseException:
            if not kept:
                source.close()
            raise
        if not is_large:
            return FetchedFile(source, kept)
        return AheadFile(source, kept, [chunk_ranges(file.outline, [group], names) for group in groups])

    def scans(
        self, parts: Sequence[FilePart], names: Collection[str] | None
    ) -> Generator[tuple[Sequence[FilePart], Sequence[FetchedFile]], None, None]:
        """Parts in order, several at a time, with their files; without these where pyarrow reads itself."""
        at = 0
        while at < len(parts):
            stop = at
            while stop < len(parts) and self.fetches(parts[stop], names):
                stop += 1
            some = parts[at:stop]
            if some:
                largest = max(min(self._bytes(part, names), _MOST_BYTES) for part in some)
                most = max(1, _MOST_TOGETHER // (largest + _PYARROW_END))
                waiting: list[FetchedFile] = []
                first = 0
                try:
                    for n, got in enumerate(in_order(lambda part: self.fetch(part, names), some, most), 1):
                        waiting.append(got())
                        if len(waiting) >= min(_SCANNED, most) or n == len(some):
                            yield some[first:n], waiting
                            _release(waiting)
                            first, waiting = n, []
                finally:
                    _release(waiting)
            at = stop
            while stop < len(parts) and not self.fetches(parts[stop], names):
                stop += 1
            if stop > at:
                for file, _ in parts[at:stop]:
                    file.of_one_version = False  # pyarrow's requests name none
                yield parts[at:stop], ()
            at = stop


def _release(files: Sequence[FetchedFile]) -> None:
    for file in files:
        file.release()


def arrow_file(file: FetchedFile) -> Any:
    """The file as pyarrow takes it."""
    return file.source.arrow_file() if file.source.is_whole_in_memory else pa.PythonFile(_Lent(file), mode="r")


class _Lent:
    """A file as Arrow has it: it lives as long as some task of Arrow's may read it."""

    def __init__(self, file: FetchedFile) -> None:
        self._file, self.process = file, os.getpid()
        self.seek, self.tell, self.close = file.seek, file.tell, file.close
        self.readable, self.seekable = file.readable, file.seekable
        _lent[id(self)] = ref(self, partial(_came_back, id(self))), self.process

    def read(self, length: int = -1) -> memoryview:
        """The file's bytes; Arrow's threads call Python to let go of them, too."""
        data, process = memoryview(self._file.read(length)), self.process
        _lent[id(data)] = ref(data, partial(_came_back, id(data))), process
        return data

    @property
    def closed(self) -> bool:
        return self._file.closed


_lent: dict[int, tuple[Any, int]] = {}  # by id: a weak reference to what Arrow has, and the process


def _came_back(number: int, _: object) -> None:
    _lent.pop(number, None)


def scan_options(files: Sequence[FetchedFile]) -> dict[str, Any]:
    """Options of a scanner for them."""
    return {"fragment_scan_options": chunk_by_chunk()} if any(isinstance(one, AheadFile) for one in files) else {}


class _Scan:
    """A scan whose files Arrow's threads read through Python. They do so after the last batch that somebody takes, too.

    A thread that calls Python while the interpreter ends waits for ever, or aborts the process. So a scan is ended
    before its files are released, and all that are open are ended at the process's end.
    """

    def __init__(self, reader: pa.RecordBatchReader, files: Sequence[FetchedFile]) -> None:
        self._reader: pa.RecordBatchReader | None = reader
        self._files = files
        self._process = os.getpid()
        self._lock = threading.Lock()  # one thread may read when another ends the process
        _open_scans.add(self)
        if _process_ends.is_set():
            self.end()

    def next(self) -> pa.RecordBatch | None:
        """The next batch; None after the last."""
        with self._lock:
            if self._reader is None:
                raise RequestError(_TOO_LATE)
            try:
                return self._reader.read_next_batch()
            except StopIteration:
                return None
            except PYARROW_ERRORS:
                if _process_ends.is_set() and not any(file.error for file in self._files):
                    raise RequestError(_TOO_LATE) from None
                raise

    def end(self) -> None:
        """Let Arrow come to the scan's end, and wait for that: its next read finds the files too short."""
        if os.getpid() != self._process:
            return  # Arrow's threads stayed behind in the parent process
        for file in self._files:
            file.end()
        with self._lock:
            if self._reader is not None:
                with suppress(*PYARROW_ERRORS):
                    self._reader.close()
                self._reader = None


_open_scans: WeakSet[_Scan] = WeakSet()
_process_ends = threading.Event()


@atexit.register
def _end_scans() -> None:
    _process_ends.set()
    for scan in list(_open_scans):
        scan.end()
    # Arrow gives up a scan at its first error; what it has requested before is still read, into nothing.
    until = time.monotonic() + _PATIENCE_S
    while any(process == os.getpid() for _, process in list(_lent.values())) and time.monotonic() < until:
        time.sleep(0.002)


def batches_of(
    scanner: Callable[[], ds.Scanner], files: Sequence[FetchedFile], meanwhile: Meanwhile = nothing
) -> Generator[pa.RecordBatch, None, None]:
    """The batches of a scanner over these files. When this is closed, Arrow gets nothing of them any more.

    scanner  makes it; nobody else keeps it, nor fragments of it
    """
    if all(file.source.is_whole_in_memory for file in files):
        batches = scanner().to_batches()  # no thread of Arrow's calls Python
        meanwhile()
        yield from batches
        return
    scan = _Scan(scanner().to_reader(), files)
    try:
        meanwhile()
        while (batch := scan.next()) is not None:
            yield batch
    finally:
        scan.end()


@contextmanager
def errors_of(files: Sequence[FetchedFile]) -> Iterator[None]:
    """Raise what went wrong while these files were read, in the place of pyarrow's error over it."""
    try:
        yield
    except PYARROW_ERRORS as error:
        for file in files:
            if file.error is not None:
                raise file.error from error
        raise
    for file in files:
        if file.error is not None:  # bytes were missing, and pyarrow made rows without them
            raise file.error

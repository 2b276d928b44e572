"""Files on other storages as pyarrow reads their rows: what a scan needs is fetched before, side by side.

    search    the tail: footer, most filters, of a small file all of it                  the file stays open
    rows      the column chunks that are left, up to 64 files ahead                      nothing that is in memory
              then pyarrow decodes from memory

pyarrow alone opens each file once more, reads its footer once more, and waits for each file in turn.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from parquet_bloom.errors import ParquetBloomError
from parquet_bloom.format.outline import Outline, extents_in
from parquet_bloom.search.results import FileResult
from parquet_bloom.search.unchanged import PYARROW_ERRORS, opened_same, version_of
from parquet_bloom.storage.open_file import FileObject, OpenFile, Range
from parquet_bloom.storage.remote import in_order

FilePart = tuple[FileResult, list[int]]  # a file, and row groups of it

_MOST_BYTES = 8 << 20  # of one file; beyond that pyarrow reads it, in pieces
_MOST_TOGETHER = 128 << 20  # of the files that wait, and those that are fetched
_PYARROW_END = 64 << 10  # of a file, that pyarrow reads at once for the footer
_SCANNED = 32  # files that go through one scanner


def chunk_ranges(outline: Outline, groups: Sequence[int], names: Collection[str] | None) -> list[Range]:
    """Offset and length of the column chunks of these top-level columns (None: all) in some row groups."""
    columns = [leaf.index for leaf in outline.leaves if names is None or leaf.path[0] in names]
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
        self.error: ParquetBloomError | None = None

    def read(self, length: int = -1) -> bytes:
        """Read so many bytes; fewer at the end of the file, and none after an error."""
        rest = max(0, self.source.size - self._at)
        try:
            data = self.source.read(self._at, rest if length < 0 else min(length, rest))
        except ParquetBloomError as error:
            self.error = self.error or error
            return b""
        self._at += len(data)
        return data

    def close(self) -> None:
        """Nothing: `release` does it, when the scan has ended."""
        self.closed = True

    def release(self) -> None:
        """Forget what was fetched."""
        with suppress(ParquetBloomError):
            self.source.prefetch([])
        if not self._kept:
            self.source.close()


class Fetcher:
    """Fetches what pyarrow will read of files on other storages.

    opened  files that a search has kept open, by id(DataFile)
    """

    def __init__(self, opened: Mapping[int, OpenFile]) -> None:
        self._opened = opened

    def fetches(self, part: FilePart, names: Collection[str] | None) -> bool:
        """Whether a part is read from memory: one of another storage that is not too large."""
        return self._bytes(part, names) <= _MOST_BYTES

    def _bytes(self, part: FilePart, names: Collection[str] | None) -> int:
        file, groups = part
        if file.outline is None or file.file.is_local or not file.file.stored:
            return _MOST_BYTES + 1
        return sum(max(0, length) for _, length in chunk_ranges(file.outline, groups, names))

    def fetch(self, part: FilePart, names: Collection[str] | None) -> FetchedFile:
        """Fetch the chunks of a part, and the end of the file. Raises FileChangedError, StorageError."""
        file, groups = part
        assert file.outline is not None
        source = self._opened.get(id(file.file))
        kept = source is not None
        if source is None:
            source = opened_same(version_of(file))
            source.size = file.size  # where the footer ends, in one whose append was cut short
        try:
            end = min(source.size, _PYARROW_END)
            source.prefetch([*chunk_ranges(file.outline, groups, names), (source.size - end, end)])
            if not (source.is_of_one_version or source.is_whole_in_memory):
                file.of_one_version = False
        except BaseException:
            if not kept:
                source.close()
            raise
        return FetchedFile(source, kept)

    def scans(
        self, parts: Sequence[FilePart], names: Collection[str] | None
    ) -> Generator[tuple[Sequence[FilePart], Sequence[FetchedFile]], None, None]:
        """Parts in order, several at a time, with their files in memory; without these where pyarrow reads itself."""
        at = 0
        while at < len(parts):
            stop = at
            while stop < len(parts) and self.fetches(parts[stop], names):
                stop += 1
            some = parts[at:stop]
            if some:
                most = max(1, _MOST_TOGETHER // (max(self._bytes(part, names) for part in some) + (64 << 10)))
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
    return file.source.arrow_file() if file.source.is_whole_in_memory else pa.PythonFile(file, mode="r")


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

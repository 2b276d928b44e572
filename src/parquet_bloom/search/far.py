"""Searches files of other storages as their tails arrive: threads fetch, one thread decides about all that are there.

    threads       open a file, read its footer's bytes        one request each, many in flight
    this thread   search.together over a run of tails         one pass over arrays, no request
    threads       files that this left: searched alone        by the bytes that are there, and requests for others

Python runs one thread at a time, so that nothing is gained by deciding about each file in a thread of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from parquet_bloom.errors import ParquetBloomError
from parquet_bloom.search.log import Exclusion
from parquet_bloom.search.results import FileResult
from parquet_bloom.search.together import Searching, Stretch, Together
from parquet_bloom.storage.open_file import TAIL_GUESS, OpenFile
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import in_order, in_runs
from parquet_bloom.storage.tails import FarFile, FarTails

_MOST = 64  # files in a run
Found = FileResult | tuple[DataFile, ParquetBloomError]


class _Open(NamedTuple):
    data_file: DataFile
    source: OpenFile


class FarSearching(Searching, Protocol):
    """The parts of search.search.Search that files of other storages need."""

    files: Sequence[DataFile]
    reads_rows: bool

    def exclusion(self, data_file: DataFile) -> Exclusion | None:
        """As Search has it."""

    def attempt(self, work: Callable[[DataFile], Any], data_file: DataFile) -> Any:
        """As Search has it."""

    def open(self, data_file: DataFile) -> OpenFile:
        """As Search has it."""

    def finish(self, source: OpenFile, data_file: DataFile) -> FileResult:
        """As Search has it."""

    def keep_or_close(self, source: OpenFile, searched: FileResult) -> None:
        """As Search has it."""


def results(search: FarSearching, files: Sequence[DataFile]) -> Iterator[Found | Stretch]:
    """The results of files in their order; those that were decided together, one behind the other, are one Stretch."""
    together = Together(search)
    order: deque[FileResult | DataFile] = deque()  # of files up to those whose tails are on their way

    def not_excluded() -> Iterable[DataFile]:
        for file in files:  # those that the log or an index excludes take no place among the ones that are opened
            excluded = search.exclusion(file)
            order.append(file if excluded is None else FileResult(file, excluded=excluded))
            if excluded is None:
                yield file

    for run in in_runs(partial(search.attempt, partial(_opened, search)), not_excluded(), _MOST):
        found: list[Found | _Open | Exception] = []
        for got in run:
            while isinstance(order[0], FileResult):
                found.append(order.popleft())  # type: ignore[arg-type]
            data_file = order.popleft()
            try:
                one = got()
            except Exception as error:  # to be raised in its place
                found.append(error)
                break
            found.append(_Open(data_file, one) if isinstance(one, OpenFile) else one)  # type: ignore[arg-type]
        yield from _searched(search, together, found)
    yield from (one for one in order if isinstance(one, FileResult))


def _opened(search: FarSearching, data_file: DataFile) -> FileResult | OpenFile:
    """Open a file and read its footer's bytes, or its outline where the caller keeps these.

    One with a long footer is searched here: bytes that wait for a run to be decided are those of tails.
    """
    if (excluded := search.excluded(data_file)) is not None:
        return excluded
    source = search.open(data_file)
    try:
        if search.options.cache is not None:
            search.options.cache.outline(source)
        elif len(source.footer_bytes()[0]) > TAIL_GUESS:
            return search.finish(source, data_file)
    except BaseException:
        source.close()
        raise
    return source


def _searched(
    search: FarSearching, together: Together, found: Sequence[Found | _Open | Exception]
) -> Iterator[Found | Stretch]:
    """The results of a run."""
    places = [at for at, one in enumerate(found) if isinstance(one, _Open)]
    tails = FarTails([(one.data_file, one.source) for one in found if isinstance(one, _Open)])
    decided = together.far_results(tails, places, len(found))
    left = [file for at, file in zip(places, tails.files, strict=True) if decided[at] is None]
    alone = in_order(lambda file: search.attempt(partial(search.finish, file.source), file.data_file), left)
    try:
        waits = next(alone, None)  # with this one all begin
        last: Stretch | None = None
        for one, result in zip(found, decided, strict=True):
            if isinstance(one, Exception):
                raise one
            if not isinstance(one, _Open):
                yield one
            elif isinstance(result, Stretch):
                if result is not last:
                    yield from _released(search, result)
                last = result
            elif waits is not None:
                yield waits()
                waits = next(alone, None)
    finally:
        alone.close()


def _released(search: FarSearching, stretch: Stretch) -> Iterator[FileResult | Stretch]:
    """A stretch, or the result of each of its files where some are kept for their rows; the others are closed."""
    files = stretch.decided.files[stretch.start : stretch.stop]
    sources = [file.release() for file in files if isinstance(file, FarFile)]
    if not search.reads_rows and all(file.data_file is not search.files[0] for file in files):
        for source in sources:
            source.close()
        yield stretch
        return
    for source, searched in zip(sources, stretch.results(), strict=True):
        search.keep_or_close(source, searched)
        yield searched

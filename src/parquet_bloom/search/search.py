"""A predicate over many files: names resolved once, then one decision a file, in order.

What every reading function shares (check, prune, count, read_table, dataset): which files there
are, what their folders say, what each row group may give.

    local files      opened 256 at a time at most, their ends in one buffer          storage.tails.Tails
    other storages   threads open files and read their footers, up to 64 at a time   storage.tails.FarTails
        both         decided together, with one pass over arrays                     search.together
    odd ones         one by one, with everything that is to be said of each          Search.alone
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from parquet_bloom.errors import FileChangedError, FilterWarning, ParquetBloomError, RequestError, UnknownColumnError
from parquet_bloom.filters.asking import ask
from parquet_bloom.format.schema import Leaf, find_leaf, split_path
from parquet_bloom.search.evidence import decide
from parquet_bloom.search.log import FileResult, Log, UnopenedFiles, open_groups
from parquet_bloom.search.options import Options
from parquet_bloom.search.question import Index, Questions, as_predicate, logger
from parquet_bloom.search.together import Batches, BatchSlice, InBatch, slice_at
from parquet_bloom.source.source import ResolvedSource
from parquet_bloom.storage.open_file import TAIL_GUESS, OpenFile
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import in_order, in_runs
from parquet_bloom.storage.tails import SUPPORTED, FarFile, FarTails, Tails, most_open

if TYPE_CHECKING:
    from parquet_bloom.source.snapshot import TableFile

T = TypeVar("T")
Failed = tuple[DataFile, ParquetBloomError]
Part = FileResult | BatchSlice | UnopenedFiles | Failed
_AGAIN = 2  # times that a file is searched anew that changes meanwhile
_KEPT_BYTES = 128 << 20  # of files that stay open until their rows are read
_MOST_FAR = 64  # files of other storages that are decided together

__all__ = ["Search", "as_predicate", "leaf_of", "logger", "warn_of_damage"]


def leaf_of(file: FileResult, column: str, first: Sequence[Leaf], keys: Sequence[Leaf]) -> tuple[Leaf | None, Leaf]:
    """The column a name means in a file, None if only the first one has it, and in the first; a key is both.

    first  leaves of the first file of the data set, or of the table
    """
    for key in keys:
        if key.path == split_path(column):
            return key, key
    assert file.outline is not None
    there, path = find_leaf(first, column), split_path(column)
    if not any(leaf.path[: len(path)] == path for leaf in file.outline.leaves):
        return None, there
    try:
        return find_leaf(file.outline.leaves, column), there
    except UnknownColumnError as error:
        raise UnknownColumnError(f"{file.file}: " + error.message) from error


class Search(Questions):
    """A predicate over the files of a source. Iterating gives one FileResult or one error a file, in order.

    reads_rows     files on other storages in which rows may match stay open, with what was read of them, as far as
                   _KEPT_BYTES go; the first file does in any case, for its schema
    opened         these files, by id(DataFile)
    """

    def __init__(
        self,
        found: ResolvedSource,
        predicate: Any,
        options: Options,
        log: Log | None = None,
        index: Index | None = None,
    ) -> None:
        super().__init__(found, predicate, options, log, index)
        self.reads_rows = False
        self.opened: dict[int, OpenFile] = {}
        self._spare_bytes = _KEPT_BYTES

    def of(self, files: Sequence[DataFile]) -> Search:
        """The same over some of a table's files."""
        snapshot = replace(self.found.snapshot, files=cast("list[TableFile]", list(files)))
        return Search(self.found._replace(snapshot=snapshot), self.predicate, self.options, index=self._index)

    def __iter__(self) -> Iterator[FileResult | Failed]:
        """Raises RequestError for what is wrong with the predicate, by the first footer that can be read.

        Of a table by its schema, before any file is opened.
        """
        for part in self.parts():
            if isinstance(part, BatchSlice | UnopenedFiles):
                yield from part.results()
            else:
                yield part

    def parts(self) -> Iterator[Part]:
        """The same; files that were decided together are one BatchSlice, and those that an index excludes one part."""
        # Without a table's schema the first file that can be read gives it. So files are searched one by one until
        # there is one, and then many at a time. The first file of another storage begins those that are searched side
        # by side.
        self.ask_log()
        here = 0
        while here < len(self.files) and self._first is None:
            yield self.attempt(self.alone, self.files[here])
            here += 1
        self.ask_index()
        far = len(self.files)
        if self.log.has_log or self.found.snapshot.filesystem is not None:
            far = next((at for at in range(here, far) if not self.files[at].is_local), far)
        if here < far:
            yield from self._local(here, far)
        if far < len(self.files):
            yield from self._far(self.files[far:])

    # --- batches of local files -------------------------------------------------------------------

    def _local(self, start: int, stop: int) -> Iterator[Part]:
        """The parts of local files, from `start` up to `stop`."""
        most, batches = most_open(), Batches(self)
        tails = Tails(most) if SUPPORTED and batches.fits(stop - start) else None
        numbers, seen = self._not_excluded(start, stop), start
        for first in range(0, len(numbers), most):
            some = numbers[first : first + most]
            found: list[Any] = []
            for number, one in zip(some, self._local_batch(batches, tails, [self.files[n] for n in some]), strict=True):
                found += [self._unopened(seen, number)] if seen < number else []
                found.append(one)
                seen = number + 1
            yield from _in_order(found, partial(self.attempt, self.alone))
        if seen < stop:
            yield self._unopened(seen, stop)

    def _local_batch(
        self, batches: Batches, tails: Tails | None, files: Sequence[DataFile]
    ) -> list[FileResult | InBatch | DataFile]:
        """The results of files that are decided together; the file itself where it is not."""
        found: list[FileResult | InBatch | DataFile] = [*files]
        if tails is None or not batches.fits(len(files)):
            return found
        opened = []
        excludes = self.may_exclude
        try:
            for at, file in enumerate(files):
                excluded = None
                if excludes:
                    try:
                        excluded = self.excluded(file)
                    except ParquetBloomError:
                        continue
                if excluded is not None:
                    found[at] = excluded
                elif file.is_local and not file.opened and file.stored and (one := tails.open(file)) is not None:
                    opened.append((at, one))
            for at, place in batches.decide(tails, opened).items():
                found[at] = place
        finally:
            tails.close()
        return found

    def _unopened(self, start: int, stop: int) -> UnopenedFiles:
        assert self.evidence is not None
        return UnopenedFiles(self.files[start:stop], self.evidence.row_groups[start:stop])

    def _not_excluded(self, start: int, stop: int) -> Sequence[int]:
        """Files, by their numbers, without those that an index excludes and nothing cheaper does."""
        if self.evidence is None or self.log.has_log or (self.options.skip_files and self.keys):
            return range(start, stop)
        left: list[int] = (np.flatnonzero(~self.evidence.excluded[start:stop]) + start).tolist()
        return left

    # --- batches of other storages ------------------------------------------------------------------
    #
    #    threads       open a file, read its footer's bytes        one request each, many in flight
    #    this thread   search.together over a run of tails         one pass over arrays, no request
    #    threads       files that this leaves: searched alone      by the bytes that are there, and requests for others
    #
    # Python runs one thread at a time, so that nothing is gained by deciding about each file in a thread of its own.

    def _far(self, files: Sequence[DataFile]) -> Iterator[Part]:
        """The parts of files of other storages, as their tails arrive."""
        batches = Batches(self)
        order: deque[FileResult | DataFile] = deque()  # of files up to those whose tails are on their way

        def not_excluded() -> Iterator[DataFile]:
            for file in files:  # those that the log or an index excludes take no place among the ones that are opened
                excluded = self.exclusion(file)
                order.append(file if excluded is None else FileResult(file, excluded=excluded))
                if excluded is None:
                    yield file

        for run in in_runs(partial(self.attempt, self._open_far), not_excluded(), _MOST_FAR):
            found: list[Any] = []
            for got in run:
                while isinstance(order[0], FileResult):
                    found.append(order.popleft())
                order.popleft()
                try:
                    found.append(got())
                except Exception as error:  # to be raised in its place
                    found.append(error)
                    break
            yield from self._far_run(batches, found)
        yield from (one for one in order if isinstance(one, FileResult))

    def _open_far(self, data_file: DataFile) -> FileResult | tuple[DataFile, OpenFile]:
        """Open a file and read its footer's bytes, or its outline where the caller keeps these.

        One with a long footer is searched here: bytes that wait for a run to be decided are those of tails.
        """
        if (excluded := self.excluded(data_file)) is not None:
            return excluded
        source = self.open(data_file)
        try:
            if self.options.cache is not None:
                self.options.cache.outline(source)
            elif len(source.footer_bytes()[0]) > TAIL_GUESS:
                return self.finish(source, data_file)
        except BaseException:
            source.close()
            raise
        return data_file, source

    def _far_run(self, batches: Batches, found: list[Any]) -> Iterator[Part]:
        """The parts of a run; some of the files in it are open."""
        places = [at for at, one in enumerate(found) if isinstance(one, tuple) and isinstance(one[1], OpenFile)]
        tails = FarTails([found[at] for at in places])
        for at, file in zip(places, tails.files, strict=True):
            found[at] = file
        if batches.fits(len(places)):
            for at, place in batches.decide(tails, list(zip(places, tails.files, strict=True))).items():
                found[at] = place
        odd = [one for one in found if isinstance(one, FarFile)]
        alone = in_order(lambda file: self.attempt(partial(self.finish, file.source), file.data_file), odd)
        waits: list[Callable[[], Part] | None] = []

        def result(one: Any) -> Part:
            if isinstance(one, Exception):
                raise one
            assert waits[-1] is not None
            searched = waits[-1]()
            waits[-1] = next(alone, None)
            return searched

        try:
            waits.append(next(alone, None))  # with this one all begin
            for part in _in_order(found, result):
                if isinstance(part, BatchSlice):
                    yield from self._released(part)
                else:
                    yield part
        finally:
            alone.close()

    def _released(self, part: BatchSlice) -> Iterator[FileResult | BatchSlice]:
        """A slice, or the result of each of its files where some are kept for their rows; the others are closed."""
        files = part.batch.files[part.start : part.stop]
        sources = [file.release() for file in files if isinstance(file, FarFile)]
        if not self.reads_rows and all(file.data_file is not self.files[0] for file in files):
            for source in sources:
                source.close()
            yield part
            return
        for source, searched in zip(sources, part.results(), strict=True):
            self.keep_or_close(source, searched)
            yield searched

    # --- a file alone -------------------------------------------------------------------------------

    def attempt(self, work: Callable[[DataFile], T], data_file: DataFile) -> T | tuple[DataFile, ParquetBloomError]:
        """Work on one file: the value or the error of it. Raises RequestError where the predicate itself is wrong."""
        try:
            return work(data_file)
        except RequestError as error:
            if error is self._refused:
                raise
            return data_file, type(error)(f"{data_file}: " + error.message)
        except ParquetBloomError as error:
            return data_file, error

    def alone(self, data_file: DataFile) -> FileResult:
        """Search one file, with everything that is to be said of it. Raises FileError, RequestError."""
        if (excluded := self.excluded(data_file)) is not None:
            return excluded
        for _ in range(_AGAIN):
            with suppress(FileChangedError):  # as after an append of ours that ended meanwhile
                return self.finish(self.open(data_file), data_file)
        return self.finish(self.open(data_file), data_file)

    def open(self, data_file: DataFile) -> OpenFile:
        """Open a file. Raises StorageError, FileChangedError."""
        cache = self.options.cache
        return OpenFile(data_file if cache is None or data_file.is_local else cache.opened(data_file))

    def finish(self, source: OpenFile, data_file: DataFile) -> FileResult:
        """Search an open file, and close it, or keep it for its rows."""
        try:
            with source.as_one_version(by_token=self._index is not None):
                searched = self._search_open(source, data_file)
        except BaseException:
            source.close()
            raise
        searched.of_one_version = source.is_of_one_version
        self.keep_or_close(source, searched)
        return searched

    def keep_or_close(self, source: OpenFile, searched: FileResult) -> None:
        """Keep a file of another storage for its rows, or close it."""
        data_file = searched.file
        if not data_file.is_local and self._keeps(source, searched):
            self.opened[id(data_file)] = source
        else:
            source.close()

    def _search_open(self, source: OpenFile, data_file: DataFile) -> FileResult:
        cache = self.options.cache
        outline = cache.outline(source) if cache is not None else source.outline()
        if (note := self.found.see(source.path, outline)) is not None:
            logger.warning(note)
        outline = self.log.outline(outline, data_file)
        self.note(outline, data_file)
        question = self.question(outline.leaves, data_file)
        self.ask_index()  # of the first file's columns, if this is it
        if (closed := self.closed(data_file, source.version_token, outline.n_row_groups)) is not None:
            question = question._replace(closed=closed)
        decision = decide(partial(ask, source), outline, question)
        searched = FileResult(
            data_file,
            source.size,
            outline,
            decision,
            question.bound,
            source.requests,
            source.bytes_read,
            source.version_token,
        )
        if self.visit is not None:
            searched.visited = self.visit(source, searched)
        if decision.damaged:
            warn_of_damage(str(data_file), decision.damaged)
        return searched

    def _keeps(self, source: OpenFile, searched: FileResult) -> bool:
        if not source.stays_open or not (data_file := searched.file).stored:
            return False
        if data_file is not self.files[0]:
            if not self.reads_rows or not open_groups(searched):
                return False
            self._spare_bytes -= source.bytes_kept
            if self._spare_bytes < 0:
                return False
        searched.of_one_version |= self.reads_rows and source.is_whole_in_memory and data_file.pins is None
        return True


def _in_order(found: Sequence[Any], alone: Callable[[Any], Part]) -> Iterator[Part]:
    """The parts of files in their order; files of one batch that lie one behind the other are one slice.

    alone  gives the part of a file that is in no batch
    """
    at = 0
    while at < len(found):
        one = found[at]
        if isinstance(one, InBatch):
            part = slice_at(found, at)
            at += len(part)
            yield part
        else:
            at += 1
            yield one if isinstance(one, FileResult | UnopenedFiles | tuple) else alone(one)


def warn_of_damage(path: str, damaged: list[str]) -> None:
    """One warning a file, however many of its filters are damaged."""
    filters = "1 damaged filter" if len(damaged) == 1 else f"{len(damaged)} damaged filters"
    message = f"{path}: {filters} ignored, the first: {damaged[0]}"
    logger.warning(message)
    warnings.warn(message, FilterWarning, stacklevel=2)

"""Decides about many files at a time, with one pass of numpy over the row groups of all of them.

    open, tails, footers       each file
    groups                     files of one schema, writer, partition and outcome by the log
    decide                     each group: search.evidence, over a format.outlines.JoinedOutline
    results                    each file: its part of the arrays

A pass over arrays of a few elements takes as long as one over a thousand: most of the time that a small file takes.
Files that are not as most are get no result here, and are searched alone, by Search, which says what they are:
what cannot be opened or read, offsets that leave their file, footers that speak of tables, filters that contradict
themselves or are of another form. Nothing was noted or remembered of them here.

Local files are opened and closed here. Those of other storages come open, with their tails (search.far).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.errors import ParquetBloomError
from parquet_bloom.filters.asking import Answers, AnyTails, Probes, ask_joined
from parquet_bloom.format.footer import derived
from parquet_bloom.format.outline import Outline
from parquet_bloom.format.outlines import FAR, JoinedOutline, LateOutline, Outlines, join, walk_outlines, writer_of
from parquet_bloom.format.schema import Leaf
from parquet_bloom.predicates.bind import Bound, Opaque, terms_of
from parquet_bloom.predicates.outcomes import ANY
from parquet_bloom.search.evidence import Decision, Groups, Question, decide
from parquet_bloom.search.index import Evidence
from parquet_bloom.search.log import Log
from parquet_bloom.search.options import Options
from parquet_bloom.search.results import FileResult
from parquet_bloom.source.source import ResolvedSource
from parquet_bloom.storage.open_file import walks
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.table_folders import footer_note, may_be_noted
from parquet_bloom.storage.tails import SUPPORTED, FarFile, FarTails, TailFile, Tails, most_open

FEWEST = 4  # files that are worth it
AnyFile = TailFile | FarFile
_MOST_CHUNKS = 1 << 13  # column chunks of a file that is joined; a larger one gains nothing


@runtime_checkable
class SeveralVisit(Protocol):
    """A visit, see Search, of several files at once."""

    def of_several(self, tails: AnyTails, decided: Decided) -> Sequence[Any]:
        """The values of files that were decided together; None for one that has to be searched alone."""


class Searching(Protocol):
    """The parts of search.search.Search that serve several files."""

    found: ResolvedSource
    log: Log
    options: Options
    visit: Callable[[Any, FileResult], Any] | None
    evidence: Evidence | None

    @property
    def may_exclude(self) -> bool:
        """As Search has it."""

    def excluded(self, data_file: DataFile) -> FileResult | None:
        """As Search has it."""

    def question(self, leaves: Sequence[Leaf], data_file: DataFile) -> Question:
        """As Search has it."""

    def closed(self, data_file: DataFile, version_token: object, n: int) -> NDArray[np.bool_] | None:
        """As Search has it."""


class Decided(NamedTuple):
    """Files that were decided together.

    outlines  of each file
    numbers   of each file, which of the outlines is its own
    joined    of all of them; the decision has its row groups
    visited   what Search.visit gave of each; empty without
    """

    files: Sequence[AnyFile]
    outlines: Sequence[Outline] | Outlines
    numbers: Sequence[int]
    joined: JoinedOutline
    decision: Decision
    bound: Bound
    visited: Sequence[Any] = ()

    def result(self, number: int) -> FileResult:
        """The result of one of the files."""
        file = self.files[number]
        first, stop = self.joined.firsts[number : number + 2].tolist()
        return FileResult(
            file.data_file,
            file.size,
            self.outlines[self.numbers[number]],
            part_of(self.decision, slice(first, stop)),
            self.bound,
            file.requests,
            file.bytes_read,
            file.version_token,
            visited=self.visited[number] if self.visited else None,
            of_one_version=file.is_of_one_version,
        )


@dataclass(slots=True)
class Stretch:
    """Some of the files that were decided together, one behind the other also in their source: start up to stop."""

    decided: Decided
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def results(self) -> Iterator[FileResult]:
        """The result of each file."""
        return map(self.decided.result, range(self.start, self.stop))

    @property
    def row_groups(self) -> slice:
        """The row groups of these files among the joined ones."""
        firsts = self.decided.joined.firsts
        return slice(int(firsts[self.start]), int(firsts[self.stop]))


_Opened = tuple[int, AnyFile]  # its place among the files of the call


@dataclass(slots=True)
class _Group:
    """Files that are decided together.

    leaves    are the same of all of them, as are writer and column orders
    outlines  of each
    places    of each among the files of the call
    """

    leaves: tuple[Leaf, ...]
    outlines: Sequence[Outline] | Outlines
    places: list[int] = field(default_factory=list)
    files: list[AnyFile] = field(default_factory=list)


class Together:
    """Searches of one Search over several files at a time.

    most  local files at a time
    """

    def __init__(self, search: Searching) -> None:
        self._search = search
        self._tails: Tails | None = None
        self.most = most_open()
        self._noted: dict[Any, tuple[bool, Any]] = {}

    def results(
        self, files: Sequence[DataFile], numbers: Sequence[int] | None = None
    ) -> list[FileResult | Stretch | None]:
        """The results of at most `most` files; None for one that has to be searched alone.

        numbers  of each among the files of the call, ascending; None: they lie one behind the other
        A Stretch is of one file or of several, and has the place of each of these.
        """
        if not SUPPORTED or len(files) < FEWEST or not self._may_join:
            return [None] * len(files)
        found: dict[int, FileResult] = {}
        tails = self._tails = self._tails or Tails(self.most)
        try:
            places = self._places(tails, self._open(tails, files, found))
        finally:
            tails.close()
        return _in_stretches([found.get(at) for at in range(len(files))], places, numbers)

    @property
    def _may_join(self) -> bool:
        """Whether what is read beside the search, if anything, is read of several files at once."""
        return self._search.visit is None or isinstance(self._search.visit, SeveralVisit)

    def far_results(self, tails: FarTails, places: Sequence[int], n: int) -> list[FileResult | Stretch | None]:
        """The same of files of other storages that are open: those at some places among n. None at the other places."""
        nothing: list[FileResult | Stretch | None] = [None] * n
        if len(tails.files) < FEWEST or not self._may_join:
            return nothing
        return _in_stretches(nothing, self._places(tails, list(zip(places, tails.files, strict=True))))

    def _places(self, tails: AnyTails, opened: Sequence[_Opened]) -> dict[int, tuple[Decided, int]]:
        """Decide: where the results of files are, by the files' places among those of the call."""
        places: dict[int, tuple[Decided, int]] = {}
        for group in self._groups(tails, opened):
            with suppress(ParquetBloomError, OSError):
                self._decide(tails, group, places)
        return places

    def _open(self, tails: Tails, files: Sequence[DataFile], results: dict[int, FileResult]) -> list[_Opened]:
        """Open files; those that are excluded unopened get their results."""
        opened: list[_Opened] = []
        excludes = self._search.may_exclude
        for at, file in enumerate(files):
            excluded = None
            if excludes:
                try:
                    excluded = self._search.excluded(file)
                except ParquetBloomError:
                    continue
            if excluded is not None:
                results[at] = excluded
            elif file.is_local and not file.opened and file.stored and (one := tails.open(file)) is not None:
                opened.append((at, one))
        return opened

    def _groups(self, tails: AnyTails, opened: Sequence[_Opened]) -> Iterable[_Group]:
        """Sort files by what they have in common."""
        groups: dict[Any, list[_Group]] = {}
        cache = self._search.options.cache
        together: list[_Group] = []
        if cache is None and walks():
            together, opened = self._walked(tails, opened, groups)
        for at, file in opened:
            with suppress(ParquetBloomError, OSError):
                self._sort(at, file, file.outline() if cache is None else cache.outline(file), groups)
        return chain(together, chain.from_iterable(groups.values()))

    def _walked(
        self, tails: AnyTails, opened: Sequence[_Opened], groups: dict[Any, list[_Group]]
    ) -> tuple[list[_Group], Sequence[_Opened]]:
        """The groups of files whose footers the compiled walk reads, all at once; and the files that it leaves.

        groups  take those that a log tells apart
        """
        read, those, footers = tails.footers(), [], []
        for one in opened:
            footer = read[one[1].number]
            if footer is None:
                try:
                    footer = one[1].footer()
                except (ParquetBloomError, OSError):
                    continue
            footers.append(footer)
            those.append(one)
        found, walked = [], set()
        for outlines in walk_outlines(footers):
            files = [those[number] for number in outlines.numbers]
            usual = [i for i, writer in enumerate(outlines.writers) if writer is not None]
            walked.update([files[i][1].number for i in usual])
            if self._search.log.has_log:
                for i in usual:
                    with suppress(ParquetBloomError, OSError):
                        self._sort(*files[i], outlines[i], groups)
                continue
            for which in self._alike(files, outlines, usual):
                places, members = zip(*[files[i] for i in which], strict=True)
                some = outlines.some(np.array(which))
                found.append(_Group(outlines.leaves, some, list(places), list(members)))
        return found, [one for one in opened if one[1].number not in walked]

    def _alike(self, files: Sequence[_Opened], outlines: Outlines, usual: Sequence[int]) -> Iterable[list[int]]:
        """The numbers of outlines of one schema, sorted by what else their files have in common; usual: of those."""
        alike: dict[Any, list[int]] = {}
        most = _MOST_CHUNKS // max(1, len(outlines.leaves))
        sees, counts, pairs = self._search.found.tables is not None, outlines.counts.tolist(), outlines.pairs.T.tolist()
        for i in usual:
            file, writer, (begin, end) = files[i][1], outlines.writers[i], pairs[i]
            if counts[i] > most or file.size >= FAR:
                continue
            outline = partial(outlines.__getitem__, i)
            if sees and self._speaks(outlines.data[begin:end], outlines.leaves, writer, outline):
                continue
            alike.setdefault((writer, file.data_file.partitions), []).append(i)
        return alike.values()

    def _sort(self, at: int, opened: AnyFile, own: Outline, groups: dict[Any, list[_Group]]) -> None:
        search, file = self._search, opened.data_file
        if len(own.rows) * len(own.leaves) > _MOST_CHUNKS or opened.size >= FAR or self._is_noted(opened, own):
            return
        outline, common = own, (file.partitions, ANY)
        if search.log.has_log:
            outline, common = search.log.outline(own, file), (file.partitions, search.log.outcome(file))
            if search.log.contradiction(outline, file) is not None:
                return
        for group in groups.setdefault((writer_of(own), *common), []):
            if group.leaves is outline.leaves or group.leaves == outline.leaves:
                break
        else:
            group = _Group(outline.leaves, [])
            groups[writer_of(own), *common].append(group)
        group.places.append(at)
        group.files.append(opened)
        cast("list[Outline]", group.outlines).append(outline)

    def _is_noted(self, opened: AnyFile, own: Outline) -> bool:
        """Whether a file's footer speaks of a table, of which Search takes note."""
        if self._search.found.tables is None:
            return False
        if not isinstance(own, LateOutline):
            return _speaks_of_table(own)
        return self._speaks(own.pairs, own.leaves, own.writer, lambda: own)

    def _speaks(self, pairs: bytes, leaves: tuple[Leaf, ...], writer: Any, outline: Callable[[], Outline]) -> bool:
        """Whether a footer of such key-values, leaves and writer speaks of a table."""
        if may_be_noted(pairs):
            return True
        key = id(leaves), writer  # the leaves are kept with it: no others can get their id
        if key not in self._noted:
            self._noted[key] = _speaks_of_table(outline()), leaves
        return self._noted[key][0]

    def _decide(self, tails: AnyTails, group: _Group, places: dict[int, tuple[Decided, int]]) -> None:
        search = self._search
        # A RequestError here: Search raises it at the first of these files.
        question = search.question(group.leaves, group.files[0].data_file)
        if search.log.has_log and _lacks_leaves(question.bound, group.leaves):
            return  # what stands there instead may be another value in each file
        cache = search.options.cache
        # A table's outlines have its names, and are made anew for each question.
        joins = join if cache is None or search.log.has_log else cache.joined
        outline, numbers = joins(group.outlines)  # type: ignore[arg-type]  # with a cache they are a list
        if outline is None:
            return
        files = [group.files[i] for i in numbers]
        if search.evidence is not None:
            question = question._replace(closed=self._closed(files, outline))
        filters = _JoinedFilters(files, outline, tails)
        decision = decide(filters, outline, question)
        decided = Decided(files, group.outlines, numbers, outline, decision, question.bound)
        alone = set(outline.file_of[filters.doubtful].tolist())
        if isinstance(search.visit, SeveralVisit):
            visited = search.visit.of_several(tails, decided)
            alone.update(number for number, one in enumerate(visited) if one is None)
            decided = decided._replace(visited=visited)
        for number, (i, file) in enumerate(zip(numbers, files, strict=True)):
            if number not in alone and file.is_pinned and file.is_unchanged(search.evidence is not None):
                places[group.places[i]] = decided, number

    def _closed(self, files: Sequence[TailFile | FarFile], outline: JoinedOutline) -> NDArray[np.bool_] | None:
        """The row groups of joined files that an index closes; None where it closes none."""
        counts = np.diff(outline.firsts).tolist()
        parts = [
            self._search.closed(file.data_file, file.version_token, n) for file, n in zip(files, counts, strict=True)
        ]
        if all(part is None for part in parts):
            return None
        return np.concatenate(
            [np.zeros(n, bool) if part is None else part for part, n in zip(parts, counts, strict=True)]
        )


def _in_stretches(
    results: list[FileResult | Stretch | None],
    places: dict[int, tuple[Decided, int]],
    numbers: Sequence[int] | None = None,
) -> list[FileResult | Stretch | None]:
    """Put files that were decided together among the results; `numbers` as Together.results has them."""
    last: Stretch | None = None
    for at in sorted(places):
        decided, number = places[at]
        apart = numbers is not None and at and numbers[at - 1] + 1 != numbers[at]
        if last is None or apart or results[at - 1] is not last or last.decided is not decided or last.stop != number:
            last = Stretch(decided, number, number)
        last.stop += 1
        results[at] = last
    return results


class _JoinedFilters:
    """The filters of a group's files, as search.evidence.decide asks them.

    doubtful  bool[row groups]: the answer of such a filter is for its file alone to find
    """

    def __init__(self, files: Sequence[AnyFile], outline: JoinedOutline, tails: AnyTails) -> None:
        self._numbers = np.array([file.number for file in files], np.int64)
        self._outline, self._tails = outline, tails
        self.doubtful: NDArray[np.bool_] = np.zeros(outline.n_row_groups, bool)

    def __call__(self, column: int, row_groups: Groups, probes: Probes) -> Answers:
        """As filters.asking.ask has it."""
        answers, doubtful = ask_joined(self._tails, self._numbers, self._outline, column, row_groups, probes)
        self.doubtful[row_groups[doubtful]] = True
        return answers


@derived
def _speaks_of_table(outline: Outline) -> bool:
    return footer_note("", outline.metadata, outline.leaves) is not None


def _lacks_leaves(bound: Bound, leaves: Sequence[Leaf]) -> bool:
    """Whether a part of a predicate speaks of a column that a file does not have."""
    own = {leaf.index: leaf for leaf in leaves}
    return any(
        term.leaf.index >= 0 and own.get(term.leaf.index) != term.leaf
        for term in terms_of(bound)
        if not isinstance(term, Opaque)
    )


def part_of(decision: Decision, part: slice) -> Decision:
    """The decision on some row groups, of one without damage or notes."""
    return Decision(decision.outcomes[part], decision.stage[part], decision.bytes_read[part], decision.asked[part])

"""Decides about many files at a time, with one pass of numpy over the row groups of all of them.

    outlines   of the files of each schema, by one walk over all footers, or of each file
    groups     files of one schema, writer, partition and outcome by the log: one outline
    decide     each group: search.evidence
    Batch      its result, of which each file has a part

A pass over arrays of a few elements takes as long as one over a thousand: most of the time that a small file takes.
Files that are not as most are get no result here, and Search searches them alone: what cannot be opened or read,
offsets that leave their file, footers that speak of tables, filters that contradict themselves or are of another form.
Nothing was noted or remembered of them here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.errors import ParquetBloomError
from parquet_bloom.filters.asking import Answers, Probes, ask_blocks, several
from parquet_bloom.format.footer import derived
from parquet_bloom.format.outline import FAR, Outline
from parquet_bloom.format.outlines import joined, walk_outlines
from parquet_bloom.format.repairs import proven_columns
from parquet_bloom.format.schema import Leaf
from parquet_bloom.predicates.bind import Bound, Opaque, terms_of
from parquet_bloom.predicates.outcomes import ANY
from parquet_bloom.search.evidence import Decision, Groups, decide
from parquet_bloom.search.log import FileResult
from parquet_bloom.search.question import Questions
from parquet_bloom.storage.open_file import walks
from parquet_bloom.storage.table_folders import footer_note, may_be_noted
from parquet_bloom.storage.tails import FarFile, FarTails, TailFile, Tails

FEWEST = 4  # files that are worth it
AnyFile = TailFile | FarFile
AnyTails = Tails | FarTails
_MOST_CHUNKS = 1 << 13  # column chunks of a file in a batch; a larger one gains nothing


class Batch(NamedTuple):
    """Files that were decided together.

    outline  of all of them; the decision has its row groups
    visited  what Search.visit_several gave of each; empty without
    """

    files: Sequence[AnyFile]
    outline: Outline
    decision: Decision
    bound: Bound
    visited: Sequence[Any] = ()

    def result(self, number: int) -> FileResult:
        """The result of one of the files."""
        file = self.files[number]
        return FileResult(
            file.data_file,
            file.size,
            self.outline.file(number),
            self.decision.part(slice(*self.outline.firsts[number : number + 2].tolist())),
            self.bound,
            file.requests,
            file.bytes_read,
            file.version_token,
            visited=self.visited[number] if self.visited else None,
            of_one_version=file.is_of_one_version,
        )


class InBatch(NamedTuple):
    """The place of a file: its number among those of a batch."""

    batch: Batch
    number: int


@dataclass(slots=True)
class BatchSlice:
    """Some of the files of a batch, one behind the other also in their source: start up to stop."""

    batch: Batch
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def results(self) -> Iterator[FileResult]:
        """The result of each file."""
        return map(self.batch.result, range(self.start, self.stop))

    @property
    def row_groups(self) -> slice:
        """The row groups of these files among those of the batch."""
        firsts = self.batch.outline.firsts
        return slice(int(firsts[self.start]), int(firsts[self.stop]))


def slice_at(found: Sequence[Any], at: int) -> BatchSlice:
    """The files of a batch that lie one behind the other from a place on, which is an InBatch."""
    part = BatchSlice(found[at].batch, found[at].number, found[at].number + 1)
    for place in range(at + 1, len(found)):
        one = found[place]
        if not isinstance(one, InBatch) or one.batch is not part.batch or one.number != part.stop:
            break
        part.stop += 1
    return part


_Opened = tuple[int, AnyFile]  # its place among the files of the call
_Groups = dict[Any, list[tuple[Outline, Sequence[_Opened]]]]


class Batches:
    """The batches of a search."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._noted: dict[Any, tuple[bool, Any]] = {}

    def fits(self, files: int) -> bool:
        """Whether so many files are decided together: what is read beside, if anything, is read of several at once."""
        return files >= FEWEST and (self._questions.visit is None or self._questions.visit_several is not None)

    def decide(self, tails: AnyTails, opened: Sequence[_Opened]) -> dict[int, InBatch]:
        """Decide about open files: by their places, those that are not to be searched alone."""
        found: dict[int, InBatch] = {}
        cache, has_log = self._questions.options.cache, self._questions.log.has_log
        for pieces in self._groups(tails, opened).values():
            with suppress(ParquetBloomError, OSError):
                # A table's outlines have its names, and are made anew for each question.
                joins = joined if cache is None or has_log else cache.joined
                outline, numbers = joins([outline for outline, _ in pieces])
                files = [one for _, some in pieces for one in some]
                if outline is not None:
                    self._decide(tails, [files[i] for i in numbers], outline, found)
        return found

    def _groups(self, tails: AnyTails, opened: Sequence[_Opened]) -> _Groups:
        """Outlines and files, by what the files have in common."""
        groups: _Groups = {}
        schemas: dict[int, tuple[int, tuple[Leaf, ...]]] = {}  # id(leaves) -> the number of such leaves, and these
        for outline, files in self._outlines(tails, opened):
            with suppress(ParquetBloomError, OSError):
                for key, (named, which) in self._alike(outline, files, schemas).items():
                    piece = named.some(np.array(which)), [files[i] for i in which]
                    groups.setdefault(key, []).append(piece)
        return groups

    def _outlines(self, tails: AnyTails, opened: Sequence[_Opened]) -> Iterator[tuple[Outline, Sequence[_Opened]]]:
        """The outlines of files: of those of each schema, where the compiled walk reads them, or of each."""
        cache = self._questions.options.cache
        walked: set[int] = set()
        if cache is None and walks():
            read = tails.footers()
            known = [(one, footer) for one in opened if (footer := read[one[1].number]) is not None]
            for outline, numbers in walk_outlines([footer for _, footer in known]):
                usual = [i for i, writer in enumerate(_writers_of(outline)) if writer is not None]
                files = [known[numbers[i]][0] for i in usual]
                walked.update(at for at, _ in files)
                yield outline.some(np.array(usual, np.int64)), files
        for at, file in opened:
            if at not in walked:
                with suppress(ParquetBloomError, OSError):
                    yield (file.outline() if cache is None else cache.outline(file)), [(at, file)]

    def _alike(
        self, outline: Outline, files: Sequence[_Opened], schemas: dict[int, tuple[int, tuple[Leaf, ...]]]
    ) -> dict[Any, tuple[Outline, list[int]]]:
        """The files of an outline, by their numbers, and the outline under the names that they have."""
        log, most = self._questions.log, _MOST_CHUNKS // max(1, len(outline.leaves))
        alike: dict[Any, tuple[Outline, list[int]]] = {}
        counts = np.diff(outline.firsts).tolist()
        sees, last, schema = self._questions.found.tables is not None, None, 0
        for i, (writer, (_, opened)) in enumerate(zip(_writers_of(outline), files, strict=True)):
            if counts[i] > most or opened.size >= FAR or (sees and self._is_noted(outline, i, writer)):
                continue
            named, said, file = outline, ANY, opened.data_file
            if log.has_log:
                try:
                    named, said = log.outline(outline, file), log.outcome(file)
                    if log.contradiction(named.file(i), file) is not None:
                        continue
                except ParquetBloomError:
                    continue
            if named.leaves is not last:
                last = named.leaves
                if id(last) not in schemas:
                    same = (number for number, others in schemas.values() if others == last)
                    schemas[id(last)] = next(same, len(schemas)), last  # kept with it: no others can get its id
                schema = schemas[id(last)][0]
            alike.setdefault((writer, file.partitions, said, schema), (named, []))[1].append(i)
        return alike

    def _is_noted(self, outline: Outline, number: int, writer: Any) -> bool:
        """Whether a file's footer speaks of a table, of which Search takes note."""
        if outline.rests is None:
            return _speaks_of_table(outline)
        begin, end = outline.rests.pairs[number]
        if may_be_noted(outline.data[begin:end]):
            return True
        key = id(outline.leaves), writer  # the leaves are kept with it: no others can get their id
        if key not in self._noted:
            self._noted[key] = _speaks_of_table(outline.file(number)), outline.leaves
        return self._noted[key][0]

    def _decide(self, tails: AnyTails, opened: Sequence[_Opened], outline: Outline, found: dict[int, InBatch]) -> None:
        """Decide about the files of one outline."""
        questions, files = self._questions, [file for _, file in opened]
        # A RequestError here: Search raises it at the first of these files.
        question = questions.question(outline.leaves, files[0].data_file)
        if questions.log.has_log and _lacks_leaves(question.bound, outline.leaves):
            return  # what stands there instead may be another value in each file
        if questions.evidence is not None:
            question = question._replace(closed=self._closed(files, outline))
        reading = several(tails, np.array([file.number for file in files], np.int64))
        odd = np.zeros(outline.n_row_groups, bool)  # the answers of their filters are for the file alone to find

        def ask(column: int, row_groups: Groups, probes: Probes) -> Answers:
            answers, other = ask_blocks(reading, outline, column, row_groups, probes)
            odd[row_groups[other | answers.blank]] = True
            return answers

        batch = Batch(files, outline, decide(ask, outline, question), question.bound)
        alone = set(outline.file_of[odd].tolist())
        if questions.visit_several is not None:
            visited = questions.visit_several(reading, batch.result(0), outline)
            alone.update(number for number, one in enumerate(visited) if one is None)
            batch = batch._replace(visited=visited)
        for number, (at, file) in enumerate(opened):
            if number not in alone and file.is_pinned and file.is_unchanged(questions.evidence is not None):
                found[at] = InBatch(batch, number)

    def _closed(self, files: Sequence[AnyFile], outline: Outline) -> NDArray[np.bool_] | None:
        """The row groups of an outline's files that an index closes; None where it closes none."""
        counts = np.diff(outline.firsts).tolist()
        parts = [
            self._questions.closed(file.data_file, file.version_token, n) for file, n in zip(files, counts, strict=True)
        ]
        if all(part is None for part in parts):
            return None
        return np.concatenate(
            [np.zeros(n, bool) if part is None else part for part, n in zip(parts, counts, strict=True)]
        )


def _writers_of(outline: Outline) -> Sequence[Hashable]:
    """Writer, column orders and proof of statistics of each file: equal where footers have equal ones.

    None: of one that is not as most are. Raises FooterError.
    """
    return (_decoded_writer(outline),) if outline.rests is None else outline.rests.writers


@derived
def _decoded_writer(outline: Outline) -> Hashable:
    orders = repr(outline.metadata.column_orders)  # the bindings' objects have no hash
    return outline.created_by, orders, proven_columns(outline)


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

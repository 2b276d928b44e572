"""Decides which outcomes the row groups of one file may give for a predicate, and counts the bytes that it read.

    partition values -> bounds and null counts -> a key index -> filters, only of row groups that are still open

A filter is asked only where its "no" could decide: with every open filter assumed to deny, the
row group must fall. Terms are asked one after the other, so a row group that fell is asked no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.filters.asking import Answers, Probes
from parquet_bloom.filters.locate import filter_ranges_of
from parquet_bloom.format.outline import Outline
from parquet_bloom.format.repairs import statistics_writer
from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.statistics import (
    ColumnStatistics,
    all_null_statistics,
    is_right,
    one_value_statistics,
    statistics_of,
    unknown_statistics,
)
from parquet_bloom.predicates.bind import AllOf, AnyOf, Bound, Element, Interval, Members, NotOf, Opaque, Term, terms_of
from parquet_bloom.predicates.outcomes import (
    ANY,
    FALSE,
    NULL,
    TRUE,
    Masks,
    combine,
    denied,
    probes_of,
    probes_of_each,
    same_for_all,
    term_masks,
)
from parquet_bloom.search.options import Options
from parquet_bloom.source.columns import Pairs, partition_value

# --- one driver for all evidence on columns -------------------------------------------------------
#
#    units                       statistics                     denials
#    files of a table            constants and bounds of a log  buckets                  search.log
#    row groups                  folders' names, footers        filters, where they decide    decide
#    places of a key index       folders' names, listings       hashes                   keys.evidence
#    stretches between zones     null bitmaps                   zones' filters           zones.stretches


class ColumnEvidence(NamedTuple):
    """The evidence of one kind on n units of rows: files, row groups, places of an index or stretches.

    statistics  leaf -> its nulls and bounds in each unit; None: this evidence does not know the column
    denies      (term, its outcomes by the statistics) -> the units without a value that makes it TRUE; None: it
                cannot say
    """

    n: int
    statistics: Callable[[Leaf], ColumnStatistics | None]
    denies: Callable[[Term, Masks], NDArray[np.bool_] | None] = lambda term, mask: None


def masks_of(bound: Bound, evidences: Sequence[ColumnEvidence], nan: str) -> list[Masks]:
    """The outcomes of each term in each unit: those that no evidence takes away."""
    # Each mask has every outcome that a row of its unit gives, and so has what two of them have in common.
    anything = np.full(evidences[0].n, ANY, np.uint8)
    masks = []
    for term in terms_of(bound):
        found = None
        for evidence in () if isinstance(term, Opaque) else evidences:
            known = evidence.statistics(term.leaf)  # type: ignore[union-attr]
            if known is None:
                continue
            mask = term_masks(term, known, nan)
            no = evidence.denies(term, mask)
            if no is not None:
                mask = np.where(no, denied(term, mask), mask).astype(np.uint8)
            found = mask if found is None else found & mask
        masks.append(anything if found is None else found)
    return masks


def outcomes_of(bound: Bound, evidences: Sequence[ColumnEvidence], nan: str) -> Masks:
    """The outcomes of a predicate in each unit."""
    return combine(bound, masks_of(bound, evidences, nan), evidences[0].n)


def by_literals(n: int) -> ColumnEvidence:
    """Nothing is known of the data: a literal may still be no value of its column."""
    unknown = unknown_statistics(n)
    return ColumnEvidence(n, lambda leaf: unknown)


def by_partition(pairs: Pairs, n: int) -> ColumnEvidence:
    """The values in folders' names, the same in n units."""

    def statistics(leaf: Leaf) -> ColumnStatistics | None:
        if leaf.index >= 0:
            return None
        value = partition_value(leaf, pairs)
        return all_null_statistics(n) if value is None else one_value_statistics(n, value)

    return ColumnEvidence(n, statistics)


# --- the evidence of one file ---------------------------------------------------------------------

Groups = NDArray[np.int64]  # row groups, by their numbers


@dataclass(slots=True)
class Decision:
    """The decision on each row group of a file; arrays have one element a row group.

    outcomes    uint8, bits as in predicates.outcomes
    stage       uint8: index into STAGES of what made TRUE impossible; 0 where it is possible
    bytes_read  int64, of filters
    asked       bool: some filter was asked
    damaged     "row group 3, column id: ..." of filters that contradict themselves
    notes       row group -> why a filter of it was not used
    """

    outcomes: Masks
    stage: NDArray[np.uint8]
    bytes_read: NDArray[np.int64]
    asked: NDArray[np.bool_]
    damaged: list[str] = field(default_factory=list)
    notes: dict[int, str] = field(default_factory=dict)

    @property
    def open(self) -> NDArray[np.bool_]:
        """Row groups in which TRUE is possible."""
        possible: NDArray[np.bool_] = (self.outcomes & TRUE) != 0
        return possible

    def part(self, row_groups: slice) -> Decision:
        """The decision on some row groups, of one without damage or notes."""
        at = row_groups
        return Decision(self.outcomes[at], self.stage[at], self.bytes_read[at], self.asked[at])

    @property
    def open_groups(self) -> list[int]:
        """Their numbers, ascending."""
        groups: list[int] = self.open.nonzero()[0].tolist()
        return groups


# A stage is its place here. A key index is asked before the filters, though its name comes last.
STAGES = (None, "no rows", "literal", "partition", "bounds", "filter", "index")
_NO_ROWS, _LITERAL, _PARTITION, _BOUNDS, _FILTER, INDEX = 1, 2, 3, 4, 5, 6


class Question(NamedTuple):
    """A bound predicate and how far to go for it.

    pairs    the partition values of the file
    literal  literal_outcome of the predicate
    log      what the predicate may give over the file's rows by the log of its table
    absent   (leaf, n) -> statistics of n row groups of a leaf that the file lacks
    closed   bool[row groups]: those of which an index says that no row matches; None: there is no
             index, or it knows nothing of this file
    """

    bound: Bound
    options: Options
    pairs: Pairs = ()
    literal: int = TRUE | FALSE | NULL
    log: int = ANY
    absent: Callable[[Leaf, int], ColumnStatistics] = lambda leaf, n: all_null_statistics(n)
    closed: NDArray[np.bool_] | None = None

    def combine(self, masks: Sequence[Masks], n: int) -> Masks:
        """The outcomes of the predicate in n row groups, from those of its terms."""
        return combine(self.bound, masks, n) & np.uint8(self.log)


def literal_outcome(bound: Bound, nan: str) -> int:
    """Outcomes that are possible whatever the data are.

    A predicate is decided by it alone if its literals cannot be values of the column.
    """
    return int(outcomes_of(bound, [by_literals(1)], nan)[0])


def partition_outcome(question: Question) -> int:
    """The outcomes of the predicate over rows with known partition values and unknown other values.

    Literals tell nothing of the other columns: in a file not opened yet they may be of another type.
    """
    return int(outcomes_of(question.bound, [by_partition(question.pairs, 1)], question.options.nan)[0])


Filters = Callable[[int, Groups, Probes], Answers]  # filters.asking.ask of some file: column, row groups, probes


def decide(filters: Filters, outline: Outline, question: Question) -> Decision:
    """Decide about every row group of a file, or of several that are joined, whose filters answer.

    Raises FileError where their bytes cannot be read.
    """
    n = outline.n_row_groups
    terms = terms_of(question.bound)
    # `stage` says what made TRUE impossible first, cheapest evidence first: it is written once, where it is still 0.
    stage = np.zeros(n, np.uint8)
    stage[outline.rows == 0] = _NO_ROWS
    if not question.literal & TRUE:
        stage[stage == 0] = _LITERAL
    elif question.pairs and not partition_outcome(question) & TRUE:
        stage[stage == 0] = _PARTITION
    evidences = [by_partition(question.pairs, n), ColumnEvidence(n, partial(_by_footer, outline, question))]
    masks = masks_of(question.bound, evidences, question.options.nan)
    outcomes = question.combine(masks, n)
    stage[((outcomes & TRUE) == 0) & (stage == 0)] = _BOUNDS
    if question.closed is not None:
        stage[question.closed & (stage == 0)] = INDEX
    decision = Decision(outcomes, stage, np.zeros(n, np.int64), np.zeros(n, bool))
    undecided = outline.in_files_with_any(stage == 0) if question.options.use_filters else False
    if undecided is not False:
        _ask_filters(filters, outline, question, masks, decision, undecided)
    if question.closed is not None:
        # The index takes TRUE away. FALSE comes in, so that only a row group without rows has no outcome at all.
        was_true = question.closed & ((decision.outcomes & TRUE) != 0)
        decision.outcomes[was_true] = decision.outcomes[was_true] & ~np.uint8(TRUE) | np.uint8(FALSE)
    in_file = {term.leaf for term in terms if not isinstance(term, Opaque) and term.leaf.index >= 0}
    if not all(is_right(statistics_writer(outline, leaf)) for leaf in in_file):
        # Bounds of this writer were never held against its values: rows are filtered, also where all seem to match.
        all_match = decision.outcomes == TRUE
        if all_match.any() and partition_outcome(question) != TRUE:
            decision.outcomes[all_match] = TRUE | FALSE
    decision.outcomes[outline.rows == 0] = 0  # none: not even FALSE, as there is no row to give it
    return decision


def _by_footer(outline: Outline, question: Question, leaf: Leaf) -> ColumnStatistics | None:
    if leaf.index < 0:
        return None
    if leaf.index >= len(outline.leaves) or outline.leaves[leaf.index] != leaf:
        return question.absent(leaf, outline.n_row_groups)  # a column of the table, or of other files of the data set
    return statistics_of(outline, leaf)


def _ask_filters(
    filters: Filters,
    outline: Outline,
    question: Question,
    masks: list[Masks],
    decision: Decision,
    undecided: NDArray[np.bool_] | bool,
) -> None:
    # `masks` are the outcomes as they are known, `best` as if every filter not asked yet denied its term. A filter is
    # read only where `best` decides the row group and `masks` do not: where even that answer changes nothing, reading
    # would be waste. After a term was asked, its `best` is its mask, so later terms see real answers of earlier ones.
    # A denial puts FALSE in the place of a term's TRUE, or NULL if its list has a NULL (`denied`). The set still has
    # every outcome that a row gives, so no row that matches is lost.
    terms = terms_of(question.bound)
    n = outline.n_row_groups
    # The predicate is one term and the log says nothing: the term's mask is the outcome.
    single = question.log == ANY and not isinstance(question.bound, AllOf | AnyOf | NotOf)
    left_by_index = True if question.closed is None else ~question.closed
    may_deny: dict[int, NDArray[np.bool_]] = {}
    best = list(masks)  # as if every filter that can be asked denied
    for i, term in enumerate(terms):
        if _has_filters(term, outline):
            exists = filter_ranges_of(outline, term.leaf.index).exists  # type: ignore[union-attr]
            may_deny[i] = exists & ((masks[i] & TRUE) != 0)
            best[i] = np.where(may_deny[i], denied(term, masks[i]), masks[i])
    for i, may_deny_term in may_deny.items():
        outcomes_at_best = best[i] if single else question.combine(best, n)
        decides = ((decision.outcomes & TRUE) != 0) & ((outcomes_at_best & TRUE) == 0)
        if question.options.decide_true:  # a denial can also prove that all rows match, under NOT
            decides |= (decision.outcomes != TRUE) & (outcomes_at_best == TRUE)
        candidates = np.flatnonzero(decides & may_deny_term & undecided & left_by_index)
        leaf = terms[i].leaf  # type: ignore[union-attr]
        groups, probes = _probes(terms[i], statistics_of(outline, leaf), candidates, question.options.range_values)
        if len(groups):
            answers = filters(leaf.index, groups, probes)
            _note(answers, leaf, groups, decision)
            hit = groups[answers.denied]
            masks[i] = masks[i].copy()
            masks[i][hit] = denied(terms[i], masks[i][hit])
            decision.outcomes = masks[i] if single else question.combine(masks, n)
            decision.stage[((decision.outcomes & TRUE) == 0) & (decision.stage == 0)] = _FILTER
        best[i] = masks[i]


def _has_filters(term: Term, outline: Outline) -> bool:
    if not isinstance(term, Members | Interval | Element) or not 0 <= term.leaf.index < len(outline.leaves):
        return False
    # The leaf may be one that only other files of the data set have. Its index then means another column here, whose
    # filter never saw values in the bytes of these probes.
    leaf = term.leaf
    if outline.leaves[leaf.index] != leaf or leaf.refusal is not None:
        return False
    return bool(filter_ranges_of(outline, leaf.index).exists.any())


def _probes(term: Term, statistics: ColumnStatistics, groups: Groups, most: int) -> tuple[Groups, Probes]:
    """The row groups whose filters can be queried, and the probes."""
    if not len(groups) or same_for_all(term):
        found = probes_of(term, statistics, int(groups[0]), most) if len(groups) else None
        return (groups, found) if found is not None else (groups[:0], ())
    numbers = groups.tolist()
    each = zip(numbers, probes_of_each(term, statistics, numbers, most), strict=True)
    pairs = [(g, found) for g, found in each if found is not None]
    return np.array([g for g, _ in pairs], np.int64), [found for _, found in pairs]


def _note(answers: Answers, leaf: Leaf, groups: Groups, decision: Decision) -> None:
    decision.bytes_read[groups] += answers.bytes_read
    decision.asked[groups] = True
    decision.damaged += [f"row group {g}, column {leaf.name}: {reason}" for g, reason in answers.damaged.items()]
    decision.notes |= {g: f"filter ignored: {reason}" for g, reason in answers.damaged.items()}
    decision.notes |= {g: f"filter not used: {reason}" for g, reason in answers.unknown.items()}

"""A key index as evidence: which row groups of which files a predicate closes.

    files of the search -> covered ones, by segment                             coverage
    predicate -> only its parts over indexed columns and folders' keys; all other parts may give anything
    for each segment, schema and folder: bind -> bounds and null counts -> entries of the literals' hashes -> closed

A file is covered if it is the one that was indexed: by its version token, or in a table by its entry in the log. Of a
table files are recognised by their names alone, because a name in a table's log has one content for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.errors import FileError, RequestError, StaleIndexError
from parquet_bloom.format.final import RULE
from parquet_bloom.format.statistics import (
    all_null_statistics,
    one_value_statistics,
    unknown_statistics,
)
from parquet_bloom.keys.coverage import Coverage, FileGroup, Flags, coverage_of, named_leaves, unlisted_files
from parquet_bloom.keys.entries import ranges
from parquet_bloom.keys.index import KeyIndex, open_key_index
from parquet_bloom.keys.manifest import Segment, SegmentColumn
from parquet_bloom.options import PathLike
from parquet_bloom.predicates.bind import (
    Bound,
    Element,
    Interval,
    Members,
    Opaque,
    Schema,
    Term,
    bind,
    known_parts,
    leaves_under,
    terms_of,
)
from parquet_bloom.predicates.outcomes import ANY, TRUE, Masks, combine, denied, probes_of, term_masks
from parquet_bloom.predicates.tree import Path, Unknown
from parquet_bloom.search.evidence import partition_value
from parquet_bloom.search.index import Asking
from parquet_bloom.search.log import BY_INDEX, Exclusion
from parquet_bloom.source.source import CallSource, ResolvedSource
from parquet_bloom.storage.paths import DataFile, Partitions


class KeyEvidence:
    """The answers of a key index on the files of one search.

    covered    how many of the files it knows
    excluded   bool[files]: those in which no row can match, and that need not be opened
    problems   parts of the index that cannot be used, in words: their columns are no evidence
    """

    def __init__(self, index: KeyIndex, search: Asking, of_part: bool = False) -> None:
        """Raises StaleIndexError for an index of none of the files, unless they are a part of those it is used for."""
        self._index, self._search = index, search
        self.problems: list[str] = []
        self._closed: dict[int, tuple[DataFile, int, Flags]] = {}  # of files that may be opened
        self.excluded = np.zeros(len(search.files), bool)
        self._coverage = self._covered()
        self.covered = self._coverage.covered
        if search.files and not self.problems and not of_part:
            self._coverage.refuse_none()
        self._ask_all()
        self.cost = index.take_cost()
        if search.options.strict_index and (problem := self._problem) is not None:
            raise StaleIndexError(index.path, problem)

    def _ask_all(self) -> None:
        log = self._search.log
        said = log.outcome if log.has_log else attrgetter("partitions") if self._search.keys else None
        for members in self._coverage.groups(self._coverage.is_known, said):
            try:
                self._ask(members)
            except FileError as error:
                self._note(str(error))
            except RequestError:
                continue  # the search says what is wrong with the predicate

    def _covered(self) -> Coverage:
        try:
            return coverage_of(self._index, self._search.found, self._search.options.listing)
        except FileError as error:  # of a listing; without it the index is no evidence for any file
            self._note(str(error))
            return Coverage(self._index)

    @cached_property
    def _excluded_ids(self) -> frozenset[int]:
        return frozenset(id(self._search.files[at]) for at in np.flatnonzero(self.excluded).tolist())

    def exclusion(self, file: DataFile) -> Exclusion | None:
        """As search.index.Evidence has it."""
        return BY_INDEX if id(file) in self._excluded_ids else None

    def closed(self, file: DataFile, version_token: object) -> Flags | None:
        """As search.index.Evidence has it. Of files that are excluded it knows the first one alone."""
        found = self._closed.get(id(file))
        return found[2] if found is not None and self._coverage.is_same(found[1], version_token) else None

    @property
    def note(self) -> str | None:
        """One line on files that are read as without the index; None where there are none."""
        problem = self._problem
        return None if problem is None else f"{self._index.path}: {problem}; these are read as without an index"

    @property
    def _problem(self) -> str | None:
        unknown = len(self._search.files) - self.covered
        lines = list(dict.fromkeys(self.problems))
        if unknown:
            lines.append(self._coverage.lacks(unknown, len(self._search.files)))
        return "; ".join(lines) or None

    def _note(self, problem: str) -> None:
        self.problems.append(problem)

    def _ask(self, members: FileGroup) -> None:
        """Decide about files of one group: of one schema, and with one outcome by the log or the folders' names."""
        search, first_file = self._search, members.first
        segment = self._index.manifest.segments[members.segment]
        schema = segment.schemas[members.schema]
        leaves = named_leaves(schema, search.log, first_file)
        there = [
            (number, leaves[at])
            for number, at in schema.columns.items()
            if leaves[at].path and segment.column(number) is not None
        ]
        own = [replace(leaf, index=i) for i, (_, leaf) in enumerate(there)]
        columns = [number for number, _ in there]
        indexed, keys = {leaf.path for leaf in own}, {key.path for key in search.keys}

        def is_known(path: Path) -> bool:
            # A name means the one leaf at or below it, among all of the file's leaves, indexed or not.
            under = leaves_under(leaves, path)
            return path in keys or (len(under) == 1 and under[0].path in indexed)

        tree = known_parts(search.predicate_of(leaves), is_known, "the index knows nothing of this column")
        if isinstance(tree, Unknown):
            return
        first = search.first if search.first is not None and search.first.leaves else None
        bound = bind(tree, Schema(tuple(own), search.keys, first, strict=False))
        if not any(not isinstance(term, Opaque) and term.leaf.index >= 0 for term in terms_of(bound)):
            return
        listing = self._index.listing(segment)
        numbers = members.numbers
        whole = len(numbers) == len(listing) and (numbers == np.arange(len(numbers))).all()
        counts = listing.first[numbers + 1] - listing.first[numbers]
        ends = np.cumsum(counts)
        places = None if whole else ranges(listing.first[numbers], counts)
        outcomes = self._outcomes(bound, segment, columns, first_file.partitions, places)
        outcomes &= np.uint8(search.log.outcome(first_file))
        closed = (outcomes & TRUE) == 0
        falls = np.logical_and.reduceat(closed, ends - counts) & members.is_sure
        self.excluded[members.positions[falls]] = True
        some = np.logical_or.reduceat(closed, ends - counts) & ~falls
        if members.positions[0] == 0:  # the first file is opened in any case, for its columns
            some[0] |= falls[0]
        for i in np.flatnonzero(some).tolist():
            file = search.files[int(members.positions[i])]
            self._closed[id(file)] = file, int(members.at[i]), closed[ends[i] - counts[i] : ends[i]]

    def _outcomes(
        self,
        bound: Bound,
        segment: Segment,
        columns: Sequence[int],
        partitions: Partitions,
        places: NDArray[np.int64] | None,
    ) -> Masks:
        """The outcomes of a predicate in places of a segment; None: in all of them."""
        nan = self._search.options.nan
        n = segment.places if places is None else len(places)
        masks = []
        for term in terms_of(bound):
            if isinstance(term, Opaque):
                masks.append(np.full(n, ANY, np.uint8))
            elif term.leaf.index < 0:
                value = partition_value(term.leaf, partitions)
                known = all_null_statistics(n) if value is None else one_value_statistics(n, value)
                masks.append(term_masks(term, known, nan))
            else:
                masks.append(self._term(term, segment, columns[term.leaf.index], places))
        return combine(bound, masks, n)

    def _term(self, term: Term, segment: Segment, number: int, places: NDArray[np.int64] | None) -> Masks:
        assert not isinstance(term, Opaque)
        statistics = self._index.listing(segment).statistics(number, term.leaf)
        if places is not None:
            statistics = statistics.taken(places)
        mask = term_masks(term, statistics, self._search.options.nan)
        column = segment.column(number)
        if column is None or not isinstance(term, Members | Interval | Element):
            return mask
        admitted = self._admitted(term, segment, column)
        if admitted is None:
            return mask
        if places is not None:
            admitted = admitted[places]
        return np.where(admitted, mask, denied(term, mask)).astype(np.uint8)

    def _admitted(self, term: Term, segment: Segment, column: SegmentColumn) -> Flags | None:
        """The places that may hold one of a term's literals: bool[places]; None where they cannot be sought."""
        probes = probes_of(term, unknown_statistics(1), 0, self._search.options.range_values)
        if probes is None:
            return None
        hashes = np.array([RULE.hash_value(plain) for plain in probes], np.uint64)
        admitted = np.zeros(segment.places, bool)
        try:
            admitted[self._index.find(segment, column, hashes)[1]] = True
        except FileError as error:
            self._note(str(error))
            return None
        return admitted


@dataclass(frozen=True, slots=True)
class SearchedIndex:
    """A key index as search.index.Index has it."""

    index: KeyIndex
    of_part: bool

    def files(self, where: CallSource) -> ResolvedSource:
        """The files of a call as the index names them."""
        return unlisted_files(where, self.index)

    def evidence(self, search: Asking) -> KeyEvidence:
        """The evidence on all files of a search."""
        return KeyEvidence(self.index, search, self.of_part)


def searched_index(where: PathLike, of_part: bool = False) -> SearchedIndex:
    """Open an index for searches, as search.index.key_index has it. Raises as keys.index.open_key_index."""
    return SearchedIndex(open_key_index(where), of_part)

"""A key index as evidence: which row groups of which files a predicate closes.

    files of the search -> covered ones, by segment                             coverage
    predicate -> only its parts over indexed columns and folders' keys; all other parts may give anything
    for each segment, schema and folder: bind -> bounds and null counts -> entries of the literals' hashes -> closed

A file is covered if it is the one that was indexed: by its version token, or in a table by its entry in the log. Of a
table files are recognised by their names alone, because a name in a table's log has one content for ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.errors import FileError, ParquetBloomError, RequestError, StaleIndexError
from parquet_bloom.format.final import RULE
from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.statistics import ColumnStatistics, unknown_statistics
from parquet_bloom.keys.coverage import Coverage, FileGroup, Flags, coverage_of, named_leaves, unlisted_files
from parquet_bloom.keys.entries import ranges
from parquet_bloom.keys.index import KeyIndex, begun, open_key_index
from parquet_bloom.keys.manifest import Segment, SegmentColumn, SegmentSchema
from parquet_bloom.options import PathLike
from parquet_bloom.predicates.bind import (
    AllOf,
    Bound,
    Element,
    FirstFile,
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
from parquet_bloom.predicates.outcomes import TRUE, Masks, probes_of
from parquet_bloom.predicates.tree import Path, Predicate, Unknown
from parquet_bloom.search.evidence import ColumnEvidence, by_partition, outcomes_of
from parquet_bloom.search.log import Exclusion, by_index
from parquet_bloom.search.question import Asking
from parquet_bloom.source.source import CallSource, ResolvedSource
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile, Partitions
from parquet_bloom.storage.stores import listed_versions

if TYPE_CHECKING:
    from concurrent.futures import Future

    from parquet_bloom.search.options import Options
    from parquet_bloom.storage.version_token import StoreToken


Places = NDArray[np.intp]
_MOST_READ = 64  # files of this machine that the index lacks, whose footers say whether they have row groups


def _has_no_row_group(file: DataFile) -> bool:
    """Whether a file of this machine is known to have none."""
    if not file.is_local:
        return False
    try:
        with OpenFile(file) as source:
            return not source.outline().n_row_groups
    except ParquetBloomError:  # who searches the file says so
        return False


class KeyEvidence:
    """The answers of a key index on the files of one search.

    covered    how many of the files it knows
    excluded   bool[files]: those in which no row can match, and that need not be opened
    row_groups int64[files]: how many these have
    problems   parts of the index that cannot be used, in words: their columns are no evidence
    """

    def __init__(self, asked: SearchedIndex, search: Asking, of_part: bool = False) -> None:
        """Raises StaleIndexError for an index of none of the files, unless they are a part of those it is used for."""
        index = asked.index
        self._index, self._search = index, search
        self.problems: list[str] = []
        self._sought: dict[tuple[str, int, bytes], Places | None] = {}
        self._closed: dict[int, tuple[DataFile, int, Flags]] = {}  # of files that may be opened
        self.excluded = np.zeros(len(search.files), bool)
        self.row_groups = np.zeros(len(search.files), np.int64)
        self._coverage = self._covered(asked)
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

    def _covered(self, asked: SearchedIndex) -> Coverage:
        try:
            return asked.coverage(self._search.found, self._search.options)
        except FileError as error:  # of a listing; without it the index is no evidence for any file
            self._note(str(error))
            return Coverage(self._index)

    @cached_property
    def _open_ids(self) -> frozenset[int]:
        return frozenset(id(self._search.files[at]) for at in np.flatnonzero(~self.excluded).tolist())

    @cached_property
    def _excluded_at(self) -> dict[int, int]:
        return {id(self._search.files[at]): at for at in np.flatnonzero(self.excluded).tolist()}

    def exclusion(self, file: DataFile) -> Exclusion | None:
        """As search.question.Evidence has it."""
        # Mostly a few files are left, and only these are asked for.
        if id(file) in self._open_ids or (at := self._excluded_at.get(id(file))) is None:
            return None
        return by_index(int(self.row_groups[at]))

    def closed(self, file: DataFile, version_token: object) -> Flags | None:
        """As search.question.Evidence has it. Of files that are excluded it knows the first one alone."""
        found = self._closed.get(id(file))
        return found[2] if found is not None and self._coverage.is_same(found[1], version_token) else None

    @property
    def note(self) -> str | None:
        """One line on files that are read as without the index; None where there are none."""
        problem = self._problem
        return None if problem is None else f"{self._index.path}: {problem}; these are read as without an index"

    @cached_property
    def _unknown(self) -> int:
        """How many files the index lacks, or has in another version. One without row groups has nothing to index."""
        unknown = len(self._search.files) - self.covered
        if not 0 < unknown <= _MOST_READ:
            return unknown
        known = set(self._coverage.positions[self._coverage.is_known].tolist())
        others = [file for at, file in enumerate(self._search.files) if at not in known]
        return unknown - sum(map(_has_no_row_group, others))

    @property
    def _problem(self) -> str | None:
        unknown = self._unknown
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
        first = search.first if search.first is not None and search.first.leaves else None
        predicate = search.predicate if search.predicate_of is None else search.predicate_of(leaves)
        known = _bound(predicate, segment, schema, leaves, search.keys, first)
        if known is None:
            return
        bound, columns = known
        listing = self._index.listing(segment)
        numbers, places = members.numbers, self._candidates(bound, segment, columns)
        whole = len(numbers) == len(listing) and (numbers == np.arange(len(numbers))).all()
        counts = listing.first[numbers + 1] - listing.first[numbers]
        if places is None and not whole:
            places = np.sort(ranges(listing.first[numbers], counts))
        outcomes = self._outcomes(bound, segment, columns, first_file.partitions, places)
        left = np.flatnonzero(outcomes & np.uint8(search.log.outcome(first_file)) & TRUE)
        left = left if places is None else places[left]
        n_open = _in_each_file(left, listing.first)[numbers]
        falls = (n_open == 0) & members.is_sure
        self.excluded[members.positions[falls]] = True
        self.row_groups[members.positions[falls]] = counts[falls]
        some = (n_open < counts) & ~falls
        if members.positions[0] == 0:  # the first file is opened in any case, for its columns
            some[0] |= falls[0]
        for i in np.flatnonzero(some).tolist():
            file, start = search.files[int(members.positions[i])], int(listing.first[numbers[i]])
            closed = np.ones(int(counts[i]), bool)
            own = slice(*np.searchsorted(left, [start, start + len(closed)]).tolist())
            closed[left[own] - start] = False
            self._closed[id(file)] = file, int(members.at[i]), closed

    def _candidates(self, bound: Bound, segment: Segment, columns: Sequence[int]) -> Places | None:
        """The places outside of which some part of an AND cannot be TRUE; None where no part says that.

        Mostly these are a few of a million, and all other evidence is asked about them alone.
        """
        found = None
        for term in bound.parts if isinstance(bound, AllOf) else [bound]:
            if isinstance(term, Members | Interval | Element) and term.leaf.index >= 0:
                places = self._admitted(term, segment, columns[term.leaf.index])
                if places is not None:
                    found = places if found is None else np.intersect1d(found, places, assume_unique=True)
        return found

    def _outcomes(
        self,
        bound: Bound,
        segment: Segment,
        columns: Sequence[int],
        partitions: Partitions,
        places: Places | None,
    ) -> Masks:
        """The outcomes of a predicate in places of a segment, ascending; None: in all of them."""
        n = segment.places if places is None else len(places)

        def statistics(leaf: Leaf) -> ColumnStatistics | None:
            if leaf.index < 0:
                return None
            known = self._index.listing(segment).statistics(columns[leaf.index], leaf)
            return known if places is None else known.taken(places)

        def denies(term: Term, mask: Masks) -> Flags | None:
            if not isinstance(term, Members | Interval | Element):
                return None
            found = self._admitted(term, segment, columns[term.leaf.index])
            if found is None:
                return None
            if places is not None:
                return np.isin(places, found, assume_unique=True, invert=True)
            absent = np.ones(n, bool)
            absent[found] = False
            return absent

        evidences = [by_partition(partitions, n), ColumnEvidence(n, statistics, denies)]
        return outcomes_of(bound, evidences, self._search.options.nan)

    def _admitted(self, term: Term, segment: Segment, number: int) -> Places | None:
        """The places that may hold one of a term's literals, ascending; None where they cannot be sought."""
        column, hashes = segment.column(number), _hashes(term, self._search.options.range_values)
        if hashes is None or column is None:
            return None
        key = segment.id, number, hashes.tobytes()
        if key not in self._sought:  # folders and schemas ask for the same
            try:
                self._sought[key] = np.unique(self._index.find(segment, column, hashes)[1]).astype(np.intp)
            except FileError as error:
                self._note(str(error))
                self._sought[key] = None
        return self._sought[key]


def _in_each_file(places: Places, first: NDArray[np.intp]) -> NDArray[np.intp]:
    """How many of some places each file of a listing has: intp[files].

    places  ascending, each once
    first   as keys.listing.Listing has it
    """
    if len(places) < len(first):
        return np.bincount(np.searchsorted(first, places, "right") - 1, minlength=len(first) - 1)
    return np.diff(np.searchsorted(places, first))


def _bound(
    predicate: Predicate,
    segment: Segment,
    schema: SegmentSchema,
    leaves: Sequence[Leaf],
    keys: tuple[Leaf, ...] = (),
    first: FirstFile | None = None,
) -> tuple[Bound, list[int]] | None:
    """A predicate over the indexed columns of a schema's files; all its other parts may give anything.

    leaves   of the schema, under the names of the source
    keys     of the folders' names
    returns  also the number of each column, in the order of the leaves that it is bound to; None where the index knows
             nothing of it
    Raises RequestError.
    """
    there = [
        (number, leaves[at])
        for number, at in schema.columns.items()
        if leaves[at].path and segment.column(number) is not None
    ]
    own = [replace(leaf, index=i) for i, (_, leaf) in enumerate(there)]
    indexed, folders = {leaf.path for leaf in own}, {key.path for key in keys}

    def is_known(path: Path) -> bool:
        # A name means the one leaf at or below it, among all of the file's leaves, indexed or not.
        under = leaves_under(leaves, path)
        return path in folders or (len(under) == 1 and under[0].path in indexed)

    tree = known_parts(predicate, is_known, "the index knows nothing of this column")
    if isinstance(tree, Unknown):
        return None
    bound = bind(tree, Schema(tuple(own), keys, first, strict=False))
    if not any(not isinstance(term, Opaque) and term.leaf.index >= 0 for term in terms_of(bound)):
        return None
    return bound, [number for number, _ in there]


def _hashes(term: Term, range_values: int) -> NDArray[np.uint64] | None:
    """The hashes of a term's literals, as entries have them; None where it has none that can be sought."""
    probes = probes_of(term, unknown_statistics(1), 0, range_values)
    return None if probes is None else np.array([RULE.hash_value(plain) for plain in probes], np.uint64)


# --- an index as search has it --------------------------------------------------------------------
#
# On a store each request takes its time, so what does not depend on another one is sent beside it:
#
#    manifest                  | the source's listing, or looks for tables
#    listings, lookups (begin) | the first file, versions of the files (expect)
#    evidence: takes what was begun, if it asks for the very same


class SearchedIndex:
    """A key index as search.question.Index has it.

    predicate, range_values  that it is going to be asked; None: not known yet
    """

    def __init__(
        self, where: PathLike, of_part: bool = False, predicate: Predicate | None = None, range_values: int = 0
    ) -> None:
        """Open it; of one on a store `index` raises the errors. Raises as keys.index.open_key_index."""
        self._of_part, self._predicate, self._range_values = of_part, predicate, range_values
        self._versions: tuple[frozenset[str], Future[dict[str, StoreToken]]] | None = None
        is_ahead = predicate is not None and "://" in os.fspath(where)
        self._opening = begun(partial(self._open, where)) if is_ahead else None
        self._opened = None if is_ahead else open_key_index(where)

    def _open(self, where: PathLike) -> KeyIndex:
        index = open_key_index(where)
        if index.is_remote:
            index.begin(self._expected(index))
        return index

    @property
    def index(self) -> KeyIndex:
        """The index. Raises as keys.index.open_key_index."""
        if self._opened is None:
            assert self._opening is not None
            self._opened = self._opening.result()
        return self._opened

    def _expected(self, index: KeyIndex) -> Iterator[tuple[Segment, SegmentColumn, NDArray[np.uint64]]]:
        """The lookups of the predicate, as far as they can be known before a file is opened."""
        for segment in index.manifest.segments:
            if not segment.schemas:
                continue
            try:
                known = _bound(cast(Predicate, self._predicate), segment, segment.schemas[0], segment.schemas[0].leaves)
            except RequestError:
                continue  # the search says what is wrong with the predicate
            for term in () if known is None else terms_of(known[0]):
                if known is None or not isinstance(term, Members | Interval | Element):
                    continue
                hashes, column = _hashes(term, self._range_values), segment.column(known[1][term.leaf.index])
                if hashes is not None and len(hashes) and column is not None:
                    yield segment, column, hashes

    def files(self, where: CallSource) -> ResolvedSource:
        """The files of a call as the index names them."""
        return unlisted_files(where, lambda: self.index)

    def expect(self, found: ResolvedSource, options: Options) -> None:
        """As search.question.Index has it."""
        manifest = self.index.manifest
        # A table's files are recognised by its log.
        if manifest.segments and options.listing and not found.has_log and found.files and not found.files[0].is_local:
            paths = frozenset(file.path for file in found.files)
            self._versions = paths, begun(partial(listed_versions, found.files))

    def coverage(self, found: ResolvedSource, options: Options) -> Coverage:
        """The files of a source that it knows. Raises DamagedFileError, StorageError for a listing."""
        paths, listed = self._versions or (frozenset(), None)
        if listed is None or not all(file.path in paths for file in found.files):
            return coverage_of(self.index, found, options.listing)
        return coverage_of(self.index, found, options.listing, lambda _: listed.result())

    def evidence(self, search: Asking) -> KeyEvidence:
        """The evidence on all files of a search."""
        return KeyEvidence(self, search, self._of_part)

"""The evidence of zone indexes: stretches of a fragment, and the outcomes of a predicate over each.

    index of id    | zone 0      | zone 1      | zone 2 |
    index of name  | zone 0 | zone 1 | zone 2           |
    stretches      |   0    | 1  | 2  |   3    |   4    |     masks as in predicates.outcomes

A part that no index speaks for may give anything; so may rows that lie in no zone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.errors import DamagedFileError, RefusedTypeError
from parquet_bloom.format import lance as form
from parquet_bloom.format.final import Rule
from parquet_bloom.format.roaring import count_within
from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.statistics import ColumnStatistics, unknown_statistics
from parquet_bloom.options import RANGE_VALUES
from parquet_bloom.predicates.bind import Bound, Interval, Members, Null, Opaque, Term, terms_of
from parquet_bloom.predicates.outcomes import TRUE, Masks, probes_of
from parquet_bloom.search.evidence import ColumnEvidence, by_literals, outcomes_of
from parquet_bloom.search.options import Nan
from parquet_bloom.zones.container import ZoneFile

_RULE = Rule("xxh64", 0, "multiply-shift")
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Cover:
    """A zone index and what it may speak for.

    path       the column's
    kind       its Arrow type
    fragments  the fragments it may speak for; None: all that it has zones of
    """

    file: ZoneFile
    path: tuple[str, ...]
    kind: pa.DataType
    fragments: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Stretches:
    """Rows [start, stop) of one fragment, ascending and apart: int64[n]; and what the predicate may give: uint8[n]."""

    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    masks: Masks

    @property
    def open(self) -> NDArray[np.bool_]:
        """The stretches in which TRUE is possible."""
        possible: NDArray[np.bool_] = (self.masks & TRUE) != 0
        return possible


class ZoneEvidence:
    """A bound predicate over zone indexes; each file is read once.

    zones_asked  how many filters were
    unused       part -> why an index over its column could not be asked
    """

    def __init__(self, bound: Bound, covers: Sequence[Cover], nan: Nan, range_values: int = RANGE_VALUES) -> None:
        self._bound, self._nan = bound, nan
        self._terms = terms_of(bound)
        # id(cover) -> id(term) -> the zones that admit it; None: their filters cannot be asked
        self._spoken: dict[int, dict[int, NDArray[np.bool_] | None]] = {id(cover): {} for cover in covers}
        self.zones_asked = 0
        self.unused: dict[str, str] = {}
        for cover in covers:
            if cover.file.overlapping.any():
                raise DamagedFileError(cover.file.path, "its zones overlap; build the index again")
            self._ask(cover, range_values)
        self._used = [cover for cover in covers if self._spoken[id(cover)]] or list(covers)

    def _ask(self, cover: Cover, range_values: int) -> None:
        spoken = self._spoken[id(cover)]
        questions: dict[int, NDArray[np.uint64]] = {}  # id(term) -> hashes
        for term in self._terms:
            if isinstance(term, Opaque) or term.leaf.path != cover.path or term.leaf.index < 0:
                continue  # below zero: the folder's name, which hides the file's column
            try:
                hashes = _hashes(term, cover.kind, range_values)
            except RefusedTypeError as error:
                self.unused[cover.file.path] = str(error)
                continue
            spoken[id(term)] = None
            if hashes is not None:
                questions[id(term)] = hashes
        if not questions:
            return
        zones = np.arange(cover.file.zones)
        if cover.fragments is not None:
            zones = zones[np.isin(cover.file.fragment, list(cover.fragments))]
        answers = np.ones((len(questions), cover.file.zones), bool)
        answers[:, zones] = cover.file.admits(list(questions.values()), zones)
        self.zones_asked += len(zones)
        spoken.update(zip(questions, answers, strict=True))

    def stretches(self, fragment: int | Mapping[str, int], rows: int | None = None) -> Stretches:
        """The outcomes of the predicate over the rows of a fragment.

        fragment  its number; or index file -> its number there, where each has its own
        rows      that the fragment has: all of them are told of; None: only those in zones, as what lies
              between the zones of a Lance fragment had been deleted when the index was built
        """
        number = {id(c): fragment if isinstance(fragment, int) else fragment.get(c.file.path, -1) for c in self._used}
        spans = {id(cover): zones_of(cover, number[id(cover)]) for cover in self._used}
        edges = [edge for first, start, stop in spans.values() for edge in (start, stop)]
        if rows is not None:
            edges = [np.minimum(edge, rows) for edge in edges] + [np.array([0, rows], np.int64)]
        cuts = np.unique(np.concatenate(edges)) if edges else _NONE
        start, stop = cuts[:-1], cuts[1:]
        at = {key: zone_at(span, start) for key, span in spans.items()}
        if rows is None and len(start):
            known = np.logical_or.reduce([zone >= 0 for zone in at.values()])
            start, stop = start[known], stop[known]
            at = {key: zone[known] for key, zone in at.items()}
        n = len(start)
        evidences = [by_literals(n)]
        for cover in self._used:
            zone = at[id(cover)]
            known = _statistics(cover.file, number[id(cover)], zone, start, stop)
            evidences.append(ColumnEvidence(n, partial(self._known, cover, known), partial(self._denied, cover, zone)))
        return Stretches(start, stop, outcomes_of(self._bound, evidences, self._nan))

    def _known(self, cover: Cover, known: ColumnStatistics, leaf: Leaf) -> ColumnStatistics | None:
        return known if leaf.path == cover.path and leaf.index >= 0 and self._spoken[id(cover)] else None

    def _denied(self, cover: Cover, zone: NDArray[np.int64], term: Term, mask: Masks) -> NDArray[np.bool_] | None:
        admits = self._spoken[id(cover)].get(id(term))
        return None if admits is None or not len(zone) else (zone >= 0) & ~admits[np.maximum(zone, 0)]


def _hashes(term: Term, kind: pa.DataType, range_values: int) -> NDArray[np.uint64] | None:
    """The hashes to query a filter for; None where it cannot answer. RefusedTypeError where column and index differ."""
    assert not isinstance(term, Opaque)
    native = form.conversion_of(term.leaf, kind)
    if isinstance(term, Null):
        return None
    if not isinstance(term, Members | Interval):
        return None
    probes = probes_of(term, unknown_statistics(1), 0, range_values)
    if probes is None:
        return None
    found = [native.plain(probe) for probe in probes]
    return np.array([_RULE.hash_value(probe) for probe in found if probe is not None], np.uint64)


def zones_of(cover: Cover, fragment: int) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    """The first zone of a fragment, and where its zones start and stop."""
    if cover.fragments is not None and fragment not in cover.fragments:
        return 0, _NONE, _NONE
    file = cover.file
    first, last = np.searchsorted(file.fragment, [fragment, fragment + 1]).tolist()
    start = file.start[first:last]
    return first, start, start + file.length[first:last]


def zone_at(span: tuple[int, NDArray[np.int64], NDArray[np.int64]], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The zone that each row lies in, or -1."""
    first, start, stop = span
    if not len(start):
        return np.full(len(rows), -1, np.int64)
    i = np.searchsorted(start, rows, "right") - 1
    return np.where((i >= 0) & (rows < stop[np.maximum(i, 0)]), i + first, -1)


def _statistics(
    file: ZoneFile, fragment: int, zone: NDArray[np.int64], start: NDArray[np.int64], stop: NDArray[np.int64]
) -> ColumnStatistics:
    """The stretches that may hold nulls, and values; without a null bitmap has_null decides for whole zones."""
    unknown = unknown_statistics(len(start))
    if not len(start) or not file.zones:
        return unknown
    inside, zone = zone >= 0, np.maximum(zone, 0)
    if file.nulls is None:
        some_null, some_value = file.has_null[zone], np.ones(len(start), bool)
    else:
        ranges = file.nulls.get(fragment, np.empty((0, 2), np.int64))
        nulls = count_within(ranges, start, stop)
        of_zone = count_within(ranges, file.start[zone], file.start[zone] + file.length[zone])
        # A zone that says it has nulls, of which the bitmap has none, contradicts itself.
        some_null = (nulls > 0) | (file.has_null[zone] & (of_zone == 0))
        some_value = nulls < stop - start
    return ColumnStatistics(
        some_null | ~inside,
        some_value | ~inside,
        unknown.nan_free,
        unknown.lower,
        unknown.upper,
        unknown.has_lower,
        unknown.has_upper,
    )

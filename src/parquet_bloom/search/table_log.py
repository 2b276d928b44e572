"""What a table's log says of its files, as evidence before one of them is opened.

    partition values -> bounds and null counts -> buckets, for all files at once

The same statistics and tables as for row groups (predicates.deciding): here a row of the arrays is a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.formats.bounds import ColumnStatistics, Domain, domain_of, one_value_statistics, unknown_statistics
from parquet_bloom.formats.bounds import all_null_statistics as all_null
from parquet_bloom.formats.metadata.schema import Leaf
from parquet_bloom.formats.operands import operand
from parquet_bloom.predicates.arrow_literals import OutOfReachError, literal_of
from parquet_bloom.predicates.bind import Bound, Members, Opaque, Term, terms_of
from parquet_bloom.predicates.deciding import combine, denied, term_masks
from parquet_bloom.predicates.outcomes import TRUE, Masks
from parquet_bloom.tables.snapshot import FileBounds, LeafPath, TableFile

_ABSENT: dict[Domain, Any] = {"integer": 0, "float": 0.0, "bytes": b""}  # what stands in arrays where nothing is known
_NOTHING = FileBounds()


def log_outcomes(bound: Bound, files: Sequence[TableFile], nan: str) -> tuple[Masks, list[str | None]]:
    """What a predicate may give over each file's rows by the log alone, and what made TRUE impossible.

    bound  to the leaves of the table's schema
    """
    constants = _Constants()
    found = _outcomes(bound, files, nan, constants.or_bounds)
    stages: list[str | None] = [None] * len(files)
    closed = np.flatnonzero((found & TRUE) == 0).tolist()
    if closed:
        by_partition = _outcomes(bound, [files[i] for i in closed], nan, constants.of)
        for i, outcome in zip(closed, by_partition.tolist(), strict=True):
            stages[i] = "bounds" if outcome & TRUE else "partition"
    return found, stages


def statistics_of_constant(scalar: pa.Scalar, leaf: Leaf, n: int) -> ColumnStatistics:
    """The statistics of n row groups in which every row holds this value."""
    said = _of_scalar(scalar, leaf)
    if not said.has_values:
        return all_null(n)
    return unknown_statistics(n) if said.lower is None else one_value_statistics(n, said.lower)


def contradicts(scalar: pa.Scalar, own: ColumnStatistics, leaf: Leaf, rows: NDArray[np.int64]) -> bool:
    """Whether a file's own statistics deny that every row of it holds this value.

    own   of the file's leaf, in each row group
    rows  of the row groups, int64[n]
    """
    said, there = _of_scalar(scalar, leaf), rows > 0
    if not said.has_values:
        return bool((there & ~own.some_null).any())
    denied_by = ~own.some_value
    if said.lower is not None:
        denied_by = denied_by | (own.has_lower & (own.lower > said.lower)) | (own.has_upper & (own.upper < said.lower))
    return bool((there & denied_by).any())


Said = Callable[[TableFile, Leaf], FileBounds]  # of a leaf in a file


def _outcomes(bound: Bound, files: Sequence[TableFile], nan: str, said: Said) -> Masks:
    masks = []
    known: dict[tuple[str, ...], ColumnStatistics] = {}
    for term in terms_of(bound):
        if isinstance(term, Opaque):
            masks.append(term_masks(term, unknown_statistics(len(files)), nan))
            continue
        if term.leaf.path not in known:
            known[term.leaf.path] = _statistics(term.leaf, [said(file, term.leaf) for file in files])
        masks.append(_bucketed(term, term_masks(term, known[term.leaf.path], nan), files))
    return combine(bound, masks, len(files))


class _Constants:
    """Values that all rows of a file hold, as bounds. A scalar that files share, as they mostly do, is read once."""

    def __init__(self) -> None:
        self._read: dict[tuple[LeafPath, int], tuple[pa.Scalar, FileBounds]] = {}

    def of(self, file: TableFile, leaf: Leaf) -> FileBounds:
        scalar = file.constants.get(leaf.path[0]) if len(leaf.path) == 1 else None
        if scalar is None or leaf.path[0] in file.doubtful:
            return _NOTHING
        known = self._read.get((leaf.path, id(scalar)))
        if known is None:
            known = scalar, _of_scalar(scalar, leaf)  # kept with it: no other object can get its id
            self._read[leaf.path, id(scalar)] = known
        return known[1]

    def or_bounds(self, file: TableFile, leaf: Leaf) -> FileBounds:
        constant = self.of(file, leaf)
        return file.bounds.get(leaf.path, _NOTHING) if constant is _NOTHING else constant


def _of_scalar(scalar: pa.Scalar, leaf: Leaf) -> FileBounds:
    """A value that all rows hold, as bounds; one whose place in the column's order nobody knows tells nothing."""
    if not scalar.is_valid:
        return FileBounds(has_values=False, nan_free=True)
    try:
        found = operand(literal_of(scalar), leaf)
    except OutOfReachError:
        return FileBounds(null_count=0)
    if not found.known or found.lower != found.upper:
        return FileBounds(null_count=0)
    return FileBounds(found.lower, found.upper, null_count=0, nan_free=True)


def _statistics(leaf: Leaf, said: Sequence[FileBounds]) -> ColumnStatistics:
    """Statistics of a leaf in n files."""
    domain = domain_of(leaf)
    some_null = np.array([one.null_count != 0 for one in said], bool)
    some_value = np.array([one.has_values for one in said], bool)
    nan_free = np.array([one.nan_free for one in said], bool) if leaf.float_bits else np.ones(len(said), bool)
    lower, has_lower = _bounds([one.lower for one in said], domain)
    upper, has_upper = _bounds([one.upper for one in said], domain)
    return ColumnStatistics(some_null, some_value, nan_free, lower, upper, has_lower, has_upper)


def _bounds(values: Sequence[Any], domain: Domain | None) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """One bound of every file, and where it is known; a NaN bounds nothing."""
    if domain is None:
        return np.zeros(len(values), np.int64), np.zeros(len(values), bool)
    has = np.array([value is not None and value == value for value in values], bool)
    plain = [value if known else _ABSENT[domain] for value, known in zip(values, has.tolist(), strict=True)]
    if domain == "float":
        return np.array(plain, np.float64), has
    if domain == "integer" and all(-(1 << 63) <= value < 1 << 63 for value in plain):
        return np.array(plain, np.int64), has
    found = np.empty(len(plain), object)
    found[:] = plain
    return found, has


def _bucketed(term: Term, mask: Masks, files: Sequence[TableFile]) -> Masks:
    """Take TRUE from files of which a bucket, or the like, says that no row equals one of the literals."""
    if not isinstance(term, Members):
        return mask
    asked = [one for one in term.operands if not one.never]
    excluded = [
        bool(mask[i] & TRUE)
        and any(
            bucket.path == term.leaf.path and not any(bucket.admits(term.leaf, one) for one in asked)
            for bucket in file.buckets
        )
        for i, file in enumerate(files)
    ]
    return np.where(excluded, denied(term, mask), mask).astype(np.uint8) if any(excluded) else mask

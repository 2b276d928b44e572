"""Computes which of {TRUE, FALSE, NULL} a row can give.

A row group is skipped when TRUE is impossible, and only then; its rows need no filter when TRUE is
alone. Sets are computed from sets: what AND may give is each outcome of one side with each of the
other, by SQL's three-valued logic, so nothing is ever left out.
"""

from __future__ import annotations

import enum
import operator as op
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.format.statistics import ColumnStatistics, domain_of, limits
from parquet_bloom.format.values import Operand, plain
from parquet_bloom.predicates.bind import AllOf, AnyOf, Bound, Element, Interval, Members, NotOf, Null, Opaque, Term


class Outcomes(enum.Flag):
    """A subset of {TRUE, FALSE, NULL}: what a predicate may give over the rows of a row group."""

    NONE = 0
    TRUE = 1
    FALSE = 2
    NULL = 4
    ANY = 7

    @property
    def names(self) -> list[str]:
        """The names of the outcomes in the set."""
        return [str(member.name) for member in (Outcomes.TRUE, Outcomes.FALSE, Outcomes.NULL) if member in self]


TRUE, FALSE, NULL, ANY = 1, 2, 4, 7
Masks = NDArray[np.uint8]  # one element a row group, bits as in Outcomes


def _and(a: int, b: int) -> int:
    return FALSE if FALSE in (a, b) else NULL if NULL in (a, b) else TRUE


def _or(a: int, b: int) -> int:
    return TRUE if TRUE in (a, b) else NULL if NULL in (a, b) else FALSE


def _table(operation: Callable[[int, int], int]) -> Masks:
    # Entry [a, b], of two sets as bits, is the set of the results of each member of a with each of b.
    members = [[m for m in (TRUE, FALSE, NULL) if m & bits] for bits in range(8)]
    return np.array(
        [[reduce(int.__or__, (operation(x, y) for x in a for y in b), 0) for b in members] for a in members], np.uint8
    )


_AND, _OR = _table(_and), _table(_or)
# NULL stays, TRUE moves to FALSE's bit and FALSE to TRUE's.
_NOT = np.array([bits & NULL | (bits & TRUE) << 1 | (bits & FALSE) >> 1 for bits in range(8)], np.uint8)


def conjunction(parts: list[Masks], n: int) -> Masks:
    """The outcomes of AND of the parts, for each of n row groups."""
    return reduce(lambda a, b: _AND[a, b], parts) if parts else np.full(n, TRUE, np.uint8)


def disjunction(parts: list[Masks], n: int) -> Masks:
    """The outcomes of OR of the parts."""
    return reduce(lambda a, b: _OR[a, b], parts) if parts else np.full(n, FALSE, np.uint8)


def negation(part: Masks) -> Masks:
    """The outcomes of NOT of the part."""
    return _NOT[part]


# --- deciding -------------------------------------------------------------------------------------
#
# Column statistics -> what each part of a bound predicate may give, row group by row group.
#
# Every answer keeps this rule: if some row gives an outcome, the set has it. Bounds are never taken for
# stored values, and a float column that may hold NaN may always give FALSE (under nan="largest",
# anything).

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]


def combine(bound: Bound, masks: Sequence[Masks], n: int) -> Masks:
    """The outcomes of the whole, from those of its terms (in the order of terms_of)."""
    found, rest = _combine(bound, list(masks), n)
    assert not rest
    return found


def _combine(bound: Bound, masks: list[Masks], n: int) -> tuple[Masks, list[Masks]]:
    if isinstance(bound, AllOf | AnyOf):
        parts = []
        for part in bound.parts:
            found, masks = _combine(part, masks, n)
            parts.append(found)
        return (conjunction if isinstance(bound, AllOf) else disjunction)(parts, n), masks
    if isinstance(bound, NotOf):
        found, masks = _combine(bound.part, masks, n)
        return negation(found), masks
    return masks[0], masks[1:]


def term_masks(term: Term, statistics: ColumnStatistics, nan: str = "ieee") -> Masks:
    """The outcomes of one term in each row group."""
    n = len(statistics)
    if isinstance(term, Opaque):
        return np.full(n, ANY, np.uint8)
    if isinstance(term, Null):
        return _bits(statistics.some_null, TRUE) | _bits(statistics.some_value, FALSE)
    if isinstance(term, Element):
        return _bits(_may_equal(term.operand, statistics), TRUE) | np.uint8(FALSE | NULL)
    # First the rows with a value, then NULL for the others. Where NaN is the largest value, it compares like any other,
    # and bounds, which leave it out, say nothing of a row group that may have one.
    domain = domain_of(term.leaf)
    if domain == "float" and nan == "largest":
        values = np.where(statistics.nan_free, _values(term, statistics), np.uint8(TRUE | FALSE)).astype(np.uint8)
    else:
        values = _values(term, statistics)
    if isinstance(term, Members) and term.null:  # what would be FALSE is NULL
        values = values & np.uint8(TRUE) | (values & np.uint8(FALSE)) << np.uint8(1)
    return np.where(statistics.some_value, values, np.uint8(0)).astype(np.uint8) | _bits(statistics.some_null, NULL)


def denied(term: Term, mask: Masks) -> Masks:
    """The outcomes of a term when no value of the rows makes it TRUE."""
    was_true = (mask & TRUE) != 0
    instead = NULL if isinstance(term, Members) and term.null else FALSE
    return np.where(was_true, mask & ~np.uint8(TRUE) | np.uint8(instead), mask).astype(np.uint8)


def _bits(flags: Flags, bit: int) -> Masks:
    return flags.astype(np.uint8) * np.uint8(bit)


def _values(term: Members | Interval, statistics: ColumnStatistics) -> Masks:
    """TRUE and FALSE as far as rows with a value may give them."""
    if isinstance(term, Interval):
        may, must = _interval(term, statistics)
    else:
        may, must = _members(term, statistics)
    # A NaN lies within no bounds, and no comparison with it is TRUE: some row may always give FALSE.
    if domain_of(term.leaf) == "float":
        must = must & statistics.nan_free
    return _bits(may, TRUE) | _bits(~must, FALSE)


def _known(has: Flags, compare: Callable[[], Any]) -> Flags:
    """The row groups whose bound is known and compares so; an unknown bound may hold any value in its array."""
    return has & np.asarray(compare(), bool) if has.any() else np.zeros(len(has), bool)


def as_cell(value: Any) -> Any:
    """A value that numpy compares as it is: bytes alone would lose the zeros at their end."""
    if not isinstance(value, bytes):
        return value
    cell = np.empty((), object)
    cell[()] = value
    return cell


def _interval(term: Interval, statistics: ColumnStatistics) -> tuple[Flags, Flags]:
    # `may`: some value can lie inside; `must`: every value does. The literals of `lower` and `upper` lie between
    # their low and high, which differ if the type cannot have a literal exactly. `may` takes the end that keeps more,
    # `must` the end that keeps less.
    n = len(statistics)
    may, must = np.ones(n, bool), np.ones(n, bool)
    if (lower := term.lower) is not None:
        past = op.le if lower.open else op.lt
        may &= ~_known(statistics.has_upper, lambda: past(statistics.upper, as_cell(lower.low)))
        inside = op.gt if lower.open else op.ge
        must &= _known(statistics.has_lower, lambda: inside(statistics.lower, as_cell(lower.high)))
    if (upper := term.upper) is not None:
        past = op.ge if upper.open else op.gt
        may &= ~_known(statistics.has_lower, lambda: past(statistics.lower, as_cell(upper.high)))
        inside = op.lt if upper.open else op.le
        must &= _known(statistics.has_upper, lambda: inside(statistics.upper, as_cell(upper.low)))
    # An integer interval may be empty without any bounds: x > 5 AND x < 6.
    low, high = _ends(term)
    if low is not None and high is not None and low > high:
        may &= False
    return may, must


def _ends(term: Interval) -> tuple[int | None, int | None]:
    """The first and last value of an integer interval within its type; None where there is no end."""
    if domain_of(term.leaf) != "integer":
        return None, None
    range_of = limits(term.leaf)
    low = None if term.lower is None else term.lower.low
    high = None if term.upper is None else term.upper.high
    if range_of is not None:
        low = range_of[0] if low is None else max(low, range_of[0])
        high = range_of[1] if high is None else min(high, range_of[1])
    return low, high


def _may_equal(operand: Operand, statistics: ColumnStatistics) -> Flags:
    if operand.never:
        return np.zeros(len(statistics), bool)
    above = _known(statistics.has_lower, lambda: statistics.lower > as_cell(operand.upper))
    below = _known(statistics.has_upper, lambda: statistics.upper < as_cell(operand.lower))
    return ~(above | below)


def _members(term: Members, statistics: ColumnStatistics) -> tuple[Flags, Flags]:
    # `single`: both bounds are one value, so every value is it. Truncated bounds are no exception: a lower bound cut
    # off is below, an upper one above its value, and they are equal only if both are exact.
    n = len(statistics)
    single = _known(statistics.has_lower & statistics.has_upper, lambda: statistics.lower == statistics.upper)
    # Of many literals, sorted and exact, a row group has those between its bounds: two binary searches.
    if term.ranked:
        first, last = _all_between(term.operands, statistics)
        may = first < last
        return may, single & may
    asked = [o for o in term.operands if not o.never]
    may, must = np.zeros(n, bool), np.zeros(n, bool)
    for operand in asked:
        may |= _may_equal(operand, statistics)
        if operand.lower == operand.upper and single.any():
            must |= _known(single, partial(op.eq, statistics.lower, as_cell(operand.lower)))
    return may, must


def _between(ranked: Sequence[Operand], statistics: ColumnStatistics, row_group: int) -> tuple[int, int]:
    """The ranked operands, from the first up to the last, that lie within a row group's bounds."""
    first, last = 0, len(ranked)
    if statistics.has_lower[row_group]:
        first = bisect_left(ranked, _python_value(statistics.lower[row_group]), key=_lower)
    if statistics.has_upper[row_group]:
        last = bisect_right(ranked, _python_value(statistics.upper[row_group]), key=_lower)
    return first, last


def _all_between(ranked: Sequence[Operand], statistics: ColumnStatistics) -> tuple[Numbers, Numbers]:
    """The same for each row group: int64[row groups], twice."""
    n, kind = len(statistics), statistics.lower.dtype
    first, last = np.zeros(n, np.int64), np.full(n, len(ranked), np.int64)
    lowers = [operand.lower for operand in ranked]
    whole = np.iinfo(kind) if kind.kind in "iu" else None
    if whole is not None and all(type(one) is int and whole.min <= one <= whole.max for one in lowers):
        order = np.array(lowers, kind)
        low, high = statistics.has_lower, statistics.has_upper
        first[low] = np.searchsorted(order, statistics.lower[low], "left")
        last[high] = np.searchsorted(order, statistics.upper[high], "right")
        return first, last
    for i in np.flatnonzero(statistics.has_lower | statistics.has_upper).tolist():
        first[i], last[i] = _between(ranked, statistics, i)
    return first, last


_lower = op.attrgetter("lower")


def _python_value(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


# --- what to ask a filter for ---------------------------------------------------------------------


def probes_of(term: Term, statistics: ColumnStatistics, row_group: int, most: int) -> tuple[bytes, ...] | None:
    """The PLAIN bytes whose absence from a filter means that the term is never TRUE; None: unknown.

    most  so many values of an integer range are asked for, one by one
    """
    if isinstance(term, Element):
        return term.operand.probes
    if isinstance(term, Interval):
        return _range_probes(term, statistics, row_group, most)
    if not isinstance(term, Members):
        return None
    if term.ranked:
        return _probes_among(term.operands[slice(*_between(term.operands, statistics, row_group))])
    return _probes_among(tuple(o for o in term.operands if not o.never))


def _probes_among(operands: Sequence[Operand]) -> tuple[bytes, ...] | None:
    probes = [operand.probes for operand in operands]
    return None if None in probes else tuple(chain.from_iterable(filter(None, probes)))


def probes_of_each(
    term: Term, statistics: ColumnStatistics, row_groups: Sequence[int], most: int
) -> list[tuple[bytes, ...] | None]:
    """The same for some row groups; those that are queried for the same values of a long list have one tuple."""
    if not isinstance(term, Members) or not term.ranked:
        return [probes_of(term, statistics, g, most) for g in row_groups]
    first, last = (ends.tolist() for ends in _all_between(term.operands, statistics))
    found: dict[tuple[int, int], tuple[bytes, ...] | None] = {}
    for g in row_groups:
        ends = first[g], last[g]
        if ends not in found:
            found[ends] = _probes_among(term.operands[slice(*ends)])
    return [found[first[g], last[g]] for g in row_groups]


def _range_probes(term: Interval, statistics: ColumnStatistics, row_group: int, most: int) -> tuple[bytes, ...] | None:
    low, high = _ends(term)
    if domain_of(term.leaf) != "integer":
        return None
    if statistics.has_lower[row_group]:
        bound = int(statistics.lower[row_group])
        low = bound if low is None else max(low, bound)
    if statistics.has_upper[row_group]:
        bound = int(statistics.upper[row_group])
        high = bound if high is None else min(high, bound)
    if low is None or high is None or high - low >= most:
        return None
    probes = [plain(number, term.leaf) for number in range(low, high + 1)]
    return None if None in probes else tuple(p for p in probes if p is not None)


def same_for_all(term: Term) -> bool:
    """Whether every row group is queried for the same probes."""
    return isinstance(term, Element) or (isinstance(term, Members) and not term.ranked)


__all__ = ["combine", "denied", "probes_of", "probes_of_each", "same_for_all", "term_masks"]

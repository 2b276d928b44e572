"""Bugs to plant: each a function, a text in its source, the wrong text for it, and what it would cost.

A function keeps its identity and gets other code, so it does not matter who has imported it.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import Any

from parquet_bloom.filters import asking
from parquet_bloom.filters import locate as filter_ranges
from parquet_bloom.format import literals as numbers
from parquet_bloom.format import literals as times
from parquet_bloom.format import statistics as bounds
from parquet_bloom.format import values
from parquet_bloom.format import values as operands
from parquet_bloom.predicates import arrow, bind, outcomes
from parquet_bloom.predicates import bind as names
from parquet_bloom.predicates import outcomes as deciding
from parquet_bloom.rows import scan
from parquet_bloom.search import evidence, log
from parquet_bloom.source import columns as hive


@dataclass(frozen=True)
class Mutant:
    name: str
    function: Callable[..., Any]
    right: str
    wrong: str


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """The function with the wrong text in it. Raises where the right text is not there any more."""
    function = mutant.function
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(mutant.right) >= 1, f"{function.__qualname__} no longer has {mutant.right!r}: plant it anew"
    wrong = source.replace(mutant.right, mutant.wrong)
    module = compile(wrong, "planted", "exec", annotations.compiler_flag, dont_inherit=True)
    [code] = [one for one in module.co_consts if isinstance(one, CodeType) and one.co_name == function.__name__]
    right = function.__code__
    function.__code__ = code
    try:
        yield
    finally:
        function.__code__ = right


_M = Mutant
MUTANTS = [
    # --- edges of intervals
    _M("x >= 5 taken for x > 5 against max", deciding._interval, "op.le if lower.open else op.lt", "op.le"),
    _M("x <= 5 taken for x < 5 against min", deciding._interval, "op.ge if upper.open else op.gt", "op.ge"),
    _M("x > 5 taken for x >= 5 in 'all match'", deciding._interval, "op.gt if lower.open else op.ge", "op.ge"),
    _M("x < 5 taken for x <= 5 in 'all match'", deciding._interval, "op.lt if upper.open else op.le", "op.le"),
    _M("x <= 5 as x <= 4", bind._interval, "found.upper - 1 if open else found.lower", "found.upper - 1"),
    _M("x <= 1.5 as x <= 2", bind._interval, "found.upper - 1 if open else found.lower", "found.upper"),
    _M("x >= 5 as x >= 6", bind._interval, "found.lower + 1 if open else found.upper", "found.lower + 1"),
    _M("x > 5 as x >= 5", bind._interval, "found.lower + 1 if open else found.upper", "found.upper"),
    _M("merged ranges of two columns", bind._merged, "part.leaf.index", "len(part.leaf.path)"),
    _M("merged ranges take the outer edge", bind._merged, "min(uppers", "max(uppers"),
    _M("min itself denied", deciding._may_equal, "statistics.lower > ", "statistics.lower >= "),
    _M("max itself denied", deciding._may_equal, "statistics.upper < ", "statistics.upper <= "),
    _M("of many literals the first above min", deciding._between, "bisect_left(", "1 + bisect_left("),
    _M("of many integers the first above min", deciding._all_between,
       "np.searchsorted(order, statistics.lower[low]", "1 + np.searchsorted(order, statistics.lower[low]"),
    # --- three-valued logic
    _M("NULL ignored in IN", bind._members, "null = len(operands) < len(values)", "null = False"),
    _M("NOT drops NULL", outcomes.negation, "_NOT[part]", "_NOT[part & np.uint8(3)]"),
    _M("NOT is the complement", outcomes.negation, "_NOT[part]", "part ^ np.uint8(7)"),
    _M("AND is the intersection", outcomes.conjunction, "_AND[a, b]", "a & b"),
    _M("OR is the intersection", outcomes.disjunction, "_OR[a, b]", "a & b"),
    _M("masks of the wrong terms", deciding._combine, "in bound.parts", "in reversed(bound.parts)"),
    _M("'all match' without a look at NULL", deciding.term_masks, "| _bits(statistics.some_null, NULL)", ""),
    _M("list_contains is never FALSE", deciding.term_masks, "np.uint8(FALSE | NULL)", "np.uint8(NULL)"),
    _M("what a filter denies is FALSE", deciding.denied,
       "mask & ~np.uint8(TRUE) | np.uint8(instead)", "np.uint8(FALSE)"),
    _M("IN (.., NULL) is FALSE", deciding.term_masks, "<< np.uint8(1)", "<< np.uint8(0)"),
    _M("pyarrow's isin gives NULL", arrow._is_in,
       "return join(And, [join(Or, ways), Not(IsNull(path))])", "return join(Or, ways)"),
    # --- statistics
    _M("unsigned: the old max believed", bounds.is_signed_number, "and bool(signed)", ""),
    _M("binary: the old max believed", bounds.is_signed_number,
       "in (BOOLEAN, INT32, INT64, FLOAT, DOUBLE)", "is not None"),
    _M("old writers' new fields believed", bounds.is_wrong, "and fault.types(leaf)", "and False"),
    _M("bounds without an order believed", bounds.has_order, "return False\n    order =", "return True\n    order ="),
    _M("an unknown order believed", bounds.has_order, "order.TYPE_ORDER is not None", "True"),
    _M("old pyarrow's dictionaries believed", bounds.is_wrong, "version < fault.until", "version < (0,)"),
    _M("NULLs of structs not counted", bounds.is_wrong, "fault.statistic == statistic",
       'fault.statistic == statistic == "bounds"'),
    _M("bounds beside a NaN believed", bounds._spoilt, 'if domain == "float":', "if False:"),
    _M("no NaN expected", deciding._values, "must & statistics.nan_free", "must"),
    _M("missing nan_count taken for 0", bounds._statistics, "slots[Slot.NAN_COUNT] == 0", "slots[Slot.NAN_COUNT] <= 0"),
    _M("NaN is no largest value", deciding.term_masks, 'nan == "largest"', 'nan == "no"'),
    _M("missing null_count taken for 0", bounds._statistics,
       "slots[Slot.NULL_COUNT]\n", "np.maximum(slots[Slot.NULL_COUNT], 0)\n"),
    _M("counts that contradict believed", bounds._statistics, "(nulls >= 0) & (nulls <= values)", "(nulls != NONE)"),
    _M("one NULL taken for all", bounds._statistics, "(nulls < values)", "(nulls == 0)"),
    _M("unsigned read as signed", bounds._decode, 'if leaf.logical == "INTEGER" and not leaf.signed:', "if False:"),
    _M("decimal bytes read as unsigned", bounds._decode_bytes, "signed=True", "signed=False"),
    _M("min taken for all values", deciding._members,
       "lambda: statistics.lower == statistics.upper", "lambda: statistics.lower == statistics.lower"),
    _M("truncated max taken for exact", bounds._decode_bytes,
       "raw = data[a : a + n] if h else b", "raw = data[a : a + n].rstrip(b'\\1') if h else b"),
    _M("zeros behind bytes dropped", deciding.as_cell, "if not isinstance(value, bytes):", "if True:"),
    # --- filters
    _M("the filter of another row group", evidence._ask_filters,
       "groups[answers.denied]", "np.flatnonzero(answers.denied)"),
    _M("a list's filter used for a comparison", names.resolve, "if leaf.repeated:", "if False:"),
    _M("one zero of the two asked for", values.float_probes,
       "[kind(0.0).tobytes(), kind(-0.0).tobytes()]", "[kind(0.0).tobytes()]"),
    _M("a float asked for as rounded only", values.float_probes,
       "(*between, kind(low), kind(high))", "(between or [kind(low)])"),
    _M("a range but its last value", deciding._range_probes, "range(low, high + 1)", "range(low, high)"),
    _M("a range asked for within 0..9", deciding._range_probes,
       "plain(number, term.leaf)", "plain(number % 10, term.leaf)"),
    _M("a shared filter believed", filter_ranges._filter_ranges, "if len(shared):", "if False:"),
    _M("the header not compared", asking._ask_by_ranges, "promised & ~admitted", "~admitted"),
    _M("the first of many literals asked for", deciding._probes_among,
       "for operand in operands]", "for operand in operands[:1]]"),
    # --- literals
    _M("literals wrapped to 32 bits", operands.operand,
       "= place(value, leaf)",
       "= ((v + (1 << 31)) % (1 << 32) - (1 << 31) if isinstance(v, int) else v for v in place(value, leaf))"),
    _M("plain integers of lists one too large", bind._quick, "pack(value)", "pack(value ^ 1)"),
    _M("timestamps in microseconds", operands._timestamp_place, "leaf.unit_ns", "1000"),
    _M("an instant without a zone", times.moment_for, "found.utc == wanted", "True"),
    _M("a text finer than its column", operands._units, "nanoseconds % unit", "False"),
    _M("times rounded down", numbers.quotient, "-(-number // unit)", "number // unit"),
    _M("decimals without their scale", numbers.scaled, "exact.adjusted() + 1 + scale", "exact.adjusted() + 1"),
    _M("integers without their scale", numbers.scaled, "value * 10**scale, value * 10**scale", "value, value"),
    _M("fractions cut off", numbers.scaled, "low + any(digits[before_point:])", "low"),
    _M("floats rounded to the type", numbers.around,
       "return float(np.nextafter(closest, kind(-np.inf))), float(np.nextafter(closest, kind(np.inf)))",
       "return float(closest), float(closest)"),
    _M("a uuid's text is its bytes", operands._bytes_place, "leaf.type_length == 16", "leaf.type_length == 17"),
    # --- files
    _M("a folder's NULL taken for a text", hive.partition_value,
       "return None", "return 0 if key.physical == INT32 else b'__HIVE_DEFAULT_PARTITION__'"),
    _M("a folder's number taken modulo", hive.partition_value, "int(text)", "abs(int(text))"),
    _M("files excluded by other columns", evidence.masks_of,
       "np.full(evidences[0].n, ANY", "np.full(evidences[0].n, FALSE"),
    _M("rows of half a match not filtered", scan.Scan._row_filter, "~d.open).all()", "~d.open).any()"),
    _M("rows of half a match counted", log.sure_groups,
       "file.decision.outcomes == TRUE", "(file.decision.outcomes & TRUE) != 0"),
]  # fmt: skip

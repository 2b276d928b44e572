"""Filters rows by a predicate, in tables with an Arrow schema.

    keep = row_filter(And((Compare(("id",), "=", 5), Contains(("tags",), "new"))), schema)
    keep.filter_batch(batch)     keep.mask(batch)     keep.expression (None: it has a list_contains)

NULL has SQL's meaning throughout, and only rows that give TRUE are kept. Floats are IEEE's: no
comparison with NaN is true, the two zeros are equal; or, with nan="largest", Spark's: NaN equals
itself and is greater than all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from parquet_bloom.errors import RequestError, UnknownColumnError
from parquet_bloom.format.arrow_types import is_list, is_view, without_views
from parquet_bloom.format.literals import Literal
from parquet_bloom.format.schema import join_path, unknown_column
from parquet_bloom.predicates.casts import Against, Always, Plan, plan
from parquet_bloom.predicates.tree import And, Compare, Contains, IsIn, IsNull, Not, Or, Path, Predicate, Unknown

_OPERATORS = {"=": "equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
_NULL, _FALSE = pa.scalar(None, pa.bool_()), pa.scalar(False)
_DOUBLE = (pa.float64(),)
_GROUPS = {"list", "bag", "array"}  # how writers have named the repeated group of a list, and its elements
_ELEMENTS = {"element", "item", "array_element", "array"}

# What a column's path stands for: a field of an Expression, or an array of a batch.
Lookup = Callable[[Path], Any]
Test = Callable[[Lookup], Any]


class RowFilter:
    """A predicate over rows of one schema; see row_filter.

    expression  the same for dataset scanners; None where only batches can be asked: for a list_contains,
                for views of texts (pyarrow filters none) and for uuid, json and other extension types
                (pyarrow 26 compares their min/max without looking whether it can). Scanners skip by
                min/max, which leave NaN out, and so lose its rows under a NOT; filter_batch does not
    columns     names of the top-level columns it looks at
    """

    def __init__(self, test: Test, columns: list[str], types: dict[str, pa.DataType], needs_batches: bool) -> None:
        self._test = test
        self._types = types
        self.columns = columns
        self.expression: pc.Expression | None = None
        if not needs_batches:
            found = test(lambda path: pc.field(*path))
            self.expression = found if isinstance(found, pc.Expression) else pc.scalar(found)

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """TRUE, FALSE or NULL for every row."""
        found = self._test(lambda path: self._array(batch, path))
        return pa.repeat(found, batch.num_rows) if isinstance(found, pa.Scalar) else found

    def filter_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that give TRUE."""
        mask = self.mask(batch)
        n = mask.true_count
        if n in (0, batch.num_rows):
            return batch if n else batch.slice(0, 0)
        kept = [_filtered(column, mask) for column in batch.columns]
        return pa.RecordBatch.from_arrays(kept, schema=batch.schema)

    def count(self, batch: pa.RecordBatch) -> int:
        """How many rows give TRUE."""
        return int(self.mask(batch).true_count)

    def _array(self, batch: pa.RecordBatch, path: Path) -> pa.Array:
        at = batch.schema.get_field_index(path[0])
        if at < 0:
            raise UnknownColumnError(f"the batch has no column {join_path(path[:1])}, or several")
        array = batch.column(at)
        if array.type != self._types[path[0]]:
            raise RequestError(f"column {join_path(path[:1])} is {array.type} here, not {self._types[path[0]]}")
        return pc.struct_field(array, list(path[1:])) if len(path) > 1 else array


def row_filter(predicate: Predicate, schema: pa.Schema, nan: str = "ieee", dates: Iterable[str] = ()) -> RowFilter:
    """Make a predicate ready to filter rows of tables that have this schema.

    nan    "ieee" or "largest", as bind has it
    dates  columns of texts that are all dates, YYYY-MM-DD: literals that are no texts compare with these
    Raises UnknownColumnError; and RequestError where a literal cannot be a value of its column, a
    list or a struct is compared, or a part is Unknown.
    """
    compiler = _Compiler(schema, nan == "largest", frozenset(dates))
    try:
        test = compiler.compile(predicate)
        return RowFilter(test, list(compiler.types), compiler.types, compiler.needs_batches)
    except RecursionError:
        raise RequestError("the predicate is nested too deeply") from None


class _Compiler:
    def __init__(self, schema: pa.Schema, nan_is_largest: bool, dates: frozenset[str]) -> None:
        self.schema = schema
        self.dates = dates
        self.nan_is_largest = nan_is_largest
        self.types: dict[str, pa.DataType] = {}
        self.needs_batches = False

    def compile(self, predicate: Predicate) -> Test:
        match predicate:
            case Compare(path, op, value):
                at, kind = self._value_column(path)
                found = self._plan(path, kind, op, value)
                if self.nan_is_largest and pa.types.is_floating(kind):
                    return lambda look: _with_nan(look(at), found, op, value)
                return lambda look: _answer(look(at), found)
            case IsIn(path, values):
                return self._is_in(path, values)
            case IsNull(path):
                at, kind, elements = self._resolve(path)
                if elements:
                    raise RequestError(f"column {join_path(path)} speaks of a list's elements; use {join_path(at)}")
                return lambda look: pc.is_null(look(at))
            case Contains(path, value):
                return self._contains(path, value)
            case Not(part):
                test = self.compile(part)
                return lambda look: pc.invert(test(look))
            case And(parts):
                return self._connect(pc.and_kleene, parts, pa.scalar(True))
            case Or(parts):
                return self._connect(pc.or_kleene, parts, pa.scalar(False))
            case Unknown(text, reason):
                raise RequestError(f"rows cannot be filtered by {text}: {reason}")

    def _connect(self, function: Callable[..., Any], parts: Iterable[Predicate], empty: pa.Scalar) -> Test:
        tests = [self.compile(part) for part in parts]

        def joined(look: Lookup) -> Any:
            found = [test(look) for test in tests] or [empty]
            if any(isinstance(f, pc.Expression) for f in found):  # where an Expression is, all must be
                found = [f if isinstance(f, pc.Expression) else pc.scalar(f) for f in found]
            while len(found) > 1:  # by pairs, so that a thousand parts are ten levels
                pairs = [function(*found[i : i + 2]) for i in range(0, len(found) - 1, 2)]
                found = pairs + found[2 * len(pairs) :]
            return found[0]

        return joined

    def _is_in(self, path: Path, values: tuple[Literal, ...]) -> Test:
        at, kind = self._value_column(path)
        plans = [self._plan(path, kind, "=", value) for value in values]
        missing = _NULL if any(p == Always(None) for p in plans) else _FALSE
        groups: dict[tuple[pa.DataType, ...], list[pa.Scalar]] = {}
        for found in plans:
            if isinstance(found, Against):
                groups.setdefault((found.scalar.type, *found.casts), []).append(found.scalar)
        sets = [(key[1:], _Values(_value_set(key[0], scalars))) for key, scalars in groups.items()]
        nan = self.nan_is_largest and pa.types.is_floating(kind) and any(map(_is_nan, values))

        def test(look: Lookup) -> Any:
            column = look(at)
            answer: Any = missing
            for casts, values in sets:
                found = values.among(_cast(column, casts))
                answer = found if answer is _FALSE else pc.if_else(found, True, answer)
            if nan:
                answer = pc.if_else(pc.is_nan(_cast(column, _DOUBLE)), True, answer)
            if isinstance(column, pa.Array) and isinstance(answer, pa.Array) and not column.null_count:
                return answer
            return pc.if_else(pc.is_valid(column), answer, _NULL)

        return test

    def _plan(self, path: Path, kind: pa.DataType, op: str, value: Literal) -> Plan:
        if value is None or isinstance(value, str) or path[0] not in self.dates:
            return plan(join_path(path), kind, op, value)
        found = plan(join_path(path), pa.date32(), op, value)
        return replace(found, casts=(pa.string(), pa.date32(), *found.casts)) if isinstance(found, Against) else found

    def _contains(self, path: Path, value: Literal) -> Test:
        at, kind, _ = self._resolve(path)
        if not is_list(kind):
            raise RequestError(f"column {join_path(path)} is {kind}, not a list")
        self.needs_batches = True
        found = plan(join_path(path), self._flat(kind.value_type, path), "=", value)
        return lambda look: _any_element(look(at), found)

    def _value_column(self, path: Path) -> tuple[Path, pa.DataType]:
        at, kind, _ = self._resolve(path)
        if is_list(kind):
            raise RequestError(f"column {join_path(path)} speaks of a list; use list_contains({join_path(at)}, ..)")
        return at, self._flat(kind, path)

    def _flat(self, kind: pa.DataType, path: Path) -> pa.DataType:
        if pa.types.is_struct(kind):
            names = ", ".join(join_path((*path, field.name)) for field in list(kind)[:5])
            raise RequestError(f"column {join_path(path)} is a struct; name one of its fields: {names}")
        if pa.types.is_nested(kind):
            raise RequestError(f"column {join_path(path)} is {kind}, whose values are not compared")
        # A scanner holds the filter against min and max first, which pyarrow cannot do with a uuid's.
        self.needs_batches |= isinstance(kind, pa.BaseExtensionType)
        return kind

    def _resolve(self, path: Path) -> tuple[Path, pa.DataType, bool]:
        """Find a column: its path, cut at the first list; its type; whether the list's elements are meant."""
        fields: list[pa.Field] = list(self.schema)
        kind: pa.DataType = None
        for at, part in enumerate(path):
            if kind is not None and is_list(kind) and _means_elements(kind, path[at:]):
                self.types[path[0]] = self.schema.field(path[0]).type
                return path[:at], kind, True
            if kind is not None:
                fields = list(kind) if pa.types.is_struct(kind) else []
            found = [field for field in fields if field.name == part]
            if len(found) != 1:
                raise _unknown(path, at, len(found), [field.name for field in fields])
            kind = found[0].type
        self.types[path[0]] = self.schema.field(path[0]).type
        self.needs_batches |= isinstance(kind, pa.BaseExtensionType) or is_view(kind)
        return path, kind, False


def _means_elements(kind: pa.DataType, rest: Path) -> bool:
    """Whether the rest of a path is Parquet's of a list's elements: list.element, element, list."""
    names = _ELEMENTS | {kind.value_field.name}
    return (len(rest) == 1 and rest[0] in names | _GROUPS) or (
        len(rest) == 2 and rest[0] in _GROUPS and rest[1] in names
    )


def _unknown(path: Path, at: int, count: int, names: list[str]) -> UnknownColumnError:
    shown = join_path(path)
    if count:
        return UnknownColumnError(
            f"column {shown} is ambiguous: {count} fields are named {join_path(path[at : at + 1])}"
        )
    spelled = [join_path((*path[:at], name)) for name in names]
    return unknown_column(shown, spelled, none=f"no fields in {join_path(path[:at])}")


# --- arrays or expressions ------------------------------------------------------------------------


def _cast(column: Any, casts: tuple[pa.DataType, ...]) -> Any:
    for kind in casts:
        column = column.cast(kind)
    return column


def _filtered(column: pa.Array, mask: pa.BooleanArray) -> pa.Array:
    """The values where the mask is TRUE; pyarrow filters no views of texts, so these are copied."""
    plain = without_views(column.type)
    return column.filter(mask) if plain == column.type else column.cast(plain).filter(mask).cast(column.type)


def _answer(column: Any, found: Plan) -> Any:
    if isinstance(found, Always):
        return pc.if_else(pc.is_valid(column), pa.scalar(found.answer, pa.bool_()), _NULL)
    compare = getattr(pc, _OPERATORS[found.op])
    return compare(_cast(column, found.casts), found.scalar)


def _is_nan(value: Literal) -> bool:
    return isinstance(value, float | Decimal) and math.isnan(value)


def _with_nan(column: Any, found: Plan, op: str, value: Literal) -> Any:
    """A comparison of floats where NaN equals itself and is greater than all others."""
    if value is None:
        return _answer(column, found)
    nan = pc.is_nan(_cast(column, _DOUBLE))
    if not _is_nan(value):
        return pc.or_kleene(_answer(column, found), nan) if op in (">", ">=") else _answer(column, found)
    if op in ("=", ">="):
        return nan
    return pc.invert(nan) if op == "<" else _answer(column, Always(op == "<="))


def _value_set(kind: pa.DataType, scalars: list[pa.Scalar]) -> pa.Array:
    """The values of `is_in`, which compares bits, so a zero is among them with both signs."""
    if not pa.types.is_floating(kind):
        return pa.array([s.value if pa.types.is_temporal(kind) else s.as_py() for s in scalars], kind)
    values = [float(s.as_py()) for s in scalars]
    return pa.array(values + ([0.0, -0.0] if 0.0 in values else []), kind)


class _Values:
    """Values of one type, which others are among or not.

    Of integers pyarrow's is_in asks those alone whose last 16 bits one of the values has: of a million random ones and
    20 values 300, in an eighth of the time.
    """

    def __init__(self, values: pa.Array) -> None:
        self._values = values
        self._ends: NDArray[np.bool_] | None = None  # of all last bits: whether a value has them
        kind = values.type
        if (pa.types.is_integer(kind) or pa.types.is_temporal(kind)) and kind.bit_width in (32, 64):
            self._ends = np.zeros(1 << 16, bool)
            self._ends[_last_bits(values)] = True

    def among(self, column: Any) -> Any:
        """Whether each of some values, of an array or an Expression, is among these; no NULL is."""
        ends = self._ends
        if ends is None or not isinstance(column, pa.Array) or not len(column) or column.type != self._values.type:
            return pc.is_in(column, value_set=self._values)
        found = ends.take(_last_bits(column), mode="wrap")  # all lie within: this spares numpy a check and a copy
        at = np.flatnonzero(found)
        if 4 * len(at) > len(found):  # little is spared here, and as little in what follows
            self._ends = None
            return pc.is_in(column, value_set=self._values)
        found[at] = pc.is_in(column.take(pa.array(at)), value_set=self._values).to_numpy(zero_copy_only=False)
        return pa.array(found)


def _last_bits(column: pa.Array) -> NDArray[np.uint16]:
    """16 bits of each integer, whatever lies under a NULL; the last ones where numbers begin with their low bytes."""
    width = column.type.bit_width // 8
    start, stop = width * column.offset, width * (column.offset + len(column))
    return np.frombuffer(column.buffers()[1], np.uint8)[start:stop].view(np.uint16)[:: width // 2]


# --- lists ----------------------------------------------------------------------------------------


def _any_element(lists: pa.Array, found: Plan) -> pa.BooleanArray:
    """Whether some element is TRUE: NULL for a NULL list and for the literal NULL, else TRUE or FALSE."""
    if found == Always(None):
        return pa.nulls(len(lists), pa.bool_())
    starts, ends = _extents(lists)
    valid = pc.is_valid(lists).to_numpy(zero_copy_only=False)
    starts, ends = np.where(valid, starts, 0), np.where(valid, ends, 0)  # what lies under a NULL means nothing
    if not len(lists) or not (ends > starts).any():
        return pa.array(np.zeros(len(lists), bool), mask=~valid)
    used = ends > starts
    first, last = int(starts[used].min()), int(ends[used].max())
    values = lists.values.slice(first, last - first)
    hits = _answer(values, found).fill_null(False).to_numpy(zero_copy_only=False)
    before = np.concatenate(([0], np.cumsum(hits)))
    counts = np.zeros(len(lists), np.int64)
    counts[used] = before[ends[used] - first] - before[starts[used] - first]
    return pa.array(counts > 0, mask=~valid)


def _extents(lists: pa.Array) -> tuple[Any, Any]:
    """Start and end of each list's elements in `lists.values`."""
    kind = lists.type
    if pa.types.is_fixed_size_list(kind):
        starts = (np.arange(len(lists), dtype=np.int64) + lists.offset) * kind.list_size
        return starts, starts + kind.list_size
    offsets = lists.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return offsets, offsets + lists.sizes.to_numpy(zero_copy_only=False).astype(np.int64)
    return offsets[:-1], offsets[1:]

"""pyarrow expressions and DNF filters -> predicate.

    pc.field("id").isin([5, None])   Or((IsIn(("id",), (5,)), IsNull(("id",))))
    [("id", "=", 5), ("n", "!=", 0)] And((Compare(("id",), "=", 5), Not(Compare(("n",), "=", 0))))

An Expression shows its tree only in its pickle. So a translation counts only if an
expression that is built again from what was read, with pyarrow's public functions, equals the one
that was given.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import math
import operator
import re
import sys
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from parquet_bloom.errors import RequestError
from parquet_bloom.format.arrow_types import array_of
from parquet_bloom.format.literals import DAY_NS, Instant, Literal, literal_text
from parquet_bloom.predicates.casts import OutOfReachError, literal_of
from parquet_bloom.predicates.tree import (
    COMPARISONS,
    MIRRORED,
    And,
    Compare,
    IsIn,
    IsNull,
    Not,
    Or,
    Path,
    Predicate,
    Unknown,
)

# --- DNF lists ------------------------------------------------------------------------------------
#
# DNF filters, as `pyarrow.parquet.read_table(filters=)` takes them, as one pyarrow Expression.
#
# [("id", "=", 5), ("n", "!=", 0)]        both
# [[("id", "=", 5)], [("n", "in", [1])]]  either
#
# Values mean what they say: a pandas Timestamp keeps its nanoseconds, which pyarrow cuts off, so `=` on a
# column of microseconds finds no row for one between two of them.

_OPERATORS = ("=", "==", "!=", "<", ">", "<=", ">=", "in", "not in")
# pyarrow makes a chain of them, each inside the next, and ends the process where it walks down some 30,000.
MOST_CONDITIONS = 10_000
ARROW_ERRORS = (pa.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError, LookupError, AttributeError)


def as_expression(filters: Any) -> pc.Expression:
    """The Expression that pyarrow makes of filters. Raises RequestError where they are none.

    A name with a dot, ("user.id", "=", 5), is a top-level column with a dot in its name, as pyarrow
    has it; for a nested field write pc.field("user", "id") == 5.
    """
    if isinstance(filters, pc.Expression):
        return filters
    if not isinstance(filters, list | tuple) or not filters:
        raise RequestError(f"filters: give an Expression, [(column, op, value), ..] or a list of such lists, {_NOT}")
    nested = all(isinstance(part, list) and part and isinstance(part[0], list | tuple) for part in filters)
    count = sum(map(len, filters)) if nested else len(filters)
    if count > MOST_CONDITIONS:
        reason = f'filters: {count:,} conditions, more than {MOST_CONDITIONS:,}; write ("id", "in", [...]), or give'
        raise RequestError(f"{reason} prune(files, column=..., values=...)")
    dnf = [[_condition(c) for c in part] for part in (filters if nested else [filters])]
    try:
        return pq.filters_to_expression(dnf)
    except ARROW_ERRORS as error:
        raise RequestError(f"filters: {one_line(error)}") from error


_NOT = "not a single tuple and not an empty list"


def _condition(condition: Any) -> tuple[str, str, Any]:
    """Check (column, op, value), and take the value as pyarrow means it."""
    if not isinstance(condition, list | tuple) or len(condition) != 3 or not isinstance(condition[0], str):
        raise RequestError(
            f"filters: {literal_text(condition)} is not (column, op, value), or a list is missing around it"
        )
    name, op, value = condition
    if not isinstance(op, str) or op not in _OPERATORS:
        raise RequestError(f"filters: column {name}: {op!r} is none of {', '.join(_OPERATORS)}")
    try:
        if op in ("in", "not in"):
            if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
                raise RequestError(f"filters: column {name}: {op} needs a list of values, not {literal_text(value)}")
            return (
                name,
                op,
                value if isinstance(value, pa.Array | pa.ChunkedArray) else _array([_value(v) for v in value]),
            )
        value = _value(value)
        return name, op, value if isinstance(value, pa.Scalar | pc.Expression) else _scalar(value)
    except ARROW_ERRORS as error:
        if isinstance(error, RequestError):
            raise
        raise RequestError(f"filters: column {name}: {literal_text(value)} is no literal: {one_line(error)}") from error


def _value(value: Any) -> Any:
    """Keep what pyarrow drops or does not know: nanoseconds of pandas' Timestamps, days of numpy, UUIDs before 22."""
    if isinstance(value, np.datetime64):
        return value.item() if np.datetime_data(value)[0] == "D" else pa.scalar(value)
    if isinstance(value, dt.datetime) and value != value:  # pandas' NaT
        return None
    if getattr(value, "nanosecond", 0) and hasattr(value, "as_unit"):
        zone = None if value.tzinfo is None else "UTC"
        return pa.scalar(value.as_unit("ns").value, pa.timestamp("ns", zone))
    return pa.scalar(value.bytes, pa.uuid()) if isinstance(value, uuid.UUID) else value


def _scalar(value: Any) -> pa.Scalar:
    try:
        return pa.scalar(value)
    except OverflowError:  # an integer that UINT64 alone holds, perhaps
        return pa.scalar(value, pa.uint64())


def _array(values: list[Any]) -> pa.Array:
    """An array of values, some of which may be scalars of nanoseconds or UUIDs."""
    kind = next((value.type for value in values if isinstance(value, pa.TimestampScalar | pa.UuidScalar)), None)
    if kind is None:
        return array_of(values)
    scalars = [value if isinstance(value, pa.Scalar) else pa.scalar(value) for value in values]
    return pa.array([scalar.cast(kind).value if scalar.is_valid else None for scalar in scalars], kind)


def one_line(error: BaseException) -> str:
    """An error in one short line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


# --- an Expression's bytes ------------------------------------------------------------------------
#
# The tree of a pyarrow Expression, from its pickle: ordered pairs, and a batch of literals and options.
#
#    a == 5      call=equal  field_ref=a  literal=0  end=equal
#
# The pickle is an Arrow IPC file; the pairs are its schema's metadata, `literal` and `options` give
# the column of its one batch that holds the value. This is nobody's public format: callers check.

Pair = tuple[bytes, bytes]


class PickledExpression:
    """An expression taken apart; `pairs` are its tree."""

    def __init__(self, expression: pc.Expression) -> None:
        self._unpickle, (buffer,) = expression.__reduce__()[:2]
        reader = pa.ipc.open_file(buffer)
        self.pairs = _ordered_metadata(reader.schema)
        self._batch = reader.get_batch(0)

    def scalar(self, index: bytes) -> pa.Scalar:
        """The typed value of a literal or of options."""
        return self._batch.column(int(index))[0]

    def first_column(self) -> tuple[str, ...] | None:
        """The path of the first column that the expression names."""
        for at, (key, value) in enumerate(self.pairs):
            if key == b"nested_field_ref":
                return nested_path(self.pairs, at)
            if key == b"field_ref":
                return (value.decode(),)
        return None

    def part(self, start: int, end: int) -> pc.Expression:
        """The expression of some pairs alone: their own pickle, read back."""
        pairs, columns = [], []
        for key, value in self.pairs[start:end]:
            if key in (b"literal", b"options"):
                columns.append(self._batch.column(int(value)))
                value = str(len(columns) - 1).encode()
            pairs.append((key, value))
        columns = columns or [pa.nulls(1)]
        schema = pa.schema([pa.field("", c.type) for c in columns], metadata=pa.KeyValueMetadata(pairs))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        return self._unpickle(sink.getvalue())


def nested_path(pairs: list[Pair], at: int) -> tuple[str, ...]:
    """The path of the nested field whose pair is at `at`, its names behind it. Raises ValueError for positions."""
    count = int(pairs[at][1])
    parts = pairs[at + 1 : at + 1 + count]
    if len(parts) != count or any(key != b"field_ref" for key, _ in parts):
        raise ValueError("a nested field is not one of names")
    return tuple(value.decode() for _, value in parts)


class _ArrowSchema(ctypes.Structure):
    """The first members of the C data interface's ArrowSchema."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def _ordered_metadata(schema: pa.Schema) -> list[Pair]:
    """All pairs of a schema's metadata; `schema.metadata` keeps one of each key.

    The C data interface has them as int32 count, then int32 length and bytes of each key and value.
    """
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    at = _ArrowSchema.from_address(pointer(capsule, b"arrow_schema")).metadata
    if not at:
        return []
    texts: list[bytes] = []
    count = ctypes.c_int32.from_address(at).value
    at += 4
    for _ in range(2 * count):
        length = ctypes.c_int32.from_address(at).value
        texts.append(ctypes.string_at(at + 4, length))
        at += 4 + length
    return list(zip(texts[::2], texts[1::2], strict=True))


# --- Expressions of pyarrow -----------------------------------------------------------------------

__all__ = ["as_expression", "from_expression", "from_filters"]

_COMPARISONS = {"equal": "=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_MAX_DEPTH = 100  # of Nots and changes between And and Or; a chain of one kind is one level


def from_expression(expression: pc.Expression) -> Predicate:
    """Translate a pyarrow Expression; what is not understood becomes Unknown, never an error.

    In every row the tree gives what pyarrow gives, its Unknown parts being free to be anything.
    Literals keep their exact value; where pyarrow casts one (0.1 for float32, a float for a decimal,
    a text for a number), whoever binds the tree must take the comparison as undecided.
    """
    try:
        found = _Parser(PickledExpression(expression)).tree()
        same = expression.equals(found.built) or expression.__reduce__()[1] == found.built.__reduce__()[1]
    except (*ARROW_ERRORS, OSError, RecursionError) as error:
        return Unknown(_text(expression), f"pyarrow does not show it: {one_line(error)}")
    if not same:
        return Unknown(_text(expression), "built again from what was read of it, it is another expression")
    return found.meaning


def from_filters(filters: Any) -> Predicate:
    """Translate an Expression or DNF lists, as `pyarrow.parquet.read_table(filters=)` takes them."""
    return from_expression(as_expression(filters))


# --- the tree -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Column:
    path: Path


@dataclass(frozen=True, slots=True)
class _NotUnderstood:
    reason: str


@dataclass(frozen=True, slots=True)
class _Translation:
    """A predicate and the same built by pyarrow's public functions."""

    meaning: Predicate
    built: pc.Expression
    depth: int = 0


@dataclass(frozen=True, slots=True)
class _Argument:
    """Parse the pairs from start to end: a column, a typed scalar, a predicate, or not understood."""

    meaning: _Column | pa.Scalar | _Translation | _NotUnderstood
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    start: int
    arguments: list[_Argument] = field(default_factory=list)
    options: list[pa.Scalar] = field(default_factory=list)


class _Parser:
    """Reads the pairs; open calls stand on a list, so long chains cost no Python stack."""

    def __init__(self, pickled: PickledExpression) -> None:
        self.pickled = pickled

    def tree(self) -> _Translation:
        pairs = self.pickled.pairs
        calls = [_Call("", 0)]
        at = 0
        while at < len(pairs):
            start, (key, value) = at, pairs[at]
            at += 1
            if key == b"call":
                calls.append(_Call(value.decode(), start))
                continue
            meaning: _Column | pa.Scalar | _Translation | _NotUnderstood
            if key == b"options":
                calls[-1].options.append(self.pickled.scalar(value))
                continue
            if key == b"end":
                call = calls.pop()
                if call.name != value.decode() or not calls:
                    raise ValueError(f"{call.name} ends as {value.decode()}")
                start, meaning = call.start, self._call(call)
            elif key == b"field_ref":
                meaning = _Column((value.decode(),))
            elif key == b"nested_field_ref":
                meaning = _Column(nested_path(pairs, start))
                at += int(value)
            elif key == b"literal":
                meaning = self.pickled.scalar(value)
            else:
                raise ValueError(f"a part is a {key.decode()}")
            calls[-1].arguments.append(_Argument(meaning, start, at))
        [root] = calls
        [argument] = root.arguments
        return self._boolean(argument)

    def _call(self, call: _Call) -> _Translation | _NotUnderstood:
        name, arguments = call.name, call.arguments
        found: _Translation | None = None
        if name in ("and_kleene", "or_kleene", "invert") and not call.options:
            found = _connect(name, [self._boolean(argument) for argument in arguments])
        elif (name in _COMPARISONS or name == "not_equal") and not call.options:
            found = _compare(name, [argument.meaning for argument in arguments])
        elif name in ("is_null", "is_valid", "is_in") and len(arguments) == 1:
            found = _test(name, arguments[0].meaning, call.options)
        elif name in ("starts_with", "match_like") and len(arguments) == 1:
            found = _prefixed(name, arguments[0].meaning, call.options)
        elif name == "if_else" and len(arguments) == 3 and not call.options:
            found = _choose(*(self._boolean(argument) for argument in arguments))
        if found is None:
            return _NotUnderstood(_reason(name))
        if found.depth > _MAX_DEPTH:
            return _NotUnderstood(f"it is nested deeper than {_MAX_DEPTH} levels")
        return found

    def _boolean(self, argument: _Argument) -> _Translation:
        """Take an argument as a predicate."""
        meaning = argument.meaning
        if isinstance(meaning, _Translation):
            return meaning
        if isinstance(meaning, _NotUnderstood):
            built = self.pickled.part(argument.start, argument.end)
            return _Translation(Unknown(_text(built), meaning.reason), built)
        if isinstance(meaning, _Column):
            return _Translation(Compare(meaning.path, "=", True), pc.field(*meaning.path))
        built = pc.scalar(meaning)
        if pa.types.is_boolean(meaning.type) and meaning.is_valid:
            return _Translation(And(()) if meaning.as_py() else Or(()), built)
        path = self.pickled.first_column()
        if pa.types.is_boolean(meaning.type) and path is not None:  # NULL, as a comparison of any column with NULL is
            return _Translation(Compare(path, "=", None), built)
        return _Translation(Unknown(_text(built), "it is neither TRUE nor FALSE"), built)


def join(kind: type[And] | type[Or], parts: list[Predicate]) -> Predicate:
    """And or Or of parts, those of the same kind opened; one part alone is itself."""
    flat: list[Predicate] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, kind) else (part,))
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


def _reason(name: str) -> str:
    if name in _COMPARISONS or name == "not_equal":
        return "it does not compare a column with a literal"
    return f"{name} is not understood here"


# --- calls ----------------------------------------------------------------------------------------


def _connect(name: str, parts: list[_Translation]) -> _Translation | None:
    if len(parts) != (1 if name == "invert" else 2):
        return None
    left, right = parts[0], parts[-1]
    if name == "invert":
        return _Translation(Not(left.meaning), ~left.built, left.depth + 1)
    kind = And if name == "and_kleene" else Or
    built = left.built & right.built if kind is And else left.built | right.built
    depth = max(part.depth + (not isinstance(part.meaning, kind)) for part in parts)
    return _Translation(join(kind, [left.meaning, right.meaning]), built, depth)


def _compare(name: str, sides: list[Any]) -> _Translation | None:
    if len(sides) != 2:
        return None
    op = _COMPARISONS.get(name, "=")
    left, right = sides
    if isinstance(left, _Column) and isinstance(right, pa.Scalar):
        column, scalar = left, right
        built = _built(name, pc.field(*left.path), pc.scalar(right))
    elif isinstance(left, pa.Scalar) and isinstance(right, _Column):
        column, scalar, op = right, left, MIRRORED[op]
        built = _built(name, pc.scalar(left), pc.field(*right.path))
    else:
        return None
    try:
        leaf = Compare(column.path, op, literal_of(scalar), by_engine=True)
    except OutOfReachError as error:
        return _Translation(Unknown(_text(built), str(error)), built)
    return _Translation(Not(leaf) if name == "not_equal" else leaf, built)


def _choose(condition: _Translation, then: _Translation, otherwise: _Translation) -> _Translation | None:
    """`if_else`: NULL where its condition is, so a condition that may be NULL has no tree.

    DuckDB writes SQL's IN as if_else(is_valid(x), is_in(x, values), NULL), which is IsIn.
    """
    if not _never_null(condition.meaning):
        return None
    built = pc.if_else(condition.built, then.built, otherwise.built)
    depth = max(condition.depth, then.depth, otherwise.depth) + 2
    match condition.meaning, then.meaning, otherwise.meaning:
        case Not(IsNull(path)), And((IsIn() as members, Not(IsNull(same)))), Compare(_, "=", None) if (
            members.path == path == same
        ):
            return _Translation(members, built, depth)
    ways = [join(And, [condition.meaning, then.meaning]), join(And, [Not(condition.meaning), otherwise.meaning])]
    return _Translation(join(Or, ways), built, depth)


def _never_null(predicate: Predicate) -> bool:
    if isinstance(predicate, And | Or):
        return all(map(_never_null, predicate.parts))
    return _never_null(predicate.part) if isinstance(predicate, Not) else isinstance(predicate, IsNull)


def _prefixed(name: str, column: Any, options: list[pa.Scalar]) -> _Translation | None:
    """`starts_with` and `match_like`: what begins with a text lies between it and the next text of its length."""
    given = _options(options)
    if not isinstance(column, _Column) or not {"pattern", "ignore_case"} <= given.keys():
        return None
    pattern, ignore_case = given["pattern"].as_py(), given["ignore_case"].as_py()
    function = pc.starts_with if name == "starts_with" else pc.match_like
    built = function(pc.field(*column.path), pattern, ignore_case=ignore_case)
    prefix = pattern if name == "starts_with" else re.split(r"[%_\\]", pattern, maxsplit=1)[0]
    if ignore_case or not prefix:
        return None
    bounds: list[Predicate] = [Compare(column.path, ">=", prefix)]
    if (end := _text_after(prefix)) is not None:
        bounds.append(Compare(column.path, "<", end))
    # Bytes that are no text may lie between the two without the prefix, so the range alone proves no row.
    return _Translation(And((*bounds, Unknown(_text(built), "only its first letters are compared"))), built)


def _text_after(prefix: str) -> str | None:
    """The least text that is more than all that begin with this, in order of code points; None: there is none."""
    for at in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[at]) + 1
        code = 0xE000 if 0xD800 <= code < 0xE000 else code  # surrogates are in no text
        if code <= sys.maxunicode:
            return prefix[:at] + chr(code)
    return None


def _options(options: list[pa.Scalar]) -> dict[str, pa.Scalar]:
    return {str(k): v for o in options for k, v in o.items()}


def _built(name: str, left: pc.Expression, right: pc.Expression) -> pc.Expression:
    function = operator.ne if name == "not_equal" else COMPARISONS[_COMPARISONS[name]]
    return function(left, right)


def _test(name: str, column: Any, options: list[pa.Scalar]) -> _Translation | None:
    if not isinstance(column, _Column):
        return None
    path, field_ = column.path, pc.field(*column.path)
    if name == "is_valid":
        return None if options else _Translation(Not(IsNull(path)), field_.is_valid())
    given = _options(options)
    if name == "is_null":
        if "nan_is_null" not in given:
            return None
        with_nan = given["nan_is_null"].as_py()
        built = field_.is_null(nan_is_null=with_nan)
        if with_nan:
            return _Translation(Or((IsNull(path), Unknown(_text(built), "NaN counts as null"))), built)
        return _Translation(IsNull(path), built)
    if "value_set" not in given or "null_matching_behavior" not in given:
        return None
    behavior = given["null_matching_behavior"].as_py()
    if behavior not in (0, 1):  # EMIT_NULL and INCONCLUSIVE: Python cannot ask for them
        return None
    values = given["value_set"].values
    built = pc.is_in(field_, value_set=values, skip_nulls=behavior == 1)
    return _Translation(_is_in(path, values, behavior == 0, _text(built)), built)


def _is_in(path: Path, values: pa.Array, match_nulls: bool, text: str) -> Predicate:
    """The meaning of `is_in`: never NULL, a null is in the set if the set holds one and nulls match.

    Values are cast to the column's type before they are looked up by their bits. So a zero finds
    only zeros of its own sign, NaN finds NaN, and a timestamp finds the date it falls on.
    """
    plain: dict[Any, Literal] = {}
    partly: dict[Any, Literal] = {}
    reasons: list[str] = []
    has_null = False
    for scalar in values:
        try:
            value = literal_of(scalar)
        except OutOfReachError as error:
            reasons.append(str(error))
            continue
        if value is None:
            has_null = True
        elif isinstance(value, float) and math.isnan(value):
            reasons.append("is_in finds NaN")
        elif isinstance(value, int | float | Decimal) and not isinstance(value, bool) and value == 0:
            partly[int, 0] = 0
        else:
            plain[type(value), value] = value
            if isinstance(value, Instant) and value.nanoseconds % DAY_NS:
                try:
                    day = literal_of(pa.scalar(value.nanoseconds // DAY_NS, pa.date32()))
                except OutOfReachError:
                    continue
                partly[type(day), day] = day
    ways: list[Predicate] = [IsIn(path, tuple(plain.values()), casts=True)] if plain or not (partly or reasons) else []
    if partly:
        reason = "is_in tells -0.0 from 0.0, and finds the date of a timestamp"
        ways.append(And((IsIn(path, tuple(partly.values()), casts=True), Unknown(text, reason))))
    if reasons:
        ways.append(Unknown(text, reasons[0]))
    if has_null and match_nulls:
        return join(Or, [*ways, IsNull(path)])
    return join(And, [join(Or, ways), Not(IsNull(path))])


def _text(expression: Any) -> str:
    try:
        text = " ".join(str(expression).split())
    except UnicodeDecodeError:
        return "an expression with a text that is not UTF-8"
    return text if len(text) <= 200 else text[:200] + "..."

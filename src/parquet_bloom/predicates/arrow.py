"""pyarrow expressions and DNF filters -> predicate.

    pc.field("id").isin([5, None])   Or((IsIn(("id",), (5,)), IsNull(("id",))))
    [("id", "=", 5), ("n", "!=", 0)] And((Compare(("id",), "=", 5), Not(Compare(("n",), "=", 0))))

An Expression shows its tree only in its pickle: an Arrow IPC file whose schema metadata is the tree
as ordered pairs, with literals and options as columns of the one batch, by index:

    a == 5      call=equal  field_ref=a  literal=0  end=equal

This is nobody's public format, so a translation counts only if an expression that is built anew
from what was read, with pyarrow's public functions, equals the one that was given.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from parquet_bloom.errors import RequestError
from parquet_bloom.formats.literals import Instant, Literal, shown
from parquet_bloom.predicates.arrow_literals import OutOfReachError, literal_of
from parquet_bloom.predicates.tree import And, Compare, IsIn, IsNull, Not, Or, Path, Predicate, Unknown

_COMPARISONS = {"equal": "=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DAY_NS = 86_400 * 10**9
_MAX_DEPTH = 100  # of Nots and changes between And and Or; a chain of one kind is one level
_OPERATORS = {"=", "==", "!=", "<", ">", "<=", ">=", "in", "not in"}
_ARROW_ERRORS = (pa.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError, LookupError, AttributeError)

Pair = tuple[bytes, bytes]


def from_expression(expression: pc.Expression) -> Predicate:
    """Translate a pyarrow Expression; what is not understood becomes Unknown, never an error.

    The result may give FALSE or NULL only where pyarrow does, and TRUE only where pyarrow does,
    except in its Unknown parts. Literals keep their exact value.
    """
    try:
        parser = _Parser(expression)
        meaning, rebuilt = parser.tree()
    except (*_ARROW_ERRORS, OSError, RecursionError) as error:
        return Unknown(_text(expression), f"pyarrow does not show it: {_line(error)}")
    if not (expression.equals(rebuilt) or expression.__reduce__()[1] == rebuilt.__reduce__()[1]):
        return Unknown(_text(expression), "built anew from what was read of it, it is another expression")
    return meaning


def from_filters(filters: Any) -> Predicate:
    """Translate an Expression or DNF lists, as `pyarrow.parquet.read_table(filters=)` takes them."""
    return from_expression(as_expression(filters))


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
    dnf = [[_condition(c) for c in part] for part in (filters if nested else [filters])]
    try:
        return pq.filters_to_expression(dnf)
    except _ARROW_ERRORS as error:
        raise RequestError(f"filters: {_line(error)}") from error


_NOT = "not a single tuple and not an empty list"


def _condition(condition: Any) -> tuple[str, str, Any]:
    """Check (column, op, value), and take the value as pyarrow means it."""
    if not isinstance(condition, list | tuple) or len(condition) != 3 or not isinstance(condition[0], str):
        raise RequestError(f"filters: {shown(condition)} is not (column, op, value), or a list is missing around it")
    name, op, value = condition
    if not isinstance(op, str) or op not in _OPERATORS:
        raise RequestError(f"filters: column {name}: {op!r} is none of {', '.join(sorted(_OPERATORS))}")
    try:
        if op in ("in", "not in"):
            if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
                raise RequestError(f"filters: column {name}: {op} needs a list of values, not {shown(value)}")
            return name, op, value if isinstance(value, pa.Array) else _array([_value(v) for v in value])
        value = _value(value)
        return name, op, value if isinstance(value, pa.Scalar | pc.Expression) else pa.scalar(value)
    except _ARROW_ERRORS as error:
        if isinstance(error, RequestError):
            raise
        raise RequestError(f"filters: column {name}: {shown(value)} is no literal: {_line(error)}") from error


def _value(value: Any) -> Any:
    """Keep what pyarrow drops or does not know: nanoseconds of pandas' Timestamps, days of numpy."""
    if isinstance(value, np.datetime64):
        return value.item() if np.datetime_data(value)[0] == "D" else pa.scalar(value)
    if isinstance(value, dt.datetime) and value != value:  # pandas' NaT
        return None
    if getattr(value, "nanosecond", 0) and hasattr(value, "as_unit"):
        zone = None if value.tzinfo is None else "UTC"
        return pa.scalar(value.as_unit("ns").value, pa.timestamp("ns", zone))
    return value


def _array(values: list[Any]) -> pa.Array:
    """An array of values, some of which may be scalars of nanoseconds."""
    kind = next((value.type for value in values if isinstance(value, pa.Scalar)), None)
    if kind is None:
        return pa.array(values)
    scalars = [value if isinstance(value, pa.Scalar) else pa.scalar(value) for value in values]
    return pa.array([scalar.cast(kind).value if scalar.is_valid else None for scalar in scalars], kind)


# --- the tree -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Column:
    path: Path


@dataclass(frozen=True, slots=True)
class _Opaque:
    reason: str


@dataclass(frozen=True, slots=True)
class _Node:
    """What the pairs from start to end mean.

    meaning  a column, a typed scalar, a predicate, or that it is not understood
    built    the same, by pyarrow's public functions; None for an opaque part, until a caller needs it
    depth    of the predicate
    """

    meaning: _Column | pa.Scalar | Predicate | _Opaque
    built: pc.Expression | None
    start: int
    end: int
    depth: int = 0


class _Parser:
    """Reads one pickled expression; calls are matched on a list, so long chains cost no Python stack."""

    def __init__(self, expression: pc.Expression) -> None:
        self.unpickle, (buffer,) = expression.__reduce__()[:2]
        reader = pa.ipc.open_file(buffer)
        self.pairs = _ordered_metadata(reader.schema)
        self.batch = reader.get_batch(0)

    def tree(self) -> tuple[Predicate, pc.Expression]:
        open_calls: list[tuple[str, int, list[_Node], list[pa.Scalar]]] = [("", 0, [], [])]
        at = 0
        while at < len(self.pairs):
            start, (key, value) = at, self.pairs[at]
            at += 1
            name, arguments = value.decode(), open_calls[-1][2]
            if key == b"call":
                open_calls.append((name, start, [], []))
            elif key == b"end":
                opened, begun, nodes, options = open_calls.pop()
                if opened != name or not open_calls:
                    raise ValueError(f"{opened} ends as {name}")
                open_calls[-1][2].append(self._call(opened, nodes, options, begun, at))
            elif key == b"field_ref":
                arguments.append(_Node(_Column((name,)), pc.field(name), start, at))
            elif key == b"nested_field_ref":
                parts = self.pairs[at : at + int(name)]
                at += int(name)
                if len(parts) != int(name) or any(k != b"field_ref" for k, _ in parts):
                    raise ValueError("a nested field is not one of names")
                path = tuple(v.decode() for _, v in parts)
                arguments.append(_Node(_Column(path), pc.field(*path), start, at))
            elif key == b"literal":
                scalar = self.batch.column(int(name))[0]
                arguments.append(_Node(scalar, pc.scalar(scalar), start, at))
            elif key == b"options":
                open_calls[-1][3].append(self.batch.column(int(name))[0])
            else:
                raise ValueError(f"a part is a {key.decode()}")
        [(_, _, roots, _)] = open_calls
        [root] = roots
        node = self._boolean(root)
        assert node.built is not None
        return node.meaning, node.built

    def _call(self, name: str, nodes: list[_Node], options: list[pa.Scalar], start: int, end: int) -> _Node:
        found = None
        if name in ("and_kleene", "or_kleene", "invert") and not options:
            found = self._connect(name, [self._boolean(node) for node in nodes])
        elif name in _COMPARISONS or name == "not_equal":
            found = _compare(name, nodes) if not options else None
        elif name in ("is_null", "is_valid", "is_in") and len(nodes) == 1:
            found = _test(name, nodes[0], options)
        if found is None:
            return _Node(_Opaque(_reason(name)), None, start, end)
        meaning, built = found
        depth = 0 if isinstance(meaning, Unknown) else _depth(name, meaning, nodes)
        if depth > _MAX_DEPTH:
            return _Node(_Opaque(f"it is nested deeper than {_MAX_DEPTH} levels"), None, start, end)
        return _Node(meaning, built, start, end, depth)

    def _boolean(self, node: _Node) -> _Node:
        """Take a node as a predicate."""
        meaning, built = node.meaning, node.built
        if isinstance(meaning, _Opaque):
            built = self._again(node)
            meaning = Unknown(_text(built), meaning.reason)
        elif isinstance(meaning, _Column):
            meaning = Compare(meaning.path, "=", True)
        elif isinstance(meaning, pa.Scalar):
            if pa.types.is_boolean(meaning.type) and meaning.is_valid:
                meaning = And(()) if meaning.as_py() else Or(())
            else:
                meaning = Unknown(_text(built), "it is neither TRUE nor FALSE")
        return _Node(meaning, built, node.start, node.end, node.depth)

    def _connect(self, name: str, nodes: list[_Node]) -> tuple[Predicate, pc.Expression] | None:
        parts = [node.meaning for node in nodes]
        if name == "invert":
            return (Not(parts[0]), ~nodes[0].built) if len(parts) == 1 else None
        if len(parts) != 2:
            return None
        left, right = (node.built for node in nodes)
        if name == "and_kleene":
            return join(And, parts), left & right
        return join(Or, parts), left | right

    def _again(self, node: _Node) -> pc.Expression:
        """The expression of some pairs alone: their own pickle, read back."""
        pairs, columns = [], []
        for key, value in self.pairs[node.start : node.end]:
            if key in (b"literal", b"options"):
                columns.append(self.batch.column(int(value)))
                value = str(len(columns) - 1).encode()
            pairs.append((key, value))
        fields = [pa.field("", column.type) for column in columns]
        schema = pa.schema(fields, metadata=pa.KeyValueMetadata(pairs))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema) if columns else _one_row(schema))
        return self.unpickle(sink.getvalue())


def _EMPTY(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([]))).replace_schema_metadata(schema.metadata)


def join(kind: type[And] | type[Or], parts: list[Predicate]) -> Predicate:
    """And or Or of parts, those of the same kind opened; one part alone is itself."""
    flat: list[Predicate] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, kind) else (part,))
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


def _depth(name: str, meaning: Predicate, nodes: list[_Node]) -> int:
    same = {"and_kleene": And, "or_kleene": Or}.get(name)
    return max((n.depth + (same is None or not isinstance(n.meaning, same)) for n in nodes), default=0)


def _reason(name: str) -> str:
    if name in _COMPARISONS or name == "not_equal":
        return "it does not compare a column with a literal"
    return f"{name} is not understood here"


# --- calls ----------------------------------------------------------------------------------------


def _compare(name: str, nodes: list[_Node]) -> tuple[Predicate, pc.Expression] | None:
    if len(nodes) != 2:
        return None
    left, right = (node.meaning for node in nodes)
    op = _COMPARISONS.get(name, "=")
    if isinstance(left, _Column) and isinstance(right, pa.Scalar):
        column, scalar = left, right
    elif isinstance(left, pa.Scalar) and isinstance(right, _Column):
        column, scalar, op = right, left, _MIRRORED[op]
    else:
        return None
    a, b = (node.built for node in nodes)
    built = {"=": a == b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[_COMPARISONS.get(name, "=")]
    built = a != b if name == "not_equal" else built
    try:
        leaf = Compare(column.path, op, literal_of(scalar))
    except OutOfReachError as error:
        return Unknown(_text(built), str(error)), built
    return (Not(leaf) if name == "not_equal" else leaf), built


def _test(name: str, node: _Node, options: list[pa.Scalar]) -> tuple[Predicate, pc.Expression] | None:
    if not isinstance(node.meaning, _Column) or node.built is None:
        return None
    path = node.meaning.path
    if name == "is_valid":
        return None if options else (Not(IsNull(path)), node.built.is_valid())
    given = {str(k): v for o in options for k, v in o.items()}
    if name == "is_null":
        if "nan_is_null" not in given:
            return None
        with_nan = given["nan_is_null"].as_py()
        built = node.built.is_null(nan_is_null=with_nan)
        return (Or((IsNull(path), Unknown(_text(built), "NaN counts as null"))) if with_nan else IsNull(path)), built
    if "value_set" not in given or "null_matching_behavior" not in given:
        return None
    behavior = given["null_matching_behavior"].as_py()
    if behavior not in (0, 1):  # EMIT_NULL and INCONCLUSIVE: Python cannot ask for them
        return None
    values = given["value_set"].values
    built = pc.is_in(node.built, value_set=values, skip_nulls=behavior == 1)
    return _is_in(path, values, behavior == 0, _text(built)), built


def _is_in(path: Path, values: pa.Array, match_nulls: bool, text: str) -> Predicate:
    """What `is_in` says: never NULL, a null is in the set if the set holds one and nulls match.

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
            if isinstance(value, Instant) and value.nanoseconds % _DAY_NS:
                try:
                    day = literal_of(pa.scalar(value.nanoseconds // _DAY_NS, pa.date32()))
                except OutOfReachError:
                    continue
                partly[type(day), day] = day
    ways: list[Predicate] = [IsIn(path, tuple(plain.values()))] if plain or not (partly or reasons) else []
    if partly:
        reason = "is_in tells -0.0 from 0.0, and finds the date of a timestamp"
        ways.append(And((IsIn(path, tuple(partly.values())), Unknown(text, reason))))
    if reasons:
        ways.append(Unknown(text, reasons[0]))
    if has_null and match_nulls:
        return join(Or, [*ways, IsNull(path)])
    return join(And, [join(Or, ways), Not(IsNull(path))])


# --- low ------------------------------------------------------------------------------------------


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


def _text(expression: Any) -> str:
    text = " ".join(str(expression).split())
    return text if len(text) <= 200 else text[:200] + "..."


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__

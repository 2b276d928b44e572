"""Random predicates: as SQL text for each engine, as a pyarrow Expression, and what they give, exactly.

A predicate is a nested tuple:
    ("cmp", column, op, literal)  ("in", column, literals)  ("between", column, low, high)  ("null", column)
    ("has", column, literal)      ("not", part)             ("and" | "or", parts)
"""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lab_files import EPOCH, LabFile, pool
from numpy.typing import NDArray

Part = tuple[Any, ...]
Truths = NDArray[np.int8]  # of each row: 1 TRUE, 0 FALSE, -1 NULL
OPS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def predicate(rng: Random, file: LabFile, depth: int = 0) -> Part:
    what = rng.random()
    if depth < 3 and what < 0.45 - 0.1 * depth:
        parts = tuple(predicate(rng, file, depth + 1) for _ in range(rng.choice([2, 2, 3])))
        return (rng.choice(["and", "or"]), parts)
    if depth < 3 and what < 0.55:
        return ("not", predicate(rng, file, depth + 1))
    name = rng.choice(list(file.values))
    if rng.random() < 0.08:
        return ("null", name)
    if name == "l":
        return ("has", name, _literal(rng, file, name))
    what = rng.random()
    if what < 0.2:
        return ("in", name, tuple(_literal(rng, file, name) for _ in range(rng.randint(1, 4))))
    if what < 0.35 and name != "b":
        return ("between", name, _literal(rng, file, name), _literal(rng, file, name))
    return ("cmp", name, rng.choice(["=", "=", "=", "<>", "<", "<=", ">", ">="]), _literal(rng, file, name))


def _literal(rng: Random, file: LabFile, name: str) -> Any:
    """A value that is stored, or one that lies beside it; never NULL, never NaN."""
    stored = [v for v in file.values[name] if v is not None]
    if name == "l":
        stored = [v for some in stored for v in some if v is not None]
    if name == "b":
        return rng.random() < 0.5
    what = rng.random()
    value = rng.choice(stored) if stored and what < 0.7 else rng.choice(pool(rng, name, nan=False))
    if value != value:
        return 0.0
    if what < 0.6 or isinstance(value, str):
        return value if what < 0.6 else value + rng.choice(["", "\u0001", "z"])
    if isinstance(value, float):
        return float(np.nextafter(np.float32(value), np.float32(rng.choice([-1e9, 1e9])))) if abs(value) < 1e30 else 1.0
    if isinstance(value, Decimal):
        return value + rng.choice([Decimal("0.001"), Decimal("-0.001"), Decimal("0.0005")])
    step = value + rng.choice([-1, 1, 2])
    return step if -(2**63) <= step < 2**63 else 0


def columns_of(part: Part) -> set[str]:
    match part:
        case ("not", inner):
            return columns_of(inner)
        case ("and" | "or", parts):
            return set().union(*(columns_of(inner) for inner in parts))
    return {part[1]}


# --- exactly --------------------------------------------------------------------------------------


def truths(part: Part, file: LabFile, nan: str) -> Truths:
    """What a predicate gives for every row; nan: "ieee", or "largest", where NaN equals itself and is above all."""
    match part:
        case ("not", inner):
            found = truths(inner, file, nan)
            return np.where(found < 0, found, 1 - found).astype(np.int8)
        case ("and" | "or", parts):
            strong = 1 if part[0] == "or" else 0
            columns = np.stack([truths(inner, file, nan) for inner in parts])
            null, sure = (columns < 0).any(axis=0), (columns == strong).any(axis=0)
            return np.where(sure, strong, np.where(null, -1, 1 - strong)).astype(np.int8)
        case ("null", name):
            return np.array([v is None for v in file.values[name]], np.int8)
        case ("between", name, low, high):
            return truths(("and", (("cmp", name, ">=", low), ("cmp", name, "<=", high))), file, nan)
        case ("in", name, literals):
            return truths(("or", tuple(("cmp", name, "=", literal) for literal in literals)), file, nan)
        case ("has", name, literal):
            return np.array([-1 if v is None else literal in v for v in file.values[name]], np.int8)
    _, name, op, literal = part
    known: dict[Any, int] = {}
    found = np.empty(len(file.values[name]), np.int8)
    for at, value in enumerate(file.values[name]):
        key = value if value == value else "NaN"
        if key not in known:
            known[key] = -1 if value is None else int(_compare(value, op, literal, nan))
        found[at] = known[key]
    return found


def _compare(value: Any, op: str, literal: Any, nan: str) -> bool:
    if isinstance(value, str):
        return OPS[op](value.encode(), literal.encode())
    if value != value:
        return (nan == "largest" and op in ("<>", ">", ">=")) or (nan == "ieee" and op == "<>")
    return OPS[op](value, literal)


# --- as text --------------------------------------------------------------------------------------


def sql(part: Part, dialect: str = "ours") -> str:
    """The text of a predicate; dialect: "ours", which DuckDB reads too, or "spark"."""
    match part:
        case ("not", inner):
            return f"NOT ({sql(inner, dialect)})"
        case ("and" | "or", parts):
            return f" {part[0].upper()} ".join(f"({sql(inner, dialect)})" for inner in parts)
        case ("null", name):
            return f"{_named(name)} IS NULL"
        case ("between", name, low, high):
            return f"{_named(name)} BETWEEN {_spelled(name, low, dialect)} AND {_spelled(name, high, dialect)}"
        case ("in", name, literals):
            return f"{_named(name)} IN ({', '.join(_spelled(name, v, dialect) for v in literals)})"
        case ("has", name, literal):
            if dialect == "spark":  # its array_contains is NULL, not FALSE, where an element is NULL
                return f"(CASE WHEN {name} IS NOT NULL THEN coalesce(array_contains({name}, {literal}), FALSE) END)"
            return f"list_contains({name}, {literal})"
    _, name, op, literal = part
    return f"{_named(name)} {op} {_spelled(name, literal, dialect)}"


def _named(name: str) -> str:
    return "st.v" if name == "st" else name


def _spelled(name: str, value: Any, dialect: str) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, float):
        if value in (float("inf"), float("-inf")):
            return f"CAST('{'-' if value < 0 else ''}Infinity' AS DOUBLE)"
        return f"{value!r}D" if dialect == "spark" else f"{value!r}{'' if 'e' in repr(value) else 'e0'}"
    if name == "d":
        return f"DATE '{EPOCH + dt.timedelta(days=value)}'"
    if name == "ts":
        word = "TIMESTAMP_NTZ" if dialect == "spark" else "TIMESTAMP"
        return f"{word} '{dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value)}'"
    return str(value)


def expression(part: Part) -> pc.Expression | None:
    """The same for pyarrow; None where it has no such thing."""
    match part:
        case ("not", inner):
            found = expression(inner)
            return None if found is None else ~found
        case ("and" | "or", parts):
            several = [expression(inner) for inner in parts]
            if any(one is None for one in several):
                return None
            whole = several[0]
            for one in several[1:]:
                whole = whole & one if part[0] == "and" else whole | one
            return whole
        case ("null", name):
            return _field(name).is_null()
        case ("between", name, low, high):
            return (_field(name) >= _scalar(name, low)) & (_field(name) <= _scalar(name, high))
        case ("in", name, literals):
            return expression(("or", tuple(("cmp", name, "=", literal) for literal in literals)))
        case ("has", *_):
            return None
    _, name, op, literal = part
    whole: pc.Expression = OPS[op](_field(name), _scalar(name, literal))
    return whole


def _field(name: str) -> pc.Expression:
    return pc.field("st", "v") if name == "st" else pc.field(name)


def _scalar(name: str, value: Any) -> pa.Scalar:
    if name == "d":
        return pa.scalar(value, pa.int32()).cast(pa.date32())
    return pa.scalar(value, pa.int64()).cast(pa.timestamp("us")) if name == "ts" else pa.scalar(value)

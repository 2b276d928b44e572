"""A table with a column of every kind that rows are filtered by, and literals that may meet its values."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from parquet_bloom.format.literals import Instant, TimeOfDay
from parquet_bloom.predicates.tree import And, Compare, Contains, IsIn, IsNull, Not, Or, Predicate
from support.kleene import stored

OPERATORS = ("=", "<", "<=", ">", ">=")

NAN, INF = float("nan"), float("inf")
FLOATS = [0.0, -0.0, 1.5, -1.5, 0.1, 1e-50, 2.0**24, INF, -INF, NAN]
STAMP = 1_767_225_600  # 2026-01-01, a Thursday
UUIDS = [uuid.UUID(int=i) for i in (0, 5, 2**127, 2**128 - 1)]
UTC = "UTC"


def D(text: str) -> Decimal:
    return Decimal(text)


def _integers(bits: int, signed: bool) -> list[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return [low, low + 1, 0, 1, 5, high - 1, high]


NUMBERS: list[Any] = [
    0,
    1,
    5,
    -1,
    127,
    128,
    -128,
    -129,
    255,
    256,
    300,
    2**31,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    -(2**63),
]
NUMBERS += [
    -(2**63) - 1,
    10**30,
    D("1.5"),
    D("1.20"),
    D("1.201"),
    D("-1.199"),
    D("0.1"),
    D("-0.0"),
    D("99.99"),
    D("1E-8"),
]
NUMBERS += [D("1E+37"), D("-1E-30"), D("1000")]
DOUBLES = [0.0, -0.0, 1.0, 1.5, -1.5, 0.1, 5.0, 127.5, 2.0**63, -(2.0**63), 2.0**64, 1e300, 1e-50, INF, -INF, NAN, 1.25]
DAYS = [dt.date(1970, 1, 1), dt.date(2026, 1, 1), dt.date(1969, 12, 31), dt.date(2500, 1, 1)]
SECONDS = [0, 1, -1, STAMP, STAMP + 18_000]
NAIVE: list[Any] = [Instant(s * 10**9 + ns, False) for s in SECONDS for ns in (0, 1000, -1000)] + DAYS
FAR = [Instant(10**9 * 10**12, False), Instant(1, False), Instant(-(10**22), False)]
ZONED = [Instant(s * 10**9 + ns, True) for s in SECONDS for ns in (0, 1000)]
CLOCKS = [TimeOfDay(n) for n in (0, 1000, 10**6, 3600 * 10**9, 86_399_999_999_000)]
TEXTS = ["", "a", "b", "ab", "\x00", "é", "\ud7ff", "\U00010000", "it's"]
BYTES = [b"", b"a", b"ab", b"abc", b"abcd", b"\xff", b"\x00", b"\xff\xff\xff"]

# name: (type, values stored, literals; those of the last list DuckDB reads otherwise or not at all)
KINDS: dict[str, tuple[pa.DataType, list[Any], list[Any], list[Any]]] = {
    **{f"i{b}": (getattr(pa, f"int{b}")(), _integers(b, True), NUMBERS, DOUBLES) for b in (8, 32, 64)},
    **{f"u{b}": (getattr(pa, f"uint{b}")(), _integers(b, False), NUMBERS, DOUBLES) for b in (8, 64)},
    "f16": (pa.float16(), FLOATS, [], NUMBERS + DOUBLES),
    "f32": (pa.float32(), FLOATS, [D("0.1"), D("1.5"), 1, 0, 0.0, -0.0, 0.1, 1.5], NUMBERS + DOUBLES),
    "f64": (pa.float64(), FLOATS, [D("0.1"), D("1.5"), 1, 0, 0.0, -0.0, 0.1, 1.5, 1e300], NUMBERS + DOUBLES),
    "d5": (pa.decimal128(5, 2), [D(t) for t in ("1.20", "-1.20", "0.00", "999.99", "-999.99")], NUMBERS, DOUBLES),
    "d38": (pa.decimal128(38, 10), [D("1.5"), D("0"), D("1E+27"), D("-1E-10")], [0, 1, 5, D("1.5")], NUMBERS + DOUBLES),
    "s": (pa.string(), TEXTS, [t for t in TEXTS if t != "\x00"], ["\x00", b"a", b"\xff"]),
    "large": (pa.large_string(), TEXTS, ["a", "b", ""], TEXTS + BYTES),
    "dict": (pa.dictionary(pa.int32(), pa.string()), TEXTS, ["a", "b", "ab"], [b"a", b"\xff"]),
    "bin": (pa.binary(), BYTES, BYTES, ["a", "é"]),
    "fixed": (pa.binary(3), [b"abc", b"\xff\xff\xff", b"\x00\x00\x00"], BYTES, ["abc", "a"]),
    "uuid": (pa.uuid(), [u.bytes for u in UUIDS], UUIDS, [str(u) for u in UUIDS]),
    "flag": (pa.bool_(), [True, False], [True, False], []),
    "day": (pa.date32(), DAYS, NAIVE, FAR),
    "at_s": (pa.timestamp("s"), SECONDS, NAIVE, FAR),
    "at_us": (pa.timestamp("us"), [s * 10**6 + n for s in SECONDS for n in (0, 1)], NAIVE, FAR),
    "at_ns": (pa.timestamp("ns"), [s * 10**9 + n for s in SECONDS for n in (0, 1, 1000)], NAIVE[:15], NAIVE + FAR),
    "utc": (pa.timestamp("us", UTC), [s * 10**6 + n for s in SECONDS for n in (0, 1)], ZONED, []),
    "clock": (pa.time64("us"), [n.nanoseconds // 1000 for n in CLOCKS], CLOCKS, []),
    "millis": (pa.time32("ms"), [0, 1, 3_600_000, 86_399_999], CLOCKS, []),
}  # fmt: skip
NESTED = {
    ("st", "x"): (pa.int32(), _integers(32, True), NUMBERS, DOUBLES),
    ("dotted.name",): (pa.int64(), [1, 2], [1, 2, D("1.5")], []),
}
LISTS = {
    ("li",): (pa.list_(pa.int16()), [0, 1, 5, None], [0, 1, 5, 2**20, D("1.5")], [1.0, NAN]),
    ("lf",): (pa.large_list(pa.float64()), [*FLOATS, None], [], [0, 0.0, -0.0, D("0.1"), 1.5]),
    ("ls",): (pa.list_(pa.string()), ["a", "b", None], ["a", "x"], [b"b"]),
    ("l2",): (pa.list_(pa.int32(), 2), [0, 1, None], [0, 1], [2]),
}
TYPES: dict[tuple[str, ...], pa.DataType] = {(name,): kind[0] for name, kind in KINDS.items()}
TYPES |= {path: kind[0] for path, kind in (NESTED | LISTS).items()}
PATHS = {(name,): kind for name, kind in KINDS.items()} | NESTED


def _column(draw: st.DrawFn, kind: pa.DataType, values: list[Any], rows: int) -> pa.Array:
    chosen = draw(st.lists(st.sampled_from([*values, None]), min_size=rows, max_size=rows))
    if pa.types.is_dictionary(kind):
        return pa.array(chosen, kind.value_type).cast(kind)
    if pa.types.is_float16(kind):
        return pa.array(chosen, pa.float64()).cast(pa.float32()).cast(kind)
    return pa.array(chosen, kind)


def _lists(draw: st.DrawFn, kind: pa.DataType, values: list[Any], rows: int) -> pa.Array:
    size = {"min_size": 2, "max_size": 2} if pa.types.is_fixed_size_list(kind) else {"max_size": 3}
    one = st.lists(st.sampled_from(values), **size) | st.none()
    return pa.array(draw(st.lists(one, min_size=rows, max_size=rows)), kind)


@st.composite
def tables(draw: st.DrawFn, paths: set[tuple[str, ...]], rows: int = 8, nan: bool = True) -> pa.Table:
    """A table with the columns that the paths need, and one that numbers its rows."""
    columns: dict[str, pa.Array] = {"row": pa.array(range(rows))}
    for path in sorted(paths):
        kind, values, *_ = (PATHS | LISTS)[path]
        values = [v for v in values if nan or v is None or v == v]
        if path in LISTS:
            columns[path[0]] = _lists(draw, kind, values, rows)
        elif len(path) > 1:
            missing = draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
            inner = _column(draw, kind, values, rows)
            columns[path[0]] = pa.StructArray.from_arrays([inner], [path[1]], mask=pa.array(missing))
        else:
            columns[path[0]] = _column(draw, kind, values, rows)
    return pa.table(columns)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    columns = {name: [stored(value) for value in table[name]] for name in table.column_names}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@st.composite
def trees(draw: st.DrawFn, shared: bool = False, depth: int = 3) -> Predicate:
    """Any tree; `shared`: only what DuckDB reads in the same way."""

    def literals(kind: tuple[Any, ...]) -> st.SearchStrategy[Any]:
        return st.sampled_from([*kind[2], *([] if shared else kind[3]), None])

    lists = {path: kind for path, kind in LISTS.items() if kind[2] or not shared}
    flat = {path: kind for path, kind in PATHS.items() if kind[2] or not shared}
    if depth and draw(st.booleans()):
        which = draw(st.sampled_from([And, Or, Not]))
        if which is Not:
            return Not(draw(trees(shared, depth - 1)))
        return which(tuple(draw(st.lists(trees(shared, depth - 1), min_size=int(shared), max_size=3))))
    leaf = draw(st.sampled_from(["compare", "compare", "in", "null", "contains"]))
    if leaf == "contains":
        path = draw(st.sampled_from(sorted(lists)))
        return Contains(path, draw(literals(lists[path])))
    path = draw(st.sampled_from(sorted(flat)))
    if leaf == "null":
        return IsNull(path)
    if leaf == "compare":
        return Compare(path, draw(st.sampled_from(OPERATORS)), draw(literals(flat[path])))
    values = draw(st.lists(literals(flat[path]), min_size=int(shared), max_size=4))
    if shared and flat[path][0] in (pa.float32(), pa.float64()):  # DuckDB takes a list as of one type
        values = [v for v in values if isinstance(v, float) or v is None] or [1.5]
    return IsIn(path, tuple(values))

"""Columns of every type, whose values lie close together: so bounds decide often, and equality hits.

A column draws small numbers k and turns each into a value, by a rule in the order of its type; so
neighbours of a value are known, and values between two. `exact` gives the values back as plain
Python: int, Decimal, float, bytes, bool, and nanoseconds for all that is a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

DAY_NS = 86_400 * 10**9
UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
SPREAD = 40  # values are made of -SPREAD..SPREAD, and what lies around them
Rule = Callable[[int], Any]


@dataclass(frozen=True)
class Kind:
    """A type of column.

    rule      a random one: small number -> value as pyarrow takes it
    specials  values that any row may hold instead
    """

    name: str
    type: pa.DataType
    rule: Callable[[Random], Rule]
    specials: tuple[Any, ...] = ()

    @property
    def family(self) -> str:
        return family_of(self.type)


def family_of(kind: pa.DataType) -> str:
    """How values of a type are compared; see exact."""
    types = pa.types
    if isinstance(kind, pa.UuidType):
        return "uuid"
    tests = (
        ("bool", types.is_boolean), ("integer", types.is_integer), ("decimal", types.is_decimal),
        ("float", types.is_floating), ("date", types.is_date), ("timestamp", types.is_timestamp),
        ("time", types.is_time), ("fixed", types.is_fixed_size_binary), ("list", types.is_list),
        ("struct", types.is_struct),
    )  # fmt: skip
    return next((name for name, test in tests if test(kind)), "bytes")


def decimal_of(number: int, scale: int) -> Decimal:
    """From digits: arithmetic would round to the context's 28."""
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


# --- rules ----------------------------------------------------------------------------------------


def _integers(bits: int, signed: bool) -> Kind:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    middle = 0 if signed else 1 << bits - 1

    def rule(rng: Random) -> Rule:
        base = rng.choice([middle, middle, middle, low + SPREAD, high - SPREAD])
        return lambda k: min(max(base + k, low), high)

    name = f"{'' if signed else 'u'}int{bits}"
    return Kind(name, getattr(pa, name)(), rule, (low, high, middle, 0))


def _floats(bits: int) -> Kind:
    # Spread over what the type holds exactly, with values between which it does not hold.
    def rule(rng: Random) -> Rule:
        step, zero = rng.choice([0.5, 1.0, 0.1]), rng.choice([0.0, -0.0])
        return lambda k: kind(k * step if k else zero)

    kind = {16: np.float16, 32: np.float32, 64: np.float64}[bits]
    tiny = np.nextafter(kind(0), kind(1))
    specials = tuple(kind(v) for v in (0.0, -0.0, float("nan"), float("nan"), float("inf"), float("-inf")))
    return Kind(f"float{bits}", getattr(pa, f"float{bits}")(), rule, (*specials, tiny, -tiny))


def _decimals(precision: int, scale: int) -> Kind:
    top = 10**precision - 1

    def rule(rng: Random) -> Rule:
        whole = 10**scale * rng.choice([-7, 3])  # values lie around a whole number
        base = rng.choice([0, top - SPREAD, SPREAD - top, whole, whole])
        return lambda k: decimal_of(min(max(base + k, -top), top), scale)

    specials = (decimal_of(top, scale), decimal_of(-top, scale), decimal_of(0, scale))
    return Kind(f"decimal{precision}", pa.decimal128(precision, scale), rule, specials)


def _times(name: str, kind: pa.DataType, bases: list[int], steps: list[int], *specials: int) -> Kind:
    """Whole numbers of the type's unit."""

    def rule(rng: Random) -> Rule:
        base, step = rng.choice(bases), rng.choice(steps)
        return lambda k: base + k * step

    return Kind(name, kind, rule, specials)


def _texts(name: str, kind: pa.DataType) -> Kind:
    def rule(rng: Random) -> Rule:
        prefix = rng.choice(["", "user-", "a long beginning that every value has, ", "\u00ff", "\U0010ffff"])
        suffix = rng.choice(["", "", "-and-a-tail"])
        return lambda k: f"{prefix}{k + 50:03}{suffix}"

    return Kind(name, kind, rule, ("", "z", "\u00e9", "\U0001f600", "\u007f\u0080"))


def _bytes(name: str, kind: pa.DataType, width: int = 0) -> Kind:
    """Bytes on both sides of 128, where a signed comparison goes wrong; or all of them below."""

    def rule(rng: Random) -> Rule:
        base = rng.choice([128, 128, 60, 255 - SPREAD])
        rest = rng.choice([b"", b"\xff\xff", b"ab\0"])
        if rng.random() < 0.4:  # the second byte decides, and may be the zero at the end
            return lambda k: (bytes([base + k // 8, k % 8 * 36]) + rest).ljust(width, b"\0")[: width or None]
        return lambda k: (bytes([base + k]) + rest).ljust(width, b"\1")[: width or None]

    specials = (b"", b"\xff\xff\xff", b"\0", b"\x7f\xff") if not width else (b"\xff" * width, b"\0" * width)
    return Kind(name, kind, rule, specials)


_DAYS = [0, 20_000, -30_000]
_STAMP = {"ms": 1_700_000_000_123, "us": 1_700_000_000_123_456, "ns": 1_700_000_000_123_456_789}


def _stamps(unit: str, zone: str | None) -> Kind:
    day = DAY_NS // UNIT_NS[unit]
    bases = [0, _STAMP[unit], day * 20_000]
    return _times(f"timestamp_{unit}{'_utc' if zone else ''}", pa.timestamp(unit, zone), bases, [1, 7, day, day // 4])


def _clocks(name: str, kind: pa.DataType) -> Kind:
    noon = DAY_NS // 2 // UNIT_NS[kind.unit]
    return _times(name, kind, [noon], [1, noon // 100], 0, 2 * noon - 1)


FLAT = (
    Kind("bool", pa.bool_(), lambda rng: lambda k: k % 2 == 0),
    *(_integers(bits, signed) for bits in (8, 16, 32, 64) for signed in (True, False)),
    *(_floats(bits) for bits in (16, 32, 64)),
    *(_decimals(p, s) for p, s in ((9, 2), (18, 0), (18, 6), (38, 10))),
    _times("date32", pa.date32(), _DAYS, [1, 3]),
    _times("date64", pa.date64(), [d * 86_400_000 for d in _DAYS], [86_400_000]),
    _clocks("time32", pa.time32("ms")), _clocks("time64_us", pa.time64("us")), _clocks("time64_ns", pa.time64("ns")),
    *(_stamps(unit, zone) for unit in ("ms", "us", "ns") for zone in (None, "UTC")),
    _texts("string", pa.string()), _texts("dictionary", pa.dictionary(pa.int32(), pa.string())),
    _texts("large", pa.large_string()), _bytes("binary", pa.binary()),
    _bytes("fixed3", pa.binary(3), 3), _bytes("fixed16", pa.binary(16), 16), _bytes("uuid", pa.uuid(), 16),
)  # fmt: skip
KINDS = {kind.name: kind for kind in FLAT}
# Types with more traps come more often.
_OFTEN = {"float": 3, "decimal": 2, "bytes": 2, "fixed": 2, "uint32": 3, "uint64": 3}
_WEIGHTS = [_OFTEN.get(kind.name, _OFTEN.get(kind.family, 1)) for kind in FLAT]


@dataclass(frozen=True)
class Column:
    """A column of one file: its kind, its shape ("flat", "list", "struct") and its rule."""

    name: str
    kind: Kind
    shape: str
    required: bool
    rule: Rule
    nulls: float

    @property
    def field(self) -> pa.Field:
        kind = self.kind.type
        if self.shape == "list":
            kind = pa.list_(kind)
        elif self.shape == "struct":
            kind = pa.struct([pa.field("v", kind, not self.required), pa.field("w", pa.int32())])
        return pa.field(self.name, kind, not self.required)

    @property
    def path(self) -> tuple[str, ...]:
        """Of what is compared."""
        return (self.name, "v") if self.shape == "struct" else (self.name,)

    def array(self, rng: Random, rows: int) -> pa.Array:
        """Values of one row group: near each other, and often a few nulls or nothing else."""
        center, width = rng.choice([0, rng.randint(-30, 30), rng.randint(-30, 30)]), rng.choice([0, 1, 3, 8])
        nulls = rng.choice([0.0, self.nulls, self.nulls, 1.0]) if rng.random() < 0.3 else self.nulls
        special = rng.choice([0.25, 0.6]) if rng.random() < (0.5 if self.kind.family == "float" else 0.25) else 0.0

        def value() -> Any:
            if special and self.kind.specials and rng.random() < special:
                return rng.choice(self.kind.specials)
            return self.rule(center + rng.randint(0, width))

        def cell() -> Any:
            return None if not self.required and rng.random() < nulls else value()

        if self.shape == "list":
            lists = [None if cell() is None else [cell() for _ in range(rng.choice([0, 1, 2, 4]))] for _ in range(rows)]
            return _array(lists, self.field.type)
        inner = _array([cell() for _ in range(rows)], self.kind.type)
        if self.shape == "struct":
            mask = pa.array([not self.required and rng.random() < nulls / 2 for _ in range(rows)], pa.bool_())
            fields = list(self.field.type)
            return pa.StructArray.from_arrays([inner, pa.array(range(rows), pa.int32())], fields=fields, mask=mask)
        return inner


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_list(kind):
        offsets = [0]
        for one in values:
            offsets.append(offsets[-1] + len(one or ()))
        flat = _array([v for one in values for v in one or ()], kind.value_type)
        mask = pa.array([one is None for one in values], pa.bool_())
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, kind, mask=mask)
    if isinstance(kind, pa.UuidType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, pa.binary(16)))
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


def exact(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values as plain Python, comparable exactly; lists as lists, structs as their field `v`."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    kind = array.type
    family = family_of(kind)
    if family == "list":
        flat = exact(array.flatten())
        out, at = [], 0
        for one in array:
            out.append(flat[at : at + len(one)] if one.is_valid else None)
            at += len(one) if one.is_valid else 0
        return out
    if family == "struct":
        return exact(pc.struct_field(array, [0]))
    if family == "uuid":
        return list(array.storage.to_pylist())
    if family in ("date", "time", "timestamp"):
        unit = 10**6 if pa.types.is_date64(kind) else DAY_NS if family == "date" else UNIT_NS[kind.unit]
        numbers = array.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
        return [None if n is None else n * unit for n in numbers]
    values = array.to_pylist()
    if family == "float":
        return [None if v is None else float(v) for v in values]
    return [v.encode() if isinstance(v, str) else v for v in values]


def random_column(rng: Random, name: str) -> Column:
    kind = rng.choices(FLAT, _WEIGHTS)[0]
    shape = rng.choices(["flat", "list", "struct"], [7, 1, 2])[0]
    if kind.name == "dictionary" and shape == "list":
        shape = "flat"
    return Column(name, kind, shape, rng.random() < 0.25, kind.rule(rng), rng.choice([0.0, 0.1, 0.4]))

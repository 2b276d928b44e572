"""Numbers as literals: which stored integer, decimal or float equals one, if any.

Nothing is rounded into a denial: a fraction the type cannot hold equals nothing, a float that is
not exact is asked for in each way an engine may round it.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np

from parquet_bloom.formats.literals import Encoded, Literal, mismatch, never, shown, unknown
from parquet_bloom.formats.metadata.schema import BYTE_ARRAY, FLBA, Leaf

_MOST_BYTES = 64  # of a DECIMAL in a FIXED_LEN_BYTE_ARRAY; no engine knows more than 32
_MOST_DIGITS = 160  # more than 64 bytes can hold: nobody's column, and no reason to build such a number


def _exact_integer(value: Literal, leaf: Leaf, scale: int = 0) -> int | Encoded:
    """The integer that is `value * 10^scale`, or what to answer where there is none."""
    if isinstance(value, float):
        # Engines compare in doubles here; beyond 2^53 several integers are one double.
        if scale or not math.isfinite(value) or abs(value) >= 2**53:
            return unknown(f"{value!r} is not exact enough for {leaf.type_name}")
        value = Decimal(value)
    if isinstance(value, int):
        if value.bit_length() > 4 * _MOST_DIGITS:
            return never(f"{shown(value)} is outside the range of {leaf.type_name}")
        return int(value * 10**scale)
    if not isinstance(value, Decimal):
        return mismatch(value, leaf)
    if not value.is_finite():
        return unknown(f"{value} is no number")
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    kept = len(digits)
    while kept and not digits[kept - 1]:
        kept -= 1
    if not kept:
        return 0
    exponent += scale + len(digits) - kept
    if exponent < 0:
        return never(f"{leaf.type_name} holds no such fraction")
    if kept + exponent > _MOST_DIGITS:
        return never(f"{shown(value)} is outside the range of {leaf.type_name}")
    number = int("".join(map(str, digits[:kept]))) * 10**exponent
    return int(-number if sign else number)


def _fits(number: int, bits: int, signed: bool, leaf: Leaf) -> Encoded | None:
    low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
    return None if low <= number < high else never(f"{shown(number)} is outside the range of {leaf.type_name}")


def stored_integer(number: int, leaf: Leaf, signed: bool = True, bits: int = 0) -> Encoded:
    width = leaf.width
    outside = _fits(number, bits or 8 * width, signed, leaf)
    if outside is not None:
        return outside
    return Encoded(((number & (1 << 8 * width) - 1).to_bytes(width, "little"),))


def integer(value: Literal, leaf: Leaf) -> Encoded:
    if leaf.bits not in (0, 8, 16, 32, 64) or leaf.signed is None:
        return unknown(f"{leaf.bits} bits are no width of an integer")
    number = _exact_integer(value, leaf)
    if isinstance(number, Encoded):
        return number
    return stored_integer(number, leaf, leaf.signed, leaf.bits)


def decimal(value: Literal, leaf: Leaf) -> Encoded:
    if leaf.physical == BYTE_ARRAY:
        return unknown("a DECIMAL in a BYTE_ARRAY has many spellings of one value")
    if leaf.width > _MOST_BYTES:
        return unknown(f"a DECIMAL of {leaf.width} bytes is none of any engine's")
    if not 0 <= leaf.scale <= 76:
        return unknown(f"a scale of {leaf.scale} is none of the format's")
    number = _exact_integer(value, leaf, leaf.scale)
    if isinstance(number, Encoded):
        return number
    if leaf.physical != FLBA:
        return stored_integer(number, leaf)
    outside = _fits(number, 8 * leaf.type_length, True, leaf)
    return outside or Encoded((number.to_bytes(leaf.type_length, "big", signed=True),))


FLOATS: dict[int, Any] = {16: np.float16, 32: np.float32, 64: np.float64}


def floating(value: Literal, leaf: Leaf) -> Encoded:
    if not isinstance(value, int | float | Decimal) or not leaf.float_bits:
        return mismatch(value, leaf)
    kind = FLOATS[leaf.float_bits]
    try:
        as_double = float(value)
    except (OverflowError, ValueError):
        return unknown(f"{shown(value)} is outside the range of a double")
    if math.isnan(as_double):
        return unknown("engines do not agree on what equals NaN")
    with np.errstate(over="ignore"):
        nearest = kind(as_double)
    if nearest == 0 and as_double == 0:
        zeros = (kind(0.0), kind(-0.0))
        return Encoded(tuple(z.tobytes() for z in zeros))
    if math.isinf(float(nearest)) and not math.isinf(as_double):
        return unknown(f"{shown(value)} is outside the range of {leaf.type_name}")
    if Decimal(float(nearest)) == (Decimal(value) if not isinstance(value, float) else Decimal(as_double)):
        return Encoded((nearest.tobytes(),))
    # Not exact: engines round it in different ways, some not at all. One of the three it is.
    with np.errstate(over="ignore"):
        near = (nearest, np.nextafter(nearest, kind(-np.inf)), np.nextafter(nearest, kind(np.inf)))
    probes = [n.tobytes() for n in near]
    if any(n == 0 for n in near):
        probes += [kind(0.0).tobytes(), kind(-0.0).tobytes()]
    return Encoded(tuple(dict.fromkeys(probes)), f"{shown(value)} is not exact in {leaf.type_name}")

"""Numbers as literals: the whole numbers, or the floats, that one lies between.

    scaled(Decimal("12.345"), 2)            1234, 1235                twelve and a bit, in hundredths
    scaled(12, 2)                           1200, 1200                equal where it is one of them
    around(Decimal("0.1"), float32(0.1))    0.09999999, 0.10000001    the floats beside, as none is a tenth

Nothing is rounded here: what lies between two values stays between them.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

FLOATS: dict[int, Any] = {16: np.float16, 32: np.float32, 64: np.float64}
_FAR = 1000  # digits; 64 bytes of DECIMAL have 155. A number further out is as good as 10^1000


def is_nan(value: int | float | Decimal) -> bool:
    """Whether a number is none; a Decimal that signals raises if it is compared."""
    return value.is_nan() if isinstance(value, Decimal) else value != value


def quotient(number: int, unit: int) -> tuple[int, int]:
    """The integers at or below, and at or above, number / unit."""
    return number // unit, -(-number // unit)


def scaled(value: int | float | Decimal, scale: int) -> tuple[int, int]:
    """The integers at or below, and at or above, value * 10^scale.

    An integer is taken as it is; of the others what lies beyond 10^1000, infinity too, is 10^1000.
    NaN is no number: callers have looked.
    """
    if isinstance(value, int):
        return value * 10**scale, value * 10**scale
    exact = Decimal(value)
    if not exact:
        return 0, 0
    sign, digits, _ = exact.as_tuple()
    before_point = exact.adjusted() + 1 + scale if exact.is_finite() else _FAR + 1  # how many of the digits
    if before_point > _FAR:
        low = high = 10**_FAR
    elif before_point <= 0:
        low, high = 0, 1
    else:
        low = int("".join(map(str, digits[:before_point])).ljust(before_point, "0"))
        high = low + any(digits[before_point:])
    return (-high, -low) if sign else (low, high)


def nearest(value: int | float | Decimal, bits: int) -> Any:
    """The float of 16, 32 or 64 bits that a number is rounded to, by way of a double; infinity beyond the largest."""
    try:
        double = float(value)
    except OverflowError:  # of an int; a Decimal becomes infinity
        double = math.inf if value > 0 else -math.inf
    with np.errstate(over="ignore"):
        return FLOATS[bits](double)


def decimal_casts(kind: pa.DataType) -> tuple[pa.DataType, ...]:
    """The casts that one after the other give the float nearest to each decimal, as DuckDB 2, Polars and Spark have it.

    kind  pa.float32() or pa.float64()
    """
    # pyarrow's own cast multiplies by the float nearest to 10^-scale: one in seven of two digits comes out a bit off.
    # Its texts have all digits, and its parser rounds once, to either width.
    return pa.large_string(), kind


def is_beyond(value: int | float | Decimal, closest: Any) -> bool:
    """Whether a finite number is so large that the float nearest to it is infinity."""
    return bool(np.isinf(closest)) and value not in (math.inf, -math.inf)


def around(value: int | float | Decimal, closest: Any) -> tuple[float, float]:
    """The float that is exactly the number, twice, or the floats below and above the one nearest to it.

    Engines round a number that no float is in different ways, some not at all; whatever they compare
    with is one of the three. The number is neither NaN nor beyond: callers have looked.
    """
    if Decimal(float(closest)) == Decimal(value):
        return float(closest), float(closest)
    kind = type(closest)
    with np.errstate(over="ignore"):
        return float(np.nextafter(closest, kind(-np.inf))), float(np.nextafter(closest, kind(np.inf)))

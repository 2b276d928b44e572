"""Values of every kind of column, the same on every run, and those of them that engines must find.

A column has 200 distinct values, spread over the range of its type and in no order, each ten times. The values that
are asked for lie between the least and the greatest, so that min and max exclude none of them.
"""

from __future__ import annotations

import decimal
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from parquet_bloom import add_filters, inspect
from parquet_bloom.facts.known import COUNTED, DICTIONARY, ELEMENT, FIELD, IN, PLAIN, RANGE

DISTINCT = 200
REPEATED = 10
_ASKED = 150  # of the values in ascending order; of unsigned integers it is one that no signed integer is
_OTHER = 90  # not beside it: DuckDB takes neighbours for a range
_DAY_MS = 86_400_000

_ARROW = {
    "float": pa.float32(),
    "double": pa.float64(),
    "float16": pa.float16(),
    "date": pa.date32(),
    "fixed": pa.binary(16),
    "uuid": pa.binary(16),
    "time[ms]": pa.time32("ms"),
    "time[us]": pa.time64("us"),
    "time[ns]": pa.time64("ns"),
    "decimal as INT32": pa.decimal128(9, 2),
    "decimal as INT64": pa.decimal128(18, 2),
    "decimal as FIXED": pa.decimal128(30, 2),
}


def _type_of(kind: str) -> pa.DataType:
    if kind.startswith("timestamp"):
        unit, _, zone = kind[len("timestamp[") : -1].partition(", ")
        return pa.timestamp(unit, zone or None)
    return _ARROW.get(kind) or pa.type_for_alias(kind)


def _numbers(kind: str, arrow: pa.DataType) -> list[int]:
    """DISTINCT integers, ascending: values of an integer type, or what a temporal type counts."""
    if kind in COUNTED and kind != "date":
        low = -(2 ** (arrow.bit_width - 1)) if kind.startswith("int") else 0
        step = (2**arrow.bit_width - 1) // DISTINCT
        return [low + step * i + (i if step > 2 else 0) for i in range(DISTINCT)]
    if kind == "date":
        return [7 * i + 9000 for i in range(DISTINCT)]
    per_ms = {"ms": 1, "us": 1_000, "ns": 1_000_000}[arrow.unit]
    step = 61_003 if kind.startswith("time[") else 3 * _DAY_MS + 61_003
    return [(step * i + 1_000) * per_ms + (per_ms > 1) for i in range(DISTINCT)]


def _texts() -> list[str]:
    return sorted(f"{i * 2654435761 % 2**32:08x}" for i in range(DISTINCT))


_MADE: dict[str, Callable[[], list[object]]] = {
    "float16": lambda: [i / 4 for i in range(DISTINCT)],
    "float": lambda: [i / 7 for i in range(DISTINCT)],
    "double": lambda: [i / 7 for i in range(DISTINCT)],
    "string": lambda: list(_texts()),
    "binary": lambda: [b"\x00\xff'" + text.encode() for text in _texts()],
    "uuid": lambda: [bytes.fromhex(text * 4) for text in _texts()],
    "fixed": lambda: [b"\x00\xff'" + text.encode() + b"\x80\\%\n\x7f" for text in _texts()],
}


def ascending(kind: str) -> pa.Array:
    """The DISTINCT values of a kind, in ascending order; uuid as the 16 bytes that it stores."""
    arrow = _type_of(kind)
    if kind in _MADE:
        made = pa.array(_MADE[kind](), pa.float64() if kind == "float16" else arrow)
        return made.cast(arrow)
    if kind.startswith("decimal"):
        return pa.array([decimal.Decimal(30_011 * i + 7) / 100 for i in range(DISTINCT)], arrow)
    numbers = _numbers(kind, arrow)
    if kind in COUNTED and kind != "date":
        return pa.array(numbers, arrow)
    return pa.array(numbers, pa.int32() if arrow.bit_width == 32 else pa.int64()).cast(arrow)


def column(kind: str) -> pa.Array:
    """All rows of a kind: each value REPEATED times, in no order."""
    rows = pa.array([i * 7919 % DISTINCT for i in range(DISTINCT * REPEATED)])
    return ascending(kind).take(rows)


def question_values(kind: str, question: str) -> tuple[list[pa.Scalar], int]:
    """(the values of a question, how many rows it must find); of a range, its two ends, which are two apart."""
    values = ascending(kind)
    one = values[_ASKED]
    if question == IN:
        return [one, values[_OTHER]], 2 * REPEATED
    if question == RANGE:
        return [one, _two_on(one)], _in_range(kind) * REPEATED
    return [one], REPEATED


def _two_on(scalar: pa.Scalar) -> pa.Scalar:
    number = scalar.cast(pa.int32()) if pa.types.is_date(scalar.type) else scalar
    return pa.scalar(number.as_py() + 2, number.type).cast(scalar.type)


def _in_range(kind: str) -> int:
    values = ascending(kind)
    if kind == "date":
        values = values.cast(pa.int32())
    first = values[_ASKED].as_py()
    return sum(first <= value <= first + 2 for value in values.to_pylist())


# --- denying --------------------------------------------------------------------------------------
#
# Files whose filters deny every value: an engine that does not find a value that is stored has used a filter.
#
# Each word of such a bitset has its lowest bit alone. A value is admitted only if all eight of its bits are these,
# which is one value in 2^40; and the bitset is not blank, as some engines take a blank one for no filter. The same
# file with its own, right filters is the control: an engine that does not find the value there was not asked well.

# The columns of a file: the path of the values' field, as people name it and as Parquet does.
COLUMNS = {PLAIN: ("plain",), DICTIONARY: ("dictionary",), FIELD: ("s", "f"), ELEMENT: ("l",)}
_WORD = b"\x01\x00\x00\x00"


def write_pair(folder: Path, kind: str) -> tuple[Path, Path]:
    """Write the control and the file with filters that deny everything; returns their paths.

    One row group, with the values of a kind in a column without a dictionary, in one with a dictionary, in a struct's
    field and as elements of lists; filters on all of them.
    """
    name = "".join(c if c.isalnum() else "-" for c in kind)
    control, denying = folder / f"{name}-control.parquet", folder / f"{name}-denying.parquet"
    values = column(kind)
    if kind == "uuid":
        values = pa.ExtensionArray.from_storage(pa.uuid(), values)
    lists = pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values)
    fields = pa.StructArray.from_arrays([values], ["f"])
    table = pa.table({"plain": values, "dictionary": values, "s": fields, "l": lists})
    pq.write_table(
        table, control, use_dictionary=["dictionary"], store_decimal_as_integer=kind.startswith("decimal as INT")
    )
    add_filters(control, columns=["*"], in_place=True, sync=False)
    shutil.copyfile(control, denying)
    deny(denying)
    return control, denying


def deny(path: Path) -> int:
    """Make all filters of a file of one's own deny everything; returns how many there are."""
    filters = inspect(path).files[0].filters
    with open(path, "r+b") as file:
        for each in filters:
            assert each.offset is not None
            assert each.length is not None
            file.seek(each.offset + each.length - each.num_bytes)
            file.write(_WORD * (each.num_bytes // len(_WORD)))
    return len(filters)

"""What engines tell apart: the type of a column, and the ways a value of it is stored and asked for.

A kind is named as Arrow names its type, with what Parquet adds: "int8", "timestamp[us, UTC]", "decimal as INT32".
"""

from __future__ import annotations

from parquet_bloom.formats.metadata.schema import BYTE_ARRAY, DOUBLE, FLBA, FLOAT, INT32, INT64, Leaf

KINDS = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float", "double",
    "string", "binary", "fixed", "uuid", "date", "time[ms]", "time[us]", "time[ns]",
    "timestamp[ms]", "timestamp[us]", "timestamp[ns]", "timestamp[ms, UTC]", "timestamp[us, UTC]", "timestamp[ns, UTC]",
    "decimal as INT32", "decimal as INT64", "decimal as FIXED",
)  # fmt: skip
COUNTED = {kind for kind in KINDS if "int" in kind and "as" not in kind} | {"date"}  # the next value is one more

# How a value is stored: in a column of its own, with a dictionary or without, or inside of another type.
PLAIN, DICTIONARY, FIELD, ELEMENT = "plain", "dictionary", "struct field", "list element"
STORED = (PLAIN, DICTIONARY, FIELD, ELEMENT)
# How it is asked for: x = 5; x IN (5, 7); 5 <= x <= 7; list_contains(x, 5).
EQUAL, IN, RANGE, CONTAINS = "=", "IN", "range", "contains"
QUESTIONS = (EQUAL, IN, RANGE, CONTAINS)

_UNITS = {1_000_000: "ms", 1_000: "us", 1: "ns"}
_PHYSICAL = {FLOAT: "float", DOUBLE: "double", BYTE_ARRAY: "binary", FLBA: "fixed", INT32: "int32", INT64: "int64"}
_DECIMALS = {INT32: "decimal as INT32", INT64: "decimal as INT64", FLBA: "decimal as FIXED"}
_NAMED = {"STRING": "string", "UUID": "uuid", "DATE": "date", "FLOAT16": "float16"}
_AS_BYTES = {"ENUM", "JSON", "BSON"}


def questions_of(kind: str, stored: str) -> tuple[str, ...]:
    """The questions that make sense over a kind that is stored so."""
    if stored == ELEMENT:
        return (CONTAINS,)
    return (EQUAL, IN, RANGE) if kind in COUNTED else (EQUAL, IN)


def kind_of(leaf: Leaf) -> str | None:
    """The kind of a leaf; None for one that no facts are kept of (BOOLEAN, INT96, INTERVAL, decimals as BYTE_ARRAY)."""
    logical = leaf.logical
    if leaf.refusal is not None:
        return None
    if logical in _NAMED:
        return _NAMED[logical]
    if logical == "INTEGER":
        return f"{'' if leaf.signed else 'u'}int{leaf.bits}"
    if logical == "DECIMAL":
        return _DECIMALS.get(leaf.physical)
    unit = _UNITS.get(leaf.unit_ns)
    if logical == "TIME":
        return f"time[{unit}]" if unit else None
    if logical == "TIMESTAMP":  # the old converted types meant UTC
        return f"timestamp[{unit}{'' if leaf.utc is False else ', UTC'}]" if unit else None
    return _PHYSICAL.get(leaf.physical) if logical is None or logical in _AS_BYTES else None


def stored_as(leaf: Leaf) -> str:
    """How a leaf stores its values; whether with a dictionary is said by its pages, not here: `PLAIN` is both."""
    if leaf.repeated:
        return ELEMENT
    return FIELD if len(leaf.path) > 1 else PLAIN

"""The keys and values of folders' names, as Spark has them.

/data/year=2026/city=a%20b/x.parquet, below /data   -> (year, 2026), (city, "a b")
a value -> its shape, of which Spark infers the type of its key   -> a column with index -1, -2, ...
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from parquet_bloom.format.schema import BYTE_ARRAY, INT32, INT64, Leaf
from parquet_bloom.storage.paths import HIVE_NULL, Partitions


def folders_of(below: str) -> Partitions:
    """The key=value folders of a path below its root, as Spark reads them: outermost first.

    They are looked at from the file upwards, until one is none after some were; `%3D` is one
    character for each code (Source: PartitioningUtils.parsePartition, unescapePathName).
    """
    pairs: list[tuple[str, str | None]] = []
    for folder in reversed(below.strip("/").split("/")[:-1]):
        key, sign, value = folder.partition("=")
        if key and sign:
            pairs.append((_unescaped(key), None if value == HIVE_NULL else _unescaped(value)))
        elif pairs:
            break
    return tuple(reversed(pairs))


def _unescaped(text: str) -> str:
    return re.sub("%([0-9A-Fa-f]{2})", lambda code: chr(int(code[1], 16)), text)


_DOUBLE = re.compile(
    r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?|0[xX][0-9a-fA-F.]+[pP].*)"
)


def shape_of(value: str | None) -> str:
    """Values of one shape have one type for Spark, and few shapes there are."""
    if value is None:
        return "null"
    text = value.strip()
    if re.fullmatch("[+-]?[0-9]+", value):
        bits = next((bits for bits in (32, 64) if -(1 << bits - 1) <= int(value) < 1 << bits - 1), 0)
        return f"int{bits}" if bits else f"{len(value.lstrip('+-0'))} digits"
    if _DOUBLE.fullmatch(text):
        return "double"
    if re.match("[0-9]+[-:]", text):  # dates and times, and what only looks like one
        import datetime as dt

        try:
            dt.datetime.fromisoformat(text)
            return "time " + re.sub("[0-9]", "9", text)
        except ValueError:
            return "like a time " + re.sub("[0-9]+", "9", text)[:20]
    return "text"


_PHYSICAL = {"int": (INT32, None), "bigint": (INT64, None), "string": (BYTE_ARRAY, "STRING"), "date": (INT32, "DATE")}


def pseudo_leaves(fields: Iterable[Any]) -> tuple[Leaf, ...]:
    """Keys as columns, index -1, -2, ...; those of other types than these are known by name and NULL only."""
    leaves = []
    for at, field in enumerate(fields, 1):
        physical, logical = _PHYSICAL.get(field.dataType.simpleString(), (BYTE_ARRAY, "?"))
        leaves.append(Leaf(-at, (field.name,), physical, logical=logical))
    return tuple(leaves)

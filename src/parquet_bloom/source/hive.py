"""Hive-style folders, `year=2026/city=Kyiv/x.parquet`, as columns with one value a file.

Types follow pyarrow: a key whose values are all whole numbers of 32 bits is int32, any other a
string; `__HIVE_DEFAULT_PARTITION__` is NULL. Where all are dates, `day=2026-01-02`, the key is a
string in rows, and can be compared with dates as well as with texts; both have one order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from parquet_bloom.errors import RequestError
from parquet_bloom.format.literals import day_number, read_date
from parquet_bloom.format.schema import BYTE_ARRAY, INT32, INT64, Leaf

Pairs = Sequence[tuple[str, str | None]]
Value = int | bytes | None
_WHOLE = re.compile(r"-?[0-9]{1,10}")


def _is_int32(text: str) -> bool:
    return _WHOLE.fullmatch(text) is not None and -(1 << 31) <= int(text) < 1 << 31


def _is_date(text: str) -> bool:
    try:
        read_date(text)
    except ValueError:
        return False
    return True


def partition_keys(files: Iterable[Pairs]) -> tuple[Leaf, ...]:
    """A pseudo leaf for each key, index -1, -2, ... in the order of their appearance.

    Whole numbers are INT32, texts BYTE_ARRAY STRING; dates BYTE_ARRAY DATE, which kinds.key_for makes
    a text or a date by the literals it is compared with.
    Raises RequestError where files lie under different keys, as no table has them all.
    """
    values: dict[str, list[str]] = {}
    names: list[str] | None = None
    for pairs in files:
        found = [key for key, _ in pairs]
        if names is not None and sorted(set(found)) != sorted(set(names)):
            both = [", ".join(n) or "none" for n in (names, found)]
            raise RequestError(f"folders name different partition columns: {both[0]} here, {both[1]} there")
        names = found if names is None else names
        for key, value in pairs:
            values.setdefault(key, []).extend([value] if value is not None else [])
    keys = []
    for at, (name, texts) in enumerate(values.items(), 1):
        whole, days = (bool(texts) and all(map(test, texts)) for test in (_is_int32, _is_date))
        logical = None if whole else "DATE" if days else "STRING"
        keys.append(Leaf(-at, (name,), INT32 if whole else BYTE_ARRAY, logical=logical))
    return tuple(keys)


def partition_value(key: Leaf, pairs: Pairs) -> Value:
    """The value of one file, in the order of bounds.domain_of: an int, the bytes of a text, or None."""
    text = dict(pairs).get(key.path[0])
    if text is None:
        return None
    if key.logical == "DATE" and key.physical == INT32:
        return day_number(read_date(text))
    return int(text) if key.physical in (INT32, INT64) else text.encode("utf-8", "surrogateescape")

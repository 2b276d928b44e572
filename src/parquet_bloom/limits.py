"""Limits of the whole process: how much of what a file claims is believed, and how many requests run at a time.

A few bytes can claim gigabytes. A file beyond a limit is a LimitError that names it. It may be sound; whoever trusts it
raises the limit.
"""

from __future__ import annotations

from dataclasses import replace

from parquet_bloom.errors import RequestError
from parquet_bloom.records import dataclass

RANGE_VALUES = 1000  # of a range of integers or dates, that filters are asked for one by one


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of this process.

    max_list_elements  of one Thrift list in a footer or page index, such as its row groups; parquet-cpp has as many
    max_string_bytes   of one Thrift text or statistic; parquet-cpp has as many
    max_memory         bytes of pages and values that decoding one column takes at a time, in each thread
    concurrency        files on other storages that are read at a time, and requests for each of them; new versions of
                       such files are written 16 at a time, or fewer by this number
    """

    max_list_elements: int = 1_000_000
    max_string_bytes: int = 100_000_000
    max_memory: int = 512 << 20
    concurrency: int = 64


_current = Limits()


def limits() -> Limits:
    """The limits as they are."""
    return _current


def set_limits(
    *,
    max_list_elements: int | None = None,
    max_string_bytes: int | None = None,
    max_memory: int | None = None,
    concurrency: int | None = None,
) -> Limits:
    """Change limits of this process, not of Spark's executors; None leaves one as it is. Returns those before.

    Raises RequestError for what is no positive number.
    """
    values = {
        "max_list_elements": max_list_elements,
        "max_string_bytes": max_string_bytes,
        "max_memory": max_memory,
        "concurrency": concurrency,
    }
    changed = {name: value for name, value in values.items() if value is not None}
    for name, value in changed.items():
        if value < 1:
            raise RequestError(f"{name} {value} is not a positive number")
    global _current
    before, _current = _current, replace(_current, **changed)
    return before

"""The table of writers: statistics that are written wrongly, and writers whose bounds were seen to be right.

    FAULTS   program, versions, types: the statistic that is not believed, and from where that is known
    RIGHT    programs and versions whose bounds were held against all values, by their own runs

A row group may be skipped by the bounds of any writer but for FAULTS. That *every* row matches, so that no row is
looked at, is drawn from bounds of RIGHT alone. A version that cannot be told from a wrong one ("Polars" alone, of 0.20
to 1.44) is not believed. Filters are queried as ever: what this costs is skipping by bounds.

"run" is what `fixtures/writers/old_statistics.py` shows with released programs; "read" stands in their issues alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple

from parquet_bloom.format.schema import BOOLEAN, BYTE_ARRAY, DOUBLE, FLBA, FLOAT, INT32, INT64, Leaf

Version = tuple[int, ...]
Statistic = Literal["bounds", "few nulls", "many nulls"]  # null_count is below what it should be, or above
_TIMES = ("DATE", "TIME", "TIMESTAMP")


def is_signed_number(leaf: Leaf) -> bool:
    """Whether a column has signed numbers: their order was never in doubt."""
    signed = leaf.logical != "INTEGER" or leaf.signed
    return leaf.physical in (BOOLEAN, INT32, INT64, FLOAT, DOUBLE) and bool(signed)


def _is_in_bytes(leaf: Leaf) -> bool:
    return leaf.physical in (BYTE_ARRAY, FLBA)


def _is_unsigned(leaf: Leaf) -> bool:
    return leaf.logical == "INTEGER" and not leaf.signed


def _is_decimal_in_bytes(leaf: Leaf) -> bool:
    return leaf.logical == "DECIMAL" and _is_in_bytes(leaf)


class Fault(NamedTuple):
    """A statistic that a program writes wrongly.

    program  as `program_of` gives it
    until    the first version that has it right; None: none is known. A file that states no version has the fault
    types    the columns
    """

    program: str
    until: Version | None
    types: Callable[[Leaf], bool]
    statistic: Statistic
    known: Literal["run", "read"]
    source: str


FAULTS = (
    Fault("Polars", (2, 1), lambda leaf: bool(leaf.float_bits), "bounds", "run",
          "1.28.1 to 2.0.0, 0.20.31: bounds of the pages without a NaN alone; pola-rs/polars#26805"),
    Fault("Polars", (2,), _is_decimal_in_bytes, "bounds", "run",
          "0.20.31 to 1.44.2: pages merged as unsigned bytes; pola-rs/polars#29347"),
    Fault("Polars", (2,), _is_unsigned, "bounds", "run", "before 0.20.32: compared as signed; pola-rs/polars#16683"),
    Fault("Polars", (2,), lambda leaf: True, "many nulls", "run",
          "1.38.1 to 1.44.2: null_count times the pages; pola-rs/polars#29321"),
    Fault("Polars", (2,), _is_in_bytes, "few nulls", "run", "0.19.19: texts and categoricals have 0"),
    Fault("Arrow2", None, lambda leaf: True, "few nulls", "run", "categoricals have 0; pola-rs/polars#18867"),
    Fault("Arrow2", None, lambda leaf: bool(leaf.float_bits) or _is_unsigned(leaf) or _is_decimal_in_bytes(leaf),
          "bounds", "read", "the code that Polars took over"),
    Fault("DuckDB", (1,), lambda leaf: True, "many nulls", "run",
          "0.8.1 to 0.10.0: a running total over row groups; StarRocks/starrocks#78329"),
    Fault("parquet-cpp-arrow", (11,), lambda leaf: leaf.physical == BYTE_ARRAY, "bounds", "run",
          "dictionary arrays: those of the first batch; ARROW-12513, apache/arrow#15042"),
    Fault("parquet-cpp-arrow", (11,), lambda leaf: leaf.physical == BYTE_ARRAY, "few nulls", "run", "the same"),
    Fault("parquet-cpp-arrow", None, lambda leaf: leaf.physical == BYTE_ARRAY and len(leaf.path) > 1, "few nulls",
          "run", "to this day (26): NULLs of a struct around a dictionary array"),
    Fault("parquet-cpp", (1, 3), lambda leaf: not is_signed_number(leaf), "bounds", "read",
          "ApplicationVersion of Arrow C++"),
    Fault("parquet-cpp", None, _is_decimal_in_bytes, "bounds", "read", "PARQUET-1655"),
    Fault("parquet-cpp", None, lambda leaf: leaf.physical == BYTE_ARRAY, "few nulls", "read", "as parquet-cpp-arrow"),
    Fault("parquet-mr", (1, 10), lambda leaf: not is_signed_number(leaf), "bounds", "read",
          "PARQUET-251, PARQUET-686, PARQUET-1025: texts and unsigned numbers compared as signed"),
    Fault("parquet-rs", None, lambda leaf: leaf.logical == "DECIMAL" and leaf.physical == BYTE_ARRAY, "bounds", "read",
          "apache/arrow-rs#10860, #11073"),
    Fault("ClickHouse", (25, 8), lambda leaf: leaf.logical == "DECIMAL", "bounds", "read",
          "compared as unsigned; ClickHouse/ClickHouse#83754"),
    Fault("hyparquet", None, lambda leaf: leaf.logical == "DECIMAL", "bounds", "read",
          "of the unscaled number; hyparam/hyparquet-writer#38. Its files state no version"),
    Fault("Parquet.Net", None, lambda leaf: leaf.logical in _TIMES, "bounds", "read",
          "in another unit; aloneguid/parquet-dotnet#769"),
    Fault("Parquet.Net", None, lambda leaf: leaf.logical == "UUID", "bounds", "read",
          "in .NET's order of bytes; aloneguid/parquet-dotnet#758"),
    Fault("parquet-go", None, lambda leaf: not is_signed_number(leaf) or bool(leaf.float_bits), "bounds", "read",
          "bytes that the next page overwrote; parquet-go/parquet-go#54 and later ones"),
    Fault("parquet-go", (0, 21), lambda leaf: True, "bounds", "read", "the same"),
    Fault("parquet-go", None, lambda leaf: True, "few nulls", "read", "fraugster/parquet-go#69"),
    Fault("parquet-go", None, lambda leaf: True, "many nulls", "read", "fraugster/parquet-go#69"),
)  # fmt: skip

_FAULTS_OF = {name: [fault for fault in FAULTS if fault.program == name] for name in {f.program for f in FAULTS}}

# The first version of each program whose bounds were held against every value that it wrote.
RIGHT: dict[str, Version] = {
    "parquet-cpp-arrow": (11,),
    "parquet-mr": (1, 10),
    "parquet-rs": (0,),
    "DuckDB": (1,),
    "Polars": (2, 1),
    "fastparquet-python": (2024,),
}

_PROGRAMS = re.compile(
    r"(parquet-cpp-arrow|parquet-cpp|parquet-mr|parquet-rs|Polars|Arrow2|DuckDB|ClickHouse|hyparquet|Parquet\.Net"
    r"|fastparquet-python|datafusion|delta-rs)\b"
)
_VERSION = re.compile(r"[^0-9]{0,40}?\bv?([0-9]{1,6}(?:\.[0-9]{1,6}){0,2})")
_BUILT_ON = {"datafusion": "parquet-rs", "delta-rs": "parquet-rs"}  # their versions are their own
_LONGEST = 200  # characters of created_by that are looked at


@lru_cache(256)
def program_of(created_by: str | None) -> tuple[str, Version | None]:
    """The program that a footer names, and its version; ("", None) for one that is not known here.

    A file that another program wrote a new footer for names that program: pyarrow's `write_metadata_file` and others
    leave no trace of the first one. Filters that were added here keep created_by.
    """
    text = (created_by or "")[:_LONGEST]
    if "parquet-go" in text:
        name, rest = "parquet-go", text[text.index("parquet-go") :]
    else:
        found = _PROGRAMS.match(text)
        if found is None:
            return "", None
        name, rest = found[1], text[found.end() :]
    version = _VERSION.match(rest)
    if name in _BUILT_ON:
        return _BUILT_ON[name], (0,)
    return name, tuple(map(int, version[1].split("."))) if version else None


def is_wrong(created_by: str | None, leaf: Leaf, statistic: Statistic) -> bool:
    """Whether a statistic of a column is one that its writer is known to write wrongly."""
    name, version = program_of(created_by)
    return any(
        fault.statistic == statistic
        and (fault.until is None or version is None or version < fault.until)
        and fault.types(leaf)
        for fault in _FAULTS_OF.get(name, ())
    )


def believed_nulls(created_by: str | None, leaf: Leaf, values: int, nulls: int | None) -> int | None:
    """The null_count of a chunk of so many values, where it says what it seems to say; None: not known."""
    if nulls is None or is_wrong(created_by, leaf, "many nulls"):
        return None
    return None if nulls < values and is_wrong(created_by, leaf, "few nulls") else nulls


def is_right(created_by: str | None) -> bool:
    """Whether "every row matches" may be drawn from a writer's bounds."""
    name, version = program_of(created_by)
    return name in RIGHT and version is not None and version >= RIGHT[name]

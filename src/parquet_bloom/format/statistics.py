"""The statistics of one column in every row group: bounds, nulls, NaN; and how full its filter can be.

Bounds are believed only where the format says how to read them:

    max_value, min_value   in the order that column_orders names; without column_orders, nothing
    max, min (old)         of signed numbers only: writers compared all else as signed bytes
    float, double, float16 unless one is NaN; +-0.0 compare equal, so their signs do not matter
    truncated              still bounds: nothing here takes a bound for a stored value
    writers' mistakes      FAULTS has a table

Sources: parquet.thrift, Statistics and ColumnOrder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import ColumnIndex
from parquet_bloom.format.footer import Footer, derived
from parquet_bloom.format.outline import NONE, Outline, Slot
from parquet_bloom.format.repairs import statistics_writer
from parquet_bloom.format.schema import BOOLEAN, BYTE_ARRAY, DOUBLE, FLBA, FLOAT, INT32, INT64, Leaf

Domain = Literal["integer", "float", "bytes"]
MOST_BYTES = 64  # of a DECIMAL in a FIXED_LEN_BYTE_ARRAY; no engine knows more than 32


def domain_of(leaf: Leaf) -> Domain | None:
    """How values of a column are compared; None where the format gives them no order.

    "integer"  Python int: integers, DECIMAL (unscaled), DATE, TIME, TIMESTAMP, BOOLEAN (0, 1)
    "float"    Python float, FLOAT16 too
    "bytes"    unsigned and bytewise: strings, ENUM, JSON, BSON, UUID, and bytes without a logical type
    """
    logical, physical = leaf.logical, leaf.physical
    if physical == FLBA and leaf.type_length < 1:
        return None  # it holds no values, whatever its footer says of them
    if logical == "DECIMAL":
        return "integer" if physical in (INT32, INT64, FLBA, BYTE_ARRAY) else None
    if physical in (INT32, INT64):
        widths = (8, 16, 32) if physical == INT32 else (8, 16, 32, 64)
        plain = logical is None or (logical == "INTEGER" and leaf.bits in widths and leaf.signed is not None)
        return "integer" if plain or (logical in _TIMES and physical in _TIMES[logical]) else None
    if physical == BOOLEAN:
        return "integer" if logical is None else None
    if physical in (FLOAT, DOUBLE):
        return "float" if logical is None else None
    if physical in (BYTE_ARRAY, FLBA):
        if leaf.float_bits:
            return "float"
        if logical == "UUID":
            return "bytes" if physical == FLBA else None
        return "bytes" if logical in (None, "STRING", "ENUM", "JSON", "BSON") else None
    return None


_TIMES = {"DATE": (INT32,), "TIME": (INT32, INT64), "TIMESTAMP": (INT64,)}


def limits(leaf: Leaf) -> tuple[int, int] | None:
    """The smallest and largest value of an integer column's type; None where it has none."""
    if leaf.physical == BOOLEAN:
        return 0, 1
    decimal = leaf.physical == FLBA and leaf.logical == "DECIMAL" and 1 <= leaf.type_length <= MOST_BYTES
    if leaf.physical not in (INT32, INT64) and not decimal:
        return None
    bits = leaf.bits if leaf.logical == "INTEGER" else 8 * leaf.width
    unsigned = leaf.logical == "INTEGER" and not leaf.signed
    return (0, (1 << bits) - 1) if unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """The statistics of one column in n row groups; every array has n elements.

    some_null, some_value  bool: a row may be NULL, may hold a value
    nan_free               bool: certainly no NaN (of columns that have NaN)
    lower, upper           lowest and highest value there may be: int64, uint64 or float64, or objects
                           (int, bytes); what stands where nothing is known is meaningless
    has_lower, has_upper   bool: whether it is known
    """

    some_null: NDArray[np.bool_]
    some_value: NDArray[np.bool_]
    nan_free: NDArray[np.bool_]
    lower: NDArray[Any]
    upper: NDArray[Any]
    has_lower: NDArray[np.bool_]
    has_upper: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.some_null)

    def taken(self, at: NDArray[np.int64]) -> ColumnStatistics:
        """The statistics at some numbers, of row groups or of files: int64[m]."""
        return ColumnStatistics(*(getattr(self, field.name)[at] for field in fields(self)))


@derived
def statistics_of(outline: Outline, leaf: Leaf) -> ColumnStatistics:
    """The statistics of one column; kept with the outline, as a cached footer is queried again and again."""
    return _statistics(outline, leaf)


def unknown_statistics(n: int) -> ColumnStatistics:
    """The statistics of n row groups whose footer has none."""
    yes, no = np.ones(n, bool), np.zeros(n, bool)
    return ColumnStatistics(yes, yes, no, np.zeros(n, np.int64), np.zeros(n, np.int64), no, no)


def all_null_statistics(n: int) -> ColumnStatistics:
    """The statistics of a column that a file does not have."""
    yes, no = np.ones(n, bool), np.zeros(n, bool)
    return ColumnStatistics(yes, no, yes, np.zeros(n, np.int64), np.zeros(n, np.int64), no, no)


def one_value_statistics(n: int, value: Any) -> ColumnStatistics:
    """The statistics of a partition column: every row holds one value."""
    yes, no = np.ones(n, bool), np.zeros(n, bool)
    values = np.empty(n, np.int64 if isinstance(value, int) and abs(value) < 1 << 63 else object)
    values[:] = [value] * n  # one by one: numpy would drop the zeros that a text ends with
    return ColumnStatistics(no, yes, yes, values, values, yes, yes)


def _statistics(outline: Outline, leaf: Leaf) -> ColumnStatistics:
    # 1. Counts: may a row be NULL, may one hold a value?
    slots = outline.slots[:, :, leaf.index]
    n = outline.n_row_groups
    values, nulls = slots[Slot.NUM_VALUES], slots[Slot.NULL_COUNT]
    # Counts that contradict each other or the schema tell nothing at all.
    sound = (values >= 0) & (slots[Slot.TYPE] == leaf.physical)
    if not leaf.repeated:
        sound &= values == outline.rows
    if not leaf.optional:
        sound &= (nulls == NONE) | (nulls == 0)
    counted = sound & (nulls >= 0) & (nulls <= values)
    writer = statistics_writer(outline, leaf)
    some_null = ~counted | (nulls > 0) | is_wrong(writer, leaf, "few nulls") if leaf.optional else ~sound
    some_value = ~counted | (nulls < values) | is_wrong(writer, leaf, "many nulls")
    nan_free = slots[Slot.NAN_COUNT] == 0 if leaf.float_bits else np.ones(n, bool)
    # 2. Bounds, if the column has an order and its writer is believed.
    domain = domain_of(leaf) if not is_wrong(writer, leaf, "bounds") else None
    bounds = _stored_bounds(outline, slots, leaf, domain) if domain is not None else None
    if bounds is None:
        unknown, nothing = np.zeros(n, bool), np.zeros(n, np.int64)
        return ColumnStatistics(some_null, some_value, nan_free, nothing, nothing, unknown, unknown)
    low, has_low, high, has_high = bounds
    some_value = some_value | has_low | has_high  # they are bounds of values, whatever null_count says
    # 3. Bounds that contradict something are none: of unsound chunks, with a NaN, or the lower above the upper.
    good = sound & ~_spoilt(low, has_low & sound, high, has_high & sound, domain)
    lone = (slots[Slot.MIN_VALUE] == NONE) != (slots[Slot.MAX_VALUE] == NONE)
    if lone.any():  # some writers give one bound, but those that give old ones too give both: a field is damaged
        good &= ~(lone & ((slots[Slot.OLD_MIN] != NONE) | (slots[Slot.OLD_MAX] != NONE)))
    return ColumnStatistics(some_null, some_value, nan_free, low, high, has_low & good, has_high & good)


def _spoilt(
    low: NDArray[Any],
    has_low: NDArray[np.bool_],
    high: NDArray[Any],
    has_high: NDArray[np.bool_],
    domain: Domain | None,
) -> NDArray[np.bool_]:
    """Find bounds of which one is a NaN, the one value that differs from itself, or the lower is above the upper."""
    both = has_low & has_high
    spoilt: NDArray[np.bool_] = np.zeros(len(both), bool)
    if domain == "float":  # one NaN spoils both
        spoilt = (has_low & (low != low)) | (has_high & (high != high))
    spoilt[both] |= (low[both] > high[both]).astype(bool)
    return spoilt


def page_statistics(
    outline: Outline, leaf: Leaf, index: ColumnIndex, rows: NDArray[np.int64]
) -> ColumnStatistics | None:
    """The statistics of the pages of a column that is not repeated, by its column index, as of row groups.

    rows  int64[n]: of each page
    None where the index has another number of pages. A proof that the footer is right (format.repairs) proves nothing
    of page indexes: the file's writer counts here.
    """
    n = len(rows)
    lists = [index.null_pages, index.min_values, index.max_values]
    counts = [one for one in (index.null_counts, index.nan_counts) if one is not None]
    if leaf.repeated or any(one is None or len(one) != n for one in (*lists, *counts)):
        return None
    writer, empty = outline.created_by, np.array(index.null_pages, bool)
    nulls = np.full(n, NONE) if index.null_counts is None else np.array(index.null_counts, np.int64)
    counted = (nulls >= 0) & (nulls <= rows) & (empty == (nulls == rows))
    few, many = is_wrong(writer, leaf, "few nulls"), is_wrong(writer, leaf, "many nulls")
    sound = ~empty if not leaf.optional else np.ones(n, bool)
    some_null = ~counted | (nulls > 0) | few if leaf.optional else ~sound
    some_value = ~empty | many | ~sound | ((nulls != NONE) & ~counted)
    nan_free = np.ones(n, bool)
    if leaf.float_bits:
        nan_free = np.zeros(n, bool) if index.nan_counts is None else np.array(index.nan_counts, np.int64) == 0
    domain = domain_of(leaf) if has_order(outline, leaf) and not is_wrong(writer, leaf, "bounds") else None
    if domain is None:
        unknown, nothing = np.zeros(n, bool), np.zeros(n, np.int64)
        return ColumnStatistics(some_null, some_value, nan_free, nothing, nothing, unknown, unknown)
    (low, has_low), (high, has_high) = (_decode_list(one, leaf, domain) for one in (index.min_values, index.max_values))
    good = ~empty & sound & ~_spoilt(low, has_low, high, has_high, domain)
    return ColumnStatistics(some_null, some_value, nan_free, low, high, has_low & good, has_high & good)


def _stored_bounds(
    outline: Outline, slots: NDArray[np.int64], leaf: Leaf, domain: Domain
) -> tuple[NDArray[Any], NDArray[np.bool_], NDArray[Any], NDArray[np.bool_]] | None:
    """The lower bounds and where there is one, and the upper bounds likewise; None if no row group has any.

    The new fields of all row groups, or if they give nothing the old ones: never some of each.
    """
    fields = []
    if has_order(outline, leaf):
        fields.append((Slot.MIN_VALUE, Slot.MAX_VALUE))
    if is_signed_number(leaf):  # the old ones were compared as signed numbers
        fields.append((Slot.OLD_MIN, Slot.OLD_MAX))
    found = None
    filled: NDArray[np.bool_] | bool = False
    for min_field, max_field in fields:
        low, has_low = _decode(outline.data, slots[min_field], slots[min_field + 1], leaf, domain)
        high, has_high = _decode(outline.data, slots[max_field], slots[max_field + 1], leaf, domain)
        new = (low, has_low, high, has_high)
        # Of several files that are joined some may have the one, some the other.
        if filled is not False and found is not None:
            new = tuple(np.where(filled, old, other) for old, other in zip(found, new, strict=True))  # type: ignore[assignment]
        here = outline.in_files_with_any(has_low | has_high)
        if here is True:
            return new
        if here is not False:
            found, filled = new, here | filled
    return found


def has_order(keeper: Footer | Outline, leaf: Leaf) -> bool:
    """Whether a footer says in which order max_value and min_value of a column are."""
    orders = keeper.metadata.column_orders
    if orders is None or len(orders) != len(keeper.leaves):
        return False
    order = orders[leaf.index]
    # IEEE754TotalOrder differs from the type's own order in NaN and the two zeros alone, and no bound depends on these.
    return order.TYPE_ORDER is not None or (order.IEEE_754_TOTAL_ORDER is not None and bool(leaf.float_bits))


def _decode(
    data: bytes, at: NDArray[np.int64], length: NDArray[np.int64], leaf: Leaf, domain: Domain
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """One bound of every row group, and where there is one: PLAIN bytes, without a length prefix."""
    has = at != NONE
    if leaf.physical == BYTE_ARRAY or leaf.physical == FLBA:
        return _decode_bytes(data, at, length, has, leaf, domain)
    width = leaf.width or 1  # BOOLEAN
    has = has & (length == width)
    places = np.where(has, at, 0)
    if len(data) < width:
        return np.zeros(len(at), np.int64), np.zeros(len(at), bool)
    raw = np.frombuffer(data, np.uint8)[places[:, None] + np.arange(width)]
    values: NDArray[Any] = raw.view(_DTYPES[leaf.physical]).reshape(-1)
    if domain == "float":
        return values.astype(np.float64), has
    if leaf.physical == BOOLEAN:
        has = has & (values <= 1)  # PLAIN has one bit; another byte is damage
    if leaf.logical == "INTEGER" and not leaf.signed:
        return values.view(f"<u{width}").astype(np.uint64), has
    return values.astype(np.int64), has


def decode_bounds(stated: Sequence[bytes | None], leaf: Leaf, domain: Domain) -> list[Any]:
    """Bounds as Python values in the column's order; None for one that is missing, or cannot be one of this column."""
    if not stated:
        return []
    values, has = _decode_list(stated, leaf, domain)
    return [value if known else None for value, known in zip(values.tolist(), has.tolist(), strict=True)]


def _decode_list(stated: Sequence[bytes | None], leaf: Leaf, domain: Domain) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    lengths = np.array([0 if one is None else len(one) for one in stated], np.int64)
    at = np.where([one is None for one in stated], NONE, np.cumsum(lengths) - lengths)
    return _decode(b"".join(one or b"" for one in stated), at, lengths, leaf, domain)


_DTYPES = {BOOLEAN: "u1", INT32: "<i4", INT64: "<i8", FLOAT: "<f4", DOUBLE: "<f8"}


def _decode_bytes(
    data: bytes, at: NDArray[np.int64], length: NDArray[np.int64], has: NDArray[np.bool_], leaf: Leaf, domain: Domain
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    if domain == "float":
        has = has & (length == 2)
        halves = [data[a : a + 2] if h else b"\0\0" for a, h in zip(at.tolist(), has.tolist(), strict=True)]
        return np.frombuffer(b"".join(halves), "<f2").astype(np.float64), has
    if leaf.physical == FLBA and domain == "integer":
        has = has & (length == leaf.type_length)
    elif leaf.physical == FLBA:
        has = has & (length <= leaf.type_length)  # truncated bounds are shorter
    elif domain == "integer":
        has = has & (length > 0)
    # DECIMAL is two's complement, big-endian (LogicalTypes.md). Numpy's own bytes would lose zeros at the end.
    out = np.empty(len(at), object)
    for i, (a, n, h) in enumerate(zip(at.tolist(), length.tolist(), has.tolist(), strict=True)):
        raw = data[a : a + n] if h else b""
        out[i] = int.from_bytes(raw, "big", signed=True) if domain == "integer" else raw
    return out, has


# --- what writers write wrongly -------------------------------------------------------------------
#
#    FAULTS   program, versions, types: the statistic that is not believed, and from where that is known
#    RIGHT    programs and versions whose bounds were held against all values, by their own runs
#
# A row group may be skipped by the bounds of any writer but for FAULTS. That *every* row matches, so that no row is
# looked at, is drawn from bounds of RIGHT alone. A version that cannot be told from a wrong one ("Polars" alone, of
# 0.20 to 1.44) is not believed. Filters are queried as ever: what this costs is skipping by bounds.
#
# "run" is what `fixtures/writers/old_statistics.py` shows with released programs; "read" stands in their issues alone.

Version = tuple[int, ...]
Statistic = Literal["bounds", "few nulls", "many nulls"]  # null_count is below what it should be, or above


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
    Fault("ClickHouse", (25, 8), lambda leaf: leaf.logical == "DECIMAL", "bounds", "run",
          "24.8.4 and 25.5.2: compared as unsigned; ClickHouse/ClickHouse#83754"),
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
    "parquet-bloom": (1,),  # of a footer that `repair` wrote: format.repairs
}

_PROGRAMS = re.compile(
    r"(parquet-cpp-arrow|parquet-cpp|parquet-mr|parquet-rs|Polars|Arrow2|DuckDB|ClickHouse|hyparquet|Parquet\.Net"
    r"|fastparquet-python|datafusion|delta-rs|parquet-bloom)\b"
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
    """Whether a statistic of a column is one that its writer is known to write wrongly.

    created_by  as repairs.statistics_writer gives it, for all who believe or do not
    """
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


# --- what row groups contain ----------------------------------------------------------------------
#
# What must be true of a filter's bits whatever the values are, so that it shows without decoding one.
#
# `inspect` tells of it as a problem, and to readers such a filter is no evidence: both ask here.

_UNCUT_BYTES = 15  # writers cut texts of bounds at 16 bytes or more
Counts = tuple[int, int | None]  # num_values and null_count of a column chunk; null_count None: not known


def counts_in(footer: Footer, row_group: int, leaf: Leaf) -> Counts:
    """The counts of a chunk: values, and NULLs if its writer is believed to have counted them."""
    meta = footer.meta(row_group, leaf.index)
    nulls = meta.statistics.null_count if meta.statistics is not None else None
    return meta.num_values, believed_nulls(statistics_writer(footer, leaf), leaf, meta.num_values, nulls)


def counts_of(outline: Outline, row_group: int, column: int) -> Counts:
    """The same, from an outline."""
    values, nulls = (int(outline.slots[s, row_group, column]) for s in (Slot.NUM_VALUES, Slot.NULL_COUNT))
    known, leaf = None if nulls == NONE else nulls, outline.leaves[column]
    return values, believed_nulls(statistics_writer(outline, leaf), leaf, values, known)


def empty_filter_problem(counts: Counts) -> tuple[str, bool] | None:
    """Why a filter without any bit is no evidence about a chunk, and whether that is a contradiction.

    None where nothing but NULL is stored: such a filter is right. Without a null_count nobody can tell. parquet-java
    writes such filters for every BOOLEAN column.
    """
    values, nulls = counts
    if values == 0:
        return None
    if nulls is None or not 0 <= nulls <= values:
        return f"no bit is set, and the footer does not say that all {values} values are NULL", False
    return (f"no bit is set, but {values - nulls} values are stored", True) if values > nulls else None


def denied_bound(might_contain: Callable[[bytes], bool], outline: Outline, leaf: Leaf, group: int) -> str | None:
    """Whether a filter denies its chunk's own min or max, as one with a false k does, and how.

    These are stored values in columns of integers, and short texts. A longer one may be cut off. Of a filter that is
    read anyway it costs nothing; a filter of another form would have to be read for it.
    """
    statistics = statistics_of(outline, leaf)
    for name, has, bound in (
        ("min", statistics.has_lower, statistics.lower),
        ("max", statistics.has_upper, statistics.upper),
    ):
        value = bound[group].item() if isinstance(bound[group], np.generic) else bound[group]
        if not has[group] or not statistics.some_value[group]:
            continue
        if isinstance(value, int) and leaf.physical in (INT32, INT64):
            plain = (value & (1 << 8 * leaf.width) - 1).to_bytes(leaf.width, "little")
        elif isinstance(value, bytes) and leaf.physical == BYTE_ARRAY and len(value) <= _UNCUT_BYTES:
            plain = value
        else:
            continue
        if not might_contain(plain):
            return f"it denies {value!r}, the chunk's own {name}"
    return None

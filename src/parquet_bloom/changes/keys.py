"""Keys of one column or of several, and the rows that `locate` finds of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from parquet_bloom.errors import RefusedTypeError, RequestError, first_line
from parquet_bloom.format import arrow_types
from parquet_bloom.format.literals import read_clock
from parquet_bloom.format.schema import split_path
from parquet_bloom.keys.locate import facts_of, keys_as_array, locate
from parquet_bloom.options import PathLike

Integers = NDArray[np.int64]
_UUID = pa.uuid()
_SMALL_FLOATS = (pa.float16(), pa.float32())  # a float64 may be too great for them, and Arrow's cast makes it infinite


@dataclass(frozen=True, slots=True)
class RowsRequest:
    """A change of rows.

    columns  of the keys
    deletes  keys, as RowKeys has them; None: none
    rows     new ones, which replace rows with their keys; None: none
    """

    columns: tuple[str, ...]
    deletes: Any = None
    rows: pa.Table | None = None
    index: PathLike | None = None
    dry_run: bool = False
    threads: int | None = None

    @property
    def operation(self) -> str:
        """The name of the change in the table's log."""
        return "delete" if self.rows is None else "upsert"


class RowKeys:
    """Keys of one column or of several, each a combination of values."""

    def __init__(self, columns: Sequence[str], keys: Any) -> None:
        """keys: of one column an array or a list; of several a table or a mapping with these columns.

        Raises RequestError for keys with NULL, floats, and a key that is there twice.
        """
        arrays = arrays_of(columns, keys)
        for name, array in zip(columns, arrays, strict=True):
            if array.null_count:
                raise RequestError(f"{name}: a key is NULL, which equals nothing; leave it out")
            if pa.types.is_floating(array.type):
                raise RequestError(f"{name}: floats are no keys; name a column of another type")
        self.columns = tuple(columns)
        self.distinct = [array.unique() for array in arrays]  # of each column its values
        numbers = [pc.index_in(a, d).to_numpy().astype(np.int64) for a, d in zip(arrays, self.distinct, strict=True)]
        # A whole key is the number of a value of the first column; then the number of this and the next one's, paired,
        # among the pairs that there are.
        self._pairs: list[Integers] = []
        self.numbers = numbers[0]  # of each key, in the order of the call
        for number, values in zip(numbers[1:], self.distinct[1:], strict=True):
            paired = self.numbers * len(values) + number
            self._pairs.append(np.unique(paired))
            self.numbers = np.searchsorted(self._pairs[-1], paired)
        if len(np.unique(self.numbers)) < len(self.numbers):
            raise RequestError(f"{', '.join(columns)}: a key is there twice")

    def matches(self, of_columns: Sequence[Integers]) -> Integers:
        """The number of each row's key among all keys: int64[rows], -1 where it has none.

        of_columns  for each column the number of each row's value among `distinct`; -1: it is none of these
        """
        found = of_columns[0]
        has = found >= 0
        for number, values, pairs in zip(of_columns[1:], self.distinct[1:], self._pairs, strict=True):
            paired = found * len(values) + number
            at = np.minimum(np.searchsorted(pairs, paired), len(pairs) - 1)
            has &= (number >= 0) & (pairs[at] == paired)
            found = at
        return np.where(has, found, -1)


def arrays_of(columns: Sequence[str], keys: Any) -> list[pa.Array]:
    """The keys as an array for each column. Raises RequestError for what is no array, table or mapping of them."""
    parts: list[Any] = [_table_of(keys)]
    if len(columns) > 1 or isinstance(parts[0], pa.Table | Mapping):
        parts = [_column_of(parts[0], name) for name in columns]
    if any(one is None for one in parts):
        raise RequestError(f"keys of {', '.join(columns)}: give a table or a mapping that has these columns")
    arrays = [keys_as_array(one) for one in parts]
    if len({len(array) for array in arrays}) != 1:
        raise RequestError("the columns of the keys are not of one length; give each key a value of each")
    return arrays


def _table_of(keys: Any) -> Any:
    """A frame, or another table that Arrow's stream gives, as a pyarrow Table; all else as it is."""
    if isinstance(keys, pa.Table | pa.Array | pa.ChunkedArray) or not hasattr(keys, "__arrow_c_stream__"):
        return pa.Table.from_batches([keys]) if isinstance(keys, pa.RecordBatch) else keys
    try:
        return pa.RecordBatchReader.from_stream(keys).read_all()
    except (pa.ArrowException, TypeError):  # a series is an array
        return keys


def _column_of(keys: Any, column: str) -> Any:
    """A column of a table or mapping, by its name with quotes or without; None: there is none, or two."""
    names = keys.column_names if isinstance(keys, pa.Table) else list(keys) if isinstance(keys, Mapping) else []
    name = column if column in names else plain_name(column)
    return keys[name] if names.count(name) == 1 else None


def plain_name(column: str) -> str:
    """The name of a column without its quotes; of one in a struct its path. Raises RequestError."""
    path = split_path(column)
    return path[0] if len(path) == 1 else column


def as_type(name: str, column: Any, kind: pa.DataType) -> Any:
    """Values as a column stores them. Raises RequestError where one would become another value, or none."""
    reason = f"{name}: the column is {kind}, and {column.type} does not fit it; give values of its type"
    if column.type == kind:
        return column
    try:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_decimal(kind) and (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
            # Arrow rounds a float to a decimal, and wants room for the 19 digits that any int64 may have.
            column = column.cast(pa.string())
        if is_text(column.type) and kind == _UUID:
            column = _read(column, lambda text: UUID(text).bytes, pa.binary(16))
        if is_text(column.type) and pa.types.is_time(kind):  # Arrow has no such cast
            column = _read(column, read_clock, pa.time64("ns")).cast(kind)
        fits = _keeps_values(column.type, kind)
        found = column.cast(kind) if fits else column
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise RequestError(f"{reason} ({first_line(error)})") from error
    if not fits or (kind in _SMALL_FLOATS and pc.sum(pc.is_inf(found)).as_py() != _infinite(column)):
        raise RequestError(reason)
    return found


def _read(column: Any, read: Callable[[str], Any], kind: pa.DataType) -> pa.Array:
    """Texts as what they mean. Raises ValueError."""
    return pa.array([None if text is None else read(text) for text in column.to_pylist()], kind)


def _infinite(column: Any) -> int | None:
    """How many values are infinite, None of no values: of texts and decimals those that the greatest float has."""
    numbers = column if pa.types.is_floating(column.type) else column.cast(pa.float64())
    found: int | None = pc.sum(pc.is_inf(numbers)).as_py()
    return found


def _keeps_values(own: pa.DataType, kind: pa.DataType, inside: bool = False) -> bool:
    """Whether a cast keeps each value, or fails.

    Arrow's casts would take a time off a timestamp, a zone for UTC, and a number for its digits. In lists and structs
    they would also round to a decimal, leave out a field, and put NULL for one that is not there.
    """
    if own == kind or pa.types.is_null(own):
        return True
    if pa.types.is_dictionary(own):
        return _keeps_values(own.value_type, kind, inside)
    own, kind = (getattr(one, "storage_type", one) for one in (own, kind))
    if not pa.types.is_nested(kind):
        if inside and pa.types.is_decimal(kind) and pa.types.is_floating(own):
            return False
        return _family(kind) == _family(own) or is_text(own)
    fields, wanted = arrow_types.fields_of(own), arrow_types.fields_of(kind)
    if not arrow_types.are_alike(own, kind) or len(fields) != len(wanted):
        return False
    if pa.types.is_struct(kind):
        fields, wanted = (sorted(some, key=lambda field: str(field.name)) for some in (fields, wanted))
        if [field.name for field in fields] != [field.name for field in wanted]:
            return False
    return all(_keeps_values(one.type, other.type, True) for one, other in zip(fields, wanted, strict=True))


def _family(kind: pa.DataType) -> str:
    """Types between which a cast keeps values, or fails."""
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamp with a zone"
    if is_text(kind) or arrow_types.is_bytes(kind):
        return "text"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    return str(kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether values are texts, with a dictionary or without."""
    return arrow_types.is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def as_stored(array: pa.Array) -> pa.Array:
    """UUIDs and others are compared as they are stored."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array


@dataclass(frozen=True, slots=True)
class Located:
    """The rows that `locate` found by one column.

    column    its number among those of the keys
    rows      file -> row group -> how many of its rows have a value of that column
    searched  files that the index does not cover, by the column that it knows best
    absent    column -> files that were searched and have none
    """

    column: int
    rows: Mapping[str, Mapping[int, int]]
    searched: int = 0
    absent: Mapping[str, int] = field(default_factory=dict)


def located_rows(source: Any, keys: RowKeys, index: PathLike | None, among: Sequence[int]) -> Located:
    """Locate the keys by the column that has the fewest rows to read. Raises as `locate`.

    source  as `locate` has it
    among   the numbers of the columns that files have
    """
    column, facts = among[0], {}
    if len(among) > 1:
        places = {}
        for n in among:
            try:
                places[n] = locate(source, keys.columns[n], keys.distinct[n], index)
            except RefusedTypeError:  # a truth value finds no row, and decides with the others
                if not pa.types.is_boolean(keys.distinct[n].type) or (n == among[-1] and not places):
                    raise
        column = min(places, key=lambda n: pc.sum(places[n]["rows"]).as_py() or 0)
        facts = {n: facts_of(one) for n, one in places.items()}
    found = locate(source, keys.columns[column], keys.distinct[column], index, verify=True)
    facts[column] = facts_of(found)
    rows = found.select(["file", "row_group"]).append_column("rows", pc.list_value_length(found["row_numbers"]))
    counted = rows.group_by(["file", "row_group"]).aggregate([("rows", "sum")])
    counts: dict[str, dict[int, int]] = {}
    for file, group, count in zip(*(column.to_pylist() for column in counted.columns), strict=True):
        counts.setdefault(file, {})[group] = count
    absent = {keys.columns[n]: one["absent"] for n, one in facts.items() if one["absent"]}
    return Located(column, counts, min(one["searched"] for one in facts.values()), absent)

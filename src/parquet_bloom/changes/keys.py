"""Keys of one column or of several, and the rows that `locate` finds of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from parquet_bloom.errors import RequestError, first_line
from parquet_bloom.format import arrow_types
from parquet_bloom.keys.locate import facts_of, keys_as_array, locate
from parquet_bloom.options import PathLike

Integers = NDArray[np.int64]


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
    parts = [keys] if len(columns) == 1 and not isinstance(keys, pa.Table | Mapping) else None
    if parts is None and (not isinstance(keys, pa.Table | Mapping) or {*columns} - {*_names(keys)}):
        raise RequestError(f"keys of {', '.join(columns)}: give a table or a mapping that has these columns")
    arrays = [keys_as_array(one) for one in parts or [keys[name] for name in columns]]
    if len({len(array) for array in arrays}) != 1:
        raise RequestError("the columns of the keys are not of one length; give each key a value of each")
    return arrays


def _names(keys: pa.Table | Mapping[str, Any]) -> Sequence[str]:
    return keys.column_names if isinstance(keys, pa.Table) else list(keys)


def as_type(name: str, column: Any, kind: pa.DataType) -> Any:
    """Values as a column stores them. Raises RequestError where one would become another value, or none."""
    reason = f"{name}: the column is {kind}, and {column.type} does not fit it; give values of its type"
    if _family(kind) not in (_family(column.type), "") and not (pa.types.is_null(column.type) or is_text(column.type)):
        raise RequestError(reason)
    # Arrow rounds a float to the digits of a decimal without a word, and its text not.
    as_text = pa.types.is_floating(column.type) and pa.types.is_decimal(kind)
    try:
        return column if column.type == kind else (column.cast(pa.string()) if as_text else column).cast(kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise RequestError(f"{reason} ({first_line(error)})") from error


def _family(kind: pa.DataType) -> str:
    """Types between which a cast keeps values, or fails; "" of a nested one, which has types of its own.

    Arrow's casts would take a time off a timestamp, a zone for UTC, and a number for its digits.
    """
    if pa.types.is_dictionary(kind):
        return _family(kind.value_type)
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamp with a zone"
    if is_text(kind) or arrow_types.is_bytes(kind):
        return "text"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    return "" if pa.types.is_nested(kind) else str(kind)


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
    """

    column: int
    rows: Mapping[str, Mapping[int, int]]
    searched: int = 0


def located_rows(source: Any, keys: RowKeys, index: PathLike | None, among: Sequence[int]) -> Located:
    """Locate the keys by the column that has the fewest rows to read. Raises as `locate`.

    source  as `locate` has it
    among   the numbers of the columns that files have
    """
    column, searched = among[0], []
    if len(among) > 1:
        places = {n: locate(source, keys.columns[n], keys.distinct[n], index) for n in among}
        column = min(among, key=lambda n: pc.sum(places[n]["rows"]).as_py() or 0)
        searched = [facts_of(one)["searched"] for one in places.values()]
    found = locate(source, keys.columns[column], keys.distinct[column], index, verify=True)
    counts: dict[str, dict[int, int]] = {}
    columns = (found["file"].to_pylist(), found["row_group"].to_pylist(), pc.list_value_length(found["row_numbers"]))
    for file, group, count in zip(columns[0], columns[1], columns[2].to_pylist(), strict=True):
        groups = counts.setdefault(file, {})
        groups[group] = groups.get(group, 0) + count
    return Located(column, counts, min([*searched, facts_of(found)["searched"]]))

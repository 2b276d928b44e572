"""locate on Spark: the row groups that may hold each of many keys, for joins and upserts of Spark's own.

    keys: a DataFrame or an Arrow table -> distinct, on the driver         at most millions
    files that an index covers -> places, by one sorted merge              driver; no file is opened
    other files -> bounds, whole filters                                   tasks, as keys.locate has it on one machine

A key travels to each task that opens files, so it is their number that Spark makes bearable here, and not that of keys.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parquet_bloom.errors import ParquetBloomError, RequestError, first_line
from parquet_bloom.format.schema import Leaf, split_path
from parquet_bloom.keys.evidence import SearchedIndex
from parquet_bloom.keys.locate import (
    KeyCasts,
    LocatedFacts,
    distinct_keys,
    folded,
    key_leaf,
    keys_as_array,
    located_table,
    places_by_filters,
    places_by_index,
)
from parquet_bloom.keys.plan import hidden_keys
from parquet_bloom.options import RANGE_VALUES, PathLike, ReadOptions, refuse_unknown
from parquet_bloom.predicates.tree import And
from parquet_bloom.search.options import Options
from parquet_bloom.search.search import Search, logger
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.source.source import ResolvedSource
from parquet_bloom.spark.failures import explained, raising_ours
from parquet_bloom.spark.frames import Row, mapped, try_workers, width
from parquet_bloom.spark.keys import IndexedData, Opener, found_data, in_tasks
from parquet_bloom.spark.storages import index_path, paths_of
from parquet_bloom.spark.work import SentFile, TableWork, source_on_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FILES = 256  # of a task, at most
_LARGEST = Options("largest", range_values=RANGE_VALUES, ignore_case=True)


@explained
def locate(
    spark: Any,
    paths: PathLike | Sequence[PathLike],
    column: str,
    keys: Any,
    index: PathLike | None = None,
    **options: Unpack[ReadOptions],
) -> DataFrame:
    """Find the row groups that may hold each of many keys, as parquet_bloom.locate does on one machine: a row each.

    paths    a file, folder or glob, or a list, as Spark names them; or one table, delta:, iceberg: or ducklake:
    column   of the keys
    keys     a DataFrame or an Arrow table of one column, or an array; NULLs are left out, and each key counts once. The
             driver and each task have all of them in memory. NaN is refused: in Spark it equals NaN, and neither an
             index nor bounds say where it is
    index    folder of a key index, which the driver reaches: files that it covers are not opened. Tasks ask the filters
             of the others; a row group without a filter may hold every key within its bounds
    options  see ReadOptions: raw_files; of a table catalog_properties, allow_roots
    returns  DataFrame of `key`, `file`, `row_group`, `first_row` of the row group in the file, `rows` that it has,
             `deletes`: whether a table has deleted rows of the file; the row of a file that could not be read has
             `file` and `error` alone: whatever is in it may hold a key

    Raises UnknownColumnError; RequestError for keys that cannot be compared with the column, that Spark's types cannot
    hold, or that are NaN; StaleIndexError for an index of other data; TableFormatError for files of a table without
    raw_files.
    """
    refuse_unknown("locate", options, ReadOptions)
    wanted = _keys(keys, column)
    asked_at = index_path(spark, index)
    asked = None if asked_at is None else SearchedIndex(asked_at)
    data = found_data(spark, source_on_spark(paths_of(paths), options), stored_only=False)
    first = _column(data, column)
    KeyCasts(wanted, first).to(first)  # keys that do not fit are an error here, and not one a file
    places = _Places(wanted, first)
    schema = places.spark_schema
    with raising_ours():
        left: Sequence[int] = range(len(data.rows))
        located = None
        if asked is not None and data.files:
            located, left = _by_index(asked, data, places)
        if not left and located is not None:
            return spark.createDataFrame(located, schema)
        try_workers(spark)
        some = max(1, min(_FILES, 1 + len(left) // width(spark)))
        parts = [[data.rows[at] for at in left[start : start + some]] for start in range(0, len(left), some)]
        work = [(at, at, pickle.dumps(rows)) for at, rows in enumerate(parts)]
        run = partial(_locate_files, opener=data.work.opener, places=places)
        found: DataFrame = mapped(in_tasks(spark, work), run, schema)
        return found if located is None else spark.createDataFrame(located, schema).unionAll(found)


def _keys(keys: Any, column: str) -> pa.Array:
    """Keys as an Arrow array of a type that Spark has, each once. Raises RequestError."""
    if hasattr(keys, "toArrow"):
        keys = keys.toArrow()
    if isinstance(keys, pa.Table):
        if keys.num_columns != 1 and column not in keys.column_names:
            raise RequestError(f"keys have {keys.num_columns} columns, and none is {column}; give the keys alone")
        keys = keys.column(0 if keys.num_columns == 1 else column)
    array = keys_as_array(keys)
    if pa.types.is_floating(array.type) and np.isnan(array.drop_null().to_numpy(zero_copy_only=False)).any():
        raise RequestError("NaN keys cannot be located: in Spark NaN equals NaN; leave them out")
    return _as_in_spark(distinct_keys(array))


def _as_in_spark(keys: pa.Array) -> pa.Array:
    """Keys in the type that the result has them in. Raises RequestError."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

    try:
        if pa.types.is_timestamp(keys.type):  # whose zone to_arrow_type wants to be told
            return keys.cast(pa.timestamp("us", None if keys.type.tz is None else "UTC"))
        kind = to_arrow_type(from_arrow_type(keys.type))
    except pa.ArrowException as error:
        raise _lost(keys, error) from error
    except (PySparkException, ValueError, AssertionError) as error:
        raise RequestError(f"keys are {keys.type}, and Spark has no such type; cast them") from error
    try:
        return keys.cast(kind)
    except pa.ArrowException as error:
        raise _lost(keys, error) from error


def _lost(keys: pa.Array, error: Exception) -> RequestError:
    return RequestError(f"keys are {keys.type}, which Spark's type cannot hold: {first_line(error)}; cast them")


def _column(data: IndexedData, column: str) -> Leaf:
    """The column, as the table or the first file that can be read has it. Raises UnknownColumnError."""
    if isinstance(data.work, TableWork):
        leaves: Sequence[Leaf] = data.found.names.leaves
    else:
        leaves = () if data.work.first is None else data.work.first[1]
    named = folded(split_path(column))
    if any(folded(path) == named for path in hidden_keys(data.found, data.files)):
        raise RequestError(f"{column}: the folders' names have its values; name a column of the files")
    return key_leaf(leaves, column)


@dataclass(frozen=True)
class _Places:
    """Keys to locate, and the rows of the result.

    wanted  keys, each once, of a type that Spark has
    first   the column
    """

    wanted: pa.Array
    first: Leaf

    @cached_property
    def schema(self) -> pa.Schema:
        """Of the result, as Spark takes it."""
        names = [("key", self.wanted.type), ("file", pa.string()), ("row_group", pa.int32()), ("first_row", pa.int64())]
        return pa.schema([*names, ("rows", pa.int64()), ("deletes", pa.bool_()), ("error", pa.string())])

    @property
    def spark_schema(self) -> Any:
        """The same as Spark's."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self.schema, True)  # a timestamp without a zone is TIMESTAMP_NTZ

    def table(self, found: Any, search: Search, deleted: Sequence[str] | None) -> pa.Table:
        """Places as rows.

        found    as keys.locate has them
        deleted  the files of which a table has deleted rows; None: the files themselves say so
        """
        table = located_table(
            self.wanted, found, LocatedFacts(), False, KeyCasts(self.wanted, self.first), search, self.first
        )
        if deleted is not None:
            has = pc.is_in(table["file"], pa.array(deleted, pa.string()))
            table = table.set_column(table.schema.get_field_index("deletes"), "deletes", has)
        table = table.append_column("error", pa.nulls(table.num_rows, pa.string()))
        return table.replace_schema_metadata(None).cast(self.schema)


def _by_index(asked: SearchedIndex, data: IndexedData, places: _Places) -> tuple[pa.Table, list[int]]:
    """The places in files that an index covers, and the numbers of the other files. Raises StaleIndexError."""
    search = Search(data.found, And(()), _LARGEST)
    asked.expect(data.found, _LARGEST)
    coverage = asked.coverage(data.found, _LARGEST)
    coverage.refuse_none()
    casts, facts = KeyCasts(places.wanted, places.first), LocatedFacts()
    found, answered = places_by_index(asked.index, coverage, search, places.first, casts, facts)
    if facts.note is not None:
        logger.warning("%s; these files are searched as without an index", facts.note)
    asked.index.take_cost()  # this process has the index open: the next question would count these reads
    found.sort(key=lambda one: one.position)
    return places.table(found, search, None), np.flatnonzero(~answered).tolist()


# --- on executors ---------------------------------------------------------------------------------


def _locate_files(batches: Iterator[pa.RecordBatch], opener: Opener, places: _Places) -> Iterator[pa.RecordBatch]:
    """Files -> the places that their filters leave; a file that fails has a row with its error."""
    snapshot = opener.snapshot()
    casts = KeyCasts(places.wanted, places.first)
    for batch in batches:
        for data in batch.column("data").to_pylist():
            rows = pickle.loads(data)
            try:
                tables = [_located([opener.file(row, snapshot) for row in rows], snapshot, casts, places)]
            except ParquetBloomError:  # of which file, the next lines say
                tables = [_located_or_error(row, opener, snapshot, casts, places) for row in rows]
            for table in tables:
                yield from table.to_batches()


def _located(files: Sequence[SentFile], snapshot: Snapshot, casts: KeyCasts, places: _Places) -> pa.Table:
    part = ResolvedSource(replace(snapshot, files=[one.file for one in files]))
    search = Search(part, And(()), _LARGEST)
    found = list(places_by_filters(part.files, part, _LARGEST, places.first, casts, LocatedFacts()))
    return places.table(found, search, [str(one) for one in files if one.has_deletes])


def _located_or_error(row: Row, opener: Opener, snapshot: Snapshot, casts: KeyCasts, places: _Places) -> pa.Table:
    name = str(row["path"])
    try:
        file = opener.file(row, snapshot)
        name = str(file)
        return _located([file], snapshot, casts, places)
    except ParquetBloomError as error:
        failed = {"file": name, "error": " ".join(str(error).split())}
        return pa.Table.from_pylist([failed], places.schema)

"""A data source for Spark that skips row groups by any filter this package reads, and `read`, which reads by it.

    spark.dataSource.register(ParquetBloomSource)
    spark.read.format("parquet_bloom").option("where", "id = 5 OR name = 'a'").load("s3a://bucket/events")
    spark.read.format("parquet_bloom").option("where", "id = 5").load("delta:s3://bucket/lake/events")

The driver reads one footer and lists little (units.py); each task lists, asks and reads its own files (rows.py). Of a
table the driver reads the log, and a partition is files with their deletes. Spark gives Python data sources no list of
the columns that a query needs, so `columns` says it.
"""

from __future__ import annotations

import functools
import json
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from parquet_bloom.errors import DamagedFileError, RequestError
from parquet_bloom.format.schema import join_path, split_path, unknown_column
from parquet_bloom.keys.coverage import coverage_of
from parquet_bloom.keys.index import open_key_index
from parquet_bloom.options import RANGE_VALUES, PathLike, ReadOptions, TableOptions, column_names, refuse_unknown
from parquet_bloom.predicates.rows import row_filter
from parquet_bloom.predicates.tree import And, Path, Predicate
from parquet_bloom.search.options import Options
from parquet_bloom.search.question import key_index
from parquet_bloom.search.search import as_predicate
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.source.source import CallSource, resolved_files
from parquet_bloom.spark.failures import explained, in_one_line, naming_options, short
from parquet_bloom.spark.frames import frame_of, mapped, try_workers
from parquet_bloom.spark.listing import tables_around
from parquet_bloom.spark.sessions import adopt_python, is_own, own_python
from parquet_bloom.spark.source.rows import LARGEST, FileReader, Query, TableScan, columns_of, plan_table, table_types
from parquet_bloom.spark.source.types import InferredSchema, arrow_schema, infer_schema, spark_schema
from parquet_bloom.spark.source.units import PartialListing, Share, Unit, files_of, list_some, plan, shares
from parquet_bloom.spark.storages import Storages, every_storage, index_path, paths_of, storages
from parquet_bloom.spark.work import source_on_spark
from parquet_bloom.storage.display import without_secret
from parquet_bloom.storage.table_folders import read_guard

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# --- requests -------------------------------------------------------------------------------------
#
# What the options of a read say: of files, or of a table.

_NAME = "parquet_bloom"
_NO_PATH = "name what to read: .load(path)"
_OPTIONS = (
    "path",
    "paths",
    "where",
    "columns",
    "mergeschema",
    "partitions",
    "rawfiles",
    "catalogproperties",
    "allowroots",
    "index",
)
_NAMES = "where, columns, mergeSchema, partitions, rawFiles, catalogProperties, allowRoots, index"


@dataclass(frozen=True)
class Request:
    """The options of a read, checked.

    predicate   of the option `where`, or And(()): all rows
    columns     None: all
    partitions  None: as many as the bytes are worth
    index       a key index, which driver and executors reach
    options     of the search
    """

    predicate: Predicate
    columns: tuple[str, ...] | None
    partitions: int | None
    index: str | None
    options: Options = field(default=LARGEST, kw_only=True)

    def refuse_tables(self) -> None:
        """Raise TableFormatError for names that are, or lie in, a table's folder; listings find those below."""


@dataclass(frozen=True)
class FileRequest(Request):
    """A read of files, folders and globs.

    raw_files  also files of an Iceberg, Delta or Hudi table, dead ones too
    """

    names: tuple[str, ...]
    where: Storages
    merge: bool
    raw_files: bool

    def refuse_tables(self) -> None:
        """As Request has it."""
        tables = read_guard(self.raw_files)
        if tables is not None:
            tables_around(self.names, self.where, tables)

    def types(self, columns: Sequence[str] | None) -> InferredSchema:
        """The types of columns (None: all); of others perhaps too. Raises as infer_schema."""
        seen = self._list(sys.maxsize, sys.maxsize) if self.merge else self.listing
        return infer_schema(self.names, seen, self.where, columns, self.merge, self.raw_files)

    @cached_property
    def listing(self) -> PartialListing:
        """Files and folders that the driver lists, once: for the schema and for the tasks, which do not get them."""
        return self._list()

    def _list(self, *limits: int) -> PartialListing:
        return list_some(self.names, self.where, *limits, raw_files=self.raw_files)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "listing"}

    def plan(self, query: Query) -> FileScan:
        """Plan a read; files are listed for its partitions. Raises as Query.check, and as search.question.key_index."""
        query.check()
        if query.index is not None:
            key_index(query.index)
        return FileScan(self, query)


@dataclass(frozen=True)
class FileScan:
    """A read of files."""

    request: FileRequest
    query: Query

    def partitions(self) -> Sequence[InputPartition]:
        """A partition a task, on the driver."""
        one = self.request
        units = plan(one.listing) if one.partitions is None else shares(one.names, one.partitions)
        if self.query.index is not None:
            _refuse_stale(self.query.index, units, one.where)
        return units

    def rows(self, unit: Any) -> Iterator[pa.RecordBatch]:
        """The rows that match, of one unit."""
        reader = FileReader(self.query)
        files = files_of(unit, self.request.where, self.request.raw_files)
        return self.query.selected(reader.batches_of(files))


def _refuse_stale(index: str, units: Sequence[Unit], where: Storages) -> None:
    """Raise StaleIndexError for an index of none of the files, where all of them were listed here."""
    parts = [one for unit in units for one in unit.value]
    if not parts or any(isinstance(one, Share) for one in parts):
        return
    files = {entry.path: where.data_file(entry.path, entry.root) for entry, _, _ in parts}
    with suppress(DamagedFileError):  # each task goes on without a listing that is damaged
        coverage_of(open_key_index(index), resolved_files(list(files.values()))).refuse_none()


@dataclass(frozen=True)
class TableRequest(Request):
    """A read of one table, at the version that was named, or the latest at the first use."""

    source: CallSource

    @cached_property
    def snapshot(self) -> Snapshot:
        """The log, read once."""
        return self.source.resolve().snapshot

    def types(self, columns: Sequence[str] | None) -> InferredSchema:
        """The types of all columns."""
        return table_types(self.snapshot)

    def plan(self, query: Query) -> TableScan:
        """Plan a read. Raises as plan_table."""
        return plan_table(self.snapshot, query, self.partitions)


def request_of(options: Mapping[str, str], settings: Mapping[str, str], default: str) -> FileRequest | TableRequest:
    """Read the options; their names come in any case. Raises RequestError."""
    options = {name.lower(): value for name, value in options.items()}
    strange = [name for name in options if name not in _OPTIONS and "." not in name]
    if strange:
        raise RequestError(f"unknown option {strange[0]}; there are: {_NAMES}")
    given = {name: value for name, value in options.items() if name.startswith("fs.")}
    where = Storages({**settings, **given}, given.get("fs.defaultfs", default))
    names = json.loads(options["paths"]) if "paths" in options else []
    names += [options["path"]] if "path" in options else []
    if not names:
        raise RequestError(_NO_PATH)
    columns = None
    if "columns" in options:
        columns = tuple(_names(options["columns"]))
    text = options.get("where")
    index = where.index_path(options["index"]) if "index" in options else None
    common = (as_predicate(text) if text else And(()), columns, _count(options, "partitions"), index)
    merge, raw_files = _flag(options, "mergeschema"), _flag(options, "rawfiles")
    roots = _texts(options.get("allowroots"), "allowRoots")
    of_table: TableOptions = {"catalog_properties": _properties(options.get("catalogproperties")), "allow_roots": roots}
    source = source_on_spark(names, of_table)
    if source.table_name is not None:
        if merge or raw_files:
            raise RequestError(f"{without_secret(names[0])} is a table: mergeSchema and rawFiles are for files")
        return TableRequest(*common, source)
    return FileRequest(*common, tuple(map(where.absolute, names)), where, merge, raw_files)


def _json(text: str) -> Any:
    """A JSON value; None for what is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _properties(text: str | None) -> dict[str, str] | None:
    """The properties of a table's catalog: a JSON object of texts."""
    if text is None:
        return None
    found = _json(text)
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise RequestError('catalogProperties is a JSON object of texts, such as {"uri": "sqlite:///catalog.db"}')
    return found


def _texts(text: str | None, option: str) -> list[str]:
    """One text, or a JSON list of texts."""
    if text is None:
        return []
    found = _json(text) if text.lstrip().startswith("[") else [text]
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise RequestError(f'{option} is a text or a JSON list of texts, such as ["/lake/a", "/lake/b"]')
    return found


def _names(text: str) -> list[str]:
    """Names with commas between, or a JSON list of names that have commas themselves."""
    names = _json(text) or [] if text.lstrip().startswith("[") else [name.strip() for name in text.split(",")]
    if not names or len(set(map(str, names))) != len(names) or not all(isinstance(n, str) and n for n in names):
        raise RequestError(f"columns {text}: give each name once, with commas between")
    return names


def _flag(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise RequestError(f"{name} is true or false, not {text}")
    return text == "true"


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is not None and not (text.isascii() and text.isdigit() and 0 < int(text) <= 1_000_000):
        raise RequestError(f"{name} is a number of tasks, not {text}")
    return None if text is None else int(text)


# --- Spark's classes ------------------------------------------------------------------------------
#
# What Spark calls: for a schema, a reader, partitions on the driver, rows on executors.


class ParquetBloomSource(DataSource):
    """Spark's format "parquet_bloom"; docs/spark.md has its options."""

    settings: ClassVar[Mapping[str, str]] = {}
    default: ClassVar[str] = "file:///"

    @classmethod
    def name(cls) -> str:
        """The name for `spark.read.format`. Spark reads it right before it takes this class to its workers."""
        adopt_python()
        return _NAME

    @short
    def schema(self) -> StructType:
        """Of the first file, or of all with mergeSchema; partition columns behind. Of a table its own."""
        request = self._request()
        beside = columns_of(request.predicate)
        request.refuse_tables()
        types = request.types(None if request.columns is None else [*request.columns, *beside])
        if beside:
            row_filter(request.predicate, types.of(beside), nan="largest")
        return spark_schema(types.of(request.columns))

    @short
    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a query. Raises TableFormatError for folders of tables."""
        request = self._request()
        if request.columns is not None and list(request.columns) != schema.names:
            raise RequestError("there is a schema, so leave the option columns out: the schema names the columns")
        request.refuse_tables()
        return Reader(request, schema)

    def _request(self) -> FileRequest | TableRequest:
        return request_of(dict(self.options), self.settings, self.default)


class Reader(DataSourceReader):
    """Reads the rows of `where`. Takes none of the filters that Spark pushes.

    Spark 4.3 plans a read once for all that one load() gave, so that one query would get another's filters.
    Source: PythonDataSourceV2.setReadInfo, PythonScanBuilder.pushFilters.
    """

    def __init__(self, request: FileRequest | TableRequest, schema: StructType) -> None:
        rows = arrow_schema(schema)
        names = [name for name in columns_of(request.predicate) if name not in rows.names]
        chosen = [*(request.columns or ()), *names]
        types = request.types(chosen) if chosen else None
        beside, others = (pa.schema([]), ()) if types is None else (types.of(names), types.names)
        self._scan = request.plan(Query(rows, beside, request.predicate, request.options, request.index, others))

    @short
    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks, on the driver."""
        return self._scan.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task, on an executor."""
        with naming_options():
            yield from self._scan.rows(partition.value)


def register(spark: Any) -> None:
    """Register the format, with the session's Hadoop settings for its storages.

    The settings of s3a, abfss and gs are those of this moment. They travel with the format to where
    plans are made, which knows no session.

    Raises SparkJobError where the Python that plans reads, or the one of an executor on another machine, lacks
    this package: later Spark would print a traceback.
    """
    where = every_storage(spark)
    source = type("SessionSource", (ParquetBloomSource,), {"settings": where.settings, "default": where.default})
    with own_python(spark):
        spark.dataSource.register(source)
    if is_own(spark):
        return
    with in_one_line():
        try:
            _ = spark.read.format(_NAME).load().schema
        except Exception as error:
            if _NO_PATH not in str(error):  # which says that the planner's Python runs this module
                raise
        try_workers(spark)


# --- read -----------------------------------------------------------------------------------------
#
#     driver      one footer, or the log -> schema; names, or the log -> units
#     executors   a unit -> the rows that match (source.rows)
#
# Spark's own Parquet reader is not used. It had to be given the names of all files that are left, which took two jobs
# before the first row: of 8,000,000 rows in 8 files one key took 7.2 s, and takes 2.0 s now, half of the rows 5.1 and
# 3.9 s, all of them 5.5 and 3.6 s (Spark alone: 4.2, 2.6 and 2.8 s; 2 cores).


@explained
def read(
    spark: Any,
    paths: PathLike | Sequence[PathLike],
    predicate: Any,
    columns: str | Sequence[str] | None = None,
    *,
    use_filters: bool = True,
    range_values: int = RANGE_VALUES,
    index: PathLike | None = None,
    **options: Unpack[ReadOptions],
) -> DataFrame:
    """A DataFrame of the rows that match, as spark.read.parquet(..).where(..) would give them.

    paths      a file, folder or glob, or a list; a folder that is named is the base of the partitions in it. Or one
               table, delta:, iceberg: or ducklake:, of which executors read the living rows, as read_table does
    predicate  SQL text, DNF lists or a pyarrow Expression; NaN is the largest value and equals itself
    columns    one name or a list, `user.id` for a field; None: all
    index      folder of a key index, which driver and executors reach: files in which it denies the predicate are not
               read
    options    see ReadOptions: raw_files; of a table catalog_properties, allow_roots

    The call reads one footer for the schema, or a table's log; executors list, check and read files when the DataFrame
    is asked for rows. Row groups in which no row can match are not read, nor pages of the others without such a row.
    Values are read as they are stored. Columns are those of one file, as Spark has it without mergeSchema.

    Raises TextError with the spot marked, UnknownColumnError, RequestError for a part that rows cannot be
    filtered by or a type that Spark lacks, StorageError for a name or a folder that could not be listed,
    TableFormatError for files of a table without raw_files, StaleIndexError for an index of none of the files.
    """
    refuse_unknown("read", options, ReadOptions)
    tree = as_predicate(predicate)
    names, wanted = paths_of(paths), column_names(columns, "columns")
    asked = Options("largest", use_filters, range_values=range_values)
    source, place = source_on_spark(names, options), index_path(spark, index)
    if source.table_name is not None:
        return matching_rows(spark, TableRequest(tree, None, None, place, source, options=asked), wanted)
    where = storages(spark, names)
    absolute = tuple(map(where.absolute, names))
    request = FileRequest(tree, None, None, place, absolute, where, False, source.raw_files, options=asked)
    return matching_rows(spark, request, wanted)


def matching_rows(spark: Any, request: FileRequest | TableRequest, columns: Sequence[str] | None) -> DataFrame:
    """The rows that match a request. Columns and errors as `read` has them."""
    request.refuse_tables()
    paths = None if columns is None else [split_path(name) for name in columns]
    asked = columns_of(request.predicate)
    # A batch without columns has no rows: where none is wanted, one of the predicate's is read, or else all.
    tops = None if paths is None else list(dict.fromkeys(path[0] for path in paths)) or asked[:1] or None
    types = request.types(None if tops is None else [*tops, *asked])
    rows = types.of(tops)
    schema = spark_schema(rows)
    chosen = None if paths is None else [_column(path, rows).alias(path[-1]) for path in paths]
    beside = types.of([name for name in asked if name not in rows.names])
    scan = request.plan(Query(rows, beside, request.predicate, request.options, request.index, types.names))
    units = [(at, bytearray(pickle.dumps(one.value))) for at, one in enumerate(scan.partitions())]
    try_workers(spark)
    sent = frame_of(spark, units, "place int, unit binary").repartitionById(len(units), "place")
    frame: DataFrame = mapped(sent, functools.partial(_rows_of_units, scan=scan), schema)
    return frame if chosen is None else frame.select(*chosen)


def _rows_of_units(batches: Iterator[pa.RecordBatch], scan: FileScan | TableScan) -> Iterator[pa.RecordBatch]:
    """On executors: the rows of the units of a task, which the driver made."""
    for batch in batches:
        for unit in batch.column("unit").to_pylist():
            yield from scan.rows(pickle.loads(unit))


def _column(path: Path, schema: pa.Schema) -> Column:
    """A column, or a field of a struct. Raises UnknownColumnError."""
    from pyspark.sql import functions as sf

    column, kind = sf.col("`" + path[0].replace("`", "``") + "`"), schema.field(path[0]).type
    for at, name in enumerate(path[1:], 1):
        names = [field.name for field in kind] if pa.types.is_struct(kind) else []
        if names.count(name) != 1:
            raise unknown_column(join_path(path), [join_path((*path[:at], other)) for other in names])
        column, kind = column.getField(name), kind.field(name).type
    return column

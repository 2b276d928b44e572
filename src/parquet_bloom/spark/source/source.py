"""A data source for Spark that skips row groups by any filter this package reads.

    spark.dataSource.register(ParquetBloomSource)
    spark.read.format("parquet_bloom").option("where", "id = 5 OR name = 'a'").load("s3a://bucket/events")
    spark.read.format("parquet_bloom").option("where", "id = 5").load("delta:s3://bucket/lake/events")

The driver reads one footer and lists little (units.py); each task lists, asks and reads its own files (rows.py). Of a
table the driver reads the log, and a partition is files with their deletes. Spark gives Python data sources no list of
the columns that a query needs, so `columns` says it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from parquet_bloom.errors import DamagedFileError, RequestError
from parquet_bloom.keys.coverage import coverage_of
from parquet_bloom.keys.index import open_key_index
from parquet_bloom.options import TableOptions
from parquet_bloom.predicates.rows import row_filter
from parquet_bloom.predicates.tree import And, Predicate
from parquet_bloom.search.index import key_index
from parquet_bloom.search.search import as_predicate
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.source.source import CallSource, resolved_files
from parquet_bloom.spark.failures import in_one_line, short
from parquet_bloom.spark.frames import try_workers
from parquet_bloom.spark.listing import tables_around
from parquet_bloom.spark.sessions import adopt_python, is_own, own_python
from parquet_bloom.spark.source.rows import FileReader, Query, TableScan, columns_of, plan_table, table_types
from parquet_bloom.spark.source.types import InferredSchema, arrow_schema, infer_schema, spark_schema
from parquet_bloom.spark.source.units import Share, Unit, files_of, plan, refusal
from parquet_bloom.spark.storages import Storages, every_storage
from parquet_bloom.spark.work import source_on_spark
from parquet_bloom.storage.display import without_secret

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
    """

    predicate: Predicate
    columns: tuple[str, ...] | None
    partitions: int | None
    index: str | None

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
        tables = refusal(self.raw_files)
        if tables is not None:
            tables_around(self.names, self.where, tables)

    def types(self, columns: Sequence[str] | None) -> InferredSchema:
        """The types of columns (None: all); of others perhaps too. Raises as infer_schema."""
        return infer_schema(self.names, self.where, columns, self.merge, self.raw_files)

    def plan(self, query: Query) -> FileScan:
        """Plan a read; files are listed for its partitions. Raises as Query.check, and as search.index.key_index."""
        query.check()
        if query.index is not None:
            key_index(query.index)
        return FileScan(self, query)


@dataclass(frozen=True)
class FileScan:
    """A read of files."""

    request: FileRequest
    query: Query

    @short
    def partitions(self) -> Sequence[InputPartition]:
        """A partition a task, on the driver."""
        one = self.request
        units = plan(one.names, one.where, one.partitions, one.raw_files)
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
        beside = request.types(names).of(names) if names else pa.schema([])
        self._scan = request.plan(Query(rows, beside, request.predicate, index=request.index))

    @short
    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks, on the driver."""
        return self._scan.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task, on an executor."""
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

"""A data source for Spark that skips row groups by any filter this package reads.

    spark.dataSource.register(ParquetBloomSource)
    spark.read.format("parquet_bloom").option("where", "id = 5 OR name = 'a'").load("s3a://bucket/events")
    spark.read.format("parquet_bloom").option("where", "id = 5").load("delta:s3://bucket/lake/events")

The driver reads one footer and lists little (units.py); each task lists, asks and reads its own files
(file_rows.py). Of a table the driver reads the log (table_source.py, table_rows.py). Spark gives Python data
sources no list of the columns that a query needs, so `columns` says it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from parquet_bloom.errors import RequestError
from parquet_bloom.options import TableOptions
from parquet_bloom.predicates.rows import row_filter
from parquet_bloom.predicates.tree import And, Predicate
from parquet_bloom.search.search import as_predicate
from parquet_bloom.spark.failures import in_one_line
from parquet_bloom.spark.frames import try_workers
from parquet_bloom.spark.listing import look_around
from parquet_bloom.spark.named_tables import spark_source
from parquet_bloom.spark.sessions import adopt_python, is_own, own_python
from parquet_bloom.spark.source.file_rows import RowReader
from parquet_bloom.spark.source.table_source import TableRequest, TableScan, columns_of
from parquet_bloom.spark.source.types import arrow_schema, infer_schema, spark_schema
from parquet_bloom.spark.source.units import files_of, plan, refusal
from parquet_bloom.spark.storages import Storages, every_setting
from parquet_bloom.storage.display import without_secret

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
)
_NAMES = "where, columns, mergeSchema, partitions, rawFiles, catalogProperties, allowRoots"


@dataclass(frozen=True)
class FileRequest:
    """What the options of a read say, checked.

    names       files, folders and globs
    predicate   of the option `where`; None: all rows
    columns     None: all
    partitions  None: as many as units.plan finds good
    raw_files   also files of an Iceberg, Delta or Hudi table, dead ones too
    """

    names: tuple[str, ...]
    where: Storages
    predicate: Predicate | None
    columns: tuple[str, ...] | None
    merge: bool
    partitions: int | None
    raw_files: bool

    def refuse_tables(self) -> None:
        """Raise TableFormatError for names that are, or lie in, a table's folder; listings tell those below."""
        tables = refusal(self.raw_files)
        if tables is not None:
            look_around(self.names, self.where, tables)


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
        columns = tuple(_listed(options["columns"]))
    text = options.get("where")
    predicate, partitions = as_predicate(text) if text else None, _count(options, "partitions")
    merge, raw_files = _flag(options, "mergeschema", False), _flag(options, "rawfiles", False)
    roots = _texts(options.get("allowroots"), "allowRoots")
    of_table: TableOptions = {"catalog_properties": _properties(options.get("catalogproperties")), "allow_roots": roots}
    source = spark_source(names, of_table)
    if source.table_name is not None:
        if merge or raw_files:
            raise RequestError(f"{without_secret(names[0])} is a table: mergeSchema and rawFiles are for files")
        return TableRequest(source, predicate, columns, partitions)
    return FileRequest(tuple(map(where.absolute, names)), where, predicate, columns, merge, partitions, raw_files)


def _properties(text: str | None) -> dict[str, str] | None:
    """The properties of a table's catalog: a JSON object of texts."""
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise RequestError('catalogProperties is a JSON object of texts, such as {"uri": "sqlite:///catalog.db"}')
    return found


def _texts(text: str | None, option: str) -> list[str]:
    """One text, or a JSON list of texts."""
    try:
        found = [] if text is None else json.loads(text) if text.lstrip().startswith("[") else [text]
    except ValueError:
        found = [None]
    if not all(isinstance(one, str) for one in found):
        raise RequestError(f'{option} is a text or a JSON list of texts, such as ["/lake/a", "/lake/b"]')
    return list(found)


def _listed(text: str) -> list[str]:
    """Names with commas between, or a JSON list of names that have commas themselves."""
    try:
        names = json.loads(text) if text.lstrip().startswith("[") else [name.strip() for name in text.split(",")]
    except ValueError:
        names = []
    if not names or len(set(map(str, names))) != len(names) or not all(isinstance(n, str) and n for n in names):
        raise RequestError(f"columns {text}: give each name once, with commas between")
    return names


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise RequestError(f"{name} is true or false, not {text}")
    return text == "true"


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is not None and not (text.isascii() and text.isdigit() and 0 < int(text) <= 1_000_000):
        raise RequestError(f"{name} is a number of tasks, not {text}")
    return None if text is None else int(text)


class ParquetBloomSource(DataSource):
    """Spark's format "parquet_bloom"; docs/spark.md has its options."""

    settings: ClassVar[Mapping[str, str]] = {}
    default: ClassVar[str] = "file:///"

    @classmethod
    def name(cls) -> str:
        """The name for `spark.read.format`. Spark asks for it right before it takes this class to its workers."""
        adopt_python()
        return _NAME

    def schema(self) -> StructType:
        """Of the first file, or of all with mergeSchema; partition columns behind. Of a table its own."""
        request = self._request()
        if isinstance(request, TableRequest):
            return request.schema()
        asked = [] if request.predicate is None else columns_of(request.predicate)
        wanted = None if request.columns is None else [*request.columns, *asked]
        request.refuse_tables()
        found = infer_schema(request.names, request.where, wanted, request.merge, request.raw_files)
        if request.predicate is not None:
            row_filter(request.predicate, found.of(asked), nan="largest")
        return spark_schema(found.of(request.columns))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a query. Raises TableFormatError for folders of tables."""
        request = self._request()
        _check_names(request, schema)
        if isinstance(request, TableRequest):
            return TableScan(request, schema)
        request.refuse_tables()
        return Reader(request, schema)

    def _request(self) -> FileRequest | TableRequest:
        return request_of(dict(self.options), self.settings, self.default)


def _check_names(request: FileRequest | TableRequest, schema: StructType) -> None:
    if request.columns is not None and list(request.columns) != schema.names:
        raise RequestError("a schema was given, so leave the option columns out: the schema names the columns")


def register(spark: Any) -> None:
    """Register the format, with the session's Hadoop settings for its storages.

    The settings of s3a, abfss and gs are those of this moment. They travel with the format to where
    plans are made, which knows no session.

    Raises SparkJobError where the Python that plans reads, or the one of an executor on another machine, lacks
    this package: later Spark would print a traceback.
    """
    settings, default = every_setting(spark)
    source = type("SessionSource", (ParquetBloomSource,), {"settings": settings, "default": default})
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


class Reader(DataSourceReader):
    """Reads the rows of `where`. Takes none of the filters that Spark pushes.

    Spark 4.3 plans a read once for all that one load() gave, so that one query would get another's filters.
    Source: PythonDataSourceV2.setReadInfo, PythonScanBuilder.pushFilters.
    """

    def __init__(self, request: FileRequest, schema: StructType) -> None:
        self.request = request
        self.schema = arrow_schema(schema)
        self.beside = pa.schema([])
        if request.predicate is not None:
            self.beside = self._types_beside(request.predicate)

    def _types_beside(self, predicate: Predicate) -> pa.Schema:
        """The columns that only `where` names, by their types; checks it against the rows, before any task."""
        names = [name for name in columns_of(predicate) if name not in self.schema.names]
        beside = pa.schema([])
        if names:
            request = self.request
            inferred = infer_schema(request.names, request.where, names, request.merge, request.raw_files)
            beside = inferred.of(names)
        row_filter(predicate, pa.schema([*self.schema, *beside]), nan="largest")
        return beside

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks, on the driver."""
        return plan(self.request.names, self.request.where, self.request.partitions, self.request.raw_files)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task, on an executor."""
        reading = RowReader(self.schema, self.beside, self.request.predicate or And(()))
        for found, part, parts in files_of(partition, self.request.where, self.request.raw_files):
            yield from reading.rows(found, part, parts)

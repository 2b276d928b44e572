"""The work of a job: files that executors list, or a table's snapshot whose files the driver sends.

    names -> FilesWork   listed by tasks: path, root       the first file's columns, the folders' keys
          -> TableWork   the log, read by the driver: path, a file's bytes    the table's columns
    both  -> rows of files -> a task's SentFiles, which belong to one Snapshot: what functions of one machine take

A predicate is held against the columns once, on the driver, and a table's log answers it there. Executors read no log,
and need no library of a table's format.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from operator import itemgetter
from typing import Any, cast

import pyarrow as pa

from parquet_bloom.errors import FileError, ParquetBloomError, RequestError, UnknownColumnError, first_line
from parquet_bloom.format.schema import Leaf, choose_leaves
from parquet_bloom.keys.coverage import Coverage, coverage_of
from parquet_bloom.keys.index import open_key_index
from parquet_bloom.options import ReadOptions, TableOptions
from parquet_bloom.predicates.bind import Schema, bind, unknown_names
from parquet_bloom.predicates.outcomes import ANY
from parquet_bloom.predicates.tree import Predicate, leaves_of
from parquet_bloom.search.check import ExcludedFile, excluded_file
from parquet_bloom.search.log import FileResult
from parquet_bloom.search.options import DatasetSchema, Options
from parquet_bloom.search.question import key_index
from parquet_bloom.search.search import Search
from parquet_bloom.source import columns
from parquet_bloom.source.snapshot import Snapshot, TableFile
from parquet_bloom.source.source import CallSource, ResolvedSource, resolved_files, source_of
from parquet_bloom.source.view import names_of
from parquet_bloom.spark.failures import raising_ours
from parquet_bloom.spark.frames import Row, frame_of, mapped_rows, try_workers
from parquet_bloom.spark.listing import (
    FAILED,
    FILE,
    Listing,
    find_tables,
    folders_of,
    gathered,
    list_files,
    not_listed,
    pseudo_leaves,
    refuse_unlisted,
    shape_of,
)
from parquet_bloom.spark.storages import Storages, storages
from parquet_bloom.storage.display import without_secret
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.table_folders import Tables

# --- work -----------------------------------------------------------------------------------------
#
# Files and tables alike: a Work has rows of its files, an opener that turns them into files on executors, and holds
# names and predicates against columns.

_LOOKED_UP = 1000  # files that are sought in an index at a time
_TRIED = 16  # files, the first by their names, or in the order of the log, until one has a footer


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file, as executors get it.

    outcome      what a predicate may give over its rows, by the log; anything, where there is none
    has_deletes  whether the table has deleted rows of it; these themselves travel where rows are read
    """

    file: TableFile
    outcome: int = ANY
    has_deletes: bool = False

    def __str__(self) -> str:
        return str(self.file)


def source_on_spark(paths: Sequence[str], options: ReadOptions | TableOptions) -> CallSource:
    """The source of a function of Spark. Raises RequestError for a table among several names, or options of tables."""
    source = source_of(list(paths), None, options)
    if source.table_name is None:
        source.access.refuse_files()
    return source


# --- files ----------------------------------------------------------------------------------------
#
# What the files of a listing have in common: columns, and the folders' keys with the types that Spark infers.
#
#    first file by name        columns, as Spark has it without mergeSchema
#    one path for each shape   year=int, city=text   Spark infers the keys' types from these alone
#
# The driver sees one footer's columns and a path for each shape of partition values, whatever the count of files.

Names = Callable[[DatasetSchema], dict[str, UnknownColumnError]]
_TEXT = pa.string()


@dataclass(frozen=True, slots=True)
class ListedFiles:
    """Makes files of the rows of a listing, on executors."""

    where: Storages

    def snapshot(self) -> Snapshot:
        """The snapshot that all files are of, without any."""
        return resolved_files([]).snapshot

    def file(self, row: Row, snapshot: Snapshot) -> SentFile:
        """The file of a row. Raises RequestError for one on a storage that nothing can open."""
        return SentFile(cast(TableFile, data_file(self.where, row["path"], row["root"])))

    def leaves(self, row: Row) -> tuple[Leaf, ...] | None:
        """The columns of the file of a row; None if it has no footer."""
        with suppress(ParquetBloomError), OpenFile(data_file(self.where, row["path"], row["root"])) as source:
            return source.outline().leaves
        return None


@dataclass(frozen=True)
class FilesWork:
    """Files that executors list.

    where   how executors open them
    """

    spark: Any
    listed: Listing
    where: Storages

    @property
    def opener(self) -> ListedFiles:
        """Turns the rows into files, on executors."""
        return ListedFiles(self.where)

    def hold_columns(self, names: Sequence[str]) -> None:
        """Raise UnknownColumnError for a name or pattern that no file has."""
        path, leaves = (self.first if names else None) or ("", ())
        schema = DatasetSchema(leaves, (), path)
        if missing := _unresolved(schema, names):
            self._elsewhere(schema, missing, partial(_unresolved, names=names))

    def plan_search(self, predicate: Predicate, options: Options, index: str | None = None) -> SearchPlan:
        """Hold a predicate against the columns. Raises UnknownColumnError, RequestError; as key_index for an index."""
        if index is not None:
            self._refuse_stale(index)
        schema = self.schema_for(partial(_unresolved_in, predicate=predicate))
        if schema.leaves:
            bind(predicate, Schema(schema.leaves, schema.keys))  # mistakes are errors here, once
        how = replace(options, dataset_schema=schema, ignore_case=True)
        return SearchPlan(self, SentSearch(predicate, how, index), [])

    def _refuse_stale(self, index: str) -> None:
        """Raise StaleIndexError for an index of none of the files. Tasks search until one of them finds a file."""
        key_index(index)  # is one, and can be opened here
        opener = self.opener
        schema = pa.schema([("known", pa.bool_()), ("changed", pa.int64())])

        def known(rows: Iterator[Row]) -> Iterator[Row]:
            opened, snapshot = open_key_index(index), opener.snapshot()
            while some := list(islice(rows, _LOOKED_UP)):
                try:
                    coverage = coverage_of(opened, resolved_files([opener.file(row, snapshot).file for row in some]))
                except FileError:  # a listing is damaged: each search says so, and goes on without it
                    yield {"known": True, "changed": 0}
                    return
                yield {"known": bool(coverage.known), "changed": coverage.changed}
                if coverage.known:
                    return

        with raising_ours():
            found = mapped_rows(self.sound, known, schema)
            if not found.filter("known").isEmpty():
                return
            looked = found.selectExpr("count(1) batches", "coalesce(sum(changed), 0) changed").first()
        if looked["batches"]:
            raise Coverage(open_key_index(index), changed=looked["changed"]).stale()

    @cached_property
    def files(self) -> Any:
        """The rows of the listing, in few partitions."""
        return gathered(self.listed)

    @property
    def sound(self) -> Any:
        """The rows of the files, without what stands for errors and tables."""
        return self.files.filter(self.files.kind == FILE)

    @cached_property
    def first(self) -> tuple[str, tuple[Leaf, ...]] | None:
        """The first file by name that has a footer, and its columns; None if none of the first has."""
        opener = self.opener

        def sound(rows: Iterator[Row]) -> Iterator[Row]:
            for row in rows:
                if (leaves := opener.leaves(row)) is not None:
                    yield {"path": row["path"], "leaves": pickle.dumps(leaves)}
                    return

        schema = pa.schema([("path", _TEXT), ("leaves", pa.binary())])
        row = mapped_rows(self.sound.orderBy("path").limit(_TRIED).coalesce(1), sound, schema).first()
        return None if row is None else (row["path"], pickle.loads(bytes(row["leaves"])))

    @cached_property
    def partition_fields(self) -> list[Any]:
        """The folders' keys as StructFields, with the types that Spark infers. Raises RequestError."""
        from pyspark.errors import PySparkException

        fields: dict[str, Any] = {}
        for root, paths in self._examples().items():
            try:
                # With a schema given Spark opens no file; it still infers the keys that this does not name.
                reader = self.spark.read.schema("`no data` int").option("basePath", root)
                frame = reader.parquet(*map(literal_path, paths))
            except PySparkException as error:
                raise RequestError(f"{root}: Spark finds no partition columns in it: {first_line(error)}") from error
            for field in frame.schema.fields[1:]:
                same = fields.setdefault(field.name, field)
                if same.dataType != field.dataType:
                    types = [f.dataType.simpleString() for f in (field, same)]
                    raise RequestError(
                        f"partition column {field.name} is {types[0]} below {root}, {types[1]} elsewhere; "
                        "use one call for each"
                    )
        return list(fields.values())

    def _examples(self) -> dict[str, list[str]]:
        """For each root whose files lie in key=value folders, a path for each shape of the values."""
        from pyspark.sql import functions as sf

        def shapes(rows: Iterator[Row]) -> Iterator[Row]:
            known: set[tuple[str, str]] = set()
            for row in rows:
                path, root = row["path"], row["root"]
                shape = json.dumps([(key, shape_of(value)) for key, value in folders_of(path[len(root) :])])
                if (root, shape) not in known:
                    known.add((root, shape))
                    yield {"root": root, "shape": shape, "path": path}

        below = sf.expr("substring(path, length(root) + 1)")
        inside = self.sound.select("path", "root").filter((sf.col("root") != "") & below.contains("="))
        if inside.isEmpty():
            return {}
        rows = mapped_rows(inside, shapes, pa.schema([(name, _TEXT) for name in ("root", "shape", "path")]))
        examples: dict[str, list[str]] = {}
        for row in rows.groupBy("root", "shape").agg(sf.min("path").alias("path")).orderBy("path").collect():
            if row["shape"] != "[]":
                examples.setdefault(row["root"], []).append(row["path"])
        return examples

    def schema_for(self, unresolved: Names) -> DatasetSchema:
        """The columns that names may mean: of the first file, and of any other for names that it lacks.

        unresolved  says which names mean nothing among some columns
        Raises UnknownColumnError for a name that no file has, RequestError for keys of two types.
        """
        path, leaves = self.first or ("", ())
        schema = DatasetSchema(leaves, pseudo_leaves(self.partition_fields), path)
        missing = unresolved(schema)
        if missing:
            schema = schema._replace(leaves=schema.leaves + self._elsewhere(schema, missing, unresolved))
        return schema

    def _elsewhere(
        self, first: DatasetSchema, missing: dict[str, UnknownColumnError], unresolved: Names
    ) -> tuple[Leaf, ...]:
        """Columns that files have and the first lacks: of one file for each missing name."""
        opener, keys, names = self.opener, first.keys, set(missing)

        def named(rows: Iterator[Row]) -> Iterator[Row]:
            open = set(names)
            for row in rows:
                if (leaves := opener.leaves(row)) is None:
                    continue
                for name in sorted(open - set(unresolved(DatasetSchema(leaves, keys)))):
                    open.discard(name)
                    yield {"name": name, "leaves": pickle.dumps(leaves)}
                if not open:
                    return

        schema = pa.schema([("name", _TEXT), ("leaves", pa.binary())])
        rows = mapped_rows(self.sound, named, schema).dropDuplicates(["name"]).collect()
        nowhere = sorted(names - {row["name"] for row in rows})
        if nowhere and first.leaves:  # without a file that can be read the rows tell what is wrong
            raise missing[nowhere[0]]
        had = {leaf.path for leaf in first.leaves}
        new: dict[tuple[str, ...], Leaf] = {}
        for leaf in (leaf for row in rows for leaf in pickle.loads(bytes(row["leaves"])) if leaf.path not in had):
            new.setdefault(leaf.path, replace(leaf, index=len(first.leaves) + len(new)))
        return tuple(new.values())


def files_work(spark: Any, paths: Sequence[str], tables: Tables | None) -> FilesWork:
    """List what paths name, by the executors.

    tables  gets those that the files have to do with, and may refuse them; None: nobody looks
    Raises RequestError for names that nothing can open, TableFormatError; StorageError where no name gives a file.
    """
    where = storages(spark, paths)
    paths = [where.absolute(path) for path in paths]
    if tables is not None:
        find_tables(spark, paths, where, tables)
    listed = list_files(spark, paths, where)
    refuse_unlisted([listed], paths)
    if tables is not None:
        tables.join(listed.tables)
    return FilesWork(spark, listed, where)


def files_on_driver(work: FilesWork) -> tuple[list[DataFile], list[Row]]:
    """All files of a listing, by their paths, and their rows, of which `work.opener` makes them on executors.

    Raises StorageError for a name or folder that could not be listed.
    """
    listed = sorted((row.asDict() for row in work.listed.rows.collect()), key=itemgetter("path"))
    for row in listed:
        if row["kind"] == FAILED:
            raise not_listed(row)
    rows = [{"path": row["path"], "root": row["root"]} for row in listed]
    return [work.where.data_file(row["path"], row["root"]) for row in rows], rows


def data_file(where: Storages, path: str, root: str) -> DataFile:
    """A file of a listing, with the partition values that Spark sees in its folders."""
    return replace(where.data_file(path, root), partitions=folders_of(path[len(root) :]) if root else ())


def literal_path(path: str) -> str:
    """A path that Spark does not take for a pattern."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)


# --- tables ---------------------------------------------------------------------------------------
#
# The driver reads the log, and sends to executors what they need of its files.
#
#    Snapshot   -> the same without files, once a job
#    TableFile  -> its place, constants and fields, what the log said to a predicate; where rows are read, its deletes

_SENT = pa.schema([("path", _TEXT), ("size", pa.int64()), ("file", pa.binary())])
_SHARED = "file system"  # stands for the snapshot's, which travels once


@dataclass(frozen=True, slots=True)
class SentFiles:
    """Makes files of the rows that the driver sent, on executors."""

    table: bytes

    def snapshot(self) -> Snapshot:
        """The snapshot that all files are of, without any."""
        return cast(Snapshot, pickle.loads(self.table))

    def file(self, row: Row, snapshot: Snapshot) -> SentFile:
        """The file of a row."""
        return cast(SentFile, receive(row["file"], snapshot))


@dataclass(frozen=True)
class TableWork:
    """A table's files, which the driver sends; `outcomes` of them by the log, after a search."""

    spark: Any
    snapshot: Snapshot
    outcomes: Sequence[int] | None = None

    @cached_property
    def opener(self) -> SentFiles:
        """Turns the rows into files, on executors."""
        return SentFiles(send_table(self.snapshot))

    @cached_property
    def rows(self) -> list[Row]:
        """A row a file, of which `opener` makes it on executors."""
        files = self.snapshot.files
        outcomes = [ANY] * len(files) if self.outcomes is None else self.outcomes
        return [
            {"path": str(file), "size": file.size, "file": send(sent_file(file, outcome), self.snapshot)}
            for file, outcome in zip(files, outcomes, strict=True)
        ]

    @cached_property
    def listed(self) -> Listing:
        """A row a file."""
        rows = [(row["path"], row["size"], bytearray(row["file"])) for row in self.rows]
        try_workers(self.spark)
        return Listing(frame_of(self.spark, rows, _SENT), len(rows), sum(row["size"] for row in self.rows))

    def hold_columns(self, names: Sequence[str]) -> None:
        """Raise UnknownColumnError for a name that neither the table has nor, by itself, its first sound file."""
        missing = _unresolved(DatasetSchema(columns.leaves_of(self.snapshot.fields), ()), names)
        shown = self._first_shown() if missing else None
        still = missing if shown is None else _unresolved(DatasetSchema(shown, ()), missing)
        for error in (missing[name] for name in still):
            raise UnknownColumnError(f"{self.snapshot.table}: " + error.message) from error

    def _first_shown(self) -> tuple[Leaf, ...] | None:
        """The leaves of the first file that has a footer, as people name them; None if none of the first has."""
        for file in self.snapshot.files[:_TRIED]:
            with suppress(ParquetBloomError), OpenFile(file) as source:
                return names_of(self.snapshot).display_leaves(source.footer(), file)
        return None

    def plan_search(self, predicate: Predicate, options: Options, index: str | None = None) -> SearchPlan:
        """Evaluate a predicate over the log, and ask an index. Raises as `by_log`."""
        left, excluded = by_log(self.snapshot, predicate, options, index)
        snapshot = replace(self.snapshot, files=[file for file, _ in left])
        work = TableWork(self.spark, snapshot, [one for _, one in left])
        return SearchPlan(work, SentSearch(predicate, options, index), excluded)


Work = FilesWork | TableWork


@dataclass(frozen=True, slots=True)
class SentSearch:
    """A search, as executors get it.

    index  a key index, which tasks ask about their files
    """

    predicate: Predicate
    options: Options
    index: str | None = None


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """A predicate over some work.

    work      the files in which a row can match, as far as the driver knows
    excluded  the other files
    """

    work: Work
    asked: SentSearch
    excluded: list[ExcludedFile]


def work_of(spark: Any, source: CallSource, tables: Tables | None, stored_only: bool = False) -> Work:
    """Find what a source names. Raises as `files_work`, and of a table as CallSource.resolve."""
    if source.table_name is None:
        return files_work(spark, source.paths, tables)
    return TableWork(spark, source.resolve(stored_only).snapshot)


def by_log(
    snapshot: Snapshot, predicate: Predicate, options: Options, index: str | None = None
) -> tuple[list[tuple[TableFile, int]], list[ExcludedFile]]:
    """Files of a table in which a row can match, each with its outcome by the log; and the others.

    index  a key index, which excludes files too
    Raises as search.search.Search, for what is wrong with the predicate by the table's schema, and as
    search.question.key_index; StaleIndexError for an index of another table, or of other files.
    """
    search = Search(ResolvedSource(snapshot), predicate, options, index=None if index is None else key_index(index))
    search.ask_log()
    search.ask_index()
    left, excluded = [], []
    for file in snapshot.files:
        why = search.exclusion(file)
        if why is None:
            left.append((file, search.log.outcome(file)))
        elif (one := excluded_file(FileResult(file, excluded=why))) is not None:
            excluded.append(one)
    return left, excluded


def sent_file(file: TableFile, outcome: int, deletes: bool = False) -> SentFile:
    """A file without its log, as executors need it; with `deletes`, the deletes too."""
    own = replace(
        file,
        shown=str(file),
        opened=[],
        constants=dict(file.constants),
        bounds={},
        buckets=(),
        entry=None,
        deletes=file.deletes if deletes else None,
    )
    return SentFile(own, outcome, file.deletes is not None)


def send_table(snapshot: Snapshot) -> bytes:
    """A snapshot without its files. Raises RequestError for a file system that cannot be sent."""
    return sendable(replace(snapshot, files=[], filter_settings={}), snapshot.table)


def send(part: Any, snapshot: Snapshot) -> bytes:
    """Something that names files of a snapshot, without its file system. Raises RequestError as send_table."""
    return sendable(part, snapshot.table, snapshot.filesystem)


def receive(data: bytes, table: Snapshot) -> Any:
    """The value of a pickle of `send`, on the snapshot's file system."""
    return _Receiver(io.BytesIO(data), table.filesystem).load()


def sendable(value: Any, table: str, shared: Any = None) -> bytes:
    """A pickle with absolute paths, and without the file system that is `shared`. Raises RequestError as send_table."""
    out = io.BytesIO()
    try:
        _Sender(out, shared).dump(value)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        what = "what executors need of it cannot be sent to them, such as a file system that is only of this process"
        raise RequestError(f"{without_secret(table)}: {what} ({reason}); leave Spark out") from error
    return out.getvalue()


class _Sender(pickle.Pickler):
    def __init__(self, out: io.BytesIO, filesystem: Any) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        self._filesystem = filesystem

    def persistent_id(self, value: Any) -> str | None:
        return _SHARED if self._filesystem is not None and value is self._filesystem else None

    def reducer_override(self, value: Any) -> Any:
        """Local places get absolute paths, wherever they stand in what is sent."""
        if isinstance(value, Location) and value.is_local and not os.path.isabs(value.path):
            return replace(value, path=os.path.abspath(value.path)).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return NotImplemented


class _Receiver(pickle.Unpickler):
    def __init__(self, data: io.BytesIO, filesystem: Any) -> None:
        super().__init__(data)
        self._filesystem = filesystem

    def persistent_load(self, name: str) -> Any:
        return self._filesystem


# --- names ----------------------------------------------------------------------------------------
#
# Which names mean nothing among some columns: of a predicate, or names and patterns.


def _unresolved_in(known: DatasetSchema, predicate: Predicate) -> dict[str, UnknownColumnError]:
    schema = Schema(known.leaves, known.keys)
    return {name: error for part in leaves_of(predicate) for name, error in unknown_names(part, schema).items()}


def hold_columns(rows: Iterable[Row], opener: ListedFiles, names: Sequence[str]) -> None:
    """As FilesWork.hold_columns, for few files, on the driver."""
    missing: dict[str, UnknownColumnError] = {}
    for row in rows:
        if (leaves := opener.leaves(row)) is not None:
            here = _unresolved(DatasetSchema(leaves, ()), missing or names)
            missing = {name: missing.get(name, error) for name, error in here.items()}
            if not missing:
                return
    for error in missing.values():
        raise error


def _unresolved(known: DatasetSchema, names: Iterable[str]) -> dict[str, UnknownColumnError]:
    missing = {}
    for name in names:
        try:
            choose_leaves(known.leaves, [name])
        except UnknownColumnError as error:
            missing[name] = error
    return missing

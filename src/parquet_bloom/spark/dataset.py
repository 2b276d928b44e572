"""What the files of a listing have in common: columns, and the folders' keys with the types that Spark infers.

    first file by name        columns, as Spark has it without mergeSchema
    one path for each shape   year=int, city=text   Spark infers the keys' types from these alone

A predicate's names are held against this once, on the driver; it sees one footer's columns and a
path for each shape of partition values, whatever the count of files.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from parquet_bloom.errors import ParquetBloomError, RequestError, UnknownColumnError, first_line
from parquet_bloom.format.schema import BYTE_ARRAY, INT32, INT64, Leaf, choose_leaves
from parquet_bloom.predicates.bind import Schema, unknown_names
from parquet_bloom.predicates.tree import Predicate, leaves_of
from parquet_bloom.search.options import DatasetSchema
from parquet_bloom.spark.frames import frame_of, kept, mapped, parallelism, width
from parquet_bloom.spark.listing import FILE, FewFiles, Listing, find_tables, list_files
from parquet_bloom.spark.storages import Storages, storages
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import HIVE_NULL, DataFile, Partitions
from parquet_bloom.storage.table_folders import Tables

# --- packing --------------------------------------------------------------------------------------
#
# Files -> tasks of about the same work: a bound for the bytes of a task, and one for its files.
#
# Up to 100,000 are sorted by size and dealt out. Of longer listings no task looks at all:
#
#    listing partition 0   [f f f][f f][f         bins, filled one after the other as files stream by
#    listing partition 1   [f f f][f              the last bin of each partition may be nearly empty:
#    tasks                 0 .. 2, and 3 = both of these together
#
# What the driver sees is a row of numbers for each partition of the listing, whatever the count of files.

TASK_BYTES = 4 << 30  # of files whose columns are decoded
TASK_FILES = 1000
_AT_ONCE = 100_000  # files that one task may share out
_OPENING = 8 << 20  # bytes that take as long as opening and committing a file: 12 ms, and 1.4 ms for a MiB
_WORTH_A_TASK = 256 << 20  # starting one takes as long as 40 MiB
_LISTED_FILES = 10_000  # that a partition of a listing is worth having for
_BIN, _LISTED = "_bin", "_listed"
Full = tuple[int, int, int, int]


def packed(listed: Listing, spark: Any, task_bytes: int = TASK_BYTES, task_files: int = TASK_FILES) -> Any:
    """Repartition a listing so that a partition is the files of one task; the same columns.

    task_bytes  a task gets files of about so many bytes at most, or one file alone
    task_files  and about so many files, those of no size too

    Small work is spread over the processors. AQE leaves the tasks as they are.
    """
    if task_bytes < 1 or task_files < 1:
        raise RequestError("a task needs room for at least one byte and one file")
    if listed.files <= _AT_ONCE:
        return _shared_out(listed.rows, _task_count(listed, parallelism(spark), task_bytes, task_files))
    return _in_bins(listed, spark, task_bytes, task_files)


def dealt(files: FewFiles, processors: int, task_bytes: int) -> list[list[dict[str, Any]]]:
    """The same of few files, on the driver: of each task its own."""
    listed = Listing(None, len(files.rows), files.size)
    n = _task_count(listed, processors, task_bytes, TASK_FILES)
    tasks: list[list[dict[str, Any]]] = [[] for _ in range(n)]
    for i, row in enumerate(sorted(files.rows, key=lambda row: (-row["size"], row["path"]))):
        at = i % (2 * n)
        tasks[min(at, 2 * n - 1 - at)].append(row)
    return tasks


def by_name(listed: Listing, spark: Any, task_files: int = 2 * TASK_FILES) -> Any:
    """Repartition a listing for work that takes about the same time for each file; the same columns.

    A file's task depends on its name alone. Should Spark lose its copy of a listing with an executor, and
    list again while sizes change, no file is left out: what prunes files must not.
    """
    n = _task_count(replace(listed, size=0), parallelism(spark), 1, task_files)
    return listed.rows.repartition(n, "path")


def _task_count(listed: Listing, processors: int, task_bytes: int, task_files: int) -> int:
    """Tasks within both bounds; some for each processor, if there is work for them."""
    worthwhile = min(4 * processors, (listed.size + listed.files * _OPENING) // _WORTH_A_TASK)
    n = max(-(-listed.size // task_bytes), -(-listed.files // task_files), worthwhile, 1)
    return max(1, min(-(-n // processors) * processors, listed.files))


def _shared_out(frame: Any, n_tasks: int) -> Any:
    """Files by their sizes, dealt to tasks 0 .. n-1, n-1 .. 0, 0 .. and so on.

    Tasks differ by at most one file, and by at most the bytes of the largest. All of it is a stage of
    the job that follows, in Spark itself.
    """
    ordered = frame.coalesce(1).sortWithinPartitions(["size", "path"], ascending=[False, True])
    at = f"monotonically_increasing_id() % {2 * n_tasks}"  # 0, 1, ... in the one partition
    dealt = ordered.selectExpr("*", f"cast(least({at}, {2 * n_tasks - 1} - {at}) as int) _task")
    return dealt.repartitionById(n_tasks, "_task").drop("_task")


def _in_bins(listed: Listing, spark: Any, task_bytes: int, task_files: int) -> Any:
    """Its rows with their tasks stay in Spark's cache."""
    from pyspark.sql import functions as sf

    frame = gathered(listed)
    names = frame.columns
    tasks = width(spark)
    task_bytes = max(1, min(task_bytes, -(-listed.size // tasks)))
    task_files = max(1, min(task_files, -(-listed.files // tasks)))

    binned = frame.withColumn(_LISTED, sf.spark_partition_id())
    kind = binned.withColumn(_BIN, sf.lit(0).cast("bigint")).schema
    binned = kept(mapped(binned, _binning(task_bytes, task_files), kind))
    # Of each partition: how many bins, and what the last one holds.
    last = sf.struct(_BIN, "bytes", "files")
    rows = (
        binned.groupBy(_LISTED, _BIN)
        .agg(sf.sum("size").alias("bytes"), sf.count(sf.lit(1)).alias("files"))
        .groupBy(_LISTED)
        .agg(sf.max(last).alias("last"))
        .orderBy(_LISTED)
        .collect()
    )
    known = [(int(r[0]), int(r[1][0]), int(r[1][1] or 0), int(r[1][2])) for r in rows]
    starts, n = numbered(known, task_bytes, task_files)
    if not starts:
        return frame
    plan = frame_of(spark, starts, f"{_LISTED} int, _full bigint, _start bigint, _rest bigint")
    task = sf.when(sf.col(_BIN) < sf.col("_full"), sf.col("_start") + sf.col(_BIN)).otherwise(sf.col("_rest"))
    placed = binned.join(sf.broadcast(plan), _LISTED, "left").withColumn("_task", task.cast("int"))
    return placed.repartitionById(n, "_task").select(*names)


def gathered(listed: Listing) -> Any:
    """Its rows without many partitions of next to nothing, each of which would start a Python process."""
    return listed.rows.coalesce(max(1, listed.files // _LISTED_FILES))


def numbered(parts: Iterable[Full], task_bytes: int, task_files: int) -> tuple[list[Full], int]:
    """Number the tasks without gaps.

    parts    (partition, its full bins, bytes and files of its last bin)
    returns  (partition, its full bins, task of its first bin, task of its last bin), and how many tasks
    """
    rest: list[tuple[int, int]] = []  # bytes and files of tasks made of last bins
    placed = []
    start = 0
    for part, full, size, files in parts:
        # The open task with the least in it is the last one or none: as with files, none is looked at twice.
        if not rest or rest[-1][0] + size > task_bytes or rest[-1][1] + files > task_files:
            rest.append((0, 0))
        rest[-1] = (rest[-1][0] + size, rest[-1][1] + files)
        placed.append((part, full, start, len(rest) - 1))
        start += full
    return [(part, full, first, start + last) for part, full, first, last in placed], start + len(rest)


def _binning(task_bytes: int, task_files: int) -> Any:
    """Give every file of a partition its bin, in the order in which they come (next-fit)."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        at, held, files = 0, 0, 0
        for batch in batches:
            bins = []
            for size in batch.column(batch.schema.get_field_index("size")).to_pylist():
                size = max(size or 0, 0)
                if files and (held + size > task_bytes or files == task_files):
                    at, held, files = at + 1, 0, 0
                held += size
                files += 1
                bins.append(at)
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, pa.array(bins, pa.int64())], names=[*batch.schema.names, _BIN]
            )

    return run


# --- dataset --------------------------------------------------------------------------------------

Names = Callable[[DatasetSchema], dict[str, UnknownColumnError]]
_TRIED = 16  # files, the first by their names, until one has a footer


@dataclass(frozen=True)
class Dataset:
    """Files of a call.

    listed  what paths name
    where   how executors open it
    """

    spark: Any
    listed: Listing
    where: Storages

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
        where = self.where

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for row in (row for batch in batches for row in batch.to_pylist()):
                try:
                    with OpenFile(data_file(where, row["path"], row["root"])) as source:
                        leaves = source.outline().leaves
                except ParquetBloomError:
                    continue
                yield pa.RecordBatch.from_pydict({"path": [row["path"]], "leaves": [pickle.dumps(leaves)]})
                return

        rows = mapped(self.sound.orderBy("path").limit(_TRIED).coalesce(1), run, "path string, leaves binary")
        row = rows.first()
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

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            known: dict[tuple[str, str], str] = {}
            for row in (row for batch in batches for row in batch.to_pylist()):
                path, root = row["path"], row["root"]
                shape = json.dumps([(key, shape_of(value)) for key, value in folders_of(path[len(root) :])])
                known.setdefault((root, shape), path)
            roots, shapes, paths = [k[0] for k in known], [k[1] for k in known], list(known.values())
            texts = [pa.array(texts, pa.string()) for texts in (roots, shapes, paths)]
            yield pa.RecordBatch.from_arrays(texts, names=["root", "shape", "path"])

        below = sf.expr("substring(path, length(root) + 1)")
        inside = self.sound.select("path", "root").filter((sf.col("root") != "") & below.contains("="))
        if inside.isEmpty():
            return {}
        rows = mapped(inside, run, "root string, shape string, path string")
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
        first = self.first
        path, leaves = first if first is not None else ("", ())
        schema = DatasetSchema(leaves, pseudo_leaves(self.partition_fields), path)
        missing = unresolved(schema)
        if missing:
            schema = replace(schema, leaves=schema.leaves + self._elsewhere(schema, missing, unresolved))
        return schema

    def _elsewhere(
        self, first: DatasetSchema, missing: dict[str, UnknownColumnError], unresolved: Names
    ) -> tuple[Leaf, ...]:
        """Columns that files have and the first lacks: of one file for each missing name."""
        where, keys, names = self.where, first.keys, set(missing)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            open = set(names)
            for row in (row for batch in batches for row in batch.to_pylist()):
                try:
                    with OpenFile(data_file(where, row["path"], row["root"])) as source:
                        here = DatasetSchema(source.outline().leaves, keys)
                except ParquetBloomError:
                    continue
                for name in sorted(open - set(unresolved(here))):
                    open.discard(name)
                    yield pa.RecordBatch.from_pydict({"name": [name], "leaves": [pickle.dumps(here.leaves)]})
                if not open:
                    return

        rows = mapped(self.sound, run, "name string, leaves binary").dropDuplicates(["name"]).collect()
        nowhere = sorted(names - {row["name"] for row in rows})
        if nowhere and first.leaves:  # without a file that can be read the rows tell what is wrong
            raise missing[nowhere[0]]
        had = {leaf.path for leaf in first.leaves}
        added: dict[tuple[str, ...], Leaf] = {}
        for row in rows:
            for leaf in pickle.loads(bytes(row["leaves"])):
                if leaf.path not in had:
                    added.setdefault(leaf.path, leaf)
        return tuple(replace(leaf, index=len(first.leaves) + at) for at, leaf in enumerate(added.values()))


def dataset(spark: Any, paths: Sequence[str], tables: Tables | None) -> Dataset:
    """List what paths name, by the executors.

    tables  gets those that the files have to do with, and may refuse them; None: nobody looks
    Raises RequestError for names that nothing can open, TableFormatError.
    """
    where = storages(spark, paths)
    paths = [where.absolute(path) for path in paths]
    if tables is not None:
        find_tables(spark, paths, where, tables)
    listed = list_files(spark, paths, where)
    if tables is not None:
        tables.join(listed.tables)
    return Dataset(spark, listed, where)


def data_file(where: Storages, path: str, root: str) -> DataFile:
    """A file of a listing, with the partition values that Spark sees in its folders."""
    return replace(where.data_file(path, root), partitions=folders_of(path[len(root) :]) if root else ())


def literal_path(path: str) -> str:
    """A path that Spark does not take for a pattern."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)


# --- names ----------------------------------------------------------------------------------------


def unresolved_in(predicate: Predicate) -> Names:
    """Which names of a predicate mean nothing among some columns."""
    parts = list(leaves_of(predicate))

    def unresolved(known: DatasetSchema) -> dict[str, UnknownColumnError]:
        schema = Schema(known.leaves, known.keys)
        return {name: error for part in parts for name, error in unknown_names(part, schema).items()}

    return unresolved


def unresolved_of(columns: Iterable[str]) -> Names:
    """Which names or patterns fit no column."""
    names = list(columns)

    def unresolved(known: DatasetSchema) -> dict[str, UnknownColumnError]:
        missing = {}
        for name in names:
            try:
                choose_leaves(known.leaves, [name])
            except UnknownColumnError as error:
                missing[name] = error
        return missing

    return unresolved


# --- folders --------------------------------------------------------------------------------------


def folders_of(below: str) -> Partitions:
    """The key=value folders of a path below its root, as Spark reads them: outermost first.

    They are looked at from the file upwards, until one is none after some were; `%3D` is one
    character for each code (Source: PartitioningUtils.parsePartition, unescapePathName).
    """
    pairs: list[tuple[str, str | None]] = []
    for folder in reversed(below.strip("/").split("/")[:-1]):
        key, sign, value = folder.partition("=")
        if key and sign:
            pairs.append((_unescaped(key), None if value == HIVE_NULL else _unescaped(value)))
        elif pairs:
            break
    return tuple(reversed(pairs))


def _unescaped(text: str) -> str:
    return re.sub("%([0-9A-Fa-f]{2})", lambda code: chr(int(code[1], 16)), text)


_DOUBLE = re.compile(
    r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?|0[xX][0-9a-fA-F.]+[pP].*)"
)


def shape_of(value: str | None) -> str:
    """Values of one shape have one type for Spark, and few shapes there are."""
    if value is None:
        return "null"
    text = value.strip()
    if re.fullmatch("[+-]?[0-9]+", value):
        bits = next((bits for bits in (32, 64) if -(1 << bits - 1) <= int(value) < 1 << bits - 1), 0)
        return f"int{bits}" if bits else f"{len(value.lstrip('+-0'))} digits"
    if _DOUBLE.fullmatch(text):
        return "double"
    if re.match("[0-9]+[-:]", text):  # dates and times, and what only looks like one
        import datetime as dt

        try:
            dt.datetime.fromisoformat(text)
            return "time " + re.sub("[0-9]", "9", text)
        except ValueError:
            return "like a time " + re.sub("[0-9]+", "9", text)[:20]
    return "text"


_PHYSICAL = {"int": (INT32, None), "bigint": (INT64, None), "string": (BYTE_ARRAY, "STRING"), "date": (INT32, "DATE")}


def pseudo_leaves(fields: Iterable[Any]) -> tuple[Leaf, ...]:
    """Keys as columns, index -1, -2, ...; those of other types than these are known by name and NULL only."""
    leaves = []
    for at, field in enumerate(fields, 1):
        physical, logical = _PHYSICAL.get(field.dataType.simpleString(), (BYTE_ARRAY, "?"))
        leaves.append(Leaf(-at, (field.name,), physical, logical=logical))
    return tuple(leaves)

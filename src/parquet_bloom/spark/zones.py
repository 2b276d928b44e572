"""build_zone_index on Spark: zones of every file are made by many tasks, and joined by one.

An index names every file it is of, so their list is made on the driver, and is linear. Zones travel
as rows to the one task that writes them, in the order of the files, and so does what the index keeps of each file:
only who decodes a file knows of which bytes its zones are.
"""

from __future__ import annotations

import functools
import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from parquet_bloom.errors import RequestError
from parquet_bloom.format import lance as form
from parquet_bloom.options import PathLike, ReadOptions, refuse_unknown
from parquet_bloom.predicates.outcomes import ANY
from parquet_bloom.source.snapshot import TableFile
from parquet_bloom.source.source import CallSource
from parquet_bloom.spark.failures import explained
from parquet_bloom.spark.frames import Row, computed, frame_of, mapped_rows, small_batches, width
from parquet_bloom.spark.storages import local_folder, paths_of
from parquet_bloom.spark.work import files_on_driver, files_work, sendable, sent_file, source_on_spark
from parquet_bloom.storage.table_folders import read_guard
from parquet_bloom.zones.build import ZoneBatch, index_columns, write_indexes, zone_batches_of
from parquet_bloom.zones.sources import Data, ParquetFragment, is_lance, open_data

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PIECE = pa.schema(
    [
        ("fragment", pa.int64()),
        ("place", pa.int64()),
        ("column", pa.int32()),
        ("data", pa.binary()),
        ("nulls", pa.binary()),
        ("identity", pa.string()),
    ]
)
_BUILT = pa.schema(
    [
        ("path", pa.string()),
        ("column", pa.string()),
        ("type", pa.string()),
        ("zones", pa.int64()),
        ("bytes", pa.int64()),
    ]
)


@explained
def build_zone_index(
    spark: Any,
    paths: PathLike | Sequence[PathLike],
    columns: str | Sequence[str],
    output: PathLike,
    *,
    items: int = 8192,
    probability: float = 0.00057,
    overwrite: bool = False,
    sync: bool = True,
    **options: Unpack[ReadOptions],
) -> DataFrame:
    """Build a zone index over each column of Parquet files. Runs at once.

    paths    a file, folder or glob, or a list, as Spark names them; or one table, delta:, iceberg: or ducklake:, whose
             live files are indexed
    columns  one name or pattern, or a list
    output   a folder that the executors share with whoever will read the index; local in local mode
    items, probability, overwrite, sync, options  as parquet_bloom.lance.build_index has them
    returns  DataFrame(path, column, type, zones, bytes), cached, a row an index

    Raises as build_index; RequestError for Lance data sets, which build_index is for.
    """
    refuse_unknown("build_zone_index", options, ReadOptions)
    paths, columns = paths_of(paths), index_columns(columns)
    for path in paths:
        if is_lance(path):
            raise RequestError(
                f"{path} is a Lance data set; build its index with parquet-bloom index build --kind lance"
            )
    parameters = form.Parameters(items, probability)
    source = source_on_spark(paths, options)
    folder = local_folder(spark, output)
    data = _sendable(open_data(_found(spark, source), columns), source)
    rows = [(fragment.number, pickle.dumps(fragment)) for fragment in data.fragments]
    work = frame_of(spark, rows, "fragment bigint, pickled binary")
    work = work.repartition(min(len(rows), max(1, 16 * width(spark))))
    pieces = mapped_rows(work, functools.partial(_make, columns=data.columns, parameters=parameters), _PIECE)
    joined = pieces.repartition(1).sortWithinPartitions("fragment", "place")
    write = functools.partial(_join, data=data, parameters=parameters, output=folder, overwrite=overwrite, sync=sync)
    with small_batches(spark):
        return computed(mapped_rows(joined, write, _BUILT))[0]


def _found(spark: Any, source: CallSource) -> CallSource:
    """The files of an index, on the driver; tasks list them."""
    if source.table_name is not None:
        return source
    return CallSource(files_on_driver(files_work(spark, source.paths, read_guard(source.raw_files)))[0])


def _sendable(data: Data, source: CallSource) -> Data:
    """The same, as executors can reach it."""
    fragments = []
    for fragment in data.fragments:
        assert isinstance(fragment, ParquetFragment)
        if isinstance(file := fragment.data_file, TableFile):
            fragment = pickle.loads(sendable(replace(fragment, data_file=sent_file(file, ANY).file), source.paths[0]))
        fragments.append(fragment)
    return replace(data, fragments=fragments)


def _make(rows: Iterator[Row], columns: Any, parameters: form.Parameters) -> Iterator[Row]:
    for row in rows:
        for place, piece in enumerate(zone_batches_of(pickle.loads(row["pickled"]), columns, parameters)):
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, piece.zones.schema) as writer:
                writer.write_batch(piece.zones)
            yield {
                "fragment": piece.fragment,
                "place": place,
                "column": piece.column,
                "data": out.getvalue().to_pybytes(),
                "nulls": piece.nulls,
                "identity": None if piece.identity is None else json.dumps(piece.identity),
            }


def _join(
    rows: Iterator[Row], data: Data, parameters: form.Parameters, output: str, overwrite: bool, sync: bool
) -> Iterator[Row]:
    def pieces() -> Iterator[ZoneBatch]:
        for row in rows:
            identity = None if row["identity"] is None else json.loads(row["identity"])
            for zones in pa.ipc.open_stream(row["data"]):
                yield ZoneBatch(row["column"], row["fragment"], zones, row["nulls"], identity)

    for one in write_indexes(data, parameters, pieces(), output, overwrite, sync):
        yield {name: getattr(one, name) for name in _BUILT.names}

"""A door for Polars: a LazyFrame that queries filters before it reads.

    LazyFrame -> Polars pushes down predicate, columns, limit -> row groups by bounds and filters
                                                              -> their rows, which Polars' own expression filters

Polars' own scan_parquet looks at bounds, never at filters.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from parquet_bloom.errors import RequestError
from parquet_bloom.format.schema import INT32, Leaf
from parquet_bloom.predicates.polars_expressions import from_polars
from parquet_bloom.predicates.tree import Predicate
from parquet_bloom.read import Index, Sources, scan_of
from parquet_bloom.search.options import SearchOptions
from parquet_bloom.search.scan import Scan

if TYPE_CHECKING:
    import polars as pl

logger = logging.getLogger("parquet_bloom")
_BATCH_ROWS = 1 << 17
_NEEDS = "scan_polars needs Polars 2.0 or later (pip install 'polars>=2')"


def scan_polars(
    source: Sources, filesystem: Any = None, *, index: Index = None, **options: Unpack[SearchOptions]
) -> pl.LazyFrame:
    """Give a Polars LazyFrame over files whose filters answer the predicates that Polars pushes down.

    source      a file, a folder (with Hive-style folders in it), a glob, a URI, or a list of them; or one table, as
                read_table has it
    filesystem  any pyarrow or fsspec file system; source then names files on it
    index       as read_table has it
    options     see SearchOptions; `nan` stays "largest", as Polars compares

    The rows are those of polars.scan_parquet over the same files, whatever the predicate: Polars filters them. A part
    of it that is not understood chooses no row groups. The files are found when the frame is made, and again each
    time it is collected. Folders' names are columns, as scan_parquet(hive_partitioning=True) has them.

    Raises RequestError where Polars is not installed, or older than 2.0; FileError and its kinds, TableFormatError
    as read_table; while it is collected, Polars' ComputeError with their text.
    """
    options.setdefault("nan", "largest")
    if options["nan"] != "largest":
        raise RequestError("nan is 'largest' for Polars, which compares NaN so")
    try:
        from polars import __version__ as version
        from polars.io.plugins import register_io_source
    except ImportError:
        raise RequestError(_NEEDS) from None
    if int(version.split(".")[0]) < 2:  # 1.30 types some columns otherwise than its own reader
        raise RequestError(f"{_NEEDS}; this is {version}")

    def scan(tree: Predicate | None) -> Scan:
        return scan_of(source, tree, filesystem, index=index, **options)

    first = scan(None)
    none = pa.Table.from_batches([], first.schema)  # schema.empty_table() makes no lists of uuids
    schema = _as_polars(none, first.keys).schema

    def batches(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        tree = None if predicate is None else from_polars(predicate, schema)
        left = n_rows
        for batch in _chosen(scan, tree, _columns(with_columns, predicate), batch_size or _BATCH_ROWS):
            part = _as_polars(batch, first.keys)
            if predicate is not None:
                part = part.filter(predicate)
            if with_columns is not None:
                part = part.select(with_columns)
            if left is not None:
                part = part.head(left)
                left -= part.height
            yield part
            if left == 0:
                return

    return register_io_source(batches, schema=schema)


def _columns(with_columns: Sequence[str] | None, predicate: pl.Expr | None) -> list[str] | None:
    """The columns to read: those that are wanted, and those that Polars filters by."""
    if with_columns is None:
        return None
    return list(dict.fromkeys([*with_columns, *(predicate.meta.root_names() if predicate is not None else ())]))


def _chosen(
    scan: Callable[[Predicate | None], Scan], tree: Predicate | None, columns: list[str] | None, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """The rows of the row groups that can match."""
    try:
        return scan(tree).unfiltered(columns, batch_rows)
    except RequestError as error:  # it cannot be bound to the files; Polars knows what it means all the same
        if tree is None:
            raise
        logger.info("%s: not used to skip: %s", tree, error)
        return _chosen(scan, None, columns, batch_rows)


def _as_polars(rows: pa.Table | pa.RecordBatch, keys: Sequence[Leaf]) -> pl.DataFrame:
    """Rows as a frame, folders' names in the types that Polars takes them for: Int64, Date, String."""
    import polars as pl

    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    for key in keys:
        if (at := table.schema.get_field_index(key.path[0])) >= 0:
            plain = table.column(at).cast(table.schema.field(at).type.value_type).cast(_key_type(key))
            table = table.set_column(at, key.path[0], plain)
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _key_type(key: Leaf) -> pa.DataType:
    if key.physical == INT32:
        return pa.int64()
    return pa.date32() if key.logical == "DATE" else pa.string()

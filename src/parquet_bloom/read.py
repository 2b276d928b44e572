"""The reading functions people call: read_table, read_batches, dataset, count, prune, scan_polars."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from parquet_bloom.errors import ParquetBloomError, RequestError
from parquet_bloom.format.schema import INT32, Leaf
from parquet_bloom.options import PathLike
from parquet_bloom.predicates.polars_expressions import from_polars
from parquet_bloom.predicates.tree import Predicate
from parquet_bloom.rows.pages import taken_rows
from parquet_bloom.rows.scan import Scan
from parquet_bloom.search.options import SearchOptions
from parquet_bloom.search.question import is_key_index
from parquet_bloom.source.results import Result
from parquet_bloom.storage.display import line, quantity

if TYPE_CHECKING:
    import polars as pl
    import pyarrow.dataset as ds


Sources = PathLike | Sequence[PathLike]
Columns = str | Sequence[str] | None
Index = PathLike | Sequence[PathLike] | None


def scan_of(
    source: Sources,
    predicate: Any,
    filesystem: Any = None,
    decide_true: bool = False,
    index: Index = None,
    **options: Unpack[SearchOptions],
) -> Scan:
    """The Scan behind every read function, or with `index` one that asks a key index, or queries zone indexes, too."""
    if index is None:
        return Scan(source, predicate, filesystem=filesystem, decide_true=decide_true, **options)
    if is_key_index(index):
        return Scan(source, predicate, filesystem=filesystem, decide_true=decide_true, index=index, **options)
    from parquet_bloom.zones.query import IndexedScan

    return IndexedScan(source, predicate, index, filesystem=filesystem, decide_true=decide_true, **options)


def read_table(
    source: Sources,
    predicate: Any = None,
    columns: Columns = None,
    filesystem: Any = None,
    *,
    filters: Any = None,
    index: Index = None,
    **options: Unpack[SearchOptions],
) -> pa.Table:
    """Read the rows that match, as pyarrow.parquet.read_table would, from the row groups that can hold them.

    source      a file, a folder (with Hive-style folders in it), a glob, a URI, or a list of them; or one table:
                delta:PATH_OR_URI[@version], iceberg:CATALOG/namespace.table[@snapshot],
                ducklake:CATALOG/schema.table[@snapshot], whose log then says which rows live
    predicate   SQL text, "id = 5 AND name IN ('a', 'b')"; DNF lists as pyarrow takes them; or a pyarrow
                Expression. None: all rows
    columns     one name, or a list; place.x for a field of a struct, which is then called x, as pyarrow has it.
                None: all
    filesystem  any pyarrow or fsspec file system; source then names files on it
    filters     pyarrow's name of `predicate`
    index       the folder of a key index (build_index): files in which it denies the predicate are not opened. Or a
                zone index that parquet_bloom.lance.build_index made of the source, its folder, or several: only pages
                that hold rows of its surviving zones are read
    options     see SearchOptions

    Raises TextError, UnknownColumnError before any data is read; RequestError for a text with parts that
    rows cannot be filtered by; FileError and its kinds, TableFormatError without raw_files for files of an
    Iceberg, Delta or Hudi table, which also hold dead and deleted rows. What was skipped, and which parts of the
    predicate told nothing, is logged (logger "parquet_bloom", INFO); `Scan` gives it as values.
    """
    return scan_of(source, _one_of(predicate, filters), filesystem, index=index, **options).to_table(columns)


def read_batches(
    source: Sources,
    predicate: Any = None,
    columns: Columns = None,
    filesystem: Any = None,
    batch_rows: int = 1 << 16,
    *,
    filters: Any = None,
    index: Index = None,
    **options: Unpack[SearchOptions],
) -> Iterator[pa.RecordBatch]:
    """As read_table, but batch by batch of at most `batch_rows` rows, in bounded memory."""
    scan = scan_of(source, _one_of(predicate, filters), filesystem, index=index, **options)
    return scan.to_batches(columns, batch_rows)


def dataset(
    source: Sources,
    predicate: Any = None,
    filesystem: Any = None,
    *,
    filters: Any = None,
    index: Index = None,
    **options: Unpack[SearchOptions],
) -> ds.FileSystemDataset:
    """A pyarrow Dataset of only the row groups that can hold a match: for DuckDB, Polars, pandas, Dask.

    Rows are not filtered; whoever takes the data set does that, in its own way. pyarrow decodes all rows of a row group
    for one of them, where read_batches and read_table decode the pages that have it. As engines differ in what
    NaN equals, bounds of a float column that may hold NaN decide nothing here (nan="largest").
    Arguments and errors as read_table has them.

    A column has one type, by the first file or the table's schema, in whatever layouts other files keep texts and
    bytes. string_view and binary_view become string and binary, list_view becomes list: pyarrow cannot filter views.
    A dictionary becomes its values where another file has values of a fixed length.

    Of a table: rows that it has deleted, or columns that it calls otherwise, are a RequestError, as no such data set
    can tell them.

    The files are looked at before each scan. One that was replaced, written to or removed since is then a
    FileChangedError or StorageError (within an engine, its error with that text): ask for a new data set.
    """
    options.setdefault("nan", "largest")
    return scan_of(source, _one_of(predicate, filters), filesystem, index=index, **options).dataset()


def count(
    source: Sources,
    predicate: Any = None,
    filesystem: Any = None,
    *,
    index: Index = None,
    from_log: bool = True,
    **options: Unpack[SearchOptions],
) -> int:
    """Count the rows that match; only row groups that footer and filters do not decide are read.

    from_log    without a predicate, a table's log tells how many rows its files have; files are opened where the log
                has no exact count of rows or of deletes. False: each file is opened
    Other arguments and errors as read_table has them.
    """
    return scan_of(source, predicate, filesystem, decide_true=True, index=index, **options).count(from_log)


def _one_of(predicate: Any, filters: Any) -> Any:
    """Raises RequestError where the predicate came by both of its names."""
    if predicate is not None and filters is not None:
        raise RequestError("predicate and filters are two names of one argument; give one")
    return filters if predicate is None else predicate


class PrunedFiles(Result, list[tuple[str, list[int]]]):
    """(file, row groups) of each file that has row groups in which a row can match.

    row_groups  of all files that were opened
    with_deletes  of these files the ones of which a table has deleted rows: who reads them must leave these out
    hits        (file, row group) -> how many of the keys asked for it may hold; only with count_hits=True
    """

    def __init__(self, kept: Sequence[tuple[str, list[int]]] = ()) -> None:
        super().__init__(kept)
        self.row_groups = 0
        self.with_deletes: list[str] = []
        self.hits: dict[tuple[str, int], int] = {}

    def to_dict(self) -> dict[str, Any]:
        """Files, each with its row groups, and the rest, in values that JSON has."""
        files = [{"path": path, "row_groups": groups} for path, groups in self]
        hits = [{"path": path, "row_group": group, "keys": n} for (path, group), n in self.hits.items()]
        return {"files": files, "row_groups": self.row_groups, "with_deletes": self.with_deletes, "hits": hits}

    def to_arrow(self) -> pa.Table:
        """A row a file."""
        paths, groups = [path for path, _ in self], [groups for _, groups in self]
        return pa.table({"path": pa.array(paths, pa.string()), "row_groups": pa.array(groups, pa.list_(pa.int64()))})

    def __repr__(self) -> str:
        kept = f"{sum(len(g) for _, g in self):,} of {quantity(self.row_groups, 'row groups')}"
        return line("PrunedFiles", [f"{kept} in {quantity(len(self), 'files')}"])


def prune(
    source: Sources,
    predicate: Any = None,
    *,
    column: str | None = None,
    values: Any = None,
    count_hits: bool = False,
    filesystem: Any = None,
    index: Index = None,
    **options: Unpack[SearchOptions],
) -> PrunedFiles:
    """Find the row groups in which a row can match: (file, row groups) for each file that has any.

    predicate       as `check` takes it; or else
    column, values  a name and many keys (an array or list), probed with the kernel against whole
                    filters: row groups that can hold any of the keys, for semi-joins
    count_hits      also say how many of the keys, in `hits`; otherwise a filter is left at the first
    index           as read_table has it
    options         see SearchOptions

    Raises as `check`; RequestError for both or neither of predicate and values.
    """
    if (predicate is None) == (values is None) or (values is None) != (column is None):
        raise RequestError("give a predicate, or else column= and values=")
    scan = scan_of(source, predicate, filesystem, index=index, **options)
    if column is None:
        pruned = PrunedFiles(scan.kept)
        pruned.row_groups = len(scan.verdicts)
        pruned.with_deletes = _with_deletes(scan, pruned)
        return pruned
    from parquet_bloom.search.keys import KeyHits

    pruned = PrunedFiles()
    sought = KeyHits(scan.search, column, values, count_hits)
    scan.visit(sought)
    scan.search.visit_several = sought.of_several
    scan.require(leaf=column)
    for file in scan.files:
        hits = file.visited
        if isinstance(hits, ParquetBloomError):
            raise hits
        kept = [group for group, n in enumerate(hits) if n != 0]
        pruned.row_groups += len(hits)
        if count_hits:
            pruned.hits |= {(str(file.file), g): n for g in kept if (n := hits[g]) is not None}
        if kept:
            pruned.append((str(file.file), kept))
    pruned.with_deletes = _with_deletes(scan, pruned)
    return pruned


def _with_deletes(scan: Scan, pruned: PrunedFiles) -> list[str]:
    """The files among these of which a table has deleted rows."""
    deleted = {str(f.file) for f in scan.files if f.file.deletes is not None}
    return [path for path, _ in pruned if path in deleted]


# --- Polars: a LazyFrame that queries filters before it reads --------------------------------------
#
#     LazyFrame -> Polars pushes down predicate, columns, limit -> row groups by bounds and filters
#                                                               -> their rows, which Polars' own expression filters
#
# Polars' own scan_parquet looks at bounds, never at filters.

logger = logging.getLogger("parquet_bloom")
_BATCH_ROWS = 1 << 17
_PLACE = "place in the batch"
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
    for field in first.first_schema:
        if "decimal256(" in str(field.type):  # Polars panics, and names no column
            raise RequestError(
                f"column {field.name} has a DECIMAL of 256 bits, which Polars cannot read; use read_table"
            )
    none = pa.Table.from_batches([], first.first_schema)  # schema.empty_table() makes no lists of uuids
    schema = _as_polars(none, first.keys).schema

    def batches(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        tree = None if predicate is None else from_polars(predicate, schema)
        left = n_rows
        for batch in _chosen(scan, tree, predicate, _columns(with_columns, predicate), batch_size or _BATCH_ROWS):
            part = _as_polars(batch, first.keys)
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


class _PolarsFilter:
    """Filters rows of a scan by Polars' own expression."""

    def __init__(self, predicate: pl.Expr, scan: Scan) -> None:
        self.columns = list(dict.fromkeys(predicate.meta.root_names()))
        self._predicate, self._scan = predicate, scan

    def filter_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for which it is true."""
        seen = batch.select(self.columns) if self.columns else batch  # an expression of literals has no columns
        frame = _as_polars(self._scan.narrowed(seen), self._scan.keys)
        kept = frame.with_row_index(_PLACE).filter(self._predicate)[_PLACE]
        return taken_rows(batch, kept.to_numpy())


def _chosen(
    scan: Callable[[Predicate | None], Scan],
    tree: Predicate | None,
    predicate: pl.Expr | None,
    columns: list[str] | None,
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    """The rows that Polars keeps, of the row groups that can match."""
    try:
        chosen = scan(tree)
        keep = None if predicate is None else _PolarsFilter(predicate, chosen)
        return map(chosen.narrowed, chosen.filtered_by(keep, columns, batch_rows))
    except RequestError as error:  # it cannot be bound to the files; Polars knows what it means all the same
        if tree is None:
            raise
        logger.info("%s: not used to skip: %s", tree, error)
        return _chosen(scan, None, predicate, columns, batch_rows)


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

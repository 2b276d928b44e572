"""`Source`: files or a table as a value, with the functions of this package as its methods.

    events = parquet_bloom.Source("s3://lake/events/", cache=parquet_bloom.FooterCache())
    events.check("trace_id = '4bf92f35'")        one listing, or one version of a table, for all questions
    events.read_table("trace_id = '4bf92f35'")
    events.refresh()                             the next question looks again

Each method is the function of its name; what a Source has, the method does not take.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from parquet_bloom.errors import RequestError
from parquet_bloom.options import (
    AddOptions,
    FilesystemOption,
    Form,
    PathLike,
    ReadOptions,
    RemoveOptions,
    RepairOptions,
)
from parquet_bloom.source.source import Pinned
from parquet_bloom.storage.workers import ProgressCallback

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset as ds

    from parquet_bloom.advice.advise import Advice
    from parquet_bloom.advice.status import StatusReport
    from parquet_bloom.changes.rows import DeleteOptions
    from parquet_bloom.changes.values import KeyChanges
    from parquet_bloom.edit.repair import RepairReport
    from parquet_bloom.edit.reports import AddReport, RemoveReport
    from parquet_bloom.edit.write import SupportsArrowStream
    from parquet_bloom.filters.inspect import InspectReport
    from parquet_bloom.filters.verify import VerifyReport
    from parquet_bloom.format.forms import Rate
    from parquet_bloom.keys.plan import KeyIndexReport
    from parquet_bloom.keys.update import UpdateReport
    from parquet_bloom.read import PrunedFiles
    from parquet_bloom.search.check import Verdicts
    from parquet_bloom.search.options import AskOptions, FooterCache, SearchOptions

Columns = str | Sequence[str] | None


class SourceOptions(ReadOptions, FilesystemOption, total=False):
    """Options that a Source has, and its methods do not take."""


class Source(Pinned):
    """Files or a table that several questions are about; cheap to make, nothing is opened before the first one.

    paths        a file, a folder, a glob, a URI, or a list of them; or one table: delta:PATH_OR_URI[@version],
                 iceberg:CATALOG/namespace.table[@snapshot], ducklake:CATALOG/schema.table[@snapshot]
    filesystem   of pyarrow or fsspec; paths then name files on it
    raw_files    also files of an Iceberg, Delta or Hudi table, whatever its log says of them
    catalog_properties, allow_roots  of a table, as the functions have them
    cache        a FooterCache: footers that its questions share
    index        a key index of the source, for all methods that search; or a zone index, its folder, or several: for
                 the methods that read or count rows

    All questions are about one listing, or one version of the table, until `refresh`. A file that was replaced or
    written to after a question opened it is a FileChangedError for the next: a chmod, a new hard link and filters
    that a commit put behind it on the same path count too. It may be pickled, shared by threads and used in forked
    processes; a pickled copy looks for files again, keeps the version of a Delta or DuckLake table, and looks for the
    latest snapshot of an Iceberg table. Functions that read or inspect take it in the place of paths, too.
    """

    def __init__(
        self,
        paths: PathLike | Sequence[PathLike],
        *,
        filesystem: Any = None,
        raw_files: bool = False,
        catalog_properties: Mapping[str, str] | None = None,
        allow_roots: PathLike | Sequence[PathLike] = (),
        cache: FooterCache | None = None,
        index: PathLike | Sequence[PathLike] | None = None,
    ) -> None:
        """Raises RequestError for names that cannot be meant, such as two tables."""
        own: ReadOptions = {
            "raw_files": raw_files,
            "catalog_properties": catalog_properties,
            "allow_roots": allow_roots,
        }
        super().__init__(paths, filesystem, own)
        self.cache, self.index = cache, index

    # --- rows -------------------------------------------------------------------------------------

    def check(self, predicate: Any, **options: Unpack[AskOptions]) -> Verdicts:
        """Check which row groups can match: parquet_bloom.check."""
        from parquet_bloom.search.check import check
        from parquet_bloom.search.question import key_index_of

        return check(self._self, predicate, index=key_index_of(self.index), **self._asking(options))

    def prune(
        self,
        predicate: Any = None,
        *,
        column: str | None = None,
        values: Any = None,
        count_hits: bool = False,
        **options: Unpack[AskOptions],
    ) -> PrunedFiles:
        """The row groups in which a row can match: parquet_bloom.prune."""
        from parquet_bloom.read import prune

        how = self._asking(options)
        return prune(
            self._self, predicate, column=column, values=values, count_hits=count_hits, index=self.index, **how
        )

    def count(self, predicate: Any = None, *, from_log: bool = True, **options: Unpack[AskOptions]) -> int:
        """How many rows match: parquet_bloom.count."""
        from parquet_bloom.read import count

        return count(self._self, predicate, index=self.index, from_log=from_log, **self._asking(options))

    def read_table(self, predicate: Any = None, columns: Columns = None, **options: Unpack[AskOptions]) -> pa.Table:
        """The rows that match: parquet_bloom.read_table."""
        from parquet_bloom.read import read_table

        return read_table(self._self, predicate, columns, index=self.index, **self._asking(options))

    def read_batches(
        self,
        predicate: Any = None,
        columns: Columns = None,
        batch_rows: int = 1 << 16,
        **options: Unpack[AskOptions],
    ) -> Iterator[pa.RecordBatch]:
        """The same, batch by batch: parquet_bloom.read_batches."""
        from parquet_bloom.read import read_batches

        how = self._asking(options)
        return read_batches(self._self, predicate, columns, None, batch_rows, index=self.index, **how)

    def dataset(self, predicate: Any = None, **options: Unpack[AskOptions]) -> ds.FileSystemDataset:
        """A pyarrow Dataset of the row groups that can match: parquet_bloom.dataset."""
        from parquet_bloom.read import dataset

        return dataset(self._self, predicate, index=self.index, **self._asking(options))

    def scan_polars(self, **options: Unpack[AskOptions]) -> pl.LazyFrame:
        """A Polars LazyFrame: parquet_bloom.scan_polars."""
        from parquet_bloom.read import scan_polars

        return scan_polars(self._self, index=self.index, **self._asking(options))

    def locate(self, column: str, keys: Any, *, verify: bool = False, **options: Unpack[AskOptions]) -> pa.Table:
        """The row groups that may hold each of many keys: parquet_bloom.locate."""
        from parquet_bloom.keys.locate import locate
        from parquet_bloom.search.question import key_index_of

        return locate(self._self, column, keys, key_index_of(self.index), verify=verify, **self._asking(options))

    def build_index(
        self,
        columns: str | Sequence[str],
        output: PathLike,
        *,
        root: PathLike | None = None,
        false_places: float = 0.05,
        overwrite: bool = False,
        threads: int | None = None,
        dry_run: bool = False,
        progress: ProgressCallback | None = None,
    ) -> KeyIndexReport:
        """Build a key index of these files: parquet_bloom.build_index."""
        from parquet_bloom.keys.build import build_index

        return build_index(
            self._self,
            columns,
            output,
            root=root,
            false_places=false_places,
            overwrite=overwrite,
            threads=threads,
            dry_run=dry_run,
            progress=progress,
        )

    def update_index(self, *, threads: int | None = None, progress: ProgressCallback | None = None) -> UpdateReport:
        """Bring the key index of this Source up to date with its files: parquet_bloom.update_index."""
        from parquet_bloom.keys.update import update_index

        return update_index(self._key_index, self._self, threads=threads, progress=progress)

    def rebuild_index(
        self,
        *,
        false_places: float | None = None,
        threads: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> KeyIndexReport:
        """Build the key index of this Source again: parquet_bloom.rebuild_index."""
        from parquet_bloom.keys.update import rebuild_index

        how: Any = {"false_places": false_places, "threads": threads, "progress": progress}
        return rebuild_index(self._key_index, self._self, **how)

    @property
    def _key_index(self) -> Any:
        from parquet_bloom.search.question import key_index_of

        if (index := key_index_of(self.index)) is None:
            raise RequestError("this Source has no key index to update; give it to Source(..., index=)")
        return index

    # --- filters ----------------------------------------------------------------------------------

    def inspect(
        self,
        *,
        columns: Columns = None,
        exclude: Columns = None,
        assert_filters: Columns = None,
        progress: ProgressCallback | None = None,
    ) -> InspectReport:
        """Describe the filters: parquet_bloom.inspect."""
        from parquet_bloom.filters.inspect import inspect

        return inspect(
            self._self,
            columns=columns,
            exclude=exclude,
            assert_filters=assert_filters,
            progress=progress,
        )

    def verify(
        self,
        *,
        columns: Columns = None,
        exclude: Columns = None,
        sample: int | None = None,
        statistics: bool = False,
        progress: ProgressCallback | None = None,
    ) -> VerifyReport:
        """Whether the filters, and if requested the statistics, are right: parquet_bloom.verify."""
        from parquet_bloom.filters.verify import verify

        return verify(
            self._self,
            columns=columns,
            exclude=exclude,
            sample=sample,
            statistics=statistics,
            progress=progress,
        )

    def status(
        self,
        *,
        columns: Columns = None,
        exclude: Columns = None,
        assert_filters: Columns = None,
        progress: ProgressCallback | None = None,
    ) -> StatusReport:
        """Report the columns that lack filters, or have lost them: parquet_bloom.status."""
        from parquet_bloom.advice.status import status

        return status(
            self._self,
            columns=columns,
            exclude=exclude,
            assert_filters=assert_filters,
            progress=progress,
        )

    def advise(
        self,
        *,
        queries: PathLike | None = None,
        engine: str | None = None,
        progress: ProgressCallback | None = None,
    ) -> Advice:
        """Advise the columns that gain by filters: parquet_bloom.advise."""
        from parquet_bloom.advice.advise import advise

        return advise(self._self, queries=queries, engine=engine, progress=progress)

    # --- changes ----------------------------------------------------------------------------------

    def add_filters(
        self,
        output: PathLike | None = None,
        *,
        columns: Columns = None,
        exclude: Columns = None,
        form: Form | None = None,
        fpp: Rate | Mapping[str, Rate] | None = None,
        progress: ProgressCallback | None = None,
        **options: Unpack[AddOptions],
    ) -> AddReport:
        """Add filters: parquet_bloom.add_filters. The latest version of a table is changed; then `refresh`."""
        from parquet_bloom.change import add_filters

        self._refuse_source_options(options)
        how: AddOptions = {**options, **self._source_options()}
        try:
            return add_filters(
                self.paths, output, columns=columns, exclude=exclude, form=form, fpp=fpp, progress=progress, **how
            )
        finally:
            self.refresh()

    def remove_filters(
        self,
        output: PathLike | None = None,
        *,
        columns: Columns = None,
        exclude: Columns = None,
        progress: ProgressCallback | None = None,
        **options: Unpack[RemoveOptions],
    ) -> RemoveReport:
        """Remove filters: parquet_bloom.remove_filters. The rest as add_filters."""
        from parquet_bloom.change import remove_filters

        self._refuse_source_options(options)
        how: RemoveOptions = {**options, **self._source_options()}
        try:
            return remove_filters(self.paths, output, columns=columns, exclude=exclude, progress=progress, **how)
        finally:
            self.refresh()

    def repair(
        self,
        output: PathLike | None = None,
        *,
        undo: bool = False,
        progress: ProgressCallback | None = None,
        **options: Unpack[RepairOptions],
    ) -> RepairReport:
        """Write wrong statistics right: parquet_bloom.repair. Then `refresh`."""
        from parquet_bloom.change import repair

        self._refuse_source_options(options)
        how: RepairOptions = {**options, **self._source_options()}
        try:
            return repair(self.paths, output, undo=undo, progress=progress, **how)
        finally:
            self.refresh()

    def delete_keys(
        self,
        column: str | Sequence[str],
        keys: Any,
        output: PathLike | None = None,
        *,
        threads: int | None = None,
        progress: ProgressCallback | None = None,
        **options: Unpack[DeleteOptions],
    ) -> KeyChanges:
        """Delete rows by their keys: parquet_bloom.delete_keys. Then `refresh`."""
        from parquet_bloom.changes.rows import delete_keys
        from parquet_bloom.search.question import key_index_of

        self._refuse_source_options(options)
        how: Any = {"threads": threads, "progress": progress, **options, **self._source_options()}
        try:
            return delete_keys(self.paths, column, keys, output, index=key_index_of(self.index), **how)
        finally:
            self.refresh()

    def upsert(
        self,
        rows: SupportsArrowStream,
        column: str | Sequence[str],
        *,
        deletes: Any = None,
        dry_run: bool = False,
        threads: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> KeyChanges:
        """Put rows in the place of those with their keys: parquet_bloom.upsert. Then `refresh`."""
        from parquet_bloom.changes.rows import upsert
        from parquet_bloom.search.question import key_index_of

        how: Any = {"dry_run": dry_run, "threads": threads, "progress": progress, **self._source_options()}
        try:
            return upsert(self.paths, rows, column, deletes=deletes, index=key_index_of(self.index), **how)
        finally:
            self.refresh()

    # --- what a method passes on ------------------------------------------------------------------

    @property
    def _self(self) -> Any:
        return self  # functions take a Source in the place of paths; their types name paths alone

    def _asking(self, options: AskOptions) -> SearchOptions:
        self._refuse_source_options(options)
        asked: SearchOptions = {} if self.cache is None else {"cache": self.cache}
        return {**asked, **options}

    def _source_options(self) -> SourceOptions:
        return {"filesystem": self.filesystem, **self.options}

    def _refuse_source_options(self, options: Mapping[str, Any]) -> None:
        for name in (*SourceOptions.__annotations__, "index"):
            if name in options:
                raise RequestError(f"{name} is the Source's own; give it to Source(...)")

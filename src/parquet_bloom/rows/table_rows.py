"""Rows of a table's files: file by file, under the table's schema, without rows that are deleted.

row groups 0, 2 of a file     rows 0 .. 99, 200 .. 299 of it
deleted: 7, 150, 205          the 7th and the 105th row that are read go
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from parquet_bloom.errors import RequestError
from parquet_bloom.rows.fetched import (
    FetchedFile,
    Fetcher,
    FilePart,
    Meanwhile,
    arrow_file,
    batches_of,
    errors_of,
    nothing,
    scan_options,
)
from parquet_bloom.rows.layouts import path_of, projected, select_columns
from parquet_bloom.rows.pages import RowSelection
from parquet_bloom.rows.pages_file import PagesRead, columns_at
from parquet_bloom.rows.source_rows import counted, fragment_of, row_threads, with_numbers
from parquet_bloom.search.log import FileResult
from parquet_bloom.source.columns import schema_of
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.source.view import FileView, TableNames
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.workers import chain_results

_FILES, _REMOTE_FILES, _BATCHES = 2, 16, 2  # that are read side by side, and batches of each that wait
_BATCH_ROWS = 1 << 16

_Numbered = tuple[pa.RecordBatch, NDArray[np.int64]]  # rows, and the number of each


class TableRows:
    """Rows of a table's files."""

    def __init__(self, snapshot: Snapshot, opened: Mapping[int, OpenFile] = MappingProxyType({})) -> None:
        """opened: files that a search has kept open, by id(DataFile)."""
        self._names = TableNames(snapshot)
        self.opened, self._fetcher = opened, Fetcher(opened)
        self.pages, self.threads = PagesRead(), row_threads()
        self._deleted: dict[int, NDArray[np.int64]] = {}  # by id(file): a path may be there twice
        self.schema = self.first_schema = schema_of(snapshot.fields)

    def narrowed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """As it is: rows have the table's types."""
        return batch

    def misfit(self, parts: Sequence[FilePart], names: Sequence[str] | None) -> RequestError | None:
        """None: rows of files are cast to the table's types one by one."""
        return None

    def batches(
        self, parts: Sequence[FilePart], names: Sequence[str] | None, batch_rows: int | None
    ) -> Generator[pa.RecordBatch, None, None]:
        """As SourceRows has it."""
        with closing(self._rows(parts, names, batch_rows)) as found:
            for batch, _ in found:
                yield batch

    def numbered(
        self, parts: Sequence[FilePart], names: Sequence[str], batch_rows: int | None, meanwhile: Meanwhile = nothing
    ) -> Generator[tuple[pa.RecordBatch, int], None, None]:
        """As SourceRows has it."""
        with closing(self._rows(parts, names, batch_rows, meanwhile)) as found:
            for batch, numbers in found:
                yield with_numbers(batch, numbers), 0

    def _rows(
        self,
        parts: Sequence[FilePart],
        names: Sequence[str] | None,
        batch_rows: int | None,
        meanwhile: Meanwhile = nothing,
    ) -> Generator[_Numbered, None, None]:
        wanted = self.schema.names if names is None else list(names)
        top = list(dict.fromkeys(path_of(name, self.schema)[0] for name in wanted))
        with closing(self._of_parts(parts, top, batch_rows or _BATCH_ROWS, meanwhile)) as found:
            for batch, numbers in found:
                yield batch if wanted == top else select_columns(batch, wanted), numbers

    def projected(self, names: Sequence[str]) -> pa.Schema:
        """As SourceRows has it."""
        return projected(self.schema, names)

    def stored(self, file: FileResult, names: Sequence[str]) -> set[str]:
        """As SourceRows has it."""
        return set(self._view(file).stored_names([path_of(name, self.schema)[0] for name in names]))

    def living(self, file: FileResult, groups: Sequence[int]) -> int:
        """As SourceRows has it."""
        assert file.outline is not None
        return int(file.outline.rows[list(groups)].sum()) - len(self._deleted_among(file, groups))

    def check_whole(self, parts: Sequence[FilePart]) -> None:
        """As SourceRows has it."""
        for file, _ in parts:
            if file.file.deletes is not None:
                reason, advice = "has row-level deletes", "read_batches and read_table apply them"
            elif not self.same_names(file):
                reason, advice = "has columns under other names", "read_batches maps them"
            elif (name := self._view(file).lacks_nested_default()) is not None:
                reason, advice = f"lacks {name}, which has a default", "read_batches and read_table give it"
            else:
                continue
            raise RequestError(f"{file.file} {reason}, which a data set of files does not know; {advice}")

    def same_names(self, file: FileResult) -> bool:
        """As SourceRows has it."""
        return self._view(file).same_names()

    def constants(self, file: FileResult) -> pc.Expression | None:
        """As SourceRows has it."""
        expression = None
        for name, value in self._view(file).absent().items():
            one = pc.field(name) == value if value.is_valid else pc.field(name).is_null()
            expression = one if expression is None else expression & one
        return expression

    def fragment(
        self, part: FilePart, schema: pa.Schema, filtered: bool = False, opened: Any = None
    ) -> ds.ParquetFileFragment:
        """As SourceRows has it; opened: as `fragment_of` has it."""
        return fragment_of(part, schema, self.constants(part[0]) if filtered else None, True, filtered, opened)

    def at(self, part: FilePart, names: Sequence[str], wanted: RowSelection) -> Mapping[str, pa.ChunkedArray]:
        """As SourceRows has it."""
        view = self._view(part[0])
        own = {name: stored[0] for name in names if name in self.schema.names and (stored := view.stored_names([name]))}

        def read(data: pa.Buffer, stored: list[str], as_stored: bool) -> list[pa.ChunkedArray]:
            one = self.fragment((part[0], [0]), self.schema, opened=pa.BufferReader(data))
            wanted: Any = {str(i): pc.field(name) for i, name in enumerate(stored)}
            columns: list[pa.ChunkedArray] = one.to_table(schema=one.physical_schema, columns=wanted).columns
            return columns

        found = columns_at(part, list(dict.fromkeys(own.values())), wanted, read, self.pages, self.opened)
        ready = [name for name in names if name in self.schema.names and (name not in own or own[name] in found)]
        stored = view.stored_names(ready)
        if not stored:
            return {}
        table = pa.Table.from_arrays([found[name] for name in stored], list(map(str, range(len(stored)))))
        columns = pa.Table.from_batches([view.batch(batch, ready) for batch in table.to_batches()]).columns
        return dict(zip(ready, columns, strict=True))

    def _of_parts(
        self, parts: Sequence[FilePart], names: list[str], n: int, meanwhile: Meanwhile
    ) -> Generator[_Numbered, None, None]:
        """Files one after the other; the next ones are read ahead."""
        counts = [int(file.outline.rows[groups].sum()) for file, groups in parts if file.outline is not None]
        firsts = np.cumsum(counts) - counts
        some = list(zip(parts, firsts.tolist(), strict=True))
        if len(some) == 1:
            return self._file(some[0], names, n, meanwhile)
        remote = bool(parts) and not parts[0][0].file.is_local
        return chain_results(partial(self._file, names=names, n=n), some, _REMOTE_FILES if remote else _FILES, _BATCHES)

    # --- one file ---------------------------------------------------------------------------------

    def _file(
        self, one: tuple[FilePart, int], names: list[str], n: int, meanwhile: Meanwhile = nothing
    ) -> Generator[_Numbered, None, None]:
        """The rows of a part, and the number of each: the part's first one has the number that comes with it."""
        part, first = one
        view = self._view(part[0])
        stored = view.stored_names(names)
        with closing(self._fetcher.scans([part], set(stored))) as scans:
            for _, files in scans:
                with errors_of(files), closing(self._scanned(part, files, view, names, n, meanwhile)) as batches:
                    for batch, numbers in batches:
                        yield batch, numbers + first

    def _scanned(
        self,
        part: FilePart,
        files: Sequence[FetchedFile],
        view: FileView,
        names: list[str],
        n: int,
        meanwhile: Meanwhile,
    ) -> Generator[_Numbered, None, None]:
        file, groups = part
        stored = view.stored_names(names)
        columns: Any = {str(i): pc.field(name) for i, name in enumerate(stored)} or []

        def scanner() -> ds.Scanner:
            one = self.fragment(part, self.schema, opened=arrow_file(files[0]) if files else None)
            return one.scanner(
                schema=one.physical_schema, columns=columns, batch_size=n, batch_readahead=2, fragment_readahead=1,
                **scan_options(files),
            )  # fmt: skip

        deleted = self._deleted_among(file, groups)
        with closing(batches_of(scanner, files, meanwhile)) as batches:
            for batch, start in counted(batches, [part]):
                stop = start + batch.num_rows
                gone = deleted[slice(*np.searchsorted(deleted, (start, stop)))] - start
                numbers = np.delete(np.arange(start, stop), gone)
                if len(numbers):
                    yield _without(view.batch(batch, names), gone), numbers

    def _view(self, file: FileResult) -> FileView:
        assert file.outline is not None
        return self._names.view(file.file, file.outline.metadata.schema)

    def _deleted_among(self, file: FileResult, groups: Sequence[int]) -> NDArray[np.int64]:
        """Deleted rows, counted among the rows of these row groups as if there were no others: int64[n], sorted."""
        assert file.outline is not None
        if file.file.deletes is None:
            return np.empty(0, np.int64)
        if id(file.file) not in self._deleted:
            self._deleted[id(file.file)] = file.file.deletes.positions()
        positions = self._deleted[id(file.file)]
        rows = file.outline.rows
        ends = np.cumsum(rows)
        found, before = [], 0
        for group in groups:
            first = int(ends[group] - rows[group])
            inside = positions[slice(*np.searchsorted(positions, (first, int(ends[group]))))]
            found.append(inside - first + before)
            before += int(rows[group])
        return np.concatenate(found) if found else np.empty(0, np.int64)


def _without(batch: pa.RecordBatch, gone: NDArray[np.int64]) -> pa.RecordBatch:
    if not len(gone):
        return batch
    living = np.ones(batch.num_rows, bool)
    living[gone] = False
    return batch.take(pa.array(np.flatnonzero(living)))

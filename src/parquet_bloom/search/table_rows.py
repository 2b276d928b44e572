"""Rows of a table's files: of the row groups that are left, under the table's schema, without those that are deleted.

row groups 0, 2 of a file     rows 0 .. 99, 200 .. 299 of it
deleted: 7, 150, 205          the 7th and the 105th row that are read go
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from parquet_bloom.errors import RequestError
from parquet_bloom.search.columns import chosen, path_of
from parquet_bloom.search.fragments import fragment
from parquet_bloom.search.layouts import format_for
from parquet_bloom.search.search import FileResult
from parquet_bloom.storage.workers import chained
from parquet_bloom.tables.fields import schema_of
from parquet_bloom.tables.projection import Projection
from parquet_bloom.tables.snapshot import Snapshot, TableFile

Part = tuple[FileResult, list[int]]  # a file, and row groups of it
_FILES, _REMOTE_FILES, _BATCHES = 2, 4, 2  # that are read side by side, and batches of each that wait
Opened = Callable[[FileResult], Any]  # a file -> its path for pyarrow, or an open file


class TableRows:
    """The rows of files of one snapshot.

    opened  gives what pyarrow reads a file by
    """

    def __init__(self, snapshot: Snapshot, opened: Opened) -> None:
        self._snapshot = snapshot
        self._opened = opened
        self._deleted: dict[int, NDArray[np.int64]] = {}  # by id(file): a path may be there twice
        self.schema = schema_of(snapshot.fields)

    def batches(self, parts: Sequence[Part], names: Sequence[str] | None, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Living rows, file by file and in their order there.

        names  of columns, or of fields of structs, place.x, each once; these are the batches' names. None: all columns
        """
        wanted = self.schema.names if names is None else list(names)
        top = list(dict.fromkeys(path_of(name, self.schema)[0] for name in wanted))
        with closing(self._of_parts(parts, top, batch_rows)) as batches:
            for batch in batches:
                yield batch if wanted == top else chosen(batch, wanted)

    def living(self, file: FileResult, groups: Sequence[int]) -> int:
        """How many rows of these row groups are not deleted."""
        assert file.outline is not None
        return int(file.outline.rows[list(groups)].sum()) - len(self._deleted_among(file, groups))

    def check_whole(self, files: Sequence[FileResult]) -> None:
        """Raise RequestError for the first file whose rows pyarrow alone would not read as the table has them."""
        for file in files:
            assert isinstance(file.file, TableFile)
            if file.file.deletes is not None:
                reason, advice = "has row-level deletes", "read_batches and read_table apply them"
            elif not self.same_names(file):
                reason, advice = "has columns under other names", "read_batches maps them"
            elif (name := self._projection(file).lacks_nested_default()) is not None:
                reason, advice = f"lacks {name}, which has a default", "read_batches and read_table give it"
            else:
                continue
            raise RequestError(f"{file.file} {reason}, which a data set of files cannot tell; {advice}")

    def same_names(self, file: FileResult) -> bool:
        """Whether a file calls its columns as the table does."""
        return self._projection(file).same_names()

    def constants(self, file: FileResult) -> pc.Expression | None:
        """What is true of every row of a file: values of columns that are not read from it, as pyarrow sees to."""
        expression = None
        for name, value in self._projection(file).absent().items():
            one = pc.field(name) == value if value.is_valid else pc.field(name).is_null()
            expression = one if expression is None else expression & one
        return expression

    def _of_parts(self, parts: Sequence[Part], names: list[str], n: int) -> Generator[pa.RecordBatch, None, None]:
        """Files one after the other; the next ones are on their way."""
        if len(parts) == 1:
            return self._file(parts[0], names, n)
        remote = bool(parts) and not parts[0][0].file.is_local
        return chained(partial(self._file, names=names, n=n), parts, _REMOTE_FILES if remote else _FILES, _BATCHES)

    # --- one file ---------------------------------------------------------------------------------

    def _file(self, part: Part, names: list[str], n: int) -> Generator[pa.RecordBatch, None, None]:
        file, groups = part
        projection = self._projection(file)
        stored = projection.stored(names)
        assert file.outline is not None
        form = format_for(file.outline, self.schema, of_table=True, filtered=False)
        one = fragment(self._opened(file), file.file, None, groups, form)
        columns: Any = {str(i): pc.field(name) for i, name in enumerate(stored)} or []
        scanner = one.scanner(
            schema=one.physical_schema, columns=columns, batch_size=n, batch_readahead=2, fragment_readahead=1
        )
        deleted = self._deleted_among(file, groups)
        start = 0
        for batch in scanner.to_batches():
            stop = start + batch.num_rows
            gone = deleted[slice(*np.searchsorted(deleted, (start, stop)))] - start
            start = stop
            if len(gone) < batch.num_rows:
                yield _without(projection.batch(batch, names), gone)

    def _projection(self, file: FileResult) -> Projection:
        assert isinstance(file.file, TableFile)
        assert file.outline is not None
        return Projection(self._snapshot, file.file, file.outline.metadata.schema)

    def _deleted_among(self, file: FileResult, groups: Sequence[int]) -> NDArray[np.int64]:
        """Deleted rows, counted among the rows of these row groups as if there were no others: int64[n], sorted."""
        assert isinstance(file.file, TableFile)
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

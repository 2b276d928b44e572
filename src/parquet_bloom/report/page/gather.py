"""All that a page shows of a data set, from the functions that each are a command too."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from parquet_bloom.arguments import several
from parquet_bloom.audit.inspect import FileInfo, inspect
from parquet_bloom.chunks.logged import open_logged
from parquet_bloom.errors import ParquetBloomError, RequestError
from parquet_bloom.formats.metadata.schema import Leaf
from parquet_bloom.read import count
from parquet_bloom.report.page.heat import ColumnHeat, columns_of
from parquet_bloom.report.page.layout import Layout, layout_of
from parquet_bloom.search.check import Verdicts, check
from parquet_bloom.search.options import SearchOptions
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.progress import ProgressCallback
from parquet_bloom.storage.remote import side_by_side
from parquet_bloom.storage.source import PathLike
from parquet_bloom.storage.table_folders import refusing
from parquet_bloom.tables.named.sources import Sources, find
from parquet_bloom.tables.roots import ORDINARY, TableAccess
from parquet_bloom.worth.advice.advise import Advice, advise_on
from parquet_bloom.worth.advice.survey import spread
from parquet_bloom.worth.engines import EnginesReport, engines


@dataclass(slots=True)
class Content:
    """All that a page shows.

    names     of the sources, as they were given
    where     the predicate as text; None without one, and then there are no verdicts
    matching  rows for which it is TRUE; None if nobody counted them
    file      the largest file, its filters included; of how many whose size was looked at
    leaves    its columns; layout: its bytes; heat: its filters by column
    """

    names: list[str]
    where: str | None
    advice: Advice
    verdicts: Verdicts | None
    matching: int | None
    file: FileInfo
    looked_at: int
    leaves: tuple[Leaf, ...]
    layout: Layout
    heat: list[ColumnHeat]
    engines: EnginesReport


@dataclass(frozen=True, slots=True)
class Request:
    """What a page is asked for; fields as `write_report` has them."""

    source: PathLike | Sequence[PathLike]
    where: Any
    filesystem: Any
    raw_files: bool
    count_rows: bool
    progress: ProgressCallback | None
    access: TableAccess = ORDINARY


def gather(request: Request, output: str) -> Content:
    """Look at a data set; errors as `advise` and `check` have them, RequestError where output is one of its files."""
    source, filesystem = request.source, request.filesystem
    options: SearchOptions = {"raw_files": request.raw_files, "progress": request.progress}
    found = find(source, filesystem, refusing(request.raw_files), request.access)
    stored = _stored(found)
    files = stored.file_set.files
    _refuse_source(files, output)
    advice = advise_on(stored, source, progress=request.progress)
    verdicts = matching = None
    if request.where is not None:
        # A table may change meanwhile: all of a page is of one version of it.
        same: Any = source if found.snapshot is None else found.snapshot
        verdicts = check(same, request.where, filesystem=filesystem, **options)
        matching = count(same, request.where, filesystem, **options) if request.count_rows else None
    some = spread(files)
    largest = _largest(some)
    file = inspect([largest], raw_files=True, progress=request.progress).files[0]
    with open_logged(largest) as opened:
        outline, size = opened.outline(), opened.size
    layout = layout_of(outline, size, file.filters)
    named = [os.fspath(one) for one in several(source)]
    return Content(
        named, None if request.where is None else str(request.where), advice, verdicts,
        matching, file, len(some), outline.leaves, layout, columns_of(file), engines(),
    )  # fmt: skip


def _stored(found: Sources) -> Sources:
    """Without rows that a table's log holds itself, of which no file can be shown or changed."""
    if found.snapshot is None:
        return found
    files = [file for file in found.snapshot.files if file.stored]
    same = replace(found.file_set, files=list(files))
    return replace(found, file_set=same, snapshot=replace(found.snapshot, files=files))


def _refuse_source(files: Sequence[DataFile], output: str) -> None:
    """No page takes the place of a data file, whatever may be overwritten."""
    if not os.path.exists(output):
        return
    for file in files:
        if file.is_local and os.path.exists(file.path) and os.path.samefile(file.path, output):
            raise RequestError(f"{output} is itself a source; a page in its place would destroy its data")


def _largest(files: Sequence[DataFile]) -> DataFile:
    """The largest file whose footer can be read: there is one, or `advise` had given an error."""

    def size(file: DataFile) -> int:
        try:
            with open_logged(file) as opened:
                opened.outline()
                return opened.size
        except ParquetBloomError:
            return -1

    if len(files) == 1:
        return files[0]
    sizes = side_by_side(size, files)
    return files[max(range(len(files)), key=sizes.__getitem__)]

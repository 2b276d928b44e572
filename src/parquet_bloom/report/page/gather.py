"""All that a page shows of a data set, from the functions that each are a command too."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parquet_bloom.audit.inspect import FileInfo, inspect
from parquet_bloom.errors import ParquetBloomError
from parquet_bloom.formats.metadata.schema import Leaf
from parquet_bloom.read import count
from parquet_bloom.report.page.heat import ColumnHeat, columns_of
from parquet_bloom.report.page.layout import Layout, layout_of
from parquet_bloom.search.check import Verdicts, check
from parquet_bloom.search.options import SearchOptions
from parquet_bloom.storage.paths import DataFile, locate
from parquet_bloom.storage.progress import ProgressCallback
from parquet_bloom.storage.remote import side_by_side
from parquet_bloom.storage.source import PathLike, Source
from parquet_bloom.storage.table_folders import refusing
from parquet_bloom.worth.advice.advise import Advice, advise
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


def gather(
    source: PathLike | Sequence[PathLike],
    where: Any,
    filesystem: Any,
    raw_files: bool,
    count_rows: bool,
    progress: ProgressCallback | None,
) -> Content:
    """Look at a data set; errors as `advise` and `check` have them."""
    named = [source] if isinstance(source, str | os.PathLike) else list(source)
    advice = advise(source, filesystem=filesystem, raw_files=raw_files, progress=progress)
    verdicts = matching = None
    if where is not None:
        options: SearchOptions = {"raw_files": raw_files, "progress": progress}
        verdicts = check(source, where, filesystem=filesystem, **options)
        matching = count(source, where, filesystem, **options) if count_rows else None
    some = spread(locate(source, filesystem, refusing(raw_files)).files)
    largest = _largest(some)
    file = inspect([largest], progress=progress).files[0]
    with Source(largest) as opened:
        outline, size = opened.outline(), opened.size
    layout = layout_of(outline, size, file.filters)
    return Content(
        [os.fspath(one) for one in named], None if where is None else str(where), advice, verdicts, matching, file,
        len(some),
        outline.leaves, layout, columns_of(file), engines(),
    )  # fmt: skip


def _largest(files: Sequence[DataFile]) -> DataFile:
    """The largest file whose footer can be read: there is one, or `advise` had given an error."""

    def size(file: DataFile) -> int:
        try:
            with Source(file) as opened:
                opened.outline()
                return opened.size
        except ParquetBloomError:
            return -1

    sizes = side_by_side(size, files)
    return files[max(range(len(files)), key=sizes.__getitem__)]

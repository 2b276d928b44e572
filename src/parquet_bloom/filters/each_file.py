"""Opens each of many files as its source has it, with the source's names: the frame of inspect, verify, status.

Found -> each file, at the size that the log says -> footer -> columns under their names -> a result a file
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from parquet_bloom.filters.tails import as_it_was
from parquet_bloom.format.schema import Leaf
from parquet_bloom.limits import limits
from parquet_bloom.source.results import Results, map_files
from parquet_bloom.source.source import ResolvedSource
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.progress import Meter

R = TypeVar("R")


@contextmanager
def open_logged(file: DataFile) -> Iterator[OpenFile]:
    """Open what a version of a table has of a file: without tails of ours that this version does not name.

    A file whose size is another one for another reason, or that is of no table, is taken as it is. Raises as OpenFile,
    and of a table's file as OpenFile.footer.
    """
    with OpenFile(file) as source:
        yield (as_it_was(source, file.size) or source) if file.size else source


def each_file(
    found: ResolvedSource, work: Callable[[OpenFile, tuple[Leaf, ...]], R], meter: Meter, most: int | None = None
) -> Results[R]:
    """The result of every file; one bad file among many does not stop the others.

    Files on other storages are worked on side by side, where a part of a file is no progress that anybody hears of.

    work   of an open file and its columns, as people name them
    meter  as source.results.map_files has it
    most   files of other storages at a time, where each needs much memory; limits().concurrency unless given
    Raises as source.results.map_files.
    """
    names = found.names

    def one(file: DataFile) -> R:
        with open_logged(file) as opened:
            footer = opened.footer()
            found.see(opened.path, footer)
            return work(opened, names.display_leaves(footer, file))

    return map_files(found.files, one, found.single, found.failed, meter, files_at_once(found.files, most))


def files_at_once(files: Sequence[DataFile], most: int | None = None) -> int:
    """The number of these files to read at a time; 0 for local files, which then need no other threads."""
    if len(files) < 2 or any(file.is_local for file in files):
        return 0
    return limits().concurrency if most is None else min(most, limits().concurrency)

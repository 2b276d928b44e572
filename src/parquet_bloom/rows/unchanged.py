"""While pyarrow reads rows of files that were searched: its errors become ours, and a changed file is one."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import reduce
from operator import and_
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import xxhash

from parquet_bloom.errors import (
    DamagedFileError,
    FileChangedError,
    FileError,
    ParquetBloomError,
    RequestError,
    StorageError,
    first_line,
)
from parquet_bloom.filters.tails import as_it_was
from parquet_bloom.format.outline import NONE, SPANS, Outline
from parquet_bloom.predicates.arrow import from_expression
from parquet_bloom.predicates.tree import Unknown
from parquet_bloom.rows.layouts import with_groups
from parquet_bloom.search.log import FileResult, open_groups
from parquet_bloom.search.options import DatasetSchema, FooterCache, Nan, Options
from parquet_bloom.search.search import Search
from parquet_bloom.source.source import resolved_files
from parquet_bloom.storage.display import line, quantity
from parquet_bloom.storage.open_file import CHANGED_WHILE_READ, OpenFile
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import Location, side_by_side
from parquet_bloom.storage.stores import at_version, store_of

# --- data sets that engines filter ----------------------------------------------------------------
#
# A data set that an engine scans with a filter of its own: the filter chooses row groups before they are read.
#
#    duckdb.sql("SELECT * FROM events WHERE id = 5")   DuckDB calls events.scanner(filter=field("id") == 5)
#
# Whoever hands pyarrow a filter gets rows for which it is true, as pyarrow compares. So a row group can be left out
# where that is impossible: by bounds and filters, as `prune` does it for the same Expression.

logger = logging.getLogger("parquet_bloom")


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Files, the row groups of each that a data set has, and the options of searches in them."""

    files: tuple[DataFile, ...]
    groups: tuple[tuple[int, ...], ...]
    options: Options

    def chosen(self, filter: pc.Expression) -> list[tuple[int, list[int]]] | None:
        """(number of the file, its row groups that can match) of each file that has any; None: it skips nothing.

        Raises what reading a file raises.
        """
        tree = from_expression(filter)
        if isinstance(tree, Unknown):
            return None
        chosen = []
        try:
            for at, one in enumerate(Search(resolved_files(self.files), tree, self.options)):
                if isinstance(one, tuple):
                    raise one[1]
                may = set(open_groups(one))
                if groups := [group for group in self.groups[at] if group in may]:
                    chosen.append((at, groups))
        except RequestError as error:  # such as a literal that our rules do not compare with the column
            logger.info("%s: not used to skip: %s", tree, error)
            return None
        left = sum(len(groups) for _, groups in chosen)
        logger.info("%s: %d of %d row groups can match", tree, left, sum(map(len, self.groups)))
        return chosen

    def __reduce__(self) -> tuple[Any, ...]:
        how = self.options
        return narrowing, (self.files, self.groups, how.dataset_schema, how.nan, how.use_filters, how.range_values)


def narrowing_of(parts: Sequence[tuple[FileResult, Sequence[int]]], schema: DatasetSchema, how: Options) -> Narrowing:
    """For a data set of these row groups, with the columns of this schema."""
    files, groups = [part.file for part, _ in parts], [chosen for _, chosen in parts]
    return narrowing(files, groups, schema, how.nan, how.use_filters, how.range_values)


def narrowing(
    files: Sequence[DataFile],
    groups: Sequence[Sequence[int]],
    schema: DatasetSchema | None,
    nan: Nan,
    use_filters: bool,
    range_values: int,
) -> Narrowing:
    """Build it. Footers are kept from one scan to the next; one that was pickled reads them anew.

    schema  of the data set: of its first file, which may have no row group that is left
    """
    options = Options(
        nan=nan,
        use_filters=use_filters,
        range_values=range_values,
        cache=FooterCache(),
        skip_files=True,
        dataset_schema=schema,
    )
    bare = (DataFile(f.path, f.filesystem, f.shown, [], f.relative, f.partitions) for f in files)
    return Narrowing(tuple(bare), tuple(map(tuple, groups)), options)


# --- files that stay what they were ---------------------------------------------------------------

PYARROW_ERRORS = (pa.ArrowException, OSError, UnicodeError)  # the last for names that are no UTF-8


class ChangeGuard:
    """Turns pyarrow's errors into ours, and notices files that changed between verdict and reading.

    A file of which each answer was of one version is not looked at again: verdict and rows are of the same bytes.

    opened  files that a search kept open for the reading that ends here, by id(DataFile): they go
    misfit  the error of a file that is whole, whose values the type of a column does not hold; None: there is none
    """

    def __init__(
        self,
        files: Sequence[FileResult],
        opened: dict[int, OpenFile] | None = None,
        misfit: Callable[[], RequestError | None] = lambda: None,
    ) -> None:
        self._files, self._opened, self._misfit = files, opened, misfit

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if kind is not None and not issubclass(kind, (*PYARROW_ERRORS, StorageError, DamagedFileError)):
            return
        # After an error any change of a file may be its reason. Without one, a file that only got a tail was read
        # right.
        fits = _is_same if kind is not None else _fits_still
        files = [file for file in self._files if not file.of_one_version]
        self._forget()
        for file, same in zip(files, side_by_side(fits, files), strict=True):
            if not same:
                raise FileChangedError(file.file, CHANGED_WHILE_READ) from error
        if isinstance(error, PYARROW_ERRORS):
            if isinstance(error, pa.ArrowInvalid) and (found := self._misfit()) is not None:
                raise found from error
            where = str(self._files[0].file) if len(self._files) == 1 else "one of the files"
            raise read_error(where, error) from error

    def _forget(self) -> None:
        if self._opened is not None:
            self._opened.clear()
        for file in self._files:
            file.of_one_version = False


def _is_same(file: FileResult) -> bool:
    try:
        with OpenFile(file.file) as now:
            return _is_version(now, version_of(file))
    except StorageError:
        return False


def _fits_still(file: FileResult) -> bool:
    try:
        check_same(version_of(file))
    except (FileChangedError, StorageError):
        return False
    return True


def _is_version(source: OpenFile, file: FileVersion) -> bool:
    if source.version_token != file.version_token:
        return False
    # A token says more than the size. Stores without any (Google's and HDFS through pyarrow) tell no more than that.
    return file.version_token is not None or source.size == file.size


def _has_grown(source: OpenFile, file: FileVersion) -> bool:
    """Whether a table's file got a tail of ours since: its row groups are the same ones, by the same footer."""
    if file.row_groups is None:
        return False
    with suppress(FileError):
        before = as_it_was(source, file.size)
        return before is not None and before is not source and fingerprint(before.outline()) == file.row_groups
    return False


def fingerprint(outline: Outline) -> int:
    """A hash of what an outline says of row groups: places, sizes and statistics, by a walk or by the bindings.

    A walk's spans point into the footer, those of the bindings into bytes of their own: the bytes count, not the spans.
    """
    found = xxhash.xxh3_128(outline.rows.tobytes())
    slots = outline.slots.copy()
    for slot in SPANS:
        at, length = outline.slots[slot], outline.slots[slot + 1]
        here = at != NONE
        slots[slot], slots[slot + 1] = here, np.where(here, length, 0)
        for start, size in zip(at[here].tolist(), length[here].tolist(), strict=True):
            found.update(outline.data[start : start + size])
    found.update(slots.tobytes())
    return found.intdigest()


def for_arrow(file: FileResult) -> Any:
    """A file as pyarrow takes it: its path, or the file itself where pyarrow would find no such name or no footer.

    Raises FileChangedError where that is no longer the one that was searched, StorageError.
    """
    path = path_of(file)
    if not file.file.is_local or (is_utf8(path) and not _is_cut(file)):
        return path
    with opened_same(version_of(file)) as source:
        return source.until(file.size).native_file()


def is_utf8(path: str) -> bool:
    """Say whether a path is UTF-8, as pyarrow needs it."""
    return os.fsencode(path) == path.encode("utf-8", "replace")


def _is_cut(file: FileResult) -> bool:
    """Whether a local file goes on behind what was searched of it, as one does whose append was cut short."""
    with suppress(OSError):
        return os.path.getsize(file.file.path) > file.size
    return False


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A file as it was when it was searched.

    row_groups  a checksum of what the footer of a table's file says of them, as such a file is never written anew and
                may only get tails; None: any change is one
    """

    location: Location
    size: int
    version_token: object
    row_groups: int | None = None


def version_of(file: FileResult) -> FileVersion:
    """The version of a file that a search saw."""
    at = Location(path_of(file), file.file.filesystem, str(file.file))
    outline = file.outline if file.file.has_log else None
    return FileVersion(at, file.size, file.version_token, None if outline is None else fingerprint(outline))


def opened_same(file: FileVersion) -> OpenFile:
    """Open a file that was searched once more. Raises FileChangedError if it is no longer that one, StorageError.

    Where each read names the version, the first one is what raises that.
    """
    return _opened(file, at_version(file.location, file.version_token))


@contextmanager
def opened_as_searched(file: FileResult, opened: Mapping[int, OpenFile] = MappingProxyType({})) -> Iterator[OpenFile]:
    """A file that was searched, to read more of it. Raises as opened_same.

    opened  files that are still open, by id(DataFile)
    """
    kept = opened.get(id(file.file))
    with opened_same(version_of(file)) if kept is None else nullcontext(kept) as source:
        source.size = file.size  # where the footer ends, in one whose append was cut short
        if not (source.is_of_one_version or source.is_whole_in_memory):
            file.of_one_version = False
        yield source


def check_same(file: FileVersion) -> None:
    """Raise FileChangedError if a file that was searched is no longer that one, or StorageError; a request says so."""
    at = file.location
    if at.is_local or file.version_token is None or store_of(at).version(at) != file.version_token:
        _opened(file, at).close()


def _opened(file: FileVersion, at: Location) -> OpenFile:
    source = OpenFile(at)
    if _is_version(source, file) or _has_grown(source, file):
        return source
    source.close()
    raise FileChangedError(file.location, "was changed by another program meanwhile; ask again")


class SearchedDataset(ds.FileSystemDataset):
    """A pyarrow Dataset that is scanned only while its files are the ones that were searched.

    Row groups were chosen by one version of a file; of another one they would be others, without a word. The files
    are looked at before each scan, and once more after what ends here. Not when they are opened: Arrow's threads do
    that, and an error of Python's in one of them can wait for ever for the thread that waits for it.

    A scan with a filter is one of fewer row groups: of those in which it can be true, as `narrowing` finds.
    """

    def __init__(
        self,
        fragments: Sequence[Any],
        schema: pa.Schema,
        format: ds.FileFormat,
        filesystem: Any,
        versions: Sequence[FileVersion],
        narrowing: Narrowing | None = None,
    ) -> None:
        super().__init__(fragments, schema, format, filesystem)
        self._filter: pc.Expression | None = None
        self._made_of = (tuple(fragments), schema, format, filesystem, tuple(versions), narrowing)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._filter is not None:
            return type(self).filter, (type(self)(*self._made_of), self._filter)
        return type(self), self._made_of

    def __repr__(self) -> str:
        """One line: how much remains to be scanned; this opens no file."""
        fragments = self._made_of[0]
        groups = quantity(sum(one.num_row_groups for one in fragments), "row groups")
        parts = [f"{groups} in {quantity(len(fragments), 'files')}", quantity(len(self.schema), "columns")]
        return line("SearchedDataset", [*parts, *(["filtered"] if self._filter is not None else [])])

    def check_unchanged(self) -> None:
        """Raise FileChangedError, or StorageError for a file that is gone."""
        side_by_side(check_same, self._made_of[4])

    def scanner(
        self, columns: Any = None, filter: pc.Expression | None = None, *arguments: Any, **options: Any
    ) -> ds.Scanner:
        """As pyarrow has it; raises FileChangedError if a file changed since the search."""
        both = [one for one in (self._filter, filter) if one is not None]
        wanted = reduce(and_, both) if both else None
        # pyarrow filters rows by `wanted` all the same; row groups in which it cannot be true are left out before.
        try:
            narrowed = None if wanted is None else self._narrowed(wanted)
        finally:  # what the filter was asked of is what was searched, or else this is the error
            self.check_unchanged()
        if narrowed is None:
            return super().scanner(columns, filter, *arguments, **options)
        return narrowed.scanner(columns, wanted, *arguments, **options)

    def filter(self, expression: pc.Expression) -> SearchedDataset:
        """As pyarrow has it: the data set whose rows are those for which this is true too."""
        filtered: SearchedDataset = super().filter(expression)  # pyarrow makes it without calling __init__
        filtered._made_of = self._made_of
        filtered._filter = expression if self._filter is None else self._filter & expression
        return filtered

    def _narrowed(self, filter: pc.Expression) -> ds.FileSystemDataset | None:
        """The data set with the row groups in which a filter can be true; None where it skips nothing."""
        _, schema, format, filesystem, _, _ = self._made_of
        left = self._remaining_fragments(filter)
        return None if left is None else ds.FileSystemDataset(left, schema, format, filesystem)

    def _remaining_fragments(self, filter: pc.Expression) -> list[Any] | None:
        fragments, narrowing = self._made_of[0], self._made_of[5]
        chosen = narrowing.chosen(filter) if narrowing is not None else None
        return None if chosen is None else [with_groups(fragments[at], groups) for at, groups in chosen]

    def get_fragments(self, filter: pc.Expression | None = None) -> Any:
        """As pyarrow has it, of the row groups in which a filter can be true; FileChangedError if a file changed.

        Where there is none, one fragment without row groups remains: DataFusion plans no scan of no fragments.
        """
        try:
            left = None if filter is None or self._filter is not None else self._remaining_fragments(filter)
        finally:
            self.check_unchanged()
        if left is None:  # of a filtered data set it is pyarrow's error
            return super().get_fragments(filter)
        return iter(left or [with_groups(one, []) for one in self._made_of[0][:1]])

    def to_table(self, *arguments: Any, **options: Any) -> pa.Table:
        """As pyarrow has it; raises FileChangedError if a file changed before all was read."""
        table = super().to_table(*arguments, **options)
        self.check_unchanged()
        return table

    def to_batches(self, *arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """As pyarrow has it; raises FileChangedError if a file changed before all was read."""
        yield from super().to_batches(*arguments, **options)
        self.check_unchanged()

    def replace_schema(self, schema: pa.Schema) -> SearchedDataset:
        """The same files under another schema; a filter then speaks of other types, and chooses nothing."""
        fragments, _, format, filesystem, versions, _ = self._made_of
        return type(self)(fragments, schema, format, filesystem, versions)  # without a filter, as pyarrow does


def path_of(file: FileResult) -> str:
    """A file's path as pyarrow's file system takes it."""
    return store_of(file.file).absolute(file.file.path)


def read_error(path: str, error: Exception) -> ParquetBloomError:
    """Make one line of ours of pyarrow's error over a file."""
    first = first_line(error)
    if isinstance(error, UnicodeError):
        first = f"a column's name is no UTF-8, as pyarrow needs it ({first})"
    return DamagedFileError(path, f"cannot be read: {first}")

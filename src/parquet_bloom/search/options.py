"""Options of a search: the keywords of all functions that take a predicate, and their values.

check, prune, count, read_table, ... (**options: SearchOptions) -> Options    -> Search, evidence.Question
                                                                -> CallSource -> ResolvedSource -> Search
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypedDict

from parquet_bloom.errors import RequestError
from parquet_bloom.format.outline import Outline
from parquet_bloom.format.outlines import joined
from parquet_bloom.format.schema import Leaf
from parquet_bloom.options import RANGE_VALUES, ReadOptions, part
from parquet_bloom.process import ForkSafe
from parquet_bloom.storage.display import line, quantity
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.stores import still_at_version
from parquet_bloom.storage.tails import FarFile, TailFile
from parquet_bloom.storage.workers import ProgressCallback

# --- footers kept between calls -------------------------------------------------------------------
#
# Footers that a caller keeps between calls: asking the same files again then reads filters only.


def _store(at: Location) -> Any:
    """An identity of the file system, as far as it has one: the same path on another is another file."""
    return None if at.is_local else repr(getattr(at.filesystem, "__reduce__", lambda: None)())


class FooterCache:
    """Outlines of footers by path, size, modification time and inode; the least used ones leave.

    A file that was replaced or written to since has another version token and is read anew; on a store that
    tells neither time nor ETag nothing is kept. May be shared by threads.

    max_row_groups  so many are kept, of all files together (some 200 bytes a column each); and a quarter of that once
                    more, of files that were decided together
    """

    def __init__(self, max_row_groups: int = 1_000_000) -> None:
        self.max_row_groups = max_row_groups
        self._held = 0
        self._outlines: OrderedDict[tuple[Any, str], tuple[Any, Outline]] = OrderedDict()
        self._joined: OrderedDict[tuple[int, ...], _Joined] = OrderedDict()
        self._joined_held = 0
        self._lock = ForkSafe(threading.Lock)

    def __reduce__(self) -> tuple[Any, ...]:
        return FooterCache, (self.max_row_groups,)  # a copy begins without footers

    def __len__(self) -> int:
        return len(self._outlines)

    def __repr__(self) -> str:
        of = f"{quantity(self._held, 'row groups')} of at most {self.max_row_groups:,}"
        return line("FooterCache", [quantity(len(self), "files"), of])

    def opened(self, at: Location) -> Location:
        """A file of another storage, without its end if the outline is here and a request shows that it still fits."""
        held = self._outlines.get((_store(at), str(at)))
        return at if held is None or at.opened else still_at_version(at, held[0])

    def outline(self, source: OpenFile | TailFile | FarFile) -> Outline:
        """The outline of an open file, read if it is not here. Raises as OpenFile.outline."""
        version_token = source.version_token
        if version_token is None:
            return source.outline()
        key = (_store(source.location), source.path)
        with self._lock.own:
            held = self._outlines.get(key)
            if held is not None and held[0] == version_token:
                self._outlines.move_to_end(key)
                source.adopt(held[1])
                return held[1]
        outline = source.outline()
        if source.is_cut:  # to be looked at again, by where it ended before
            return outline
        with self._lock.own:
            old = self._outlines.pop(key, None)
            self._held += outline.n_row_groups - (old[1].n_row_groups if old is not None else 0)
            self._outlines[key] = version_token, outline
            while self._held > self.max_row_groups and len(self._outlines) > 1:
                _, (_, gone) = self._outlines.popitem(last=False)
                self._held -= gone.n_row_groups
        return outline

    def joined(self, outlines: Sequence[Outline]) -> tuple[Outline | None, list[int]]:
        """As format.outlines.joined has it: once for all questions about the same ones, of those that are kept here."""
        key = tuple(map(id, outlines))
        with self._lock.own:
            held = self._joined.get(key)
            if held is not None:
                self._joined.move_to_end(key)
                return held.joined, held.numbers
        found = _Joined(tuple(outlines), *joined(outlines))
        if found.joined is not None and found.joined.n_row_groups <= self.max_row_groups // 4:
            with self._lock.own:
                kept = {id(outline) for _, outline in self._outlines.values()}
                if key not in self._joined and kept.issuperset(key):
                    self._joined[key] = found
                    self._joined_held += found.joined.n_row_groups
                while self._joined_held > self.max_row_groups // 4:
                    _, gone = self._joined.popitem(last=False)
                    self._joined_held -= gone.joined.n_row_groups if gone.joined is not None else 0
        return found.joined, found.numbers


class _Joined(NamedTuple):
    """outlines: kept with the others, so that nothing else gets their ids."""

    outlines: tuple[Outline, ...]
    joined: Outline | None
    numbers: list[int]


# --- options of a question ------------------------------------------------------------------------

Nan = Literal["ieee", "largest"]


class AskOptions(TypedDict, total=False):
    """Options of every search; each has a default.

    nan           "ieee": no comparison with NaN is TRUE (SQL text in pyarrow); "largest": as in Spark, where NaN
                  equals itself and is more than any number. "largest" is the default of `dataset`, "ieee" of others
    use_filters   False: bounds and folders' names only
    range_values  a range of so many integers or dates is asked for one by one; 1000 unless given
    cache         footers that the caller keeps from one call to the next
    strict_index  with a key index: a file that it does not cover, or a part of it that is damaged, is a
                  StaleIndexError; otherwise such files are read as without it, and a note says so
    listing       False, with a key index: the files are those that the index names below the folders of the call, and
                  their versions are not asked for; files that came since are not seen. Of a table it changes nothing
    progress      is called with a Progress: for the files that are searched, then for the row groups that are read
    """

    nan: Nan
    use_filters: bool
    range_values: int
    cache: FooterCache | None
    strict_index: bool
    listing: bool
    progress: ProgressCallback | None


class SearchOptions(AskOptions, ReadOptions, total=False):
    """Options of a search over files or a table; each has a default. See AskOptions, ReadOptions."""


class DatasetSchema(NamedTuple):
    """The columns of a data set, for a search that sees some of its files only.

    leaves  what a file does not have of these is NULL there
    keys    the partition columns, as source.columns.partition_keys gives them
    path    of the file whose columns these are, for messages
    """

    leaves: tuple[Leaf, ...]
    keys: tuple[Leaf, ...]
    path: str = ""


@dataclass(frozen=True, slots=True)
class Options:
    """AskOptions, checked, and what only our own functions set.

    decide_true  ask filters too where their "no" would make TRUE the only outcome (NOT id = 5)
    skip_files   files that their folders' names exclude are not opened; their decision is None
    dataset_schema  in the place of the first file's columns and the folders' keys
    ignore_case  a column of another file whose name differs in case alone says nothing: it may be the same

    Raises RequestError for a `nan` that is neither.
    """

    nan: Nan = "ieee"
    use_filters: bool = True
    range_values: int = RANGE_VALUES
    cache: FooterCache | None = None
    strict_index: bool = False
    listing: bool = True
    progress: ProgressCallback | None = None
    decide_true: bool = False
    skip_files: bool = False
    dataset_schema: DatasetSchema | None = None
    ignore_case: bool = False

    def __post_init__(self) -> None:
        if self.nan not in ("ieee", "largest"):
            raise RequestError(f"nan {self.nan!r} is neither 'ieee' nor 'largest'")

    @classmethod
    def of(cls, options: SearchOptions, decide_true: bool = False, skip_files: bool = False) -> Options:
        """The same from a function's options."""
        return cls(**part(AskOptions, options), decide_true=decide_true, skip_files=skip_files)

"""A predicate over many files: names resolved once, then one decision a file, in order.

What every reading function shares (check, prune, count, read_table, dataset): which files there
are, what their folders say, what each row group may give.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from parquet_bloom.chunks.footer_cache import FooterCache
from parquet_bloom.chunks.hive import partition_keys
from parquet_bloom.errors import FilterWarning, ParquetBloomError, RequestError
from parquet_bloom.formats.metadata.outline import Outline
from parquet_bloom.formats.metadata.schema import Leaf, find_leaf, split_path
from parquet_bloom.predicates.bind import Bound, bind
from parquet_bloom.predicates.names import First, Schema
from parquet_bloom.predicates.outcomes import TRUE
from parquet_bloom.predicates.tree import Predicate
from parquet_bloom.search.evidence import Decision, Question, decide, literal_outcome, partition_outcome
from parquet_bloom.storage.paths import Found, locate
from parquet_bloom.storage.source import PathLike, Source
from parquet_bloom.storage.table_folders import refusing

logger = logging.getLogger("parquet_bloom")
logger.addHandler(logging.NullHandler())  # whoever wants the lines adds a handler; the warning is enough
_REMOTE_FILES = 16  # looked at side by side on a remote store


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a data set, for a search that sees some of its files only.

    leaves  what a file does not have of these is NULL there
    keys    the partition columns, as chunks.hive.partition_keys gives them
    path    of the file whose columns these are, for messages
    """

    leaves: tuple[Leaf, ...]
    keys: tuple[Leaf, ...]
    path: str = ""


@dataclass(frozen=True, slots=True)
class Options:
    """How far a search goes, see evidence.Question.

    skip_files   files that their folders' names exclude are not opened; their decision is None
    cache        footers that the caller keeps
    known        in the place of what the first file and all folders' names tell
    ignore_case  a column of another file whose name differs in case alone says nothing: it may be the same
    raw_files    files of tables are read as they are
    """

    nan: str = "ieee"
    use_filters: bool = True
    decide_true: bool = False
    range_values: int = 1000
    skip_files: bool = False
    cache: FooterCache | None = None
    known: Known | None = None
    ignore_case: bool = False
    raw_files: bool = False


@dataclass(slots=True)
class Searched:
    """One file and what is known of its row groups; without a decision its folder's name excluded it."""

    found: Found
    size: int = 0
    outline: Outline | None = None
    decision: Decision | None = None
    bound: Bound | None = None
    requests: int = 0
    bytes_read: int = 0
    stamp: object = None


def as_predicate(predicate: Any) -> Predicate:
    """SQL text, DNF lists, a pyarrow Expression or a tree -> a tree.

    Raises TextError with the spot marked, RequestError for lists that are no DNF.
    """
    if isinstance(predicate, str):
        from parquet_bloom.predicates.text import parse

        return parse(predicate)
    if isinstance(predicate, Predicate):
        return predicate
    from parquet_bloom.predicates.arrow import from_filters

    return from_filters(predicate)


class Search:
    """A predicate over located files. Iterating gives one Searched or one error a file, in order.

    columns, leaf  names beside the predicate's that the first file must have, see hold_names
    """

    def __init__(
        self, sources: PathLike | Sequence[PathLike], predicate: Any, filesystem: Any, options: Options
    ) -> None:
        self.predicate = as_predicate(predicate)
        self._tables = refusing(options.raw_files)
        self.located = locate(sources, filesystem, self._tables)
        self.options = options
        self._first: First | None = None
        self._refused: RequestError | None = None
        self.columns: list[str] = []
        self.leaf: str | None = None
        if options.known is not None:
            self.keys = options.known.keys
            self._first = First(options.known.leaves, options.known.path, options.ignore_case)
        else:
            self.keys = partition_keys(found.partitions for found in self.located.found)
        self._bound: tuple[Any, Bound, int] | None = None

    @property
    def files(self) -> list[Found]:
        return self.located.found

    def __iter__(self) -> Iterator[Searched | tuple[Found, ParquetBloomError]]:
        """Raises RequestError for what is wrong with the predicate, by the first footer that can be read."""
        rest = iter(self.files)
        for found in rest:
            yield self._try(found)
            if not found.is_local and self._first is not None:
                break  # its schema is what names of the others are held against
        with ThreadPoolExecutor(_REMOTE_FILES, "parquet-bloom-search") as pool:
            yield from pool.map(self._try, rest)

    def _try(self, found: Found) -> Searched | tuple[Found, ParquetBloomError]:
        try:
            return self._search(found)
        except RequestError as error:
            if error is self._refused:
                raise
            return found, type(error)(f"{found}: " + error.message)
        except ParquetBloomError as error:
            return found, error

    def _search(self, found: Found) -> Searched:
        if self.options.skip_files and found.partitions and self._first is not None:
            outcome = partition_outcome(self._question(self._first.leaves, found))
            if not outcome & TRUE:
                return Searched(found)
        with Source(found) as source:
            cache = self.options.cache
            outline = cache.outline(source) if cache is not None else source.outline()
            if self._tables is not None and (note := self._tables.see(source.path, outline)) is not None:
                logger.warning(note)
            question = self._question(outline.leaves, found)
            decision = decide(source, outline, question)
            searched = Searched(
                found, source.size, outline, decision, question.bound, source.requests, source.bytes_read, source.stamp
            )
        if decision.damaged:
            warn_of_damage(str(found), decision.damaged)
        return searched

    @property
    def notes(self) -> list[str]:
        """What footers say of tables that no folder shows, once for each kind of table."""
        return [] if self._tables is None else self._tables.notes()

    def _question(self, leaves: Sequence[Leaf], found: Found) -> Question:
        bound, literal = self._bind(leaves, found)
        o = self.options
        return Question(bound, found.partitions, o.nan, o.use_filters, o.decide_true, o.range_values, literal)

    def _bind(self, leaves: Sequence[Leaf], found: Found) -> tuple[Bound, int]:
        """The predicate over one file's columns; files of one schema share it."""
        last = self._bound
        if last is not None and last[0] is leaves:
            return last[1:]
        first = self._first if self._first is not None and self._first.leaves else None
        try:
            bound = bind(self.predicate, Schema(leaves, self.keys, first, strict=self.options.known is None))
        except RequestError as error:
            self._refused = self._refusal(found, error)
            raise self._refused from error
        literal = literal_outcome(bound, self.options.nan)
        if self._first is None:
            self.hold_names(leaves, found)
            self._first = First(leaves, str(found))
        self._bound = leaves, bound, literal
        return bound, literal

    def hold_names(self, leaves: Sequence[Leaf], found: Found) -> None:
        """Raise UnknownColumnError for a name that is not among the leaves of the first file and the folders' keys.

        `columns` are top-level names, as pyarrow takes them; `leaf` is the name of one leaf.
        """
        try:
            names = list(dict.fromkeys(leaf.path[0] for leaf in [*leaves, *self.keys]))
            for name in self.columns:
                if name not in names and name.split(".")[0] not in names:
                    find_leaf([Leaf(at, (there,), 0) for at, there in enumerate(names)], (name,))
            if self.leaf is not None and all(key.path != split_path(self.leaf) for key in self.keys):
                find_leaf(leaves, self.leaf)
        except RequestError as error:
            self._refused = self._refusal(found, error)
            raise self._refused from error

    def _refusal(self, found: Found, error: RequestError) -> RequestError:
        """An error about names or types, which says by which file it was found out."""
        count = len(self.files)
        of_many = f" (the first of {count:,} files)" if count > 1 else ""
        return type(error)(f"{found}{of_many}: " + error.message)


def warn_of_damage(path: str, damaged: list[str]) -> None:
    """One warning a file, however many of its filters are damaged."""
    message = f"{path}: {len(damaged)} damaged filters ignored, the first: {damaged[0]}"
    logger.warning(message)
    warnings.warn(message, FilterWarning, stacklevel=2)

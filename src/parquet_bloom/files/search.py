"""A predicate over many files: names resolved once, then one decision a file, in order.

What every reading function shares (check, prune, count, read_table, dataset): which files there
are, what their folders say, what each row group may give.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from parquet_bloom.errors import FilterWarning, ParquetBloomError, RequestError
from parquet_bloom.files.cache import FooterCache
from parquet_bloom.files.evidence import Decision, Question, decide, literal_outcome, partition_outcome
from parquet_bloom.files.partitions import partition_keys
from parquet_bloom.files.paths import Found, locate
from parquet_bloom.files.storage import PathLike, Source
from parquet_bloom.files.tables import refusing
from parquet_bloom.formats.outline import Outline
from parquet_bloom.formats.schema import Leaf
from parquet_bloom.predicates.bind import Bound, Schema, bind
from parquet_bloom.predicates.outcomes import TRUE
from parquet_bloom.predicates.tree import Predicate

logger = logging.getLogger("parquet_bloom")
logger.addHandler(logging.NullHandler())  # whoever wants the lines adds a handler; the warning is enough
_REMOTE_FILES = 16  # looked at side by side on a remote store


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a data set, for a search that sees some of its files only.

    leaves  what a file does not have of these is NULL there
    keys    the partition columns, as partitions.partition_keys gives them
    """

    leaves: tuple[Leaf, ...]
    keys: tuple[Leaf, ...]


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
    """A predicate over located files. Iterating gives one Searched or one error a file, in order."""

    def __init__(
        self, sources: PathLike | Sequence[PathLike], predicate: Any, filesystem: Any, options: Options
    ) -> None:
        self.predicate = as_predicate(predicate)
        self._tables = refusing(options.raw_files)
        self.located = locate(sources, filesystem, self._tables)
        self.options = options
        self._first: tuple[Leaf, ...] | None = None
        if options.known is not None:
            self.keys, self._first = options.known.keys, options.known.leaves
        else:
            self.keys = partition_keys(found.partitions for found in self.located.found)
        self._bound: tuple[Any, Bound, int] | None = None

    @property
    def files(self) -> list[Found]:
        return self.located.found

    def __iter__(self) -> Iterator[Searched | tuple[Found, ParquetBloomError]]:
        found = self.files
        if self.located.filesystem is None or len(found) < 2:
            yield from map(self._try, found)
            return
        # The first file alone: its schema is what names of the others are held against.
        yield self._try(found[0])
        with ThreadPoolExecutor(_REMOTE_FILES, "parquet-bloom-search") as pool:
            yield from pool.map(self._try, found[1:])

    def _try(self, found: Found) -> Searched | tuple[Found, ParquetBloomError]:
        try:
            return self._search(found)
        except RequestError as error:  # a column that this file lacks
            return found, type(error)(f"{found}: {error}")
        except ParquetBloomError as error:
            return found, error

    def _search(self, found: Found) -> Searched:
        if self.options.skip_files and found.partitions and self._first is not None:
            outcome = partition_outcome(self._question(self._first, found))
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

    def _question(self, leaves: tuple[Leaf, ...], found: Found) -> Question:
        bound, literal = self._bind(leaves)
        o = self.options
        return Question(bound, found.partitions, o.nan, o.use_filters, o.decide_true, o.range_values, literal)

    def _bind(self, leaves: tuple[Leaf, ...]) -> tuple[Bound, int]:
        """The predicate over one file's columns; files of one schema share it."""
        last = self._bound
        if last is not None and last[0] is leaves:
            return last[1:]
        first = self._first if self._first is not None else leaves
        known = {leaf.path for leaf in leaves}
        missing = [replace(leaf, index=len(leaves) + leaf.index) for leaf in first if leaf.path not in known]
        kinds = {leaf.path: _kind(leaf) for leaf in first}
        foreign = {leaf.index for leaf in leaves if kinds.get(leaf.path, _kind(leaf)) != _kind(leaf)}
        if self.options.ignore_case:
            folded = {_folded(leaf) for leaf in leaves}
            foreign |= {leaf.index for leaf in missing if _folded(leaf) in folded}
        bound = bind(self.predicate, Schema(leaves, self.keys, missing, frozenset(foreign)))
        literal = literal_outcome(bound, self.options.nan)
        self._first, self._bound = first, (leaves, bound, literal)
        return bound, literal


def _folded(leaf: Leaf) -> tuple[str, ...]:
    return tuple(part.lower() for part in leaf.path)


def _kind(leaf: Leaf) -> tuple[Any, ...]:
    """What must be the same in two files for one literal to mean the same; widths of integers may differ."""
    physical = "integer" if leaf.logical in (None, "INTEGER") and leaf.physical in (1, 2) else leaf.physical
    return physical, leaf.logical if physical != "integer" else None, leaf.scale, leaf.unit_ns, leaf.utc, leaf.repeated


def warn_of_damage(path: str, damaged: list[str]) -> None:
    """One warning a file, however many of its filters are damaged."""
    message = f"{path}: {len(damaged)} damaged filters ignored, the first: {damaged[0]}"
    logger.warning(message)
    warnings.warn(message, FilterWarning, stacklevel=2)

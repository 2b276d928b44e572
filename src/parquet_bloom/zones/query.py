"""A predicate over zone indexes: which zones may hold a row for which it is TRUE, and the rows of these.

Rows are read of row groups, and inside them of pages, that overlap a surviving zone:

    check -> row groups -> zones that may match -> the pages that hold their rows -> rows filtered

What the index leaves is read and filtered as if there were none, so the rows and their order are
those of `Scan`. A file that the index does not name is read as without it; one that it names and
that has changed is an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Unpack

import numpy as np
import pyarrow as pa

from parquet_bloom.errors import RequestError
from parquet_bloom.format.schema import Leaf
from parquet_bloom.options import PathLike, several
from parquet_bloom.predicates.bind import Bound, Opaque, Schema, bind, known_parts, terms_of
from parquet_bloom.predicates.outcomes import TRUE
from parquet_bloom.predicates.tree import Predicate
from parquet_bloom.rows.pages import RowSelection
from parquet_bloom.rows.scan import Scan
from parquet_bloom.rows.source_rows import FileRows
from parquet_bloom.search.evidence import INDEX
from parquet_bloom.search.log import FileResult, UnopenedFiles, open_groups
from parquet_bloom.search.options import Nan, Options, SearchOptions
from parquet_bloom.search.search import as_predicate
from parquet_bloom.source.results import Result, table_of
from parquet_bloom.storage.display import line_of
from parquet_bloom.zones.match import (
    check_content,
    check_sources,
    cover_of,
    covers_of_dataset,
    find_indexes,
    numbers_of,
)
from parquet_bloom.zones.reader import lance_errors, pylance
from parquet_bloom.zones.sources import is_lance, leaves_of_arrow
from parquet_bloom.zones.stretches import Cover, Stretches, ZoneEvidence


class Zone(NamedTuple):
    """Rows of a fragment that may match.

    start, length  row offsets in the fragment; a span, deleted rows included
    path           of the fragment, where the index says; else None
    """

    fragment: int
    start: int
    length: int
    path: str | None = None

    def __repr__(self) -> str:
        return line_of(self)


@dataclass(slots=True, repr=False)
class Matches(Result):
    """The zones that `query_index` found.

    zones      that may match, in order; with indexes over several columns, the parts of zones
    rows       that these span
    total_zones, total_rows   that were looked at
    uncovered  fragments of the data set that no index covers, of which nothing is known: read them whole
    unused     (part, reason) of each part of the predicate that told nothing
    """

    _more: ClassVar = ("rows",)

    zones: list[Zone] = field(default_factory=list)
    total_zones: int = 0
    total_rows: int = 0
    uncovered: list[int] = field(default_factory=list)
    unused: list[tuple[str, str]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """How many rows the zones hold, at most."""
        return sum(zone.length for zone in self.zones)

    def to_arrow(self) -> pa.Table:
        """A row a zone."""
        return table_of(Zone, self.zones)


def query_index(
    index: PathLike | Sequence[PathLike],
    predicate: Any,
    *,
    column: str | None = None,
    type: str | None = None,
    check: bool = True,
    nan: Nan = "ieee",
    root: PathLike | None = None,
) -> Matches:
    """Find the zones in which a row may match.

    index      `bloomfilter.lance` files, folders of them, or one Lance data set with its own indexes
    predicate  SQL text, DNF lists or a pyarrow Expression; `=`, IN, IS NULL, AND, OR and small ranges of
               integers tell, other parts are no evidence
    column, type  of an index that does not say of which column it is: its name, and its Arrow type
    check      whether the data are as they were when an index of ours was built
    root       the folder (or URI, or Lance data set) that the data are in: an index opens nothing else. Default:
               the folder that holds the folder of indexes, so data/ beside data-index/

    Raises StaleIndexError, DamagedFileError, StorageError, TextError, RequestError.
    """
    nan = Options(nan).nan
    many = several(index)
    tree = as_predicate(predicate)
    if len(many) == 1 and is_lance(many[0]):
        return _query_dataset(os.fspath(many[0]), tree, nan)
    covers = [cover_of(path, column, type) for path in find_indexes(many)]
    uncovered: set[int] = set()
    if check:
        uncovered.update(*(check_sources(cover, root) for cover in covers if cover.file.column is not None))
    _same_data(covers)
    leaves = tuple(replace(_leaf(cover), index=i) for i, cover in enumerate(covers))
    names = {cover.path for cover in covers}
    bound = bind(known_parts(tree, names.__contains__, "there is no index over this column"), Schema(leaves))
    paths: dict[int, str] = {}
    numbers: set[int] = set()
    for cover in covers:
        numbers.update(cover.file.fragment.tolist())
        paths |= {int(one["fragment"]): str(one["path"]) for one in cover.file.fragments or [] if "path" in one}
    matches = _matches(bound, covers, sorted(numbers), paths, nan)
    matches.uncovered = sorted(uncovered)
    return matches


def _matches(bound: Bound, covers: Sequence[Cover], numbers: Sequence[int], paths: dict[int, str], nan: Nan) -> Matches:
    evidence = ZoneEvidence(bound, covers, nan)
    matches = Matches()
    matches.unused = [(str(t.part), t.reason) for t in terms_of(bound) if isinstance(t, Opaque)]
    matches.unused += evidence.unused.items()
    for number in numbers:
        found = evidence.stretches(number)
        matches.total_zones += len(found.start)
        matches.total_rows += int((found.stop - found.start).sum())
        for start, stop in zip(found.start[found.open].tolist(), found.stop[found.open].tolist(), strict=True):
            matches.zones.append(Zone(number, start, stop - start, paths.get(number)))
    return matches


def _query_dataset(uri: str, tree: Predicate, nan: Nan) -> Matches:
    with lance_errors(uri):
        dataset = pylance().dataset(uri)
        there = sorted(int(f.fragment_id) for f in dataset.get_fragments())
        leaves, _ = leaves_of_arrow(dataset.schema)
    covers = covers_of_dataset(uri)
    if not covers:
        raise RequestError(
            f"{uri} has no zone index; parquet-bloom index build --kind lance and index register make one"
        )
    covered = frozenset().union(*(cover.fragments or () for cover in covers))
    matches = _matches(bind(tree, Schema(leaves)), covers, [n for n in there if n in covered], {}, nan)
    matches.uncovered = [n for n in there if n not in covered]
    return matches


def _same_data(covers: Sequence[Cover]) -> None:
    """Fragment 3 must be the same fragment in all indexes of a call."""

    def fragments(cover: Cover) -> list[tuple[object, ...]] | None:
        identities = cover.file.fragments
        of_lance = cover.file.column is not None and "dataset" in cover.file.column
        # Lance's columns lie apart. Of Parquet each column's bytes were compared, if they were to be.
        keys = ["fragment"] if of_lance else ["fragment", "path", "rows"]
        return None if identities is None else [tuple(one.get(key) for key in keys) for one in identities]

    for cover in covers[1:]:
        first = covers[0]
        if fragments(cover) is None or fragments(cover) != fragments(first):
            raise RequestError(f"{first.file.path} and {cover.file.path} are indexes of different data; ask one")
        if (cover.file.column or {}).get("dataset") != (first.file.column or {}).get("dataset"):
            raise RequestError(f"{first.file.path} and {cover.file.path} are indexes of different data; ask one")


def _leaf(cover: Cover) -> Leaf:
    leaves, _ = leaves_of_arrow(pa.schema([pa.field("c", cover.kind)]))
    if len(leaves) != 1:
        raise RequestError(f"{cover.file.path}: a column of {cover.kind} has no zone index")
    return replace(leaves[0], path=cover.path)


# --- a scan with indexes --------------------------------------------------------------------------


class IndexedScan(Scan):
    """A Scan that queries zone indexes too."""

    def __init__(
        self,
        source: PathLike | Sequence[PathLike],
        predicate: Any,
        index: PathLike | Sequence[PathLike],
        *,
        filesystem: Any = None,
        decide_true: bool = False,
        **options: Unpack[SearchOptions],
    ) -> None:
        super().__init__(source, predicate, filesystem=filesystem, decide_true=decide_true, **options)
        self._indexes = index
        self._ranges: dict[tuple[int, int], RowSelection] = {}

    def _searched(self) -> list[FileResult | UnopenedFiles]:
        files = super()._searched()
        opened = [file for file in files if isinstance(file, FileResult) and file.decision is not None]
        for file in opened:
            file.of_one_version = False  # pages are read by other requests
        covers = [cover_of(path) for path in find_indexes(self._indexes)]
        logged = self._search.found.snapshot.logged  # of which an index would know the files' own values
        covers = [cover for cover in covers if cover.path[0] not in logged]
        numbers = [numbers_of(cover.file, [file.file for file in opened]) for cover in covers]
        left = [file for file in opened if open_groups(file)]
        covers = [
            replace(cover, fragments=frozenset(known[f.file] for f in left if f.file in known))
            for cover, known in zip(covers, numbers, strict=True)
        ]
        evidence: dict[int, ZoneEvidence] = {}
        for file in left:
            pairs = zip(covers, numbers, strict=True)
            named = {cover.file.path: known[file.file] for cover, known in pairs if file.file in known}
            if not named:
                continue
            if not self._rows.same_names(file):
                raise RequestError(
                    f"{file.file}: has columns under other names than its table; read it without an index"
                )
            assert file.bound is not None
            key = id(file.bound)
            if key not in evidence:
                options = self._search.options
                evidence[key] = ZoneEvidence(file.bound, covers, options.nan, options.range_values)
            self._narrow(file, covers, named, evidence[key])
        return files

    def _narrow(self, file: FileResult, covers: Sequence[Cover], named: dict[str, int], evidence: ZoneEvidence) -> None:
        """Close the row groups of a file in which no zone survives; keep, for the others, which rows do."""
        assert file.outline is not None
        assert file.decision is not None
        with self.reopen(file) as source:
            for cover in covers:
                if cover.file.path in named:
                    check_content(cover, named[cover.file.path], source, open_groups(file))
        ends = np.cumsum(file.outline.rows)
        found = evidence.stretches(named, int(ends[-1]) if len(ends) else 0)
        decision = file.decision
        for group in open_groups(file):
            start, stop = int(ends[group] - file.outline.rows[group]), int(ends[group])
            inside = (found.start < stop) & (found.stop > start)
            decision.outcomes[group] &= np.bitwise_or.reduce(found.masks[inside])
            if not decision.outcomes[group] & TRUE:
                decision.stage[group] = INDEX
                continue
            ranges = _joined(found, inside & found.open, start, stop)
            if ranges.count < stop - start:
                self._ranges[id(file), group] = ranges

    def _wanted(self, file: FileResult, groups: Sequence[int]) -> Mapping[int, RowSelection]:
        if not isinstance(self._rows, FileRows):  # a table's rows are counted by their positions: deleted ones too
            return super()._wanted(file, groups)
        chosen = {group: self._ranges[id(file), group] for group in groups if (id(file), group) in self._ranges}
        return {**super()._wanted(file, [group for group in groups if group not in chosen]), **chosen}


def _joined(found: Stretches, kept: Any, start: int, stop: int) -> RowSelection:
    """The rows of some stretches inside a row group, counted from its start."""
    edges = np.clip(np.stack([found.start[kept], found.stop[kept]]), start, stop) - start
    return RowSelection.of_stretches(*edges)

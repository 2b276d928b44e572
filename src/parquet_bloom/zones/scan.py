"""Reads rows with a zone index: row groups, and inside them pages, that overlap a surviving zone.

    check -> row groups -> zones that may match -> the pages that hold their rows -> rows filtered

What the index leaves is read and filtered as if there were none, so the rows and their order are
those of `Scan`. A file that the index does not name is read as without it; one that it names and
that has changed is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from parquet_bloom.errors import RequestError
from parquet_bloom.options import PathLike
from parquet_bloom.predicates.outcomes import TRUE
from parquet_bloom.rows.scan import Scan
from parquet_bloom.rows.selection import RowSelection
from parquet_bloom.rows.source_rows import FileRows
from parquet_bloom.search.evidence import INDEX
from parquet_bloom.search.options import SearchOptions
from parquet_bloom.search.results import FileResult, UnopenedFiles, open_groups
from parquet_bloom.zones.match import check_content, cover_of, find_indexes, numbers_of
from parquet_bloom.zones.stretches import Cover, Stretches, ZoneEvidence

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

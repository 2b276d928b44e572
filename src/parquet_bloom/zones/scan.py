"""Rows by way of a zone index: row groups, and inside them pages, that overlap a surviving zone.

    check -> row groups -> zones that may match -> the pages that hold their rows -> rows filtered

What the index leaves is read and filtered as if there were none, so the rows and their order are
those of `Scan`. A file that the index does not name is read as without it; one that it names and
that has changed is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
import pyarrow as pa

from parquet_bloom.chunks.hive import partition_value
from parquet_bloom.errors import RequestError
from parquet_bloom.predicates.outcomes import TRUE
from parquet_bloom.search.evidence import INDEX
from parquet_bloom.search.options import SearchOptions
from parquet_bloom.search.scan import Scan
from parquet_bloom.search.search import FileResult, open_groups
from parquet_bloom.search.table_rows import Part
from parquet_bloom.storage.source import PathLike
from parquet_bloom.zones.match import check_content, cover_of, find_indexes, numbers_of
from parquet_bloom.zones.pages import PagePlan, RowRanges, plan_pages, read_pages
from parquet_bloom.zones.stretches import Cover, Stretches, ZoneEvidence


@dataclass(slots=True)
class PagesRead:
    """Of row groups that were read by pages: how many of their pages were, and what was left."""

    read: int = 0
    left: int = 0
    bytes_left: int = 0


class IndexedScan(Scan):
    """A Scan that asks zone indexes too.

    pages  what reading by pages saved, so far
    """

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
        self._ranges: dict[tuple[int, int], RowRanges] = {}
        self.pages = PagesRead()

    def _searched(self) -> list[FileResult]:
        files = super()._searched()
        opened = [file for file in files if file.decision is not None]
        covers = [cover_of(path) for path in find_indexes(self._indexes)]
        if self.table is not None:  # an index knows the files' own values alone
            covers = [cover for cover in covers if cover.path[0] not in self.table.snapshot.logged]
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
            if self._rows is not None and not self._rows.same_names(file):
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
            if int((ranges[:, 1] - ranges[:, 0]).sum()) < stop - start:
                self._ranges[id(file), group] = ranges

    # --- rows -------------------------------------------------------------------------------------

    def to_table(self, columns: str | Sequence[str] | None = None) -> pa.Table:
        """The rows that match, of the columns named, one or a list (None: all)."""
        schema = self.projected_schema(columns)
        return pa.Table.from_batches(list(self.to_batches(columns)), schema)

    # --- how --------------------------------------------------------------------------------------

    def _batches(self, parts: Sequence[Part], names: list[str] | None, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of row groups, in order; neighbours that are read whole go through one scanner."""
        if self._rows is not None:  # a table's rows are counted by their positions: no pages are left out
            yield from super()._batches(parts, names, batch_rows)
            return
        waiting: list[Part] = []
        for file, groups in parts:
            for group in groups:
                plan = self._plan(file, group, names)
                if plan is None:
                    if waiting and waiting[-1][0] is file:
                        waiting[-1][1].append(group)
                    else:
                        waiting.append((file, [group]))
                    continue
                yield from super()._batches(waiting, names, batch_rows)
                waiting = []
                yield from self._by_pages(file, plan, names).to_batches(batch_rows)
        yield from super()._batches(waiting, names, batch_rows)

    def _plan(self, file: FileResult, group: int, names: list[str] | None) -> PagePlan | None:
        ranges = self._ranges.get((id(file), group))
        wanted = self.schema.names if names is None else names
        if ranges is None or len(set(self.schema.names)) < len(self.schema.names):
            return None
        if any(name not in self.schema.names for name in wanted):
            return None  # a path into a struct
        with self.reopen(file) as source:
            return plan_pages(source, group, wanted, ranges)

    def _by_pages(self, file: FileResult, plan: PagePlan, names: list[str] | None) -> pa.Table:
        with self.reopen(file) as source:
            found = read_pages(source, plan, self.schema)
        if plan.whole:
            table = self._dataset([(file, [plan.row_group])]).to_table(columns=plan.whole)
            pieces = [table.slice(a, b - a) for a, b in plan.ranges.tolist()]
            table = pa.concat_tables(pieces)
            found |= {name: table.column(name) for name in plan.whole}
        rows = int((plan.ranges[:, 1] - plan.ranges[:, 0]).sum())
        wanted = self.schema.names if names is None else names
        columns = [found[name] if name in found else self._constant(file, name, rows) for name in wanted]
        self.pages.read += plan.pages_read
        self.pages.left += plan.pages_left
        self.pages.bytes_left += plan.bytes_left
        schema = pa.schema([self.schema.field(name) for name in wanted])
        if not columns:
            return pa.table({"": pa.nulls(rows)}).select([])
        return pa.Table.from_arrays(columns, schema=schema)

    def _constant(self, file: FileResult, name: str, rows: int) -> pa.Array:
        """A column of the folder's name, or one that this file lacks."""
        kind = self.schema.field(name).type
        key = next((key for key in self._search.keys if key.path == (name,)), None)
        value = None if key is None else partition_value(key, file.file.partitions)
        if value is None:
            return pa.nulls(rows, kind)
        text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
        return pa.DictionaryArray.from_arrays(
            pa.repeat(pa.scalar(0, pa.int32()), rows), pa.array([text], kind.value_type)
        )


def _joined(found: Stretches, kept: Any, start: int, stop: int) -> RowRanges:
    """The rows of some stretches inside a row group, counted from its start; neighbours joined."""
    ranges: list[list[int]] = []
    for a, b in zip(found.start[kept].tolist(), found.stop[kept].tolist(), strict=True):
        a, b = max(a, start) - start, min(b, stop) - start
        if ranges and ranges[-1][1] == a:
            ranges[-1][1] = b
        else:
            ranges.append([a, b])
    return np.array(ranges, np.int64).reshape(-1, 2)

"""The rows that match: the predicate's columns first, of the other columns only what holds a row that matches.

    row groups that can match -> pages whose bounds exclude no match -> the predicate's columns -> filter
        -> no row: nothing else is read
        -> few rows: of other columns the pages with these
        -> many: the other columns whole

Of a predicate that is an AND the columns of its most selective part go first (`scan` chooses it), then its others.

The rule of cost. A row group goes this way if its other columns have _LEAST bytes: a second read costs about a
millisecond. As soon as one has many rows that match, it and the next ones are read at once, all columns together, as
pyarrow then decodes them side by side: four row groups, then eight and so on, until few of them are such rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from parquet_bloom.filters.page_places import first_page_rows
from parquet_bloom.format.outline import extents_in
from parquet_bloom.predicates.outcomes import TRUE
from parquet_bloom.rows.fetched import FilePart, chunk_ranges
from parquet_bloom.rows.layouts import own_leaves, path_of
from parquet_bloom.rows.pages import Ahead, Positions, RowSelection, places_of, taken
from parquet_bloom.rows.pages_file import leaves_by_column
from parquet_bloom.rows.source_rows import NUMBER, RowGroups
from parquet_bloom.rows.unchanged import opened_as_searched
from parquet_bloom.search.log import FileResult
from parquet_bloom.storage.remote import in_order, side_by_side

_LEAST, _LEAST_REMOTE = 1 << 20, 4 << 20  # bytes of the other columns of a row group, compressed
_RUN = 4  # row groups that are read at once where many rows match; the next ones are decoded while one is filtered
_STRETCH = 1 << 12  # rows: a stretch of so many with one that matches is read as a page of a column would be
_FILTERED = 1 << 18  # rows of the predicate's columns in a batch, or more: a reader may want batches of one row
_FILTERED_AT_ONCE = 1 << 19  # the same where nobody says: each batch waits for the interpreter, which reads headers
_TOGETHER = 256  # row groups of which rows are chosen at a time
_AT_ONCE = 64 << 20  # bytes of the predicate's columns, of several row groups, that are read before any other ones


class Filter(Protocol):
    """Filters rows: by a predicate, a caller's Expression, or an engine's."""

    @property
    def columns(self) -> Sequence[str] | None:
        """The top-level columns it needs; None: any."""

    def filter_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that match, of a batch with those columns, and perhaps others."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """One row group of a file.

    first   whether the predicate's columns are read first
    large   whether it is worth to choose rows before all columns are read
    size    bytes of the predicate's columns, compressed
    later   the numbers of the file's other leaves
    asked   whether a filter let it pass
    wanted  the only rows of it that can match; None: any
    """

    file: FileResult
    group: int
    rows: int
    first: bool
    large: bool
    size: int
    later: Sequence[int]
    asked: bool
    wanted: RowSelection | None = None

    @property
    def part(self) -> FilePart:
        return self.file, [self.group]


_Kept = tuple[_Piece, list[pa.RecordBatch]]  # rows that a filter kept, the last column their positions


class Reading:
    """Reads rows of row groups in order, of some columns.

    rows    of the source
    names   of the columns, as SourceRows.batches has them, a filter's among them
    wanted  gives the only rows of row groups of a file that can match, by row group; any of the others
    passed  is called with a number of rows, of all that are not filtered yet, as the reading goes on
    """

    def __init__(
        self,
        rows: RowGroups,
        names: Sequence[str] | None,
        batch_rows: int | None,
        wanted: Callable[[FileResult, Sequence[int]], Mapping[int, RowSelection]],
        passed: Callable[[int], object] = lambda rows: None,
    ) -> None:
        self._rows, self._names, self._batch_rows = rows, names, batch_rows
        self._wanted, self._passed = wanted, passed
        self._every = list(rows.schema.names if names is None else names)
        names_differ = len(set(rows.schema.names)) == len(rows.schema.names)
        self._takes = bool(self._every) and names_differ and NUMBER not in self._every  # single rows of a row group
        self._first_page_rows: dict[tuple[int, int], int] = {}  # by id(file) and row group

    @cached_property
    def _schema(self) -> pa.Schema:
        return self._rows.projected(self._every)

    def candidates(self, parts: Sequence[FilePart]) -> Iterator[pa.RecordBatch]:
        """All rows that can match."""
        pieces = list(self._pieces(parts, ()))
        for start in range(0, len(pieces), _TOGETHER):
            for single, some in groupby(
                self._chosen(pieces[start : start + _TOGETHER]), lambda one: one.wanted is not None
            ):
                if not single:
                    yield from self._rows.batches(_parts(list(some)), self._names, self._batch_rows)
                    continue
                for piece in some:
                    assert piece.wanted is not None
                    for _, columns in self._at(piece, self._every, piece.wanted.positions()):
                        table = pa.Table.from_arrays([columns[name] for name in self._every], schema=self._schema)
                        yield from table.to_batches(self._batch_rows)

    def matching(
        self, parts: Sequence[FilePart], keep: Filter, sooner: Filter | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows that match.

        sooner  a filter of fewer columns that they all pass too, and few others
        """
        columns = list(dict.fromkeys(keep.columns or ()))
        fields = {path_of(name, self._rows.schema)[0] for name in self._every if name not in columns}
        # A field of a struct that the filter needs, too: the struct is read once.
        whole = self._takes and set(columns) <= set(self._every) and not fields & set(columns)
        filters = [keep] if sooner is None else [sooner, keep]
        first = list(dict.fromkeys(filters[0].columns or ())) if whole and columns else []
        pieces = list(self._pieces(parts, first))
        # A filter says that a row is likely to be there: several row groups are read at a time.
        likely = bool(pieces) and pieces[0].asked
        many = likely and pieces[0].first and _are_many([(pieces[0], self._page_rows(pieces[0]))])
        at, run = 0, _RUN if many else self._rows.threads if likely else 1  # run: how many pieces are read at a time
        while at < len(pieces):
            by_columns = pieces[at].first and not many
            stop, size = at + 1, pieces[at].size
            while stop < len(pieces) and pieces[stop].first == pieces[at].first:
                size += pieces[stop].size
                if pieces[at].first and (stop - at >= run or (by_columns and size > _AT_ONCE)):
                    break
                stop += 1
            some, before, found = pieces[at:stop], many, 0
            if by_columns:
                ahead = self._ahead(some, first)
                kept = list(self._kept(some, first, filters[0], ahead))
                sizes = [(piece, self._read_rows(piece, _positions(batches))) for piece, batches in kept]
                many = _are_many(sizes)
                if many:  # these, too, are read again
                    run = _RUN
                    continue
                # What is read whole pyarrow decodes in all threads: two row groups at a time take longer than in turn.
                apart = all(one[0].file.file.is_local and not _are_many([one]) for one in sizes)
                rows = self._by_columns(kept, ahead, filters, self._rows.threads if apart else 1)
            else:
                rows = self._at_once(some, keep)
            for batch in rows:
                found += batch.num_rows
                yield batch
            if pieces[at].first:
                read = found and found * self._page_rows(some[0])  # each in a page of its own
                many = _are_many([(some[0], read), *((piece, 0) for piece in some[1:])])
                run = 2 * run if many == before else 1
            at = stop

    def _pieces(self, parts: Sequence[FilePart], first: Sequence[str]) -> Iterator[_Piece]:
        later = [name for name in self._every if name not in first]
        for file, groups in parts:
            outline, decision = file.outline, file.decision
            assert outline is not None
            assert decision is not None
            stored = [self._rows.stored(file, names) for names in (first, later)]
            others_at = [leaf.index for leaf in own_leaves(outline) if leaf.path[0] in stored[1]]
            least = _LEAST if file.file.is_local else _LEAST_REMOTE
            for group in groups:
                own = others = 0
                some = self._takes and decision.outcomes[group] != TRUE
                if some:
                    own, others = (
                        sum(max(0, length) for _, length in chunk_ranges(outline, [group], names)) for names in stored
                    )
                by_columns = bool(first and later) and others >= least
                large, asked = some and own + others >= least, bool(decision.asked[group])
                yield _Piece(file, group, int(outline.rows[group]), by_columns, large, own, others_at, asked)

    def _page_rows(self, piece: _Piece) -> int:
        """The rows of a page, of the largest column that is read later; _STRETCH if it has smaller pages.

        Where its pages are not known yet, those of the first page; of a file on another storage _STRETCH.
        """
        outline = piece.file.outline
        assert outline is not None
        if not piece.later:
            return _STRETCH
        starts, stops = extents_in(outline.slots[:, piece.group][:, piece.later])
        leaf = own_leaves(outline)[piece.later[int((stops - starts).argmax())]]
        places = places_of(outline, piece.group, leaf)
        if places is not None:
            return max(_STRETCH, -(-piece.rows // len(places.pages)))
        if not piece.file.file.is_local:
            return _STRETCH
        chunk = id(piece.file), piece.group
        if chunk not in self._first_page_rows:
            with opened_as_searched(piece.file, self._rows.opened) as source:
                self._first_page_rows[chunk] = first_page_rows(source, outline, piece.group, leaf)
        return max(_STRETCH, self._first_page_rows[chunk])

    def _read_rows(self, piece: _Piece, positions: Positions) -> int:
        """The rows of those pages of a row group in which some rows lie; 0 without one."""
        if not len(positions):
            return 0
        rows = self._page_rows(piece)
        return len(np.unique(positions // rows)) * rows

    def _chosen(self, pieces: Sequence[_Piece]) -> Iterator[_Piece]:
        """The pieces, large ones with the only rows that can match; none of those without such a row."""
        large = {
            id(piece.file): (piece.file, [one.group for one in pieces if one.file is piece.file and one.large])
            for piece in pieces
            if piece.large
        }
        files = [file for file, _ in large.values()]
        local = all(file.file.is_local for file in files)
        chosen = (map if local else side_by_side)(lambda file: self._wanted(*large[id(file)]), files)
        wanted = dict(zip(large, chosen, strict=True))
        for piece in pieces:
            rows = wanted.get(id(piece.file), {}).get(piece.group) if piece.large else None
            if rows is None:
                yield piece
            elif rows.count:
                yield replace(piece, wanted=rows)
            else:
                self._passed(piece.rows)

    def _at_once(self, pieces: Sequence[_Piece], keep: Filter) -> Iterator[pa.RecordBatch]:
        """The rows that match: all columns are read together."""
        for batch in self.candidates(_parts(pieces)):
            self._passed(batch.num_rows)
            kept = keep.filter_batch(batch)
            if kept.num_rows:
                yield kept

    def _by_columns(
        self, kept: Sequence[_Kept], ahead: Ahead, filters: Sequence[Filter], threads: int
    ) -> Iterator[pa.RecordBatch]:
        """The rows that match, of those that the first filter kept: the other columns are read."""

        def widened(one: _Kept) -> tuple[int, list[pa.Table]]:
            piece, batches = one
            ahead.wait()
            kept = pa.Table.from_batches(batches) if batches else None
            for keep in filters[1:]:
                if kept is not None:
                    columns = [*dict.fromkeys([*kept.column_names[:-1], *(keep.columns or ())])]
                    wider = self._widened(piece, kept, columns)
                    found = [
                        one for table in wider for batch in table.to_batches() if len(one := keep.filter_batch(batch))
                    ]
                    kept = pa.Table.from_batches(found) if found else None
            return piece.rows, [] if kept is None else list(self._widened(piece, kept, self._every))

        with closing(in_order(widened, kept, threads if threads > 1 else 0, settle=True)) as results:
            for result in results:
                rows, tables = result()
                for table in tables:
                    yield from table.drop_columns([NUMBER]).to_batches(self._batch_rows)
                self._passed(rows)

    def _ahead(self, pieces: Sequence[_Piece], first: Sequence[str]) -> Ahead:
        """Begin to read where pages of the other columns lie, of row groups that rows are expected in.

        On other storages that is one request, of any row group. Of a file of this machine headers may have to be read,
        which takes as long as to decode a column: only where a filter says that a row is likely to be there.
        """
        ahead = Ahead()
        later = [name for name in self._every if name not in first]
        for file, groups in _parts(pieces):
            assert file.outline is not None
            assert file.decision is not None
            if file.file.is_local:
                groups = [group for group in groups if self._rows.threads > 1 and file.decision.asked[group]]
            elif (source := self._rows.opened.get(id(file.file))) is None or not source.is_remote:
                continue
            if groups:
                stored = self._rows.stored(file, later)
                leaves = [
                    one for name, some in leaves_by_column(file.outline).items() if name in stored for one in some
                ]
                ahead.read(file, self._rows.opened, groups, leaves)
        return ahead

    def _kept(self, pieces: Sequence[_Piece], first: list[str], keep: Filter, ahead: Ahead) -> Iterator[_Kept]:
        """The first columns of the rows that a filter keeps, the last one their positions in the row group."""
        for single, some in groupby(self._chosen(pieces), lambda piece: piece.wanted is not None):
            if not single:
                yield from self._kept_of(list(some), first, keep, ahead)
                continue
            for piece in some:
                assert piece.wanted is not None
                kept = []
                for positions, columns in self._at(piece, first, piece.wanted.positions()):
                    kept += [
                        keep.filter_batch(batch) for batch in self._numbered(first, columns, positions).to_batches()
                    ]
                yield piece, [batch for batch in kept if batch.num_rows]

    def _numbered(self, names: Sequence[str], columns: Mapping[str, Any], positions: Positions) -> pa.Table:
        """Columns, and the positions of their rows as the last one."""
        schema = self._rows.projected(names).append(pa.field(NUMBER, pa.int64()))
        return pa.Table.from_arrays([*(columns[name] for name in names), pa.chunked_array([positions])], schema=schema)

    def _kept_of(self, pieces: list[_Piece], first: list[str], keep: Filter, ahead: Ahead) -> Iterator[_Kept]:
        ends = np.cumsum([piece.rows for piece in pieces])
        starts = ends - [piece.rows for piece in pieces]
        found: list[list[pa.RecordBatch]] = [[] for _ in pieces]
        # Nothing else is read before the end: a scan of pyarrow's within another one can wait for ever (26.0.1, with
        # two threads), and what was fetched of a file on another storage goes when other columns of it are fetched.
        rows = _FILTERED_AT_ONCE if self._batch_rows is None else max(self._batch_rows, _FILTERED)
        with closing(self._rows.numbered(_parts(pieces), first, rows, ahead.meanwhile)) as batches:
            for batch, before in batches:
                at = int(np.searchsorted(ends, before + batch.column(len(first))[0].as_py(), "right"))
                kept = keep.filter_batch(batch)
                if kept.num_rows:
                    positions = pa.array(kept.column(len(first)).to_numpy() + (before - starts[at]))
                    found[at].append(kept.set_column(len(first), NUMBER, positions))
        yield from zip(pieces, found, strict=True)

    def _widened(self, piece: _Piece, kept: pa.Table, names: Sequence[str]) -> Iterator[pa.Table]:
        """Rows of a row group with more columns, stretch by stretch.

        kept   some columns, the last one their positions
        names  all columns, in the order in which they are wanted; the positions stay the last
        """
        later = [name for name in names if name not in kept.column_names]
        positions = kept.column(NUMBER).to_numpy()
        before = 0
        for some, others in self._at(piece, later, positions) if later else [(positions, {})]:
            part = kept.slice(before, len(some))
            yield self._numbered(names, {name: part.column(name) for name in part.column_names} | others, some)
            before += len(some)

    def _at(
        self, piece: _Piece, names: Sequence[str], positions: Positions
    ) -> Iterator[tuple[Positions, dict[str, pa.ChunkedArray]]]:
        """Columns of some rows of a row group, by pages if these are few; stretch by stretch, with their positions."""
        few = not _are_many([(piece, self._read_rows(piece, positions))])
        found = dict(self._rows.at(piece.part, names, RowSelection.of_positions(positions))) if few else {}
        rest = [name for name in names if name not in found]
        if not rest:
            yield positions, found
            return
        before = 0
        with closing(self._rows.numbered([piece.part], rest, self._batch_rows)) as batches:
            for batch, start in batches:
                numbers = batch.column(len(rest)).to_numpy()
                stop = int(np.searchsorted(positions, start + numbers[-1], "right"))
                if stop == before:
                    continue
                at = np.searchsorted(numbers, positions[before:stop] - start)
                columns = {name: pa.chunked_array([taken(batch.column(n), at)]) for n, name in enumerate(rest)}
                columns |= {name: column.slice(before, stop - before) for name, column in found.items()}
                yield positions[before:stop], columns
                before = stop


def _positions(batches: Sequence[pa.RecordBatch]) -> Positions:
    """The last column of what a filter kept."""
    found = [batch.column(batch.num_columns - 1).to_numpy() for batch in batches]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _are_many(found: Iterable[tuple[_Piece, int]]) -> bool:
    """Whether pages with a row that matches have so many of the rows that it is as well to read all of them.

    found  row groups, and how many rows these pages of each have, or more than it has
    """
    some = [(rows, piece.rows) for piece, rows in found]
    return 2 * sum(rows for rows, _ in some) > sum(rows for _, rows in some)


def _parts(pieces: Sequence[_Piece]) -> list[FilePart]:
    """Pieces as files and their row groups."""
    parts: list[FilePart] = []
    for piece in pieces:
        if parts and parts[-1][0] is piece.file:
            parts[-1][1].append(piece.group)
        else:
            parts.append(piece.part)
    return parts

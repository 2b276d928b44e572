"""The record of the filters that this package put into a file: key-value `parquet_bloom`.

A JSON list, one entry per `add`:

    [{"version": "0.1.0", "spec": "parquet-41-raw", "hash": "murmur3", "seed": 1361930890,
      "index": "mask", "columns": ["id"], "places": 2843371104}]

so that a form whose header does not say its hash needs no guess, and a bad release can be
recalled. "row_groups" is there when the entry speaks of some row groups only. A filter of
`statistics` lies in the footer: its offset is that of the chunk's first data page, its length that
of its text, and "strategy" stands for seed and index. An `add` that wrote filters and a second
footer behind a whole file says so in "tail": {"size": bytes of that file, "footer_crc32": of its FileMetaData}.
Where its filters were removed and its bytes stay, an object of nothing but "tail" stays too.

An entry on page indexes says of which kind they are, "of": "offset_index" or "column_index", and names no spec; its
`places` are theirs. Entries on repaired statistics (format.repairs) stay as they are.

Programs carry key-values into files they rewrite, so an entry is believed only while `places`,
the CRC-32 of (row group, column, offset, length) of its filters, matches the footer.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parquet_bloom.format.final import Rule
from parquet_bloom.format.footer import ChunkKey, Footer, IndexKind, derived
from parquet_bloom.format.footer_filters import filters_in_pairs
from parquet_bloom.format.repairs import KEY, entries_in, repairs_in
from parquet_bloom.format.schema import Leaf

_TAIL, _OF = "tail", "of"
Indexes = Mapping[IndexKind, Collection[ChunkKey]]  # page indexes by their kind and chunk
FilterRangeMap = Mapping[ChunkKey, tuple[int, int | None]]  # -> (bloom_filter_offset, bloom_filter_length)


@dataclass(frozen=True, slots=True)
class Entry:
    """One believed entry: where it is in the footer, its JSON object, and the filters or page indexes it speaks of."""

    pair: int  # position in key_value_metadata
    position: int  # position in the list
    body: dict[str, Any]
    chunks: tuple[ChunkKey, ...]

    @property
    def rule(self) -> Rule | None:
        """How the filters were hashed; None where the entry names no known rule."""
        try:
            name, seed, index = (self.body[k] for k in ("hash", "seed", "index"))
        except KeyError:
            return None
        if name not in ("xxh64", "murmur3") or index not in ("mask", "multiply-shift") or not isinstance(seed, int):
            return None
        return Rule(name, seed, index)

    @property
    def tail(self) -> tuple[int, int] | None:
        """Size and CRC-32 of the footer of the file that its filters were put behind; None where there is none."""
        return _tail_in(self.body)


def _tail_in(body: Mapping[str, Any]) -> tuple[int, int] | None:
    told = body.get(_TAIL)
    if not isinstance(told, dict):
        return None
    size, crc = told.get("size"), told.get("footer_crc32")
    return (size, crc) if type(size) is int and type(crc) is int else None


def recorded_tails(footer: Footer) -> list[tuple[int, int]]:
    """The earlier files by believed entries, by those that lost their filters, by repairs: size, CRC; longest first."""
    told = {entry.tail for kind in (None, *IndexKind) for entry in read_entries(footer, kind)}
    for pair in footer.key_values or []:
        bodies = entries_in(pair.value) if pair.key == KEY else []
        told |= {_tail_in(body) for body in bodies if isinstance(body, dict) and body.keys() == {_TAIL}}
    return sorted({one for one in told if one is not None} | repair_tails(footer), reverse=True)


def repair_tails(footer: Footer) -> set[tuple[int, int]]:
    """The same of the earlier files by entries that speak of repaired statistics, believed or not."""
    return {tail for body in repairs_in(footer.key_values) if (tail := _tail_in(body)) is not None}


def tail_facts(size: int, footer: Footer) -> dict[str, Any]:
    """The facts of an entry on the file before its tail: bytes of it, and its footer."""
    return {_TAIL: {"size": size, "footer_crc32": zlib.crc32(footer.data)}}


# An entry names columns and row groups, and `places` is the checksum of all filters that lie in these. So an entry is
# believed of all its filters or of none: if one of them moved, went, or came beside, the sum differs. So every edit of
# ours writes entries anew (`rewritten`), and those of a file that another program rewrote match no more.


def ranges_crc(filter_ranges: FilterRangeMap) -> int:
    """CRC-32 over the filters' ranges in order, each as little-endian i32, i32, i64, i64 (no length: 0)."""
    mask = (1 << 64) - 1  # a damaged footer may hold more than 64 bits
    packed = b"".join(
        struct.pack("<iiQQ", *key, offset & mask, (length or 0) & mask)
        for key, (offset, length) in sorted(filter_ranges.items())
    )
    return zlib.crc32(packed)


def all_ranges(footer: Footer) -> dict[ChunkKey, tuple[int, int | None]]:
    """Filters that the footer points at; for chunks without one, those that the footer holds in column metadata."""
    held = filters_in_pairs(footer).items()
    return {key: (footer.meta(*key).data_page_offset, one.length) for key, one in held} | footer.filter_ranges


@derived
def read_entries(footer: Footer, kind: IndexKind | None = None) -> list[Entry]:
    """The entries that still match the footer; all others are foreign or stale and stay.

    kind  of page indexes; None: those on filters
    """
    entries: list[Entry] = []
    ranges: FilterRangeMap | None = None
    for at, pair in enumerate(footer.key_values or []):
        if pair.key != KEY:
            continue
        if ranges is None:
            ranges = all_ranges(footer) if kind is None else footer.index_ranges(kind)
        entries.extend(_believed(at, entries_in(pair.value), footer.leaves, ranges, kind))
    return entries


def our_indexes(footer: Footer) -> Indexes:
    """The page indexes that believed entries speak of."""
    return {kind: {key for entry in read_entries(footer, kind) for key in entry.chunks} for kind in IndexKind}


def _integers(groups: Any) -> set[int] | None:
    """The row groups an entry names; None where it names none, and so means all."""
    if groups is None:
        return None
    return {group for group in groups if type(group) is int} if isinstance(groups, list) else set()


def _believed(
    pair: int, bodies: list[Any], leaves: tuple[Leaf, ...], filter_ranges: FilterRangeMap, kind: IndexKind | None
) -> Iterable[Entry]:
    for position, body in enumerate(bodies):
        if not isinstance(body, dict) or not isinstance(body.get("columns"), list) or body.get(_OF) != kind:
            continue
        names = {name for name in body["columns"] if isinstance(name, str)}
        columns = {leaf.index for leaf in leaves if leaf.name in names}
        groups = _integers(body.get("row_groups"))
        # All filters that lie in these columns and row groups now, also those that a later program put there.
        chunks = {
            key: filter_range
            for key, filter_range in filter_ranges.items()
            if key[1] in columns and (groups is None or key[0] in groups)
        }
        if chunks and ranges_crc(chunks) == body.get("places"):
            yield Entry(pair, position, body, tuple(sorted(chunks)))


def rules_of(entries: Iterable[Entry]) -> dict[ChunkKey, Rule]:
    """The hash rule of each believed entry's filters."""
    return {key: rule for entry in entries if (rule := entry.rule) is not None for key in entry.chunks}


def new_entries(
    version: str, spec: str | None, described: Mapping[str, Any], footer: Footer, filter_ranges: FilterRangeMap
) -> list[dict[str, Any]]:
    """Entries for the filters one `add` wrote: columns that fill the same row groups share one.

    spec       None of page indexes
    described  how values became bits, see format.forms.Format; of page indexes their kind, see `kind_facts`
    footer     of the file the filters went into, for its names
    filter_ranges  of the new filters only
    """
    shared: dict[str, Any] = {"version": version, **({} if spec is None else {"spec": spec}), **described}
    if footer.key_values == []:
        shared["empty_list"] = True  # so that `remove` can leave an empty list behind, not none
    return [_speak_of(shared, part, footer.leaves, footer.n_row_groups) for part in _rectangles(filter_ranges)]


def _rectangles(filter_ranges: FilterRangeMap) -> Iterator[dict[ChunkKey, tuple[int, int | None]]]:
    """Split ranges into columns x row groups, which is what an entry can speak of."""
    # First the row groups of each column, then the columns that have the same row groups.
    groups_of: dict[int, list[int]] = defaultdict(list)
    for group, column in sorted(filter_ranges):
        groups_of[column].append(group)
    columns_of: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for column, groups in sorted(groups_of.items()):
        columns_of[tuple(groups)].append(column)
    for filled, columns in columns_of.items():
        yield {(group, column): filter_ranges[group, column] for column in columns for group in filled}


def _speak_of(
    body: Mapping[str, Any], filter_ranges: FilterRangeMap, leaves: Sequence[Leaf], n_row_groups: int
) -> dict[str, Any]:
    """The entry `body`, made to speak of these filters."""
    rest = {key: value for key, value in body.items() if key not in ("columns", "row_groups", "places")}
    groups = sorted({group for group, _ in filter_ranges})
    rest["columns"] = [leaves[column].name for column in sorted({column for _, column in filter_ranges})]
    if len(groups) < n_row_groups:
        rest["row_groups"] = groups
    return {**rest, "places": ranges_crc(filter_ranges)}


def kind_facts(kind: IndexKind) -> dict[str, Any]:
    """The facts of an entry on page indexes."""
    return {_OF: str(kind)}


def rewritten(
    footer: Footer,
    filter_ranges: FilterRangeMap,
    added: list[dict[str, Any]],
    keep_tails: bool = False,
    index_ranges: Mapping[IndexKind, FilterRangeMap] | None = None,
) -> tuple[dict[int, str | None], list[tuple[str, str]]]:
    """The key-values after an edit: believed entries follow their filters, emptied ones go.

    footer  as it was
    filter_ranges  after the edit, of the filters that stay; those replaced or gone are not in it
    added   new entries
    keep_tails  what emptied entries say of tails stays
    index_ranges  after the edit, of the page indexes that stay; None: all stay where they are
    returns changes for format.edits: position -> text or None, and pairs to append
    """
    # Key-values stay in their order, and new entries go into the first list with one that is believed.
    # What holds: an entry that was believed before is believed after, of those of its filters that are still there;
    # an entry that was not believed keeps its text; and an emptied list takes its key-value along. So `remove` after
    # `add` gives the old key-values back, byte for byte.
    by_pair: dict[int, dict[int, Entry]] = defaultdict(dict)
    after: dict[tuple[int, int], FilterRangeMap] = {}
    for kind, ranges in ((None, filter_ranges), *(index_ranges or {}).items()):
        for entry in read_entries(footer, kind):
            by_pair[entry.pair][entry.position] = entry
            after[entry.pair, entry.position] = ranges
    changes: dict[int, str | None] = {}
    pairs = footer.key_values or []
    for at, known in by_pair.items():
        bodies = entries_in(pairs[at].value)
        kept: list[Any] = []
        for i, body in enumerate(bodies):
            followed = _follow(known[i], after[at, i], footer) if i in known else [body]
            # An entry without filters is dropped. If its tail stays in the file, its "tail" stays, once.
            tail = {_TAIL: body[_TAIL]} if keep_tails and i in known and not followed and known[i].tail else None
            kept += followed if tail is None or tail in kept else [tail]
        if added:
            kept, added = kept + added, []
        changes[at] = _text(kept) if kept else None
    return changes, [(KEY, _text(added))] if added else []


def renumbered(
    footer: Footer,
    fresh: Footer,
    numbers: Mapping[int, int],
    ranges: Mapping[IndexKind | None, FilterRangeMap],
    added: list[dict[str, Any]],
) -> tuple[dict[int, str | None], list[tuple[str, str]]]:
    """The key-values of a file some of whose row groups were written again, as `rewritten` returns them.

    fresh    its new footer
    numbers  old number of a row group -> the new one, of those whose bytes are as they were
    ranges   of filters (None) and page indexes, by the new numbers
    added    entries of the row groups that were written again

    Believed entries speak of these alone. Entries on repaired statistics go, whose proof no longer holds, and so do
    tails, as no older footer is there.
    """
    changes: dict[int, str | None] = {}
    known = {(e.pair, e.position): (kind, e) for kind in (None, *IndexKind) for e in read_entries(footer, kind)}
    for at, pair in enumerate(footer.key_values or []):
        bodies = entries_in(pair.value) if pair.key == KEY else []
        kept: list[Any] = []
        for position, body in enumerate(bodies):
            if (at, position) in known:
                kind, entry = known[at, position]
                keys = [(numbers[group], column) for group, column in entry.chunks if group in numbers]
                left = {key: ranges[kind][key] for key in keys if key in ranges[kind]}
                facts = {name: fact for name, fact in entry.body.items() if name != _TAIL}
                kept += [_speak_of(facts, part, fresh.leaves, fresh.n_row_groups) for part in _rectangles(left)]
            elif not isinstance(body, dict) or (body.keys() != {_TAIL} and body not in [*repairs_in([pair])]):
                kept.append(body)
        if bodies and added:
            kept, added = kept + added, []
        if bodies and kept != bodies:
            changes[at] = _text(kept) if kept else None
    return changes, [(KEY, _text(added))] if added else []


def _follow(entry: Entry, filter_ranges: FilterRangeMap, footer: Footer) -> list[dict[str, Any]]:
    """The entry after its filters moved, or in parts after some of them were removed."""
    # A whole entry keeps its other fields as they are, in their order, also those that a later version wrote. One that
    # lost filters is cut into rectangles, since what is left of a rectangle need not be one.
    left = {key: filter_ranges[key] for key in entry.chunks if key in filter_ranges}
    if len(left) == len(entry.chunks):
        return [{**entry.body, "places": ranges_crc(left)}]
    return [_speak_of(entry.body, part, footer.leaves, footer.n_row_groups) for part in _rectangles(left)]


def _text(bodies: list[dict[str, Any]]) -> str:
    return json.dumps(bodies, separators=(",", ":"), ensure_ascii=False)

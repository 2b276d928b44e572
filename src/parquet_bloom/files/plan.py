"""Which column chunks get a filter, and for each that does not, why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from parquet_bloom._thrift.parquet.ttypes import ColumnMetaData, Encoding, PageType
from parquet_bloom.errors import RefusedTypeError, RequestError
from parquet_bloom.files.build import Sizing
from parquet_bloom.formats.edits import foreign_filter_fields
from parquet_bloom.formats.footer import Footer
from parquet_bloom.formats.schema import Leaf, choose_leaves, is_pattern, match_leaves, select_leaves
from parquet_bloom.kernels import split_block

Chunk = tuple[int, int]

_DICTIONARY = {Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY}
_LEVELS = {Encoding.RLE, Encoding.BIT_PACKED}
_DATA_PAGES = {PageType.DATA_PAGE, PageType.DATA_PAGE_V2}


@dataclass(frozen=True, slots=True)
class Skipped:
    """Column chunks that get no filter; row_group None means all of them."""

    column: str
    row_group: int | None
    reason: str


@dataclass(slots=True)
class Plan:
    """What `add` will do with one file."""

    chosen: dict[Chunk, Sizing] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def columns(self) -> list[int]:
        return sorted({column for _, column in self.chosen})


def check_fpp(fpp: float | Mapping[str, float] | None) -> None:
    """Refuse a rate that is none, before any file is opened."""
    for rate in fpp.values() if isinstance(fpp, Mapping) else [fpp]:
        if rate is not None and not 0 < rate < 1:
            raise RequestError(f"fpp {rate} is not between 0 and 1")


def check_sizes(ndv: int | None, max_bytes: int | None) -> int:
    """Refuse impossible sizes; return the largest power of two of bytes that a filter may take."""
    if ndv is not None and ndv < 1:
        raise RequestError(f"ndv {ndv} is not positive")
    if max_bytes is None:
        return split_block.MAX_BYTES
    if max_bytes < split_block.MIN_BYTES:
        raise RequestError(f"max-bytes {max_bytes} is less than the smallest filter, {split_block.MIN_BYTES} bytes")
    return min(1 << (max_bytes.bit_length() - 1), split_block.MAX_BYTES)


def plan(
    footer: Footer,
    columns: Sequence[str] | None,
    exclude: Sequence[str] | None,
    fpp: float | Mapping[str, float] | None,
    ndv: int | None,
    max_bytes: int | None,
    replace: bool,
) -> Plan:
    """Decide for every column chunk of one file.

    Raises UnknownColumnError, and RefusedTypeError where a column that was asked for by its name
    has a type that is refused (one that only a pattern fits is skipped, with the reason).
    """
    limit = check_sizes(ndv, max_bytes)
    leaves = footer.leaves
    wanted = select_leaves(leaves, columns, exclude)
    names = [c for c in columns or () if not is_pattern(leaves, c)]
    named = {leaf.index for leaf in choose_leaves(leaves, names)}
    rates = _rates(leaves, fpp)
    foreign = set() if footer.exact else foreign_filter_fields(footer.data)
    made = Plan()
    for leaf in wanted:
        if leaf.refusal is not None:
            if leaf.index in named:
                raise RefusedTypeError(f"column {leaf.name} ({leaf.type_name}): {leaf.refusal}")
            made.skipped.append(Skipped(leaf.name, None, f"{leaf.type_name}: {leaf.refusal}"))
            continue
        sizing = Sizing(rates.get(leaf.index, rates[-1]), ndv, limit)
        reasons: dict[int, str] = {}
        for group in range(footer.n_row_groups):
            meta = footer.meta(group, leaf.index)
            reason = _why_not(meta, replace, forced=leaf.index in named)
            if (group, leaf.index) in foreign:
                reason = "another program keeps something else where a filter's place goes in the footer"
            if reason:
                reasons[group] = reason
            else:
                made.chosen[group, leaf.index] = sizing
        made.skipped += _summarise(leaf, reasons, footer.n_row_groups)
    return made


def _rates(leaves: Sequence[Leaf], fpp: float | Mapping[str, float] | None) -> dict[int, float]:
    """Column -> target rate; -1 -> that of all others. A mapping's key "*" is such a default too."""
    check_fpp(fpp)
    if not isinstance(fpp, Mapping):
        return {-1: 0.01 if fpp is None else fpp}
    rates = {-1: fpp.get("*", 0.01)}
    for name, rate in fpp.items():
        if name != "*":
            rates.update((leaf.index, rate) for leaf in match_leaves(leaves, name))
    return rates


def _why_not(meta: ColumnMetaData, replace: bool, forced: bool) -> str | None:
    if (meta.bloom_filter_offset or 0) > 0:
        return None if replace else "has a filter"  # whatever is found, the old one goes
    nulls = meta.statistics.null_count if meta.statistics is not None else None
    if meta.num_values <= 0 or (nulls is not None and nulls >= meta.num_values):
        return "no value is stored"
    if not forced and wholly_dictionary_encoded(meta):
        return "wholly dictionary-encoded: its dictionary answers already (name the column to add one anyway)"
    return None


def wholly_dictionary_encoded(meta: ColumnMetaData) -> bool:
    """Whether every data page certainly refers to the dictionary; False where that is not known."""
    if meta.encoding_stats:
        pages = [s for s in meta.encoding_stats if s.page_type in _DATA_PAGES and s.count]
        return bool(pages) and all(s.encoding in _DICTIONARY for s in pages)
    # Without statistics only the old name is clear: PLAIN beside RLE_DICTIONARY may be the
    # dictionary page's own encoding or that of data pages behind it.
    encodings = set(meta.encodings or ())
    return bool(encodings & _DICTIONARY) and encodings <= _DICTIONARY | _LEVELS


def _summarise(leaf: Leaf, reasons: dict[int, str], n_row_groups: int) -> list[Skipped]:
    if len(reasons) == n_row_groups and len(set(reasons.values())) == 1:
        return [Skipped(leaf.name, None, next(iter(reasons.values())))]
    return [Skipped(leaf.name, group, reason) for group, reason in reasons.items()]


def upper_bound(footer: Footer, made: Plan) -> int:
    """Bytes that the planned filters take at most, headers included."""
    total = 0
    for (group, column), sizing in made.chosen.items():
        values = max(1, footer.meta(group, column).num_values)
        # Twice: an allocation whose exact rate misses the target by chance is built again larger.
        size = 2 * split_block.size_for(max(values, sizing.ndv or 0), sizing.fpp, sizing.max_bytes)
        total += min(size, sizing.max_bytes) + 32
    return total

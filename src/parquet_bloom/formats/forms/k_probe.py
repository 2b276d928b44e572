"""`statistics`: the form of the 2015 draft, built for as many distinct values as there are; it lies in the footer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.errors import parameter
from parquet_bloom.formats import draft_2015
from parquet_bloom.formats.draft_2015 import Style, built, key_values, style_named
from parquet_bloom.formats.forms.form import USELESS_FPP, Batches, BuiltFilter, Placement, Sizing
from parquet_bloom.formats.metadata.footer import ChunkKey, Footer
from parquet_bloom.formats.metadata.schema import Leaf
from parquet_bloom.formats.values import stored_floats, twins
from parquet_bloom.kernels import k_probe

_LOOSE_HASHES = 1 << 20  # so many are held before they are made distinct


@dataclass(frozen=True, slots=True)
class KProbeForm:
    """The form of the 2015 draft, see formats.forms.form.Format.

    style  which of the families' filters to write
    """

    style: Style = Style()  # noqa: RUF009 - it is frozen
    name: str = "statistics"
    placements: tuple[Placement, ...] = ()
    writes_length: bool = False
    breaks: str = ""
    fpp: float = draft_2015.FPP
    max_bytes: int = draft_2015.MAX_BYTES

    @property
    def described(self) -> Mapping[str, Any]:
        """The family and its strategy."""
        return {"hash": self.style.family, "strategy": self.style.strategy}

    def styled(self, hash_family: str | None, strategy: str | None) -> KProbeForm:
        """The form in the style of a family."""
        return replace(self, style=style_named(hash_family, strategy))

    def refusal(self, leaf: Leaf) -> str | None:
        """Why the draft has no filter for such a column."""
        return draft_2015.refusal(leaf)

    def chunk_refusal(self, footer: Footer, key: ChunkKey) -> str | None:
        """Of an empty list of key-values: when the filter's have gone again, no list would be there."""
        if footer.meta(*key).key_value_metadata == []:
            return "its list of key-values is there and empty, which remove could not bring back"
        return None

    def most_bytes(self, n_values: int, sizing: Sizing) -> int:
        """A long takes up to ten bytes, and then base64."""
        bits, _ = k_probe.size_for("orc", sizing.ndv or 2 * n_values, sizing.fpp, 8 * sizing.max_bytes)
        return 200 + bits // 64 * 10 * 4 // 3

    def build(self, batches: Batches, leaf: Leaf, n_values: int, sizing: Sizing) -> BuiltFilter:
        """Build a filter for as many distinct values as there are, or as ndv says; n_values does not matter."""
        rule = self.style.rule(leaf)
        hashes = distinct_hashes(batches(), leaf, rule)
        if not len(hashes[0]):
            return BuiltFilter(None, "no value is stored")
        family = self.style.family
        num_bits, k = k_probe.size_for(family, sizing.ndv or len(hashes[0]), sizing.fpp, 8 * sizing.max_bytes)
        wanted, _ = k_probe.size_for(family, len(hashes[0]), sizing.fpp)
        bloom = built(rule, [hashes], num_bits, k)
        fpp = k_probe.fpp_of(bloom.longs, k)
        if fpp > USELESS_FPP:
            shown = f"{num_bits // 8} bytes reach a false positive rate of {fpp:.0%} only"
            return BuiltFilter(None, f"{shown}: give more " + parameter("ndv" if sizing.ndv else "max_bytes"), fpp)
        texts = tuple(key_values(bloom))
        estimate = k_probe.estimated_ndv(bloom.longs, k)
        return BuiltFilter(b"", "", fpp, num_bits // 8, estimate, num_bits >= wanted, texts)

    def is_smallest(self, leaf: Leaf, n_values: int, sizing: Sizing) -> bool:
        """No filter is built together with others."""
        return False

    def build_smallest(self, arrays: Sequence[tuple[int, pa.Array]], sizing: Sizing) -> dict[int, BuiltFilter]:
        """None of them."""
        return {}


def distinct_hashes(batches: Iterable[pa.Array], leaf: Leaf, rule: k_probe.KProbeRule) -> k_probe.Hashes:
    """The hashes of all values and of the twins of zeros and NaNs, each once; as rule.hash_values."""
    held: list[NDArray[np.uint64]] = []  # uint64[n, 1 or 2]
    loose = known = 0
    for values in batches:
        held.append(np.column_stack(rule.hash_values(values)))
        loose += len(held[-1])
        plain = twins(stored_floats(values, leaf)) if leaf.float_bits else []
        if plain:
            held.append(np.array([rule.hash_value(p) for p in plain], np.uint64))
        if loose > max(known, _LOOSE_HASHES):
            held = [_distinct(held)]
            known, loose = len(held[0]), 0
    if not held:
        return (np.empty(0, np.uint64),)
    return tuple(np.ascontiguousarray(_distinct(held).T))


def _distinct(held: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    # Sorted, as numpy's own unique takes a hash table, which is some forty times slower here.
    rows = np.concatenate(held)
    rows = rows[np.argsort(rows[:, 0])] if rows.shape[1] > 1 else np.sort(rows, axis=0)
    same = rows[1:] == rows[:-1]
    if (same[:, 0] & ~same[:, -1]).any():  # first halves that several values share: hardly ever
        rows = rows[np.lexsort(rows.T)]
        same = rows[1:] == rows[:-1]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = ~same.all(axis=1)
    found: NDArray[np.uint64] = rows[fresh]
    return found

"""Which row groups lack a filter that somebody counts on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parquet_bloom.chunks.stored import is_sound
from parquet_bloom.formats.contents import counts_in
from parquet_bloom.formats.metadata.footer import Footer
from parquet_bloom.formats.metadata.schema import Leaf, select_leaves


def lacking_filters(
    footer: Footer,
    leaves: Sequence[Leaf],
    filters: Sequence[Any],
    columns: Sequence[str] | None,
    exclude: Sequence[str] | None,
) -> dict[str, list[int]]:
    """Column -> row groups that hold a value of it, or may, and have no filter that readers use.

    leaves   of the file, as people name them
    filters  audit.inspect.FilterInfo of the file, of these columns at least; one with problems is none
    columns  names or patterns; None: no column is asked for
    Raises UnknownColumnError.
    """
    if columns is None:
        return {}
    sound = {(one.row_group, one.column) for one in filters if is_sound(one)}
    lacking = {}
    for leaf in select_leaves(leaves, columns, exclude):
        groups = [
            n for n in range(footer.n_row_groups) if (n, leaf.name) not in sound and _holds(footer, n, leaf.index)
        ]
        if groups:
            lacking[leaf.name] = groups
    return lacking


def _holds(footer: Footer, group: int, column: int) -> bool:
    """Whether a column chunk holds a value that is no NULL; True where the footer does not say."""
    values, nulls = counts_in(footer.meta(group, column))
    return values > 0 and values != nulls

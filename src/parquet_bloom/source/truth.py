"""The true statistics of a table's column in one file, which a log's own are compared with, and written anew from."""

from __future__ import annotations

from typing import Any, NamedTuple


class LeafTruth(NamedTuple):
    """The true statistics of one leaf in one file, by its decoded values.

    values     how many are no NULL; nulls: how many are, None: the leaf is repeated, where programs count differently
    nans       how many of the values are NaN
    low, high  the least and the greatest value but NaN, as FileBounds has them; None: there is none, or a NaN, beside
               which engines miss rows by right bounds, or the file's order is none of the table's
    in_order   whether low and high are known: a file may have another unit, or a type without an order
    """

    values: int
    nulls: int | None
    nans: int = 0
    low: Any = None
    high: Any = None
    in_order: bool = True

    @property
    def bounds(self) -> tuple[Any, Any]:
        """The bounds that a log may state: none beside a NaN."""
        return (None, None) if self.nans or not self.in_order else (self.low, self.high)

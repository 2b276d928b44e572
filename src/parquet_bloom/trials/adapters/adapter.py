"""The protocol of an engine's adapter: count the rows that hold a value, read the rows that a predicate keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from parquet_bloom.dataclass import dataclass
from parquet_bloom.facts.known import CONTAINS, EQUAL, IN

Column = tuple[str, ...]  # a column of the file, or a struct and its field


class CannotAskError(Exception):
    """This engine cannot run the question; the text says why, in a few words."""


@dataclass(frozen=True, slots=True)
class QueryStats:
    """An engine's own figures of a query that it ran.

    read, of  row groups that it read, of how many; None where it does not tell
    note      what else it tells, in words
    """

    read: int | None = None
    of: int | None = None
    note: str = ""


class Adapter(Protocol):
    """One engine in this process."""

    def count(self, path: str, column: Column, question: str, values: Sequence[pa.Scalar]) -> int:
        """How many rows answer a question of `facts.known`; values have the column's type.

        Raises CannotAskError, and whatever the engine raises.
        """
        ...

    def find(self, path: str, where: str) -> pa.Table:
        """The rows that a predicate keeps, all columns. Raises as `count`."""
        ...

    def tell(self, path: str, where: str) -> QueryStats:
        """The engine's own figures of the same query; run once more for them."""
        ...


def sql_condition(question: str, name: str, values: Sequence[str], contains: str) -> str:
    """A question as SQL; the name and the values as SQL spells them, `contains` is the function for lists."""
    one, *more = values
    if question == CONTAINS:
        return f"{contains}({name}, {one})"
    if question == EQUAL:
        return f"{name} = {one}"
    if question == IN:
        return f"{name} IN ({', '.join([one, *more])})"
    return f"{name} >= {one} AND {name} <= {more[0]}"

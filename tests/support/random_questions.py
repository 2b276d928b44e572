"""Random rows of known values and random predicates over them, for the tests of tables in every folder.

tests/property makes columns of every type and files of every layout (random_columns, random_files, random_trees); here
a test has a table of its own and says which values its columns may hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa

from parquet_bloom.predicates.casts import OutOfReachError, literal_of
from parquet_bloom.predicates.tree import And, Compare, Contains, IsIn, IsNull, Not, Or, Predicate

Known = Sequence[Any]  # values that a column may hold
Leaves = Mapping[tuple[str, ...], tuple[pa.DataType, Known]]


def random_rows(rng: Random, known: Mapping[str, Known], n: int, nulls: float) -> list[dict[str, Any]]:
    """Rows with a value of each column, or NULL with this probability."""
    return [
        {name: None if rng.random() < nulls else rng.choice(some) for name, some in known.items()} for _ in range(n)
    ]


def few_of(rng: Random, known: Mapping[str, Known]) -> dict[str, Known]:
    """Some of the values, at least one of each column: so bounds of rows made of them exclude others."""
    return {name: rng.sample(list(some), rng.randint(1, len(some))) for name, some in known.items()}


def random_predicate(rng: Random, leaves: Leaves, depth: int = 2) -> Predicate:
    """A predicate over these columns, and fields of structs; of a list whether it is NULL or contains an element."""
    if depth and rng.random() < 0.55:
        which = rng.choice([And, And, Or, Not])
        if which is Not:
            return Not(random_predicate(rng, leaves, depth - 1))
        return which(tuple(random_predicate(rng, leaves, depth - 1) for _ in range(rng.randrange(1, 4))))
    path = rng.choice(list(leaves))
    kind, known = leaves[path]
    if pa.types.is_list(kind):
        return rng.choice([IsNull(path), Contains(path, rng.choice(known))])
    literals = [literal for value in known if (literal := literal_in(value, kind)) is not None]
    match rng.choice(["compare", "compare", "compare", "in", "null"]):
        case "in" if literals:
            return IsIn(path, tuple(rng.choices(literals, k=2)))
        case "compare" if literals:
            return Compare(path, rng.choice(["=", "=", "<", "<=", ">", ">="]), rng.choice(literals))
    return IsNull(path)


def literal_in(value: Any, kind: pa.DataType) -> Any:
    """A value as a literal of a predicate; None for NaN and for what no literal reaches."""
    if value is None or (isinstance(value, float) and value != value):
        return None
    try:
        return literal_of(pa.scalar(value, kind))
    except OutOfReachError:
        return None

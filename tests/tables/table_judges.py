"""Our answers about a table against other programs' rows of the same snapshot, and brute force over these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
from kleene import answers, stored

import parquet_bloom
from parquet_bloom.predicates.casts import OutOfReachError, literal_of
from parquet_bloom.predicates.tree import And, Compare, IsIn, IsNull, Not, Or, Predicate

Values = Mapping[str, tuple[pa.DataType, Sequence[Any]]]  # column -> its type, and values that may be there


@dataclass
class Asked:
    """What was asked so far, so that a test can tell whether there was anything to lose."""

    predicates: int = 0
    rows: int = 0
    excluded: int = 0
    skipped: int = 0
    by: Counter[str] = field(default_factory=Counter)


def a_tree(rng: Random, values: Values, depth: int = 2) -> Predicate:
    """A random predicate over flat columns."""
    if depth and rng.random() < 0.5:
        which = rng.choice([And, And, Or, Not])
        if which is Not:
            return Not(a_tree(rng, values, depth - 1))
        return which(tuple(a_tree(rng, values, depth - 1) for _ in range(rng.randrange(1, 4))))
    name = rng.choice(list(values))
    kind, known = values[name]
    literals = [literal for value in known if (literal := _literal(value, kind)) is not None]
    match rng.choice(["compare", "compare", "compare", "in", "null"]):
        case "in" if literals:
            return IsIn((name,), tuple(rng.choices(literals, k=2)))
        case "compare" if literals:
            return Compare((name,), rng.choice(["=", "=", "<", "<=", ">", ">="]), rng.choice(literals))
    return IsNull((name,))


def _literal(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, float) and value != value:
        return None
    try:
        return literal_of(pa.scalar(value, kind))
    except OutOfReachError:
        return None


def hold(name: str, whole: pa.Table, values: Values, rng: Random, n: int, asked: Asked, **options: Any) -> None:
    """Ask n random predicates of a table: rows, counts and verdicts must be those of these rows.

    whole  the table's rows as another program reads them, with a column `row` that tells each from the others
    """
    key = whole["row"].to_pylist()
    read = parquet_bloom.read_table(name, **options)
    assert sorted(texts(read)) == sorted(texts(whole.select(read.column_names))), "the same rows as the other program"
    assert parquet_bloom.count(name, **options) == len(key)
    rows = [{one: stored(whole[one][i]) for one in values} for i in range(whole.num_rows)]
    types = {(one,): whole.schema.field(one).type for one in values}
    for _ in range(n):
        tree = a_tree(rng, values)
        wanted = sorted(row for row, cells in zip(key, rows, strict=True) if answers(tree, cells, types) == {True})
        found = parquet_bloom.read_table(name, tree, ["row"], **options)
        assert sorted(found["row"].to_pylist()) == wanted, f"{name}: {tree}"
        assert parquet_bloom.count(name, tree, **options) == len(wanted), f"{name}: {tree}"
        verdicts = parquet_bloom.check(name, tree, **options)
        asked.predicates += 1
        asked.rows += len(wanted)
        asked.excluded += len(verdicts.excluded)
        asked.skipped += verdicts.skipped
        asked.by.update(one.decided_by for one in verdicts.excluded)


def texts(table: pa.Table) -> list[str]:
    """Rows as texts: NaN is like itself."""
    return [repr(list(row.values())) for row in table.to_pylist()]

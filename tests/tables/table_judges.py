"""Our answers about a table against other programs' rows of the same snapshot, and brute force over these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
from support.kleene import answers, stored
from support.random_questions import random_predicate

import parquet_bloom

Values = Mapping[str, tuple[pa.DataType, Sequence[Any]]]  # column -> its type, and values that may be there


@dataclass
class Asked:
    """What was asked so far, so that a test can tell whether there was anything to lose."""

    predicates: int = 0
    rows: int = 0
    excluded: int = 0
    skipped: int = 0
    by: Counter[str] = field(default_factory=Counter)


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
        tree = random_predicate(rng, {(one,): values[one] for one in values})
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

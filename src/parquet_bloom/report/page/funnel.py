"""What each kind of evidence leaves of a data set for one predicate: files, row groups, rows, bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parquet_bloom.search.verdicts import RowGroupVerdict

_STEPS = (  # what is left, and by which evidence
    ("after folders' names", {"partition"}),
    ("after bounds", {"no rows", "literal", "bounds"}),
    ("after filters", {"filter"}),
)


@dataclass(slots=True)
class Step:
    """What is left after one kind of evidence; bytes are compressed, of column chunks."""

    name: str
    files: int
    row_groups: int
    rows: int
    bytes: int


def steps_of(verdicts: Sequence[RowGroupVerdict]) -> list[Step]:
    """All of the data set, then what is left after each kind of evidence."""
    left = list(verdicts)
    steps = [_step("all", left)]
    for title, stages in _STEPS:
        left = [one for one in left if one.decided_by not in stages]
        steps.append(_step(title, left))
    return steps


def _step(title: str, left: Sequence[RowGroupVerdict]) -> Step:
    return Step(title, len({v.path for v in left}), len(left), sum(v.rows for v in left), sum(v.size for v in left))

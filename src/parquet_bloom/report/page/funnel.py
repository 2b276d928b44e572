"""What each kind of evidence leaves of a data set for one predicate: files, row groups, rows, bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parquet_bloom.predicates.outcomes import Outcomes
from parquet_bloom.search.check import Verdicts
from parquet_bloom.search.verdicts import RowGroupVerdict

_STEPS = (  # what is left, and by which evidence
    ("after partitions", {"partition"}),  # folders' names, or those of a table's log
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


def steps_of(verdicts: Verdicts) -> list[Step]:
    """All of the data set, then what is left after each kind of evidence.

    A file that a table's log excludes was not opened: it counts as one row group, with the log's rows and bytes.
    """
    left = [
        *verdicts,
        *(
            RowGroupVerdict(
                one.path, 0, Outcomes.FALSE, True, one.decided_by, 0, one.reason, one.rows or 0, one.size or 0
            )
            for one in verdicts.excluded
        ),
    ]
    steps = [_step("all", left)]
    for title, stages in _STEPS:
        left = [one for one in left if one.decided_by not in stages]
        steps.append(_step(title, left))
    return steps


def _step(title: str, left: Sequence[RowGroupVerdict]) -> Step:
    return Step(title, len({v.path for v in left}), len(left), sum(v.rows for v in left), sum(v.size for v in left))

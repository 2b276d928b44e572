"""DataFusion, by its DataFrames with typed literals, and by SQL."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

import datafusion
import pyarrow as pa

from parquet_bloom.facts.known import CONTAINS, EQUAL, IN
from parquet_bloom.trials.adapters.adapter import Column, QueryStats

_PRUNED = re.compile(r"(\d+) total → (\d+) matched")


class DataFusion:
    """A session a question, as one keeps footers."""

    def count(self, path: str, column: Column, question: str, values: Sequence[pa.Scalar]) -> int:
        """As Adapter has it."""
        name = datafusion.col(f'"{column[0]}"')
        for part in column[1:]:
            name = name[part]
        literals = [datafusion.lit(value) for value in values]
        if question == CONTAINS:
            where = datafusion.functions.array_has(name, literals[0])
        elif question == EQUAL:
            where = name == literals[0]
        elif question == IN:
            where = datafusion.functions.in_list(name, literals)
        else:
            where = (name >= literals[0]) & (name <= literals[1])
        return int(datafusion.SessionContext().read_parquet(path).filter(where).count())

    def find(self, path: str, where: str) -> pa.Table:
        """As Adapter has it."""
        return _frame(path, where).to_arrow_table()

    def tell(self, path: str, where: str) -> QueryStats:
        """The metrics row_groups_pruned_statistics and row_groups_pruned_bloom_filter of the scan."""
        context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
        plan = _frame(path, where, context).execution_plan()
        for _ in range(plan.partition_count):
            for _batch in context.execute(plan, _):
                pass
        metrics = [metric for _, metrics in plan.collect_metrics() for metric in metrics.metrics()]
        pruned = {what: _pruned(metrics, what) for what in ("statistics", "bloom_filter")}
        if not any(pruned.values()):
            return QueryStats()
        # Those that statistics leave are what filters are asked about.
        last = pruned["bloom_filter"] or pruned["statistics"]
        first = pruned["statistics"] or pruned["bloom_filter"]
        assert first is not None
        assert last is not None
        return QueryStats(last[1], first[0])


def _pruned(metrics: list[Any], what: str) -> tuple[int, int] | None:
    """(row groups checked, remaining), summed over files and partitions; None where there is no such metric."""
    found = [_PRUNED.match(str(metric)) for metric in metrics if metric.name == f"row_groups_pruned_{what}"]
    numbers = [(int(each[1]), int(each[2])) for each in found if each]
    return functools.reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]), numbers) if numbers else None


def _frame(path: str, where: str, context: Any = None) -> Any:
    context = context or datafusion.SessionContext()
    context.register_parquet("t", path)
    return context.sql(f"SELECT * FROM t WHERE {where}")

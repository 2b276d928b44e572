"""Floats with NaN, both zeros, infinities and nulls, each row group with its own mixture, and questions."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from engines import made

_INF, _NAN = math.inf, math.nan
_GROUPS: dict[str, list[float | None]] = {
    "plain": [-1.5, -1.0, 1.0, 1.5],
    "nan_among_small": [1.0, _NAN, 2.0, 3.0],
    "nan_among_large": [10.0, 20.0, _NAN, 30.0],
    "only_nan": [_NAN, _NAN, _NAN, _NAN],
    "nan_and_null": [_NAN, None, None, _NAN],
    "only_null": [None, None, None, None],
    "negative_zero": [-0.0, -0.0, -0.0, -0.0],
    "zero": [0.0, 0.0, 0.0, 0.0],
    "zeros_and_nan": [0.0, -0.0, _NAN, None],
    "infinities": [-_INF, _INF, 7.0, None],
    "one_value": [5.0, 5.0, 5.0, 5.0],
    "one_value_and_nan": [5.0, _NAN, 5.0, 5.0],
}

# {c} stands for the column, and every literal is exact in both types.
TEXTS = """
{c} > 5; {c} >= 5; {c} < 5; {c} <= 5; {c} = 5; {c} <> 5; NOT ({c} < 5); NOT ({c} > 5); NOT ({c} = 5); NOT ({c} <= 30)
{c} = 0.0; {c} = -0.0; {c} < 0; {c} <= -0.0; {c} >= 0; {c} > -0.0; {c} <> 0; {c} IN (0, 20); {c} NOT IN (0, 5)
{c} IN (-0.0, 1.5, NULL); {c} NOT IN (5, NULL); {c} BETWEEN 2 AND 20; {c} NOT BETWEEN -2 AND 40; {c} BETWEEN 20 AND 2
{c} BETWEEN -0.0 AND 0.0; {c} > 1000; {c} < -1000; {c} IS NULL; {c} IS NOT NULL; {c} > 5 AND {c} < 25; {c} > 1e30
{c} < 5 OR {c} > 25; NOT ({c} < 5 OR {c} > 25); NOT ({c} >= 5 AND {c} <= 25); {c} IS DISTINCT FROM 5
{c} = 5 OR {c} > 1e30; NOT ({c} IS NULL OR {c} < 1e30); {c} = 77; {c} > 5 AND NOT ({c} > 6)
"""

# No decimal literal means these: DuckDB and Spark have CAST, pyarrow and Polars their own.
WITH_INFINITY = [
    "{c} >= CAST('inf' AS DOUBLE)", "{c} > CAST('inf' AS DOUBLE)", "{c} = CAST('inf' AS DOUBLE)",
    "{c} < CAST('inf' AS DOUBLE)", "{c} <= CAST('-inf' AS DOUBLE)", "NOT ({c} <= CAST('inf' AS DOUBLE))",
    "{c} > CAST('-inf' AS DOUBLE)", "{c} = CAST('nan' AS DOUBLE)", "{c} >= CAST('nan' AS DOUBLE)",
    "{c} < CAST('nan' AS DOUBLE)", "{c} <> CAST('nan' AS DOUBLE)", "{c} IN (5, CAST('nan' AS DOUBLE))",
    "NOT ({c} = CAST('nan' AS DOUBLE))", "{c} BETWEEN 20 AND CAST('nan' AS DOUBLE)",
]  # fmt: skip


def texts(column: str) -> list[str]:
    found = [text for line in TEXTS.strip().split("\n") for text in line.split("; ")]
    return [text.format(c=column) for text in [*found, *WITH_INFINITY]]


@cache
def row_groups() -> tuple[pa.Table, ...]:
    tables, rows = [], 0
    for values in _GROUPS.values():
        numbers = range(rows, rows := rows + len(values))
        columns = {"x": pa.array(values, pa.float64()), "f": pa.array(values, pa.float32())}
        tables.append(pa.table({"row": pa.array(numbers, pa.int32()), **columns}))
    return tuple(tables)


def row_group_of(row: int) -> int:
    return int(np.searchsorted(np.cumsum([len(table) for table in row_groups()]), row, "right"))


def write(folder: Path) -> Path:
    """With statistics, which leave NaN out, and filters."""
    return made.with_filters(folder, row_groups())

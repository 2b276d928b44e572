"""2,000 of the random predicates on Spark, over files with our filters, with its own pushdown and pruning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from lab_files import LabFile
from lab_judges import cases, rows_of
from lab_predicates import Part, sql, truths
from support.spark_needed import need_spark

pytestmark = [pytest.mark.differential, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(7200)]
FILES, EACH, AT_ONCE = 50, 40, 20


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    need_spark()
    from parquet_bloom.spark.sessions import session

    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.ui.enabled": "false",
    }
    with session("local[2]", settings) as started:
        started.sparkContext.setLogLevel("ERROR")
        yield started


def asked_together(spark: Any, file: LabFile, parts: list[Part]) -> list[list[int]]:
    """The rows of several predicates by one job; each has a scan of its own, so its own pushdown."""
    scans = [
        f"SELECT {i} AS number, `row` FROM parquet.`{file.path}` WHERE {sql(part, 'spark')}"
        for i, part in enumerate(parts)
    ]
    table = spark.sql(" UNION ALL ".join(scans)).toArrow()
    found: list[list[int]] = [[] for _ in parts]
    for number, row in zip(table["number"].to_pylist(), table["row"].to_pylist(), strict=True):
        found[number].append(row)
    return [sorted(rows) for rows in found]


def test_two_thousand_predicates(spark: Any, tmp_path: Path) -> None:
    tally: Counter[str] = Counter()
    differing = []
    drawn = cases(range(10_000, 10_000 + FILES), tmp_path, EACH, nan=False)
    for file, several in groupby(drawn, key=lambda case: case[0]):
        parts: list[Part] = []
        for _, number, part in several:
            parts.append(part)
            if len(parts) == AT_ONCE or number == EACH - 1:
                for one, rows in zip(parts, asked_together(spark, file, parts), strict=True):
                    same = rows == rows_of(truths(one, file, "largest"))
                    tally["agrees" if same else "differs"] += 1
                    if not same:
                        differing.append(f"seed {file.path.stem}, by {file.writer}: {sql(one, 'spark')}")
                parts = []
    print(f"\nSpark: {dict(tally)}")
    assert sum(tally.values()) == FILES * EACH
    assert differing == []

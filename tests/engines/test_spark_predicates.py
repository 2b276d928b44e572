"""Spark's own WHERE: every row it finds is in a row group that prune(.., nan="largest") keeps.

In Spark NaN is the largest value and equals itself. Spark reads the file with its own skipping off,
as its min and max leave NaN out like everyone's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parquet_bloom
from engines import floats, made, ordered
from engines.test_spark import setting, spark  # noqa: F401

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(spark: Any) -> Iterator[Any]:  # noqa: F811
    names = ("spark.sql.parquet.filterPushdown", "spark.sql.parquet.aggregatePushdown", "spark.sql.ansi.enabled")
    old = {name: spark.conf.get(name) for name in names}
    for name in names:
        spark.conf.set(name, "false")
    yield spark
    for name, value in old.items():
        spark.conf.set(name, value)


def found(session: Any, view: str, text: str) -> list[int]:
    return sorted(session.sql(f"SELECT `row` FROM {view} WHERE {text}").toArrow()["row"].to_pylist())


def many(session: Any, view: str, texts: list[str]) -> dict[str, list[int]]:
    """The rows of each text, in one query: a query a text takes Spark a tenth of a second."""
    columns = ", ".join(f"coalesce({text}, false) AS t{at}" for at, text in enumerate(texts))
    table = session.sql(f"SELECT `row`, {columns} FROM {view}").toArrow().sort_by("row")
    rows = table["row"].to_numpy()
    return {text: rows[table[f"t{at}"].to_numpy(zero_copy_only=False)].tolist() for at, text in enumerate(texts)}


def assert_kept(path: Path, text: str, rows: list[int], starts: list[int]) -> int:
    """The row groups of the rows are kept; returns how many others were skipped."""
    kept = {group for _, groups in parquet_bloom.prune(path, text, nan="largest") for group in groups}
    holding = set((np.searchsorted(starts, rows, "right") - 1).tolist())
    assert holding <= kept, f"{text}: {sorted(holding - kept)} skipped"
    return len(starts) - len(kept)


def starts_of(tables: Any) -> list[int]:
    return [0, *np.cumsum([len(table) for table in tables])[:-1].tolist()]


def test_floats_in_spark_s_order(session: Any, tmp_path: Path) -> None:
    path = floats.write(tmp_path)
    session.read.parquet(str(path)).createOrReplaceTempView("floats")
    starts = starts_of(floats.row_groups())
    texts = [*floats.texts("x"), *floats.texts("f")]
    rows = many(session, "floats", texts)
    skipped = sum(assert_kept(path, text, rows[text], starts) for text in texts)
    assert {5, 10, 12, 34, 45} <= set(rows["x > 1000"]), "NaN is the largest value"
    assert 12 in rows["x = CAST('nan' AS DOUBLE)"], "and equals itself"
    assert skipped > 100, "row groups of nulls and, by filters and null counts, others are skipped nevertheless"


def test_floats_by_a_real_where(session: Any, tmp_path: Path) -> None:
    """The same with a WHERE of its own; with pushdown, as people run it, Spark finds at most these rows."""
    path = floats.write(tmp_path)
    session.read.parquet(str(path)).createOrReplaceTempView("floats")
    starts = starts_of(floats.row_groups())
    for text in ("x > 5", "x >= 5", "x < 5", "x = 5", "x IN (0, 20)", "NOT (x < 5)", "x <> 0", "f BETWEEN 2 AND 20"):
        rows = found(session, "floats", text)
        assert rows == many(session, "floats", [text])[text]
        with setting(session, "spark.sql.parquet.filterPushdown", "true"):
            pushed = found(session, "floats", text)
        assert set(pushed) <= set(rows)
        assert_kept(path, text, pushed, starts)


# --- other types ------------------------------------------------------------------------------------

NOT_IN_SPARK = ("id", "clock", "words", "tags")
"""Spark 4 does not open uuid and TIME; for lists it has array_contains, below."""


def spelled(text: str) -> str | None:
    """A text of ordered.TEXTS as Spark writes it; None where it does not."""
    if any(f"{name} " in text.replace("(", " ").replace(",", " ") for name in NOT_IN_SPARK) or "list_" in text:
        return None
    if "0010001'" in text:
        return None  # Spark cuts literals off at the microsecond
    if "0x" in text or "DOUBLE" in text or "LIKE" in text or "ANY(" in text or "array_" in text:
        return None
    text = re.sub(r'"((?:[^"]|"")*)"', lambda m: "`" + m[1].replace('""', '"') + "`", text)
    text = re.sub(r"\b(ts|ts_ms)\b([^;]*)", lambda m: m[0].replace("TIMESTAMP '", "TIMESTAMP_NTZ '"), text)
    return text.replace("it''s", "it\\'s").replace("IS NOT DISTINCT FROM", "<=>")


def test_other_types(session: Any, tmp_path: Path) -> None:
    tables = made.numbered([table.drop_columns(["id", "clock"]) for table in ordered.row_groups()])
    path = made.with_filters(tmp_path, tables)
    session.read.parquet(str(path)).createOrReplaceTempView("ordered")
    texts = {text: theirs for text in ordered.texts() if (theirs := spelled(text)) is not None}
    texts |= {f"array_contains(tags, {n})": f"array_contains(tags, {n})" for n in (3, 98, 7400)}
    answers = many(session, "ordered", list(texts.values()))
    starts = starts_of(tables)
    skipped = sum(assert_kept(path, text, answers[theirs], starts) for text, theirs in texts.items())
    assert len(texts) > 250
    assert skipped > 500

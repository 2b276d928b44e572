"""What is said of wrong filters, as docs/reliability/wrong-filters.md tells it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from wrong_filters import ENGINES, PAGE, Row, page, rows

pytestmark = pytest.mark.differential


def cells(text: str) -> dict[str, list[str]]:
    """The table of a page: what is changed -> the other cells."""
    lines = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {first: rest for first, *rest in lines[2:]}


def check_promises(found: list[Row]) -> None:
    for row in found:
        if row.readers["parquet_bloom"] != "finds all":
            assert row.readers["parquet_bloom"] == "loses rows", "no wrong filter makes us fail"
            assert row.verify == "wrong", f"{row.what}: verify finds what loses rows"
        if row.inspect == "problem":
            assert row.readers["parquet_bloom"] == "finds all", f"{row.what}: what inspect sees is no evidence"


def test_the_table_tells_what_we_say(tmp_path: Path) -> None:
    found = list(rows(tmp_path, ("parquet_bloom",)))
    check_promises(found)
    told, now = cells(PAGE.read_text()), cells(page(found))
    assert {what: rest[:3] for what, rest in told.items()} == {what: rest[:3] for what, rest in now.items()}


@pytest.mark.slow
def test_the_table_tells_what_engines_say(tmp_path: Path) -> None:
    told = PAGE.read_text()
    versions = re.search(r"with DuckDB (\S+) and DataFusion (\S+)\.", told)
    now = page(list(rows(tmp_path, ENGINES)))
    if versions is not None and versions[0] not in now:
        pytest.skip("other versions of the engines than those of the table")
    assert told == now

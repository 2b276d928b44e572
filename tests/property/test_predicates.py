"""Random files and predicates: never a wrong skip, never a wrong "every row matches".

Statistics are missing, truncated, poisoned, or wrong as old writers made them wrong; filters say
"perhaps" too often, of every form, for some row groups. Truth is brute force over every row, and
pyarrow's own filter over the whole table (tests/property/truth.py, cases.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import cases_of, worlds
from support.repeats import more_then_slow

pytestmark = pytest.mark.filterwarnings("ignore::parquet_bloom.errors.FilterWarning")
EACH, FEWER = 50, 30  # predicates a file; fewer for four of five files of the quick part


def ask(seeds: range, folder: Path, quick: bool = False) -> int:
    asked = 0
    for where in worlds(seeds, folder):
        for case in cases_of(where, FEWER if quick and where.seed % 5 else EACH):
            case.check()
            asked += 1
        for file in where.files:
            file.path.unlink(missing_ok=True)
    return asked


@pytest.mark.parametrize("part", [0, *more_then_slow(range(1, 8), 1)])
def test_twenty_thousand_cases(tmp_path: Path, part: int) -> None:
    wanted = 50 * EACH if part else 10 * EACH + 40 * FEWER
    assert ask(range(50 * part, 50 * part + 50), tmp_path, quick=not part) == wanted


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(8))
def test_two_hundred_thousand_cases(tmp_path: Path, part: int) -> None:
    start = 10_000 + 500 * part
    assert ask(range(start, start + 500), tmp_path) == 500 * EACH

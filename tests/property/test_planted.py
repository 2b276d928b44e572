"""Each planted bug still has its line: the tests that find them run elsewhere (`more`, `slow`), and this one always."""

from __future__ import annotations

import file_mutants
import mutants
import pytest


@pytest.mark.smoke
def test_each_bug_can_be_planted() -> None:
    of_files = (mutant for room in file_mutants.MUTANTS for mutant, _ in file_mutants.mutants_of(room))
    for mutant in (*mutants.MUTANTS, *of_files):
        with mutants.planted(mutant):  # AssertionError where the function has no such line any more
            pass

"""Each planted bug still has its line: the tests that find them run elsewhere (`more`, `slow`), and this one always."""

from __future__ import annotations

import file_mutants
import mutants
import pytest


@pytest.mark.smoke
@pytest.mark.parametrize("room", [None, *file_mutants.MUTANTS], ids=lambda room: room or "search and format")
def test_each_bug_can_be_planted(room: str | None) -> None:
    for mutant in mutants.MUTANTS if room is None else [one for one, _ in file_mutants.mutants_of(room)]:
        with mutants.planted(mutant):  # AssertionError where the function has no such line any more
            pass

"""Every system call of a write, failed and killed at: the file is old or new, and whole.

pytest -m "faults and not slow"    one error a call, some of the calls: a minute
pytest -m "faults and slow"        every error at every call, once and from then on, and every kill
"""

from __future__ import annotations

import random

import pytest
from faulty import TARGETS, Forks, Tally

pytestmark = pytest.mark.faults
_SHORT_CASES = 16  # of each operation


def check(forks: Forks, name: str, long: bool) -> Tally:
    tally = Tally()
    faults = list(forks.faults(name, long))
    if not long:
        faults = random.Random(name).sample(faults, min(_SHORT_CASES, len(faults)))
    for fault in faults:
        forks.run(fault, tally)
    print(f"\n{name}: {dict(tally.outcomes)}", *tally.wrong, sep="\n")
    return tally


@pytest.mark.parametrize("name", TARGETS)
def test_some_faults(forks: Forks, name: str) -> None:
    assert check(forks, name, long=False).wrong == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", TARGETS)
def test_every_fault(forks: Forks, name: str) -> None:
    assert check(forks, name, long=True).wrong == []


@pytest.mark.parametrize("name", [name for name in TARGETS if TARGETS[name].old and "append" not in name])
def test_a_look_that_fails_after_the_swap_says_that_the_file_is_new(forks: Forks, name: str) -> None:
    tally = Tally()
    for fault in forks.faults(name, long=True):
        if fault.kind == "look" and not fault.on:
            forks.run(fault, tally)
    assert sum(tally.outcomes.values()) > 0, "the file that is replaced is looked at"
    assert tally.wrong == []

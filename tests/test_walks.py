"""A warm call runs through few modules: who follows one with a finger turns few pages."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import walks

# call -> modules at the most; tests/walks.py names them
MOST = {
    "check": 26,
    "prune": 35,
    "read_table": 36,
    "inspect": 27,
    "verify": 32,
    "add_filters": 56,
    "remove_filters": 39,
}


@pytest.fixture(scope="module")
def counted() -> dict[str, list[str]]:
    """The modules that each call walks through, in a process of its own: where numba is loaded others are walked."""
    done = subprocess.run([sys.executable, walks.__file__], capture_output=True, text=True, check=True)
    lines = (re.fullmatch(r"(\w+) +(\d+) modules: (.*)", line) for line in done.stdout.splitlines())
    return {found[1]: found[3].split() for found in lines if found is not None}


@pytest.mark.parametrize("name", MOST)
def test_a_call_walks_few_modules(name: str, counted: dict[str, list[str]]) -> None:
    assert "storage/open_file.py" in counted[name], "functions of the package are seen"
    assert len(counted[name]) <= MOST[name], counted[name]

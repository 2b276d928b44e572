"""A warm call runs through few modules: who follows one with a finger turns few pages."""

from __future__ import annotations

import re
import subprocess
import sys

import walks

# call -> modules at the most; tests/walks.py names them
MOST = {
    "check": 26,
    "prune": 35,
    "read_table": 35,
    "inspect": 26,
    "verify": 31,
    "add_filters": 54,
    "remove_filters": 37,
}


def test_a_call_walks_few_modules() -> None:
    """In a process of its own: where numba is loaded others are walked."""
    done = subprocess.run([sys.executable, walks.__file__], capture_output=True, text=True, check=True)
    walked = dict(re.findall(r"^(\w+) +\d+ modules: (.*)$", done.stdout, re.MULTILINE))
    for name, most in MOST.items():
        modules = walked[name].split()
        assert "storage/open_file.py" in modules, "functions of the package are seen"
        assert len(modules) <= most, f"{name}: {modules}"

"""Bugs that would lose rows, bytes or a file are found by the tests that are there for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from file_mutants import MUTANTS, mutants_of

pytestmark = [pytest.mark.more, pytest.mark.timeout(900)]
HERE = Path(__file__).parent


@pytest.mark.parametrize("room", MUTANTS)
def test_a_planted_bug_of_a_room_is_found(room: str, tmp_path: Path) -> None:
    tests = sorted({test for _, test in mutants_of(room)})
    out = tmp_path / "survivors.json"
    environment = {"PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-p", "planting", "-p", "no:cacheprovider", *tests],
        env={**os.environ, **environment, "MUTANTS_OF": room, "SURVIVORS": str(out)},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert out.exists(), done.stdout + done.stderr
    assert json.loads(out.read_text()) == {"survivors": [], "fail without a bug": []}

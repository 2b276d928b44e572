"""Two, four and eight writers of one file, with readers, and a program that takes no lock: nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from parquet_bloom.errors import ConflictError
from parquet_bloom.output import recovery
from parquet_bloom.output.recovery import open_for_change
from parquet_bloom.storage.remote import Location

faults = pytest.mark.faults
HERE = Path(__file__).parent


def race(what: str, folder: Path, *numbers: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, HERE / "race.py", what, folder, *map(str, numbers)],
        capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    print(f"\n{what} {numbers}: {found}")
    return found


def check_writers(folder: Path, writers: int, rounds: int) -> None:
    found = race("writers", folder, writers, rounds)
    assert found["lost"] == []
    assert found["litter"] == []
    assert found["statuses"] == {"0": rounds * (writers + 2)}, "who waits gets its turn"


@faults
@pytest.mark.parametrize("writers", [2, 4, 8])
def test_writers_of_one_file(tmp_path: Path, writers: int) -> None:
    check_writers(tmp_path, writers, 3)


@faults
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("writers", [2, 4, 8])
def test_writers_of_one_file_for_long(tmp_path: Path, writers: int) -> None:
    check_writers(tmp_path, writers, 100)


def check_stranger(folder: Path, versions: int) -> None:
    found = race("stranger", folder, versions)
    assert found["statuses"] == [0, 0, 0]
    assert found["version"] == versions
    assert found["litter"] == []
    assert sum(tries.get("conflict", 0) for tries in found["tries"]) > 0, "they never met"


@faults
def test_a_program_that_takes_no_lock(tmp_path: Path) -> None:
    check_stranger(tmp_path, 100)


@faults
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_program_that_takes_no_lock_for_long(tmp_path: Path) -> None:
    check_stranger(tmp_path, 5000)


def test_a_lock_that_is_never_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"not looked at")
    monkeypatch.setattr(recovery, "PATIENCE_S", 0.1)
    at = Location(str(path))
    told = r"x.parquet: another program holds its lock.*nothing was written"
    with (
        open_for_change(at, to_replace=True),
        open_for_change(at, to_replace=False),
        pytest.raises(ConflictError, match=told),
    ):
        open_for_change(at, to_replace=True).__enter__()
    with open_for_change(at, to_replace=True):
        pass

"""Nothing is found wrong in what right writers write: short forms of sound_statistics."""

from __future__ import annotations

from pathlib import Path

import pytest
from differential.sound_statistics import run

HERE = ["pyarrow", "duckdb", "polars", "datafusion", "fastparquet"]


@pytest.mark.more
def test_no_false_alarm(tmp_path: Path) -> None:
    written, _, alarms = run(100, 7, HERE, tmp_path)
    assert alarms == []
    assert all(written[name] >= 10 for name in HERE), written


@pytest.mark.slow
def test_no_false_alarm_in_many_files(tmp_path: Path) -> None:
    written, _, alarms = run(2000, 8, HERE, tmp_path)
    assert alarms == []
    assert all(written[name] >= 200 for name in HERE), written

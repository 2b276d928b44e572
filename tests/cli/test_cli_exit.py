"""How the command's process ends: with its status and all it said, before the interpreter is taken apart."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bloom
from parquet_bloom import cli


def ended(script: str) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-c", script]
    return subprocess.run(whole, capture_output=True, text=True, timeout=240, check=False)


def test_what_holds_the_interpreter_at_its_end_is_left_alone() -> None:
    """A thread that takes up Python's lock while the interpreter ends aborts the process; this one tells of its end."""
    script = (
        "import atexit, sys, parquet_bloom.cli as cli\n"
        "class Held:\n"
        "    def __del__(self): print('taken apart', flush=True)\n"
        "sys.held = Held()\n"
        "def run():\n"
        "    atexit.register(print, 'others first')\n"
        "    return status()\n"
        "cli.run, status = run, cli.run\n"
        "sys.argv = ['parquet-bloom', '--version']\n"
        "cli.main()\n"
    )
    done = ended(script)
    assert done.returncode == 0
    assert done.stdout == f"parquet-bloom, version {parquet_bloom.__version__}\nothers first\n"
    assert done.stderr == ""


def test_the_status_is_kept() -> None:
    for answer, status in (("return 0", 0), ("return 1", 1), ("return 130", 130), ("1 / 0", 2)):
        done = ended(f"import parquet_bloom.cli as cli\ndef run():\n    {answer}\ncli.run = run\ncli.main()\n")
        assert done.returncode == status
        assert ("ZeroDivisionError" in done.stderr) == (answer == "1 / 0")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_behind_standard_output_is_one_line(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": range(10)}), tmp_path / "a.parquet")
    for line in ("--help", "read a.parquet", "inspect a.parquet --json"):
        whole = [sys.executable, "-m", "parquet_bloom", *line.split()]
        with open("/dev/full", "wb") as full:
            done = subprocess.run(whole, stdout=full, stderr=subprocess.PIPE, text=True, timeout=240, cwd=tmp_path)
        assert done.returncode == 2, line
        assert done.stderr.splitlines()[-1] == "parquet-bloom: standard output: No space left on device", line
        assert "Traceback" not in done.stderr, line


def test_other_errors_of_the_system_are_told_as_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    for error, line in (
        (refused, f"[Errno {errno.ECONNREFUSED}] Connection refused"),
        (OSError(errno.ENOSPC, "No space left on device"), "standard output: No space left on device"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/tmp/x"),
            f"[Errno {errno.ENOSPC}] No space left on device: '/tmp/x'",
        ),
    ):
        assert cli._report_error(error) == 2
        assert capsys.readouterr().err == f"parquet-bloom: {line}\n"
    assert cli._report_error(ZeroDivisionError("division by zero")) == 2
    line = "an unexpected error, ZeroDivisionError: division by zero"
    assert capsys.readouterr().err == f"parquet-bloom: {line}; the same command with --traceback shows where\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_counts_once_and_its_status_outlives_what_goes_wrong_then(name: str) -> None:
    """A closing terminal says it twice, and whoever had it too may fail us while we clean up."""
    script = (
        "import os, signal, time, parquet_bloom.cli as cli\n"
        f"signal.signal(signal.{name}, signal.SIG_DFL)\n"
        "def main(*_, **__):\n"
        "    try:\n"
        f"        os.kill(os.getpid(), signal.{name})\n"
        "        time.sleep(10)\n"
        "    finally:\n"
        f"        os.kill(os.getpid(), signal.{name})\n"
        "        raise ConnectionRefusedError('the JVM is gone')\n"
        "cli.group.main = main\n"
        "cli.main()\n"
    )
    done = ended(script)
    assert done.returncode == 128 + getattr(signal, name)
    assert done.stderr == "parquet-bloom: interrupted; files that were not finished are as they were\n"

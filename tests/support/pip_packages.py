"""Packages of PyPI that tests have beside the project's own, each set in a folder below the system's temporary one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest


def fetched(
    name: str, wanted: Sequence[str], required: str = "", finish: Callable[[Path], None] = lambda folder: None
) -> Path:
    """The folder of these packages, without what they depend on; installed once, and kept for later runs.

    name      of the folder, with all that another set would differ in
    required  a variable of the environment: where it is set, as in CI, a test fails that would be skipped
    finish    what else is made in the folder before it counts
    """
    folder = Path(tempfile.gettempdir()) / f"parquet-bloom-{name}-{os.getuid()}-{sys.implementation.cache_tag}"
    if folder.is_dir() and folder.stat().st_uid == os.getuid():
        return folder
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        target = Path(scratch) / "packages"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), *wanted]
        done = subprocess.run(pip, capture_output=True, text=True)
        if done.returncode:
            unavailable(f"pip brings no {wanted}: {done.stderr.strip().splitlines()[-1:]}", required)
        finish(target)
        with suppress(OSError):  # another process of this run may have been faster
            target.rename(folder)
    return folder


def unavailable(reason: str, required: str = "") -> None:
    """Skip a test; fail it where the environment says that it must not be skipped."""
    assert not os.environ.get(required), reason
    pytest.skip(reason)

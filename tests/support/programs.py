"""Small Python programs in processes of their own, where a process is the point: its forks, end, first reads."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def program(
    code: str | Path, *arguments: object, only: dict[str, str] | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a text or a file with what this process can import and its environment, or with `only` that one."""
    path = os.pathsep.join(filter(None, sys.path))
    what = [str(code)] if isinstance(code, Path) else ["-c", textwrap.dedent(code)]
    return subprocess.run(
        [sys.executable, *what, *map(str, arguments)],
        env={**(os.environ if only is None else only), "PYTHONPATH": path, **variables},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

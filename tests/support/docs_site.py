"""The site of the documentation, built from a copy of its pages: docs/site writes into build/ beside docs/."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "docs",
    "benchmarks",
    "fixtures/README.md",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "mkdocs.yml",
)


def copy_pages(folder: Path) -> Path:
    """All that docs/site reads, into this folder; returns it."""
    for name in PAGES:
        (folder / name).parent.mkdir(exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile)(ROOT / name, folder / name)
    return folder


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run docs/site of a copy; the site is then in build/site."""
    return subprocess.run(
        [sys.executable, str(folder / "docs" / "site")], capture_output=True, text=True, check=False, timeout=120
    )

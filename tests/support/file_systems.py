"""File systems of all kinds, in images on loop devices: that takes root and mkfs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

IMAGE = 320 << 20


def mounted(kind: str, folder: Path) -> Path:
    """A new file system in an image. Skips where that cannot be."""
    make = shutil.which(f"mkfs.{kind}") or shutil.which(f"mkfs.{kind}", path="/usr/sbin:/sbin")
    if make is None:
        pytest.skip(f"mkfs.{kind} is not installed")
    image, at = folder / f"{kind}.img", folder / kind
    at.mkdir()
    with image.open("wb") as file:
        file.truncate(IMAGE)
    subprocess.run([make, "-q", image], check=True, capture_output=True)
    done = subprocess.run(["mount", "-o", "loop", image, at], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"images cannot be mounted here: {done.stderr.strip()}")
    return at

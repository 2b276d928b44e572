"""An append that was cut short, on a disk that is mounted again and then has another device number.

Where images cannot be made or mounted (it takes root, mkfs and loop devices) these tests skip with the reason.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.file_systems import mounted
from support.samples import keys_table, leftovers, write_keys
from support.torn_append import KILLED

import parquet_bloom

pytestmark = pytest.mark.more


@pytest.mark.parametrize("kind", ["ext4", "btrfs"])
def test_the_next_run_takes_it_back(kind: str, tmp_path: Path) -> None:
    at = mounted(kind, tmp_path)
    taken: list[Path] = []
    try:
        path = write_keys(at / "keys.parquet")
        old, device = path.read_bytes(), path.stat().st_dev
        assert subprocess.run([sys.executable, "-c", KILLED, path], check=False).returncode == -9
        torn = path.stat().st_size
        subprocess.run(["umount", at], check=True)
        (tmp_path / "other").mkdir()
        taken.append(mounted(kind, tmp_path / "other"))  # it takes the number that this one had
        subprocess.run(["mount", "-o", "loop", tmp_path / f"{kind}.img", at], check=True)
        assert path.stat().st_dev != device
        assert path.stat().st_size == torn > len(old)
        assert parquet_bloom.read_table(path).equals(keys_table())
        parquet_bloom.remove_filters(path, in_place=True)
        assert path.read_bytes() == old
        assert leftovers(at) == []
    finally:
        for one in (at, *taken):
            subprocess.run(["umount", one], check=False)

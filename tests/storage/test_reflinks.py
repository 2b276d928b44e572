"""XFS and btrfs in images on loop devices: a tail shares all old blocks, and what is written is counted.

Where images cannot be made or mounted (it takes root, mkfs and loop devices) these tests skip with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.file_systems import mounted
from support.samples import leftovers

import parquet_bloom
from parquet_bloom.errors import StorageError

pytestmark = pytest.mark.more
MIB = 1 << 20


@pytest.fixture(scope="module", params=["xfs", "btrfs"])
def disk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    at = mounted(request.param, tmp_path_factory.mktemp(request.param))
    yield at
    subprocess.run(["umount", at], check=True)


@pytest.fixture
def data(disk: Path) -> Iterator[Path]:
    """150 MB that nothing makes smaller, of which `id` is 1.6: two such files have no room on the disk."""
    rng = np.random.default_rng(11)
    rows = 200_000
    bulk = pa.FixedSizeBinaryArray.from_buffers(pa.binary(740), rows, [None, pa.py_buffer(rng.bytes(740 * rows))])
    table = pa.table({"id": rng.integers(0, 2**62, rows), "bulk": bulk})
    path = disk / "data.parquet"
    pq.write_table(
        table, path, row_group_size=rows // 4, compression="none", use_dictionary=False, write_statistics=False
    )
    os.sync()
    yield path
    for left in disk.iterdir():
        left.unlink()


def written(disk: Path) -> int:
    """Bytes that were written to the disk of a mounted image, its own structures among them."""
    os.sync()
    device = os.stat(disk).st_dev
    if not Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").exists():  # btrfs has a number of its own
        found = subprocess.run(["findmnt", "-no", "SOURCE", disk], capture_output=True, text=True, check=True)
        device = os.stat(found.stdout.strip()).st_rdev
    counters = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
    return 512 * int(counters[6])


@pytest.mark.parametrize("way", ["in place", "output", "append"])
def test_what_is_written_is_filters_and_footer(disk: Path, data: Path, way: str) -> None:
    old = data.read_bytes()
    before = written(disk)
    out = disk / "out.parquet"
    where: dict[str, object] = {"output": out} if way == "output" else {"in_place": True, "append": way == "append"}
    report = parquet_bloom.add_filters(data, columns=["id"], placement="tail", **where).files[0]
    cost = written(disk) - before
    tail = report.bytes_after - report.bytes_before
    assert report.filter_bytes < tail < MIB
    assert cost <= tail * (2 if way == "append" else 1) + MIB, "of an append its journal too"
    path = out if way == "output" else data
    assert path.read_bytes()[: len(old)] == old
    assert not parquet_bloom.verify(path).files[0].wrong
    before = written(disk)
    options = {"append": True} if way == "append" else {}
    parquet_bloom.remove_filters(path, in_place=True, **options)
    assert written(disk) - before <= MIB, "a shorter clone, or a shorter file"
    assert path.read_bytes() == old
    assert leftovers(disk) == []


def test_there_has_to_be_room_for_the_tail_alone(disk: Path, data: Path) -> None:
    free = shutil.disk_usage(disk).free
    assert free < data.stat().st_size, "a copy would not fit"
    with pytest.raises(StorageError, match="bytes free"):
        parquet_bloom.add_filters(data, in_place=True, columns=["id"])
    parquet_bloom.add_filters(data, in_place=True, columns=["id"], placement="tail")
    parquet_bloom.remove_filters(data, in_place=True, last=True)


def test_readers_that_hold_the_old_file_keep_it(disk: Path, data: Path) -> None:
    with data.open("rb") as held:
        old = held.read()
        parquet_bloom.add_filters(data, in_place=True, columns=["id"], placement="tail")
        parquet_bloom.add_filters(data, in_place=True, columns=["id"], placement="tail", replace=True)
        parquet_bloom.remove_filters(data, in_place=True)
        held.seek(0)
        assert held.read() == old
        assert data.read_bytes() == old


def test_another_disk_is_copied_to(disk: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    parquet_bloom.add_filters(data, out, columns=["id"], placement="tail")
    with out.open("rb") as copied, data.open("rb") as old:
        assert copied.read(data.stat().st_size) == old.read()

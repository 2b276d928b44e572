"""What a disk keeps otherwise than it was given is noticed before the new file counts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.samples import digest, leftovers

from parquet_bloom import LayoutError, add_filters, inspect
from parquet_bloom.output.draft import Draft


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return written(tmp_path, rows=4_000, groups=4)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One filter of 2 MiB, which is read back in parts."""
    return written(tmp_path_factory.mktemp("large"), rows=900_000, groups=1)


def written(folder: Path, rows: int, groups: int) -> Path:
    table = pa.table({"id": np.random.default_rng(1).integers(0, 2**62, rows)})
    pq.write_table(table, folder / "x.parquet", row_group_size=rows // groups, use_dictionary=False)
    return folder / "x.parquet"


def add(path: Path, **options: Any) -> Any:
    return add_filters(path, columns=["id"], in_place=True, **options)


def turn_a_byte(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """From here on a write that has this byte of a file loses one of its bits."""
    plain = os.pwrite

    def pwrite(fd: int, data: Any, offset: int) -> int:
        inside = at - offset
        if 0 <= inside < len(data):
            data = bytearray(data)
            data[inside] ^= 1
        return plain(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)


def refused(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: int,
    told: str = "did not pass its check: the filter of",
    **how: Any,
) -> None:
    before = digest(path)
    with monkeypatch.context() as patched:
        turn_a_byte(patched, at)
        with pytest.raises(LayoutError, match=told):
            add(path, **how)
    assert digest(path) == before
    assert leftovers(path.parent) == []


@pytest.mark.parametrize(
    ("spec", "placement", "group"),
    [("final", "footer", 0), ("final", "chunk-start", 3), ("final", "tail", 3), ("parquet-41", "chunk-start", 0)],
)
def test_a_bit_of_a_small_filter(
    small: Path, monkeypatch: pytest.MonkeyPatch, spec: str, placement: str, group: int
) -> None:
    right = small.with_name("right.parquet")
    add_filters(small, right, columns=["id"], spec=spec, placement=placement)
    (place,) = [f for f in inspect(right).files[0].filters if f.row_group == group]
    right.unlink()
    for at in (place.offset, place.offset + 40, place.offset + place.num_bytes):
        refused(small, monkeypatch, at, spec=spec, placement=placement)
    add(small, spec=spec, placement=placement)


def test_a_bit_of_a_large_filter(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = large.stat().st_size
    for place in (1, 99_999, 1_500_000, (2 << 20) - 1):  # the header; the first, second and last part that is read
        refused(large, monkeypatch, start + place, placement="tail")


def test_the_disk_works_while_the_check_reads(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And where it fails there, nothing was changed."""
    before, plain = digest(small), os.fsync

    def fsync(fd: int) -> None:
        monkeypatch.setattr(os, "fsync", plain)  # the next one works, as it does on Linux after an error was told
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(Exception, match="Input/output error"):
        add(small, placement="tail")
    assert digest(small) == before
    assert leftovers(small.parent) == []


def test_a_bit_of_the_footer(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A footer that decodes, but for which `remove` would give another file than the old one."""
    for placement in ("footer", "chunk-start"):
        right = small.with_name("right.parquet")
        add_filters(small, right, columns=["id"], placement=placement)
        at = right.read_bytes().rindex(b"parquet-cpp")  # of created_by
        right.unlink()
        refused(small, monkeypatch, at, "could not be brought back byte for byte by remove", placement=placement)


def test_pages_that_were_copied_wrongly(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(new: Draft, at: int, source_fd: int, start: int, stop: int) -> None:
        new.write_at(at, bytes(stop - start))

    before = digest(small)
    monkeypatch.setattr(Draft, "copy_to", zeros)
    with pytest.raises(LayoutError, match="the pages of row group 0, column id are not where they should be"):
        add(small, placement="chunk-start")
    assert digest(small) == before
    assert leftovers(small.parent) == []

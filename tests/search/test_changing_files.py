"""Files that another program writes while they are searched: the answer is of one version, and no row is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bloom as pb
from parquet_bloom.errors import FileChangedError, ParquetBloomError
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.tails import Tails

ASK: dict[str, Callable[..., int]] = {
    "check": lambda at, **o: sum(not v.skipped for v in pb.check(at, "id = 7", **o)),
    "prune": lambda at, **o: sum(len(groups) for _, groups in pb.prune(at, "id = 7", **o)),
    "count": lambda at, **o: pb.count(at, "id = 7", **o),
    "read": lambda at, **o: pb.read_table(at, "id = 7", **o).num_rows,
    "dataset": lambda at, **o: pb.dataset(at, "id = 7", **o).to_table().num_rows,
    "locate": lambda at, **o: pb.locate(at, "id", [7]).num_rows,
}


def two_versions(folder: Path) -> list[bytes]:
    """A file and another of the same size: 7 is in both, in the first row group and in the last one."""
    versions = []
    for ids in ([7, *range(100, 163)], [*range(200, 263), 7]):
        pq.write_table(pa.table({"id": ids}), folder / "x", row_group_size=8, compression="none", use_dictionary=False)
        pb.add_filters(folder / "x", columns="id", in_place=True, max_bytes=64)
        versions.append((folder / "x").read_bytes())
    (folder / "x").unlink()
    assert len(versions[0]) == len(versions[1])
    return versions


def written(path: Path, data: bytes) -> None:
    """Write a file where it lies, as `cp` does."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, data, 0)
    os.ftruncate(fd, len(data))
    os.close(fd)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("n", [1, 6])  # searched alone, and several together
def test_a_file_that_is_written_while_it_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int, warm: bool
) -> None:
    versions = two_versions(tmp_path)
    files = [tmp_path / f"{i}.parquet" for i in range(n)]
    fetch, from_end = OpenFile._fetch, Tails.read
    left: list[int] = []

    def overtake() -> None:  # another program writes the last file at this moment, once
        if left:
            left.pop()
            written(files[-1], versions[1])

    def fetched(self: OpenFile, offset: int, length: int) -> bytes:
        if self.path == str(files[-1]):
            overtake()
        return fetch(self, offset, length)

    def read(self: Tails, *place: int) -> bytes:
        overtake()
        return from_end(self, *place)

    monkeypatch.setattr(OpenFile, "_fetch", fetched)
    monkeypatch.setattr(Tails, "read", read)
    for name, ask in ASK.items():
        for file in files:
            written(file, versions[0])
        options: dict[str, Any] = {"cache": pb.FooterCache()} if warm else {}
        for _ in range(warm):
            pb.check(files, "id < 0", **options)
        left.append(1)
        with suppress(FileChangedError):
            assert ask(files if n > 1 else files[0], **options) >= n, f"{name}: each version has a row of this key"
        left.clear()


def test_an_error_of_a_file_that_changed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replaced file of another size is no damaged one, however often it is tried."""
    versions = two_versions(tmp_path)
    file = tmp_path / "0.parquet"
    written(file, versions[0])
    fetch = OpenFile._fetch

    def cut(self: OpenFile, offset: int, length: int) -> bytes:
        written(file, versions[0][: os.path.getsize(file) - 40])
        return fetch(self, offset, length)

    monkeypatch.setattr(OpenFile, "_fetch", cut)
    with pytest.raises(ParquetBloomError) as error:
        pb.check(file, "id = 7")
    assert isinstance(error.value, FileChangedError)

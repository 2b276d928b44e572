"""What a key index may open, and how much memory it may take, whatever it says."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.footers import edited_footer

import parquet_bloom
from keys.key_indexes import ask, in_a_child, manifest_of, parts_of, questions, rewrite_manifest, said_anew
from parquet_bloom._thrift.parquet.ttypes import DataPageHeader, Encoding, PageHeader, PageType
from parquet_bloom.errors import DamagedFileError, LimitError
from parquet_bloom.format import compact
from parquet_bloom.keys import index as key_index

GIGABYTE = 1 << 30

# --- what an index may open -------------------------------------------------------------------------

_opened: list[str] | None = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str | bytes):
        _opened.append(os.fsdecode(arguments[0]))


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """The paths that this process opens or lists."""
    global _opened
    if not hasattr(_hook, "added"):
        sys.addaudithook(_hook)
        _hook.added = True  # type: ignore[attr-defined]
    _opened = []
    yield _opened
    _opened = None


OUTSIDE = ["/etc/passwd", "../secret.parquet", "../../../../../../etc/passwd", "s3://bucket/x.parquet", "~/x", "x\0y",
           "file:///etc/passwd", "//host/share/x.parquet", "http://127.0.0.1:9/x.parquet", ""]  # fmt: skip


def test_names_of_a_listing_are_only_compared(index: Path, shared: Path, opened: list[str]) -> None:
    pq.write_table(pa.table({"a": [1]}), shared.parent / "secret.parquet")  # what "../" leads to
    [path] = index.glob("segments/*/files.parquet")
    table = pq.ParquetFile(path).read()
    asked = questions(shared)
    roots = [None, None, None, None, "s3://bucket", "", "/", "/etc"]
    for start, root in zip(range(0, 24, 3), roots, strict=True):
        names = (OUTSIDE * 3)[start : start + 3]
        forged = table.set_column(2, "path", pa.array([names[n.as_py()] for n in table["file"]]))
        pq.write_table(forged, path, store_schema=False, write_page_checksum=True)
        said_anew(index, path, table.num_rows)
        if root is not None:
            rewrite_manifest(index, lambda words, root=root: words.update(root=root))
        ask(shared, index, asked)  # imports what is needed
        opened.clear()
        _, told = ask(shared, index, asked)
        assert told
        found = set(opened)
        opened.clear()
        for predicate, _ in asked:
            parquet_bloom.read_table(shared, predicate)
            parquet_bloom.check(shared, predicate)
        own = {part for path in index.rglob("*") for part in path.relative_to(index).parts}  # each below the one before
        more = {name for name in found - set(opened) if not name.startswith("/proc/self/fd/")}
        assert more
        assert more - own - {str(index)} == set(), (names, root)


def test_links_of_an_index_lead_to_damage_only(index: Path, shared: Path, tmp_path: Path) -> None:
    [part] = parts_of(index, 0)
    (tmp_path / "secret").write_bytes(b"the password is PASSWORD" * 500)
    part.unlink()
    part.symlink_to(tmp_path / "secret")
    _, told = ask(shared, index, questions(shared))
    assert told
    assert not [one for one in told if "PASSWORD" in one]


def test_a_pipe_in_an_index_does_not_hang(index: Path, shared: Path) -> None:
    for path in (parts_of(index, 0)[0], *index.glob("segments/*/*"), index / "manifest.json"):
        path.unlink()
        os.mkfifo(path)
        answered, told = ask(shared, index, questions(shared)[:2])
        assert told or not answered


# --- memory -----------------------------------------------------------------------------------------


def in_little_memory(work: Callable[[], object], most: int = GIGABYTE) -> int:
    """Run in a process that may take so many bytes more than it has."""

    def limited() -> None:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + most, size + most))
        work()

    return in_a_child(limited)


def answered_in_little_memory(shared: Path, index: Path, note: str) -> bool:
    """Whether all is answered there, without what the index cannot say, and a note tells of that."""
    asked = questions(shared)

    def work() -> None:
        answered, told = ask(shared, index, asked)
        assert answered == len(asked)
        assert any(note in one for one in told)

    return in_little_memory(work) == 0


def test_a_manifest_of_many_gigabytes_is_not_read(index: Path, shared: Path) -> None:
    with (index / "manifest.json").open("r+b") as file:
        file.truncate(20 * GIGABYTE)

    def work() -> None:
        with pytest.raises(DamagedFileError, match="too many for a manifest"):
            parquet_bloom.check(shared, "a = 5", index=index)

    assert in_little_memory(work) == 0


def bomb_page(path: Path, column: int) -> None:
    """Have a chunk of a file be one page that is 1.9 GB when decompressed."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    size = 1900 << 20
    page = pa.compress(bytes(size), "zstd", asbytes=True)
    with pq.ParquetFile(path) as file:
        n = file.metadata.row_group(0).num_rows
    numbers = DataPageHeader(n, Encoding.PLAIN, Encoding.RLE, Encoding.RLE)
    header = PageHeader(PageType.DATA_PAGE, size, len(page), data_page_header=numbers)
    added = compact.encode(header) + page
    path.write_bytes(data[: -8 - length] + added + data[-8 - length :])
    with edited_footer(path) as footer:
        meta = footer.row_groups[0].columns[column].meta_data
        meta.data_page_offset, meta.dictionary_page_offset = len(data) - 8 - length, None
        meta.total_compressed_size, meta.codec = len(added), 6


@pytest.mark.parametrize("which", ["part", "listing"])
def test_a_page_that_decompresses_to_gigabytes_is_not_decompressed(which: str, index: Path, shared: Path) -> None:
    [path] = parts_of(index, 0) if which == "part" else list(index.glob("segments/*/files.parquet"))
    rows = pq.read_metadata(path).num_rows
    bomb_page(path, 1)
    said_anew(index, path, rows)
    assert answered_in_little_memory(shared, index, "over half of max_memory")


def test_a_long_text_in_every_row_is_not_unfolded(index: Path, shared: Path) -> None:
    """30,000 places whose path is one text of 100 KB take 3 GB, and a few bytes in the file."""
    [path] = index.glob("segments/*/files.parquet")
    table = pq.ParquetFile(path).read()
    many = table.take(pa.array(np.zeros(30_000, np.int64)))
    long = pa.DictionaryArray.from_arrays(pa.array(np.zeros(30_000, np.int32)), pa.array(["x" * 100_000]))
    many = many.set_column(0, "place", pa.array(range(30_000), pa.int32())).set_column(2, "path", long)
    many = many.set_column(3, "row_group", pa.array(range(30_000), pa.int32()))
    pq.write_table(many, path, store_schema=False, compression="zstd")
    assert path.stat().st_size < 1 << 20
    said_anew(index, path, 30_000)
    rewrite_manifest(index, lambda words: words["segments"][0].update(places=30_000, files=1))
    assert answered_in_little_memory(shared, index, "its texts take up to")


@pytest.mark.parametrize("claim", ["values", "rows"])
def test_a_row_group_of_many_values_is_not_read(claim: str, index: Path, shared: Path) -> None:
    for path in (parts_of(index, 0)[0], *index.glob("segments/*/files.parquet")):
        whole, manifest = path.read_bytes(), (index / "manifest.json").read_bytes()
        with edited_footer(path) as footer:
            rows = footer.row_groups[0].num_rows
            for chunk in footer.row_groups[0].columns:
                chunk.meta_data.num_values = 2**31 - 1
            if claim == "rows":
                footer.row_groups[0].num_rows = footer.num_rows = rows = 2**31 - 1
        said_anew(index, path, rows)
        if rows > 1000 and "segments" in path.parts:
            rewrite_manifest(index, lambda words: words["segments"][0].update(places=2**31 - 1))
        assert answered_in_little_memory(shared, index, str(path))
        path.write_bytes(whole)
        (index / "manifest.json").write_bytes(manifest)


def test_limits_are_raised_for_an_index_too(index: Path, tmp_path: Path) -> None:
    """What is refused for its size is a LimitError, of which a note tells the name."""
    before = parquet_bloom.set_limits(max_memory=20)
    try:
        with pytest.raises(LimitError, match="max_memory"):
            key_index.KeyIndex(index).listing(manifest_of(index).segments[0])
    finally:
        parquet_bloom.set_limits(max_memory=before.max_memory)

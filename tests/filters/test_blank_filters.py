"""Filters that show without decoding that they are no evidence: no bit, among pages, own bounds denied."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from support import draft_2015_files
from support.footers import edited_footer

import parquet_bloom
from parquet_bloom import FilterWarning, cli
from parquet_bloom._thrift.parquet.ttypes import ColumnMetaData
from parquet_bloom.format import compact, draft_2015, final
from parquet_bloom.format.forms import FORMATS
from parquet_bloom.kernels import split_block
from parquet_bloom.kernels.hashes import hash_array
from parquet_bloom.kernels.split_block import MAX_BYTES
from parquet_bloom.storage.open_file import OpenFile

KEYS = [5, 900, 77, 12]


@contextmanager
def edited_meta(path: Path) -> Iterator[ColumnMetaData]:
    """What the footer says of the first chunk."""
    with edited_footer(path) as metadata:
        yield metadata.row_groups[0].columns[0].meta_data


def filtered(folder: Path, table: pa.Table, **options: object) -> Path:
    path = folder / "filtered.parquet"
    pq.write_table(table, folder / "plain.parquet", use_dictionary=False, compression="none")
    parquet_bloom.add_filters(
        folder / "plain.parquet", path, columns=table.column_names, sync=False, overwrite=True, **options
    )
    return path


def zeroed(path: Path) -> Path:
    """All bits of all filters taken out."""
    data = bytearray(path.read_bytes())
    for info in parquet_bloom.inspect(path).files[0].filters:
        start = info.offset + len(FORMATS[info.spec].header(info.num_bytes))
        data[start : start + info.num_bytes] = bytes(info.num_bytes)
    path.write_bytes(data)
    return path


def with_filter(path: Path, header: bytes, bits: bytes, length: int | None = None) -> Path:
    """The first chunk's filter is now this one, behind all others."""
    data = path.read_bytes()
    at = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[:at] + header + bits + data[at:])
    with edited_meta(path) as meta:
        meta.bloom_filter_offset, meta.bloom_filter_length = at, length
    return path


@pytest.fixture(params=["kernel", "ranges", "remote"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> object:
    """By the compiled loop, by ranges of a local file, on another storage; gives the file system."""
    from parquet_bloom.filters import asking

    if request.param == "kernel":
        import parquet_bloom.filters.ask_kernel  # noqa: F401
    else:
        monkeypatch.setattr(asking, "_ask_by_loop", asking._ask_by_ranges)
    return fs.SubTreeFileSystem("/", fs.LocalFileSystem()) if request.param == "remote" else None


def rows_of(path: Path, value: int, filesystem: object) -> int:
    return parquet_bloom.read_table(path, f"a = {value}", filesystem=filesystem).num_rows


@pytest.mark.parametrize(
    ("spec", "num_bytes"), [("final", 1 << 16), ("final", 64), ("parquet-41", 1 << 16), ("parquet-41-raw", 64)]
)
def test_a_filter_without_a_bit_over_stored_values(tmp_path: Path, spec: str, num_bytes: int, way: object) -> None:
    path = zeroed(filtered(tmp_path, pa.table({"a": KEYS}), spec=spec))
    if num_bytes > 64:
        form = FORMATS[spec]
        length = num_bytes + len(form.header(num_bytes)) if form.writes_length else None
        with_filter(path, form.header(num_bytes), bytes(num_bytes), length)
    assert parquet_bloom.inspect(path).files[0].filters[0].problems == ["no bit is set, but 4 values are stored"]
    with pytest.warns(FilterWarning, match="no bit is set, but 4 values are stored"):
        assert rows_of(path, 77, way) == 1
    assert parquet_bloom.prune(path, column="a", values=[77, 12], filesystem=way) == [(str(path), [0])]
    with pytest.warns(FilterWarning):
        verdict = parquet_bloom.check(path, "a = 78", filesystem=way)[0]
    assert not verdict.skipped
    assert "no bit is set" in verdict.reason


def test_without_a_null_count_nobody_can_tell(tmp_path: Path, way: object) -> None:
    path = zeroed(filtered(tmp_path, pa.table({"a": KEYS})))
    with edited_meta(path) as meta:
        meta.statistics.null_count = None
    info = parquet_bloom.inspect(path).files[0].filters[0]
    reason = "no bit is set, and the footer does not say that all 4 values are NULL"
    assert (info.problems, info.notes) == ([], [f"not used: {reason}"])
    assert rows_of(path, 77, way) == 1, "no damage is proven, but it is no evidence either"


def test_a_filter_without_a_bit_over_nulls_is_right(tmp_path: Path, way: object) -> None:
    table = pa.table({"a": pa.array([None, None], pa.int64()), "b": [1, 2]})
    path = filtered(tmp_path, table, ndv=1)
    infos = parquet_bloom.inspect(path).files[0].filters
    assert not [problem for info in infos for problem in info.problems + info.notes]
    assert parquet_bloom.check(path, "a = 5", filesystem=way)[0].skipped


def test_an_empty_block_of_a_filter_with_bits_is_an_answer(tmp_path: Path, way: object) -> None:
    """Sparse filters are sound: they must go on denying, and say so for few more bytes, once."""
    blocks = split_block.empty(1 << 16)
    split_block.insert_hashes(blocks, hash_array(pa.array(KEYS, pa.int64())))
    header = final.header(1 << 16)
    path = filtered(tmp_path, pa.table({"a": KEYS}))
    with_filter(path, header, blocks.tobytes(), len(header) + (1 << 16))
    info = parquet_bloom.inspect(path).files[0].filters[0]
    assert (info.num_bytes, info.bits_set) == (1 << 16, 32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        verdicts = [parquet_bloom.check(path, f"a = {n}", filesystem=way)[0] for n in range(100, 140)]
    assert all(v.skipped for v in verdicts)
    assert all(rows_of(path, key, way) == 1 for key in KEYS)
    cache = parquet_bloom.FooterCache()
    again = [parquet_bloom.check(path, f"a = {n}", filesystem=way, cache=cache)[0] for n in (100, 100)]
    assert again[1].bytes_read < 100 <= again[0].bytes_read


def test_a_filter_among_another_chunk_s_pages_is_wrong(tmp_path: Path, way: object) -> None:
    """A text that is a filter, byte for byte; in the one column it is a value, the other one points at it."""
    bits = bytes(32)
    text = final.header(32) + b"\x01" + bits[1:]
    path = tmp_path / "inside.parquet"
    table = pa.table({"a": KEYS, "text": [text] * 4})
    pq.write_table(table, path, use_dictionary=False, compression="none", write_statistics=["a"])
    at = path.read_bytes().index(text)
    with edited_meta(path) as meta:
        meta.bloom_filter_offset, meta.bloom_filter_length = at, len(text)
    said = f"bloom_filter_offset {at} lies among another chunk's pages, which end at"
    assert said in parquet_bloom.inspect(path).files[0].filters[0].problems[0]
    verified = parquet_bloom.verify(path).files[0].filters[0]
    assert (verified.status, said in verified.reason) == ("wrong", True)
    with pytest.warns(FilterWarning, match="among another chunk's pages"):
        assert rows_of(path, 77, way) == 1


def test_a_negative_offset_is_told(tmp_path: Path, way: object) -> None:
    path = filtered(tmp_path, pa.table({"a": KEYS}))
    for offset in (-1, -5000, -(2**62)):
        with edited_meta(path) as meta:
            meta.bloom_filter_offset = offset
        said = f"bloom_filter_offset {offset} lies outside the file's body"
        assert parquet_bloom.inspect(path).files[0].filters[0].problems == [said]
        assert parquet_bloom.verify(path).files[0].filters[0].reason == said
        with pytest.warns(FilterWarning, match="lies outside"):
            assert rows_of(path, 77, way) == 1
    assert cli.run(["inspect", str(path)]) == 0
    out = tmp_path / "removed.parquet"
    assert cli.run(["remove", str(path), "-o", str(out)]) == 0
    assert parquet_bloom.read_table(out).num_rows == 4


@pytest.mark.parametrize(("column", "k"), [("a", 60), ("text", 1000), ("a", 4096)])
def test_a_2015_filter_with_a_false_k(tmp_path: Path, column: str, k: int) -> None:
    """It denies nearly everything, its chunk's own min and max among it."""
    rng = np.random.default_rng(3)
    table = pa.table({"a": rng.integers(0, 2**40, 400), "text": [f"k{i}" for i in rng.integers(0, 2**30, 400)]})
    path = filtered(tmp_path, table, spec="statistics")
    with edited_footer(path) as metadata:
        for pair in (pair for chunk in metadata.row_groups[0].columns for pair in chunk.meta_data.key_value_metadata):
            if pair.key == draft_2015.KEY:
                longs, _, _ = draft_2015.decode_struct(base64.b64decode(pair.value))
                pair.value = base64.b64encode(draft_2015_files.struct(longs.view(np.int64).tolist(), k)).decode()
    info = next(f for f in parquet_bloom.inspect(path).files[0].filters if f.column == column)
    assert "the chunk's own min" in info.problems[0]
    assert info.hash_functions == k
    value = table.column(column)[7].as_py()
    with pytest.warns(FilterWarning, match="the chunk's own min"):
        assert parquet_bloom.read_table(path, [(column, "=", value)]).num_rows == 1
    assert parquet_bloom.prune(path, column=column, values=[value]) == [(str(path), [0])]


def test_a_filter_over_what_everybody_refuses(tmp_path: Path, way: object) -> None:
    """A sparse file: two gigabytes that take no room on the disk must take none in memory."""
    path = filtered(tmp_path, pa.table({"a": KEYS}))
    size = (1 << 31) - 64
    header = final.header(size)
    with_filter(path, header, b"")
    data = path.read_bytes()
    at = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    with path.open("r+b") as file:
        file.seek(at + size)
        file.write(data[at:])
    reason = f"numBytes is {size}, over the {MAX_BYTES} that readers take"
    with OpenFile(path) as source:
        info = parquet_bloom.inspect(path).files[0].filters[0]
        assert info.problems == [reason]
        assert info.num_bytes == size
        assert source.size > size
    with pytest.warns(FilterWarning, match="over the 134217728 that readers take"):
        assert rows_of(path, 77, way) == 1
    assert parquet_bloom.verify(path).files[0].filters[0].reason == reason


def test_a_rotten_filter_with_a_checksum_is_no_evidence(tmp_path: Path, way: object) -> None:
    """A form of 2018 may have a checksum; a bit that is lost is a row that is lost."""
    from parquet_bloom._thrift.parquet_41 import ttypes
    from parquet_bloom.format import parquet_41

    path = filtered(tmp_path, pa.table({"a": KEYS}), spec="parquet-41")
    info = parquet_bloom.inspect(path).files[0].filters[0]
    old = parquet_41.page_header(info.num_bytes)
    page = compact.decode(ttypes.PageHeader, old)[0]
    page.crc = 12345
    start = info.offset + len(old)
    with_filter(path, compact.encode(page), path.read_bytes()[start : start + info.num_bytes])
    assert "crc is 00003039" in parquet_bloom.inspect(path).files[0].filters[0].problems[0]
    with pytest.warns(FilterWarning, match="crc is 00003039"):
        assert rows_of(path, 77, way) == 1

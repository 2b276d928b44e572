"""The sizes that docs/reliability.md promises: offsets beyond 4 GiB, many row groups, columns, names, long values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.samples import digest, keys_table, write_keys
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.transport.TTransport import TMemoryBuffer

import parquet_bloom
from parquet_bloom._thrift.parquet.ttypes import FileMetaData

HOLE = 5 << 30  # bytes


def with_a_hole(path: Path, target: Path, after: int) -> Path:
    """The file with `HOLE` zero bytes before row group `after`; they take no room on the disk."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = FileMetaData()
    footer.read(TCompactProtocol(TMemoryBuffer(data[-8 - length : -8])))
    cut = footer.row_groups[after].file_offset
    for row_group in footer.row_groups[after:]:
        row_group.file_offset += HOLE
        for chunk in row_group.columns:
            chunk.file_offset += HOLE if chunk.file_offset else 0
            meta = chunk.meta_data
            for name in ("data_page_offset", "dictionary_page_offset", "index_page_offset"):
                if getattr(meta, name):
                    setattr(meta, name, getattr(meta, name) + HOLE)
    for row_group in footer.row_groups:
        for chunk in row_group.columns:  # what lies behind all pages
            if chunk.meta_data.bloom_filter_offset:
                chunk.meta_data.bloom_filter_offset += HOLE
            chunk.column_index_offset += HOLE
            chunk.offset_index_offset += HOLE
    out = TMemoryBuffer()
    footer.write(TCompactProtocol(out))
    new = out.getvalue()
    with open(target, "wb") as file:
        file.write(data[:cut])
        file.seek(cut + HOLE)
        file.write(data[cut : -8 - length] + new + len(new).to_bytes(4, "little") + b"PAR1")
    return target


@pytest.fixture
def far(tmp_path: Path) -> Path:
    """Its second and third row groups, and all filters, lie beyond what 32 bits can count."""
    keys = write_keys(tmp_path / "near.parquet", bloom_filter_options={"id": {"ndv": 1000}}, write_page_index=True)
    return with_a_hole(keys, tmp_path / "far.parquet", after=1)


def survivors(path: Path, predicate: str) -> list[int]:
    return [number for _, numbers in parquet_bloom.prune(path, predicate) for number in numbers]


def verdicts(path: Path) -> set[str]:
    return {found.status for found in parquet_bloom.verify(path).files[0].filters}


def test_offsets_beyond_4_gib_are_read(far: Path) -> None:
    near = far.with_name("near.parquet")
    assert far.stat().st_size > HOLE > 1 << 32
    assert pq.read_table(far).equals(pq.read_table(near)), "the file is what it should be"
    wanted = keys_table()["id"][-1].as_py()
    assert survivors(far, f"id = {wanted}") == survivors(near, f"id = {wanted}") != survivors(near, "id > 0")
    assert parquet_bloom.read_table(far, f"id = {wanted}").num_rows == 1
    (info,) = parquet_bloom.inspect(far).files
    assert [f.problems for f in info.filters] == [[], [], []]
    assert verdicts(far) == {"right"}
    assert min(f.offset for f in info.filters) > 1 << 32


@pytest.mark.slow
def test_offsets_beyond_4_gib_are_written_and_taken_out_again(far: Path) -> None:
    before = digest(far)
    parquet_bloom.add_filters(far, in_place=True, columns=["name", "user.id"])
    assert verdicts(far) == {"right"}
    assert pq.read_table(far).equals(keys_table())
    parquet_bloom.remove_filters(far, in_place=True, columns=["name", "user.id"])
    assert digest(far) == before


@pytest.mark.more
def test_more_row_groups_than_an_ordinal_can_count(tmp_path: Path) -> None:
    """RowGroup.ordinal is an i16."""
    rows = 33_000
    ids = np.random.default_rng(3).permutation(rows)
    path = tmp_path / "many.parquet"
    pq.write_table(pa.table({"id": ids}), path, row_group_size=1, use_dictionary=False, write_statistics=False)
    before = digest(path)
    assert pq.read_metadata(path).num_row_groups == rows
    added = parquet_bloom.add_filters(path, in_place=True, columns=["id"])
    assert len(added.files[0].filters) == rows
    wanted = int(ids[-1])
    left = survivors(path, f"id = {wanted}")
    assert rows - 1 in left
    assert len(left) < rows / 50
    assert parquet_bloom.read_table(path, f"id = {wanted}")["id"].to_pylist() == [wanted]
    parquet_bloom.remove_filters(path, in_place=True)
    assert digest(path) == before


def test_ten_thousand_columns(tmp_path: Path) -> None:
    columns = 10_000
    ids = np.random.default_rng(4).integers(0, 2**62, (columns, 3))
    table = pa.table({f"c{i}": ids[i] for i in range(columns)})
    path = tmp_path / "wide.parquet"
    pq.write_table(table, path, use_dictionary=False)
    before = digest(path)
    parquet_bloom.add_filters(path, in_place=True, columns=["c?", "c9999"])
    assert len(parquet_bloom.inspect(path).files[0].filters) == 11
    assert survivors(path, f"c9999 = {ids[9999][1]}") == [0]
    assert survivors(path, f"c9999 = {ids[9999][1] ^ 1}") == []
    parquet_bloom.remove_filters(path, in_place=True)
    assert digest(path) == before


def test_a_column_name_and_a_value_of_megabytes(tmp_path: Path) -> None:
    name, value = "n" * 1_000_000, b"v" * 20_000_000
    path = tmp_path / "long.parquet"
    pq.write_table(pa.table({name: [value, b"short", None]}), path, use_dictionary=False, write_statistics=False)
    parquet_bloom.add_filters(path, in_place=True, columns=["*"])
    assert survivors(path, f"{name} = 'short'") == [0]
    assert survivors(path, f"{name} = 'absent'") == []
    assert parquet_bloom.prune(path, column=name, values=[value, value[1:]]) == [(str(path), [0])]
    assert parquet_bloom.prune(path, column=name, values=[value[1:]]) == []
    assert verdicts(path) == {"right"}


def test_a_filter_never_exceeds_what_readers_refuse(tmp_path: Path) -> None:
    """128 MiB, which parquet-java, Arrow and DuckDB take at most; the rate is then what it is, and told."""
    path = tmp_path / "guess.parquet"
    pq.write_table(pa.table({"id": np.arange(1000)}), path)
    (added,) = parquet_bloom.add_filters(
        path, tmp_path / "out.parquet", columns=["id"], ndv=10**10, max_bytes=1 << 40
    ).files
    assert [f.num_bytes for f in added.filters] == [2048], "folded to what the values need"

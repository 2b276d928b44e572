"""Footers by the compiled walk: the same answers as through the bindings, over every file there is."""

from __future__ import annotations

import io

import pyarrow.parquet as pq
import pytest
from support.corpus import FIXTURES, corpus_file, footer_bytes, footer_files
from support.naive import made_footer
from support.named import named
from support.repeats import by_turns

import parquet_bloom
from parquet_bloom._thrift.parquet.ttypes import ColumnChunk, ColumnMetaData, FileMetaData, RowGroup, SchemaElement
from parquet_bloom.errors import LimitError
from parquet_bloom.format import compact
from parquet_bloom.format.footer import MAGIC, Footer, decode_footer
from parquet_bloom.format.footer_filters import footer_filters
from parquet_bloom.format.outlines import walk_outline
from parquet_bloom.format.provenance import all_ranges, read_entries
from parquet_bloom.format.walked import WalkedFooter, one_column
from parquet_bloom.kernels import hashes
from parquet_bloom.storage import open_file as storage

FAR = 1 << 40  # where the footers are said to begin


def walked(data: bytes) -> WalkedFooter | None:
    outline = walk_outline(data, FAR)
    return outline and WalkedFooter(outline, lambda: decode_footer(data, FAR).metadata)


def tells(footer: Footer) -> dict[str, object]:
    """All that is asked of a footer without an object for each chunk."""
    columns = [footer.column_chunks(leaf.index) for leaf in footer.leaves]
    for column in columns:  # a codec that is not there is the first, as writers of fastparquet's old days meant
        column.codecs[:] = [codec or 0 for codec in column.codecs]
    return {
        "leaves": footer.leaves,
        "row groups": footer.n_row_groups,
        "rows": footer.rows,
        "created by": footer.created_by,
        "key-values": footer.key_values,
        "columns": columns,
        "filters": footer.filter_ranges,
        "fields": footer.filter_fields,
        "foreign": footer.foreign_filter_fields,
        "structures": footer.structure_starts,
        "of chunks": list(footer.chunk_key_values()),
        "2015": footer.draft_filters,
        "stored": footer_filters(footer),
        "places": all_ranges(footer),
        "entries": read_entries(footer),
        "head": (footer.head.version, footer.head.num_rows, footer.head.schema),
    }


def test_a_walked_footer_tells_what_the_bindings_tell():
    found_walked = 0
    for name in footer_files():
        data = footer_bytes(corpus_file(name))
        with named(name):
            if (found := walked(data)) is None:
                continue  # which may be: test_outline.py
            found_walked += 1
            assert tells(found) == tells(decode_footer(data, FAR))
            assert "metadata" not in vars(found), "no object was made for all that"
            bound = decode_footer(data, FAR)
            assert found.metadata == bound.metadata, "but whoever asks for one gets it"
            for leaf in bound.leaves:
                assert shown(one_column(walked(data), leaf)) == shown(one_column(bound, leaf)), "the same for pyarrow"
    assert found_walked > 0.9 * len(footer_files())


def test_filters_of_all_sorts_in_a_made_footer():
    for places in ({(0, 1): (1 << 39, 1040), (1, 0): (5, None)}, {(1, 2): (0, 48)}, {}):
        data = made_footer([], places=places)
        assert tells(walked(data)) == tells(decode_footer(data, FAR)), places


def shown(data: bytes) -> dict[str, object]:
    """What pyarrow reads from a footer, or says of it."""
    try:
        found = pq.read_metadata(io.BytesIO(MAGIC + data + len(data).to_bytes(4, "little") + MAGIC)).to_dict()
    except OSError as error:
        return {"error": str(error)}
    return {**found, "serialized_size": None}


@pytest.mark.parametrize("encodings", [[0, 3], [-(1 << 31)], [0] * 15, []])
def test_the_footer_of_one_column_has_the_numbers_of_each_row_group(encodings):
    """Numbers of every length, dictionaries in some row groups, and encodings that look like a number's place."""
    numbers = [1, 127, 128, 1 << 20, 1 << 40, (1 << 62) + 5]
    groups = []
    for at, number in enumerate(numbers):
        meta = ColumnMetaData(
            type=2, encodings=encodings, path_in_schema=["id"], codec=at % 2, num_values=number,
            total_uncompressed_size=number + 1, total_compressed_size=number + 2, data_page_offset=number + 3,
            dictionary_page_offset=number + 4 if at % 3 else None,
        )  # fmt: skip
        groups.append(RowGroup([ColumnChunk(file_offset=0, meta_data=meta)], total_byte_size=0, num_rows=number + 5))
    schema = [SchemaElement(name="s", num_children=1), SchemaElement(name="id", type=2, repetition_type=0)]
    data = compact.encode(FileMetaData(1, schema, 7, groups, created_by="x"))
    if encodings and encodings[0] < 0:  # a varint of ten bytes, the largest there is
        (old,) = {compact.encode(ColumnMetaData(encodings=encodings))[2:-1]}
        data = data.replace(old, b"\xff" * 9 + b"\x01")
    footer = walked(data)
    assert footer is not None
    made = one_column(footer, footer.leaves[0])
    if encodings and encodings[0] < 0:
        made = made.replace(b"\xff" * 9 + b"\x01", old)
    found = compact.decode(FileMetaData, made)[0]
    for group, number in zip(found.row_groups, numbers, strict=True):
        meta = group.columns[0].meta_data
        sizes = meta.num_values, meta.total_uncompressed_size, meta.total_compressed_size, meta.data_page_offset
        assert (*sizes, group.num_rows) == (number, number + 1, number + 2, number + 3, number + 5)
        assert meta.encodings == encodings
    had = [group.columns[0].meta_data.dictionary_page_offset for group in groups]
    assert [group.columns[0].meta_data.dictionary_page_offset for group in found.row_groups] == had
    assert [group.columns[0].meta_data.codec for group in found.row_groups] == [0, 1] * 3


@pytest.fixture
def always_walked(monkeypatch):
    monkeypatch.setattr(storage, "_WALK_BYTES", 0)
    monkeypatch.setattr(storage, "_LOAD_BYTES", 0)
    monkeypatch.setattr(hashes, "ALLOWED_NS", -1)


FILES = [f"pyarrow/{path.name}" for path in sorted((FIXTURES / "pyarrow").glob("*.parquet"))]


@pytest.mark.parametrize(("name", "placement"), by_turns(FILES, ["footer", "chunk-start"]))
def test_add_and_remove_write_the_same_bytes(name, placement, tmp_path, request):
    source = FIXTURES / name
    done = [tmp_path / "bindings.parquet", tmp_path / "walked.parquet", tmp_path / "removed.parquet"]
    parquet_bloom.add_filters(source, done[0], replace=True, placement=placement)
    request.getfixturevalue("always_walked")
    parquet_bloom.add_filters(source, done[1], replace=True, placement=placement)
    assert done[0].read_bytes() == done[1].read_bytes()
    bare = tmp_path / "bare.parquet"
    parquet_bloom.remove_filters(source, bare)
    parquet_bloom.add_filters(bare, done[0], overwrite=True, placement=placement)
    parquet_bloom.remove_filters(done[0], done[2])
    assert done[2].read_bytes() == bare.read_bytes()


def test_what_only_the_bindings_refuse_is_told_when_an_object_is_asked_for(always_walked):
    path = FIXTURES / "pyarrow/trace_ids.parquet"
    with storage.OpenFile(path) as source:
        footer = source.footer()
        assert footer.n_row_groups > 0, "the walk holds no text, however long"
        before = parquet_bloom.set_limits(max_string_bytes=3)
        try:
            with pytest.raises(LimitError, match="trace_ids.parquet: .* max_string_bytes"):
                _ = footer.metadata
        finally:
            parquet_bloom.set_limits(max_string_bytes=before.max_string_bytes)

"""Thrift's long form of field headers, which names each field's id: some writers use it, and it means the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.repeats import by_turns
from support.samples import write_keys

import parquet_bloom
from parquet_bloom.format import compact_tree, final, footer, outline, parquet_41
from parquet_bloom.format.filters import recognise
from parquet_bloom.format.outlines import walk_outline

Wanted = Callable[[int, int], bool]  # depth, id -> whether this header gets the long form


def longer(data: bytes, wanted: Wanted = lambda *_: True) -> bytes:
    """A struct with the field headers wanted in the long form, and all other bytes as they are."""
    return _struct(data, 0, 0, wanted)[0]


def _struct(data: bytes, at: int, depth: int, wanted: Wanted) -> tuple[bytes, int]:
    out, last = b"", 0
    while (header := compact_tree.field_header(data, at, last)) is not None:
        number, wire, start = header
        short = data[at:start]
        out += bytes([wire]) + compact_tree._zigzag(number) if wanted(depth, number) else short
        value, at = _value(data, start, wire, depth, wanted)
        out, last = out + value, number
    return out + b"\0", at + 1


def _value(data: bytes, at: int, wire: int, depth: int, wanted: Wanted) -> tuple[bytes, int]:
    if wire == compact_tree.STRUCT:
        return _struct(data, at, depth + 1, wanted)
    if wire == compact_tree.LIST:
        size, kind, start = compact_tree.list_header(data, at)
        out, at = data[at:start], start
        for _ in range(size):
            if kind == compact_tree.STRUCT:
                item, at = _struct(data, at, depth + 1, wanted)
            else:
                end = compact_tree.skip_element(data, at, kind, depth)
                item, at = data[at:end], end
            out += item
        return out, at
    end = compact_tree.skip(data, at, wire)
    return data[at:end], end


FORMS: dict[str, Wanted] = {
    "all": lambda *_: True,
    "the root alone": lambda depth, _: depth == 0,
    "created_by": lambda depth, number: (depth, number) == (0, 6),  # as Xtract Universal writes it
    "below the root": lambda depth, _: depth > 0,
    "column metadata": lambda depth, _: depth == 3,
    "odd ids": lambda _, number: number % 2 == 1,
}


def with_footer(path: Path, edit: Callable[[bytes], bytes]) -> bytes:
    data = path.read_bytes()
    n = int.from_bytes(data[-8:-4], "little")
    new = edit(data[-8 - n : -8])
    path.write_bytes(data[: -8 - n] + new + len(new).to_bytes(4, "little") + b"PAR1")
    return new


OPTIONS: list[dict[str, str]] = [{}, {"placement": "chunk-start"}, {"spec": "statistics"}, {"spec": "parquet-41"}]


@pytest.mark.parametrize(("form", "options"), by_turns(FORMS, OPTIONS))
def test_filters_go_in_and_out_and_every_byte_comes_back(tmp_path: Path, form: str, options: dict[str, str]) -> None:
    path = write_keys(tmp_path / "keys.parquet", store_schema=False, write_page_index=True)
    plain = pq.read_table(path)
    with_footer(path, lambda data: longer(data, FORMS[form]))
    old = path.read_bytes()
    assert pq.read_table(path).equals(plain), "pyarrow takes it"
    out = tmp_path / "out.parquet"
    report = parquet_bloom.add_filters(path, out, columns=["id", "name"], sync=False, **options)
    assert len(report.files[0].filters) == 6
    assert not parquet_bloom.verify(out).files[0].wrong
    assert pq.read_table(out).equals(plain)
    value = plain.column("id")[500].as_py()
    assert parquet_bloom.read_table(out, f"id = {value}").num_rows == 1
    assert [v.skipped for v in parquet_bloom.check(out, f"id = {value}", use_filters=True)].count(False) == 1
    back = tmp_path / "back.parquet"
    parquet_bloom.remove_filters(out, back, sync=False)
    assert back.read_bytes() == old


def test_both_readers_of_footers_see_the_same(tmp_path: Path) -> None:
    path = write_keys(tmp_path / "keys.parquet", write_page_index=True)
    data = with_footer(path, lambda data: data)
    short = footer.decode_footer(data, 0)
    values = outline.outline_of(short).slots[outline.Slot.NUM_VALUES]
    for form, wanted in FORMS.items():
        long = longer(data, wanted)
        assert footer.decode_footer(long, 0).metadata == short.metadata, form
        walked = walk_outline(long, 0)
        assert walked is not None, "the compiled walk need not give up"
        assert (walked.slots[outline.Slot.NUM_VALUES] == values).all(), form


def test_a_filter_s_header() -> None:
    header = {"final": final.header, "parquet-41": parquet_41.page_header, "parquet-41-early": parquet_41.early_header}
    for spec, made in header.items():
        short = made(1024)
        found = recognise(longer(short) + bytes(64))
        assert (found.spec, found.num_bytes, found.size) == (spec, 1024, len(longer(short)))
        assert found.candidates[0].rule == recognise(short + bytes(64)).candidates[0].rule


def test_a_filter_with_such_a_header_is_asked(tmp_path: Path) -> None:
    plain, path = tmp_path / "plain.parquet", tmp_path / "filtered.parquet"
    pq.write_table(pa.table({"a": [5, 900, 77]}), plain, use_dictionary=False)
    parquet_bloom.add_filters(plain, path, columns=["a"], sync=False)
    info = parquet_bloom.inspect(path).files[0].filters[0]
    data = path.read_bytes()
    n = int.from_bytes(data[-8:-4], "little")
    short = final.header(info.num_bytes)
    new = longer(short) + data[info.offset + len(short) : info.offset + info.length]
    metadata = footer.decode_footer(data[-8 - n : -8], 0).metadata
    metadata.row_groups[0].columns[0].meta_data.bloom_filter_length = len(new)
    coded = footer.compact.encode(metadata)
    path.write_bytes(data[: info.offset] + new + coded + len(coded).to_bytes(4, "little") + b"PAR1")
    assert parquet_bloom.inspect(path).files[0].filters[0].problems == []
    assert parquet_bloom.verify(path).files[0].filters[0].status == "right"
    assert [v.skipped for n in (900, 901) for v in parquet_bloom.check(path, f"a = {n}")] == [False, True]
    parquet_bloom.remove_filters(path, tmp_path / "x.parquet", sync=False, all_writers=True)
    assert parquet_bloom.inspect(tmp_path / "x.parquet").files[0].filters == []

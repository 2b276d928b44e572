"""A file is the one that was searched, or it is not, whoever decoded its footer the first time and the second."""

from __future__ import annotations

from support.corpus import corpus_file, fixture_files, footer_bytes

from parquet_bloom.errors import FooterError
from parquet_bloom.format.footer import decode_footer
from parquet_bloom.format.outline import Outline, outline_of
from parquet_bloom.format.outlines import walk_outline
from parquet_bloom.rows.unchanged import fingerprint

START = 1 << 20


def by_bindings(data: bytes) -> Outline | None:
    try:
        return outline_of(decode_footer(data, START))
    except FooterError:
        return None


def test_a_version_is_the_same_whoever_decodes_its_footer() -> None:
    """The compiled walk may be loaded between a search and the reading of its rows."""
    compared = 0
    for name in fixture_files():
        data = footer_bytes(corpus_file(name))
        walked, bound = walk_outline(data, START), by_bindings(data)
        if walked is not None and bound is not None:
            assert fingerprint(walked) == fingerprint(bound), name
            compared += 1
    assert compared > 5


def test_another_statistic_is_another_version() -> None:
    data = footer_bytes(corpus_file("pyarrow/trace_ids.parquet"))
    outline = by_bindings(data)
    assert outline is not None
    before = fingerprint(outline)
    at, length = (int(outline.slots[slot].flat[0]) for slot in (14, 15))
    assert length > 0
    outline.data = outline.data[:at] + bytes([outline.data[at] ^ 1]) + outline.data[at + 1 :]
    assert fingerprint(outline) != before

"""Page headers: the quick reader says what the bindings say, or passes the header on to them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from parquet_bloom._thrift.parquet.ttypes import (
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    Encoding,
    PageHeader,
    PageType,
    Statistics,
)
from parquet_bloom.errors import FooterError
from parquet_bloom.format import compact
from parquet_bloom.format.compact import PageHead, page_head


def some_header(rng: Random) -> PageHeader:
    numbers = [0, 1, 63, 64, 8191, 8192, 2**31 - 1]
    texts = [None, b"", b"abc", bytes(200)]
    statistics = Statistics(
        max=rng.choice(texts), min=rng.choice(texts), null_count=rng.choice([None, *numbers, 2**33]),
        distinct_count=rng.choice([None, 3]), max_value=rng.choice(texts), min_value=rng.choice(texts),
        is_max_value_exact=rng.choice([None, True, False]), is_min_value_exact=rng.choice([None, True, False]),
    )  # fmt: skip
    header = PageHeader(
        type=PageType.DATA_PAGE, uncompressed_page_size=rng.choice(numbers), compressed_page_size=rng.choice(numbers),
        crc=rng.choice([None, -5, 2**31 - 1]),
    )  # fmt: skip
    n, encoding = rng.choice(numbers), rng.choice(sorted(Encoding._VALUES_TO_NAMES))
    more = {"statistics": rng.choice([None, statistics, statistics])}
    match rng.choice(["v1", "v1", "v1", "v2", "dictionary", "none"]):
        case "v1":
            levels = rng.choice([Encoding.RLE, Encoding.BIT_PACKED])
            header.data_page_header = DataPageHeader(n, encoding, Encoding.RLE, levels, **more)
        case "v2":
            header.type = PageType.DATA_PAGE_V2
            header.data_page_header_v2 = DataPageHeaderV2(n, 0, rng.choice(numbers), encoding, 3, 0, **more)
        case "dictionary":
            header.type = PageType.DICTIONARY_PAGE
            header.dictionary_page_header = DictionaryPageHeader(n, Encoding.PLAIN)
    return header


def by_bindings(data: bytes, monkeypatch: pytest.MonkeyPatch) -> PageHead | str:
    with monkeypatch.context() as patch:
        patch.setattr(compact, "_plain_head", lambda data: None)
        return read(data)


def read(data: bytes) -> PageHead | str:
    try:
        return page_head(data)
    except FooterError:
        return "refused"


def test_headers_of_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(1)
    quick: list[Any] = []
    for _ in range(1000):
        header = some_header(rng)
        data = compact.encode(header)
        found = read(data + rng.randbytes(3))
        assert found == by_bindings(data, monkeypatch)
        assert isinstance(found, PageHead)
        assert (found.compressed, found.uncompressed, found.length) == (
            header.compressed_page_size, header.uncompressed_page_size, len(data)
        )  # fmt: skip
        if header.data_page_header is not None:  # those of data pages of version 1 need no bindings
            quick.append(compact._plain_head(data))
            assert found.values == found.rows == header.data_page_header.num_values
            for end in (len(data) - 1, len(data) // 2, 1):
                assert read(data[:end]) == "refused"
    assert len(quick) > 300
    assert None not in quick


def test_changed_bytes_mean_the_same_to_both_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(2)
    changed = 0
    for _ in range(20_000):
        data = bytearray(compact.encode(some_header(rng)))
        for _ in range(rng.randrange(1, 3)):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 0x15, 0x1C, 0x2C, 0x80, 0xFF, rng.randrange(256)])
        data += bytes(8)
        expected = by_bindings(bytes(data), monkeypatch)
        try:
            found = compact._plain_head(bytes(data))
        except IndexError:
            continue
        if found is not None:
            assert found == expected, bytes(data).hex()
            changed += 1
    assert changed > 1000

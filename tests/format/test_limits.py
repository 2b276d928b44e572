"""What a few bytes may claim: limits of footers and of decoding, told when they are the reason, and raised."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import naive
from support.footers import edited_footer
from support.samples import write_keys

import parquet_bloom
from parquet_bloom import DamagedFileError, LimitError, RequestError, cli
from parquet_bloom._thrift.parquet.ttypes import (
    DataPageHeader,
    DataPageHeaderV2,
    Encoding,
    FileMetaData,
    KeyValue,
    PageHeader,
    PageType,
    SchemaElement,
)
from parquet_bloom.format import compact, footer
from parquet_bloom.options import Limits, limits

SCHEMA = [SchemaElement(name="s", num_children=1), SchemaElement(type=1, name="a", repetition_type=0)]
ONE_COLUMN = compact.encode(FileMetaData(schema=SCHEMA))[1:-1]
CALLS: dict[str, Callable[[Path], object]] = {
    "check": lambda path: parquet_bloom.check(path, "a = 5"),
    "inspect": parquet_bloom.inspect,
    "add": lambda path: parquet_bloom.add_filters(path, path.with_name("out"), overwrite=True, sync=False),
    "read": lambda path: parquet_bloom.read_table(path, "a = 5"),
}


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = parquet_bloom.set_limits()
    yield
    assert limits() == before, "a command gives a program its limits back"


@pytest.fixture
def raised() -> Iterator[Callable[..., Limits]]:
    before = parquet_bloom.set_limits()
    yield parquet_bloom.set_limits
    names = ("max_list_elements", "max_string_bytes", "max_memory")
    parquet_bloom.set_limits(**{name: getattr(before, name) for name in names})


def many(count: int) -> bytes:
    """A list of empty structs: one byte each, and an object each for who believes it."""
    return b"\xfc" + naive.varint(count) + b"\0" * count


def file_of(path: Path, data: bytes) -> Path:
    path.write_bytes(b"PAR1" + data + len(data).to_bytes(4, "little") + b"PAR1")
    return path


FOOTERS = {
    "row groups": b"\x29" + ONE_COLUMN + b"\x29" + many(2_000_000) + b"\0",
    "schema elements": b"\x29" + many(2_000_000) + b"\x29\x0c\0",
    "column chunks": b"\x29" + ONE_COLUMN + b"\x29\x1c" + b"\x19" + many(2_000_000) + b"\0\0",
}
MEASURED = """
import resource, sys, time
import parquet_bloom
parquet_bloom.add_filters(sys.argv[2], sys.argv[2] + '.out', columns=['*'], sync=False, overwrite=True)
parquet_bloom.set_limits(max_memory=64 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[3:]:
    started = time.process_time()
    try:
        if sys.argv[1] == "add":
            parquet_bloom.add_filters(path, path + ".out", columns=["*"], sync=False)
        else:
            parquet_bloom.inspect(path)
    except parquet_bloom.ParquetBloomError as error:
        print(type(error).__name__, str(error))
    else:
        print("done")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before >> 10, time.process_time() - started)
"""


def measured(call: str, *paths: Path) -> Iterator[tuple[str, int, float]]:
    """What a process of its own says of files: the outcome; megabytes and seconds beyond those of any file.

    Megabytes are the most until then, so that files before count, too.
    """
    plain = paths[0].with_name("usual.parquet")
    pq.write_table(pa.table({"a": [1]}), plain)
    words = [sys.executable, "-c", MEASURED, call, str(plain), *map(str, paths)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    lines = done.stdout.splitlines()
    for said, numbers in zip(lines[::2], lines[1::2], strict=True):
        yield said, int(numbers.split()[0]), float(numbers.split()[1])


def test_a_list_in_a_footer_that_is_too_long(tmp_path: Path) -> None:
    text = r"claims.parquet: a list of 2000000 elements is over max_list_elements, 1000000"
    paths = [file_of(tmp_path / f"{i}-claims.parquet", data) for i, data in enumerate(FOOTERS.values())]
    for path, call in product(paths, CALLS.values()):
        with pytest.raises(LimitError, match=text):
            call(path)
    for said, megabytes, _ in measured("inspect", *paths):
        assert said.startswith("LimitError")
        assert megabytes < 50, "the objects of row groups are some 220 MB"


def test_many_lists_in_a_footer_that_are_just_short_enough(tmp_path: Path) -> None:
    """Two million empty column chunks are 230 MB; the first row group that has too many is the last one read."""
    groups = (b"\x19" + many(100_000) + b"\0") * 20
    data = b"\x29" + ONE_COLUMN + b"\x29" + b"\xfc" + naive.varint(20) + groups + b"\0"
    path = file_of(tmp_path / "claims.parquet", data)
    with pytest.raises(DamagedFileError, match="row group 0 has 100000 column chunks, the schema has 1"):
        parquet_bloom.check(path, "a = 5")
    [(_, megabytes, _)] = measured("inspect", path)
    assert megabytes < 100


def test_a_text_in_a_footer_that_is_too_long(tmp_path: Path, raised: Callable[..., Limits]) -> None:
    path = write_keys(tmp_path / "keys.parquet")
    with edited_footer(path) as metadata:
        metadata.key_value_metadata.append(KeyValue("note", "x" * 100_000))
    assert parquet_bloom.inspect(path).files
    raised(max_string_bytes=99_999)
    with pytest.raises(LimitError, match="a text of 100000 bytes is over max_string_bytes, 99999"):
        parquet_bloom.inspect(path)
    raised(max_string_bytes=100_000)
    assert parquet_bloom.inspect(path).files


def test_a_list_may_be_longer_where_one_says_so(tmp_path: Path, raised: Callable[..., Limits]) -> None:
    path = write_keys(tmp_path / "keys.parquet")
    raised(max_list_elements=5)
    for call in (parquet_bloom.inspect, lambda path: parquet_bloom.check(path, "id = 5")):
        with pytest.raises(LimitError, match="is over max_list_elements, 5; raise it for a file that you trust"):
            call(path)
    raised(max_list_elements=2_000_000)
    report = parquet_bloom.add_filters(path, tmp_path / "out.parquet", columns=["id"], sync=False)
    assert len(report.files[0].filters) == 3
    assert parquet_bloom.read_table(tmp_path / "out.parquet", "id = 5").num_rows == 0


def test_commands_take_limits_for_themselves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = str(write_keys(tmp_path / "keys.parquet")), str(tmp_path / "out.parquet")
    assert cli.run(["inspect", path, "--max-list-elements", "5"]) == 2
    assert "over --max-list-elements, 5" in capsys.readouterr().err
    assert cli.run(["add", path, "-o", out, "--max-memory", "1kB", "-c", "name"]) == 2
    assert "of --max-memory, 1000" in capsys.readouterr().err
    assert not Path(out).exists()
    assert cli.run(["add", path, "-o", out, "--max-memory", "2MiB", "-c", "name"]) == 0
    assert cli.run(["read", out, "--max-string-bytes", "10MB", "--max-list-elements", "100000", "--limit", "1"]) == 0
    assert cli.run(["verify", out, "--max-memory", "0"]) == 2
    assert "max_memory 0 is not a positive number" in capsys.readouterr().err


def test_the_limits_that_stand_are_positive_numbers() -> None:
    """Those of lists and texts are parquet-cpp's; docs/limits.md has all three."""
    assert limits() == Limits(1_000_000, 100_000_000, 536_870_912)
    for name in ("max_list_elements", "max_string_bytes", "max_memory", "concurrency"):
        with pytest.raises(RequestError, match=f"{name} 0 is not a positive number"):
            parquet_bloom.set_limits(**{name: 0})


def test_a_large_footer_is_the_same_either_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_keys(tmp_path / "keys.parquet", row_group_size=20).read_bytes()
    n = int.from_bytes(data[-8:-4], "little")
    plain = footer.decode_footer(data[-8 - n : -8], 0)
    monkeypatch.setattr(footer, "_LARGE", 100)
    assert footer.decode_footer(data[-8 - n : -8], 0) == plain
    called = []
    monkeypatch.setattr(footer, "_at_once", called.append)
    footer.decode_footer(data[-8 - n : -8], 0)
    assert not called


# --- decoding ---------------------------------------------------------------------------------------


def texts(path: Path, values: pa.Array, **options: object) -> Path:
    pq.write_table(pa.table({"a": values}), path, compression="zstd", **options)
    return path


def test_a_page_that_is_too_large(tmp_path: Path, raised: Callable[..., Limits]) -> None:
    """A kilobyte of zstd that is twenty megabytes."""
    values = pa.array(["x" * (4 << 20) + str(i) for i in range(5)])
    path, out = texts(tmp_path / "page.parquet", values, use_dictionary=False), tmp_path / "out.parquet"
    assert path.stat().st_size < 10_000
    raised(max_memory=40_000_000)
    text = r"row group 0, column a: a page of it takes \d+ bytes when decoded, over half of max_memory, 40000000"
    with pytest.raises(LimitError, match=text):
        parquet_bloom.add_filters(path, out, columns=["a"], sync=False)
    assert not out.exists()
    raised(max_memory=50_000_000)
    assert len(parquet_bloom.add_filters(path, out, columns=["a"], sync=False).files[0].filters) == 1
    assert not parquet_bloom.verify(out).files[0].wrong


def test_what_is_refused_takes_no_memory(tmp_path: Path) -> None:
    """With 64 MiB allowed: a few kilobytes that are 40 MB in a page, or 8 GB in the values of a dictionary's column."""
    large = "x" * (4 << 20)
    page = texts(tmp_path / "page.parquet", pa.array([large * 2] * 5), use_dictionary=False)
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int32()), pa.array([large]))
    dictionary = texts(tmp_path / "dictionary.parquet", repeated, dictionary_pagesize_limit=1 << 30)
    assert max(page.stat().st_size, dictionary.stat().st_size) < 5_000
    texts_said = ("a page of it takes", "its values take over")
    for text, (said, megabytes, seconds) in zip(texts_said, measured("add", page, dictionary), strict=True):
        assert said.startswith("LimitError"), said
        assert text in said
        assert megabytes < 40
        assert seconds < 5


MUCH = 1900 << 20  # bytes that a page header claims
CLAIMS = {
    "compressed bytes": (DamagedFileError, "ends at byte"),
    "decompressed bytes": (LimitError, "a page of it takes 1992294400 bytes"),
    "a number of ten bytes": (DamagedFileError, "does not decode"),
    "no size": (DamagedFileError, "has no size"),
    "behind a page of two kinds": (DamagedFileError, "ends at byte"),
    "an index page": (DamagedFileError, "ends at byte"),
    "a data page without its header": (LimitError, "a page of it takes"),
    "behind an old chunk's end": (DamagedFileError, "ends at byte"),
    "inside the magic": (None, "done"),
    "inside the magic, in a large footer": (None, "done"),  # which is decoded by other code
}


def page(n: int, compressed: int | None = None, grown: int | None = None, kind: int = PageType.DATA_PAGE) -> bytes:
    """A data page of n numbers, in zstd; its header claims the sizes."""
    plain = np.arange(n).tobytes()
    packed = pa.compress(plain, "zstd", asbytes=True)
    sizes = len(plain) if grown is None else grown, len(packed) if compressed is None else compressed
    of_v1 = DataPageHeader(n, Encoding.PLAIN, Encoding.RLE, Encoding.RLE)
    header = PageHeader(kind, *sizes, data_page_header=of_v1)
    if kind == PageType.DATA_PAGE_V2:
        header.data_page_header.num_values = 1 << 30
        header.data_page_header_v2 = DataPageHeaderV2(n, 0, n, Encoding.PLAIN, 0, 0, is_compressed=True)
    return compact.encode(header) + packed


def pages_that_claim(what: str) -> bytes:
    """The pages of a chunk of 2000 numbers, or of one that is no better than its headers."""
    usual, claim = (naive.varint(2 * size) for size in (123_456_789, MUCH))
    longer = claim[:-1] + bytes([claim[-1] | 0x80, *[0x80] * (9 - len(claim)), 0])  # its lower 32 bits are MUCH
    bare = compact.encode(PageHeader(PageType.DATA_PAGE, MUCH, 9))
    pages = {
        "compressed bytes": page(2000, compressed=MUCH),
        "decompressed bytes": page(100, grown=MUCH),  # a small chunk
        "a number of ten bytes": page(2000, compressed=123_456_789).replace(usual, longer, 1),
        "no size": compact.encode(PageHeader(PageType.DATA_PAGE, 100)) + page(2000),
        "an index page": compact.encode(PageHeader(PageType.INDEX_PAGE, 1, MUCH)) + page(2000),
        "a data page without its header": bare + bytes(9) + page(2000),
        "behind a page of two kinds": page(1000, kind=PageType.DATA_PAGE_V2) + page(1000, compressed=MUCH),
        "behind an old chunk's end": page(1000) + page(1000, compressed=MUCH),
    }
    return pages.get(what, page(2000))


def file_that_claims(path: Path, what: str) -> Path:
    notes = {f"note {i}": "x" * 50 for i in range(10_000 if "large" in what else 0)}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)], metadata=notes or None)
    pq.write_table(pa.table({"id": range(2000)}, schema), path, compression="zstd", use_dictionary=False)
    data, pages = path.read_bytes(), pages_that_claim(what)
    body = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    # Byte 3, "1" of PAR1, begins a field 3 of another type; after it come a type, the sizes and the number of values.
    inside = b"\5\2\0" + b"\5\4\2" + b"\5\6" + naive.varint(2 * MUCH) + bytes.fromhex("0c0a15a01f15001506150600 00")
    start = data[:4] + inside + data[4 + len(inside) : body]
    path.write_bytes(start + pages + data[body:])
    with edited_footer(path) as metadata:
        meta = metadata.row_groups[0].columns[0].meta_data
        meta.data_page_offset, meta.total_compressed_size = body, len(pages)
        if "inside the magic" in what:
            meta.dictionary_page_offset = 3
        if what == "behind an old chunk's end":
            metadata.created_by, meta.total_compressed_size = "parquet-mr version 1.2.8", len(page(1000))
    return path


def test_a_page_header_that_claims_much(tmp_path: Path) -> None:
    """With 64 MiB allowed: pyarrow allocates what a header claims, before it reads the page."""
    paths = [file_that_claims(tmp_path / f"{i}.parquet", what) for i, what in enumerate(CLAIMS)]
    for what, path, found in zip(CLAIMS, paths, measured("add", *paths), strict=True):
        (kind, text), (said, megabytes, seconds) = CLAIMS[what], found
        assert text in said, what
        if kind is not None:
            assert said.startswith(f"{kind.__name__} {path}: row group 0, column id: "), said
        assert megabytes < 100, what
        assert seconds < 5, what


def test_long_texts_are_decoded_a_few_rows_at_a_time(tmp_path: Path) -> None:
    """With 64 MiB allowed: two kilobytes whose 200 values are 200 MB."""
    values = pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int32()), pa.array(["y" * (1 << 20)]))
    path = texts(tmp_path / "long.parquet", values, dictionary_pagesize_limit=1 << 30)
    [(said, megabytes, _)] = measured("add", path)
    assert said == "done"
    assert megabytes < 150
    assert parquet_bloom.verify(tmp_path / "long.parquet.out").files[0].filters[0].missed == 0


@pytest.mark.parametrize(("memory", "use_dictionary"), [(1 << 14, True), (1 << 16, False), (1 << 16, True)])
def test_batches_of_any_size_give_the_same_filter(
    tmp_path: Path, raised: Callable[..., Limits], memory: int, use_dictionary: bool
) -> None:
    table = pa.table({
        "text": [f"{i % 700:04}" for i in range(5000)], "n": list(range(5000)),
        "tags": [[f"t{i}", f"t{i + 1}"] for i in range(5000)],
    })  # fmt: skip
    path, out = tmp_path / "plain.parquet", tmp_path / "out.parquet"
    pq.write_table(table, path, use_dictionary=use_dictionary, data_page_size=512, write_batch_size=64,
                   dictionary_pagesize_limit=1 << 13, row_group_size=2500)  # fmt: skip
    parquet_bloom.add_filters(path, tmp_path / "usual.parquet", columns=["*"], sync=False)
    raised(max_memory=memory)
    try:
        parquet_bloom.add_filters(path, out, columns=["*"], sync=False)
    except LimitError:
        assert memory < 1 << 16, "a page takes no more"
        return
    assert out.read_bytes() == (tmp_path / "usual.parquet").read_bytes()
    assert not parquet_bloom.verify(out).files[0].wrong


def test_a_command_takes_the_number_of_files_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "x.parquet")
    from parquet_bloom.search import check

    seen = []
    real = check.check
    monkeypatch.setattr(check, "check", lambda *a, **o: seen.append(limits().concurrency) or real(*a, **o))
    assert cli.run(["check", str(tmp_path / "x.parquet"), "id = 1", "--concurrency", "3", "-q"]) == 0
    assert (seen, limits().concurrency) == ([3], 64)
    assert cli.run(["check", str(tmp_path / "x.parquet"), "id = 1", "--concurrency", "0", "-q"]) == 2

"""Every file of the corpus: filters go in, are right, and come out again without a trace."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.corpus import corpus_file, corpus_files, others_files
from support.samples import digest, leftovers, same_rows

import parquet_bloom
from parquet_bloom.errors import (
    DamagedFileError,
    EncryptedFileError,
    LayoutError,
    LimitError,
    NotParquetError,
    RefusedTypeError,
)
from parquet_bloom.storage.open_file import OpenFile

# Pages that no program decodes (their README says so) and checksums that are wrong on purpose.
UNDECODABLE = {
    "parquet-testing__ARROW-GH-41317", "parquet-testing__ARROW-GH-41321", "parquet-testing__ARROW-GH-45185",
    "parquet-testing__ARROW-GH-47662",
    "parquet-testing__ARROW-RS-GH-6229-DICTHEADER", "parquet-testing__ARROW-RS-GH-6229-LEVELS",
    "parquet-testing__datapage_v1-corrupt-checksum", "parquet-testing__rle-dict-uncompressed-corrupt-checksum",
    "start_final_instream",
}  # fmt: skip
# Chunks that overlap, begin below 4 or end past the footer: their bytes must not move.
UNMOVABLE = {
    "parquet-testing__column_chunk_key_value_metadata", "parquet-testing__ARROW-RS-GH-6229-DICTHEADER",
    "hyparquet__issue97", "parquet-testing__PARQUET-1481",
}  # fmt: skip


@cache
def readable() -> list[str]:
    names = []
    for name in corpus_files():
        try:
            with OpenFile(corpus_file(name)) as source:
                source.footer()
        except (EncryptedFileError, NotParquetError, DamagedFileError):
            continue
        names.append(name)
    assert len(names) >= 90 or not others_files(), "the corpus is read"
    return names


def stem_of(name: str) -> str:
    return Path(name).name.split(".")[0]


def columns_of(path: Path) -> list[str]:
    """Every column that may have a filter, by name, so that dictionaries do not excuse any."""
    with OpenFile(path) as source:
        footer = source.footer()
    names = [leaf.name for leaf in footer.leaves if leaf.refusal is None]
    return [name for name in names if names.count(name) == 1]


# Two gigabytes of text in 16 kilobytes: refused, or half a minute for who raises the limit.
LARGE = "nasty/parquet-testing__large_string_map.brotli.parquet"
FORMS = [("final", "footer"), ("final", "chunk-start"), ("parquet-41", None)]


@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.more)], ids=["quick", "the rest"])
@pytest.mark.parametrize(("spec", "placement"), FORMS)
def test_add_verify_remove(spec: str, placement: str | None, quick: bool, tmp_path: Path) -> None:
    """Of the files about which nothing special is known each third is quick; every second one has the other form."""
    for i, name in enumerate(readable()):
        special = stem_of(name) in UNDECODABLE | UNMOVABLE
        takes_form = special or placement == "footer" or i % 2 == (spec == "final")
        if name != LARGE and takes_form and quick == (special or i % 3 == 0):
            (tmp_path / str(i)).mkdir()
            add_verify_remove(name, spec, placement, tmp_path / str(i))


@pytest.mark.slow
def test_pages_of_gigabytes_are_refused_unless_the_limit_is_raised(tmp_path: Path) -> None:
    with pytest.raises(LimitError, match="a page of it takes 2147483668 bytes"):
        parquet_bloom.add_filters(
            corpus_file(LARGE), tmp_path / "x", columns=columns_of(corpus_file(LARGE)), placement="footer", sync=False
        )
    assert os.listdir(tmp_path) == []
    before = parquet_bloom.set_limits().max_memory
    parquet_bloom.set_limits(max_memory=8 << 30)
    try:
        add_verify_remove(LARGE, "final", "footer", tmp_path)
    finally:
        parquet_bloom.set_limits(max_memory=before)


def add_verify_remove(name: str, spec: str, placement: str | None, folder: Path) -> None:
    source, out, back = corpus_file(name), folder / "out.parquet", folder / "back.parquet"
    columns, how = columns_of(source) or None, {"spec": spec, "placement": placement, "sync": False}
    had = parquet_bloom.inspect(source).files[0].filters
    try:
        report = parquet_bloom.add_filters(source, out, columns=columns, **how).files[0]  # type: ignore[arg-type]
    except DamagedFileError:
        assert stem_of(name) in UNDECODABLE, name
        assert leftovers(folder) == [], name
        return
    except LayoutError:
        assert stem_of(name) in UNMOVABLE, name
        assert placement != "footer" or stem_of(name) in UNDECODABLE, "before the footer nothing moves"
        return
    new = {(f.row_group, f.column) for f in report.filters}
    verdicts = {(f.row_group, f.column): f for f in parquet_bloom.verify(out).files[0].filters}
    assert all(verdicts[key].status == "right" for key in new), name
    if not new:
        assert digest(out) == digest(source), name
        return
    parquet_bloom.remove_filters(out, back, columns=sorted({column for _, column in new}), sync=False)
    if not had:
        assert digest(back) == digest(source), f"{name}: the file is the file it was"
    try:
        before = pq.read_table(source)
    except (pa.ArrowException, OSError, NotImplementedError, ValueError):
        return  # nothing to compare with: pyarrow does not read the source either
    for path in (out, back):
        after = pq.read_table(path)
        assert after.equals(before) or same_rows(after, before), name


# Their filters contradict themselves or what lies around them; all others are right, or of a kind that nobody knows.
WRONG = {
    *(f"malformed_lab/{name}.parquet" for name in ("02_not_mult32", "06_garbage_ff", "09_length_too_big_padding64",
                                                  "13_numbytes_0", "13c_numbytes_1GiB", "13e_numbytes_half_nolen")),
    "placement_lab/start_final_instream.parquet",
}  # fmt: skip


def test_inspect_finds_the_filters_and_verify_those_that_are_wrong() -> None:
    for name in readable():
        path = corpus_file(name)
        infos = parquet_bloom.inspect(path).files[0].filters
        with OpenFile(path) as source:
            metas = [chunk.meta_data for _, _, chunk in source.footer().chunks()]
        assert len(infos) == sum(m.bloom_filter_offset is not None for m in metas), f"{name}: one for each offset"
        try:
            verdicts = parquet_bloom.verify(path).files[0]
        except DamagedFileError:
            assert stem_of(name) in UNDECODABLE, name
            continue
        assert bool(verdicts.wrong) == (name in WRONG), (name, [f.reason for f in verdicts.wrong])
        assert {f.status for f in verdicts.filters} <= {"right", "unknown", "wrong"}, name


def test_refused_types_are_refused_by_name() -> None:
    path = corpus_file("nasty/parquet-testing__int96_from_spark.parquet")
    with pytest.raises(RefusedTypeError, match="INT96"):
        parquet_bloom.add_filters(path, "/nonexistent/x", columns=["a"])

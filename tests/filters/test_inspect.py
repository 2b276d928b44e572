"""inspect and verify: what is said of files that other programs wrote, right or wrong."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.corpus import corpus_file, fixture_files
from support.footers import edited_footer
from support.samples import FIXTURES, ROW_GROUPS, write_keys

import parquet_bloom
from parquet_bloom import cli
from parquet_bloom.errors import FilterWarning, RequestError

LAB = {
    "02_not_mult32": "numBytes is 2052, not a positive multiple of 32",
    "06_garbage_ff": "the bytes ff ff ff ff ... begin no known header",
    "09_length_too_big_padding64": "bloom_filter_length is 2128, header and bitset take 2064 bytes",
    "12_offset_zero": "bloom_filter_offset is 0, which points at no filter",
    "13_numbytes_0": "numBytes is 0, not a positive multiple of 32",
    "13c_numbytes_1GiB": "bloom_filter_length is 2067, header and bitset take 1073741843 bytes",
    "13e_numbytes_half_nolen": "header and bitset take 1040 bytes, the next structure begins after 2064",
}
SOUND = ["00_good_pow2", "01b_nonpow2_3blk", "03b_bare_hdr_murmur3_nocomp", "07_draft_pageheader_murmur3"]
SOUND += ["10_no_length"]


@pytest.mark.smoke
def test_problems_tell_both_numbers_and_verify_calls_them_wrong() -> None:
    for name, problem in LAB.items():
        path = corpus_file(f"malformed_lab/{name}.parquet")
        assert [problem in info.problems[0] for info in parquet_bloom.inspect(path).files[0].filters] == [True] * 8
        if name != "12_offset_zero":
            assert [problem in f.reason for f in parquet_bloom.verify(path).files[0].wrong] == [True] * 8, name


def test_sound_filters_have_no_problems() -> None:
    for name in SOUND:
        path = corpus_file(f"malformed_lab/{name}.parquet")
        infos = parquet_bloom.inspect(path).files[0].filters
        assert all(not info.problems and not info.notes for info in infos), name
        assert [f.status for f in parquet_bloom.verify(path).files[0].filters] == ["right"] * 8, name


def test_unknown_kinds_are_notes_not_problems() -> None:
    for name, note in (("malformed_lab/04_unknown_hash2", "hash 2 is unknown"),
                       ("bloom/parquetjs__fruits-bloomfilter", "names no algorithm")):  # fmt: skip
        path = corpus_file(f"{name}.parquet")
        infos = parquet_bloom.inspect(path).files[0].filters
        assert all(note in info.notes[0] and not info.problems for info in infos)
        assert {f.status for f in parquet_bloom.verify(path).files[0].filters} == {"unknown"}


def test_a_footer_that_counts_other_rows_than_its_row_groups_is_noted(tmp_path: Path) -> None:
    wrong, right = (write_keys(tmp_path / name) for name in ("wrong.parquet", "right.parquet"))
    rows = parquet_bloom.count(right)
    with edited_footer(wrong) as metadata:
        metadata.num_rows = 7
    note = f"{wrong}: its footer counts 7 rows, and its row groups {rows:,}; the row groups count"
    assert parquet_bloom.inspect([right, wrong]).notes == [note]
    assert parquet_bloom.inspect(right).notes == []
    assert parquet_bloom.count(wrong) == parquet_bloom.read_table(wrong).num_rows == rows
    done = subprocess.run(
        [sys.executable, "-m", "parquet_bloom", "inspect", wrong], capture_output=True, text=True, check=True
    )
    assert f"note: {note}" in done.stdout + done.stderr


def test_a_filter_among_its_pages_is_a_problem() -> None:
    infos = parquet_bloom.inspect(corpus_file("placement_lab/start_final_instream.parquet")).files[0].filters
    assert all("among the chunk's pages" in info.problems[0] for info in infos)
    infos = parquet_bloom.inspect(corpus_file("placement_lab/start_final.parquet")).files[0].filters
    assert {info.place for info in infos} == {"chunk-start"}


def test_spark_boolean_filters_are_all_zero() -> None:
    path = FIXTURES / "spark/no_dictionary.parquet"
    infos = [i for i in parquet_bloom.inspect(path).files[0].filters if i.column == "boolean"]
    assert infos
    assert all("no bit is set" in info.problems[0] for info in infos)
    wrong = parquet_bloom.verify(path).files[0].wrong
    assert {f.column for f in wrong} == {"boolean"}, "and nothing else in it is wrong"


@pytest.mark.smoke
def test_filters_of_other_programs_are_where_they_say_and_admit_what_they_stored() -> None:
    for path in (FIXTURES / name for name in fixture_files()):
        expected = json.loads(path.with_suffix(".expected.json").read_text())
        infos = {(i.row_group, i.column): i for i in parquet_bloom.inspect(path).files[0].filters}
        places = {
            (group, name): (place["offset"], place["length"])
            for name, column in expected["columns"].items()
            for group, place in enumerate(column["filters"])
            if place is not None
        }
        assert {key: (i.offset, i.length) for key, i in infos.items()} == places, path
        for info in infos.values():
            assert (info.spec, 0 <= info.fpp <= 1, info.bits_set <= 256 * info.blocks) == ("final", True, True), path
        for f in parquet_bloom.verify(path).files[0].filters:
            if (path.parent.name, f.column) != ("spark", "boolean"):
                assert f.status in ("right", "unknown"), f"{path}, {f.column}: {f.reason}"
                assert f.missed == 0


def test_rate_and_estimate_are_those_of_the_data(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": np.arange(20_000)}), path, use_dictionary=False)
    parquet_bloom.add_filters(path, in_place=True, sync=False, columns=["*"])
    (info,) = parquet_bloom.inspect(path).files[0].filters
    assert math.isclose(info.estimated_ndv, 20_000, rel_tol=0.02)
    (verdict,) = parquet_bloom.verify(path).files[0].filters
    assert verdict.values == 20_000
    assert verdict.absent > 90_000
    assert verdict.measured_fpp == pytest.approx(info.fpp, rel=0.25)


def bitset_of(path: Path, n: int) -> slice:
    info = parquet_bloom.inspect(path).files[0].filters[n]
    return slice(info.offset + info.length - info.num_bytes, info.offset + info.length)


@pytest.mark.smoke
def test_verify_finds_lies_that_no_header_shows(tmp_path: Path) -> None:
    path = write_keys(tmp_path / "keys.parquet")
    parquet_bloom.add_filters(path, in_place=True, columns=["id"], sync=False)
    data, first = path.read_bytes(), bitset_of(path, 0)
    bits = data[first]
    byte = next(i for i, one in enumerate(bits) if one)
    lies = {
        "one byte": bits[:byte] + b"\x00" + bits[byte + 1 :],
        "words swapped": np.frombuffer(bits, "<u4").byteswap().tobytes(),
        "of another row group": data[bitset_of(path, 1)],
        "zeroed": bytes(len(bits)),
    }
    for lie, wrong in lies.items():
        path.write_bytes(data[: first.start] + wrong + data[first.stop :])
        file = parquet_bloom.verify(path).files[0]
        assert [(f.row_group, f.status) for f in file.filters] == [(0, "wrong"), (1, "right"), (2, "right")], lie
        assert file.wrong[0].missed > 0, lie


def test_sample_looks_at_some_row_groups(tmp_path: Path) -> None:
    path = write_keys(tmp_path / "keys.parquet")
    parquet_bloom.add_filters(path, in_place=True, columns=["id"], sync=False)
    file = parquet_bloom.verify(path, sample=2).files[0]
    assert (file.sampled, len(file.filters)) == (2, 2)
    assert parquet_bloom.verify(path, sample=99).files[0].sampled == ROW_GROUPS
    with pytest.raises(RequestError):
        parquet_bloom.verify(path, sample=0)


def test_no_filters(tmp_path: Path) -> None:
    path = write_keys(tmp_path / "keys.parquet")
    assert parquet_bloom.inspect(path).files[0].filters == []
    assert parquet_bloom.verify(path).files[0].filters == []


def test_a_filter_that_several_chunks_point_at_is_no_evidence(tmp_path: Path) -> None:
    path = write_keys(tmp_path / "keys.parquet")
    parquet_bloom.add_filters(path, in_place=True, columns=["id"], sync=False)
    with edited_footer(path) as metadata:
        first = metadata.row_groups[0].columns[0].meta_data.bloom_filter_offset
        for group in metadata.row_groups:
            group.columns[0].meta_data.bloom_filter_offset = first
    assert all("3 column chunks" in f.problems[0] for f in parquet_bloom.inspect(path).files[0].filters)
    with pytest.warns(FilterWarning, match="3 column chunks"):
        assert not any(v.skipped for v in parquet_bloom.check(path, "id = 4000000000000000001"))
    assert len(parquet_bloom.verify(path).files[0].wrong) == ROW_GROUPS


def test_the_command_over_filters_of_which_none_is_understood(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_keys(tmp_path / "keys.parquet")
    parquet_bloom.add_filters(path, in_place=True, columns=["id"], sync=False)
    data = path.read_bytes()
    for info in parquet_bloom.inspect(path).files[0].filters:
        data = data[: info.offset] + b"\xff" * 20 + data[info.offset + 20 :]
    path.write_bytes(data)
    assert cli.run(["inspect", str(path)]) == 0
    out, told = capsys.readouterr()
    assert "begin no known header" in out + told

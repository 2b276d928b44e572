"""add_filters: what is chosen, how large filters are, what stays as it was."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.footers import edited_footer
from support.samples import PYARROW, ROW_GROUPS, digest, keys_table, leftovers, write_keys

import parquet_bloom
from parquet_bloom.errors import LayoutError, RefusedTypeError, RequestError, UnknownColumnError
from parquet_bloom.kernels import split_block
from parquet_bloom.report.explained import hint_of
from parquet_bloom.storage.open_file import OpenFile


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "keys.parquet")


def added(keys: Path, **options: object) -> tuple[Path, object]:
    out = keys.with_name("out.parquet")
    report = parquet_bloom.add_filters(keys, out, overwrite=True, sync=False, **{"columns": ["*"], **options})
    assert not report.failed
    return out, report.files[0]


def footer_of(path: Path):
    with OpenFile(path) as source:
        return source.footer()


def test_without_columns_takes_what_a_filter_can_help(keys: Path) -> None:
    _, report = added(keys, columns=None)
    assert {f.column for f in report.filters} == {"id", "name", "tags.list.element", "user.id", "user.mail"}
    reasons = {s.column: s.reason for s in report.skipped}
    assert reasons["flag"].startswith("BOOLEAN"), "refused types are skipped with their reason"
    assert "few distinct values" in reasons["colour"]
    assert "min and max tell" in reasons["half_null"], "its numbers go up from row group to row group"
    assert len(report.filters) == 5 * ROW_GROUPS


def test_patterns_and_exclude(keys: Path) -> None:
    _, report = added(keys, columns=["user.*", "id"], exclude=["*.mail"])
    assert {f.column for f in report.filters} == {"user.id", "id"}


@pytest.mark.smoke
@pytest.mark.parametrize(("placement", "index"), [("footer", False), ("chunk-start", True)])
def test_every_other_byte_stays(tmp_path: Path, placement: str, index: bool) -> None:
    source = write_keys(tmp_path / "keys.parquet", write_page_index=index)
    out, report = added(source, placement=placement)
    old, new = source.read_bytes(), out.read_bytes()
    old_footer, new_footer = footer_of(source), footer_of(out)
    for i, j, chunk in old_footer.chunks():
        start = min(o for o in (chunk.meta_data.dictionary_page_offset, chunk.meta_data.data_page_offset) if o)
        moved = new_footer.meta(i, j)
        new_start = min(o for o in (moved.dictionary_page_offset, moved.data_page_offset) if o)
        n = chunk.meta_data.total_compressed_size
        assert new[new_start : new_start + n] == old[start : start + n], "a chunk's bytes are copied as they are"
    if placement == "footer":
        assert new[: old_footer.start] == old[: old_footer.start], "the whole body stays in its place"
    assert pq.read_table(out).equals(pq.read_table(source))
    assert report.bytes_after == len(new)
    assert new_footer.metadata.created_by == old_footer.metadata.created_by, "readers know bugs of writers by it"


def test_chunk_start_filters_lie_right_before_their_chunk(keys: Path) -> None:
    out, report = added(keys, placement="chunk-start")
    footer = footer_of(out)
    names = [leaf.name for leaf in footer.leaves]
    for f in report.filters:
        meta = footer.meta(f.row_group, names.index(f.column))
        start = min(o for o in (meta.dictionary_page_offset, meta.data_page_offset) if o)
        assert f.offset + f.length == start, "outside of the chunk's extent, where readers expect pages"
        assert (meta.bloom_filter_offset, meta.bloom_filter_length) == (f.offset, f.length)


def test_the_drafts_have_no_length_and_no_footer_placement(keys: Path) -> None:
    for spec in ("parquet-41", "parquet-41-early", "parquet-41-raw"):
        out, report = added(keys, spec=spec, columns=["id"])
        lengths = [footer_of(out).meta(i, 0).bloom_filter_length for i in range(ROW_GROUPS)]
        assert lengths == [None] * ROW_GROUPS, "the field is younger than these forms"
        assert len(report.filters) == ROW_GROUPS
        with pytest.raises(RequestError, match="placement='footer' is not for"):
            added(keys, spec=spec, placement="footer")


@pytest.mark.parametrize("fpp", [0.3, 0.0005])
def test_size_is_the_smallest_power_of_two_within_the_rate(keys: Path, fpp: float) -> None:
    out, report = added(keys, columns=["id", "name"], fpp=fpp)
    data = out.read_bytes()
    for f in report.filters:
        blocks = split_block.from_bytes(data[f.offset + f.length - f.num_bytes : f.offset + f.length])
        rate = split_block.exact_rate(blocks)
        assert rate == f.fpp
        assert rate <= fpp, "the target is kept"
        assert f.num_bytes & (f.num_bytes - 1) == 0, "Arrow C++ refuses other sizes"
        if f.num_bytes > split_block.MIN_BYTES:
            assert split_block.exact_rate(split_block.fold(blocks)) > fpp, "half the size would not do"


def test_few_distinct_values_take_few_bytes(tmp_path: Path) -> None:
    source = tmp_path / "few.parquet"
    pq.write_table(pa.table({"x": pa.array(np.arange(50_000) % 20)}), source, use_dictionary=False)
    _, report = added(source)
    assert report.filters[0].num_bytes == 64, "the size comes from the data, not from the number of rows"


def test_max_bytes_is_never_passed_and_the_reached_rate_is_told(keys: Path) -> None:
    _, report = added(keys, columns=["id"], max_bytes=300)
    assert {f.num_bytes for f in report.filters} == {256}, "the largest power of two within 300"
    assert all(not f.reached and f.fpp > 0.01 for f in report.filters)
    _, report = added(keys, columns=["id"], max_bytes=64)
    assert report.filters == [], "a filter that admits more than half is not written"
    assert all("rate" in s.reason for s in report.skipped)


def test_ndv_is_a_first_guess_only(keys: Path) -> None:
    _, plain = added(keys, columns=["id"])
    _, small = added(keys, columns=["id"], ndv=3)
    _, large = added(keys, columns=["id"], ndv=10**7)
    sizes = [f.num_bytes for f in plain.filters]
    assert [f.num_bytes for f in small.filters] == sizes, "too small: built again, larger"
    assert [f.num_bytes for f in large.filters] == sizes, "too large: folded"


def test_rates_by_column(keys: Path) -> None:
    _, report = added(keys, columns=["id", "name", "user.id"], fpp={"id": 0.0001, "*": 0.2})
    by_name = {f.column: f.num_bytes for f in report.filters}
    assert by_name["id"] > by_name["name"] == by_name["user.id"], "the star is for those that are not named"


def test_filters_that_are_there_stay_and_lacking_row_groups_are_filled(keys: Path, tmp_path: Path) -> None:
    first = tmp_path / "first.parquet"
    parquet_bloom.add_filters(keys, first, columns=["id"], sync=False)
    second = tmp_path / "second.parquet"
    report = parquet_bloom.add_filters(first, second, columns=["id", "name"], sync=False).files[0]
    assert {f.column for f in report.filters} == {"name"}
    assert [s.reason for s in report.skipped] == ["has a filter"], "without replace=True"
    old, new = footer_of(first), footer_of(second)
    assert [old.meta(i, 0).bloom_filter_offset for i in range(3)] == [
        new.meta(i, 0).bloom_filter_offset for i in range(3)
    ]
    assert all(f.status == "right" for f in parquet_bloom.verify(second).files[0].filters)


def test_nothing_to_do(keys: Path, tmp_path: Path) -> None:
    full = tmp_path / "full.parquet"
    parquet_bloom.add_filters(keys, full, columns=["id"], sync=False)
    before, stat = digest(full), full.stat()
    report = parquet_bloom.add_filters(full, in_place=True, columns=["id"]).files[0]
    assert report.filters == []
    assert digest(full) == before
    assert full.stat().st_mtime_ns == stat.st_mtime_ns, "in place, the file is not even touched"
    copy = tmp_path / "copy.parquet"
    parquet_bloom.add_filters(full, copy, columns=["id"])
    assert digest(copy) == before, "an output gets a copy"


@pytest.mark.parametrize("placement", ["footer", "chunk-start"])
def test_replace_builds_anew_and_cuts_the_old_ones_out(keys: Path, tmp_path: Path, placement: str) -> None:
    rough = tmp_path / "rough.parquet"
    parquet_bloom.add_filters(keys, rough, columns=["id", "name"], fpp=0.4, sync=False, placement=placement)
    fine, direct = tmp_path / "fine.parquet", tmp_path / "direct.parquet"
    report = parquet_bloom.add_filters(
        rough, fine, columns=["id", "name"], fpp=0.01, replace=True, sync=False, placement=placement
    ).files[0]
    assert len(report.filters) == 2 * ROW_GROUPS
    parquet_bloom.add_filters(keys, direct, columns=["id", "name"], fpp=0.01, sync=False, placement=placement)
    assert digest(fine) == digest(direct), "nothing of the old filters is left"


def test_dry_run_writes_nothing(keys: Path, tmp_path: Path) -> None:
    report = parquet_bloom.add_filters(keys, tmp_path / "no.parquet", dry_run=True, columns=["*"]).files[0]
    assert not (tmp_path / "no.parquet").exists()
    assert report.planned_filters == 7 * ROW_GROUPS
    assert report.bytes_needed > keys.stat().st_size, "an output needs room for the whole file"
    real = parquet_bloom.add_filters(keys, tmp_path / "yes.parquet", sync=False, columns=["*"]).files[0]
    assert real.bytes_after <= report.bytes_needed, "what was announced is enough"


def test_both_zeros_and_the_canonical_nan_stand_beside_their_twins(tmp_path: Path) -> None:
    source = tmp_path / "zeros.parquet"
    odd_nan = np.array([0x7FF8000000000123], np.uint64).view(np.float64)[0]
    columns = {"only_negative_zero": [-0.0, 1.5], "only_positive_zero": [0.0, 2.5], "odd_nan": [odd_nan, 3.5]}
    pq.write_table(pa.table(columns), source, use_dictionary=False)
    out, _ = added(source)
    for column in ("only_negative_zero", "only_positive_zero"):
        for text in ("0.0", "-0.0", "0"):
            assert not parquet_bloom.check(out, f"{column} = {text}")[0].skipped, f"{column} = {text} has a row"
        assert parquet_bloom.check(out, f"{column} = 7.25")[0].skipped, "the filter does deny something"
    with OpenFile(out) as source_file:
        from parquet_bloom.filters.locate import RangesByChunk, read_filter

        bloom = read_filter(source_file, RangesByChunk(source_file.footer())[0, 2])
    assert bloom.might_contain(np.float64("nan").tobytes()), "an engine asks for the canonical NaN"


@pytest.mark.smoke
def test_provenance_is_written_and_believed(keys: Path) -> None:
    out, report = added(keys, columns=["id"], spec="parquet-41-raw")
    text = pq.read_metadata(out).metadata[b"parquet_bloom"]
    (entry,) = json.loads(text)
    assert entry["spec"] == "parquet-41-raw"
    assert (entry["hash"], entry["seed"], entry["index"]) == ("murmur3", 1361930890, "mask")
    assert entry["columns"] == ["id"]
    assert entry["version"] == parquet_bloom.__version__
    rules = {f.rule for f in parquet_bloom.inspect(out).files[0].filters}
    assert rules == {"murmur3 seed 1361930890 mask"}, "with provenance a raw header needs no guess"
    assert report.filters


@pytest.mark.smoke
def test_a_folder_keeps_its_tree_and_one_bad_file_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "in/a=1").mkdir(parents=True)
    write_keys(tmp_path / "in/a=1/x.parquet")
    write_keys(tmp_path / "in/y.parquet")
    (tmp_path / "in/bad.parquet").write_bytes(b"PAR1 nothing here PAR1")
    (tmp_path / "in/_metadata").write_bytes(b"not looked at")
    report = parquet_bloom.add_filters(tmp_path / "in", tmp_path / "out", columns=["id"], sync=False)
    assert sorted(p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*.parquet")) == [
        "a=1/x.parquet", "y.parquet",
    ]  # fmt: skip
    assert [Path(f.path).name for f in report.failed] == ["bad.parquet"]
    assert leftovers(tmp_path / "out") == [], "of the bad file, too"


def test_empty_row_groups_and_files_without_row_groups(tmp_path: Path) -> None:
    schema = keys_table(1).schema
    nothing, empty = tmp_path / "nothing.parquet", tmp_path / "empty.parquet"
    pq.ParquetWriter(nothing, schema).close()
    pq.write_table(schema.empty_table(), empty)
    for path in (nothing, empty):
        out, report = added(path, columns=["id"])
        assert report.filters == []
        assert digest(out) == digest(path), "without a filter there is nothing to write down"


def test_all_nulls_gets_no_filter(tmp_path: Path) -> None:
    source = tmp_path / "nulls.parquet"
    table = pa.table({"all_nulls": pa.array([None] * 10, pa.int64()), "x": list(range(10))})
    for statistics in (True, False):
        pq.write_table(table, source, use_dictionary=False, write_statistics=statistics)
        _, report = added(source)
        assert {f.column for f in report.filters} == {"x"}
        assert [(s.column, s.reason) for s in report.skipped] == [("all_nulls", "no value is stored")]


def test_result_does_not_depend_on_threads(keys: Path) -> None:
    digests = set()
    for threads in (1, 2, 7):
        out, _ = added(keys, threads=threads)
        digests.add(digest(out))
    assert len(digests) == 1


def test_requests_that_are_refused(keys: Path) -> None:
    no_name = (RequestError, "columns takes a name or a list of names, not ")
    no_rate = (RequestError, "between 0 and 1")
    cases: list[tuple[dict[str, object], tuple[type[Exception], str]]] = [
        ({"columns": ["flag"]}, (RefusedTypeError, r"keys.parquet: column flag .*BOOLEAN")),
        ({"columns": ["nmae"]}, (UnknownColumnError, r"keys.parquet: no column nmae; near names: name")),
        *(({"columns": wrong}, no_name) for wrong in (5, [5], [None, "id"])),
        *(({"fpp": fpp}, no_rate) for fpp in (0, 1, -0.1, 2.0, float("nan"), {"id": 1.5})),
    ]
    for options, (error, told) in cases:
        with pytest.raises(error, match=told):
            added(keys, **options)


def test_a_type_that_points_into_its_file_is_not_moved(tmp_path: Path) -> None:
    from parquet_bloom._thrift.parquet.ttypes import FileType, LogicalType

    source = write_keys(tmp_path / "keys.parquet")
    with edited_footer(source) as metadata:
        metadata.schema[2].logicalType, metadata.schema[2].converted_type = LogicalType(FILE=FileType()), None
    with pytest.raises(LayoutError, match="type FILE"):
        added(source, columns=["id"], placement="chunk-start")
    _, report = added(source, columns=["id"], placement="footer")
    assert len(report.filters) == ROW_GROUPS, "before the footer nothing moves"


def test_a_page_index_past_the_end_is_named_with_its_cure(tmp_path: Path) -> None:
    """As a tool leaves it that copies row groups and keeps the old places of their page indexes."""
    source = tmp_path / "keys.parquet"
    pq.write_table(pa.table({"id": range(100)}), source, write_page_index=True)
    with edited_footer(source) as metadata:
        [chunk] = metadata.row_groups[0].columns
        indexes = chunk.column_index_length + chunk.offset_index_length
        chunk.column_index_offset += 5000
        chunk.offset_index_offset += 5000
    stale = source.read_bytes()
    footer = len(stale) - 8 - int.from_bytes(stale[-8:-4], "little")
    source.write_bytes(stale[: footer - indexes] + stale[footer:])
    before = digest(source)
    told = "index of row group 0, column id ends .* past the footer's start"
    for placement, dry_run in itertools.product(("footer", "chunk-start"), (False, True)):
        with pytest.raises(LayoutError, match=told) as error:
            added(source, columns=["id"], placement=placement, dry_run=dry_run)
        assert "--placement tail" in str(hint_of(error.value))
        assert digest(source) == before
        assert leftovers(tmp_path) == []
    out, report = added(source, columns=["id"], placement="tail")
    assert len(report.filters) == 1, "the cure"
    assert parquet_bloom.count(out, "id = 5") == 1
    parquet_bloom.remove_filters(out, in_place=True)
    assert digest(out) == before


@pytest.mark.skipif(PYARROW < 26, reason="older ones write no filters")
def test_replace_without_a_new_filter_takes_the_old_one_out(tmp_path: Path) -> None:
    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    nulls = pa.array([None] * 500, pa.int64())
    for options in ({"write_statistics": True}, {"write_statistics": False}):
        pq.write_table(
            pa.table({"x": np.arange(500), "all_nulls": nulls}), source, use_dictionary=False, **options,
            bloom_filter_options={"x": {"ndv": 500}, "all_nulls": True},
        )  # fmt: skip
        assert len(parquet_bloom.inspect(source).files[0].filters) == 2
        for columns in (["all_nulls"], ["all_nulls", "x"]):
            parquet_bloom.add_filters(source, out, columns=columns, replace=True, overwrite=True, sync=False)
            left = {f.column for f in parquet_bloom.inspect(out).files[0].filters}
            assert left == {"x"}, "alone or in company, a filter over nothing goes"
            assert pq.read_table(out).equals(pq.read_table(source))
    report = parquet_bloom.add_filters(
        source, out, columns=["x"], replace=True, max_bytes=64, overwrite=True, sync=False
    )
    assert report.files[0].filters == []
    assert {f.column for f in parquet_bloom.inspect(out).files[0].filters} == {"all_nulls"}


def test_a_column_that_decodes_only_in_part_gets_no_filter(tmp_path: Path) -> None:
    """A chunk whose length ends at a page's border: the rest of the rows would be denied."""
    from parquet_bloom._thrift.parquet.ttypes import OffsetIndex
    from parquet_bloom.errors import DamagedFileError
    from parquet_bloom.format import compact

    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    table = pa.table({"l": pa.array([[i, i + 1] for i in range(20_000)]), "x": list(range(20_000))})
    pq.write_table(table, source, use_dictionary=False, compression="none", data_page_size=4096, write_page_index=True)
    data = source.read_bytes()
    with edited_footer(source) as metadata:
        for column in (0, 1):
            chunk = metadata.row_groups[0].columns[column]
            index, _ = compact.decode(OffsetIndex, data[chunk.offset_index_offset :][: chunk.offset_index_length])
            chunk.meta_data.total_compressed_size = index.page_locations[3].offset - index.page_locations[0].offset
    for name in ("l", "x"):
        with pytest.raises(DamagedFileError, match=r"in.parquet: row group 0"):
            parquet_bloom.add_filters(source, out, columns=[name], sync=False)
    assert not out.exists()


def test_names_that_pyarrow_would_take_for_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~").mkdir()
    for name in ("s3:x.parquet", "file:y.parquet", "~/u.parquet", "\udcff.parquet"):
        os.rename(write_keys(tmp_path / "plain"), tmp_path / name)
        parquet_bloom.add_filters(name, in_place=True, columns=["id"], sync=False)
        assert {f.status for f in parquet_bloom.verify(name).files[0].filters} == {"right"}

"""remove_filters: what `add` put in comes out again, byte for byte; others' filters as far as they can."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.corpus import corpus_file
from support.footers import edited_footer
from support.repeats import by_turns
from support.samples import FIXTURES, ROW_GROUPS, digest, keys_table, leftovers, same_rows, write_keys

import parquet_bloom
from parquet_bloom.cli import run
from parquet_bloom.errors import LayoutError
from parquet_bloom.format.compact_tree import BINARY, LIST, STRUCT, Node, _Field, parse
from parquet_bloom.format.edits import _FOOTER
from parquet_bloom.format.forms import FORMATS
from parquet_bloom.storage.open_file import OpenFile

PLACES = [(spec, placement) for spec, form in FORMATS.items() for placement in form.placements]
SOME_PLACES = [("final", "footer"), ("final", "tail"), ("parquet-41-early", "chunk-start")]
BEYOND = [0, 1, 30, 5000, 1 << 40]


@pytest.mark.smoke
@pytest.mark.parametrize(("spec", "placement"), PLACES)
def test_add_and_remove_give_the_same_file(tmp_path: Path, spec: str, placement: str) -> None:
    """With page indexes every other time: so do test_unknown_fields_at_every_level_survive and others."""
    index = PLACES.index((spec, placement)) % 2 == 0
    source = write_keys(tmp_path / "keys.parquet", write_page_index=index, data_page_size=500)
    before = digest(source)
    parquet_bloom.add_filters(source, in_place=True, spec=spec, placement=placement, sync=False, columns=["*"])
    assert digest(source) != before, "there is something to take out"
    report = parquet_bloom.remove_filters(source, in_place=True, sync=False).files[0]
    assert report.bytes_stay == 0, "our own filters leave no gap"
    assert digest(source) == before, "the file is the file it was"
    assert leftovers(tmp_path) == []


def test_filters_added_in_several_goes_leave_in_any_order(tmp_path: Path) -> None:
    source = write_keys(tmp_path / "keys.parquet", write_page_index=True)
    before = digest(source)
    goes = [("id", "final", "footer"), ("name", "final", "chunk-start"), ("user.id", "parquet-41-raw", "chunk-start")]
    for order in itertools.permutations(goes):
        for column, spec, placement in order:
            parquet_bloom.add_filters(
                source, in_place=True, columns=[column], spec=spec, placement=placement, sync=False
            )
        table = pq.read_table(source)
        assert table.equals(keys_table())
        assert all(f.status == "right" for f in parquet_bloom.verify(source).files[0].filters)
        rules = {(f.column, f.rule) for f in parquet_bloom.inspect(source).files[0].filters}
        assert ("user.id", "murmur3 seed 1361930890 mask") in rules, "provenance follows filters that moved"
        for column, _, _ in order:
            parquet_bloom.remove_filters(source, in_place=True, columns=[column], sync=False)
        assert digest(source) == before, "whichever went in first"


def test_removing_some_columns_leaves_the_others_usable(tmp_path: Path) -> None:
    source = write_keys(tmp_path / "keys.parquet")
    parquet_bloom.add_filters(source, in_place=True, columns=["id", "name"], spec="parquet-41-raw", sync=False)
    report = parquet_bloom.remove_filters(source, in_place=True, columns=["id"], sync=False).files[0]
    assert report.removed == ROW_GROUPS
    infos = parquet_bloom.inspect(source).files[0].filters
    assert {f.column for f in infos} == {"name"}
    assert {f.rule for f in infos} == {"murmur3 seed 1361930890 mask"}, (
        "a raw header does not say it: provenance stayed"
    )
    (entry,) = json.loads(pq.read_metadata(source).metadata[b"parquet_bloom"])
    assert entry["columns"] == ["name"], "and speaks of what is left only"
    assert all(f.status == "right" for f in parquet_bloom.verify(source).files[0].filters)


def test_others_key_values_stay(tmp_path: Path) -> None:
    source = tmp_path / "keys.parquet"
    table = keys_table().replace_schema_metadata({"mine": "1", "parquet_bloom": "not ours", "z": "2"})
    pq.write_table(table, source, use_dictionary=False)
    before = digest(source)
    parquet_bloom.add_filters(source, in_place=True, columns=["id"], sync=False)
    assert pq.read_schema(source).metadata[b"mine"] == b"1"
    parquet_bloom.remove_filters(source, in_place=True, sync=False)
    assert digest(source) == before, "the pair of our name that is not ours, too"


@pytest.mark.smoke
def test_filters_of_other_programs_leave_with_their_bytes(tmp_path: Path) -> None:
    for name in ("pyarrow/types_filters", "duckdb/types", "datafusion/types", "spark/nested"):
        source, out = FIXTURES / f"{name}.parquet", tmp_path / "out.parquet"
        had = parquet_bloom.inspect(source).files[0]
        report = parquet_bloom.remove_filters(source, out, sync=False, all_writers=True, overwrite=True).files[0]
        assert (report.removed, report.others, report.bytes_stay) == (len(had.filters), 0, 0), name
        assert report.removed > 0
        assert report.bytes_before - report.bytes_after > had.filter_bytes, "bitsets and headers are gone"
        assert parquet_bloom.inspect(out).files[0].filters == []
        assert same_rows(pq.read_table(out), pq.read_table(source)), "the data is equal"


@pytest.fixture
def by_duckdb(tmp_path: Path) -> Path:
    """DuckDB writes filters on `few`, which has a dictionary, and none on `id`."""
    duckdb = pytest.importorskip("duckdb")  # not in the environments of .ci/versions
    path = tmp_path / "duck.parquet"
    rows = "SELECT (i * 7919) % 100003 + i * 1000003 AS id, (i % 7)::INTEGER AS few FROM range(8192) t(i)"
    duckdb.sql(f"COPY ({rows}) TO '{path}' (ROW_GROUP_SIZE 2048)")
    return path


@pytest.mark.parametrize(("spec", "placement"), SOME_PLACES)
def test_filters_of_duckdb_stay_where_ours_leave(by_duckdb: Path, tmp_path: Path, spec: str, placement: str) -> None:
    before, others = digest(by_duckdb), len(parquet_bloom.inspect(by_duckdb).files[0].filters)
    assert others > 0, "DuckDB wrote some"
    out, back = tmp_path / "out.parquet", tmp_path / "back.parquet"
    parquet_bloom.add_filters(by_duckdb, out, columns=["id"], spec=spec, placement=placement)
    (dry,) = parquet_bloom.remove_filters(out, back, dry_run=True).files
    (report,) = parquet_bloom.remove_filters(out, back).files
    assert (report.removed, report.others) == (dry.removed, dry.others) == (4, others)
    assert digest(back) == before
    assert parquet_bloom.remove_filters(back, in_place=True).files[0].removed == 0, "nothing of ours is there"
    assert digest(back) == before
    (report,) = parquet_bloom.remove_filters(back, in_place=True, columns=["few"]).files
    assert (report.removed, report.others) == (others, 0)


def test_the_command_says_how_many_filters_of_others_stay(by_duckdb: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["remove", str(by_duckdb), "--in-place"]) == 0
    others = len(parquet_bloom.inspect(by_duckdb).files[0].filters)
    assert f"{others} filters of other programs stay" in " ".join(capsys.readouterr().out.split())
    assert run(["remove", str(by_duckdb), "--in-place", "--all-writers", "--json"]) == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert (file["removed"], file["others"]) == (others, 0)
    with pytest.raises(parquet_bloom.RequestError, match="last=True and all_writers=True exclude each other"):
        parquet_bloom.remove_filters(by_duckdb, in_place=True, last=True, all_writers=True)


@pytest.mark.skipif(int(pa.__version__.partition(".")[0]) < 26, reason="older ones write no filters")
def test_filters_stay_where_the_record_no_longer_matches(tmp_path: Path) -> None:
    """Another program carried our record into a file with filters of its own."""
    source = write_keys(tmp_path / "keys.parquet")
    parquet_bloom.add_filters(source, in_place=True, columns=["id"])
    record = pq.read_metadata(source).metadata[b"parquet_bloom"]
    table = keys_table().replace_schema_metadata({b"parquet_bloom": record})
    pq.write_table(table, source, bloom_filter_options={"id": True}, row_group_size=len(table) // ROW_GROUPS)
    before = digest(source)
    (report,) = parquet_bloom.remove_filters(source, in_place=True).files
    assert (report.removed, report.others) == (0, ROW_GROUPS)
    assert digest(source) == before


def test_garbage_filters_lose_their_fields_and_keep_their_bytes(tmp_path: Path) -> None:
    source, out = corpus_file("malformed_lab/06_garbage_ff.parquet"), tmp_path / "out.parquet"
    report = parquet_bloom.remove_filters(source, out, sync=False, all_writers=True).files[0]
    assert report.bytes_stay == report.removed == 8, "nobody knows how long garbage is"
    assert parquet_bloom.inspect(out).files[0].filters == []
    assert pq.read_table(out).equals(pq.read_table(source))


@pytest.mark.parametrize(("place", "beyond"), by_turns(PLACES, BEYOND))
def test_file_offsets_behind_the_footer_s_start_come_back(tmp_path: Path, place: tuple[str, str], beyond: int) -> None:
    """Polars counts a dictionary twice: a chunk's file_offset, which nobody reads, then lies past the pages."""
    spec, placement = place
    source, out, back = tmp_path / "in.parquet", tmp_path / "out.parquet", tmp_path / "back.parquet"
    with OpenFile(write_keys(source)) as opened:
        start = opened.footer().start
    with edited_footer(source) as metadata:
        for group in metadata.row_groups:
            group.columns[-1].file_offset = start + beyond
    for replace in (False, True):
        parquet_bloom.add_filters(
            out if replace else source, tmp_path / "new.parquet", columns=["id"], spec=spec, placement=placement,
            replace=replace, overwrite=True, fpp=0.3 if replace else 0.001,
        )  # fmt: skip
        (tmp_path / "new.parquet").replace(out)
        parquet_bloom.remove_filters(out, back, overwrite=True)
        assert digest(back) == digest(source)


def test_nothing_to_remove(tmp_path: Path) -> None:
    source = write_keys(tmp_path / "keys.parquet")
    stat = source.stat()
    assert parquet_bloom.remove_filters(source, in_place=True).files[0].removed == 0
    assert source.stat().st_mtime_ns == stat.st_mtime_ns, "in place, the file is not even touched"
    parquet_bloom.remove_filters(source, tmp_path / "copy.parquet")
    assert digest(tmp_path / "copy.parquet") == digest(source), "an output gets a copy"


def test_dry_run(tmp_path: Path) -> None:
    source = write_keys(tmp_path / "keys.parquet")
    parquet_bloom.add_filters(source, in_place=True, columns=["id"], sync=False)
    before = digest(source)
    report = parquet_bloom.remove_filters(source, in_place=True, dry_run=True).files[0]
    assert (report.removed, digest(source)) == (ROW_GROUPS, before), "told, and not done"


@pytest.mark.parametrize("placement", ["footer", "tail"])
def test_an_empty_key_value_list_is_left_empty(tmp_path: Path, placement: str) -> None:
    source = tmp_path / "keys.parquet"
    pq.write_table(pa.table({"x": list(range(100))}), source, use_dictionary=False, store_schema=False)
    for pairs in ([], None):
        with edited_footer(source) as metadata:
            metadata.key_value_metadata = pairs
        before = digest(source)
        parquet_bloom.add_filters(source, in_place=True, sync=False, columns=["*"], placement=placement)
        parquet_bloom.remove_filters(source, in_place=True, sync=False)
        assert digest(source) == before, "an empty list and no list are different bytes"


def edited_tree(path: Path, edit: Callable[[Node], object]) -> None:
    """A file whose footer is changed as a tree of fields, among them such as no binding knows."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    root, _ = parse(data[-8 - length : -8], _FOOTER)
    edit(root)
    footer = root.encode()
    path.write_bytes(data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def add_unknown_fields(root: Node) -> None:
    """Fields of later versions in every struct that an edit opens."""
    groups = root.get(4)
    chunks = [chunk for group in groups for chunk in group.get(1)]
    for n, node in enumerate([root, *groups, *chunks, *(chunk.get(3) for chunk in chunks), *(root.get(5) or [])]):
        node.fields.append(_Field(77, LIST, -1, b"", b"\x2c\x15\x02\x00\x00"))  # two structs, one with an i32
        node.fields.append(_Field(200 + n % 7, STRUCT, -1, b"", b"\x18\x03abc\x11\x00"))  # a text and a bool
        node.fields.append(_Field(32766, BINARY, -1, b"", b"\x85\x00hello"))  # a length longer than need be


@pytest.mark.parametrize(("spec", "placement"), SOME_PLACES)
def test_unknown_fields_at_every_level_survive(tmp_path: Path, spec: str, placement: str) -> None:
    source = write_keys(tmp_path / "keys.parquet", write_page_index=True)
    edited_tree(source, add_unknown_fields)
    before, data = digest(source), source.read_bytes()
    assert pq.read_table(source).equals(keys_table()), "other readers pass over what they do not know"
    parquet_bloom.add_filters(source, in_place=True, columns=["id", "name"], spec=spec, placement=placement, sync=False)
    added = source.read_bytes()
    for marker in (b"\x85\x00hello", b"\x18\x03abc\x11\x00", b"\x2c\x15\x02\x00\x00"):
        again = data.count(marker) if placement == "tail" else 0  # the old footer stays
        assert added.count(marker) - again == data.count(marker) > 20, "as it was written, not as we would write it"
    assert pq.read_table(source).equals(keys_table())
    assert all(f.status == "right" for f in parquet_bloom.verify(source).files[0].filters)
    parquet_bloom.remove_filters(source, in_place=True, sync=False)
    assert digest(source) == before


def test_an_extension_is_kept_and_stops_moves_without_force(tmp_path: Path) -> None:
    source = write_keys(tmp_path / "keys.parquet")
    edited_tree(source, lambda root: root.fields.append(_Field(32767, BINARY, -1, b"", b"\x09extension")))
    before = digest(source)
    with pytest.raises(LayoutError, match="32767"):
        parquet_bloom.add_filters(source, in_place=True, columns=["id"], placement="chunk-start")
    for options in ({"placement": "footer"}, {"placement": "chunk-start", "force": True}):
        parquet_bloom.add_filters(source, in_place=True, columns=["id"], sync=False, **options)
        assert source.read_bytes().count(b"\x09extension") == 1
        parquet_bloom.remove_filters(source, in_place=True, sync=False, force=True)
        assert digest(source) == before

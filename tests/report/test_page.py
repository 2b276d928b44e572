"""The page of `write_report`: what it says against what its sources say, and that nothing in a file breaks it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pages import EVIL, GROUPS, Page, write_events
from support.commands import command
from support.samples import FIXTURES

import parquet_bloom
from parquet_bloom import Outcomes, RequestError, RowGroupVerdict, StorageError, TextError, write_report
from parquet_bloom.errors import TableWarning
from parquet_bloom.report.page import markup
from parquet_bloom.report.page.content import (
    CHUNK,
    FILTER,
    FOOTER,
    INDEX,
    KINDS,
    Layout,
    _without_gaps,
    layout_of,
    steps_of,
)
from parquet_bloom.report.text import Column, Table
from parquet_bloom.search.evidence import STAGES
from parquet_bloom.storage.open_file import OpenFile

WHERE = "trace = '0123456789abcdef' AND day = 2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_events(tmp_path_factory.mktemp("page") / "events")


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    output = folder.parent / "report.html"
    report = write_report(folder, output, where=WHERE)
    assert report.bytes == output.stat().st_size
    assert (report.files, report.row_groups) == (2, GROUPS + 6)
    assert "day=2" in report.drawn, "the largest file is drawn"
    return Page(output)


@pytest.mark.smoke
def test_nothing_is_loaded_and_no_text_of_a_file_is_markup(page: Page) -> None:
    assert EVIL[:40] in json.dumps(page.data), "the hostile name is there"
    assert page.count("img") == 0, "a name became an element"
    assert page.count("script") == 2, "the data and the page's own script"
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
        assert not {"src", "srcset", "data", "action"} & attributes.keys(), (tag, attributes)
        assert str(attributes.get("href", "#")).startswith("#"), (tag, attributes)
    assert "default-src 'none'" in page.text
    assert "@import" not in page.text
    assert "url(" not in page.text


def test_the_json_is_what_the_functions_say(page: Page, folder: Path) -> None:
    verdicts = parquet_bloom.check(folder, WHERE)
    left, steps = list(verdicts), page.data["predicate"]["steps"]
    for step, gone in zip(steps, ((), ("partition",), ("no rows", "literal", "bounds"), ("filter",)), strict=True):
        left = [one for one in left if one.decided_by not in gone]
        expected = [len({one.path for one in left}), len(left), sum(v.rows for v in left), sum(v.size for v in left)]
        assert [step[name] for name in ("files", "row_groups", "rows", "bytes")] == expected, step
    assert [step["row_groups"] for step in steps[:2]] == [GROUPS + 6, GROUPS], "the folder's name excludes one file"
    assert steps[-1]["row_groups"] == len(verdicts) - verdicts.skipped
    advised = [one["column"] for one in page.data["advice"]["columns"] if one["advised"]]
    assert advised == [markup.display_text(name) for name in parquet_bloom.advise(folder).advised]
    file = parquet_bloom.inspect(next(folder.glob("day=2/*"))).files[0]
    assert page.data["file"]["size"] == file.size
    rates = {(one["column"], one["row_group"]): one["fpp"] for one in page.data["file"]["filters"]}
    assert rates == {(f.column, f.row_group): f.fpp for f in file.filters}
    order = [one["fpp"] for one in page.data["file"]["filters"]]
    assert order == sorted(order, reverse=True), "the highest rate first"


def test_the_heat_map_and_the_curve_have_every_filter(page: Page, folder: Path) -> None:
    file = parquet_bloom.inspect(next(folder.glob("day=2/*"))).files[0]
    for column in page.data["heat_map"]:
        mine = [one for one in file.filters if one.column == column["column"]]
        assert len(mine) == GROUPS == column["filters"]
        assert column["bytes"] == sum(one.num_bytes for one in mine)
        assert column["fpp_worst"] == max(one.fpp for one in mine)
        for cell in column["cells"]:
            inside = [one for one in mine if cell["first"] <= one.row_group <= cell["last"]]
            assert (cell["filters"], cell["fpp"]) == (len(inside), max(one.fpp for one in inside))
    placed = page.data["size_and_rate"]
    assert sum(p["filters"] for p in placed["points"]) + placed["without_a_place"] == len(file.filters)
    tips = [attributes["data-tip"] for _, attributes in page.elements if "data-tip" in attributes]
    assert len(tips) >= 3 * GROUPS, "marks tell what they are"


def test_rates_at_the_picture_are_percent(folder: Path, tmp_path: Path) -> None:
    write_report(folder, tmp_path / "page.html")
    labels = re.findall(r"<text[^>]*>([^<]*) %</text>", (tmp_path / "page.html").read_text())
    assert {"100", "1", "0.01", "0.001", "0.0001"} <= set(labels)


def test_what_decided_takes_a_row_group_away_at_its_step() -> None:
    stages = [stage for stage in STAGES if stage != "index"]  # no index is given to `check`
    verdicts = parquet_bloom.Verdicts(
        RowGroupVerdict(f"{at}.parquet", 0, Outcomes(7), stage is not None, stage, 0, "", 10, 100 + at)
        for at, stage in enumerate(stages)
    )
    steps = {step.name: step for step in steps_of(verdicts)}
    assert [step.row_groups for step in steps.values()] == [6, 5, 2, 1], "all, folders, bounds, filters"
    last = steps["after filters"]
    assert (last.files, last.rows, last.bytes) == (1, 10, 100), "nothing decided about what is left"


def test_rows_that_match_are_counted_if_asked(folder: Path, tmp_path: Path, page: Page) -> None:
    assert page.data["predicate"]["matching"] is None
    user = int(pq.read_table(next(folder.glob("day=2/*")))["user"][5].as_py())
    write_report(folder, tmp_path / "report.html", where=[("user", "==", user)], count_rows=True)
    found = Page(tmp_path / "report.html")
    matching = sum(pq.read_table(path)["user"].to_pylist().count(user) for path in folder.glob("*/*"))
    assert found.data["predicate"]["matching"] == matching > 0
    assert found.data["predicate"]["steps"][-1]["rows"] >= matching, "no row is lost on the way"
    assert f"{matching:,} rows of these match." in "".join(found.texts)


# --- the bytes of a file ------------------------------------------------------------------------------


def layout(path: Path) -> Layout:
    filters = parquet_bloom.inspect(path).files[0].filters
    with OpenFile(path) as source:
        return layout_of(source.outline(), source.size, filters)


def whole(one: Layout) -> None:
    assert one.starts[0] == 0
    assert one.ends[-1] == one.size
    assert (one.starts[1:] == one.ends[:-1]).all(), "no gap, no overlap"
    assert (one.ends > one.starts).all()
    for n in (1, 7, 240):
        bytes_of = one.cells(0, one.size, n).sum(axis=1) * one.size / n
        assert bytes_of == pytest.approx([one.of_kind(kind) for kind in range(len(KINDS))], abs=0.01)


def test_every_byte_of_a_file_has_its_kind(folder: Path) -> None:
    path = next(folder.glob("day=2/*"))
    one = layout(path)
    whole(one)
    metadata = pq.ParquetFile(path).metadata
    chunks = [metadata.row_group(g).column(c) for g in range(GROUPS) for c in range(4)]
    assert one.of_kind(CHUNK) == sum(chunk.total_compressed_size for chunk in chunks)
    found = parquet_bloom.inspect(path).files[0].filters
    assert one.of_kind(FILTER) == sum(filter.length or 0 for filter in found) == int(one.filter_bytes.sum())
    assert one.of_kind(FOOTER) == metadata.serialized_size + 8
    assert one.of_kind(INDEX) == one.size - 4 - sum(one.of_kind(kind) for kind in (CHUNK, FILTER, FOOTER))


def test_every_byte_of_other_files_has_a_kind() -> None:
    for path in (FIXTURES / "pyarrow").glob("*.parquet"):
        whole(layout(path))


def test_spans_that_overlap_are_counted_once() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        size, n = int(rng.integers(1, 60)), int(rng.integers(1, 8))
        starts = rng.integers(0, 70, n)
        spans = np.stack([starts, starts + rng.integers(0, 30, n), rng.integers(0, 4, n), *rng.integers(-1, 3, (2, n))])
        spans[:3, -1] = rng.integers(0, size), size, FOOTER
        covered = np.zeros(size, bool)
        for start, end in spans[:2].T.tolist():
            covered[start:end] = True
        indexes = rng.integers(0, 60, 3)
        found = _without_gaps(spans.copy(), size, indexes)
        assert found[0, 0] == 0
        assert found[1, -1] == size
        assert (found[0, 1:] == found[1, :-1]).all()
        kinds = np.repeat(found[2], found[1] - found[0])
        gaps = np.isin(kinds, (2, 4)) & (np.repeat(found[3], found[1] - found[0]) == -1)
        assert (gaps | covered).all(), "what no span covers is a gap"
        assert len(kinds) == size


# --- as a new file ------------------------------------------------------------------------------------


def test_an_output_is_replaced_only_if_asked(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    output.write_text("mine")
    with pytest.raises(StorageError, match=r"report\.html.*overwrite"):
        write_report(folder, output)
    assert output.read_text() == "mine"
    with pytest.raises(TextError):
        write_report(folder, output, where="trace = = 1", overwrite=True)
    assert output.read_text() == "mine"
    assert os.listdir(tmp_path) == ["report.html"], "no temporary file stays"
    write_report(folder, output, overwrite=True)
    assert Page(output).data["predicate"] is None


def test_no_page_takes_the_place_of_a_data_file(folder: Path, tmp_path: Path) -> None:
    data, link = tmp_path / "data.parquet", tmp_path / "link.html"
    data.write_bytes(next(folder.glob("day=2/*")).read_bytes())
    link.symlink_to(data)
    before = data.read_bytes()
    for output in (data, link):
        with pytest.raises(RequestError, match="is itself a source"):
            write_report(tmp_path, output, overwrite=True)
    assert data.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["data.parquet", "link.html"]


def test_all_of_a_page_is_of_one_version_of_a_table(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    table = tmp_path / "table"
    deltalake.write_deltalake(table, pa.table({"id": [5] * 1000}))

    def another_program(_: Any) -> None:
        deltalake.write_deltalake(table, pa.table({"id": [5] * 1000}), mode="append")

    page = tmp_path / "page.html"
    found = write_report(table, page, where="id = 5", count_rows=True, progress=another_program)
    assert parquet_bloom.count(table, "id = 5") > 1000, "the table did grow meanwhile"
    assert (found.files, Page(page).data["predicate"]["matching"]) == (1, 1000)


def test_a_wrong_filter_and_a_file_that_cannot_be_read_are_told(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.parquet"
    data = bytearray(next(folder.glob("day=2/*")).read_bytes())
    one = parquet_bloom.inspect(next(folder.glob("day=2/*"))).files[0].filters[5]
    assert one.offset is not None
    data[one.offset : one.offset + 4] = b"\xff\xff\xff\xff"
    broken.write_bytes(data)
    (tmp_path / "text.parquet").write_text("no Parquet file")
    report = write_report(tmp_path, tmp_path / "report.html")
    assert [os.path.basename(failed.path) for failed in report.failed] == ["text.parquet"]
    page = Page(tmp_path / "report.html")
    assert "contradicts itself" in "".join(page.texts)
    assert "text.parquet" in "".join(page.texts)
    assert page.data["file"]["filters"][0]["problems"], "what is wrong comes first"


def test_a_file_without_filters_has_a_page(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": pa.nulls(3, pa.int64())}), tmp_path / "n.parquet")
    write_report(tmp_path / "n.parquet", tmp_path / "report.html", where="n = 5")
    assert any("has no filters." in text for text in Page(tmp_path / "report.html").texts)


def test_texts_are_made_safe() -> None:
    secret = "s3://KEY:SE/CRET@bucket/x"
    made = markup.html_text(markup.element("p", secret, "\u202e\x00\ud800", title=secret))
    assert "CRET" not in made + markup.json_in_script([{secret: secret}])
    assert "\\u202e\\x00\\ud800" in made
    script = markup.json_in_script({"a": "<!--</script>&"})
    assert not set("<>&") & set(script)
    assert json.loads(script) == {"a": "<!--</script>&"}
    assert len(markup.display_text("x" * 10_000)) < 2100
    drawn = Table.of([1.0] * 5000, Column("a", lambda one: "y" * 500), Column("b", lambda one: ("1", one)), heading="t")
    text = markup.html_text(markup.table(drawn))
    assert text.count("<tr>") == markup.MOST_ROWS + 1
    assert "t (200 of 5,000)" in text


def test_the_command(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    done = command("report", folder, "--where", WHERE, "-o", output)
    assert (done.returncode, done.stderr) == (0, "")
    assert str(output) in done.stdout.replace("\n  ", "")
    done = command("report", folder, "-o", output)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "--overwrite" in done.stderr


# --- large ----------------------------------------------------------------------------------------------


@pytest.mark.more
def test_many_row_groups_columns_and_long_names_make_no_large_page(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    wide = pa.table({f"{i:03}{'<é&' * 300}": rng.integers(0, 2**60, 200) for i in range(200)})
    pq.write_table(wide, tmp_path / "wide.parquet", row_group_size=100)
    parquet_bloom.add_filters(tmp_path / "wide.parquet", in_place=True, columns=["*"], sync=False)
    assert write_report(tmp_path / "wide.parquet", tmp_path / "wide.html").bytes < 2_000_000
    tall = pa.table({name: rng.integers(0, 2**60, 10_000) for name in "ab"})
    pq.write_table(tall, tmp_path / "tall.parquet", row_group_size=1)
    parquet_bloom.add_filters(tmp_path / "tall.parquet", in_place=True, columns=["*"], sync=False)
    report = write_report(tmp_path / "tall.parquet", tmp_path / "tall.html", where="a = 5")
    assert report.row_groups == 10_000
    assert report.bytes < 1_000_000
    filters = [one["filters"] for one in Page(tmp_path / "tall.html").data["heat_map"]]
    assert filters == [10_000, 10_000]


def test_a_tables_folder_is_shown_by_its_live_files_or_raw(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = tmp_path / "events"
    for day in ("a", "b", "c"):
        rows = pa.table({"id": [f"{day}{i:05}" for i in range(2000)], "day": [day] * 2000})
        deltalake.write_deltalake(table, rows, mode="append", partition_by=["day"])
    deltalake.DeltaTable(table).delete("day = 'c'")
    page = tmp_path / "page.html"
    write_report(table, page, where="day = 'a' AND id = 'a00007'")
    left = {one["name"]: one["files"] for one in Page(page).data["predicate"]["steps"]}
    assert left["all"] == 2, "the file of a deleted day is dead"
    assert left["after partitions"] == 1, "the log's partition values exclude the other one, and it was not opened"


def test_a_tables_file_is_drawn_as_long_as_the_log_says(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    table, page = tmp_path / "events", tmp_path / "page.html"
    for n in (3000, 2900):  # with its tail the second one is the largest
        deltalake.write_deltalake(table, pa.table({"id": [f"{i * 7919:x}" for i in range(n)]}), mode="append")
    name, sizes = f"delta:{table}", [path.stat().st_size for path in table.glob("*.parquet")]
    parquet_bloom.add_filters(name, columns=["id"], commit="same-path")
    parquet_bloom.remove_filters(name, commit="same-path")
    smaller = min(table.glob("*.parquet"), key=lambda path: path.stat().st_size)
    with pytest.warns(TableWarning):
        parquet_bloom.add_filters(
            smaller, columns=["id"], fpp=1e-9, placement="tail", in_place=True, replace=True, force=True
        )
    parquet_bloom.write_report(name, page)
    found = Page(page)
    assert smaller.stat().st_size > max(path.stat().st_size for path in table.glob("*.parquet") if path != smaller)
    assert found.data["file"]["size"] == max(sizes)
    assert found.data["file"]["filters"] == []

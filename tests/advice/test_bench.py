"""bench: one query over a file with filters and without, by the engines that are installed."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parquet_bloom
from parquet_bloom.cli import run
from parquet_bloom.errors import RequestError, TableFormatError, TextError
from parquet_bloom.facts.known import ENGINES
from parquet_bloom.trials.ask import EngineError
from parquet_bloom.trials.bench import EngineGain, translated
from parquet_bloom.trials.child import digest_of
from parquet_bloom.trials.samples import deny

ROWS, GROUPS = 4000, 8
KEY = 12 * 2654435761 % 2**40


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Random ids in eight row groups, without filters; temporary files lie in a folder of this test's."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    ids = [i * 2654435761 % 2**40 for i in range(ROWS)]
    table = pa.table({"id": ids, "name": [f"n{i:x}" for i in ids], "user": [{"id": i} for i in ids], "x": range(ROWS)})
    path = tmp_path / "events.parquet"
    pq.write_table(table, path, row_group_size=ROWS // GROUPS)
    return path


def test_a_file_without_filters_is_compared_with_a_copy_that_has_them(events: Path) -> None:
    before = events.read_bytes()
    report = parquet_bloom.bench(events, f"id = {KEY}", names=["duckdb", "parquet_bloom"], runs=2)
    assert events.read_bytes() == before
    assert not list(Path(tempfile.gettempdir()).iterdir()), "the copy is gone"
    assert (report.made, report.columns, report.row_groups, report.row_groups_kept) == ("after", ["id"], GROUPS, 1)
    assert [gain.engine for gain in report.engines] == ["duckdb", "parquet_bloom"]
    for gain in report.engines:
        assert (gain.rows, gain.same_rows, gain.note) == (1, True, "")
        assert (gain.row_groups_before, gain.row_groups_after, gain.row_groups) == (GROUPS, 1, GROUPS)
        assert gain.seconds_before is not None
        assert gain.bytes_before is not None
        assert gain.bytes_after is not None
        assert gain.bytes_after < gain.bytes_before
    assert not report.lost_rows
    assert "filters on id (" in report.sentence


def test_a_file_with_filters_is_compared_with_a_copy_that_has_none(events: Path) -> None:
    parquet_bloom.add_filters(events, in_place=True, columns=["name", "user.id"])
    before = events.read_bytes()
    report = parquet_bloom.bench(str(events), f"user.id IN ({KEY}, 5) AND x >= 0", names=["parquet_bloom"], runs=1)
    assert events.read_bytes() == before
    assert (report.made, report.columns, report.row_groups_kept) == ("before", ["user.id"], 1)
    assert report.filter_bytes == sum(
        f.length or 0 for f in parquet_bloom.inspect(events).files[0].filters if f.column == "user.id"
    )
    (gain,) = report.engines
    assert (gain.row_groups_before, gain.row_groups_after, gain.rows) == (GROUPS, 1, 1)


@pytest.mark.more
def test_filters_on_other_columns_stay_and_those_of_the_predicate_are_added(events: Path) -> None:
    parquet_bloom.add_filters(events, in_place=True, columns=["name"])
    report = parquet_bloom.bench(events, f"id = {KEY}", names=["parquet_bloom"], runs=1)
    assert (report.made, report.columns, report.row_groups_kept) == ("after", ["id"], 1)


OTHERS = [pytest.param(name, marks=pytest.mark.more) for name in ("duckdb", "pyarrow", "fastparquet", "parquet_bloom")]


@pytest.mark.parametrize("name", ["datafusion", "polars", *OTHERS])
def test_every_engine_finds_the_row(events: Path, name: str) -> None:
    pytest.importorskip(ENGINES[name].module)
    report = parquet_bloom.bench(events, f"name = 'n{KEY:x}' AND id >= 0", names=[name], runs=1)
    (gain,) = report.engines
    assert (gain.rows, gain.same_rows, gain.note) == (1, True, "")
    if name in ("duckdb", "datafusion"):
        assert (gain.row_groups_before, gain.row_groups_after, gain.row_groups) == (GROUPS, 1, GROUPS)
    else:
        assert name == "parquet_bloom" or gain.row_groups is None, "it does not tell"


def test_a_filter_that_lies_costs_rows_and_is_told(events: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parquet_bloom.add_filters(events, in_place=True, columns=["id"])
    assert deny(events) == GROUPS
    assert (
        run(["bench", str(events), f"id = {KEY}", "--engine", "parquet_bloom", "--engine", "pyarrow", "--runs", "1"])
        == 1
    )
    shown = " ".join(capsys.readouterr().out.split())
    assert "parquet_bloom finds other rows with filters than without" in shown
    assert "pyarrow finds" not in shown, "it does not look at filters"
    assert "pyarrow: 1 rows, where parquet_bloom finds 0" in shown
    assert "run verify before anybody uses this file." in shown


def test_an_engine_that_cannot_be_asked_says_why(events: Path) -> None:
    pytest.importorskip("fastparquet")
    report = parquet_bloom.bench(events, f"user.id = {KEY}", names=["fastparquet"], runs=1)
    assert report.engines[0].note == "its filters cannot say this predicate"
    assert report.engines[0].seconds_after is None
    assert report.sentence.endswith("; asked: no engine.")


@pytest.mark.parametrize(
    ("predicate", "options", "error", "message"),
    [
        ("x > 5", {}, RequestError, "compares no column by =, IN or list_contains"),
        ("id = ", {}, TextError, r"\^"),
        ("id = 5", {"runs": 0}, RequestError, "^runs 0: at least one is needed"),
        ("id = 5", {"names": ["nope"]}, RequestError, "^names 'nope' is not known"),
    ],
    ids=["no equality", "no predicate", "no run", "no engine"],
)
def test_what_makes_no_sense_is_an_error(
    events: Path, predicate: str, options: dict, error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        parquet_bloom.bench(events, predicate, **options)
    assert not list(Path(tempfile.gettempdir()).iterdir())


def test_several_files_and_files_of_tables_are_errors(events: Path, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.parquet").write_bytes(events.read_bytes())
    with pytest.raises(RequestError, match="many: bench takes one file on a local disk"):
        parquet_bloom.bench(folder, "id = 5")
    said = "delta:many: bench takes one file on a local disk, no table; name a file of it, with raw_files=True"
    with pytest.raises(RequestError, match=said):
        parquet_bloom.bench("delta:many", "id = 5")
    log = folder / "_delta_log"
    log.mkdir()
    (log / "00000000000000000000.json").write_text('{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n')
    with pytest.raises(TableFormatError):
        parquet_bloom.bench(folder / "a.parquet", "id = 5", names=["parquet_bloom"])


def test_the_command_as_json(events: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a file in the folder of a table, too."""
    log = events.parent / "lake/_delta_log"
    log.mkdir(parents=True)
    events = events.rename(events.parent / "lake/events.parquet")
    (log / "00000000000000000000.json").write_text('{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n')
    words = ["--engine", "parquet_bloom", "--runs", "1", "--json", "--raw-files"]
    assert run(["bench", str(events), f"id = {KEY}", *words]) == 0
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert shown.err == ""
    assert document["engines"][0]["row_groups_after"] == 1
    assert document["sentence"].startswith(("With filters on id", "This query gains nothing"))


def test_predicates_in_the_sql_of_engines() -> None:
    text = "user.id = 5 AND list_contains(tags, 'it''s') AND \"a b\" = x'00ff'"
    assert translated(text, "pyarrow") == text
    assert (
        translated(text, "datafusion")
        == "\"user\"['id'] = 5 AND LIST_CONTAINS(\"tags\", 'it''s') AND \"a b\" = x'00ff'"
    )
    assert (
        translated(text, "duckdb")
        == '"user"."id" = 5 AND LIST_CONTAINS("tags", \'it\'\'s\') AND "a b" = UNHEX(\'00ff\')'
    )
    assert translated(text, "spark") == "`user`.`id` = 5 AND ARRAY_CONTAINS(`tags`, 'it\\'s') AND `a b` = X'00ff'"
    with pytest.raises(EngineError, match="its SQL cannot say this predicate"):
        translated("a = x'00ff'", "clickhouse")


@pytest.mark.parametrize(
    ("gain", "gained"),
    [
        ({"seconds_before": 1.0, "seconds_after": 0.5}, True),
        ({"seconds_before": 1.0, "seconds_after": 0.95}, False),
        ({"seconds_before": 1.0, "seconds_after": 0.5, "row_groups_before": 5, "row_groups_after": 5}, False),
        ({"seconds_before": 1.0, "seconds_after": 0.5, "row_groups_before": 5, "row_groups_after": 1}, True),
        ({"seconds_before": 1.0, "seconds_after": 0.5, "bytes_before": 5000, "bytes_after": 4990}, False),
        ({}, False),
    ],
    ids=["faster", "chance", "as many row groups", "fewer row groups", "as many bytes", "not asked"],
)
def test_faster_without_reading_less_is_no_gain(gain: dict, gained: bool) -> None:
    assert EngineGain("e", "E", "1", **gain).gained == gained


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.text(max_size=2)), max_size=12), st.integers())
def test_equal_rows_have_equal_digests_whatever_their_order(rows: list[tuple[int, str | None]], seed: int) -> None:
    def digest(of: list[tuple[int, str | None]]) -> str:
        columns = {"a": pa.array([a for a, _ in of], pa.int64()), "b": pa.array([b for _, b in of], pa.string())}
        return digest_of(pa.table(columns))

    mixed = random.Random(seed).sample(rows, len(rows))
    assert digest(mixed) == digest(rows)
    if rows:
        assert digest(rows[1:]) != digest(rows), "a row less"
        assert digest([*rows, rows[0]]) != digest(rows), "a row twice"

"""engines, the function and the command: what is known of engines, without any of them."""

from __future__ import annotations

import json

import pytest

import parquet_bloom
from parquet_bloom.cli import run
from parquet_bloom.errors import RequestError
from parquet_bloom.facts.known import ENGINES, known_engines, version_of


def test_the_report_says_all_that_is_known() -> None:
    report = parquet_bloom.engines()
    by_name = {e.name: e for e in report.engines}
    assert set(ENGINES) <= set(by_name)
    assert by_name["trino"].how == "sources"
    assert by_name["duckdb"].how == "measured"
    assert by_name["polars"].installed == version_of(ENGINES["polars"])
    duckdb = {(a.kind, a.stored, a.question): a.answer for a in report.answers if a.engine == "duckdb"}
    assert duckdb["string", "plain", "="] == "used"
    assert duckdb["decimal as FIXED", "plain", "="] == "not used"
    assert report.to_arrow().num_rows == len(report.answers)
    kept = {
        (facts.name, kind, stored, question): answer
        for facts in known_engines()
        for kind, ways in facts.answers.items()
        for stored, answers in ways.items()
        for question, answer in answers.items()
    }
    assert {(a.engine, a.kind, a.stored, a.question): a.answer for a in report.answers} == kept


def test_names_that_nobody_knows_are_errors() -> None:
    with pytest.raises(RequestError, match=r"^names 'nope' is not known; there are duckdb, "):
        parquet_bloom.engines(names=["nope"])
    with pytest.raises(RequestError, match=r"^kinds 'int128' is not known; there are int8, "):
        parquet_bloom.engines(kinds=["int128"])


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["engines", "--engine", "duckdb", "--engine", "polars", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [e["name"] for e in document["engines"]] == ["duckdb", "polars"]
    assert run(["engines", "--engine", "duckdb", "--kind", "int8", "--kind", "uint32"]) == 0
    assert "uint32" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["engines"]) == 0
    shown = capsys.readouterr()
    assert "for all of these: parquet_bloom " in shown.out
    assert "use no filters: Polars " in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80

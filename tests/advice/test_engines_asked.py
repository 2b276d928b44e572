"""engines: files whose filters deny everything, engines in processes of their own, and what is kept of answers."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.spark_needed import need_spark

import parquet_bloom
from parquet_bloom.cli import run
from parquet_bloom.errors import RequestError
from parquet_bloom.facts.known import (
    ENGINES,
    EQUAL,
    KINDS,
    PLAIN,
    STORED,
    facts_of,
    kind_of,
    questions_of,
    same_release,
    version_of,
)
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.trials import samples
from parquet_bloom.trials.ask import EngineError, EngineProcess
from parquet_bloom.trials.samples import COLUMNS, write_pair

QUICK = ("uint32", "string", "timestamp[us]", "decimal as FIXED")
HERE = {
    "duckdb": QUICK[1::2],
    "datafusion": QUICK[::2],
    "polars": QUICK[:1],
    "pyarrow": QUICK[:1],
    "fastparquet": QUICK[:1],
}
KIND_BY_KIND = [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.more) for kind in KINDS]


@pytest.mark.parametrize("kind", KIND_BY_KIND)
def test_the_filters_of_one_file_deny_all_and_those_of_its_twin_none(tmp_path: Path, kind: str) -> None:
    control, denying = write_pair(tmp_path, kind)
    for path, status in ((control, "right"), (denying, "wrong")):
        filters = parquet_bloom.verify(path).files[0].filters
        assert [f.status for f in filters] == [status] * len(COLUMNS)
        assert all(f.missed == (f.values if status == "wrong" else 0) and f.values == 2000 for f in filters)
    one, other = pq.ParquetFile(control), pq.ParquetFile(denying)
    assert one.metadata.num_row_groups == 1
    for n in range(one.metadata.num_columns):
        chunks = [file.metadata.row_group(0).column(n) for file in (one, other)]
        assert chunks[0].to_dict() == chunks[1].to_dict(), "the footers are the same, bounds among them"
        dictionary = "RLE_DICTIONARY" in chunks[0].encodings
        assert dictionary == (chunks[0].path_in_schema == "dictionary")
    if kind not in ("uuid", "float16"):  # which pyarrow does not compare
        assert one.read().equals(other.read()), "the data is the same"


@pytest.mark.parametrize("kind", KIND_BY_KIND)
def test_values_that_are_asked_for_lie_between_the_bounds(tmp_path: Path, kind: str) -> None:
    values = samples.ascending(kind).to_pylist() if not kind.endswith("ns]") else list(range(samples.DISTINCT))
    assert len(set(values)) == samples.DISTINCT
    everything = samples.column(kind)
    for question in questions_of(kind, PLAIN):
        asked, rows = samples.question_values(kind, question)
        assert everything.type == asked[0].type, "a literal of the column's own type"
        assert samples.REPEATED <= rows < len(everything)
        assert all(value not in (samples.ascending(kind)[0], samples.ascending(kind)[-1]) for value in asked)
    control, _ = write_pair(tmp_path, kind)
    with OpenFile(control) as source:
        assert {kind_of(leaf) for leaf in source.footer().leaves} == {kind}


@pytest.mark.parametrize("kinds", [QUICK, pytest.param(KINDS, marks=pytest.mark.more)], ids=["some", "all"])
def test_this_package_uses_filters_of_every_kind(kinds: tuple[str, ...]) -> None:
    report = parquet_bloom.engines(["parquet_bloom"], test=True, kinds=kinds)
    assert report.tested
    assert [(a.kind, a.stored, a.question) for a in report.answers] == [
        (kind, stored, question) for kind in kinds for stored in STORED for question in questions_of(kind, stored)
    ]
    assert {a.answer for a in report.answers} == {"used"}, [a for a in report.answers if a.answer != "used"]


@pytest.mark.parametrize("name", HERE)
def test_engines_answer_as_the_package_says(name: str) -> None:
    pytest.importorskip(ENGINES[name].module)
    assert as_known(name, HERE[name]) > 0


@pytest.mark.more
@pytest.mark.parametrize("name", HERE)
def test_engines_answer_as_the_package_says_of_all_kinds(name: str) -> None:
    pytest.importorskip(ENGINES[name].module)
    as_known(name, KINDS)


@pytest.mark.spark
def test_spark_answers_as_the_package_says() -> None:
    need_spark()
    assert as_known("spark", ("int64", "uint32", "timestamp[us]", "uuid")) > 0


def as_known(name: str, kinds: tuple[str, ...]) -> int:
    """Hold an engine's answers against engines.json; of a release that it does not know, only that there are any."""
    answers = parquet_bloom.engines([name], test=True, kinds=kinds).answers
    facts = facts_of(name)
    assert facts is not None
    assert facts.answers.keys() == set(KINDS), "all kinds were measured"
    assert not [a for a in answers if a.answer == "lost"]
    if same_release(answers[0].version, facts.version):
        for a in answers:
            assert a.answer == facts.answers[a.kind][a.stored][a.question], f"{a}: docs/generate --measure"
    return sum(a.question == EQUAL and a.answer in ("used", "not used") for a in answers)


def test_a_process_that_ends_costs_one_answer(tmp_path: Path) -> None:
    control, _ = write_pair(tmp_path, "int64")
    question = {"path": str(control), "kind": "int64", "stored": "plain", "question": "="}
    with EngineProcess(ENGINES["parquet_bloom"]) as process:
        assert process.ask("count", **question) == 10
        first = process._child._process
        assert first is not None
        os.kill(first.pid, signal.SIGSTOP)  # it takes the question, and no more
        crash = threading.Timer(0.3, os.kill, (first.pid, signal.SIGSEGV))
        go_on = threading.Timer(0.4, os.kill, (first.pid, signal.SIGCONT))
        crash.start()
        go_on.start()
        with pytest.raises(EngineError, match=r"^its process ended: Segmentation fault$") as found:
            process.ask("count", **question)
        assert found.value.lost
        assert process.ask("count", **question) == 10, "the next question has a new process"
        with pytest.raises(EngineError, match="UnknownColumnError") as found:
            process.ask("find", path=str(control), where="no_such_column = 5")
        assert not found.value.lost, "an error is an answer"
    assert process._child._process is None


def test_a_process_that_hangs_is_ended(tmp_path: Path) -> None:
    control, _ = write_pair(tmp_path, "int64")
    question = {"path": str(control), "kind": "int64", "stored": "plain", "question": "="}
    with EngineProcess(dataclasses.replace(ENGINES["parquet_bloom"], seconds=0)) as process:
        with pytest.raises(EngineError, match="no answer within 0 s") as found:
            process.ask("count", **question)
        assert found.value.lost
        assert process._child._process is None


def test_what_is_known_is_told_without_asking() -> None:
    report = parquet_bloom.engines()
    assert not report.tested
    by_name = {e.name: e for e in report.engines}
    assert set(ENGINES) <= set(by_name)
    assert by_name["trino"].how == "sources"
    assert by_name["duckdb"].how == "measured"
    assert by_name["polars"].installed == version_of(ENGINES["polars"])
    duckdb = {(a.kind, a.stored, a.question): a.answer for a in report.answers if a.engine == "duckdb"}
    assert duckdb["string", "plain", "="] == "used"
    assert duckdb["decimal as FIXED", "plain", "="] == "not used"
    assert report.to_arrow().num_rows == len(report.answers)
    assert not [f for f in report.facts() if facts_of(f.name) != f], "the report says all that is kept"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"names": ["nope"]}, "names 'nope' is not known; there are duckdb, "),
        ({"names": ["trino"], "test": True}, "names 'trino' is not known; there are duckdb, "),
        ({"kinds": ["int128"]}, "kinds 'int128' is not known; there are int8, "),
    ],
    ids=["name", "of sources", "kind"],
)
def test_names_that_nobody_knows_are_errors(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=f"^{message}"):
        parquet_bloom.engines(**arguments)  # type: ignore[arg-type]


def test_an_engine_that_is_named_and_not_installed_is_an_error() -> None:
    missing = [engine for engine in ENGINES.values() if version_of(engine) is None]
    if not missing:
        pytest.skip("all engines are installed here")
    with pytest.raises(RequestError, match=f"is not installed here; pip install {missing[0].package}$"):
        parquet_bloom.engines([missing[0].name], test=True)


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["engines", "--test", "--engine", "pyarrow", "--kind", "int8", "--kind", "uuid"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "", "it took no ten seconds"
    assert "int8   no\n" in shown.out
    assert "uuid   -\n" in shown.out
    assert "pyarrow, int8, uuid: its expressions cannot read inside lists\n" in shown.out
    assert run(["engines", "--engine", "duckdb", "--engine", "polars", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [e["name"] for e in document["engines"]] == ["duckdb", "polars"]
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["engines"]) == 0
    shown = capsys.readouterr()
    assert "for all of these: parquet_bloom " in shown.out
    assert "use no filters: Polars " in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80

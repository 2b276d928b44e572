"""facts/engines.json against the engines that are installed: files whose filters deny everything (engines.measure)."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support import denying
from support.denying import COLUMNS, write_pair
from support.spark_needed import need_spark

import parquet_bloom
from engines.measure import FACTS, EngineError, EngineProcess, answers_of, as_text
from parquet_bloom.facts.known import (
    ENGINES,
    EQUAL,
    KINDS,
    PLAIN,
    STORED,
    facts_of,
    kind_of,
    known_engines,
    questions_of,
    same_release,
    version_of,
)
from parquet_bloom.storage.open_file import OpenFile

QUICK = ("uint32", "string", "timestamp[us]", "decimal as FIXED")
HERE = {
    "duckdb": QUICK[1::2],
    "datafusion": QUICK[::2],
    "polars": QUICK[:1],
    "pyarrow": QUICK[:1],
    "fastparquet": QUICK[:1],
}
some_or_all = pytest.mark.parametrize(
    "kinds", [QUICK, pytest.param(KINDS, marks=pytest.mark.more)], ids=["some", "all"]
)


@some_or_all
def test_pairs_of_files_and_the_values_that_are_asked_for(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """The filters of one file deny all and those of its twin none; values lie between the bounds."""
    for kind in kinds:
        control, lying = write_pair(tmp_path, kind)
        for path, status in ((control, "right"), (lying, "wrong")):
            filters = parquet_bloom.verify(path).files[0].filters
            assert [f.status for f in filters] == [status] * len(COLUMNS), kind
            assert all(f.missed == (f.values if status == "wrong" else 0) and f.values == 2000 for f in filters), kind
        one, other = pq.ParquetFile(control), pq.ParquetFile(lying)
        assert one.metadata.num_row_groups == 1
        for n in range(one.metadata.num_columns):
            chunks = [file.metadata.row_group(0).column(n) for file in (one, other)]
            assert chunks[0].to_dict() == chunks[1].to_dict(), "the footers are the same, bounds among them"
            dictionary = "RLE_DICTIONARY" in chunks[0].encodings
            assert dictionary == (chunks[0].path_in_schema == "dictionary"), kind
        if kind not in ("uuid", "float16"):  # which pyarrow does not compare
            assert one.read().equals(other.read()), f"{kind}: the data is the same"
        with OpenFile(control) as source:
            assert {kind_of(leaf) for leaf in source.footer().leaves} == {kind}

        values = denying.ascending(kind).to_pylist() if not kind.endswith("ns]") else list(range(denying.DISTINCT))
        assert len(set(values)) == denying.DISTINCT, kind
        everything = denying.column(kind)
        for question in questions_of(kind, PLAIN):
            asked, rows = denying.question_values(kind, question)
            assert everything.type == asked[0].type, "a literal of the column's own type"
            assert denying.REPEATED <= rows < len(everything), kind
            assert all(value not in (denying.ascending(kind)[0], denying.ascending(kind)[-1]) for value in asked), kind


@some_or_all
def test_this_package_uses_filters_of_every_kind(kinds: tuple[str, ...]) -> None:
    answers = answers_of("parquet_bloom", kinds)
    assert [(a.kind, a.stored, a.question) for a in answers] == [
        (kind, stored, question) for kind in kinds for stored in STORED for question in questions_of(kind, stored)
    ]
    assert {a.answer for a in answers} == {"used"}, [a for a in answers if a.answer != "used"]


@pytest.mark.parametrize(
    ("name", "kinds"), [*HERE.items(), *(pytest.param(name, KINDS, marks=pytest.mark.more) for name in HERE)], ids=str
)
def test_engines_answer_as_the_package_says(name: str, kinds: tuple[str, ...]) -> None:
    pytest.importorskip(ENGINES[name].module)
    assert as_known(name, kinds) > 0


@pytest.mark.spark
def test_spark_answers_as_the_package_says() -> None:
    need_spark()
    assert as_known("spark", ("int64", "uint32", "timestamp[us]", "uuid")) > 0


def as_known(name: str, kinds: tuple[str, ...]) -> int:
    """Compare an engine's answers with engines.json; of a release that it does not know, only that there are any."""
    answers, facts, version = answers_of(name, kinds), facts_of(name), version_of(ENGINES[name])
    assert facts is not None
    assert version is not None
    assert facts.answers.keys() == set(KINDS), "all kinds were measured"
    assert not [a for a in answers if a.answer == "lost"]
    if same_release(version, facts.version):
        for a in answers:
            assert a.answer == facts.answers[a.kind][a.stored][a.question], f"{a}: tests/engines/measure.py"
    return sum(a.question == EQUAL and a.answer in ("used", "not used") for a in answers)


def test_a_process_that_ends_costs_one_answer(tmp_path: Path) -> None:
    control, _ = write_pair(tmp_path, "int64")
    question = (control, "int64", "plain", "=")
    with EngineProcess("parquet_bloom") as process:
        assert process.count(*question) == 10
        (first,) = multiprocessing.active_children()
        assert first.pid is not None
        os.kill(first.pid, signal.SIGSTOP)  # it takes the question, and no more
        threading.Timer(0.3, os.kill, (first.pid, signal.SIGKILL)).start()
        with pytest.raises(EngineError, match="^its process ended$") as found:
            process.count(*question)
        assert found.value.lost
        assert process.count(*question) == 10, "the next question has a new process"
        with pytest.raises(EngineError, match="FileNotFoundError|no such file") as found:
            process.count(tmp_path / "nowhere.parquet", *question[1:])
        assert not found.value.lost, "an error is an answer"
    assert not multiprocessing.active_children()


def test_a_process_that_hangs_is_ended(tmp_path: Path) -> None:
    control, _ = write_pair(tmp_path, "int64")
    with EngineProcess("parquet_bloom", seconds=0) as process:
        with pytest.raises(EngineError, match="no answer within 0 s") as found:
            process.count(control, "int64", "plain", "=")
        assert found.value.lost
        assert not multiprocessing.active_children()


def test_the_text_of_facts_is_made_by_its_own_code() -> None:
    assert FACTS.read_text() == as_text(known_engines())

"""Which word is the predicate: check, read, report and index query agree, and say so where it is not clear."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from parquet_bloom import cli
from parquet_bloom.cli.check import split
from parquet_bloom.errors import StorageError
from parquet_bloom.storage.store import near_names


class Done(NamedTuple):
    status: int
    out: str
    errors: str


Run = Callable[[str], Done]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """a.parquet, "b c.parquet", year=2026/x.parquet, a Delta table; and files whose names are predicates."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "year=2026").mkdir()
    for number, name in enumerate(
        ["a.parquet", "b c.parquet", "year=2026/x.parquet", "id = 5", "flag", "e[1].parquet"]
    ):
        ids = [10 * number + i for i in range(10)]
        pq.write_table(pa.table({"id": ids, "active": [i % 2 == 0 for i in ids]}), folder / name)
    write_deltalake(folder / "table", pa.table({"id": [1, 2, 3]}))
    return folder


@pytest.fixture
def run(data: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(data)

    def run_line(line: str) -> Done:
        status = cli.run(shlex.split(line))
        captured = capfd.readouterr()
        return Done(status, captured.out, captured.err)

    return run_line


READS = {
    "read a.parquet 'id = 3'": [3],
    "read a.parquet 'id=3'": [3],
    "read a.parquet --where 'id = 3'": [3],
    "read --where 'id = 3' a.parquet": [3],
    "read a.parquet": list(range(10)),
    "read a.parquet 'b c.parquet'": list(range(20)),
    "read a.parquet 'b c.parquet' 'id IN (3, 13)'": [3, 13],
    "read a.parquet 'b c.parquet' --where 'id IN (3, 13)'": [3, 13],
    "read a.parquet active": [0, 2, 4, 6, 8],
    "read a.parquet 'NOT active'": [1, 3, 5, 7, 9],
    "read '?.parquet' 'id > 8'": [9],
    "read a.parquet '[ab]*.parquet'": list(range(20)),
    "read e[1].parquet 'id = 53'": [53],
    "read year=2026": list(range(20, 30)),
    "read a.parquet year=2026 'id = 21'": [21],
    "read delta:table 'id = 2'": [2],
    "read delta:table": [1, 2, 3],
    # Files that are there, whatever they are called, are files; the predicate is then --where.
    "read a.parquet 'id = 5'": [*range(10), *range(30, 40)],
    "read a.parquet 'id = 5' --where 'id = 5'": [5],
    "read a.parquet 'id = 5' 'id = 35'": [35],
}


def test_read_finds_its_predicate_and_check_the_same(run: Run) -> None:
    for line, ids in READS.items():
        done = run(f"{line} --format ndjson --columns id")
        assert (done.status, done.errors.count("hint")) == (0, 0), (line, done.errors)
        assert sorted(json.loads(row)["id"] for row in done.out.splitlines()) == ids, line
    for words in ("a.parquet 'id = 3'", "a.parquet 'b c.parquet' 'id = 13 AND active'", "delta:table 'id = 2'"):
        done = run(f"check {words}")
        assert done.status in (0, 1), words
        assert "row group" in done.out, words
    assert "a line a row group" not in run("check a.parquet 'id = 3' --explain").out, "there is one, with its line"


MISTAKES = {
    # neither a file nor a predicate: both are said
    "read a.parquet evnts.parquet": 'evnts.parquet: no such file or folder; and no predicate, such as "id = 42"',
    "read a.parquet 'my evnts.parquet'": "my evnts.parquet: no such file or folder; and no predicate",
    "read a.parquet nowhere/year=2026/x.parquet": "no such file or folder; and no predicate",
    "read a.parquet 'nowhere/*.parquet'": "nowhere/*.parquet: no file fits this pattern; and no predicate",
    "read a.parquet evnts": 'evnts: no such file or folder; and no predicate, such as "id = 42" (',
    "check a.parquet evnts.parquet": "evnts.parquet: no such file or folder; and no predicate",
    "check a.parquet evnts": 'evnts: no such file or folder; and no predicate, such as "id = 42" (',
    "report a.parquet evnts.parquet -o r.html": "evnts.parquet: no such file or folder; and no predicate",
    # one word alone is a file, or a predicate without files
    "read evnts.parquet": "evnts.parquet: no such file or folder",
    "read evnts": "evnts: no such file or folder",
    "read 'id = 3'": 'no files before the predicate, as in: parquet-bloom read FILES "id = 42"',
    "check 'id = 3'": 'no files before the predicate, as in: parquet-bloom check FILES "id = 42"',
    # files alone where a predicate is needed
    "check a.parquet": "no predicate after a.parquet",
    "check a.parquet 'b c.parquet'": "no predicate after b c.parquet",
    "check delta:table": "no predicate after delta:table",
    # two predicates, or one in the wrong place
    "read a.parquet 'id = 3' --where 'id = 4'": "id = 3 and --where id = 4: give the predicate once",
    "read 'id = 3' a.parquet": "id = 3: no such file or folder; a predicate is the last argument",
    "check 'id = 3' a.parquet": "id = 3: no such file or folder; a predicate is the last argument",
    # a predicate that is wrong is told as one, with the place
    "read a.parquet 'id = = 3'": "expected more before =",
    "read a.parquet 'name = 3'": "name",
    "check a.parquet 'id IN (3'": "expected )",
    "read": "FILES",
}


def test_a_mistake_is_one_error(run: Run, data: Path) -> None:
    for line, said in MISTAKES.items():
        done = run(line)
        assert (done.status, done.out) == (2, ""), line
        first = done.errors.splitlines()[0]
        assert first.startswith("parquet-bloom: "), line
        assert said in first, line
    assert not (data / "r.html").exists(), "no page is written of a misspelt file"


def test_a_report_takes_its_predicate_as_check_does(run: Run, data: Path) -> None:
    pages = []
    for number, words in enumerate(["a.parquet 'id = 3'", "a.parquet --where 'id = 3'", "a.parquet"]):
        assert run(f"report {words} -o {number}.html").status == 0
        pages.append((data / f"{number}.html").read_text())
    assert ["id = 3" in page for page in pages] == [True, True, False]


def test_words_that_no_file_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for kept, predicates in (
        (["s3://bucket/a b"], []),
        (["s3://bucket/a", "s3://bucket/b = 5.parquet"], []),
        (["file:/x"], ["id = 5"]),
        (["iceberg:cat/n.t"], ["a::int = 5"]),
        (["gs://b/x"], ["a='x/y.parquet'", "path = 'data/x.parquet' OR n<5"]),
        (["x"], ["list_contains(tags,5)", "user.active"]),
    ):
        with click.Context(click.Command("read"), info_name="read"):
            assert split(kept) == (tuple(kept), None)
            for predicate in predicates:
                assert split([*kept, predicate]) == (tuple(kept), predicate)
            assert split(kept, "a = 1") == (tuple(kept), "a = 1"), "all of them, as --where has the predicate"
            with pytest.raises(StorageError, match="and no predicate"):
                split([*kept, "nowhere.parquet"])


def test_what_a_misspelt_name_is_like(run: Run) -> None:
    for line, near in {
        "inspect a.parqet": "a.parquet",
        "check 'b  c.parquet' 'id = 3'": "b c.parquet",
        "read a.parquet 'c b.parquet' 'id = 3'": "",
        "add tabel --in-place": "table",
        "inspect year=2062/": "year=2026",
        "check delta/../tabel/x.parquet 'id = 3'": "",
        "check ducklake:tabel/s.t 'id = 3'": "table",
    }.items():
        done = run(line)
        first = done.errors.splitlines()[0]
        assert (done.status, first.partition("; near names: ")[2].split(",")[0]) == (2, near), (line, first)


def test_a_large_folder_is_not_read_for_a_misspelt_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        (tmp_path / f"{number}.parquet").touch()
    monkeypatch.setattr("parquet_bloom.storage.store._NAMES", 10)
    (tmp_path / "new\nline: x.parquet").touch()
    assert near_names(str(tmp_path / "new line: x.parquet")) == "", "a name of several lines is shown nowhere"
    assert near_names(str(tmp_path / "7.parquet" / "x.parquet")) == ""


def test_columns_may_be_listed(run: Run) -> None:
    for verb in ("add --in-place --dry-run", "status", "inspect", "verify"):
        listed, apart = (run(f"{verb} a.parquet {words}") for words in ("--columns 'id, i*'", "-c id -c 'i*'"))
        assert listed == apart, verb
        assert listed.status == 0, verb

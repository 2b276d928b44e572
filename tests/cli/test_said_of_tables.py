"""What the commands say of tables."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake import Schema as DeltaSchema
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from support.iceberg_tables import Warehouse

import parquet_bloom
from parquet_bloom import cli
from parquet_bloom.cli import run
from parquet_bloom.errors import TableFormatError
from parquet_bloom.source.names import FORMS


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    made = Warehouse(tmp_path)
    yield made
    made.close()


def options_of(warehouse: Warehouse) -> list[str]:
    pairs = warehouse.properties.items()
    return [word for name, value in pairs for word in ("--catalog-property", f"{name}={value}")]


def iceberg(warehouse: Warehouse, **properties: str) -> str:
    table = warehouse.create(Schema(NestedField(1, "id", LongType())))
    table.append(pa.table({"id": list(range(1000))}))
    with table.transaction() as change:  # pyiceberg warns of what it does not follow itself
        change.set_properties(properties)
    return "iceberg:cat/ns.t"


@pytest.fixture
def delta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    for start in (0, 1000):
        write_deltalake("t", pa.table({"id": list(range(start, start + 1000))}), mode="append")
    return "delta:t"


UNNOTICED = (
    "deltalake's optimize, delete() without a predicate and overwrite do not notice this commit if they began before "
    "it: let none of them end now"
)


def test_a_commit_says_who_does_not_notice_it(
    delta: str, warehouse: Warehouse, capsys: pytest.CaptureFixture[str]
) -> None:
    """That these do not is measured in tables/test_delta_commit.py."""
    for name, *options in (("add", "--column", "id"), ("remove",)):
        assert run([name, delta, *options, "--dry-run"]) == 0
        assert UNNOTICED not in in_one_line(capsys), "nothing was committed"
        assert run([name, delta, *options]) == 0
        assert re.search(rf"committed version \d+ of \S+: 2 files {re.escape(UNNOTICED)}$", in_one_line(capsys))
        assert run([name, delta, *options]) == 0
        assert UNNOTICED not in in_one_line(capsys), "nothing was left to be committed"
    assert run(["add", iceberg(warehouse), "--column", "id", *options_of(warehouse)]) == 0
    assert UNNOTICED not in in_one_line(capsys)


def in_one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """What was printed, whatever the width of the terminal."""
    return " ".join(capsys.readouterr().out.split())


def test_on_the_same_path_everybody_notices(delta: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["add", delta, "--column", "id", "--commit", "same-path"]) == 0
    assert UNNOTICED not in in_one_line(capsys)
    assert run(["add", delta, "--column", "id", "--json"]) == 0
    assert "notice" not in capsys.readouterr().out


def test_add_tells_of_wishes_that_it_does_not_follow(warehouse: Warehouse, capsys: pytest.CaptureFixture[str]) -> None:
    wish = "write.parquet.bloom-filter-enabled.column."
    name = iceberg(warehouse, **{wish + "id": "true", wish + "nope": "true"})
    assert run(["add", name, *options_of(warehouse)]) == 0
    said = capsys.readouterr().err.splitlines()
    assert "parquet-bloom: note: they ask for one on nope too, which is no column" in said


def test_add_and_remove_tell_what_is_known_of_files_once(delta: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["add", "-c", "id"], ["remove"]):
        assert run([*command, "t", "--in-place", "--force"]) == 0
        assert capsys.readouterr().err.count("whose log holds file sizes") == 1


def test_report_takes_a_table_of_a_catalog_that_options_name(
    warehouse: Warehouse, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, page = iceberg(warehouse), tmp_path / "page.html"
    asked = ["--where", "id = 5", "--count-rows", *options_of(warehouse)]
    assert run(["report", name, "-o", str(page), *asked]) == 0, capsys.readouterr().err
    assert name in page.read_text()


def test_a_table_that_is_named_as_files_is_told_at_once(
    delta: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["add", "-c", "id"], ["remove"]):
        for source in ("t", "t/", "t/*.parquet", str(next((tmp_path / "t").glob("*.parquet")))):
            assert run([*command, source]) == 2, source
            said = capsys.readouterr().err
            assert f"in the Delta table {tmp_path}/t; name" in said or "is a Delta table; name" in said, source
            for_files = "For its files as they are give --output with --raw-files"
            assert f"; name the table, delta:{tmp_path}/t. {for_files}" in said, source
            assert "or --in-place with --force" in said, source


def test_files_of_no_table_need_a_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for source in (tmp_path, tmp_path / "gone.parquet", tmp_path / "*.parquet"):
        assert run(["add", str(source), "-c", "id"]) == 2
        assert capsys.readouterr().err.startswith("parquet-bloom: give --output for a new file, or --in-place to")


def test_nothing_but_a_commit_takes_the_place_of_a_tables_file(
    delta: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, link = next(Path("t").glob("*.parquet")), Path("link.parquet")
    link.symlink_to(file)
    before = file.read_bytes()
    why = f"lies in the Delta table {tmp_path}/t, so nothing else takes its place; write to a file in another"
    for target in (file, link):
        for command in (["read", delta, "--where", "id = 5", "--format", "parquet"], ["report", delta]):
            assert run([*command, "-o", str(target), "--overwrite"]) == 2
            assert f"{target}: {why}" in capsys.readouterr().err
        with pytest.raises(TableFormatError, match="so nothing else takes its place"):
            parquet_bloom.write_table(pa.table({"id": [1]}), target, bloom_filters=["id"], overwrite=True)
        assert file.read_bytes() == before
    assert run(["read", delta, "--where", "id = 5", "-o", "t/rows.parquet"]) == 0, "a new file is no row of the table"
    assert parquet_bloom.count(delta) == 2000


def advised(said: str) -> list[str]:
    """The words of the command that `check` suggests."""
    (line,) = [line for line in said.splitlines() if "parquet-bloom add " in line]
    return shlex.split(line.partition("parquet-bloom ")[2])


def test_check_suggests_a_command_that_works(delta: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(["check", "delta:t@0", "id = 5"])
    words = advised(capsys.readouterr().out)
    assert words == ["add", "delta:t", "--column", "id"]
    assert run(words) == 0


def test_check_suggests_catalog_properties_but_no_secret(
    warehouse: Warehouse, capsys: pytest.CaptureFixture[str]
) -> None:
    name, secrets = iceberg(warehouse), ["s3.secret-access-key=hidden", "header.x=hidden", "x=pg://u:hidden@host/d"]
    more = [word for pair in secrets for word in ("--catalog-property", pair)]
    run(["check", name, "id = 5", *options_of(warehouse), *more])
    said = capsys.readouterr().out
    words = advised(said)
    shown = [word for pair in secrets for word in ("--catalog-property", f"{pair.partition('=')[0]}=...")]
    assert words == ["add", name, "--column", "id", *options_of(warehouse), *shown]
    assert "hidden" not in said
    assert run(words) == 0


def test_an_interrupted_change_of_a_table_tells_of_commits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.group, "main", interrupted)
    commits = "commits that were made stay, and no reader sees what was not committed; run it again to go on"
    files = "files that were not finished are as they were"
    for line, left in (
        *((f"add {name} -c id", commits) for name in ("delta:t", "iceberg:cat/ns.t", "ducklake:cat/main.t")),
        *(("remove delta:t", commits), ("spark add delta:t", commits)),
        *(("check delta:t id=5", files), ("add ./delta:t", files)),
    ):
        assert run(line.split()) == 130, line
        assert capsys.readouterr().err == f"parquet-bloom: interrupted; {left}\n", line
    assert tuple(f"{kind}:" for kind in FORMS) == cli._TABLES


def test_a_table_without_files_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    DeltaTable.create("t", schema=DeltaSchema.from_arrow(pa.schema([("id", pa.int64())])))
    for command in ("add", "add --dry-run", "remove", "inspect", "inspect --assert-filters id", "verify"):
        words = [*command.split(), "delta:t"]
        assert run(words) == 0, command
        assert capsys.readouterr().out == "delta:t: has no data file\n", command
        assert run([*words, "--quiet"]) == 0, command
        assert capsys.readouterr().out == "", command
        assert run([*words, "--json"]) == 0, command
        assert json.loads(capsys.readouterr().out)["files"] == [], command


def test_a_suggested_command_is_not_folded(warehouse: Warehouse, capsys: pytest.CaptureFixture[str]) -> None:
    long = ["--catalog-property", "comment=" + "many words " * 40]
    run(["check", iceberg(warehouse), "id = 5", *options_of(warehouse), *long])
    assert advised(capsys.readouterr().out)[-2:] == long

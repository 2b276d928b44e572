"""--json: each command's document is of its schema in the package, over real files, and has no other names."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator
from support.samples import FIXTURES, keys_table, write_keys
from support.spark_needed import need_spark

import parquet_bloom
from parquet_bloom.cli import group, run
from parquet_bloom.spark.sessions import session

INSTALLED = Path(parquet_bloom.__file__).parent / "schemas"
SCHEMAS = {path.stem: json.loads(path.read_text()) for path in sorted(INSTALLED.glob("*.json"))}
ID = keys_table()["id"][0].as_py()


def closed(schema: Any) -> Any:
    """The schema without room for names that it does not have."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    named = {name: closed(part) for name, part in schema.items()}
    return named | {"additionalProperties": False} if "properties" in schema else named


VALIDATORS = {name: Draft202012Validator(closed(schema)) for name, schema in SCHEMAS.items()}


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    def of(name: str, *words: object, status: int = 0) -> Any:
        assert run([*map(str, words)]) == status
        document = json.loads(capsys.readouterr().out)
        assert (document["document"], document["document_version"]) == (name, 1)
        VALIDATORS[name].validate(document)
        return document

    return of


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "keys.parquet")


def with_json(command: click.Command, name: str) -> Iterator[str]:
    """The commands that have --json, as documents name them."""
    if isinstance(command, click.Group):
        with click.Context(command) as ctx:
            for each in command.list_commands(ctx):
                below = command.get_command(ctx, each)
                assert below is not None
                yield from with_json(below, f"{name}-{each}".lstrip("-"))
    elif any("--json" in param.opts for param in command.params):
        yield name


def test_each_command_with_json_has_a_schema() -> None:
    of_key_indexes = {f"index-{name}-keys" for name in ("build", "inspect", "verify")}
    assert {*with_json(group, ""), "error"} | of_key_indexes == SCHEMAS.keys()
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)


def test_a_schema_is_open_and_its_test_is_not() -> None:
    document = {"document": "error", "document_version": 1, "error": "x", "kind": "y", "path": None, "column": None,
                "status": 2, "new": 1}  # fmt: skip
    assert Draft202012Validator(SCHEMAS["error"]).is_valid(document)
    assert not VALIDATORS["error"].is_valid(document)
    assert not Draft202012Validator(SCHEMAS["error"]).is_valid({**document, "document_version": 2})


def test_adding_and_removing(printed: Any, keys: Path, tmp_path: Path) -> None:
    assert printed("add", "add", keys, "-o", tmp_path / "x.parquet", "--json", "--dry-run")["files"][0]["dry_run"]
    found = printed(
        "add", "add", keys, "-o", tmp_path / "x.parquet", "-c", "id", "-c", "half_null", "-c", "tags", "--json"
    )
    assert found["files"][0]["filters"]
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no footer PAR1")
    words = (tmp_path / "x.parquet", tmp_path / "bad.parquet", "-o", tmp_path / "back", "--json")
    found = printed("remove", "remove", *words, status=2)
    assert (len(found["files"]), len(found["failed"])) == (1, 1)


def test_looking(printed: Any, keys: Path, tmp_path: Path) -> None:
    odd = FIXTURES / "spark/no_dictionary.parquet"
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no footer PAR1")
    found = printed("inspect", "inspect", odd, tmp_path / "bad.parquet", "--json", status=2)
    assert any(one["problems"] for one in found["files"][0]["filters"])
    assert found["failed"][0]["path"].endswith("bad.parquet")
    found = printed("inspect", "inspect", keys, "--assert-filters", "id", "--json", status=1)
    assert found["files"][0]["lacking"] == {"id": [0, 1, 2]}
    assert printed("verify", "verify", odd, "--json", status=1)["gates"][0]["holds"] is False
    assert printed("verify", "verify", keys, "--output-format", "json")["gates"][0]["holds"] is True


def test_what_is_missing(printed: Any, keys: Path) -> None:
    found = printed("status", "status", keys, "--assert-filters", "id", "--json", status=1)
    assert (found["columns"][0]["row_groups_lacking"], found["gates"][0]["holds"]) == (3, False)
    assert found["mend"] == [f"parquet-bloom add {keys} --column id --in-place"]


def test_a_page(printed: Any, keys: Path, tmp_path: Path) -> None:
    printed("report", "report", keys, "-o", tmp_path / "report.html", "--where", "id = 5", "--json")


def test_advising(printed: Any, keys: Path, tmp_path: Path) -> None:
    (tmp_path / "queries.sql").write_text("id = 5\nnonsense")
    found = printed("advise", "advise", keys, "--queries", tmp_path / "queries.sql", "--json")
    assert any(column["absent"] is not None for column in found["columns"])


def test_checking(printed: Any, keys: Path) -> None:
    parquet_bloom.add_filters(keys, in_place=True, columns=["id"])
    unused = f"id IN ({ID}, 7) AND length(name) = 2 OR half_null IS NULL"
    for predicate, status in ((f"id = {ID}", 0), (unused, 0), ("id = -1", 1)):
        assert printed("check", "check", keys, predicate, "--json", status=status)["verdicts"]
        found = printed("check", "check", keys, predicate, "--json", "--min-skipped", "100", status=1 - status)
        assert found["gates"][0]["holds"] is bool(status), predicate
    assert printed("engines", "engines", "--json")["answers"]


def test_zone_indexes(printed: Any, keys: Path, tmp_path: Path) -> None:
    pytest.importorskip("lance", reason="pylance is not installed (extra `lance`)")
    out = tmp_path / "index"
    words = ("--kind", "lance", keys, "-c", "id", "-o", out, "--items", "100", "--json")
    assert printed("index-build", "index", "build", *words)["indexes"]
    (path,) = out.rglob("*.lance")
    assert printed("index-inspect", "index", "inspect", path, "--json")["indexes"][0]["zones"]
    assert printed("index-query", "index", "query", path, f"id = {ID}", "--root", tmp_path, "--json")["zones"]
    assert printed("index-verify", "index", "verify", path, "--data", keys, "--json")["indexes"][0]["status"] == "right"


def test_key_indexes(printed: Any, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "index"
    data.mkdir()
    write_keys(data / "a.parquet")
    build = ("index", "build", data, "-c", "id", "-c", "name", "-o", out, "--json")
    planned = printed("index-build-keys", *build, "--dry-run")
    assert not out.exists()
    built = printed("index-build-keys", *build)
    assert built["rows"] == planned["rows"]
    assert 0 < built["columns"][0]["entries"] <= planned["columns"][0]["entries"], "each value once a row group"
    assert printed("index-inspect-keys", "index", "inspect", out, "--json")["covered"] is None
    write_keys(data / "b.parquet")
    info = printed("index-inspect-keys", "index", "inspect", out, "--data", data, "--json")
    assert (info["data_files"], info["covered"], len(info["segments"])) == (2, 1, 1)
    updated = printed("index-update", "index", "update", out, data, "--json")
    assert (updated["kept"], updated["added"], updated["index"]["files"]) == (1, 1, 2)
    assert printed("index-verify-keys", "index", "verify", out, "--data", data, "--json")["status"] == "right"
    for part in (out / "columns" / "0").iterdir():
        part.write_bytes(part.read_bytes()[:-9])
    found = printed("index-verify-keys", "index", "verify", out, "--data", data, "--json", status=1)
    assert (found["status"], len(found["damaged"])) == ("wrong", 2)
    assert printed("index-rebuild", "index", "rebuild", out, data, "--json")["files"] == 2


def test_locating(printed: Any, keys: Path, tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text(f"{ID}\n-1\n")
    words = ("locate", keys, "-c", "id", "--keys", tmp_path / "keys.txt", "--json")
    assert "row_numbers" not in printed("locate", *words)["found"][0]
    assert printed("locate", *words, "--verify")["found"][0]["row_numbers"] == [0]
    (tmp_path / "keys.txt").write_text("-1\n")
    assert printed("locate", *words, status=1)["found"] == []
    kinds = pa.table({"day": [dt.date(2026, 1, 31)], "raw": [b"\xff"], "money": [Decimal("1.50")], "share": [0.5]})
    pq.write_table(kinds, tmp_path / "kinds.parquet")
    texts = {"day": "2026-01-31", "raw": "ff", "money": "1.50", "share": 0.5}
    for name, text in texts.items():
        words = ("locate", tmp_path / "kinds.parquet", "-c", name, "--keys", tmp_path / "kinds.parquet", "--json")
        assert printed("locate", *words)["found"][0]["key"] == text, name


def test_errors(printed: Any, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, kind, text in (
        (["inspect", "nowhere.parquet", "--json"], "StorageError", "nowhere.parquet"),
        (["check", keys, "id = ", "--json"], "TextError", "id ="),
        (["check", keys, "idd = 5", "--output-format", "json"], "UnknownColumnError", "near names"),
        (["add", keys, "--json"], "RequestError", "--output for a new file, or --in-place"),
        (["inspect", "--json"], "MissingParameter", "Missing"),
        (["inspect", keys, "--json", "--output-format=xml"], "BadParameter", "xml"),
    ):
        found = printed("error", *words, status=2)
        assert found["kind"] == kind
        assert text in found["error"], kind
        assert (found["path"] is not None) == (kind == "StorageError"), kind
        assert (found["column"] is not None) == (kind == "TextError"), kind
    for without in (["inspect", "nowhere.parquet"], ["inspect", "nowhere.parquet", "--", "--json"]):
        assert run(without) == 2
        assert capsys.readouterr().out == ""


@pytest.mark.spark
def test_spark(printed: Any, keys: Path, tmp_path: Path) -> None:
    need_spark()
    out = tmp_path / "out"
    with session("local[1]"):  # one for all of them
        assert printed("spark-add", "spark", "add", keys, "-c", "id", "-o", out, "--json")["done"] == 1
        assert printed("spark-inspect", "spark", "inspect", out, "--json")["rows"]
        assert printed("spark-verify", "spark", "verify", out, "--json")["right"] == 3
        assert printed("spark-check", "spark", "check", out, f"id = {ID}", "--json")["kept"] == 1
        assert printed("spark-prune", "spark", "prune", out, f"id = {ID}", "--json")["left"] == 1
        (tmp_path / "keys.txt").write_text(f"{ID}\n-1\n")
        words = ("spark", "locate", out, "-c", "id", "--keys", tmp_path / "keys.txt", "--json")
        found = printed("spark-locate", *words)
        assert [(row["key"], row["row_group"]) for row in found["rows"]] == [(ID, 0)]
        (tmp_path / "keys.txt").write_text("-1\n")
        assert printed("spark-locate", *words, status=1)["places"] == 0

"""What an error advises: parameters in Python, options on the command line; names and data stay as they are."""

from __future__ import annotations

import ast
import copy
import json
import pickle
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands import in_this_process
from support.parsed import parsed
from support.samples import write_keys

import parquet_bloom
from parquet_bloom.cli import group, run
from parquet_bloom.cli.common import option_of
from parquet_bloom.errors import Message, Parameter, ParquetBloomError, RequestError, StorageError, parameter, worded

PACKAGE = Path(parquet_bloom.__file__).parent
ADVICE = "exists; give " + parameter("overwrite", True) + " to replace it"
# A file whose name looks like advice of either kind.
ODD = "overwrite=True --overwrite {overwrite}"


def test_a_message_knows_its_parameters() -> None:
    error = StorageError(ODD, ADVICE)
    assert str(error) == f"{ODD}: exists; give overwrite=True to replace it"
    assert worded(error.message, option_of) == f"{ODD}: exists; give --overwrite to replace it"


def test_errors_from_other_processes_know_them_too() -> None:
    errors: tuple[ParquetBloomError, ...] = (StorageError(ODD, ADVICE), RequestError(ADVICE))
    for error in errors:
        for again in (copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
            assert str(again) == str(error)
            assert worded(again.message, option_of) == worded(error.message, option_of) != str(error)


def test_parts_of_a_message_stay_when_it_grows_or_loses_its_start() -> None:
    grown = "x: " + ADVICE + "!"
    assert isinstance(grown, Message)
    assert worded(grown.removeprefix("x: "), option_of) == "exists; give --overwrite to replace it!"
    assert grown.removeprefix("y: ") == grown
    assert worded("plain overwrite=True", option_of) == "plain overwrite=True"


def test_values_are_shown_as_each_side_writes_them() -> None:
    assert str(parameter("spec", "final")) == "spec='final'"
    assert option_of(Parameter("spec", "final")) == "--spec final"
    assert str(parameter("max_bytes")) == "max_bytes"
    assert option_of(Parameter("max_bytes")) == "--max-bytes"


def test_the_library_and_the_command_line_name_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_keys(tmp_path / f"{ODD}.parquet")
    write_keys(tmp_path / "keys.parquet")
    out = f"{ODD}.parquet"
    with pytest.raises(StorageError) as caught:
        parquet_bloom.add_filters("keys.parquet", out, columns=["id"])
    assert str(caught.value) == f"{out}: exists; give overwrite=True to replace it with the new version of keys.parquet"
    assert run(["add", "keys.parquet", "-o", out, "-c", "id"]) == 2
    assert capsys.readouterr().err == (
        f"parquet-bloom: {out}: exists; give --overwrite to replace it with the new version of keys.parquet\n"
    )


def test_among_many_files_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.parquet", "c.parquet"):
        write_keys(tmp_path / name)
    for read_only, name in enumerate(("b.parquet", "c.parquet"), 1):  # one reason, two files
        write_keys(tmp_path / name).chmod(0o444)
        report = parquet_bloom.add_filters(".", in_place=True, columns=["id"], sync=False)
        assert [failed.reason for failed in report.failed] == [
            "is read-only; give force=True to replace it, or another output"
        ] * read_only
        assert run(["add", ".", "--in-place", "-c", "id", "--no-sync"]) == 2
        assert "is read-only; give --force to replace it, or another --output" in capsys.readouterr().err
        assert run(["add", ".", "--in-place", "-c", "id", "--no-sync", "--json"]) == 2
        failed = json.loads(capsys.readouterr().out)["failed"]
        advice = [one["error"].partition("; ")[2] for one in failed]
        assert advice == ["give --force to replace it, or another --output"] * read_only


def test_reasons_why_a_filter_was_left_out_name_them_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = write_keys(tmp_path / "keys.parquet")
    report = parquet_bloom.add_filters(keys, tmp_path / "1", columns=["id"], max_bytes=64)
    assert {skipped.reason.rpartition(": ")[2] for skipped in report.files[0].skipped} == {"give more max_bytes"}
    assert run(["add", str(keys), "-o", str(tmp_path / "2"), "-c", "id", "--max-bytes", "64"]) == 0
    assert "give more --max-bytes" in " ".join(capsys.readouterr().out.split())


# --- all of them ------------------------------------------------------------------------------------


def options_in(command: click.Command) -> set[str]:
    found = {name for param in command.params for name in param.opts}
    if isinstance(command, click.Group):
        with click.Context(command) as ctx:
            found.update(*(options_in(command.get_command(ctx, name)) for name in command.list_commands(ctx)))
    return found


PASSED_ON = {"column_names": 1, "path_text": 1}  # function -> the place of the argument that its message names


def advised_in(tree: ast.AST) -> list[ast.expr]:
    """Where a parameter is named: `parameter(NAME)`, or `column_names(value, NAME)`, which passes it on."""
    at = {"parameter": 0, **PASSED_ON}
    own = {one for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in PASSED_ON
           for one in ast.walk(node)}  # fmt: skip
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node not in own
    ]
    return [call.args[at[call.func.id]] for call in calls if call.func.id in at and len(call.args) > at[call.func.id]]


def test_every_parameter_that_is_advised_has_an_option() -> None:
    options, seen = options_in(group), set()
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text()
        if not any(f"{name}(" in source for name in ("parameter", *PASSED_ON)):
            continue  # what is not parsed takes no time
        for place in advised_in(parsed(source)):
            names = [c.value for c in ast.walk(place) if isinstance(c, ast.Constant)]
            seen.update(names)
            assert names, f"{path}: a parameter's name is written where it is advised"
    assert len(seen) > 10
    arguments = {"paths"}  # of the command line these are always texts
    assert {name for name in seen - arguments if option_of(Parameter(name)) not in options} == set()


def test_no_message_of_the_library_names_an_option() -> None:
    """What is printed by report/ and cli/ may; spark-submit's own option is no option of ours.

    Nor are commands that a result has messages: they are to be pasted into a shell.
    """
    with_commands = {"advice/status.py", "source/names.py", "advice/advise.py"}
    pasted = "parquet-bloom index build --kind lance"  # as a hint of a message names it, whole
    allowed = {
        "send it along with --py-files parquet_bloom.zip (parquet-bloom spark package parquet_bloom.zip)",
        "--x-s3",  # names of buckets end so
        "--ol-s3",
    }
    found = []
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] in ("cli", "report", "_thrift"):
            continue
        if path.relative_to(PACKAGE).as_posix() in with_commands:
            continue
        if "--" not in (source := path.read_text()):
            continue
        tree = parsed(source)
        places = ast.Module | ast.ClassDef | ast.FunctionDef
        docs = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, places)}
        told = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)} - docs
        texts = {text.replace(pasted, "") for text in told}
        found += [(path.name, text) for text in texts - allowed if " --" in f" {text}" and text.strip("- ")]
    assert found == []


# --- what was meant ---------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", None]}), "a.parquet")
    return tmp_path


def test_a_comparison_with_null_is_said_to_be_never_true(here: Path) -> None:
    for predicate, status, meant in (
        ("id = NULL", 1, "id = NULL is never true, nor is its NOT: write id IS NULL"),
        ("name != NULL AND id = 1", 1, "write name IS NOT NULL"),
        ("id = 1 OR NOT (name > NULL)", 0, "write name IS NOT NULL"),
        ("id NOT IN (5, NULL)", 1, "id NOT IN a list that holds NULL is never true: leave NULL out"),
        ("id IN (1, NULL)", 0, ""),
        ("name IS NULL AND id != 7", 0, ""),
    ):
        for command in ("check", "read"):
            done = in_this_process(command, "a.parquet", predicate)
            assert done.returncode == (status if command == "check" else 0), predicate
            notes = [line for line in done.stderr.splitlines() if "note: " in line]
            assert (meant in notes[0] and len(notes) == 1) if meant else not notes, predicate


def test_names_joined_by_a_comma_are_to_be_given_one_by_one(here: Path) -> None:
    done = in_this_process("add", "a.parquet", "--in-place", "--column", "id,name")
    assert "a.parquet: no column id,name; name each by itself: --column id --column name" in done.stderr
    with pytest.raises(parquet_bloom.UnknownColumnError, match=r"name each by itself: columns=\['id', 'name'\]"):
        parquet_bloom.inspect("a.parquet", columns="id, name")
    with pytest.raises(parquet_bloom.UnknownColumnError, match=r"no column id,nam; near names"):
        parquet_bloom.inspect("a.parquet", columns="id,nam")


def test_a_uri_with_one_slash_is_no_file(here: Path) -> None:
    for word, meant in (("s3:/lake/x.parquet", "s3://lake/x.parquet"), ("gs:/b", "gs://b")):
        assert f"{word}: no such file or folder; a URI has two slashes: {meant}" in in_this_process(
            "check", word, "id = 1"
        ).stderr.replace("\n", " ")
    assert "two slashes" not in in_this_process("check", "c:/x.parquet", "id = 1").stderr


def test_no_name_is_near_itself(here: Path) -> None:
    """A link that leads nowhere is in the folder, and is no file."""
    Path("a.parquet").rename("events.parquet")
    Path("event.parquet").symlink_to("nowhere")
    said = in_this_process("check", "event.parquet", "id = 1").stderr
    assert "event.parquet: no such file or folder; near names: events.parquet\n" in said


def test_v_twice_says_why_row_groups_are_read(here: Path) -> None:
    for words, reads in ((("id = 1",), True), (("id = 7",), False)):
        for command in ("check", "read"):
            said = in_this_process("-vv", command, "a.parquet", *words).stderr
            assert ("read: 1 row group of a.parquet: " in said) == reads
            assert "read: 1 row group" not in in_this_process("-v", command, "a.parquet", *words).stderr

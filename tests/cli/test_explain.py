"""Errors and what to do: each kind has a section, each example is one that happens, each message says what to try."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from support.object_store import ObjectStore, options_of
from support.parsed import parsed
from support.spark_needed import need_spark

import parquet_bloom
from parquet_bloom import errors
from parquet_bloom.cli import run
from parquet_bloom.report.explained import hint_of, name_of, section_of, sections

PACKAGE = Path(parquet_bloom.__file__).parent
KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, Exception) and kind.__module__ == errors.__name__
}


def test_every_kind_of_error_has_a_section_and_every_section_is_one() -> None:
    assert {name_of(kind): kind for kind in KINDS} == {name: section_kind(name) for name in sections()}


def section_kind(name: str) -> str:
    """The class that a section speaks of, as its first words name it."""
    return re.match(r"`(\w+)`", sections()[name].text)[1]  # type: ignore[index]


def test_a_section_says_what_it_is_shows_it_and_says_what_to_do() -> None:
    for name, section in sections().items():
        assert re.search(r"^\*\*(Hint|What to do):\*\* ", section.text, re.MULTILINE), name
        assert "```text\n" in section.text, name
        hints = [hint for hint in re.findall(r"^\* `[^`]+`: ?(.*)$", section.text, re.MULTILINE) if hint]
        assert all(hint.endswith(".") and len(hint) < 130 for hint in hints), f"{name}: a hint is one line"


def test_a_class_of_a_program_s_own_has_the_section_of_ours() -> None:
    class LostError(errors.ConflictError):
        pass

    assert section_of(LostError) is sections()["conflict"]
    assert section_of(ValueError) is None
    assert hint_of(ValueError("x")) is None
    assert hint_of(errors.StorageError("no such file.parquet", "is odd")) is None, "a file's name is no reason"


# --- the command ------------------------------------------------------------------------------------


def test_explain_prints_a_section_by_its_name_and_by_its_class(capsys: pytest.CaptureFixture[str]) -> None:
    for name, section in sections().items():
        shown = []
        for given in (name, section_kind(name)):
            assert run(["explain", given]) == 0
            shown.append(capsys.readouterr().out)
        assert shown[0] == shown[1] == f"{name}\n\n{section.plain()}"
        assert not [mark for mark in ("**", "```", "](") if mark in shown[0]], "links are for the page"
    assert run(["explain"]) == 0
    listed = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("   ")]
    assert [line.split()[0] for line in listed] == list(sections())
    assert run(["explain", "damagedfile"]) == 2
    assert capsys.readouterr().err.startswith("parquet-bloom: no error damagedfile; did you mean damaged-file")
    assert run(["explain", "xyz"]) == 2
    assert "there are: error, file," in capsys.readouterr().err


def test_the_page_is_read_only_for_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "1.parquet")
    code = (
        "import sys; from parquet_bloom.cli import run; run(['inspect', sys.argv[1]]); "
        "print('parquet_bloom.report.explained' in sys.modules)"
    )
    for path, loaded in (("1.parquet", "False"), ("2.parquet", "True")):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / path)], capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1] == loaded


def test_hints_of_many_files_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.parquet").write_bytes(b"")
    assert run(["inspect", str(tmp_path)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "parquet-bloom: 3 of 3 files failed"
    assert said[-2].startswith("  hint: ")
    assert sum(line.startswith("  hint: ") for line in said) == 1
    assert run(["inspect", str(tmp_path), "--json"]) == 2
    assert "hint: " not in capsys.readouterr().out, "what programs read is as it was"


# --- every message ----------------------------------------------------------------------------------

# How a message says by itself what to try.
ADVICE = re.compile(
    r"; |expected|there are|[Gg]ive |write |leave |use |pip install|needs|near |exclude each|is not (a )?positive"
    r"|is not between|is for |are for |neither|is none of|takes |must |only|unknown|in quotes|as in|twice|name "
    r"|supported|more than|closing|at least|itself a source|see | or |a number of tasks|such as"
)
# Others' texts, and ours of another place: nothing is known of them here.
HANDED_ON = {
    "edit/changeable.py", "edit/plan.py", "edit/remove.py", "format/forms.py", "predicates/arrow.py",
    "predicates/text.py", "search/search.py", "spark/listing.py", "spark/work.py", "spark/sessions.py",
    "spark/storages.py", "storage/paths.py", "storage/remote.py", "storage/arrow_store.py", "storage/stores.py",
    "output/atomic_file.py", "cli/locate.py", "keys/build.py", "keys/entries.py", "keys/folder.py", "keys/plan.py",
    "tables/ducklake/databases.py", "tables/iceberg/catalogs.py", "zones/build.py", "zones/match.py",
    "zones/sources.py",
}  # fmt: skip


def raised() -> Iterator[tuple[str, str, str]]:
    """(module, kind, the words that are written there) of each error that is made."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if "_thrift" in path.parts or path.name == "errors.py":
            continue
        source = path.read_text()
        if not any(f"{kind}(" in source for kind in KINDS):
            continue
        tree = parsed(source)
        given: dict[str, list[str]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                given.setdefault(node.targets[0].id, []).extend(words_in(node.value, {}))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS:
                words = [word for argument in node.args for word in words_in(argument, given)]
                yield path.relative_to(PACKAGE).as_posix(), node.func.id, " ".join(words)


def words_in(tree: ast.AST, given: dict[str, list[str]]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Name):
            yield from given.get(node.id, ())


def test_every_message_says_what_to_try_or_has_a_hint() -> None:
    found = list(raised())
    assert len(found) > 500, "the pattern still meets the errors that are made"
    silent = [
        f"{module}: {kind}: {words}"
        for module, kind, words in found
        if not ADVICE.search(words) and sections()[name_of(kind)].hint(words) is None
    ]
    assert [one for one in silent if one.split(":")[0] not in HANDED_ON] == []
    assert len(silent) < 40, "most of what is handed on says something of its own"


def test_every_hint_is_met_by_some_message() -> None:
    """Words of ours that a hint waits for are written somewhere; others' words are in their errors."""
    texts = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    theirs = {
        "Permission denied", "Operation not permitted", "Read-only file system", "No space left", "File too large",
        "quota", "Input/output error", "Too many open files", "database is locked", "Could not set lock",
        "Could not resolve host", "NETWORK_CONNECTION", "ACCESS_DENIED", "ACCESS DENIED", "Forbidden",
        "HTTP status 403", "Unable to load libjvm",
        "NO_SUCH_BUCKET", "No such file or directory", "AWS Error", "Lance file",
        ".lance", "no bloomfilter.lance",
        "fpp.value differ",
        "is no DATE", "is no TIME", "is no TIMESTAMP", "is no DECIMAL",  # is no {kind}
    }  # fmt: skip
    waiting = [words for one in sections().values() for words in re.findall(r"^\* `([^`]+)`:", one.text, re.MULTILINE)]
    assert [words for words in waiting if words not in texts and words not in theirs] == []


# --- the examples: what an error prints is one line, which the page folds where it is long ----------------------------

COMMANDS = {
    (name, command): re.sub(r"\n {6}(?=\w)", " ", shown) if shown.startswith("parquet-bloom: ") else shown
    for name, section in sections().items()
    for command, shown in re.findall(r"```text\n\$ parquet-bloom (.*)\n([^`]*)```", section.text)
}
PROGRAMS = {
    name: re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", section.text, re.DOTALL)
    for name, section in sections().items()
    if "```python" in section.text
}
RAISED = {
    name: re.findall(r"```text\n>>> (.*)\n(.*)\n```", section.text)
    for name, section in sections().items()
    if ">>> " in section.text
}


def test_every_section_has_an_example() -> None:
    assert {name for name, _ in COMMANDS} | set(PROGRAMS) | set(RAISED) == set(sections())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the examples speak of."""
    folder = tmp_path_factory.mktemp("files")
    ids = [f"{i * 0x9E3779B97F4A7C15 % 2**64:016x}" for i in range(400)]
    table = pa.table({"trace_id": ids, "user_id": list(range(400)), "ok": [True, False] * 200, "price": [1.5] * 400})
    pq.write_table(table, folder / "events.parquet", row_group_size=400)
    shutil.copy(folder / "events.parquet", folder / "old.parquet")
    whole = (folder / "events.parquet").read_bytes()
    (folder / "notes.parquet").write_text("this is some text")
    (folder / "secret.parquet").write_bytes(whole[:-4] + b"PARE")
    (folder / "flipped.parquet").write_bytes(whole[:300] + bytes(60) + whole[360:])
    parquet_bloom.add_filters(folder / "events.parquet", folder / "filtered.parquet", columns=["trace_id"])
    [held] = parquet_bloom.inspect(folder / "filtered.parquet").files[0].filters
    filtered = (folder / "filtered.parquet").read_bytes()
    assert held.offset is not None
    header = filtered[held.offset : held.offset + 16]
    assert header.count(b"\x1c\x1c\x00\x00") == 3, "algorithm, hash and compression are unions, each of field 1"
    unknown = header.replace(b"\x1c\x1c\x00\x00", b"\x1c\x2c\x00\x00")
    (folder / "broken.parquet").write_bytes(filtered[: held.offset] + bytes(16) + filtered[held.offset + 16 :])
    (folder / "later.parquet").write_bytes(filtered[: held.offset] + unknown + filtered[held.offset + 16 :])
    write_deltalake(folder / "lake", table)
    shutil.copy(folder / "events.parquet", folder / "lake" / "part-0.parquet")
    return folder


@pytest.fixture
def here(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    shutil.copytree(files, folder)
    monkeypatch.setenv("COLUMNS", "200")  # as wide as the page
    monkeypatch.chdir(folder)
    return folder


def test_examples_of_commands(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of the page."""
    for (name, command), shown in COMMANDS.items():
        if name == "spark-job":
            continue
        if name == "stale-index":
            from parquet_bloom import lance

            lance.build_index("old.parquet", ["trace_id"], "index")
        status = run(shlex.split(command))
        told = capsys.readouterr()
        if shown.startswith("parquet-bloom: "):
            assert told.err.replace(str(here), "/data") == shown
        else:
            assert set(map(str.rstrip, shown.splitlines())) <= set(map(str.rstrip, told.out.splitlines())), command
        assert (status == 2) == bool(re.match("parquet-bloom: (?!warning)", shown)), command


def test_examples_in_python(here: Path) -> None:
    for name, programs in PROGRAMS.items():
        for code, shown in programs:
            with contextlib.redirect_stdout(io.StringIO()) as told:
                exec(compile(code, f"errors.md, {name}", "exec"), {"parquet_bloom": parquet_bloom})
            assert told.getvalue() == shown, name


def as_raised(error: BaseException) -> str:
    """The last line of a traceback."""
    return traceback.format_exception_only(error)[-1].rstrip("\n")


def of_conflict(call: str, names: dict[str, Any]) -> None:
    """Another program writes to the source while filters are built."""

    def meddle(_: object) -> None:
        os.utime("events.parquet", (next(times), 1))

    times = iter(range(1, 1000))
    exec(call.replace(")", ", progress=meddle)"), {**names, "meddle": meddle})


def of_a_changed_file(call: str, names: dict[str, Any]) -> None:
    """Another program writes to the file while its rows are read."""
    parquet_bloom.write_table(pq.read_table("events.parquet"), "events.parquet", row_group_size=10, overwrite=True)
    exec(call.replace("...", "meddle()"), {**names, "meddle": lambda: os.utime("events.parquet", (1, 1))})


@pytest.mark.parametrize(("name", "run_it"), [("conflict", of_conflict), ("file-changed", of_a_changed_file)])
def test_an_example_of_another_program(name: str, run_it: Callable[[str, dict[str, Any]], None], here: Path) -> None:
    [(call, shown)] = RAISED[name]
    with pytest.raises(errors.ParquetBloomError) as told:
        run_it(call, {"parquet_bloom": parquet_bloom})
    assert as_raised(told.value) == shown


def test_an_example_of_a_store_that_does_not_answer(store: ObjectStore, bucket: str) -> None:
    uri = f"s3://{bucket}/events"
    write_deltalake(uri, pa.table({"id": list(range(1000))}), storage_options=options_of(store))

    def broken(request: Any) -> None:
        if request.method == "PUT" and "_delta_log" in request.path:
            raise OSError("the store does not answer")

    store.wire.before = broken
    [(call, shown)] = RAISED["unknown-commit"]
    with pytest.raises(errors.UnknownCommitError) as told:
        exec(call.replace("s3://lake/events", store.uri(f"{bucket}/events")), {"parquet_bloom": parquet_bloom})
    assert as_raised(told.value).replace(uri, "s3://lake/events") == shown


@pytest.mark.spark
def test_an_example_of_spark(here: Path) -> None:
    need_spark()
    [(_, command)] = [key for key in COMMANDS if key[0] == "spark-job"]
    line = [sys.executable, "-m", "parquet_bloom", *shlex.split(command)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 2
    assert COMMANDS["spark-job", command] in done.stderr

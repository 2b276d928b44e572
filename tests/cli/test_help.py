"""Help pages: each begins with what the command does and examples, and each example runs as it stands there."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import parquet_bloom
from parquet_bloom import cli
from parquet_bloom.cli.groups import SECTIONS, _Command
from parquet_bloom.report.text import cells

TRACE = "4bf92f3577b34da6"


def pages(command: click.Command, name: str) -> Iterator[tuple[str, _Command]]:
    """Every command below one, with what is typed for it."""
    assert isinstance(command, _Command), name
    yield name, command
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for each in command.list_commands(ctx):
            below = command.get_command(ctx, each)
            assert below is not None
            yield from pages(below, f"{name} {each}")


PAGES = dict(pages(cli.group, "parquet-bloom"))
EXAMPLES = [line for command in PAGES.values() for line in command.examples if " spark " not in line]
SPARKS = [line for command in PAGES.values() for line in command.examples if " spark " in line]


def page_of(name: str) -> str:
    command = PAGES[name]
    context = command.context_class(command, info_name=name, terminal_width=78, **command.context_settings)
    return command.get_help(context)


def test_a_page_fits_and_begins_with_what_the_command_does_and_examples() -> None:
    for name, command in PAGES.items():
        page = page_of(name)
        assert max(map(cells, page.splitlines())) <= 80, name
        usage, first, examples, *_ = page.split("\n\n")
        assert (usage[:7], first[-1]) == ("Usage: ", "."), name
        assert [line.strip() for line in examples.splitlines()] == command.examples, name
        assert any(line.startswith(name) for line in command.examples), f"{name}: of this very command"
        for option in ("-q, --quiet", "-v, --verbose", "-h, --help"):
            assert page.count(option) == 1, name


def test_limits_come_last_and_what_most_need_first() -> None:
    """`advise --help` began with the lengths of lists in footers."""
    begins = {"Which columns", "Where the result goes", "Options", "What is printed", "Make filters", "Commands"}
    for name in PAGES:
        titles = re.findall(r"^(\w[^\n]*):$", page_of(name), re.MULTILINE)
        assert titles[0] in begins, name
        assert "Limits, for files that one trusts" not in titles[:-1], name
        order = [title for title in SECTIONS if title in titles]
        assert [title for title in titles if title in SECTIONS] == order, name


def test_the_first_page_lists_each_command_once_in_a_line() -> None:
    page = page_of("parquet-bloom")
    assert "..." not in page.replace("[ARGS]...", "")
    assert "Check that each filter admits every stored value of its column." in page, "on one line"
    listed = re.findall(r"^  (\w+) +[A-Z][^\n]*\.$", page, re.MULTILINE)
    assert sorted(listed) == sorted(cli.group.list_commands(click.Context(cli.group)))
    assert page.index("Make filters:") < page.index("Use filters:") < page.index("More commands:")
    assert page.index("More commands:") < page.index("--traceback") < page.index("Exit status: 0 done")


def test_the_first_option_of_a_page() -> None:
    wanted = {
        "add": "--column",
        "advise": "--queries",
        "check": "--explain",
        "read": "--columns",
        "engines": "--engine",
    }
    options = {name: re.findall(r"^  (?:-\w, )?(--[\w-]+)", page_of(f"parquet-bloom {name}"), re.M) for name in wanted}
    assert {name: found[0] for name, found in options.items()} == wanted


def events(rows: int = 4000) -> pa.Table:
    rng = np.random.default_rng(3)
    ids = [TRACE, *(f"{value:016x}" for value in rng.integers(0, 2**62, rows - 1))]
    users = pa.array([{"id": 42 + int(i)} for i in rng.permutation(rows)], pa.struct([("id", pa.int64())]))
    return pa.table({"trace_id": ids, "user": users, "at": np.arange(rows), "day": ["2026-01-31"] * rows}).set_column(
        3, "day", pa.array(["2026-01-31"] * rows).cast(pa.date32())
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples name: files, folders, keys, a Delta table, a DuckLake."""
    folder, table = tmp_path_factory.mktemp("help") / "made", events()
    for name in ("events.parquet", "events/a.parquet", "data/a.parquet", "plain.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / name, row_group_size=1000, use_dictionary=False)
    parquet_bloom.add_filters(folder / "plain.parquet", folder / "events-bloom.parquet", columns=["trace_id"])
    (folder / "plain.parquet").unlink()
    write_deltalake(folder / "lake" / "events", table)
    pq.write_table(pa.table({"user_id": [42, 43]}), folder / "keys.parquet")
    (folder / "keys.txt").write_text("42\n43\n")
    users = pa.table({"user_id": range(100), "tenant": ["a", "b"] * 50})
    write_deltalake(folder / "lake" / "users", users)
    (folder / "users").mkdir()
    pq.write_table(users, folder / "users" / "a.parquet")
    pq.write_table(users[42:44], folder / "rows.parquet")
    (folder / "users.txt").write_text("42\n43\n")
    (folder / "keys.csv").write_text("tenant,user_id\na,42\n")
    (folder / "changed.csv").write_text("user_id,tenant\n42,b\n")
    (folder / "queries.sql").write_text(f"trace_id = '{TRACE}'\n")
    (folder / ".zfunc").mkdir()
    (folder / ".config" / "fish" / "completions").mkdir(parents=True)
    return folder


def build(data: str, output: str, *words: str) -> None:
    assert cli.run(["-q", "index", "build", data, "-c", "trace_id", "-o", output, *words]) == 0


def made_of(line: str, folder: Path) -> None:
    """The indexes that an example reads: a key index over events/, zone indexes over it and over events.lance."""
    if " index build " in line:
        return
    if "events-index" in line:
        build("events", "events-index", "-c", "user.id")
    if "events-zones" in line or "events.lance" in line:
        lance = pytest.importorskip("lance")
        lance.write_dataset(events(), folder / "events.lance")
        build("events", "events-zones", "--kind", "lance")
        build("events.lance", "index", "--kind", "lance")


@pytest.mark.parametrize("indexes", [True, False], ids=["of indexes", "others"])
def test_examples_run(
    indexes: bool, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each over a copy of the files, which it may change."""
    for number, line in enumerate(EXAMPLES):
        if ("index" in line or "zones" in line or "lance" in line) == indexes:
            copy = tmp_path / str(number)
            shutil.copytree(made, copy)
            monkeypatch.chdir(copy)
            made_of(line, copy)
            words = shlex.split(line.partition(" >")[0])
            assert cli.run(words[1:]) == 0, (line, capfd.readouterr().err)
            out, errors = capfd.readouterr()
            assert (out or errors).strip(), line
            assert "warning" not in errors, line


def test_examples_of_spark_are_understood() -> None:
    """Not run: they name clusters and stores; tests/spark runs each command."""
    for line in SPARKS:
        words = shlex.split(line)
        with PAGES[" ".join(words[:3])].make_context(words[2], words[3:]) as context:
            assert context.params, line

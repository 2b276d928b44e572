"""Documentation, docstrings and comments name what there is: tests, files, sections, commands."""

from __future__ import annotations

import datetime as dt
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from support.prose import PAGES, ROOT, prose

import parquet_bloom
from parquet_bloom.cli import group, run

PACKAGE = ROOT / "src" / "parquet_bloom"
# Of parquet-format, Thrift and PySpark, cited as sources.
FOREIGN = {
    "BloomFilter.md",
    "Encodings.md",
    "LogicalTypes.md",
    "PageIndex.md",
    "thrift-compact-protocol.md",
    "daemon.py",
}


def test_tests_that_a_page_names_are_there() -> None:
    files = list((ROOT / "tests").rglob("test_*.py"))
    there = {path.name for path in files} | {f"{path.parent.name}/{path.name}" for path in files}
    named = {page: set(re.findall(r"`(?:tests/)?((?:\w+/)?test_\w+\.py)`", page.read_text())) for page in PAGES}
    assert {page.name: gone for page, names in named.items() if (gone := names - there)} == {}
    assert len(named[ROOT / "docs" / "formats.md"]) >= 8, "each form names its tests"


def test_links_within_the_project_lead_somewhere() -> None:
    dead = []
    for page in PAGES:
        for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
            target = page.parent / link if link else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                dead.append(f"{page.name} links to {link}#{anchor}")
    assert dead == []


def test_no_line_of_code_is_longer_than_a_screen() -> None:
    """160 characters: what a wide terminal shows, and what a reader copies without losing its end."""
    for page in set(PAGES) - {ROOT / "README.md"}:
        blocks = re.findall(r"^ *```\w.*\n((?:.*\n)*?) *```$", page.read_text(), re.MULTILINE)
        assert blocks or "```" not in page.read_text(), f"{page}: the pattern meets the blocks"
        assert not [line for block in blocks for line in block.splitlines() if len(line) > 160], page


@cache
def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def cited(pattern: str) -> list[tuple[Path, tuple[str, ...]]]:
    """Where a pattern is found in pages, docstrings and comments: the file, and the groups."""
    return [(path, match.groups()) for path, text in prose().items() for match in re.finditer(pattern, text)]


def test_cited_sections_are_there() -> None:
    found = cited(r"([\w./-]+\.md) section (\d+)")
    assert len(found) >= 6, "the pattern still meets the citations"
    for path, (page, number) in found:
        assert page is not None
        headings = (ROOT / page).read_text() if (ROOT / page).is_file() else ""
        assert f"\n## {number}. " in headings, f"{path}: {page} section {number}"


def test_cited_files_are_there() -> None:
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, (name,) in cited(
            r"(?<![\w./*-])((?:docs|fixtures|tests|benchmarks|thrift|src|\.ci)/[\w./-]*\w)(?![\w*])"
        )
        if not (ROOT / name).exists()
    ]
    names = {path.name for folder in ("", "src", "tests", "benchmarks", "fixtures", "docs", "thrift")
             for path in ((ROOT / folder).rglob("*") if folder else ROOT.iterdir())}  # fmt: skip
    missing += [
        f"{path.relative_to(ROOT)}: {name}"
        for path, (name,) in cited(r"(?<![\w./<{*-])(\w+\.(?:py|md|tsv))\b")
        if path.suffix == ".py" and name not in names | FOREIGN
    ]
    assert not missing, "\n".join(missing)


def test_the_twelve_modules_to_read_first_take_an_hour() -> None:
    """They are there, each with a question that it answers, and together as long as the page promises."""
    text = (ROOT / "docs" / "architecture.md").read_text().split("\n## Read these twelve first\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([\w/]+\.py)` \| (.+\?) \|$", text, re.MULTILINE)
    assert len(rows) == 12
    assert sum(len((PACKAGE / name).read_text().splitlines()) for name, _ in rows) <= 3830


def test_every_module_says_what_it_is() -> None:
    for path in PACKAGE.rglob("*.py"):
        if "_thrift" not in path.parts and path.name not in ("_version.py", "__main__.py"):
            assert re.match(r'r?"""[^"]{16}', path.read_text()), path


def test_the_readme_is_read_in_a_minute() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.encode()) <= 6000
    commands = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).splitlines()
    assert [line for line in commands if len(line) > 110] == []


def test_every_command_is_in_the_guide() -> None:
    text = (ROOT / "docs" / "guide.md").read_text()
    missing = [name for name in group.list_commands(None) if f"`parquet-bloom {name} " not in text]  # type: ignore[arg-type]
    assert not missing


def test_the_picture_shows_the_numbers_of_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    picture = (ROOT / "docs" / "images" / "lookup.svg").read_text()
    rows = re.findall(
        r"^\| (?:`parquet_bloom\.)?(\w+)`? \| (\d+ ms) \| (\d+ ms) \| [\d.]+ times \|$", text, re.MULTILINE
    )
    assert len(rows) == 4
    for name, before, after in rows:
        assert f"{name}: {before} before, {after} after" in picture
        assert all(f">{shown}</text>" in picture for shown in (name, before, after))


@pytest.fixture
def ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """400 trace ids, the one that the pages look up among them, for files in the current folder, which is empty."""
    monkeypatch.chdir(tmp_path)
    ids = [f"{i * 0x9E3779B97F4A7C15 % 2**64:016x}" for i in range(400)]
    ids[250] = "4bf92f3577b34da6"
    return ids


def python_of(page: str) -> str:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return block


@pytest.mark.smoke
def test_the_readme_s_python_runs(ids: list[str]) -> None:
    pq.write_table(pa.table({"trace_id": ids, "n": range(400)}), "events.parquet", row_group_size=100)
    names: dict[str, Any] = {}
    exec(compile(python_of("README.md"), "README.md", "exec"), names)
    assert names["rows"].to_pydict() == {"trace_id": [ids[250]], "n": [250]}
    assert {f.column for f in parquet_bloom.inspect("events-bloom.parquet").files[0].filters} == {"trace_id"}


def test_the_readme_shows_what_its_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the first block, behind the line that installs."""
    text = (ROOT / "README.md").read_text()
    commands = re.findall(r"^\.venv/bin/parquet-bloom (.*)$", text, re.MULTILINE)
    (shown,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    monkeypatch.chdir(tmp_path)
    printed = []
    for command in commands:
        assert run(shlex.split(command)) == 0
        printed.append(capsys.readouterr().out)
    assert len(printed) == 2
    assert printed[-1] == shown


def test_the_guide_s_python_runs(ids: list[str]) -> None:
    """All of it, over files like those it speaks of; only the bucket is a folder here."""
    block = python_of("docs/guide.md")
    assert block.count("s3://bucket/events/") == 1
    days = [dt.date(2026, 1, 30) + dt.timedelta(i % 4) for i in range(400)]
    users = [{"id": i * 7919 % 1000 if i != 250 else 42, "name": f"n{i}"} for i in range(400)]
    table = pa.table({"trace_id": ids, "at": pa.array(days, pa.date32()), "user": users})
    pq.write_table(table, "events.parquet", row_group_size=100)
    os.mkdir("events")
    parquet_bloom.add_filters("events.parquet", "events/1.parquet")
    write_deltalake("lake/events", table)
    names = {"hundred_thousand_ids": ids[:3], "schema": table.schema, "batches": table.to_batches(100)}
    exec(compile(block.replace("s3://bucket/events/", "events/"), "guide.md", "exec"), names)
    assert names["rows"]["trace_id"].to_pylist() == [ids[250]], "of the one row that both halves meet"
    assert {f.column for f in names["report"].files[0].filters} == {"trace_id", "user.id", "user.name"}
    assert names["near"].to_table().equals(table.slice(200, 100)), "the row group that stores the key"
    assert list(names["found"]) == [("events/1.parquet", [0])], "row group 0 has the three keys"
    assert names["live"]["trace_id"].to_pylist() == [ids[250]]
    assert DeltaTable("lake/events").version() == 1, "the filters are in, by one commit"
    written = parquet_bloom.inspect("new.parquet").files[0].filters
    assert {f.column for f in written} == {"trace_id"}
    assert pq.read_table("new.parquet").equals(table)


def test_generated_pages_are_those_of_docstrings_and_commands() -> None:
    if tuple(map(int, version("click").split(".")[:2])) < (8, 2):
        pytest.skip("click 8.1 lays its help out otherwise")
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = "".join(page.read_text() for page in (ROOT / "docs" / "python").iterdir())
    overview = (ROOT / "docs" / "python.md").read_text()
    for name in (name for name in parquet_bloom.__all__ if not name.startswith("__")):
        assert f"\n### `{name}`\n" in text
        assert f"[`{name}`](" in overview
    for name in group.list_commands(None):  # type: ignore[arg-type]
        page = ROOT / "docs" / "cli" / f"parquet-bloom-{name}.md"
        assert page.read_text().startswith(f"# parquet-bloom {name}\n")
        assert f"](cli/{page.name})" in (ROOT / "docs" / "cli.md").read_text()

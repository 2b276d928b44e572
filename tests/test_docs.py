"""The documentation names what there is: tests, files, commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parquet_bloom.cli import group

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_a_page_names_are_there(page: Path) -> None:
    named = set(re.findall(r"`(?:tests/)?((?:\w+/)?test_\w+\.py)`", page.read_text()))
    assert not [name for name in named if not list((ROOT / "tests").rglob(name))]
    assert page.name != "formats.md" or len(named) >= 8, "each form names its tests"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert not [link for link in links if not (page.parent / link).exists()]


def test_the_list_of_modules_is_the_tree() -> None:
    """Each module once, in its room, with a line of what it is; and none that is not there."""
    package = ROOT / "src" / "parquet_bloom"
    there = {str(path.relative_to(package)) for path in package.rglob("*.py") if "_thrift" not in path.parts}
    wanted = {name for name in there if Path(name).name not in ("__init__.py", "__main__.py", "_version.py")}
    text = (ROOT / "docs" / "architecture.md").read_text().split("\n## Modules\n")[1]
    room, listed = "", []
    for line in text.splitlines():
        if line.startswith("**"):
            room = "/".join(re.findall(r"^\*\*`(.*)/`\*\*", line))
        elif line.startswith("* "):
            name, what = re.fullmatch(r"\* `([\w/]+\.py)`: (.+)", line).groups()  # type: ignore[union-attr]
            assert str(Path(name).parent) == (room or "."), f"{name} stands under {room}"
            assert len(what) > 15, f"{name}: what is it?"
            listed.append(name)
    assert sorted(listed) == sorted(wanted)


def test_every_command_is_in_the_readme() -> None:
    """But for the one that only older forms need: it is on their page."""
    text = (ROOT / "README.md").read_text()
    missing = [name for name in group.list_commands(None) if f"`parquet-bloom {name} " not in text]  # type: ignore[arg-type]
    assert missing == ["export-guava"]
    assert "\nparquet-bloom export-guava " in (ROOT / "docs" / "history.md").read_text()

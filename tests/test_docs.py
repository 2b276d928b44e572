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
    named = set(re.findall(r"`(?:tests/)?((?:engines/|property/|spark/)?test_\w+\.py)`", page.read_text()))
    assert not [name for name in named if not list((ROOT / "tests").rglob(name))]
    assert page.name != "formats.md" or len(named) >= 8, "each form names its tests"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert not [link for link in links if not (page.parent / link).exists()]


def test_every_command_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    missing = [name for name in group.list_commands(None) if f"`parquet-bloom {name} " not in text]  # type: ignore[arg-type]
    assert not missing

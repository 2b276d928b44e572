"""The site of the documentation builds with warnings as errors, finds dead links, and loads nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.docs_site import build, copy_pages

pytest.importorskip("zensical", reason="zensical is not installed (pip install zensical)")
pytestmark = pytest.mark.more


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return copy_pages(tmp_path)


def test_the_site_builds_and_stays_at_home(copy: Path) -> None:
    done = build(copy)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((copy / "build" / "site").rglob("*.html"))
    assert len(pages) >= 50, "of the README, the guide, each command, the reference"
    loads = re.compile(
        r"<(?:script|img|iframe)[^>]*src=\"?(https?:)?//|<link[^>]*rel=\"?stylesheet[^>]*href=\"?(https?:)?//"
    )
    for page in pages:
        text = page.read_text()
        assert not loads.search(text), f"{page.name} asks another machine for something"
        assert "](" not in re.sub(r"<(code|pre|script).*?</\1>", "", text, flags=re.DOTALL), (
            f"{page.name} shows a link as text"
        )
    assert "trace_id" in (copy / "build" / "site" / "search.json").read_text(), "the search has its index"


def test_dead_links_are_errors(copy: Path) -> None:
    with (copy / "docs" / "when-not.md").open("a") as page:
        page.write("\n[a](adding.md#no-such-part) [a](no-such-page.md) [a](#no-such-part)\n")
    done = build(copy)
    assert done.returncode == 1, done.stdout
    assert "3 issues found" in done.stdout + done.stderr


def test_a_page_that_nothing_leads_to_is_an_error(copy: Path) -> None:
    (copy / "docs" / "lonely.md").write_text("# Lonely\n")
    done = build(copy)
    assert (done.returncode, "lonely.md" in done.stderr) == (1, True)

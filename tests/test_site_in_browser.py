"""The site in a real browser: no line of code is lost, the search is typed into, lost readers are led back."""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.chromium import needs_chromium
from support.docs_site import build, copy_pages

pytest.importorskip("zensical", reason="zensical is not installed (pip install zensical)")
pytestmark = [pytest.mark.more, needs_chromium]
WIDTHS = (390, 768, 1280)

# Each block of code whose text does not fit, and what a reader can do about it. A block that wraps has no such text.
HIDDEN = """() => {
    const page = document.documentElement;
    const wide = page.scrollWidth > page.clientWidth ? [`the page is ${page.scrollWidth} px wide`] : [];
    const lost = (code) => {
        const style = getComputedStyle(code), language = code.closest(".highlight").className;
        const fits = code.scrollWidth <= code.clientWidth, text = code.textContent.slice(0, 60);
        if (fits) return [];
        if (!language.includes("language-text")) return [`${language} is not wrapped: ${text}`];
        if (!["auto", "scroll"].includes(style.overflowX)) return [`does not scroll: ${text}`];
        if (!style.backgroundImage.includes("gradient")) return [`does not show that it scrolls: ${text}`];
        code.scrollLeft = 1e6;
        const end = Math.abs(code.scrollLeft + code.clientWidth - code.scrollWidth) <= 1;
        code.scrollLeft = 0;
        return end ? [] : [`does not scroll to its end: ${text}`];
    };
    return [...wide, ...[...document.querySelectorAll("pre > code")].flatMap(lost)];
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, and for what is not there the page 404.html of the site in it, as hosts of sites answer."""

    site = ""

    def log_message(self, *_: object) -> None:
        pass

    def send_error(self, code: int, *_: Any, **__: Any) -> None:
        body = (Path(self.directory) / self.site / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def served(folder: Path, site: str = "") -> Iterator[str]:
    """The address of a server of this folder; `site` is the folder in it that holds the site."""
    handler = functools.partial(type("Handler", (Quiet,), {"site": site}), directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built in a folder of its own, in the folder `parquet-bloom` of another one."""
    folder = copy_pages(tmp_path_factory.mktemp("repository"))
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    below = tmp_path_factory.mktemp("host") / "parquet-bloom"
    shutil.copytree(folder / "build" / "site", below)
    return below


def test_no_line_of_code_is_lost_at_any_width(site: Path, browser: Any) -> None:
    lost, blocks = [], 0
    with served(site) as address:
        page = browser.new_page()
        for path in sorted(site.rglob("*.html")):
            name = path.relative_to(site).as_posix()
            page.goto(address + name)
            blocks += page.locator("pre > code").count()
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 800})
                lost += [f"{name} at {width} px: {one}" for one in page.evaluate(HIDDEN)]
        page.close()
    assert blocks > 300, "there was code to look at"
    assert not lost, "\n".join(lost)


def test_the_search_finds_what_is_typed(site: Path, browser: Any) -> None:
    """From a page in a folder, by the keyboard alone; the first result is opened."""
    with served(site.parent) as address:
        page = browser.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(f"{address}{site.name}/cli/parquet-bloom-add.html")
        page.keyboard.press("/")
        box = page.get_by_role("combobox", name="Search")
        box.wait_for(state="visible")
        page.keyboard.type("equality deletes", delay=20)
        # Results of what was typed so far come first; those of all of it have it in their address.
        result = page.locator("[role=option][href*='/tables-iceberg.html?h=equality+deletes']").first
        result.wait_for(state="visible")
        assert box.input_value() == "equality deletes"
        result.click()
        page.wait_for_url("**/tables-iceberg.html*")
        assert page.url.startswith(f"{address}{site.name}/"), "results are pages of this site"
        assert "equality deletes" in page.locator("article").inner_text().lower()
        assert not wrong
        page.close()


@pytest.mark.parametrize("below", [True, False], ids=["in a folder of its server", "at the root"])
def test_a_lost_reader_is_led_back(site: Path, browser: Any, below: bool) -> None:
    with served(site.parent if below else site, site.name if below else "") as address:
        root = f"{address}{site.name}/" if below else address
        page = browser.new_page()
        for lost in ("no-such.html", "cli/no-such.html", "no/such/folder/page"):
            assert page.goto(root + lost).status == 404, lost
            page.wait_for_function("root => document.documentElement.dataset.site === root", arg=root)
            wanted = {link.evaluate("one => one.href") for link in page.get_by_role("link").all()}
            assert {f"{root}{name}" for name in ("index.html", "guide.html", "cli.html")} <= wanted, lost
        for link in wanted:
            assert page.goto(link).status == 200, link
        page.close()

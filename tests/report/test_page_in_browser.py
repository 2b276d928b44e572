"""The page in a real browser: drawn, sorted, walked through, dark and narrow, without an error or a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pages import EVIL, GROUPS, write_events
from support.chromium import needs_chromium

import parquet_bloom
from parquet_bloom import write_report

pytestmark = needs_chromium
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_events(tmp_path_factory.mktemp("browser") / "events")
    output = folder.parent / "report.html"
    write_report(folder, output, where="trace = '0123456789abcdef' AND day = 2")
    return output


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Opens a page in a profile of its own; at the end nothing was told on its console, asked for or alerted."""
    contexts, wrong = [], []

    def open_page(path: Path, width: int = 1000, scheme: str = "light", **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (wrong.append("dialog"), dialog.dismiss()))
        page.on("request", lambda one: None if one.url == path.as_uri() else wrong.append(f"request: {one.url}"))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def test_every_picture_is_drawn(opened: Open, report: Path) -> None:
    page = opened(report)
    pictures = page.locator("svg.picture")
    assert pictures.count() == 6, "funnel, the file, its tail, its columns, the heat map, the curve"
    for at in range(6):
        box = pictures.nth(at).bounding_box()
        assert box["width"] > 500
        assert box["height"] > 40
    assert page.locator("svg .cell").count() == 3 * GROUPS
    assert page.locator("svg .point").count() >= 3
    assert page.evaluate("JSON.parse(document.getElementById('data').textContent).version") == 1
    assert page.get_by_text(EVIL[:30]).count() > 0, "the hostile name is shown as text"


def test_a_table_is_sorted_by_its_headings(opened: Open, report: Path) -> None:
    page = opened(report)
    page.locator("#filters details").first.locator("summary").click()
    table = page.locator("#filters table").nth(1)
    head = table.locator("th button", has_text="row group")
    column = "table => [...table.tBodies[0].rows].map(row => Number(row.cells[1].dataset.v))"
    before = table.evaluate(column)
    assert before != sorted(before)
    head.click()
    assert table.evaluate(column) == sorted(before, reverse=True)
    head.press("Enter")
    assert table.evaluate(column) == sorted(before)
    assert head.locator("..").get_attribute("aria-sort") == "ascending"
    table.locator("th button", has_text="column").click()
    names = table.evaluate("table => [...table.tBodies[0].rows].map(row => row.cells[0].textContent)")
    assert names[-1] == "user"


def test_a_mark_tells_what_it_is_under_the_pointer_and_by_keys(opened: Open, report: Path) -> None:
    page = opened(report)
    heat, tip = page.locator("#filters svg.picture").first, page.locator("#tip")
    assert not tip.is_visible()
    heat.locator(".cell").nth(2).hover()
    assert tip.is_visible()
    assert "row group 2: rate" in tip.inner_text()
    page.mouse.move(5, 5)
    assert not tip.is_visible()
    heat.focus()
    line = page.locator("#filters output").first
    for key, told in (("ArrowRight", "row group 0:"), ("ArrowRight", "row group 1:"), ("ArrowDown", "row group 1:")):
        before = line.inner_text()
        page.keyboard.press(key)
        assert told in line.inner_text()
        assert line.inner_text() != before, "the line that screen readers tell has changed"
    page.keyboard.press("Escape")
    assert not tip.is_visible()


def test_another_figure_shades_the_heat_map(opened: Open, report: Path) -> None:
    page = opened(report)
    shades = "() => [...document.querySelectorAll('.cell')].map(cell => getComputedStyle(cell).fill)"
    by_rate = page.evaluate(shades)
    page.get_by_label("bytes of a filter").check()
    assert page.evaluate(shades) != by_rate
    assert page.locator(".scales > ul:visible").count() == 1, "the scale of the figure that is shown"
    assert "KiB" in page.locator(".scales > ul:visible").inner_text()


def test_the_keyboard_reaches_all_in_the_order_of_the_page(opened: Open, report: Path) -> None:
    page = opened(report)
    reached: list[tuple[str, float]] = []
    for _ in range(200):
        page.keyboard.press("Tab")
        tag, top = page.evaluate(
            "() => { const e = document.activeElement;"
            " return [e.tagName.toLowerCase(), e.getBoundingClientRect().top + scrollY] }"
        )
        if tag == "body":
            break
        reached.append((tag, top))
    tags = [tag for tag, _ in reached]
    assert tags[:2] == ["a", "a"], "the link to the content, then the list of contents"
    assert tags.count("svg") == 6
    assert {"summary", "button", "input", "pre"} <= set(tags)
    tops = [top for _, top in reached[1:]]  # the link to the content stands above all while it has the focus
    assert all(later >= earlier - 40 for earlier, later in pairwise(tops)), "from top to bottom"


@pytest.mark.more
def test_every_picture_and_field_has_a_name(opened: Open, report: Path) -> None:
    page = opened(report)
    for picture in page.locator("svg.picture").all():
        assert picture.get_attribute("aria-label")
    unnamed = (
        "() => [...document.querySelectorAll('section, nav, [role=region]')]"
        ".filter(e => !e.getAttribute('aria-label') && !document.getElementById(e.getAttribute('aria-labelledby')))"
    )
    assert page.evaluate(unnamed) == []
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels)), "no level left out"
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


def contrast(page: Any, selector: str) -> float:
    """WCAG's contrast of a text against the page."""

    def light(colour: str) -> float:
        parts = [int(part) / 255 for part in colour[4:-1].split(",")]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    text = page.locator(selector).first.evaluate("e => getComputedStyle(e).color")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    low, high = sorted((light(text), light(ground)))
    return (high + 0.05) / (low + 0.05)


def test_texts_can_be_read_in_both_schemes(opened: Open, report: Path) -> None:
    for scheme in ("light", "dark"):
        page = opened(report, scheme=scheme)
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
        for selector in ("p", "a", "figcaption", "caption", "summary", "dt", ".legend"):
            assert contrast(page, selector) >= 4.5, (scheme, selector)


OUTSIDE = """() => [...document.querySelectorAll('body *')].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width && box.height && (box.left < -0.5 || box.right > innerWidth + 0.5) && !e.matches('.skip');
}).map(e => `${e.tagName} ${e.getAttribute('class') || ''}: ${e.textContent.slice(0, 60)}`)"""
SCROLLED = """() => [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)
  .map(e => e.getAttribute('aria-label') || e.firstChild.tagName)"""
CUT = """() => [...document.querySelectorAll('svg.picture')].flatMap(svg => {
  const whole = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text, circle')].filter(e => {
    const box = e.getBoundingClientRect();
    return box.left < whole.left - 1 || box.right > whole.right + 1 || box.bottom > whole.bottom + 1;
  }).map(e => e.textContent || e.dataset.tip);
})"""
COVERED = """() => [...document.querySelectorAll('svg.picture')].flatMap(svg => {
  const texts = [...svg.querySelectorAll('text')].map(e => [e.textContent, e.getBoundingClientRect()]);
  return texts.flatMap(([one, a], i) => texts.slice(i + 1).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4
  ).map(([other]) => `${one} / ${other}`));
})"""


@pytest.mark.parametrize("width", [390, pytest.param(768, marks=pytest.mark.more), 1280])
def test_all_numbers_are_inside_of_the_screen(opened: Open, report: Path, width: int) -> None:
    """Pictures, tables, those behind pictures too: no part of them lies outside, nor has to be scrolled to."""
    page = opened(report, width=width)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(SCROLLED) == []
    assert page.evaluate(CUT) == []
    assert page.evaluate(COVERED) == [], "no text lies over another one"
    heights = "[...document.querySelectorAll('svg.picture text')].map(e => e.getBoundingClientRect().height)"
    assert min(page.evaluate(heights)) > 11, "pixels: texts can be read at any width"
    rows = page.locator("#first table.wide tbody tr")
    if rows.count():
        cells = rows.first.locator("td")
        assert cells.count() == 8
        boxes = [cells.nth(at).bounding_box() for at in range(8)]
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)
        said = rows.first.evaluate("row => getComputedStyle(row.cells[1], '::before').content")
        assert (said == '"rate"') == (width < 960), "where headings are not above it, each cell says what it is"
    assert page.locator("#file svg text", has_text="byte 0").count() == 1


def test_a_table_of_blocks_is_sorted_too(opened: Open, report: Path) -> None:
    page = opened(report, width=390)
    page.locator("#filters details").first.locator("summary").click()
    table = page.locator("#filters table").nth(1)
    table.locator("th button", has_text="row group").click()
    numbers = table.evaluate("table => [...table.tBodies[0].rows].map(row => Number(row.cells[1].dataset.v))")
    assert numbers == sorted(numbers, reverse=True)


def test_a_page_shows_no_card_that_says_nothing(opened: Open, tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": np.arange(10)}), tmp_path / "bare.parquet")
    write_report(tmp_path / "bare.parquet", tmp_path / "report.html")
    page = opened(tmp_path / "report.html", width=390)
    assert page.locator("#cost, #filters, .box").count() == 0
    assert page.locator("nav a", has_text="What it costs").count() == 0
    assert "It has no filters." in page.locator("#file p").first.inner_text()
    texts = page.evaluate("[...document.querySelectorAll('dd, .legend li')].map(e => e.textContent.trim())")
    assert not {"none", "0 %", "filters"} & set(texts)


@pytest.mark.more
def test_it_prints_with_every_table(opened: Open, report: Path) -> None:
    page = opened(report, width=720, scheme="dark")  # as wide as A4
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", "paper is light"
    wide = "() => [...document.querySelectorAll('table')].filter(t => t.getBoundingClientRect().right > 720).length"
    assert page.evaluate(wide) == 0, "no table is cut off at the paper's edge"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0
    assert not page.locator("nav").is_visible()
    assert page.pdf()[:5] == b"%PDF-"


@pytest.mark.more
def test_without_scripts_it_still_has_pictures_and_tables(opened: Open, report: Path) -> None:
    page = opened(report, java_script_enabled=False)
    assert page.locator("svg.picture").count() == 6
    page.locator("summary").first.click()
    assert page.locator("details table").first.is_visible()


@pytest.mark.more
def test_ten_thousand_row_groups_stay_usable(opened: Open, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    path, output = tmp_path / "tall.parquet", tmp_path / "report.html"
    pq.write_table(pa.table({name: rng.integers(0, 2**60, 20_000) for name in "abc"}), path, row_group_size=2)
    parquet_bloom.add_filters(path, in_place=True, columns=["a", "b"], sync=False)
    write_report(path, output, where="a = 5")
    page = opened(output)
    took = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    assert took < 3000, "milliseconds until it is there"
    assert page.evaluate("document.querySelectorAll('*').length") < 10_000
    page.locator("#filters details").first.locator("summary").click()
    sort = (
        "() => { const begun = performance.now();"
        " document.querySelector('#filters table:last-of-type th button').click(); return performance.now() - begun }"
    )
    assert page.evaluate(sort) < 500, "milliseconds for sorting a table"
    page.locator("#filters svg .cell").nth(100).hover()
    assert "row groups" in page.locator("#tip").inner_text()

"""Names that are too wide for a table lose their middle, and two of them never become the same text."""

from __future__ import annotations

import random
import string
import uuid

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from parquet_bloom.report.text import cells, laid_out, ranges, ranges_within, shortened_names, visible

# Letters of one cell and of two, marks of none, and the ellipsis itself, of which some names are made.
LETTERS = st.sampled_from([*"abc019/-_.=", "ä", "漢", "字", "ﾊ", "한", "🙂", "\u0301", "…"])
NAMES = st.lists(st.text(LETTERS, max_size=60), min_size=1, max_size=12)
# What paths are like: much that is alike, a little that is not, in any place.
ALIKE = st.builds(
    lambda start, middles, end: [start + middle + end for middle in middles],
    st.text(LETTERS, max_size=60), st.lists(st.text(LETTERS, max_size=8), min_size=2, max_size=40),
    st.text(LETTERS, max_size=60),
)  # fmt: skip


def test_cells_are_those_of_a_terminal() -> None:
    widths = {"a…": 2, "ä漢字": 5, "ﾊ한": 3, "e\u0301": 1, "🙂━": 3, "हिन्दी": 3, "\ufe0f": 0, "Ａ": 2}
    assert {text: cells(text) for text in widths} == widths


def least_width(n: int) -> int:
    """Of so many names: an ellipsis and a number that no other has."""
    return 1 + len(str(2 * n + 1))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(NAMES, ALIKE), st.integers(0, 90))
def test_any_names_fit_and_stay_apart(names: list[str], width: int) -> None:
    shown = shortened_names(names, width)
    assert len(shown) == len(names)
    for name, text in zip(names, shown, strict=True):
        assert cells(text) <= width
        assert text == name or cells(name) > width, "cut only where there is no room"
        assert text == name or "…" in text or width < 1
    if width >= least_width(len(names)):
        assert len(set(shown)) == len(set(names)), "as many texts as names"
        assert len(set(zip(names, shown, strict=True))) == len(set(names)), "one name has one text"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ALIKE, st.randoms())
def test_names_of_columns_that_have_their_own_widths(names: list[str], rng: random.Random) -> None:
    names = list(dict.fromkeys(names))
    widths = [rng.randint(least_width(len(names)), 40) for _ in names]
    shown = shortened_names(names, widths)
    assert all(cells(text) <= width for text, width in zip(shown, widths, strict=True))
    assert len(set(shown)) == len(names)


def test_files_of_a_table_differ_by_what_they_are_called() -> None:
    """Delta's names differ in the middle: that is what stays, and no number is needed."""
    rng = random.Random(1)
    names = [f"lake/part-00000-{uuid.UUID(int=rng.getrandbits(128))}-c000.snappy.parquet" for _ in range(300)]
    for width in (20, 37, 66):
        shown = shortened_names(names, width)
        assert len(set(shown)) == 300, width
        for name, text in zip(names, shown, strict=True):
            parts = text.split("…")
            assert name.startswith(parts[0])
            assert name.endswith(parts[-1])
            assert all(part in name for part in parts)


def test_a_difference_in_the_middle_of_long_names_is_shown() -> None:
    start, end = "s3://bucket/" + "a" * 60, "b" * 60 + ".parquet"
    shown = shortened_names([f"{start}/day={day:02}/{end}" for day in range(1, 31)], 30)
    assert len(set(shown)) == 30
    assert [f"day={day:02}" in text for day, text in enumerate(shown, 1)] == [True] * 30


def test_the_end_of_a_path_tells_most() -> None:
    assert shortened_names(["abcdefghij"], 7) == ["ab…ghij"]
    assert shortened_names(["abcdefghij", "abc"], 7) == ["ab…ghij", "abc"]
    assert shortened_names(["漢字漢字漢字"], 8) == ["漢…漢字"], "two cells each"
    assert shortened_names(["abcdefghij", "ab…ghij"], 7)[0] != "ab…ghij", "a name may look like a cut one"
    assert shortened_names([], 7) == []
    assert shortened_names(["ab", "cd"], 1) == ["…", "…"], "no room for a number either"


def test_thousands_of_names_stay_apart() -> None:
    rng = random.Random(2)
    letters = string.ascii_lowercase
    names = ["/" * 50 + "".join(rng.choices(letters, k=4)) + "x" * 60 + str(i) + "y" * 60 for i in range(20_000)]
    shown = shortened_names(names, 24)
    assert len(set(shown)) == len(set(names))


def test_a_path_is_whole_where_the_table_has_room() -> None:
    """Half of the width was enough to cut it, whatever the other columns took."""
    path = "lake/part-00000-00077bdb-7089-5594-0fbb-f2b66a41ed59-c000.parquet"
    rows = [[path, "4"], [path.replace("0", "1"), "5"]]
    assert 40 < cells(path) < 70
    laid = laid_out(("file", "filters"), rows, (1,), (0,), 80)
    assert [line[0].split()[0] for line in laid.rows] == [row[0] for row in rows]
    assert not laid.cut


def test_a_table_is_no_wider_than_the_terminal_and_names_give_way_first() -> None:
    reason = "the filter denies the value"
    rows = [[visible(f"lake/漢字/{'x' * i}-{i}.parquet"), str(i), reason] for i in range(60)]
    laid = laid_out(("file", "row group", "why"), rows, (1,), (0,), 80, ends=(2,))
    assert all(len(lines) == 1 for lines in laid.rows), "no row is folded"
    assert max(cells(lines[0]) for lines in laid.rows) <= 80
    assert all(lines[0].endswith(reason) for lines in laid.rows)
    assert len({lines[0].split()[0] for lines in laid.rows}) == 60
    long = laid_out(("file", "why"), [["a" * 30, "word " * 40]], (), (0,), 80, ends=(1,))
    assert [len(lines) for lines in long.rows] == [1]
    assert long.cut
    assert long.rows[0][0].endswith("…")


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 60), unique=True, min_size=1), st.integers(0, 120))
@example(list(range(0, 60, 2)), 40)  # room for some stretches
def test_numbers_of_row_groups_within_a_width(numbers: list[int], width: int) -> None:
    numbers = sorted(numbers)
    text = ranges_within(numbers, width)
    assert len(text) <= width or text == ranges(numbers, 1), "one stretch at least"
    assert len(ranges(numbers)) > width or text == ranges(numbers)

"""What commands print on real terminals of 80 and 200 columns, and into pipes."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from support import commands
from support.commands import command

import parquet_bloom
from parquet_bloom.report.text import cells

LONG = "a_very_long_column_name_that_goes_on_and_on_until_nobody_can_read_it_any_more_at_all_really"
DEEP = "nested.level_one.level_two.level_three_has_a_long_name"
GROUPS, WIDE, FULL, FILES, WITHOUT = 1200, 4, (77, 703, 1100), 150, 41
HINT = "  … was cut to fit; a wider terminal or a pipe (| cat) has it whole"


def on_terminal(folder: Path, *words: str, width: int = 80, **environment: str) -> tuple[str, ...]:
    """The lines that a terminal of so many columns gets, of both streams; codes are still in them."""
    seen = commands.on_terminal(folder, *words, width=width, **environment)
    lines = seen.replace("\r\n", "\n").split("\n")
    # A bar that was drawn before a line has gone by then.
    return tuple(left for line in lines if (left := line.rpartition("\r\x1b[K")[2]))


def plain(lines: tuple[str, ...]) -> list[str]:
    return [re.sub(r"\x1b\[\d+m", "", line) for line in lines]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """names.parquet: odd names. large.parquet: 1,200 row groups, three much fuller. many/: 150."""
    folder = tmp_path_factory.mktemp("terminal")
    rng = np.random.default_rng(1)
    rows = range(600)
    names = pa.table(
        {"größe": [f"ä{i}" for i in rows], "漢字の列名": list(rows), LONG: rng.integers(0, 2**62, 600),
         "nested": [{"level_one": {"level_two": {"level_three_has_a_long_name": i}}} for i in rows]}
    )  # fmt: skip
    pq.write_table(names, folder / "plain.parquet", row_group_size=200, use_dictionary=False)
    every = ["*"]
    parquet_bloom.add_filters(folder / "plain.parquet", folder / "names.parquet", columns=every, sync=False)
    columns = [f"column_{i:02}" for i in range(WIDE)]
    filters = {name: {"ndv": 8, "fpp": 0.01} for name in columns}
    schema = pa.schema([(name, pa.int64()) for name in columns])
    with pq.ParquetWriter(
        folder / "large.parquet", schema, use_dictionary=False, bloom_filter_options=filters
    ) as writer:
        for group in range(GROUPS):
            n = 100 if group in FULL else 4
            writer.write_table(pa.table(dict.fromkeys(columns, rng.integers(0, 2**62, n)), schema=schema))
    (folder / "many").mkdir()
    for i in range(FILES):
        path = folder / "many" / f"part-{i:05}.parquet"
        bloom = {"bloom_filter_options": {"id": {"ndv": 8}}} if i != WITHOUT else {}
        pq.write_table(pa.table({"id": rng.integers(0, 2**62, 4)}), path, use_dictionary=False, **bloom)
    whole = (folder / "names.parquet").read_bytes()
    (folder / "damaged.parquet").write_bytes(whole[: len(whole) // 2])
    return folder


LINES = [
    ("inspect", "names.parquet"),
    ("inspect", "names.parquet", "--all"),
    ("inspect", "large.parquet"),
    ("inspect", "many"),
    ("inspect", "damaged.parquet"),
    ("verify", "names.parquet"),
    ("verify", "many", "--sample", "1"),
    ("check", "large.parquet", "column_02 = 5"),
    ("check", "large.parquet", "column_02 = 4611686018427387", "--explain"),
    ("check", "many", f"id = {2**61}", "--explain"),
    ("read", "names.parquet", "--limit", "3"),
    ("advise", "plain.parquet"),
    ("add", "plain.parquet", "--in-place", "--dry-run", "-c", "*"),
    ("remove", "many", "--in-place", "--dry-run"),
    ("engines",),
]


def test_no_line_is_wider_than_the_terminal(folder: Path) -> None:
    for words, width in (*((words, 80) for words in LINES), *((words, 200) for words in LINES[:9:3])):
        lines = plain(on_terminal(folder, *words, width=width))
        assert 0 < len(lines) < 80, f"{words}: summed up"
        wide = [line for line in lines if cells(line) > width]
        # A command to paste stays whole, and so does a name in a text.
        assert not [line for line in wide if not line.startswith("  parquet-bloom ") and LONG not in line], words


def test_names_are_cut_in_the_middle_and_it_is_said(folder: Path) -> None:
    lines = plain(on_terminal(folder, "inspect", "names.parquet"))
    names = [re.split(r" {2,}", line)[0] for line in lines[-5:-1]]
    assert names == ["größe", "漢字の列名", "a_very_lo…ore_at_all_really", "nested.le…e_has_a_long_name"]
    assert lines[-1] == HINT


def test_two_columns_of_rows_never_have_the_same_heading(tmp_path: Path) -> None:
    """A heading lost its end: of these all that `read` showed was that they are long."""
    names = [f"measured_values_of_sensor_{i}_in_the_{side}_hall" for i in range(3) for side in ("left", "right")]
    pq.write_table(pa.table({name: ["text"] for name in names}), tmp_path / "x.parquet")
    lines = plain(on_terminal(tmp_path, "read", "x.parquet"))
    [rule] = [i for i, line in enumerate(lines) if line.startswith("──")]
    shown = [name for name in lines[rule - 1].split() if name != "…"]
    assert len(shown) >= 4
    assert len(set(shown)) == len(shown)
    assert all("…" in name for name in shown)


def test_a_wider_terminal_and_a_pipe_have_them_whole(folder: Path) -> None:
    wide = plain(on_terminal(folder, "inspect", "names.parquet", width=200))
    assert sum(LONG in line for line in wide) == 1
    assert HINT not in wide
    piped = command("inspect", "names.parquet", cwd=folder)
    assert sum(line.startswith((LONG, DEEP)) for line in piped.stdout.splitlines()) == 2
    assert "…" not in piped.stdout
    assert piped.stdout == command("inspect", "names.parquet", cwd=folder, TERM="dumb").stdout, "stable"
    read = command("read", "names.parquet", "--limit", "2", cwd=folder)
    assert LONG in read.stdout
    assert "cut" not in read.stderr


def test_thousands_of_row_groups_are_a_line_a_column_and_the_outliers(folder: Path) -> None:
    lines = plain(on_terminal(folder, "inspect", "large.parquet"))
    table = [line for line in lines if line.startswith("column_")]
    assert [line.split()[0] for line in table] == [f"column_{i:02}" for i in range(WIDE)]
    assert {" ".join(line.split()[1:6]) for line in table} == {f"{GROUPS:,} of {GROUPS:,} {GROUPS * 32 / 1024} KiB"}
    text = " ".join(" ".join(lines).split())
    named = re.findall(r"very full: row group (\d+), column_\d+: fpp (\d+) % by (\d+) % of the bits of 32 B", text)
    assert len(named) == 3
    assert {int(group) for group, _, _ in named} <= set(FULL)
    assert f"{3 * WIDE - 3} filters more as full; --all has all" in text


def test_files_that_lack_filters_are_named_and_come_first(folder: Path) -> None:
    lines = plain(on_terminal(folder, "inspect", "many"))
    assert f"  without a filter on id: 1 row group in 1 file, many/part-{WITHOUT:05}.parquet" in lines
    rows = [line for line in lines if line.startswith("many/part")]
    assert rows[0].split() == [f"many/part-{WITHOUT:05}.parquet", "1", "0", "0", "B", "0"]
    assert lines[-1] == f"... and {FILES - 20} files more; --all has all"


def test_many_verdicts_are_a_line_a_reason(folder: Path) -> None:
    done = command("check", "large.parquet", "column_02 = 4611686018427387", "--explain", cwd=folder)
    rows = [re.split(r" {2,}", line.strip()) for line in done.stdout.splitlines()[3:-1]]
    assert sum(int(row[0].replace(",", "")) for row in rows) == GROUPS
    assert {(row[2], row[3]) for row in rows} <= {("skip", "bounds"), ("skip", "filter"), ("read", "-")}
    assert done.stdout.splitlines()[-1] == "a line a row group: check --explain --all"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """lake/: 20 files of 5 row groups, as Spark names them; a predicate that the row groups of 3 files may match."""
    folder = tmp_path_factory.mktemp("lake")
    (folder / "lake").mkdir()
    rng = np.random.default_rng(7)
    wanted = [2**61, 2**61 + 1, 2**61 + 2]
    for i in range(20):
        ids = np.concatenate([[1], rng.integers(2, 2**62, 498), [2**62]] * 5)  # all bounds admit everything
        if i < 3:
            ids[1234] = wanted[i]
        name = f"part-00000-{uuid.UUID(int=int(rng.integers(2**62)) ** 2)}-c000.snappy.parquet"
        bloom = {"bloom_filter_options": {"id": {"ndv": 4000, "fpp": 1e-4}}}
        pq.write_table(pa.table({"id": ids}), folder / "lake" / name, row_group_size=500, use_dictionary=False, **bloom)
    return folder, f"id IN ({', '.join(map(str, wanted))})"


@pytest.mark.parametrize("width", [80, 120])
def test_what_is_read_comes_first_and_the_rest_is_summed(lake: tuple[Path, str], width: int) -> None:
    """100 row groups of 20 files were 100 lines, each of them folded at 80 columns, and 97 of them the same."""
    folder, predicate = lake
    lines = plain(on_terminal(folder, "check", "lake", predicate, "--explain", width=width))
    assert max(map(cells, lines)) <= width
    assert len(lines) <= 12
    assert lines[0].startswith("97 of 100 row groups skipped (filter 97), ")
    head = next(i for i, line in enumerate(lines) if re.split(r" {2,}", line) == ["file", "row groups", "why"])
    assert head <= 2
    kept = [re.split(r" {2,}", line) for line in lines[head + 2 : head + 5]]
    assert [row[1:] for row in kept] == [["2", "the filter admits the value"]] * 3
    assert len({row[0] for row in kept}) == 3
    names = sorted(str(path.relative_to(folder)) for path in (folder / "lake").iterdir())
    whole = [row[0] in names for row in kept]
    assert all(whole) == (width >= 120), "the room is used"
    assert re.split(r" {2,}", lines[-2].strip()) == ["97", "20 files", "skip", "filter", "the filter denies the value"]
    assert lines[-1] == "a line a row group: check --explain --all"


def test_all_row_groups_have_a_line_each_that_fits(lake: tuple[Path, str]) -> None:
    folder, predicate = lake
    lines = plain(on_terminal(folder, "check", "lake", predicate, "--explain", "--all"))
    assert max(map(cells, lines)) <= 80
    rows = [line for line in lines if re.search(r"  (read|skip)  ", line)]
    assert [line for line in lines if "the filter" in line] == rows, "none is folded"
    assert ["read" in row for row in rows] == [True] * 3 + [False] * 97
    assert len({row.split()[0] for row in rows}) == 20, "no two files look the same"


def test_read_explains_in_the_same_words(lake: tuple[Path, str]) -> None:
    folder, predicate = lake
    said = command("check", "lake", predicate, "--explain", cwd=folder).stdout.splitlines()
    done = command("read", "lake", "--where", predicate, "--explain", "--format", "ndjson", cwd=folder)
    assert done.stderr.splitlines()[: len(said) - 1] == said[1:]
    assert done.stdout.count("\n") == 3


def test_files_that_were_not_opened_are_summed(tmp_path: Path) -> None:
    write_deltalake(
        tmp_path / "delta", pa.table({"id": range(60), "day": [i // 2 for i in range(60)]}), partition_by=["day"]
    )
    lines = plain(on_terminal(tmp_path, "check", "delta:delta", "day = 7 AND id = 14", "--explain"))
    assert max(map(cells, lines)) <= 80
    summed = [re.split(r" {2,}", line.strip()) for line in lines if line.lstrip().startswith("-")]
    assert summed == [["-", "29 files", "not opened", "partition", "the table's log excludes it by its par…"]]
    assert sum(".parquet" in line for line in lines) == 1


def test_many_files_that_are_read_for_one_reason_are_summed(folder: Path) -> None:
    lines = plain(on_terminal(folder, "check", "many", "id >= 0", "--explain"))
    (summed,) = [line for line in lines if line.endswith("every row matches")]
    assert summed.split()[:4] == [f"{FILES}", f"{FILES}", "files", "read"], "a reason that many files share"
    every = plain(on_terminal(folder, "check", "many", "id >= 0", "--explain", "--all"))
    assert sum(line.endswith("every row matches") for line in every) == FILES


def test_colours_are_for_terminals_that_take_them(folder: Path) -> None:
    lines = on_terminal(folder, "inspect", "names.parquet")
    assert any(line.startswith("\x1b[1mcolumn ") and line.endswith("\x1b[0m") for line in lines), "headings"
    error, hint, *_ = on_terminal(folder, "inspect", "nowhere.parquet")
    assert error.startswith("\x1b[31mparquet-bloom:\x1b[0m nowhere.parquet: ")
    assert hint.startswith("\x1b[2m  hint:\x1b[0m look at ")
    for name in ("names.parquet", "nowhere.parquet"):
        assert "\x1b" not in "".join(on_terminal(folder, "inspect", name, TERM="dumb"))


COLOURED = {
    ("check", "lake", "id = 5", "--explain"): "\x1b[32m",
    ("check", "lake", "id = 5"): "\x1b[32m",
    ("inspect", "lake"): "\x1b[32m",
    ("verify", "lake", "--sample", "1"): "\x1b[32m",
    ("add", "lake", "--in-place", "--dry-run", "-c", "id", "--replace"): "\x1b[32m",
    ("remove", "lake", "--all-writers", "--in-place", "--dry-run"): "\x1b[32m",
    ("advise", "lake"): "\x1b[32m",
    ("engines", "--engine", "duckdb"): "\x1b[31m",
    ("inspect", "nowhere.parquet"): "\x1b[31m",
}


def test_each_command_has_colours_on_a_terminal_alone(lake: tuple[Path, str]) -> None:
    """Not only headings in bold: a colour. NO_COLOR and a pipe have none, and the same text, as what is forced."""
    folder, _ = lake
    for words, colour in COLOURED.items():
        colours = on_terminal(folder, *words)
        assert colour in "".join(colours), words
        without = on_terminal(folder, *words, NO_COLOR="1")
        assert "\x1b" not in "".join(without), words
        assert [line.split() for line in plain(colours)] == [line.split() for line in without], words
        piped = command(*words, cwd=folder, COLUMNS="80")
        assert "\x1b" not in piped.stdout + piped.stderr, words
        forced = command(*words, cwd=folder, COLUMNS="80", FORCE_COLOR="1")
        assert colour in forced.stdout + forced.stderr, words
        assert plain((forced.stdout, forced.stderr)) == [piped.stdout, piped.stderr], words
    for for_programs in (("read", "lake", "id >= 0", "--limit", "3"), ("inspect", "lake", "--json")):
        assert "\x1b" not in command(*for_programs, cwd=folder, FORCE_COLOR="1").stdout, for_programs


def test_an_error_is_folded_on_terminals_and_one_line_elsewhere(folder: Path) -> None:
    lines = plain(on_terminal(folder, "inspect", "damaged.parquet"))
    assert len(lines) == 4, "two of the error, two of its hint"
    assert [line[:8] for line in lines[1:3]] == ["  no Par", "  hint: "]
    assert all(line.startswith("    ") for line in lines[3:])
    piped = command("inspect", "damaged.parquet", cwd=folder, COLUMNS="80").stderr
    assert piped.count("\n") == 2
    assert " ".join(" ".join(lines).split()) == " ".join(piped.split())

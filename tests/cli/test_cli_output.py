"""What a person sees of large inputs: few lines, none wider than 80 columns, every mistake once; JSON has all."""

from __future__ import annotations

import csv
import json
import os
import shlex
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands import error_lines, without_hints
from support.samples import write_keys

import parquet_bloom
from parquet_bloom import cli
from parquet_bloom.cli.groups import SIZE
from parquet_bloom.errors import UnknownColumnError
from parquet_bloom.report.text import cells, growth, table_lines, wrapped
from parquet_bloom.storage.paths import targets

COLUMNS, GROUPS, FILES = 30, 60, 60


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """wide.parquet: 30 columns x 60 row groups, all with filters; many/: 60 files, of which bloom/ are the copies."""
    folder = tmp_path_factory.mktemp("large")
    rng = np.random.default_rng(5)
    rows = 5 * GROUPS
    wide = pa.table({f"a_rather_long_column_{i}": rng.integers(0, 2**62, rows) for i in range(COLUMNS)})
    pq.write_table(wide, folder / "plain.parquet", row_group_size=5, use_dictionary=False)
    for i in range(FILES):
        path = folder / "many" / f"day=2026-01-{i % 30 + 1:02}" / f"part-{i:05}-5d7c1d2e-as-writers-name-them.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.table({"id": rng.integers(0, 2**62, 8), "flag": [True, False] * 4, "other": rng.integers(0, 9, 8)})
        pq.write_table(table, path, use_dictionary=False)
    every = {"columns": ["a_*"], "sync": False}
    parquet_bloom.add_filters(folder / "plain.parquet", folder / "wide.parquet", **every)
    parquet_bloom.add_filters(folder / "many", folder / "bloom", columns=["id"], sync=False)
    return folder


class Done(NamedTuple):
    status: int
    out: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines() + self.errors.splitlines()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")

    def run_in(folder: Path, line: str) -> Done:
        monkeypatch.chdir(folder)
        status = cli.run(shlex.split(line))
        captured = capsys.readouterr()
        return Done(status, captured.out, captured.err)

    return run_in


# command -> most lines on stdout
WALK = {
    "add plain.parquet --dry-run --in-place": 5,
    "add plain.parquet --no-sync -o again.parquet --overwrite -c a_rather_long_column_1 -c a_rather_long_column_2": 3,
    "inspect wide.parquet": 5 + COLUMNS,
    "inspect wide.parquet -c a_rather_long_column_7 --all": 5 + GROUPS,
    "verify wide.parquet --sample 1": 3 + COLUMNS,
    "check wide.parquet 'a_rather_long_column_7 >= 0'": 3,
    "check wide.parquet 'a_rather_long_column_7 >= 0' --explain": 54,
    "check wide.parquet 'a_rather_long_column_7 >= 0' --explain --all": 4 + GROUPS,
    "check plain.parquet 'a_rather_long_column_7 IN (5, 2305843009213693952) OR a_rather_long_column_1 = 5'": 8,
    "read wide.parquet --limit 30": 32,
    "read wide.parquet --limit 3 --explain": 5,
    "remove wide.parquet --in-place --dry-run": 2,
    "add many --in-place --dry-run": 40,
    "add many --no-sync -o again -c id --overwrite": 30,
    "inspect many bloom": 40,
    "inspect bloom": 32,
    "verify bloom": 32,
    "check bloom 'id >= 0'": 26,
    "check bloom 'id >= 0' --explain": 60,
    "check many 'id = 2305843009213693952'": 28,
    "read bloom --where 'id > 0' --limit 20": 22,
    "remove bloom --in-place --dry-run": 26,
}


def test_every_command_is_short_and_fits(large: Path, run) -> None:
    pasted = ("parquet-bloom: ", "parquet-bloom add ")  # messages, and commands, which a fold would break
    for line, most in WALK.items():
        done = run(large, line)
        assert done.status == 0, (line, done.errors)
        assert 0 < len(done.out.splitlines()) <= most, line
        assert [one for one in done.lines if cells(one) > 80 and not one.startswith(pasted)] == [], line
        assert error_lines(done.errors) <= 2 or "--explain" in line, (line, done.errors)


def test_json_and_all_leave_nothing_out(large: Path, run) -> None:
    document = json.loads(run(large, "inspect wide.parquet --json").out)
    assert len(document["files"][0]["filters"]) == COLUMNS * GROUPS
    assert document["files"][0]["problems"] == 0
    document = json.loads(run(large, "add many --in-place --dry-run --json").out)
    assert len(document["files"]) == FILES
    assert document["files"][0]["planned"] == {"id": 1, "other": 1}
    assert document["files"][0]["planned_filters"] == 2
    document = json.loads(run(large, "check bloom 'id >= 0' --json").out)
    assert len(document["verdicts"]) == FILES
    assert len(json.loads(run(large, "verify bloom/day=2026-01-01 --json").out)["files"]) == FILES // 30
    assert len(run(large, "inspect bloom --all").out.splitlines()) > 3 * FILES
    assert len(run(large, "add many --in-place --dry-run --all").out.splitlines()) > FILES
    assert len(run(large, "check bloom 'id >= 0' --all").out.splitlines()) > FILES


def test_totals_come_first(large: Path, run) -> None:
    assert run(large, "add many --in-place --dry-run").out.startswith(f"{FILES} files, ")
    first = run(large, "inspect bloom").out.splitlines()[0]
    assert first.startswith(f"{FILES} files: {8 * FILES} rows, {FILES} row groups, {FILES} filters (final, footer), ")
    assert run(large, "verify bloom").out.startswith(f"{FILES} files: {FILES} filters, none wrong\n")
    out = run(large, "check bloom 'id >= 0'").out
    assert out.startswith(f"0 of {FILES} row groups skipped, ")
    assert f"\nleft: all {FILES} row groups of {FILES} files\n" in out
    assert "1 of 1" not in out, "equal lines"
    out = run(large, "check bloom 'id >= 0' --all").out
    assert f"\nleft: {FILES} row groups in {FILES} of {FILES} files\n" in out
    names = [line.split()[0] for line in out.splitlines() if "1 of 1" in line]
    assert len(set(names)) == FILES, "cut, but no two the same"
    assert all(name.startswith("bloom/day=2026-01-") and name.endswith("-them.parquet") for name in names)
    assert f"... and {FILES - 20} files more; --all has all\n" in run(large, "remove bloom --in-place --dry-run").out
    out = run(large, "add many --in-place --dry-run").out
    assert out.count(f"no filter on flag ({FILES} files): BOOLEAN") == 1


# --- one mistake, one line ------------------------------------------------------------------------


def test_an_unknown_name_is_told_once_and_first(large: Path, tmp_path: Path, run) -> None:
    for line in (
        *("add many -o out -c idd", "add many -o out -x idd", "add many -o out --column-fpp idd=0.1"),
        *("remove bloom -o out -c idd", "remove bloom -o out -x idd", "inspect many -c idd", "verify bloom -c idd"),
        "read many --columns id,idd",
    ):
        done = run(large, line)
        assert (done.status, done.out, error_lines(done.errors)) == (2, "", 1), line
        assert "part-00000" in done.errors, "the file that was looked at"
        assert "no column idd; near names: id" in done.errors, line
        assert not (large / "out").exists(), line
    for call in (parquet_bloom.add_filters, parquet_bloom.remove_filters):
        with pytest.raises(UnknownColumnError, match=r"part-00000.*no column idd"):
            call(large / "many", tmp_path / "out", columns=["id", "idd"])
    for look in (parquet_bloom.inspect, parquet_bloom.verify):
        with pytest.raises(UnknownColumnError, match=r"part-00000.*no column idd"):
            look(large / "many", columns=["idd"])
    assert os.listdir(tmp_path) == []


def test_a_column_that_only_a_later_file_lacks_is_that_files_failure(tmp_path: Path, run) -> None:
    for name, columns in (("a", ["x", "y"]), ("b", ["x"]), ("c", ["x", "y"]), ("d", ["x"])):
        pq.write_table(pa.table({c: [1, 2, 3] for c in columns}), tmp_path / f"{name}.parquet")
    (tmp_path / "0.parquet").write_text("no Parquet at all")
    done = run(tmp_path, "add . -o out -c y")
    assert done.status == 2
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["a.parquet", "c.parquet"]
    assert without_hints(done.errors) == [
        "parquet-bloom: ./0.parquet: the file ends with b' all', not b'PAR1': no Parquet file, or its end is cut off",
        "parquet-bloom: 2 files: no column y; there are: x (the first: ./b.parquet)",
        "parquet-bloom: 3 of 5 files failed",
    ]


def test_the_same_failure_is_told_once_and_reasons_are_a_handful(tmp_path: Path, run) -> None:
    write_keys(tmp_path / "good.parquet")
    for i in range(40):
        (tmp_path / f"short{i:02}.parquet").write_bytes(b"x" * (i % 3))
        (tmp_path / f"text{i:02}.parquet").write_text(f"some text with an end of its own {i:04}")
    done = run(tmp_path, "inspect .")
    lines = without_hints(done.errors)
    assert done.status == 2
    assert len(lines) == 4
    assert lines[0].startswith("parquet-bloom: 14 files: the file is empty (the first: ./short00.parquet")
    assert lines[-1] == "parquet-bloom: 80 of 81 files failed"
    assert len(json.loads(run(tmp_path, "inspect . --json").out)["failed"]) == 80
    for i in range(9):
        sound = (tmp_path / "good.parquet").read_bytes()
        os.makedirs(tmp_path / "mixed", exist_ok=True)
        (tmp_path / "mixed" / f"{i}.parquet").write_bytes(sound[:-9] + bytes([i]) + sound[-8:])
    errors = without_hints(run(tmp_path, "inspect .").errors)
    assert len(errors) <= 7


def test_rows_say_what_they_leave_out(large: Path, tmp_path: Path, run) -> None:
    done = run(large, "read wide.parquet --limit 2")
    assert "of 30 columns shown; --columns A,B chooses, --format ndjson or csv has all" in done.errors
    assert " … " in done.out.splitlines()[0]
    pq.write_table(
        pa.table({"number": [2**62], "text": ["word " * 40], "at": [datetime(2026, 1, 31, 12)]}), tmp_path / "t"
    )
    done = run(tmp_path, "read t")
    assert str(2**62) in done.out
    assert "2026-01-31 12:00:00.000000" in done.out
    assert "wor…" in done.out
    assert "some texts cut" in done.errors
    done = run(tmp_path, "read t --columns number")
    assert "cut" not in done.errors
    assert "shown" not in done.errors
    assert run(tmp_path, "read t -o rows.txt").status == 0
    assert "word " * 39 in (tmp_path / "rows.txt").read_text(), "a file is no terminal"


# --- statuses -------------------------------------------------------------------------------------


def broken(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, with an error of ours in `inspect`."""
    script = (
        "import sys, warnings, parquet_bloom.cli as cli, parquet_bloom.filters.inspect as inspect\n"
        "def _inspect(*_):\n"
        "    warnings.warn('mind the\\ngap')\n"
        "    return {}['missing\\nkey']\n"
        "inspect._inspect = _inspect\n"
        f"sys.argv = ['parquet-bloom', *{arguments!r}]\n"
        "cli.main()\n"
    )
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=200)


def test_an_error_that_nobody_expected_is_two_and_one_line(tmp_path: Path) -> None:
    keys = str(write_keys(tmp_path / "keys.parquet"))
    done = broken("inspect", keys)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "parquet-bloom: warning: mind the gap",
        r"parquet-bloom: an unexpected error, KeyError: 'missing\nkey'; the same command with --traceback "
        "shows where",
    ]
    for arguments in (("inspect", keys, "--traceback"), ("--traceback", "inspect", keys)):
        done = broken(*arguments)
        assert done.returncode == 2
        assert "Traceback (most recent call last)" in done.stderr
        assert done.stderr.splitlines()[-1].startswith("parquet-bloom: an unexpected error")


def test_only_an_answer_is_one(large: Path, run) -> None:
    assert run(large, "check many 'id = -1'").status == 1
    assert run(large, "check nowhere 'id = -1'").status == 2
    assert run(large, "inspect").status == 2
    assert run(large, "").status == 0
    assert run(large, "").out.startswith("Usage: parquet-bloom [OPTIONS] COMMAND")
    assert run(large, "").errors == ""
    assert run(large, "index").out.startswith("Usage: parquet-bloom index")


# --- check and its advice -------------------------------------------------------------------------


def test_check_says_which_filters_are_missing_and_how_to_add_them(tmp_path: Path, run) -> None:
    write_keys(tmp_path / "a b.parquet")
    out = run(tmp_path, "check 'a b.parquet' \"name = 'user-7' AND id > 0\"").out
    assert "name has no filter in the 3 row groups left\n" in out
    (line,) = [line for line in out.splitlines() if line.startswith("to add one: ")]
    assert line == "to add one: parquet-bloom add 'a b.parquet' --column name --in-place"
    assert run(tmp_path, line.removeprefix("to add one: parquet-bloom ")).status == 0
    done = run(tmp_path, "check 'a b.parquet' \"name = 'user-7' AND id > 0\"")
    assert (done.status, len(done.out.splitlines())) == (1, 1), "and now the filters say no"
    for without in ("id > 5", "id <> 5", "flag", "id IS NULL OR id >= 0"):
        assert "no filter" not in run(tmp_path, f"check 'a b.parquet' '{without}'").out
    run(tmp_path, "remove 'a b.parquet' --in-place")
    document = json.loads(run(tmp_path, "check 'a b.parquet' \"name = 'user-7'\" --json").out)
    column = {"column": "name", "row_groups": 3, "with_filter": 0, "files": 1, "files_without": 1}
    assert document["columns"] == [column]


# --- texts of rows --------------------------------------------------------------------------------


def test_timestamps_in_json_are_rfc_3339(tmp_path: Path, run) -> None:
    at = pa.array([1_769_860_800_123_456, None], pa.timestamp("us"))
    table = pa.table(
        {
            "utc": at.cast(pa.timestamp("us", "UTC")), "none": at,
            "berlin": at.cast(pa.timestamp("us", "Europe/Berlin")),
            "ns": at.cast(pa.timestamp("ns", "UTC")), "ms": at.cast(pa.timestamp("ms"), safe=False),
            "list": pa.array([[at[0].as_py()], None], pa.list_(pa.timestamp("ms", "UTC"))),
            "struct": pa.array([{"x": {"at": at[0].as_py(), "n": 1}}, None],
                               pa.struct([("x", pa.struct([("at", pa.timestamp("us")), ("n", pa.int32())]))])),
            "day": pa.array([20_484, None], pa.date32()),
        }
    )  # fmt: skip
    pq.write_table(table, tmp_path / "t.parquet")
    first, second = (json.loads(line) for line in run(tmp_path, "read t.parquet --format ndjson").out.splitlines())
    assert first == {
        "utc": "2026-01-31T12:00:00.123456Z", "none": "2026-01-31T12:00:00.123456",
        "berlin": "2026-01-31T13:00:00.123456+01:00", "ns": "2026-01-31T12:00:00.123456000Z",
        "ms": "2026-01-31T12:00:00.123", "list": ["2026-01-31T12:00:00.123Z"],
        "struct": {"x": {"at": "2026-01-31T12:00:00.123456", "n": 1}}, "day": "2026-01-31",
    }  # fmt: skip
    assert datetime.fromisoformat(first["utc"]).isoformat() == "2026-01-31T12:00:00.123456+00:00"
    assert set(second.values()) == {None}
    assert json.loads(run(tmp_path, "read t.parquet --format json").out) == [first, second]


def test_times_that_no_calendar_has_are_named_in_every_format(tmp_path: Path, run) -> None:
    """As DuckDB's infinity; within lists, structs and maps too, where Python's own times end at the year 9999."""
    far, day = (1 << 63) - 1, -(1 << 31) + 1
    at, on = pa.array([far]).cast(pa.timestamp("us")), pa.array([day], pa.int32()).cast(pa.date32())
    year = pa.array([300_000_000_000_000_000]).cast(pa.timestamp("us"))  # 11476
    span = pa.array([far]).cast(pa.duration("us"))
    table = pa.table(
        {
            "at": at, "on": on, "coded": at.dictionary_encode(),
            "list": pa.ListArray.from_arrays([0, 1], at), "map": pa.MapArray.from_arrays([0, 1], on, year),
            "struct": pa.StructArray.from_arrays([at, on, year, span], ["at", "on", "year", "span"]),
        }
    )  # fmt: skip
    pq.write_table(table, tmp_path / "t.parquet")
    no_time, no_day = f"<value out of range: {far}>", f"<value out of range: {day}>"
    row = {
        "at": no_time, "on": no_day, "coded": no_time, "list": [no_time],
        "map": [[no_day, "11476-08-15T05:20:00.000000"]],
        "struct": {"at": no_time, "on": no_day, "year": "11476-08-15T05:20:00.000000", "span": far},
    }  # fmt: skip
    assert json.loads(run(tmp_path, "read t.parquet --format ndjson").out) == row
    assert json.loads(run(tmp_path, "read t.parquet --format json").out) == [row]
    [_, cells] = csv.reader(run(tmp_path, "read t.parquet --format csv").out.splitlines())
    assert cells[:3] == [no_time, no_day, no_time]
    assert [json.loads(cell) for cell in cells[3:]] == [row["list"], row["map"], row["struct"]]
    shown = run(tmp_path, "read t.parquet --columns at,on --format table").out
    assert no_time in shown
    assert no_day in shown


# --- outputs and sizes ----------------------------------------------------------------------------


def test_several_folders_keep_their_trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/x.parquet", "b/x.parquet", "b/k=1/y.parquet", "far/a/x.parquet", "one.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    monkeypatch.chdir(tmp_path)

    def out(*sources: str) -> list[str]:
        return [target.path for target in targets(list(sources), "out/", False, False).targets.values()]

    assert out("a/", "b") == ["out/a/x.parquet", "out/b/k=1/y.parquet", "out/b/x.parquet"]
    assert out("a") == ["out/x.parquet"], "one folder is the tree itself"
    assert out("one.parquet", "b/k=1") == ["out/one.parquet", "out/k=1/y.parquet"]
    assert out("a", "far/a") == ["out/a/x.parquet", "out/far/a/x.parquet"], "of one name: below what they share"
    assert out("a/*.parquet", "b/*.parquet") == ["out/a/x.parquet", "out/b/x.parquet"]
    assert out("*.parquet", "b/k=1") == ["out/one.parquet", "out/k=1/y.parquet"]
    assert out("a", "./a/") == ["out/a/x.parquet"]


def test_a_size_on_the_command_line(tmp_path: Path, run) -> None:
    for text, size in (("64KiB", 1 << 16), ("1MB", 1_000_000), ("1_000_000", 1_000_000), ("1,024", 1024), ("32", 32),
                       ("1.5 mib", 3 << 19), ("0.25MB", 250_000), ("32B", 32)):  # fmt: skip
        assert SIZE.convert(text, None, None) == size, text
    write_keys(tmp_path / "keys.parquet")
    assert run(tmp_path, "add keys.parquet --in-place --no-sync -c id --max-bytes 0.25KiB").status == 0
    assert {f.num_bytes for f in parquet_bloom.inspect(tmp_path / "keys.parquet").files[0].filters} == {256}


# --- laying out -----------------------------------------------------------------------------------


def test_tables_fold_texts_shorten_paths_and_keep_numbers() -> None:
    rows = [["12345678901234567890", "word " * 30, "/a/long/way/to/some/folder/of/the/data/part-1.parquet"]] * 2
    lines = table_lines(("number", "text", "file"), rows, (0,), (2,), 80)
    assert max(map(cells, lines)) <= 80
    assert sum(line.count("12345678901234567890") for line in lines) == 2
    assert sum(line.count("word") for line in lines) == 60
    assert table_lines(("n", "t"), [["1", "x"]], (0,), (), 80) == ["n   t", "─────", "1   x"]
    many = table_lines([f"heading {i}" for i in range(9)], [["some text of its own"] * 9], (), (), 80)
    assert max(map(cells, many)) <= 80
    assert wrapped("漢字漢字", 4) == ["漢字", "漢字"]
    assert wrapped("a bb ccc", 4, "  ") == ["a bb", "  cc", "  c"]
    assert wrapped("a /long/path", 4, "  ", cut=False) == ["a", "  /long/path"]


def test_the_command_names_the_formats_that_can_be_written() -> None:
    """Twice there, as the help page is made without pyarrow."""
    from parquet_bloom.cli import read
    from parquet_bloom.report import rows

    assert tuple(rows._WRITERS) == read._FORMATS
    assert set(rows.SUFFIXES.values()) == set(read._FORMATS), "each has a suffix"


def test_what_became_of_a_size_has_no_power_of_ten() -> None:
    sizes = {1063: "+6.3 %", 1994: "+99 %", 1996: "+100 %", 2200: "+120 %", 13_000: "+1,200 %", 950: "-5 %"}
    assert {after: growth(1000, after) for after in sizes} == sizes
    assert growth(0, 100) == "-"

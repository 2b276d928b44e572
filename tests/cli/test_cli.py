"""The command: its output, exit statuses, and one line for every error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.commands import command, error_lines, in_this_process
from support.corpus import corpus_file
from support.samples import FIXTURES, digest, leftovers, write_keys

import parquet_bloom

DEMO = FIXTURES / "pyarrow/trace_ids.parquet"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "keys.parquet")


@pytest.mark.smoke
def test_the_whole_way(tmp_path: Path) -> None:
    out, back = tmp_path / "out.parquet", tmp_path / "back.parquet"
    done = command("add", DEMO, "--column", "*_id", "--output", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert "10 filters on trace_id, user_id in 5 row groups" in done.stdout
    done = command("inspect", out)
    assert done.returncode == 0
    assert "10 filters" in done.stdout
    assert command("verify", out).returncode == 0
    done = command("check", out, "user_id = 4611686018427387904")
    assert done.returncode == 0
    assert "4 of 5 row groups skipped (filter 4)" in done.stdout
    assert " ".join(done.stdout.split()).endswith((f"{out}: row group 3", f"{out} row group 3"))
    done = command("read", out, "--where", "user_id = 4611686018427387904", "--columns", "status", "--format", "ndjson")
    assert (done.returncode, done.stdout) == (0, '{"status": "ok"}\n')
    assert "1 row; 4 of 5 row groups skipped (filter 4)" in done.stderr
    assert command("check", out, "user_id = 7").returncode == 1, "no row group can match"
    assert command("remove", out, "--output", back).returncode == 0
    assert digest(back) == digest(DEMO)


BAD = [
    (["add", "nowhere.parquet", "-o", "x"], "nowhere.parquet: no such file"),
    (["add", "empty", "-o", "x"], "empty: the file is empty"),
    (["add", "folder", "-o", "x"], "folder: no Parquet file"),
    (["add", "text", "-o", "x"], "text: the file ends with"),
    (["add", "keys.parquet"], "--output for a new file, or --in-place"),
    (["add", "keys.parquet", "-o", "x", "--in-place"], "exclude each other"),
    (["add", "keys.parquet", "-o", "x", "-c", "nmae"], "keys.parquet: no column nmae; near names: name"),
    (["add", "keys.parquet", "-o", "x", "-c", "flag"], "keys.parquet: column flag (BOOLEAN)"),
    (["add", "keys.parquet", "-o", "x", "--fpp", "0"], "fpp 0.0 is not between 0 and 1"),
    (["add", "keys.parquet", "-o", "x", "--fpp", "1.0"], "fpp 1.0 is not between 0 and 1"),
    (["add", "keys.parquet", "-o", "x", "--fpp", "much"], "'much' is neither a rate, as 0.01, nor auto"),
    (["add", "keys.parquet", "-o", "x", "--column-fpp", "id"], "expected COLUMN=RATE"),
    (["add", "keys.parquet", "-o", "x", "--column-fpp", "idd=0.1"], "no column idd"),
    (["add", "keys.parquet", "-o", "x", "--spec", "2019"], "unknown spec 2019; there are: final, parquet-41"),
    (
        ["add", "keys.parquet", "-o", "x", "--spec", "parquet-41", "--placement", "footer"],
        "placement footer is not for",
    ),
    (["add", "keys.parquet", "--in-place", "--append"], "--append is for --placement tail and --in-place"),
    (
        ["add", "keys.parquet", "-o", "x", "--spec", "statistics", "--placement", "tail"],
        "--placement tail is not for statistics",
    ),
    (["remove", "keys.parquet", "-o", "x", "--append"], "--append is for --in-place"),
    (["remove", "keys.parquet", "-o", "x", "--last", "-c", "id"], "--last takes off a whole tail; name no columns"),
    (["add", "keys.parquet", "-o", "x", "--max-bytes", "5"], "max-bytes 5 is less than"),
    (["add", "keys.parquet", "-o", "x", "--ndv", "0"], "ndv 0 is not positive"),
    (["add", "keys.parquet", "-o", "x", "--threads", "0"], "threads 0 is not positive"),
    (["add", "keys.parquet", "-o", "keys.parquet", "--overwrite"], "itself a source"),
    (["add", "keys.parquet", "-o", "text"], "text: exists; give --overwrite"),
    (["add", "magic", "-o", "x"], "magic: "),
    (["add", "length", "-o", "x"], "length: the footer claims 4294967280 bytes"),
    (["check", "keys.parquet", "id = 'abc"], "'abc"),
    (["read", "keys.parquet", "--where", "idd = 5"], "keys.parquet: no column idd; near names: id"),
    (["read", "keys.parquet", "--columns", "id,nam"], "no column nam; near names: name"),
    (["read", "keys.parquet", "--where", "lower(name) = 'x'"], "rows cannot be filtered by lower(name) = 'x'"),
    (["read", "keys.parquet", "--where", "name > 5"], "name"),
    (["read", "keys.parquet", "-o", "rows.xyz"], "its suffix names no format; give --format"),
    (["read", "keys.parquet", "-o", "text", "--format", "csv"], "text: exists; give --overwrite"),
    (["read", "keys.parquet", "--limit", "-1"], "-1 is not in the range"),
    (["read", "text"], "text: the file ends with"),
    (["check", "keys.parquet", "name = x"], "no column x; there are: id, name"),
    (["check", "keys.parquet", "name = 5"], "5 is no literal for it; write a text in single quotes: '5'"),
    (["read", "keys.parquet", "--where", "id = 'x'"], "keys.parquet: column id is INT64: 'x' is no literal for it"),
    (["check", "keys.parquet", "idd = 5"], "keys.parquet: no column idd; near names: id"),
    (["verify", "text"], "text: the file ends with"),
    (["inspect", "cut.parquet"], "cut.parquet: the file ends with"),
    (["remove", "keys.parquet"], "--output for a new file, or --in-place"),
    (["nonsense"], "no command nonsense; there are: add, remove"),
    (["inspct", "keys.parquet"], "no command inspct; did you mean inspect?"),
    (["index", "qury", "x"], "no command qury; did you mean query?"),
    (["add", "keys.parquet", "--colunm", "id"], "--column"),
    (["check", "keys.parquet"], "no predicate after keys.parquet, as in: parquet-bloom check FILES"),
    (["check", "id = 5"], "no files before the predicate"),
    (["index", "query", "keys.parquet"], "no predicate after keys.parquet"),
    (["add", "keys.parquet", "-o", "x", "--max-bytes", "64K"], "'64K' is no number of bytes; write 65536, 64KiB"),
    (["add", "keys.parquet", "-o", "x", "--max-bytes", "0.01kB"], "max-bytes 10 is less than"),
    (["add"], "Missing argument"),
]


@pytest.fixture
def bad_folder(tmp_path: Path) -> Path:
    keys = write_keys(tmp_path / "keys.parquet")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("no Parquet at all, only some text\n")
    (tmp_path / "magic").write_bytes(b"PAR1" + bytes(8) + b"PAR1")
    (tmp_path / "length").write_bytes(b"PAR1" + bytes(20) + (2**32 - 16).to_bytes(4, "little") + b"PAR1")
    (tmp_path / "cut.parquet").write_bytes(keys.read_bytes()[:-5])
    (tmp_path / "folder").mkdir()
    return tmp_path


def test_bad_input_is_one_line_and_changes_nothing(bad_folder: Path) -> None:
    before = {p.name: digest(p) for p in bad_folder.iterdir() if p.is_file()}
    for arguments, says in BAD:
        done = in_this_process(*arguments, cwd=bad_folder)
        assert done.returncode == 2, arguments
        assert says in done.stderr, arguments
        lines = 3 if "'abc" in says else 1  # the text and the mark under it
        assert error_lines(done.stderr) == lines, (arguments, done.stderr)
        assert "Traceback" not in done.stderr, arguments
        assert {p.name: digest(p) for p in bad_folder.iterdir() if p.is_file()} == before, arguments


def test_encrypted_files_are_refused_by_every_command(tmp_path: Path) -> None:
    for name in (
        "encrypted/hardwood__encrypted_footer.parquet",
        "encrypted/hardwood__encrypted_plaintext_footer.parquet",
        "encrypted/parquet-testing__encrypt_columns_plaintext_footer.parquet.encrypted",
        "encrypted/parquet-testing__uniform_encryption.parquet.encrypted",
        "bloom/parquet-testing__encrypt_columns_and_footer_bloom_filter.parquet.encrypted",
    ):
        path = str(corpus_file(name))
        for words in (("add", path, "-o", "x"), ("inspect", path), ("verify", path), ("check", path, "a = 1"),
                      ("remove", path, "-o", "x")):  # fmt: skip
            done = in_this_process(*words, cwd=tmp_path)
            assert (done.returncode, error_lines(done.stderr)) == (2, 1), words
            assert "encrypted" in done.stderr, words
            assert path in done.stderr, words
    assert os.listdir(tmp_path) == []


def test_a_file_cut_anywhere_is_one_line(tmp_path: Path) -> None:
    data = write_keys(tmp_path / "keys.parquet").read_bytes()
    cut = tmp_path / "cut.parquet"
    for length in [*range(0, len(data), max(1, len(data) // 60)), *range(len(data) - 30, len(data))]:
        cut.write_bytes(data[:length])
        for arguments in (("add", "cut.parquet", "-o", "x.parquet"), ("inspect", "cut.parquet")):
            done = in_this_process(*arguments, cwd=tmp_path)
            assert (done.returncode, error_lines(done.stderr)) == (2, 1), (length, done.stderr)
            assert "cut.parquet" in done.stderr
    assert not (tmp_path / "x.parquet").exists()
    assert leftovers(tmp_path) == []


def test_of_several_files_the_worst_counts(bad_folder: Path) -> None:
    done = in_this_process("add", "keys.parquet", "text", "empty", "-o", "new", cwd=bad_folder)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "parquet-bloom: 2 of 3 files failed"
    assert "filters" in done.stdout
    assert (bad_folder / "new/keys.parquet").exists()
    done = in_this_process("check", "new/keys.parquet", "text", "id = -1", cwd=bad_folder)
    assert done.returncode == 2, "an error is worse than a no"
    assert "text: " in done.stderr


def test_the_drafts_warn_which_engines_fail(keys: Path, tmp_path: Path) -> None:
    for spec in ("parquet-41", "parquet-41-early", "parquet-41-raw"):
        done = in_this_process("add", "keys.parquet", "-o", spec, "--spec", spec, cwd=tmp_path)
        assert (done.returncode, error_lines(done.stderr)) == (0, 1), spec
        assert "DuckDB" in done.stderr
        assert spec in done.stderr
    assert in_this_process("add", "keys.parquet", "-o", "final", "-c", "id", cwd=tmp_path).stderr == ""


@pytest.mark.smoke
def test_damaged_filters_warn_in_one_line() -> None:
    done = command("check", corpus_file("malformed_lab/09_length_too_big_padding64.parquet"), "id = 5")
    assert done.returncode == 0
    assert error_lines(done.stderr) == 1
    assert "2128" in done.stderr
    assert "2064" in done.stderr


def test_dry_run_tells_columns_and_space(keys: Path, tmp_path: Path) -> None:
    done = in_this_process("add", "keys.parquet", "--in-place", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0
    assert "would add 15 filters on id, name" in done.stdout
    assert "of disk" in done.stdout


def test_a_reader_that_closes_early_ends_it_quietly(keys: Path, tmp_path: Path) -> None:
    command("add", keys, "--in-place")
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "parquet_bloom", "inspect", str(keys), "--json"],
        stdout=write, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(read)
    os.close(write)
    _, errors = process.communicate(timeout=100)
    assert (process.returncode, errors) == (0, "")


def test_tails_by_commands(tmp_path: Path) -> None:
    path = write_keys(tmp_path / "keys.parquet")
    old = path.read_bytes()
    tail = ["add", path, "--in-place", "--placement", "tail"]
    assert "3 filters on id" in command(*tail, "-c", "id", "--append").stdout
    once = path.read_bytes()
    command(*tail, "-c", "name")
    seen = command("inspect", path).stdout
    assert "6 filters (final, tail)" in seen
    assert "2 older footers under tails" in seen
    assert json.loads(command("inspect", path, "--json").stdout)["files"][0]["older_footers"] == 2
    assert "removed 3 filters" in command("remove", path, "--in-place", "--last").stdout
    assert path.read_bytes() == once
    assert "removed 3 filters" in command("remove", path, "--in-place", "--append").stdout
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["keys.parquet"]


def test_read_counts(keys: Path) -> None:
    first = pq.read_table(keys)["id"][0].as_py()
    for where in ([], ["id > 5"], [f"id = {first}"], ["id = -1"], ["--where", "name IS NULL AND id > 0"]):
        done = in_this_process("--quiet", "read", keys, *where, "--count")
        counted = f"{parquet_bloom.read_table(keys, *where[-1:]).num_rows}\n"
        assert (done.returncode, done.stdout) == (0, counted), where


def test_a_count_takes_no_options_of_rows(keys: Path) -> None:
    for words in (["--limit", "5"], ["-o", "x.csv"], ["--columns", "id"], ["--format", "csv"]):
        done = in_this_process("read", keys, "--count", *words)
        assert done.returncode == 2, words
        assert "--count prints a number, so leave out --" in done.stderr, words

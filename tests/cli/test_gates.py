"""Gates for continuous integration: exit status 0 where they hold, 1 with the reason where not; and annotations."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.denying import deny
from support.samples import FIXTURES, keys_table, write_keys

import parquet_bloom
from parquet_bloom.cli import run
from parquet_bloom.report.gates import annotation, min_skipped

ID = keys_table()["id"][0].as_py()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Three row groups, filters on id."""
    path = write_keys(tmp_path / "keys.parquet")
    parquet_bloom.add_filters(path, in_place=True, columns=["id"])
    return path


def test_min_skipped(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for predicate, percent, skipped in (
        (f"id = {ID}", "66.6", ""),
        (f"id = {ID}", "67", "2 of 3 row groups skipped, 66.67 %"),
        (f"id = {ID}", "0", ""),
        ("id = -1", "100", ""),
        ("id > 0", "1", "0 of 3 row groups skipped, 0 %"),
        ("id > 0", "0", ""),
    ):
        assert run(["check", str(keys), predicate, "--min-skipped", percent]) == bool(skipped), (predicate, percent)
        errors = [line for line in capsys.readouterr().err.splitlines() if "--min-skipped" in line]
        reason = f"parquet-bloom: --min-skipped: {skipped}; at least {percent} % were asked for"
        assert errors == [reason] * bool(skipped), "the reason, and only where it does not hold"
    assert run(["check", str(keys), "id = -1"]) == 1, "without a gate: whether anything is left"
    assert run(["check", str(keys), "id > 0"]) == 0


def test_errors_come_before_gates(keys: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no footer PAR1")
    both = [str(keys), str(tmp_path / "bad.parquet")]
    assert run(["check", *both, "id = -1", "--min-skipped", "0"]) == 2
    assert run(["inspect", *both, "--assert-filters", "id"]) == 2
    assert run(["verify", *both]) == 2
    assert run(["inspect", str(keys), "--assert-filters", "idd"]) == 2, "a column that is not there"
    assert run(["check", str(keys), "id = 5", "--min-skipped", "101"]) == 2


def test_no_row_groups_are_all_skipped(tmp_path: Path) -> None:
    path = tmp_path / "empty.parquet"
    pq.write_table(keys_table().slice(0, 0), path)
    assert min_skipped(parquet_bloom.check(path, "id = 5"), 100).holds


def test_assert_filters(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(keys), "--assert-filters", "id"]) == 0
    capsys.readouterr()
    assert run(["inspect", str(keys), "--column", "name", "--assert-filters", "id", "--assert-filters", "na*"]) == 1
    errors = capsys.readouterr().err
    reason = "name has no sound filter in 3 row groups (0, 1, 2)"
    assert errors == f"parquet-bloom: --assert-filters: {keys}: {reason}\n"


def test_row_groups_without_values_need_no_filter(tmp_path: Path) -> None:
    path = tmp_path / "nulls.parquet"
    values = [None] * 100 + [*range(100)]
    pq.write_table(pa.table({"id": pa.array(values, pa.int64())}), path, row_group_size=100)
    parquet_bloom.add_filters(path, in_place=True, columns=["id"])
    assert {f.row_group for f in parquet_bloom.inspect(path).files[0].filters} == {1}
    assert parquet_bloom.inspect(path, assert_filters=["id"]).files[0].lacking == {}
    bare = tmp_path / "bare.parquet"
    pq.write_table(pa.table({"id": pa.array(values, pa.int64())}), bare, row_group_size=100, write_statistics=False)
    assert parquet_bloom.inspect(bare, assert_filters=["id"]).files[0].lacking == {"id": [0, 1]}, "nobody can tell"


def test_filters_with_problems_are_none() -> None:
    path = FIXTURES / "spark/no_dictionary.parquet"
    (file,) = parquet_bloom.inspect(path, assert_filters=["boolean", "random_int64"]).files
    assert set(file.lacking) == {"boolean"}


def test_verify_says_what_is_wrong(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", str(keys)]) == 0
    deny(keys)
    capsys.readouterr()
    assert run(["verify", str(keys)]) == 1
    shown = capsys.readouterr().out
    assert "3 filters, 3 wrong" in " ".join(shown.split())
    assert "denies 400 of 400 stored values" in " ".join(shown.split())
    (command,) = [line.strip() for line in shown.splitlines() if line.startswith("  parquet-bloom ")]
    assert run(shlex.split(command)[1:]) == 0
    capsys.readouterr()
    assert run(["verify", str(keys)]) == 0, "the command that was printed mends them"
    assert "parquet-bloom add" not in capsys.readouterr().out


def test_a_sample_says_what_it_did_not_read(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = parquet_bloom.inspect(keys).files[0].filters[-1]
    data = bytearray(keys.read_bytes())
    data[one.offset + one.length - one.num_bytes : one.offset + one.length] = b"\x01" + bytes(one.num_bytes - 1)
    keys.write_bytes(data)
    assert run(["verify", str(keys)]) == 1
    capsys.readouterr()
    unread = "1 of 3 row groups verified"
    assert run(["verify", str(keys), "--sample", "1"]) == 0
    assert unread in capsys.readouterr().out
    status, lines = annotations(["verify", str(keys), "--sample", "1"], capsys)
    assert (status, lines) == (0, [f"::notice title=parquet-bloom verify::{unread}"])


def annotations(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    status = run([*words, "--output-format", "github"])
    lines = capsys.readouterr().out.splitlines()
    assert all(
        re.fullmatch(r"::(notice|warning|error) (file=[^:,]+,)?title=parquet-bloom[ a-z]*::.+", s) for s in lines
    )
    return status, lines


def test_annotations_of_github(keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = annotations(["check", str(keys), f"id = {ID}", "--min-skipped", "90"], capsys)
    assert status == 1
    assert lines[0].startswith("::notice title=parquet-bloom check::2 of 3 row groups skipped")
    reason = "2 of 3 row groups skipped, 66.67 %25; at least 90 %25 were asked for"
    assert lines[1:] == [f"::error title=parquet-bloom check::{reason}"]
    status, lines = annotations(["inspect", str(keys), "--assert-filters", "id"], capsys)
    assert (status, lines) == (0, []), "nothing to tell"
    status, lines = annotations(["inspect", str(keys), "--assert-filters", "name"], capsys)
    reason = "name has no sound filter in 3 row groups (0, 1, 2)"
    assert (status, lines) == (1, [f"::error file={keys},title=parquet-bloom inspect::{reason}"])
    odd = FIXTURES / "spark/no_dictionary.parquet"
    status, lines = annotations(["inspect", str(odd)], capsys)
    assert status == 0
    assert lines[0].startswith(f"::warning file={odd},title=parquet-bloom inspect::")
    deny(keys)
    status, lines = annotations(["verify", str(keys)], capsys)
    text = "3 filters wrong; the first: row group 0, id: denies 400 of 400 stored values"
    assert (status, lines) == (1, [f"::error file={keys},title=parquet-bloom verify::{text}"])
    status, lines = annotations(["verify", str(tmp_path / "nowhere.parquet")], capsys)
    assert status == 2
    assert len(lines) == 1
    assert lines[0].startswith("::error title=parquet-bloom::")


def test_signs_that_github_would_read_are_escaped() -> None:
    line = annotation("error", "100 %\n::error::no", "a, b", "c:\\x,y.parquet")
    assert line == "::error file=c%3A\\x%2Cy.parquet,title=a%2C b::100 %25%0A::error::no"

"""Releases that break on right filters: the list itself, and what add, advise, write_table and engines make of it."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bloom
from parquet_bloom.cli import run
from parquet_bloom.errors import RequestError
from parquet_bloom.facts.known import (
    ALL,
    KINDS,
    PAGE_INDEX,
    RUN,
    WIDE_DECIMAL,
    check_engine,
    facts_of,
    hazards,
    release_number,
)
from parquet_bloom.format.forms import FORMATS

PLACEMENTS = {"footer", "chunk-start", "tail"}
LOSES = "DuckDB 1.5.3 loses rows over "
DUCKDB = "take DuckDB 2.0.0 or later (https://github.com/duckdb/duckdb/issues/23053)"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two columns that `add` chooses by itself: random numbers, and random bytes."""
    ids = [i * 2654435761 % 2**40 for i in range(4000)]
    table = pa.table({"id": ids, "token": pa.array([i.to_bytes(8, "big") for i in ids], pa.binary())})
    path = tmp_path_factory.mktemp("hazards") / "events.parquet"
    pq.write_table(table, path, row_group_size=1000)
    return path


def unfolded(text: str) -> str:
    """Lines as one: where COLUMNS is set they are folded at spaces."""
    return " ".join(text.split())


# --- the list -------------------------------------------------------------------------------------


def test_a_hazard_has_its_source_and_versions_that_can_be_compared() -> None:
    for hazard in hazards():
        assert facts_of(hazard.engine) is not None
        assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", hazard.source), hazard.source
        assert hazard.versions, hazard.source
        for first, below in hazard.versions:
            numbers = [release_number(one) for one in (first, below) if one]
            assert None not in numbers, hazard.source
            assert numbers == sorted(numbers), "the first comes before the one that ends the range"  # type: ignore[type-var]
        assert hazard.role in ("reads", "writes")
        assert hazard.how == "read" or (hazard.how == RUN and hazard.tried), "who ran something says what"
        assert hazard.how != RUN or re.search(r"\d+\.\d+", hazard.tried), "and which releases"
        assert set(hazard.types) <= {ALL, "boolean", WIDE_DECIMAL, *KINDS}, hazard.source
        assert set(hazard.forms) <= {ALL, *FORMATS, PAGE_INDEX}, hazard.source
        assert set(hazard.placements) <= {ALL, *PLACEMENTS}, hazard.source
        assert hazard.effect, hazard.source
        assert hazard.avoid, hazard.source


def test_the_reports_that_the_list_began_with_are_in_it() -> None:
    sources = " ".join(f"{one.source} {one.tried}" for one in hazards())
    for known in ("chdb-io/chdb#587", "pull/102385", "pull/112498", "trino/pull/23604"):
        assert known in sources, known
    assert any(one.types == ("float16",) and one.engine == "duckdb" for one in hazards())
    assert any(one.types == ("boolean",) and one.engine == "parquet-java" for one in hazards())


def test_a_version_is_compared_by_its_numbers() -> None:
    (blobs,) = (one for one in hazards() if one.source.endswith("duckdb/issues/23053"))
    assert blobs.versions == (("1.5.0", "2.0.0"),)
    for version in ("1.5.0", "1.5", "1", "1.5.6", "1.5.99.1", "1.10.0", "1.5.3.dev7", "v1.5.3"):
        assert blobs.hits_version(version), version
    for version in ("1.4.5", "2.0.0", "2.0", "2", "10.0", "1.4", "", "nightly"):
        assert not blobs.hits_version(version), version


def test_a_backport_ends_one_range_of_several() -> None:
    (short,) = (one for one in hazards() if one.source.endswith("pull/112498"))
    told = {
        v: short.hits_version(v) for v in ("25.3", "26.3", "26.3.18.25", "26.3.18.26", "26.5.7.48", "26.6.1", "26.8")
    }
    assert told == {
        "25.3": False, "26.3": True, "26.3.18.25": True, "26.3.18.26": False, "26.5.7.48": False, "26.6.1": True,
        "26.8": False,
    }  # fmt: skip
    (widened,) = (one for one in hazards() if one.source.endswith("trino/issues/30544"))
    assert widened.hits_version(""), "an open end is about every version, an unknown one too"


# --- add ------------------------------------------------------------------------------------------


def test_what_add_chooses_leaves_out_what_the_engine_breaks_on(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    for placement in sorted(PLACEMENTS):
        how = {"overwrite": True, "placement": placement}
        for columns in (None, ["*"]):  # a pattern names no column
            (file,) = parquet_bloom.add_filters(path, out, columns=columns, engine="duckdb@1.5.3", **how).files
            assert {one.column for one in file.filters} == {"id"}, placement
            assert [(one.column, one.reason) for one in file.skipped] == [("token", LOSES + "its filters: " + DUCKDB)]
            assert file.warnings == []
        (file,) = parquet_bloom.add_filters(path, out, engine="duckdb@2.0.0", **how).files
        assert {one.column for one in file.filters} == {"id", "token"}, placement
        assert file.skipped == []


def test_a_column_that_is_named_gets_its_filter_and_a_warning(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out.parquet")
    command = ["add", str(path), "-o", out, "-c", "token", "-c", "id", "--engine", "duckdb@1.5.3"]
    assert run(command) == 0
    shown = capsys.readouterr()
    assert f"parquet-bloom: warning: {LOSES}filters on token: {DUCKDB}\n" in shown.err
    assert run([*command, "--overwrite", "--json"]) == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert file["warnings"] == [f"{LOSES}filters on token: {DUCKDB}"]
    assert {one["column"] for one in file["filters"]} == {"id", "token"}


def test_what_add_leaves_out_is_said_on_the_terminal(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["add", str(path), "-o", str(tmp_path / "out.parquet"), "--engine", "clickhouse@26.3"]) == 0
    shown = capsys.readouterr()
    assert "ClickHouse 26.3 loses rows or crashes over its filters: take ClickHouse 26.3.10.10" in unfolded(shown.out)
    assert "warning" not in shown.err
    assert not parquet_bloom.inspect(tmp_path / "out.parquet").files[0].filters


def test_no_engine_named_leaves_out_what_the_newest_release_of_one_breaks_on(tmp_path: Path) -> None:
    digits = [Decimal(i * 2654435761 % 2**40) for i in range(4000)]
    wide, narrow = (pa.array(digits, kind) for kind in (pa.decimal256(50, 5), pa.decimal128(38, 5)))
    pq.write_table(pa.table({"wide": wide, "narrow": narrow}), tmp_path / "a.parquet", row_group_size=1000)
    reason = "DuckDB (from 1.2.0) loses rows over its filters: leave such columns without filters "
    out = tmp_path / "out.parquet"
    for columns in (None, ["*"]):
        (file,) = parquet_bloom.add_filters(tmp_path / "a.parquet", out, columns=columns, overwrite=True).files
        assert {one.column for one in file.filters} == {"narrow"}
        (skipped,) = file.skipped
        assert skipped.column == "wide"
        assert skipped.reason.startswith(reason)
    advice = {one.column: one for one in parquet_bloom.advise(tmp_path / "a.parquet").columns}
    assert advice["narrow"].advised
    assert advice["wide"].reason.startswith(reason)
    (file,) = parquet_bloom.add_filters(tmp_path / "a.parquet", out, engine="spark", overwrite=True).files
    assert {one.column for one in file.filters} == {"narrow", "wide"}, "of Spark nothing is known"
    (file,) = parquet_bloom.add_filters(tmp_path / "a.parquet", out, columns="wide", overwrite=True).files
    assert {one.column for one in file.filters} == {"wide"}
    (warning,) = file.warnings
    assert warning.startswith("DuckDB (from 1.2.0) loses rows over filters on wide: ")


def test_a_condition_that_no_file_shows_is_a_note(path: Path, tmp_path: Path) -> None:
    (file,) = parquet_bloom.add_filters(path, tmp_path / "out.parquet", engine="clickhouse@26.7").files
    assert {one.column for one in file.filters} == {"id", "token"}
    assert file.warnings == []
    (line,) = (one for one in file.engine_notes if "NULL" in one)
    assert line.startswith(
        "ClickHouse 26.7 loses rows over filters on id, token where a column with NULLs is read as a "
    )


def test_older_forms_are_not_spoken_of(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    (file,) = parquet_bloom.add_filters(path, out, spec="parquet-41", columns=["*"], engine="clickhouse@26.3").files
    assert {one.column for one in file.filters} == {"id", "token"}


def test_write_table_leaves_out_as_add_does(path: Path, tmp_path: Path) -> None:
    table = pq.read_table(path)
    written = parquet_bloom.write_table(table, tmp_path / "a.parquet", row_group_size=1000, engine="duckdb@1.5")
    assert written is not None
    assert {one.column for one in written.filters} == {"id"}
    named = parquet_bloom.write_table(table, tmp_path / "b.parquet", bloom_filters=["token"], engine="duckdb@1.5")
    assert named is not None
    assert {one.column for one in named.filters} == {"token"}
    assert len(named.warnings) == 1


WRONG = {
    "duckbd@1.5": r"^engine 'duckbd@1\.5': nothing is known of it; there are duckdb, ",
    "duckdb@": r"'' is no version such as 2\.0 or 26\.3\.9\.1; of DuckDB something is known of: 2\.0\.0, ",
    "duckdb@new": r"'new' is no version .* 1\.5\.0 to before 2\.0\.0, ",
    "clickhouse lts": r"'lts' is no version .* 25\.11 to before 26\.3\.10\.10",
    "trino@x": r"'x' is no version .*: all versions, before 460, before 436$",
}


def test_a_wrong_engine_or_version_is_an_error_that_lists_the_known(path: Path, tmp_path: Path) -> None:
    for engine, message in WRONG.items():
        with pytest.raises(RequestError, match=message):
            parquet_bloom.add_filters(path, tmp_path / "out.parquet", engine=engine)
        with pytest.raises(RequestError, match=message):
            parquet_bloom.advise(path, engine=engine)
    assert not list(tmp_path.iterdir())


def test_an_at_and_a_space_mean_the_same() -> None:
    assert check_engine("DuckDB@1.5.3") == check_engine("duckdb 1.5.3") == check_engine(" duckdb@ 1.5.3 ")


# --- advise and engines ---------------------------------------------------------------------------


def test_advise_does_not_advise_what_the_engine_breaks_on(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert parquet_bloom.advise(path, engine="duckdb@2.0.0").advised == ["id", "token"]
    advice = parquet_bloom.advise(path, engine="clickhouse@26.3.9.1")
    assert advice.advised == []
    assert all("ClickHouse 26.3.9.1 loses rows or crashes" in one.reason for one in advice.columns)
    assert run(["advise", str(path), "--engine", "clickhouse@26.3"]) == 0
    assert "loses rows or crashes" in unfolded(capsys.readouterr().out)


def test_engines_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    shown = ""
    for name in ("clickhouse", "trino", "datafusion"):
        assert run(["engines", "--engine", name]) == 0
        shown += unfolded(capsys.readouterr().out)
    assert "ClickHouse, 25.11 to before 26.3.10.10: loses rows or crashes, all types; take ClickHouse" in shown
    assert "Trino, before 460: fails as it writes its own filters, all types" in shown
    assert (
        "DataFusion, 43.0.0 to before 51.0.0: fails, all types, where some column chunks of the file have an" in shown
    )
    assert "DuckDB" not in shown
    assert run(["engines", "--engine", "duckdb", "--kind", "float16", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["hazards"]
    assert [(one["types"], one["ours"], one["versions"]) for one in found] == [(["float16"], False, [["1.3.0", ""]])]
    assert len(parquet_bloom.engines().hazards) == len(hazards())

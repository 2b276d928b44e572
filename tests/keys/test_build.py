"""Builds of key indexes: entries against brute force, builds that are killed, files that change meanwhile."""

from __future__ import annotations

import math
import os
import shutil
import signal
import struct
import time
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.repeats import more_then_slow

import parquet_bloom
from keys.key_indexes import (
    assert_same,
    by_pyarrow,
    content_of,
    hashed,
    in_a_child,
    manifest_of,
    parts_of,
    read_entries,
    said_of,
    same_rows,
)
from parquet_bloom.errors import ConflictError, RefusedTypeError, RequestError, StorageError, UnknownColumnError
from parquet_bloom.keys import build
from parquet_bloom.keys.build import build_index

# Values as the format's PLAIN encoding has them: little-endian numbers, texts without their length.
PLAIN: dict[str, tuple[pa.DataType, list[Any], Callable[[Any], bytes]]] = {
    "int8": (pa.int8(), [-128, -1, 0, 127], lambda v: struct.pack("<i", v)),
    "uint8": (pa.uint8(), [0, 255], lambda v: struct.pack("<i", v)),
    "int32": (pa.int32(), [-(2**31), 0, 7, 2**31 - 1], lambda v: struct.pack("<i", v)),
    "uint32": (pa.uint32(), [0, 2**32 - 1], lambda v: struct.pack("<I", v)),
    "int64": (pa.int64(), [-(2**63), 0, 7, 2**63 - 1], lambda v: struct.pack("<q", v)),
    "uint64": (pa.uint64(), [0, 2**64 - 1], lambda v: struct.pack("<Q", v)),
    "single": (pa.float32(), [1.5, -2.25, float("inf")], lambda v: struct.pack("<f", v)),
    "double": (pa.float64(), [0.1, -1e300, float("-inf")], lambda v: struct.pack("<d", v)),
    "date": (pa.date32(), [date(2026, 1, 1), date(1969, 12, 31)],
             lambda v: struct.pack("<i", (v - date(1970, 1, 1)).days)),
    "text": (pa.string(), ["", "a", "é" * 50], lambda v: v.encode()),
    "bytes": (pa.binary(), [b"", b"\xff\x00", b"x" * 200], lambda v: v),
    "fixed": (pa.binary(3), [b"abc", b"\0\0\xff"], lambda v: v),
    "few": (pa.dictionary(pa.int8(), pa.string()), ["red", "green"], lambda v: v.encode()),
    "decimal": (pa.decimal128(38, 2), [Decimal("1.25"), Decimal("-7.00")],
                lambda v: int(v.scaleb(2)).to_bytes(16, "big", signed=True)),
}  # fmt: skip


def by_duckdb(path: Path) -> list[tuple[int, int]]:
    """The entries of one file, as another program reads them."""
    return duckdb.sql(f"SELECT hash, place FROM '{path}'").fetchall()


def write_kinds(folder: Path, rng: Random) -> dict[tuple[str, int], dict[str, set[Any]]]:
    """Files with a column of each type; returns the values of each row group."""
    folder.mkdir()
    held: dict[tuple[str, int], dict[str, set[Any]]] = {}
    for number in range(3):
        groups = []
        for group in range(rng.randint(1, 3)):
            columns = {}
            held[f"{number}.parquet", group] = own = {}
            for name, (kind, values, _) in PLAIN.items():
                few = [rng.choice([*values, None]) for _ in range(12)]
                own[name] = {one for one in few if one is not None}
                inner = kind.value_type if pa.types.is_dictionary(kind) else kind
                columns[name] = pa.array(few, inner).cast(kind)
            groups.append(pa.table(columns))
        with pq.ParquetWriter(folder / f"{number}.parquet", groups[0].schema, use_dictionary=number == 1) as writer:
            for table in groups:
                writer.write_table(table)
    return held


def test_entries_are_the_hashes_of_the_values(tmp_path: Path) -> None:
    """Another library hashes the values as the format has them, and another program reads the entries."""
    held = write_kinds(tmp_path / "data", Random(3))
    build_index(tmp_path / "data", list(PLAIN), tmp_path / "index")
    manifest = manifest_of(tmp_path / "index")
    assert [column.name for column in manifest.columns] == list(PLAIN)
    for number, name in enumerate(PLAIN):
        [bits] = {column.bits for segment in manifest.segments if (column := segment.column(number))}
        plain = PLAIN[name][2]
        wanted = {place: {hashed(plain(one), bits) for one in own[name]} for place, own in held.items() if own[name]}
        for read in (by_pyarrow, by_duckdb):
            assert read_entries(tmp_path / "index", number, read) == wanted, name


def test_parts_are_sorted_and_have_checksums(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    ids = np.random.default_rng(1).integers(0, 1 << 60, 70_000)
    pq.write_table(pa.table({"id": [*ids, *ids]}), tmp_path / "data/a.parquet", row_group_size=70_000)
    report = build_index(tmp_path / "data", "id", tmp_path / "index")
    [part] = parts_of(tmp_path / "index")
    entries = by_pyarrow(part)
    assert entries == sorted(set(entries))
    distinct = {hashed(int(one).to_bytes(8, "little"), report.columns[0].bits) for one in ids}
    assert len(entries) == report.columns[0].entries == 2 * len(distinct)
    with pq.ParquetFile(part) as file:
        assert max(file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)) == 1 << 15
    assert report.bytes == sum(map(len, content_of(tmp_path / "index").values()))


# --- killed -----------------------------------------------------------------------------------------


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sorting spills every few files, and these are handed over one by one."""
    monkeypatch.setattr(build, "_RUN_ROWS", 4000)
    before = parquet_bloom.set_limits(max_memory=256 << 10)
    yield
    parquet_bloom.set_limits(max_memory=before.max_memory)


def write_ids(folder: Path, files: int = 24, rows: int = 3000) -> None:
    folder.mkdir()
    rng = np.random.default_rng(5)
    for number in range(files):
        columns = {name: rng.integers(0, 1 << 60, rows) for name in ("a", "b")}
        pq.write_table(pa.table(columns | {"t": [f"t{n % 99}" for n in range(rows)]}),
                       folder / f"{number:03}.parquet", row_group_size=1000)  # fmt: skip


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that no test changes."""
    folder = tmp_path_factory.mktemp("build") / "data"
    write_ids(folder)
    return folder


@pytest.fixture
def whole(ids: Path, little_memory: None) -> Path:
    """Their index over `a` and `t`, by a build that nobody kills, once."""
    if not (ids.parent / "whole/manifest.json").exists():
        build_index(ids, ["a", "t"], ids.parent / "whole")
    return ids.parent / "whole"


def killed_at(files_done: int, source: Path, columns: Any, index: Path) -> None:
    """A build in a child process that is killed once so many files are done."""

    def killing(progress: parquet_bloom.Progress) -> None:
        if progress.files_done == files_done:
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_a_child(lambda: build_index(source, columns, index, progress=killing)) == signal.SIGKILL
    assert not (index / "manifest.json").exists()


def test_a_killed_build_goes_on_and_writes_the_same(ids: Path, whole: Path, tmp_path: Path, monkeypatch: Any) -> None:
    decoded: list[int] = []
    real = build._decode
    monkeypatch.setattr(build, "_decode", lambda one, *rest: (decoded.append(1), real(one, *rest))[1])
    for files_done in (1, 23):
        index = tmp_path / str(files_done)
        killed_at(files_done, ids, ["a", "t"], index)
        decoded.clear()
        build_index(ids, ["a", "t"], index)
        assert_same(index, whole)
        assert not (index / "build").exists()
    assert len(decoded) < 24 - 23 + 6, "files that were spilled are not decoded again"


@pytest.mark.parametrize("seed", [0, *more_then_slow(range(1, 3), 1)])
def test_a_build_that_is_killed_again_and_again_writes_the_same(
    seed: int, ids: Path, tmp_path: Path, little_memory: None
) -> None:
    begun = time.perf_counter()
    build_index(ids, ["a", "t"], tmp_path / "whole")
    taken = time.perf_counter() - begun
    rng = Random(seed)
    for _ in range(6):
        status = in_a_child(
            lambda: build_index(ids, ["a", "t"], tmp_path / "index", overwrite=True),
            killed_after=rng.random() * 1.2 * taken,
        )
        assert status in (0, signal.SIGKILL)
        if status == 0:
            assert said_of(tmp_path / "index") == said_of(tmp_path / "whole")
    build_index(ids, ["a", "t"], tmp_path / "index", overwrite=True)
    assert_same(tmp_path / "index", tmp_path / "whole")


OTHER_PLANS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "the columns' order": (["b", "a"], {}),
    "another column": (["b"], {}),
    "a column of another type": (["t"], {}),
    "the rate": (["a", "b"], {"false_places": 1e-6}),
}


def torn_runs(build: Path) -> None:
    """More than the last note says."""
    for run in build.glob("*/*-*"):
        with run.open("ab") as out:
            out.write(bytes(24))


def another_journal(build: Path) -> None:
    """Lines without an end, but of another plan."""
    (build / "journal").write_text('{"plan": "of another one"}\n' * 3)
    os.truncate(build / "journal", 1 << 40)


DAMAGED_BUILDS: dict[str, Callable[[Path], Any]] = {
    "a torn journal": lambda build: (build / "journal").write_bytes((build / "journal").read_bytes()[:-9]),
    "holes": lambda build: os.truncate(build / "journal", 1 << 40),  # a TiB of them behind the lines
    "deep": lambda build: (build / "journal").write_text("[" * 100_000),
    "another": another_journal,
    "torn runs": torn_runs,
}


def test_what_a_killed_build_left_counts_for_the_same_plan_only(tmp_path: Path, little_memory: None) -> None:
    data, left = tmp_path / "data", tmp_path / "left"
    write_ids(data, files=12)
    killed_at(10, data, ["a", "b"], left)
    build_index(data, ["a", "b"], tmp_path / "whole")

    def hold(case: str, whole: Path | None = None) -> None:
        columns, options = OTHER_PLANS.get(case, (["a", "b"], {}))
        index = Path(shutil.copytree(left, tmp_path / case))
        if case in DAMAGED_BUILDS:
            DAMAGED_BUILDS[case](index / "build")
        build_index(data, columns, index, **options)
        if whole is None:
            whole = tmp_path / f"whole, {case}"
            build_index(data, columns, whole, **options)
        assert content_of(index) == content_of(whole), case
        for name in columns:
            value = pq.read_table(data / "001.parquet")[name][0].as_py()
            assert same_rows(data, f"{name} = {value!r}", index) >= 1, case

    for case in DAMAGED_BUILDS:
        hold(case, tmp_path / "whole")
    for case in OTHER_PLANS:
        hold(case)
    table = pq.read_table(data / "001.parquet")
    values = pa.array([123456789, *table["a"].to_pylist()[1:]])
    pq.write_table(table.set_column(0, "a", values), data / "001.parquet", row_group_size=1000)
    hold("a file changed")


# --- files that change meanwhile --------------------------------------------------------------------


@pytest.mark.parametrize("rewrite", ["other bounds", "other rows", "gone"])
def test_a_file_that_changes_before_its_turn_comes(
    rewrite: str, tmp_path: Path, little_memory: None, monkeypatch: Any
) -> None:
    """Its footer was read before it changed, and its values are read after."""
    data, last = tmp_path / "data", tmp_path / "data/005.parquet"
    write_ids(data, files=6)
    real = build.plan_of

    def changing(*arguments: Any, **more: Any) -> Any:
        plan = real(*arguments, **more)
        if rewrite == "gone":
            last.unlink()
        else:
            n = 3000 if rewrite == "other bounds" else 2500
            table = pa.table({"a": np.arange(n) - 10**6, "b": np.arange(n) - 10**6, "t": ["new"] * n})
            pq.write_table(table, last, row_group_size=1000)
        return plan

    monkeypatch.setattr(build, "plan_of", changing)
    try:
        build_index(data, ["a", "t"], tmp_path / "index")
    except (ConflictError, StorageError):
        assert not (tmp_path / "index/manifest.json").exists()
        return
    assert rewrite == "other bounds"
    assert same_rows(data, "a = -1000000 OR t = 'new'", tmp_path / "index") == 3000


# --- what is refused, and what is written -----------------------------------------------------------


def test_an_index_that_is_there_is_replaced_only_if_that_is_wanted(tmp_path: Path) -> None:
    data, index = tmp_path / "data", tmp_path / "index"
    write_ids(data, files=2)
    build_index(data, ["a", "b"], index)
    before = content_of(index)
    with pytest.raises(StorageError, match="manifest.json"):
        build_index(data, ["b"], index)
    assert content_of(index) == before
    build_index(data, ["b"], index, overwrite=True)
    after = content_of(index)
    assert len([name for name in after if name.startswith("columns/")]) == 1, "nothing of the old one is left"
    assert len([name for name in after if name.startswith("segments/")]) == 1
    value = pq.read_table(data / "000.parquet")["b"][7].as_py()
    assert same_rows(data, f"b = {value}", index) == 1


def test_a_process_that_has_an_index_open_takes_the_new_one(tmp_path: Path) -> None:
    data, index = tmp_path / "data", tmp_path / "index"
    write_ids(data, files=2)
    build_index(data, ["a"], index)
    values = {name: pq.read_table(data / "000.parquet")[name][7].as_py() for name in ("a", "b")}
    for name in ("a", "b", "a"):
        build_index(data, [name], index, overwrite=True)
        for asked, value in values.items():
            assert same_rows(data, f"{asked} = {value}", index) == 1
        closed = parquet_bloom.check(data, f"{name} = 5", index=index)
        assert not any(not one.skipped for one in closed)


def test_an_index_among_the_data_is_refused(tmp_path: Path) -> None:
    write_ids(tmp_path / "data", files=1)
    (tmp_path / "part=1").mkdir()
    os.link(tmp_path / "data/000.parquet", tmp_path / "part=1/a.parquet")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    named: Any = [tmp_path / "data", tmp_path / "part=1/a.parquet"]
    places = [(named, where) for where in ("data", "data/index", "data/deep/index", "link/index", "part=1/index")]
    for source, where in (*places, (f"{tmp_path}/**/*.parquet", "index")):
        with pytest.raises(RequestError, match="read as data; name a folder beside it"):
            build_index(source, ["a"], tmp_path / where)
    assert not list(tmp_path.rglob("manifest.json"))
    assert not (tmp_path / "index").exists()


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    data, index = tmp_path / "data", tmp_path / "index"
    write_ids(data, files=3)
    said = build_index(data, ["a", "t"], index, dry_run=True)
    assert not index.exists()
    done = build_index(data, ["a", "t"], index)
    for field in ("files", "row_groups", "rows", "segments"):
        assert getattr(said, field) == getattr(done, field), field
    assert said.columns[0].bits == done.columns[0].bits
    assert 0.5 * done.columns[0].bytes < said.columns[0].bytes < 1.5 * done.columns[0].bytes
    before = content_of(index)
    build_index(data, ["b"], index, dry_run=True)
    assert content_of(index) == before


def test_an_error_leaves_no_manifest(tmp_path: Path) -> None:
    data, index = tmp_path / "data", tmp_path / "index"
    write_ids(data, files=3)
    broken = bytearray((data / "001.parquet").read_bytes())
    at = pq.read_metadata(data / "001.parquet").row_group(1).column(0).data_page_offset
    broken[at : at + 40] = bytes(40)
    (data / "001.parquet").write_bytes(broken)
    with pytest.raises(parquet_bloom.ParquetBloomError, match=r"001\.parquet"):
        build_index(data, ["a"], index)
    assert not (index / "manifest.json").exists()
    (data / "001.parquet").unlink()
    build_index(data, ["a"], index)
    value = pq.read_table(data / "000.parquet")["a"][7].as_py()
    assert same_rows(data, f"a = {value}", index) == 1


def test_what_cannot_be_indexed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data/p=1/a.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"a": [1], "flag": [True], "p": [5]}), path)
    refused: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        ([], {}, RequestError, "at least one"),
        ("nothing", {}, UnknownColumnError, "nothing"),
        ("flag", {}, RefusedTypeError, "flag"),
        ("p", {}, RequestError, "folders' names"),
        *(("a", {"false_places": rate}, RequestError, "positive number") for rate in (0, -1, math.nan, math.inf)),
    ]
    for columns, options, error, match in refused:
        with pytest.raises(error, match=match):
            build_index(tmp_path / "data", columns, tmp_path / "index", **options)
    assert not (tmp_path / "index").exists()

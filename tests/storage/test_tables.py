"""Folders of tables: who reads rows is refused, who looks at filters is told, who forces is warned."""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands import error_lines
from support.samples import ROW_GROUPS, ROWS, digest, write_keys

import parquet_bloom
from parquet_bloom import lance
from parquet_bloom.cli import run
from parquet_bloom.errors import StorageError, TableFormatError, TableWarning

LOGS = {
    "Delta": "_delta_log/00000000000000000000.json",
    "Hudi": ".hoodie/hoodie.properties",
    "Iceberg": "metadata/00000-5449f1de-72aa-4012-a2a5-28d2b89d4fb8.metadata.json",
}
# What has a table's folders and is none.
NO_LOGS = (
    "_delta_log/notes.txt", "_delta_log/", ".hoodie/", "metadata/", "metadata/about.json", "metadata/v1.json",
    "metadata/events.metadata.json", "delta_log/00000000000000000000.json", "metadata/deeper/v1.metadata.json",
)  # fmt: skip
OTHER_LOGS = {
    "_delta_log/00000000000000000010.checkpoint.parquet": "Delta", "_delta_log/_last_checkpoint": "Delta",
    "metadata/v3.metadata.json": "Iceberg", "metadata/v3.gz.metadata.json": "Iceberg",
    "metadata/00002-a.metadata.json.gz": "Iceberg", "metadata/version-hint.text": "Iceberg",
    "metadata/current.metadata.json": "Iceberg", "metadata/current.metadata.json.gz": "Iceberg",
}  # fmt: skip
READS: dict[str, Callable[..., Any]] = {
    "check": lambda path, **how: parquet_bloom.check(path, "id = 5", **how),
    "prune": lambda path, **how: parquet_bloom.prune(path, "id = 5", **how),
    "prune_keys": lambda path, **how: parquet_bloom.prune(path, column="id", values=[5], **how),
    "read_table": parquet_bloom.read_table,
    "read_batches": lambda path, **how: list(parquet_bloom.read_batches(path, **how)),
    "count": parquet_bloom.count,
    "dataset": parquet_bloom.dataset,
    "Scan": lambda path, **how: parquet_bloom.Scan(path, **how).to_table(),
}
ROWS_THERE = ROW_GROUPS * ROWS


def log(folder: Path, name: str, text: str = "{}") -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith("/"):
        path.mkdir(exist_ok=True)
    else:
        path.write_text(text)


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """Which log there is: where kinds differ, each of them, else one."""
    return getattr(request, "param", "Iceberg")


each_kind = pytest.mark.parametrize("kind", LOGS, indirect=True)


@pytest.fixture
def table(tmp_path: Path, kind: str) -> Path:
    """A folder with one file of 1,200 rows below a partition, and a log."""
    folder = tmp_path / "lake" / "events"
    (folder / "day=1").mkdir(parents=True)
    write_keys(folder / "day=1" / "keys.parquet")
    log(folder, LOGS[kind])
    return folder


def test_rows_of_a_table_are_refused_unless_its_files_are_wanted_as_they_are(tmp_path: Path) -> None:
    write_keys(tmp_path / "keys.parquet")
    log(tmp_path, LOGS["Delta"])
    for read in READS.values():
        with pytest.raises(TableFormatError, match=r"is a Delta table, .*dead.*raw_files=True"):
            read(tmp_path)
        read(tmp_path, raw_files=True)


def test_whatever_is_named_of_a_table(table: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = table / "day=1" / "keys.parquet"
    (table.parent / "link").symlink_to(table)
    (table.parent / "file-link.parquet").symlink_to(file)
    said = {
        table: f"is an? {kind} table", f"{table}/": f"is an? {kind} table", table.parent: f"holds the {kind} table",
        f"{table}/day=1": f"lies in the {kind} table {table}", file: f"lies in the {kind} table {table}",
        f"{table}/*/*.parquet": f"lies in the {kind} table", f"{table.parent}/e*": f"{table}: is an? {kind} table",
        f"{table.parent}/**/*.parquet": f"lies in the {kind} table {table}", f"file://{file}": "lies in the",
        table.parent / "link/day=1": f"lies in the {kind} table", table.parent / "file-link.parquet": "lies in the",
    }  # fmt: skip
    for name, what in said.items():
        with pytest.raises(TableFormatError, match=what) as refused:
            parquet_bloom.count(name)
        start = str(table) if "*" in str(name) and "is an" in what else str(name).removeprefix("file://")
        assert str(refused.value).split(": ")[0].rstrip("/") == start.rstrip("/"), "it says what was named"
        assert "\n" not in str(refused.value)
        assert parquet_bloom.count(name, raw_files=True) >= ROWS_THERE
    monkeypatch.chdir(table / "day=1")
    with pytest.raises(TableFormatError, match=f"keys.parquet: lies in the {kind} table {table}"):
        parquet_bloom.count("keys.parquet")


def test_several_tables_below_a_folder(table: Path, kind: str) -> None:
    shutil.copytree(table, table.parent / "more" / "users")
    plain = table.parent / "more" / "plain" / "day=3"
    plain.mkdir(parents=True)
    write_keys(plain / "keys.parquet")
    with pytest.raises(TableFormatError, match=f"holds 2 tables, such as the {kind} table {table}, whose"):
        parquet_bloom.count(table.parent)
    assert parquet_bloom.count(plain.parent) == ROWS_THERE, "a neighbour is no table"
    assert parquet_bloom.count([table, table.parent / "more"], raw_files=True) == 3 * ROWS_THERE


def test_other_names_of_logs(tmp_path: Path) -> None:
    """And metadata of an odd name, which are known by what they say."""
    said = json.dumps({"format-version": 2, "location": "file:/x", "table-uuid": "1"})
    for i, (name, kind) in enumerate(OTHER_LOGS.items()):
        folder = tmp_path / str(i)
        folder.mkdir()
        write_keys(folder / "keys.parquet")
        log(folder, name, said if "current" in name else "{}")
        if name.endswith("current.metadata.json.gz"):
            (folder / name).write_bytes(gzip.compress(said.encode()))
        with pytest.raises(TableFormatError, match=f"is an? {kind} table"):
            parquet_bloom.count(folder)


def test_a_folder_that_only_looks_like_a_table(tmp_path: Path) -> None:
    for i, name in enumerate(NO_LOGS):
        folder = tmp_path / str(i)
        folder.mkdir()
        write_keys(folder / "keys.parquet")
        log(folder, name)
        log(folder, "metadata/x.metadata.json", '{"location": "here"}')
        os.mkfifo(folder / "metadata/y.metadata.json")  # nobody must wait for its other end
        assert parquet_bloom.count(folder / "keys.parquet") == ROWS_THERE, name
        assert parquet_bloom.inspect(folder).notes == []
        parquet_bloom.add_filters(folder, in_place=True, columns=["id"], sync=False)
    assert parquet_bloom.count(tmp_path) == len(NO_LOGS) * ROWS_THERE


@each_kind
def test_looking_at_filters_goes_on_with_a_note(table: Path, kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    write_keys(table / "second.parquet")
    for look, command in ((parquet_bloom.inspect, "inspect"), (parquet_bloom.verify, "verify")):
        if kind == "Delta":
            with pytest.raises(TableFormatError, match=r"is a Delta table, but its log .*raw_files=True"):
                look(table)
            report = look(table, raw_files=True)
            assert (len(report.files), report.notes) == (2, [])
            continue
        report = look(table)
        assert len(report.files) == 2
        assert report.notes == [
            f"{table} is {'an' if kind == 'Iceberg' else 'a'} {kind} table: files that its log no longer names "
            "may be among these"
        ]
        assert "lies in the" in look(table / "second.parquet").notes[0]
        capfd.readouterr()
        assert run([command, str(table)]) == 0
        assert capfd.readouterr().err == f"parquet-bloom: note: {report.notes[0]}\n", "once, not a file"


@each_kind
def test_writing_in_place_is_refused_and_forcing_it_warns(table: Path, kind: str) -> None:
    file = table / "day=1" / "keys.parquet"
    before = digest(file)
    with pytest.raises(TableFormatError, match=rf"keys.parquet: lies in the {kind} table .*force=True"):
        parquet_bloom.add_filters(file, in_place=True, columns=["id"], sync=False)
    assert digest(file) == before
    with pytest.warns(TableWarning, match=f"lies in the {kind} table .*`remove` in place undoes") as warned:
        report = parquet_bloom.add_filters(file, in_place=True, force=True, columns=["id"], sync=False)
    assert report.notes == [str(warned[0].message)]
    assert digest(file) != before
    with pytest.warns(TableWarning, match="lies in the"):
        back = parquet_bloom.remove_filters(file, in_place=True, force=True, sync=False)
    assert len(back.notes) == 1
    assert digest(file) == before


def test_copies_of_a_table_s_files_are_refused(table: Path, tmp_path: Path) -> None:
    """Dead files would come out as data."""
    out = tmp_path / "out"
    for write in (parquet_bloom.add_filters, parquet_bloom.remove_filters):
        with pytest.raises(TableFormatError, match=r"dead and deleted rows.*raw_files=True"):
            write(table, out, columns=["id"], sync=False)
        assert not out.exists()
    for how in ({"raw_files": True}, {"force": True, "overwrite": True}):
        assert len(parquet_bloom.add_filters(table, out, columns=["id"], sync=False, **how).files) == 1
    plain = write_keys(tmp_path / "plain.parquet")
    with pytest.raises(TableFormatError, match="whose log holds file sizes"):
        parquet_bloom.add_filters(plain, table / "new.parquet", raw_files=True, columns=["id"])


def test_a_zone_index_of_a_table(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "index"
    with pytest.raises(TableFormatError, match="raw_files=True"):
        lance.build_index(table, ["id"], out)
    assert not out.exists()
    lance.build_index(table, ["id"], out, raw_files=True)
    assert {one.status for one in lance.verify_index(out)} == {"right"}, "it names its files, nobody asks again"
    with pytest.raises(TableFormatError, match="raw_files=True"):
        parquet_bloom.count(table, "id = 5", index=out)
    assert parquet_bloom.count(table, "id = 5", index=out, raw_files=True) == 0


def test_the_commands_say_one_line(table: Path, kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = str(table)
    (tmp_path / "keys.txt").write_text("5\n")
    for arguments in (
        ["check", name, "id = 5"], ["read", name, "--where", "id = 5"], ["remove", name, "-o", str(tmp_path / "r")],
        ["index", "build", name, "-c", "id", "-o", str(tmp_path / "i")],
        ["locate", name, "-c", "id", "--keys", str(tmp_path / "keys.txt")],
        ["index", "build", "--kind", "lance", name, "-c", "id", "-o", str(tmp_path / "z")],
        ["add", name, "-c", "id", "-o", str(tmp_path / "o")],
    ):  # fmt: skip
        assert run(arguments) == 2, arguments
        said = capfd.readouterr().err
        assert said.startswith(f"parquet-bloom: {name}: is a")
        assert error_lines(said) == 1
        assert run([*arguments, "--raw-files"]) in (0, 1), arguments
        capfd.readouterr()
    assert run(["add", name, "-c", "id", "--in-place", "--force"]) == 0
    said = capfd.readouterr().err
    assert said.startswith(f"parquet-bloom: warning: {name} is a")
    assert error_lines(said) == 1
    with pytest.warns(TableWarning, match=kind):
        parquet_bloom.remove_filters(table, in_place=True, force=True)


# --- data elsewhere -------------------------------------------------------------------------------


def iceberg(folder: Path, version: int, data: Path | None) -> None:
    properties = {} if data is None else {"write.data.path": f"file://{data}"}
    said = {"format-version": 2, "location": f"file://{folder}", "properties": properties}
    log(folder, f"metadata/v{version}.metadata.json", json.dumps(said))


def test_a_table_whose_data_lie_elsewhere(tmp_path: Path) -> None:
    table, data, old = tmp_path / "events", tmp_path / "events data", tmp_path / "old"
    iceberg(table, 9, old)
    iceberg(table, 10, data)
    for read in (parquet_bloom.count, parquet_bloom.inspect):
        with pytest.raises(TableFormatError, match=f"events: is an Iceberg table whose data lie at file://{data}; "):
            read(table)
    (data / "a=1" / "b=2").mkdir(parents=True)
    file = write_keys(data / "a=1" / "b=2" / "keys.parquet")
    for name in (data, file.parent, data / "a=1"):
        with pytest.raises(TableFormatError, match=f"holds data of the Iceberg table {table}"):
            parquet_bloom.count(name)
    other = tmp_path / "other"
    other.mkdir()
    write_keys(other / "keys.parquet")
    assert parquet_bloom.count(other) == ROWS_THERE, "beside the table, but not its data"
    with pytest.raises(
        TableFormatError, match="holds data of the Iceberg table .*whose log holds file sizes.*force=True"
    ):
        parquet_bloom.add_filters(data, in_place=True, columns=["id"])
    with pytest.warns(TableWarning, match="holds data of the Iceberg table"):
        parquet_bloom.add_filters(data, in_place=True, force=True, columns=["id"], sync=False)


def test_a_table_whose_data_lie_beside_it_among_many_files(tmp_path: Path) -> None:
    for n in range(1200):
        (tmp_path / f"{n}.txt").touch()
    data = tmp_path / "data"
    iceberg(tmp_path / "events", 1, data)
    data.mkdir()
    write_keys(data / "keys.parquet")
    with pytest.raises(TableFormatError, match=f"holds data of the Iceberg table {tmp_path / 'events'}"):
        parquet_bloom.count(data)


def test_a_table_without_data(table: Path, kind: str) -> None:
    (table / "day=1" / "keys.parquet").unlink()
    for other, name in LOGS.items():
        shutil.rmtree(table)
        log(table, name)
        with pytest.raises(TableFormatError, match=f"is an? {other} table with no Parquet file in its folder"):
            parquet_bloom.count(table, raw_files=True)
    log(table.parent / "empty", "metadata/about.json")
    with pytest.raises(StorageError, match=r"no Parquet file .* in it"):
        parquet_bloom.count(table.parent / "empty")


def test_what_a_footer_says_is_a_note(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Files that were exported from a table are read; that they are is told once."""
    for i, (metadata, column, said) in enumerate((
        ({"iceberg.schema": "{}"}, "id", "an Iceberg table .its footer has iceberg.schema."),
        ({"org.apache.hudi.bloomfilter": "x"}, "id", "a Hudi table .its footer has Hudi's keys."),
        ({"hoodie_min_record_key": "x"}, "id", "a Hudi table"),
        ({}, "_hoodie_commit_time", "a Hudi table .it has a column _hoodie_commit_time."),
    )):  # fmt: skip
        folder, predicate = tmp_path / str(i), f"{column} = 1"
        folder.mkdir()
        for name in "ab":
            pq.write_table(pa.table({column: [1, 2]}).replace_schema_metadata(metadata), folder / f"{name}.parquet")
        for notes in (
            parquet_bloom.inspect(folder).notes, parquet_bloom.verify(folder).notes,
            parquet_bloom.check(folder, predicate).notes, parquet_bloom.Scan(folder, predicate).notes,
        ):  # fmt: skip
            assert len(notes) == 1
            assert notes[0].startswith(f"{folder / 'a.parquet'} was written for ")
            assert re.search(said, notes[0])
        caplog.clear()
        with caplog.at_level(logging.WARNING, "parquet_bloom"):
            assert parquet_bloom.count(folder) == 4
        assert len(caplog.messages) == 1
        assert parquet_bloom.Scan(folder, predicate, raw_files=True).notes == []
        capfd.readouterr()
        assert run(["check", str(folder), predicate]) == 0
        assert capfd.readouterr().err.count("parquet-bloom: note: ") == 1


def test_a_folder_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a look a file: a pattern over many files asks their folders, and those above, once each."""
    for part in range(3):
        (tmp_path / f"p={part}").mkdir()
        for i in range(5):
            pq.write_table(pa.table({"id": [i]}), tmp_path / f"p={part}" / f"{i}.parquet")
    asked: list[str] = []
    plain = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path=".": asked.append(str(path)) or plain(path))
    names = [str(tmp_path / f"p={part}" / f"{i}.parquet") for part in range(3) for i in range(5)]
    for sources in (tmp_path, f"{tmp_path}/*/*.parquet", names):
        asked.clear()
        assert parquet_bloom.count(sources) == 15
        looks = [path for path in asked if path.endswith("/_delta_log")]
        assert sorted(looks) == sorted(set(looks))
        assert len(looks) <= 4 + len(tmp_path.parents)
    asked.clear()
    parquet_bloom.count(names, raw_files=True)
    assert asked == []

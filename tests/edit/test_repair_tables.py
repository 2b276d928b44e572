"""`repair` of tables: files get right footers, and the commit that names them states right statistics of them.

Each table took over what a lying file states, and its own reader lost rows by it: before, after, and at old versions.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import shutil
import sqlite3
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, convert_to_deltalake, write_deltalake
from support.corpus import FIXTURES
from support.ducklake_tables import Lake
from support.footers import edited_footer
from support.iceberg_tables import Warehouse

import parquet_bloom as pb
from parquet_bloom._thrift.parquet.ttypes import KeyValue
from parquet_bloom.cli import run
from parquet_bloom.errors import RequestError

OLD = FIXTURES / "old_statistics"
N = 400
TABLE = pa.table(
    {
        "id": pa.array(range(-200, 200), pa.int64()),
        "name": [None if i % 5 == 0 else f"n{i % 50:02}é" for i in range(N)],
        "price": pa.array([Decimal(i - 100).scaleb(-2) for i in range(N)], pa.decimal128(12, 2)),
        "day": pa.array([dt.date(2020, 1, 1) + dt.timedelta(days=i) for i in range(N)], pa.date32()),
        "at": pa.array([dt.datetime(2020, 1, 1) + dt.timedelta(microseconds=i) for i in range(N)], pa.timestamp("us")),
        "real": [None if i % 3 else i / 8 - 20 for i in range(N)],
    }
)
QUESTIONS = {  # in SQL, and how many rows it has
    "id < -100": 100,
    "id IS NOT NULL": 400,
    "name IS NOT NULL": 320,
    "name = 'n01é'": 8,
    "price < 0": 100,
    "day = DATE '2020-01-01'": 1,
    "real < -15": 14,
    "real IS NOT NULL": 134,
}
LEAST: dict[str, bytes] = {  # that the footer states, which some rows are below
    "id": struct.pack("<q", 150),
    "name": b"n40",
    "price": struct.pack("<q", 20_000),
    "day": struct.pack("<i", 18_300 + 300),
    "real": struct.pack("<d", 20.0),
}


def padded(path: Path, size: int | None = None) -> Path:
    """A file of TABLE, of so many bytes by a text in its footer."""
    pq.write_table(TABLE, path, row_group_size=200, store_decimal_as_integer=True, use_dictionary=False)
    with edited_footer(path) as metadata:
        metadata.key_value_metadata = [KeyValue("padding", "x" * 1000)]
    if size is not None:
        more = size - path.stat().st_size
        with edited_footer(path) as metadata:
            metadata.key_value_metadata = [KeyValue("padding", "x" * (1000 + more))]
    return path


def lying_file(path: Path) -> None:
    """Of its columns wrong bounds, and null counts that say that nothing is there."""
    with edited_footer(padded(path)) as metadata:
        for group in metadata.row_groups:
            for chunk in group.columns:
                stated, name = chunk.meta_data.statistics, chunk.meta_data.path_in_schema[0]
                if name in LEAST:
                    stated.min_value = max(stated.min_value, LEAST[name]) if name == "name" else LEAST[name]
                    stated.max_value, stated.min, stated.max = LEAST[name], None, None
                if name in ("name", "real"):
                    stated.null_count = chunk.meta_data.num_values


class Kind(ABC):
    """A table of one file, with the log's own reader."""

    name: str
    options: dict[str, Any]
    old_versions = True  # keep what they state

    @abstractmethod
    def __init__(self, root: Path, file: Path) -> None: ...

    @abstractmethod
    def count(self, question: str, version: str | None = None) -> int: ...

    @abstractmethod
    def version(self) -> str: ...

    @abstractmethod
    def file(self) -> Path: ...

    @abstractmethod
    def append(self, rows: pa.Table) -> None: ...

    @abstractmethod
    def delete_all(self) -> None: ...

    def let_the_log_alone_lie(self, right: Path) -> None:
        """The file is another one by now, of the same size, with right statistics."""
        shutil.copy(right, self.file())

    def close(self) -> None:
        """What its reader has open."""
        return


class Delta(Kind):
    def __init__(self, root: Path, file: Path) -> None:
        self.root = root / "delta"
        self.root.mkdir()
        shutil.copy(file, self.root / "a.parquet")
        convert_to_deltalake(str(self.root))
        self.name, self.options = f"delta:{self.root}", {}

    def count(self, question: str, version: str | None = None) -> int:
        table = DeltaTable(str(self.root), version=None if version is None else int(version))
        asked = QueryBuilder().register("t", table).execute(f"SELECT count(*) AS n FROM t WHERE {question}")
        found = pa.table(asked.read_all())["n"][0].as_py()
        assert isinstance(found, int)
        return found

    def version(self) -> str:
        return str(DeltaTable(str(self.root)).version())

    def file(self) -> Path:
        [uri] = DeltaTable(str(self.root)).file_uris()
        return Path(uri.removeprefix("file://"))

    def append(self, rows: pa.Table) -> None:
        write_deltalake(str(self.root), rows, mode="append")

    def delete_all(self) -> None:
        DeltaTable(str(self.root)).delete()

    def edit_stats(self, edit: Callable[[dict[str, Any]], Any]) -> None:
        """Let the last add state something else; what `edit` returns, or the dict that it changed."""
        log = max((self.root / "_delta_log").glob("*.json"))
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for one in lines:
            if "add" in one:
                stats = json.loads(one["add"]["stats"])
                edited = edit(stats)
                one["add"]["stats"] = edited if isinstance(edited, str) else json.dumps(stats)
        log.write_text("\n".join(map(json.dumps, lines)))


class Iceberg(Kind):
    def __init__(self, root: Path, file: Path) -> None:
        self.warehouse = Warehouse(root)
        self.name, self.options = "iceberg:cat/ns.t", {"catalog_properties": self.warehouse.properties}
        table = self.warehouse.create(pq.read_schema(file))
        folder = Path(table.location().removeprefix("file://")) / "data"
        folder.mkdir(parents=True)
        shutil.copy(file, folder / "a.parquet")
        table.add_files([f"file://{folder}/a.parquet"])

    def count(self, question: str, version: str | None = None) -> int:
        text = question.replace("DATE ", "").replace("IS NOT NULL", "is not null")
        snapshot = None if version is None else int(version)
        return len(self.warehouse.load().scan(text, snapshot_id=snapshot).to_arrow())

    def version(self) -> str:
        snapshot = self.warehouse.load().current_snapshot()
        assert snapshot is not None
        return str(snapshot.snapshot_id)

    def file(self) -> Path:
        [file] = self.warehouse.read().files
        return Path(file.path)

    def append(self, rows: pa.Table) -> None:
        self.warehouse.load().append(rows)

    def delete_all(self) -> None:
        self.warehouse.load().delete("true")

    def close(self) -> None:
        self.warehouse.close()


class DuckLake(Kind):
    """The row of a file serves every snapshot, so the old ones are right too."""

    old_versions = False

    def __init__(self, root: Path, file: Path) -> None:
        self.lake = Lake(root, True)
        folder = self.lake.data / "main" / "t"
        folder.mkdir(parents=True)
        shutil.copy(file, folder / "a.parquet")
        self.lake.sql(
            f"CREATE TABLE t AS SELECT * FROM '{file}' LIMIT 0",
            f"CALL ducklake_add_data_files('lake', 't', '{folder}/a.parquet')",
        )
        self.lake.release()
        self.name, self.options = f"ducklake:{self.lake.name()}", {}

    def count(self, question: str, version: str | None = None) -> int:
        at = "" if version is None else f" AT (VERSION => {version})"
        found = self.lake.sql(f"SELECT count(*) FROM t{at} WHERE {question}")
        self.lake.release()
        number: int = found[0][0]
        return number

    def version(self) -> str:
        found = max(self.lake.snapshots())
        self.lake.release()
        return str(found)

    def append(self, rows: pa.Table) -> None:
        path = self.lake.data.parent / "rows.parquet"
        pq.write_table(rows, path)
        self.lake.sql(f"INSERT INTO t SELECT * FROM '{path}'")
        self.lake.release()

    def delete_all(self) -> None:
        self.lake.sql("DELETE FROM t")
        self.lake.release()

    def let_the_log_alone_lie(self, right: Path) -> None:
        """DuckDB remembers the footer of a file that it added, so the catalog is edited."""
        shutil.copy(right, self.file())
        with closing(sqlite3.connect(self.lake.data.parent / "meta.sqlite")) as catalog:
            for of in ("file", "table"):
                catalog.execute(f"UPDATE ducklake_{of}_column_stats SET min_value = max_value")
            nothing = "SET null_count = 400, value_count = 0 WHERE column_id = 2"
            catalog.execute(f"UPDATE ducklake_file_column_stats {nothing}")
            catalog.commit()

    def file(self) -> Path:
        [path] = [path for path in self.lake.data.rglob("*.parquet") if str(path) in self._named()]
        return path

    def _named(self) -> set[str]:
        from parquet_bloom.tables.ducklake.table import open_ducklake

        return {file.path for file in open_ducklake(self.lake.name(), None).snapshot().files}

    def close(self) -> None:
        self.lake.release()


KINDS: dict[str, type[Kind]] = {"delta": Delta, "iceberg": Iceberg, "ducklake": DuckLake}
MakeKind = Callable[[str, Path], Kind]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeKind]:
    made: list[Kind] = []

    def new(kind: str, file: Path) -> Kind:
        made.append(KINDS[kind](tmp_path, file))
        return made[-1]

    yield new
    for one in made:
        one.close()


def answers(kind: Kind, version: str | None = None) -> dict[str, int]:
    return {question: kind.count(question, version) for question in QUESTIONS}


def of_log(kind: Kind) -> list[str]:
    [file] = pb.verify(kind.name, statistics=True, **kind.options).files
    return sorted(f"{one.column} {one.statistic}" for one in file.wrong_statistics if one.statistic.startswith("log."))


@pytest.mark.parametrize("name", KINDS)
def test_rows_come_back_to_the_formats_own_reader(name: str, tmp_path: Path, make: MakeKind) -> None:
    lying_file(tmp_path / "lying.parquet")
    kind = make(name, tmp_path / "lying.parquet")
    before, version, old = answers(kind), kind.version(), kind.file().read_bytes()
    lost = {question for question, found in before.items() if found < QUESTIONS[question]}
    assert len(lost) >= 3, before
    assert of_log(kind)
    dry = pb.repair(kind.name, dry_run=True, **kind.options)
    assert (dry.commits, kind.version(), kind.file().read_bytes()) == ([], version, old)
    report = pb.repair(kind.name, **kind.options)
    assert [commit.files for commit in report.commits] == [1]
    assert (report.failed, report.files[0].mended > 0, report.files[0].mended_log > 0) == ([], True, True)
    assert len(report.files[0].wrong) == len(dry.files[0].wrong)
    assert answers(kind) == QUESTIONS
    new = kind.file().read_bytes()
    assert new.startswith(old), "no page is written again"
    assert pb.verify(kind.name, statistics=True, **kind.options).files[0].wrong_statistics == []
    assert answers(kind, version) == (before if kind.old_versions else QUESTIONS)
    assert pb.repair(kind.name, **kind.options).commits == []
    assert kind.file().read_bytes() == new


@pytest.mark.parametrize("name", KINDS)
def test_where_the_log_alone_lies_the_file_stays(name: str, tmp_path: Path, make: MakeKind) -> None:
    """As where a file was repaired or written anew after the log took its statistics over."""
    lying_file(tmp_path / "lying.parquet")
    right = padded(tmp_path / "right.parquet", (tmp_path / "lying.parquet").stat().st_size)
    kind = make(name, right if name == "ducklake" else tmp_path / "lying.parquet")
    kind.let_the_log_alone_lie(right)
    lies, before = of_log(kind), kind.file().read_bytes()
    assert lies
    assert answers(kind) != QUESTIONS
    report = pb.repair(kind.name, **kind.options)
    assert [commit.files for commit in report.commits] == [1]
    assert (report.files[0].mended, report.files[0].mended_log > 0, report.files[0].written) == (0, True, False)
    assert kind.file().read_bytes() == before
    assert answers(kind) == QUESTIONS
    assert of_log(kind) == []


@pytest.mark.parametrize("name", KINDS)
def test_a_sound_table_gets_no_commit(name: str, tmp_path: Path, make: MakeKind) -> None:
    pq.write_table(TABLE, tmp_path / "right.parquet", row_group_size=200)
    kind = make(name, tmp_path / "right.parquet")
    version, before = kind.version(), kind.file().read_bytes()
    report = pb.repair(kind.name, **kind.options)
    assert (report.commits, report.failed, [file.wrong for file in report.files]) == ([], [], [[]])
    assert (kind.version(), kind.file().read_bytes()) == (version, before)


@pytest.mark.parametrize("name", KINDS)
def test_no_undo(name: str, tmp_path: Path, make: MakeKind) -> None:
    pq.write_table(TABLE, tmp_path / "right.parquet")
    kind = make(name, tmp_path / "right.parquet")
    with pytest.raises(RequestError, match="undo=True is for files; restore the table's version before the repair"):
        pb.repair(kind.name, undo=True, **kind.options)


def test_files_of_released_programs_in_a_delta_table(tmp_path: Path, make: MakeKind) -> None:
    kind = make("delta", OLD / "polars-1.44.2.parquet")
    asked = {"late IS NOT NULL": 120, "decimal38 < 0": 120, "all_null IS NULL": 240, "half_null IS NULL": 60}
    before = {question: kind.count(question) for question in asked}
    assert before["late IS NOT NULL"] == 0
    [file] = pb.repair(kind.name).files
    assert "column all_null: log.null_count is 480, the values give 240" in [one.text for one in file.wrong]
    assert {question: kind.count(question) for question in asked} == asked
    stated = json.loads(max((tmp_path / "delta/_delta_log").glob("*.json")).read_text().splitlines()[1])["add"]["stats"]
    assert '"decimal38":-7.00' in stated
    assert "nan_low" not in json.loads(stated)["minValues"], "no bounds beside a NaN"


def test_the_same_path_is_kept_on_request(tmp_path: Path, make: MakeKind) -> None:
    lying_file(tmp_path / "lying.parquet")
    kind = make("delta", tmp_path / "lying.parquet")
    path = kind.file()
    old = path.read_bytes()
    report = pb.repair(kind.name, commit="same-path")
    assert (report.commits[0].same_path, kind.file()) == (1, path)
    assert path.read_bytes().startswith(old)
    assert answers(kind) == QUESTIONS
    assert of_log(kind) == []


@pytest.mark.parametrize("log_alone", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_another_commit_comes_first(name: str, log_alone: bool, tmp_path: Path, make: MakeKind) -> None:
    """Both are in the table then, and the statistics are those of the values."""
    lying_file(tmp_path / "lying.parquet")
    right = padded(tmp_path / "right.parquet", (tmp_path / "lying.parquet").stat().st_size)
    kind = make(name, right if log_alone and name == "ducklake" else tmp_path / "lying.parquet")
    if log_alone:
        kind.let_the_log_alone_lie(right)
    versions: list[str] = []

    def append(_: object) -> None:
        if not versions:
            versions.append(kind.version())
            kind.append(TABLE.slice(0, 100))
            versions.append(kind.version())

    report = pb.repair(kind.name, progress=append, **kind.options)
    assert (report.failed, [commit.files for commit in report.commits]) == ([], [1])
    assert kind.version() == report.commits[0].version != versions[0]
    assert len(versions) == 2, "the other commit was first"
    found = pb.verify(kind.name, statistics=True, **kind.options).files
    assert [file.wrong_statistics for file in found] == [[], []]
    assert (kind.count("id IS NOT NULL"), kind.count("id < -100")) == (500, 200)


@pytest.mark.parametrize("name", KINDS)
def test_another_commit_removes_the_file_first(name: str, tmp_path: Path, make: MakeKind) -> None:
    """Its rows do not come back, and no file is in the folder that no version names."""
    lying_file(tmp_path / "lying.parquet")
    kind = make(name, tmp_path / "lying.parquet")
    versions: list[str] = []

    def replace(_: object) -> None:
        if not versions:
            kind.delete_all()
            kind.append(TABLE.slice(0, 100))
            versions.append(kind.version())

    before = set(tmp_path.rglob("*.parquet"))
    report = pb.repair(kind.name, progress=replace, **kind.options)
    assert report.commits == []
    assert [kind.version()] == versions
    assert (kind.count("id IS NOT NULL"), kind.count("id < -100")) == (100, 100)
    new = set(tmp_path.rglob("*.parquet")) - before - {tmp_path / "rows.parquet"}
    assert len(new) == 1, "the appended one"


def test_the_command(tmp_path: Path, make: MakeKind, capsys: pytest.CaptureFixture[str]) -> None:
    lying_file(tmp_path / "lying.parquet")
    kind = make("delta", tmp_path / "lying.parquet")
    assert run(["verify", kind.name, "--statistics"]) == 1
    assert "column id: log.min_value is 150, the values give -200" in capsys.readouterr().out
    assert run(["repair", kind.name, "--dry-run"]) == 1
    capsys.readouterr()
    assert run(["repair", kind.name]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "in the table's log are written right" in out
    assert "committed version 1 of" in out
    assert run(["verify", kind.name, "--statistics"]) == 0


# --- a log that lies ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stats",
    [
        '{"numRecords":400,"minValues":{"id":1e999999999},"nullCount":{"id":-7}}',
        '{"numRecords":400,"minValues":{"id":"x","price":[1],"day":{"a":1}},"maxValues":7,"nullCount":{"id":true}}',
        '{"numRecords":400,"minValues":{"id":NaN},"nullCount":{"id":1e400}}',
        '{"numRecords":400,"minValues":' + '{"id":' * 20 + "3" + "}" * 21,
        '{"numRecords":400,"minValues":{"id":5,"price":99999999999999999999999999.5},"maxValues":{"id":4}}',
    ],
)  # fmt: skip
def test_hostile_statistics_of_a_delta_log(stats: str, tmp_path: Path, make: MakeKind) -> None:
    """Nothing breaks on them; after a repair of the file nothing in the log denies a row."""
    lying_file(tmp_path / "lying.parquet")
    kind = make("delta", tmp_path / "lying.parquet")
    assert isinstance(kind, Delta)
    kind.edit_stats(lambda _: stats)
    report = pb.repair(kind.name)
    assert report.failed == []
    assert of_log(kind) == []
    assert pb.count(kind.name, "id < -100") == 100


def unchecked_bounds(name: str, options: dict[str, Any]) -> list[str]:
    [file] = pb.verify(name, statistics=True, **options).files
    assert file.statistics is not None
    return [text.split(":")[0] for text in file.statistics.unchecked if "programs do not agree" in text]


def test_bounds_whose_form_is_not_sure_are_named(tmp_path: Path) -> None:
    """They are neither believed nor compared: BINARY of Delta, UUID of Iceberg, BLOB of DuckLake."""
    table = pa.table({"id": range(3), "data": [b"a", b"\xff\x00", b"c"], "key": [bytes([i] * 16) for i in range(3)]})
    delta = tmp_path / "delta"
    write_deltalake(str(delta), table)
    log = delta / "_delta_log" / "00000000000000000000.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            stats = json.loads(line["add"]["stats"])
            stats["minValues"]["data"], stats["maxValues"]["data"] = "b", "c"
            line["add"]["stats"] = json.dumps(stats)
    log.write_text("\n".join(map(json.dumps, lines)))
    assert unchecked_bounds(f"delta:{delta}", {}) == ["column data"]

    with closing(Warehouse(tmp_path)) as warehouse:
        uuids = pa.array([bytes([i] * 16) for i in range(3)], pa.binary(16))
        kept = warehouse.create(pa.schema([("id", pa.int64()), ("key", pa.uuid())]))
        kept.append(pa.table({"id": range(3), "key": pa.ExtensionArray.from_storage(pa.uuid(), uuids)}))
        assert unchecked_bounds("iceberg:cat/ns.t", {"catalog_properties": warehouse.properties}) == ["column key"]

    (tmp_path / "lake").mkdir()
    lake = Lake(tmp_path / "lake", True)
    lake.sql("CREATE TABLE t (id INT, data BLOB, clock TIME)")
    lake.sql("INSERT INTO t SELECT i, ('x' || i)::BLOB, TIME '01:02:03.5' FROM range(3000) r(i)")
    lake.release()
    assert unchecked_bounds(f"ducklake:{lake.name()}", {}) == ["column data"]


def test_bounds_of_times_in_a_ducklake_catalog(tmp_path: Path) -> None:
    lake = Lake(tmp_path, True)
    lake.sql("CREATE TABLE t (clock TIME)")
    lake.sql("INSERT INTO t SELECT TIME '00:00:00' + to_microseconds(i * 28800500) FROM range(3000) r(i)")
    lake.release()
    with closing(sqlite3.connect(tmp_path / "meta.sqlite")) as catalog:
        for of in ("file", "table"):
            catalog.execute(f"UPDATE ducklake_{of}_column_stats SET min_value = '12:00:00'")
        catalog.commit()
    name = f"ducklake:{lake.name()}"
    assert pb.verify(name, statistics=True).files[0].wrong_statistics[0].statistic == "log.min_value"
    assert pb.repair(name).files[0].mended_log == 1
    assert pb.verify(name, statistics=True).files[0].wrong_statistics == []
    with closing(sqlite3.connect(tmp_path / "meta.sqlite")) as catalog:
        stated = catalog.execute("SELECT min_value, max_value FROM ducklake_file_column_stats").fetchall()
    assert stated == [("00:00:00", "23:59:32.6995")]
    assert lake.sql("SELECT count(*) FROM t WHERE clock < TIME '06:00:00'")[0][0] == 750
    lake.release()


def test_a_log_of_other_rows_is_refused_by_name(tmp_path: Path, make: MakeKind) -> None:
    lying_file(tmp_path / "lying.parquet")
    kind = make("delta", tmp_path / "lying.parquet")
    assert isinstance(kind, Delta)
    kind.edit_stats(lambda stats: stats.update(numRecords=399))
    report = pb.repair(kind.name)
    assert (report.commits, report.files) == ([], [])
    assert "log.num_rows is 399, the values give 400: no repair mends that" in str(report.failed[0].error)


def test_every_lie_of_a_log_is_found_and_mended(tmp_path: Path, make: MakeKind) -> None:
    """Random bounds and counts, compared by brute force with the values."""
    rng = random.Random(7)
    pq.write_table(TABLE, tmp_path / "right.parquet")
    kind = make("delta", tmp_path / "right.parquet")
    assert isinstance(kind, Delta)
    ids, nulls = TABLE["id"].to_pylist(), {name: TABLE[name].null_count for name in TABLE.column_names}
    for _ in range(25):
        low, high, counted = rng.randint(-230, -170), rng.randint(180, 220), rng.choice((0, nulls["name"], 80, 81))
        days = rng.randint(-3, 3)

        def lie(stats: dict[str, Any], low: int = low, high: int = high, n: int = counted, days: int = days) -> None:
            stats["minValues"] |= {"id": low, "day": str(dt.date(2020, 1, 1) + dt.timedelta(days=days))}
            stats["maxValues"] |= {"id": high}
            stats["nullCount"] |= {"name": n}

        kind.edit_stats(lie)
        expected = sorted(
            text
            for text, wrong in (
                ("id log.min_value", low > min(ids)),
                ("id log.max_value", high < max(ids)),
                ("day log.min_value", days > 0),
                ("name log.null_count", counted != nulls["name"]),
            )
            if wrong
        )
        assert of_log(kind) == expected
        assert len(pb.repair(kind.name).commits) == bool(expected)
        assert of_log(kind) == []
        assert pc.count(TABLE["id"]).as_py() == kind.count("id >= -200 AND id <= 199")

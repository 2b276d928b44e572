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
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import QueryBuilder, convert_to_deltalake, write_deltalake
from support import table_kinds
from support.corpus import FIXTURES
from support.ducklake_tables import Lake
from support.footers import edited_footer
from support.iceberg_tables import Warehouse
from support.meanwhile import meanwhile

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


@pytest.fixture(scope="module")
def lying(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lying") / "lying.parquet"
    lying_file(path)
    return path


@pytest.fixture(scope="module")
def right(lying: Path) -> Path:
    """A sound file of the same size."""
    return padded(lying.with_name("right.parquet"), lying.stat().st_size)


class OfOneFile(table_kinds.Kind):
    """A table of one file that others wrote, with the log's own reader."""

    old_versions = True  # keep what they state

    def count(self, question: str, version: str | None = None) -> int:
        raise NotImplementedError

    def append_rows(self, rows: pa.Table) -> None:
        raise NotImplementedError

    def delete_all(self) -> None:
        raise NotImplementedError

    def file(self) -> Path:
        [uri] = self.files()
        return Path(uri.removeprefix("file://"))

    def let_the_log_alone_lie(self, right: Path) -> None:
        """The file is another one by now, of the same size, with right statistics."""
        shutil.copy(right, self.file())


class Delta(table_kinds.Delta, OfOneFile):
    def __init__(self, root: Path, file: Path) -> None:
        super().__init__(root)
        self.root.mkdir(parents=True)
        shutil.copy(file, self.root / "a.parquet")
        convert_to_deltalake(str(self.root))

    def count(self, question: str, version: str | None = None) -> int:
        asked = QueryBuilder().register("t", self._table(version))
        found = pa.table(asked.execute(f"SELECT count(*) AS n FROM t WHERE {question}").read_all())
        return int(found["n"][0].as_py())

    def append_rows(self, rows: pa.Table) -> None:
        write_deltalake(str(self.root), rows, mode="append")

    def delete_all(self) -> None:
        self._table().delete()

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


class Iceberg(table_kinds.Iceberg, OfOneFile):
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

    def append_rows(self, rows: pa.Table) -> None:
        self.warehouse.load().append(rows)

    def delete_all(self) -> None:
        self.warehouse.load().delete("true")


class DuckLake(table_kinds.DuckLake, OfOneFile):
    """The row of a file serves every snapshot, so the old ones are right too."""

    old_versions = False

    def __init__(self, root: Path, file: Path) -> None:
        self.lake = Lake(root, True)
        self.name, self.options = f"ducklake:{self.lake.name()}", {}
        path = self.lake.data / "main" / "t" / "a.parquet"
        path.parent.mkdir(parents=True)
        shutil.copy(file, path)
        added = f"CALL ducklake_add_data_files('lake', 't', '{path}')"
        self._do(f"CREATE TABLE t AS SELECT * FROM '{file}' LIMIT 0", added)

    def count(self, question: str, version: str | None = None) -> int:
        at = "" if version is None else f" AT (VERSION => {version})"
        found = self.lake.sql(f"SELECT count(*) FROM t{at} WHERE {question}")
        self.lake.release()
        return int(found[0][0])

    def append_rows(self, rows: pa.Table) -> None:
        path = self.lake.data.parent / "rows.parquet"
        pq.write_table(rows, path)
        self._do(f"INSERT INTO t SELECT * FROM '{path}'")

    def delete_all(self) -> None:
        self._do("DELETE FROM t")

    def let_the_log_alone_lie(self, right: Path) -> None:
        """DuckDB remembers the footer of a file that it added, so the catalog is edited."""
        shutil.copy(right, self.file())
        with closing(sqlite3.connect(self.lake.data.parent / "meta.sqlite")) as catalog:
            for of in ("file", "table"):
                catalog.execute(f"UPDATE ducklake_{of}_column_stats SET min_value = max_value")
            nothing = "SET null_count = 400, value_count = 0 WHERE column_id = 2"
            catalog.execute(f"UPDATE ducklake_file_column_stats {nothing}")
            catalog.commit()


KINDS: dict[str, Any] = {"delta": Delta, "iceberg": Iceberg, "ducklake": DuckLake}
MakeKind = Callable[[str, Path], Any]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeKind]:
    made: list[OfOneFile] = []

    def new(kind: str, file: Path) -> Any:
        made.append(KINDS[kind](tmp_path, file))
        return made[-1]

    yield new
    for one in made:
        one.close()


def answers(kind: OfOneFile, version: str | None = None) -> dict[str, int]:
    return {question: kind.count(question, version) for question in QUESTIONS}


def of_log(kind: OfOneFile) -> list[str]:
    [file] = pb.verify(kind.name, statistics=True, **kind.options).files
    return sorted(f"{one.column} {one.statistic}" for one in file.wrong_statistics if one.statistic.startswith("log."))


@pytest.mark.parametrize("name", KINDS)
def test_rows_come_back_to_the_formats_own_reader(name: str, make: MakeKind, lying: Path) -> None:
    kind = make(name, lying)
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
def test_where_the_log_alone_lies_the_file_stays(name: str, make: MakeKind, lying: Path, right: Path) -> None:
    """As where a file was repaired or written anew after the log took its statistics over."""
    kind = make(name, right if name == "ducklake" else lying)
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


def test_the_same_path_is_kept_on_request(make: MakeKind, lying: Path) -> None:
    kind = make("delta", lying)
    path = kind.file()
    old = path.read_bytes()
    report = pb.repair(kind.name, commit="same-path")
    assert (report.commits[0].same_path, kind.file()) == (1, path)
    assert path.read_bytes().startswith(old)
    assert answers(kind) == QUESTIONS
    assert of_log(kind) == []


@pytest.mark.parametrize(
    ("name", "log_alone"), [("delta", True), ("delta", False), ("iceberg", False), ("ducklake", True)]
)
def test_another_commit_comes_first(name: str, log_alone: bool, make: MakeKind, lying: Path, right: Path) -> None:
    """Both are in the table then, and the statistics are those of the values."""
    kind = make(name, right if log_alone and name == "ducklake" else lying)
    if log_alone:
        kind.let_the_log_alone_lie(right)
    versions: list[str] = []

    def append() -> None:
        versions.append(kind.version())
        kind.append_rows(TABLE.slice(0, 100))
        versions.append(kind.version())

    report = pb.repair(kind.name, progress=meanwhile(append, lambda _: True), **kind.options)
    assert (report.failed, [commit.files for commit in report.commits]) == ([], [1])
    assert kind.version() == report.commits[0].version != versions[0]
    assert len(versions) == 2, "the other commit was first"
    found = pb.verify(kind.name, statistics=True, **kind.options).files
    assert [file.wrong_statistics for file in found] == [[], []]
    assert (kind.count("id IS NOT NULL"), kind.count("id < -100")) == (500, 200)


@pytest.mark.parametrize("name", KINDS)
def test_another_commit_removes_the_file_first(name: str, tmp_path: Path, make: MakeKind, lying: Path) -> None:
    """Its rows do not come back, and no file is in the folder that no version names."""
    kind = make(name, lying)
    versions: list[str] = []

    def replace() -> None:
        kind.delete_all()
        kind.append_rows(TABLE.slice(0, 100))
        versions.append(kind.version())

    before = set(tmp_path.rglob("*.parquet"))
    report = pb.repair(kind.name, progress=meanwhile(replace, lambda _: True), **kind.options)
    assert report.commits == []
    assert [kind.version()] == versions
    assert (kind.count("id IS NOT NULL"), kind.count("id < -100")) == (100, 100)
    new = set(tmp_path.rglob("*.parquet")) - before - {tmp_path / "rows.parquet"}
    assert len(new) == 1, "the appended one"


def test_the_command(make: MakeKind, lying: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = make("delta", lying)
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


HOSTILE = [
    '{"numRecords":400,"minValues":{"id":1e999999999},"nullCount":{"id":-7}}',
    '{"numRecords":400,"minValues":{"id":"x","price":[1],"day":{"a":1}},"maxValues":7,"nullCount":{"id":true}}',
    '{"numRecords":400,"minValues":{"id":NaN},"nullCount":{"id":1e400}}',
    '{"numRecords":400,"minValues":' + '{"id":' * 20 + "3" + "}" * 21,
    '{"numRecords":400,"minValues":{"id":5,"price":99999999999999999999999999.5},"maxValues":{"id":4}}',
]


def test_hostile_statistics_of_a_delta_log(tmp_path: Path, lying: Path) -> None:
    """Nothing breaks on them; after a repair of the file nothing in the log denies a row."""
    for number, stats in enumerate(HOSTILE):
        kind = Delta(tmp_path / str(number), lying)
        kind.edit_stats(lambda _, stats=stats: stats)
        assert pb.repair(kind.name).failed == [], stats
        assert of_log(kind) == [], stats
        assert pb.count(kind.name, "id < -100") == 100, stats


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


def test_a_log_of_other_rows_is_refused_by_name(make: MakeKind, lying: Path) -> None:
    kind = make("delta", lying)
    kind.edit_stats(lambda stats: stats.update(numRecords=399))
    report = pb.repair(kind.name)
    assert (report.commits, report.files) == ([], [])
    assert "log.num_rows is 399, the values give 400: no repair mends that" in str(report.failed[0].error)


def test_every_lie_of_a_log_is_found_and_mended(tmp_path: Path, make: MakeKind) -> None:
    """Random bounds and counts, compared by brute force with the values."""
    rng = random.Random(7)
    pq.write_table(TABLE, tmp_path / "right.parquet")
    kind = make("delta", tmp_path / "right.parquet")
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

"""Tables between this package and Iceberg's own Spark runtime: each reads what the other wrote, to the row.

Iceberg's Java library makes position deletes and, in format version 3, deletion vectors; it evolves schemas and
partitions, writes Bloom filters and uses those it finds. Here all of it meets `check`, `read`, `count`, `add` and
`remove`. The jar is for Spark 3.5 (tests/support/iceberg_spark.py).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from support.iceberg_spark import IcebergSpark, IcebergSparkError
from support.iceberg_tables import Warehouse, add_deletes, append, entries, equality_deletes, position_deletes
from support.random_questions import random_rows
from support.repeats import more_then_slow
from table_judges import Asked, texts
from test_iceberg_equality import KINDS as EQUAL_KINDS
from test_iceberg_equality import KNOWN
from test_iceberg_equality import SCHEMA as EQUAL_SCHEMA
from test_table_answers import DAYS, NUMBERS, TEXTS, Growing, hold_growing

import parquet_bloom

pytestmark = [
    pytest.mark.filterwarnings("ignore:Iceberg scan planning"),
    pytest.mark.filterwarnings("ignore::parquet_bloom.errors.TableWarning"),
]

MERGE_ON_READ = {f"write.{what}.mode": "merge-on-read" for what in ("delete", "update", "merge")}
FILTERED = {"write.parquet.bloom-filter-enabled.column.row": "true"}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergSpark]:
    started = IcebergSpark(tmp_path_factory.mktemp("iceberg") / "warehouse")
    yield started
    started.close()


def literal(value: Any, kind: str) -> str:
    if value is None:
        return f"CAST(NULL AS {kind})"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return f"CAST('{value}' AS {kind})"


def properties(**given: str) -> str:
    return "TBLPROPERTIES(" + ", ".join(f"'{name}'='{value}'" for name, value in given.items()) + ")"


# --- what Iceberg's library writes ----------------------------------------------------------------


class JavaTable(Growing):
    """One that Spark writes; `with_spark` gives it the process."""

    name = "iceberg:cat/ns.t"
    spark: IcebergSpark
    version: str
    tables = 0
    committed: ClassVar[list[int]] = []

    def __init__(self, root: Path, rng: Random) -> None:
        super().__init__(rng, (0, 0.2))
        root.mkdir()
        self.root = root
        type(self).tables += 1
        self.at = f"db{self.version}.t{self.tables}"
        self.values = {"n": NUMBERS, "s": TEXTS, "d": DAYS, "p": ["x", "y", ""], "f": [0.0, 1.5, -2.25, float("nan")]}
        self.kinds = {"row": "bigint", "n": "int", "s": "string", "d": "date", "p": "string", "f": "float"}
        columns = ", ".join(f"{name} {kind}" for name, kind in self.kinds.items())
        parts = rng.choice(["", "bucket(4, n)", "truncate(2, s)", "days(d)", "p", "p, bucket(2, row)"])
        told = {
            "format-version": self.version,
            "write.parquet.row-group-size-bytes": "1024",
            **MERGE_ON_READ,
            **FILTERED,
        }
        self.sql(
            f"CREATE TABLE {{t}} ({columns}) USING iceberg {f'PARTITIONED BY ({parts})' if parts else ''} "
            + properties(**told)
        )

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.format(t=f"h.{self.at}"))

    def append(self) -> None:
        rows = [[literal(row[name], self.kinds[name]) for name in self.kinds] for row in self.rows()]
        lines = ", ".join(f"({', '.join(row)})" for row in rows)
        self.spark.sql(f"INSERT INTO h.{self.at} ({', '.join(self.kinds)}) VALUES {lines}")

    def change(self) -> None:
        rng, name = self.rng, self.rng.choice(list(self.values))
        match rng.choice(["rename", "add", "again", "promote", "spec", "delete", "delete", "update", "compact"]):
            case "rename":
                self.sql(f"ALTER TABLE {{t}} RENAME COLUMN {name} TO {name}_")
                self.values[name + "_"], self.kinds[name + "_"] = self.values.pop(name), self.kinds.pop(name)
            case "add":
                added = f"c{len(self.values)}_{self.next}"
                self.sql(f"ALTER TABLE {{t}} ADD COLUMN {added} string FIRST")
                self.values[added], self.kinds[added] = TEXTS, "string"
            case "again" if name[0] == "c":
                self.sql(f"ALTER TABLE {{t}} DROP COLUMN {name}")
                self.sql(f"ALTER TABLE {{t}} ADD COLUMN {name} string")
            case "promote" if self.kinds[name] in ("int", "float"):
                self.kinds[name] = {"int": "bigint", "float": "double"}[self.kinds[name]]
                self.sql(f"ALTER TABLE {{t}} ALTER COLUMN {name} TYPE {self.kinds[name]}")
            case "spec":
                if f"bucket(3, {name})" not in self.specs and self.kinds[name] not in ("float", "double"):
                    self.specs.append(f"bucket(3, {name})")
                    self.sql(f"ALTER TABLE {{t}} ADD PARTITION FIELD bucket(3, {name}) AS part{len(self.specs)}")
            case "delete" if self.version > "1":
                self.sql(f"DELETE FROM {{t}} WHERE row % {rng.randint(2, 9)} = 0")
            case "update" if self.version > "1":
                value = literal(rng.choice(self.values[name]), self.kinds[name])
                self.sql(f"UPDATE {{t}} SET {name} = {value} WHERE row % {rng.randint(2, 5)} = 1")
            case "compact" if rng.random() < 0.3:
                self.spark.sql(f"CALL h.system.rewrite_data_files(table => '{self.at}')")

    @property
    def specs(self) -> list[str]:
        return self.__dict__.setdefault("_specs", [])

    def whole(self) -> pa.Table:
        whole = self.spark.answer(f"SELECT * FROM h.{self.at}")
        self.lake = Warehouse(self.root)
        self.options = {"catalog_properties": self.lake.properties}
        self.lake.catalog.register_table("ns.t", f"file://{self.spark.metadata(self.at)}")
        if self.version < "3" and self.rng.random() < 0.7:
            self.add(whole)
        return whole

    def add(self, whole: pa.Table) -> None:
        """Filters of ours, by the default way; Spark reads every snapshot as before."""
        seen = {one.snapshot_id: self.hashed(one.snapshot_id) for one in self.lake.load().snapshots()}
        column = self.rng.choice([name for name in self.kinds if self.kinds[name] not in ("float", "double")])
        done = parquet_bloom.add_filters(self.name, columns=[column], replace=True, **self.options)
        self.committed.append(len(done.commits))
        assert {snapshot: self.hashed(snapshot) for snapshot in seen} == seen
        self.spark.view(self.lake.load().metadata_location, "now")
        now = self.spark.answer("SELECT * FROM now")
        assert sorted(texts(now)) == sorted(texts(whole.select(now.column_names)))

    def hashed(self, snapshot: int) -> list[list[Any]]:
        self.spark.view(self.lake.load().metadata_location, "seen", snapshot_id=snapshot)
        return self.spark.sql("SELECT count(*), sum(hash(*)) FROM seen")

    def close(self) -> None:
        self.lake.close()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_random_tables_of_iceberg_java(version: str, spark: IcebergSpark, tmp_path: Path) -> None:
    asked = Asked()
    made = type("Made", (JavaTable,), {"spark": spark, "version": version, "committed": []})
    for seed in range(8):
        hold_growing(made, 100 * int(version) + seed, tmp_path / str(seed), 15, asked)
    assert asked.excluded > 20, f"the log excludes files: {asked}"
    assert asked.rows > 100
    assert version == "3" or sum(made.committed) > 3


@pytest.mark.slow
def test_filters_of_iceberg_java(spark: IcebergSpark, tmp_path: Path) -> None:
    """They are found, right, and used."""
    spark.sql(
        "CREATE TABLE h.db.filtered (row bigint, k string) USING iceberg "
        + properties(**FILTERED, **{"write.parquet.bloom-filter-enabled.column.k": "true"}),
        "INSERT INTO h.db.filtered SELECT id, sha1(cast(id AS string)) FROM range(20000)",
    )
    lake = Warehouse(tmp_path)
    lake.catalog.register_table("ns.t", f"file://{spark.metadata('db.filtered')}")
    options = {"catalog_properties": lake.properties}
    (file,) = parquet_bloom.inspect("iceberg:cat/ns.t", **options).files
    assert {one.column for one in file.filters} == {"row", "k"}
    (verified,) = parquet_bloom.verify("iceberg:cat/ns.t", **options).files
    assert {one.status for one in verified.filters} == {"right"}
    assert verified.wrong == []
    verdict = parquet_bloom.check("iceberg:cat/ns.t", "k = 'absent'", **options)
    assert verdict.skipped == 1
    lake.close()


@pytest.mark.more
def test_partition_fields_that_were_dropped_in_version_1(spark: IcebergSpark, tmp_path: Path) -> None:
    """They stay, as void ones: of a required column, which are NULL all the same, and of one that was dropped too."""
    lake = Warehouse(tmp_path)
    options = {"catalog_properties": lake.properties}
    for name, null, failed, way in (("required", "NOT NULL", 0, "new-path"), ("dropped", "", 1, "same-path")):
        table = f"h.db.{name}"
        spark.sql(
            f"CREATE TABLE {table} (row bigint, k string {null}) USING iceberg PARTITIONED BY (k) "
            + properties(**{"format-version": "1"}),
            f"INSERT INTO {table} SELECT id, 'a' FROM range(100)",
            f"ALTER TABLE {table} DROP PARTITION FIELD k",
            f"INSERT INTO {table} SELECT id, 'b' FROM range(100, 200)",
            *([f"ALTER TABLE {table} DROP COLUMN k"] if failed else []),
        )
        lake.catalog.register_table(f"ns.{name}", f"file://{spark.metadata(table.removeprefix('h.'))}")
        report = parquet_bloom.add_filters(f"iceberg:cat/ns.{name}", columns=["row"], commit=way, **options)
        assert (len(report.failed), report.commits[0].files) == (failed, 2 - failed)
        spark.view(lake.load(f"ns.{name}").metadata_location.removeprefix("file:"), name)
        assert spark.sql(f"SELECT count(*), sum(row) FROM {name}") == [[200, 19900]]
        assert spark.sql(f"SELECT row FROM {name} WHERE row = 150") == [[150]]
        assert parquet_bloom.count(f"iceberg:cat/ns.{name}", "row >= 50", **options) == 150
    assert spark.sql("SELECT count(*) FROM required WHERE k = 'b'") == [[100]]
    lake.close()


@pytest.mark.more
def test_no_row_is_lost_of_files_that_were_added(spark: IcebergSpark, tmp_path: Path) -> None:
    """add_files passes over row groups without bounds, which are those with a text of more than 4 KB."""
    rows = pa.table({"row": range(8), "k": ["a", "b", "c", "d", *("z" * 5000 + str(i) for i in range(4))]})
    (tmp_path / "warehouse").mkdir(exist_ok=True)
    pq.write_table(rows, tmp_path / "warehouse" / "foreign.parquet", row_group_size=4)
    checks = {f"write.parquet.row-group-check-{end}-record-count": "2" for end in ("min", "max")}
    source = f"`parquet`.`file://{tmp_path}/warehouse/foreign.parquet`"
    spark.sql(
        "CREATE TABLE h.db.added (row bigint, k string) USING iceberg",
        f"CALL h.system.add_files(table => 'db.added', source_table => '{source}')",
        "CREATE TABLE h.db.written (row bigint, k string) USING iceberg "
        + properties(**checks, **{"write.parquet.row-group-size-bytes": "20000"}),
        "INSERT INTO h.db.written SELECT * FROM h.db.added",
    )
    lake = Warehouse(tmp_path)
    options = {"catalog_properties": lake.properties}
    for name in ("added", "written"):
        lake.catalog.register_table(f"ns.{name}", f"file://{spark.metadata(f'db.{name}')}")
        assert parquet_bloom.count(f"iceberg:cat/ns.{name}", "k > 'd'", **options) == 4
        assert parquet_bloom.count(f"iceberg:cat/ns.{name}", [("k", "=", "z" * 5000 + "2")], **options) == 1
    added, written = ({f.bounds.get(("k",)) for f in lake.read(f"ns.{name}").files} for name in ("added", "written"))
    assert {bounds and bounds.upper for bounds in added} == {None}
    assert {bounds.upper[:1] for bounds in written} <= {b"z", b"{"}, "of its own files Java's library tells the truth"
    lake.close()


@pytest.mark.parametrize("seed", more_then_slow(range(6), 1))
def test_equality_deletes(seed: int, spark: IcebergSpark, tmp_path: Path) -> None:
    """Rows that they delete are gone for both, before filters are added and after; those of positions too."""
    rng, lake = Random(seed), Warehouse(tmp_path)
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    table = lake.create(EQUAL_SCHEMA, **({"partition_spec": spec} if seed % 2 else {}))
    options = {"catalog_properties": lake.properties}
    shown = [name for name in EQUAL_KINDS if name != "key"]  # Spark shows a UUID as text

    def agree() -> int:
        ours = parquet_bloom.read_table("iceberg:cat/ns.t", columns=shown, **options)
        spark.view(table.refresh().metadata_location, "equal")
        wanted = spark.answer(f"SELECT {', '.join(shown)} FROM equal")
        assert sorted(texts(ours)) == sorted(texts(wanted))
        return ours.num_rows

    rows = 0
    for _ in range(3):
        append(table, random_rows(rng, KNOWN, 60, nulls=0.3))
        rows += 60
        for _ in range(2):
            columns = rng.sample(list(EQUAL_KINDS), rng.randint(2, 3))
            gone = pa.Table.from_pylist(random_rows(rng, KNOWN, 3, nulls=0.3), schema=schema_to_pyarrow(EQUAL_SCHEMA))
            add_deletes(table, equality_deletes(table, columns, gone, rng.choice(entries(table)).data_file))
        file = rng.choice(entries(table)).data_file
        add_deletes(table, position_deletes(table, {file.file_path: [0]}, file))
    left = agree()
    assert 0 < left < rows
    report = parquet_bloom.add_filters("iceberg:cat/ns.t", columns=["id", "raw"], **options)
    assert report.commits
    assert agree() == left
    lake.close()


# --- what this package commits --------------------------------------------------------------------


class Keys:
    """A table of keys by Spark, registered with a catalog of pyiceberg's.

    deleted  a third of its rows went by position deletes
    """

    def __init__(self, spark: IcebergSpark, root: Path, name: str, deleted: bool) -> None:
        root.mkdir(exist_ok=True)
        self.spark, self.at = spark, f"db.{name}"
        small = {"write.parquet.row-group-size-bytes": "20000", "write.parquet.dict-size-bytes": "100"}
        spark.sql(
            f"CREATE TABLE h.{self.at} (row bigint, k string, d date) USING iceberg PARTITIONED BY (days(d)) "
            + properties(**{"format-version": "2"}, **small, **MERGE_ON_READ),
            f"INSERT INTO h.{self.at} SELECT id, sha1(cast(id AS string)), date_add(DATE '2026-01-01', "
            "cast(id % 2 AS int)) FROM range(4000)",
            f"INSERT INTO h.{self.at} SELECT id, sha1(cast(id AS string)), DATE '2026-01-01' FROM range(4000, 5000)",
        )
        if deleted:
            spark.sql(f"DELETE FROM h.{self.at} WHERE row % 3 = 0")
        self.lake = Warehouse(root)
        self.lake.catalog.register_table("ns.t", f"file://{spark.metadata(self.at)}")
        self.options: dict[str, Any] = {"catalog_properties": self.lake.properties}
        self.before = {one.snapshot_id: self.rows(one.snapshot_id) for one in self.lake.load().snapshots()}
        self.snapshot = self.lake.load().current_snapshot().snapshot_id

    def rows(self, snapshot: int) -> list[list[Any]]:
        """Count, sum and checksum of a snapshot's rows, as Spark reads them."""
        self.spark.view(self.lake.load().metadata_location, "seen", snapshot_id=snapshot)
        return self.spark.sql("SELECT count(*), sum(row), sum(crc32(k)), min(d), max(d) FROM seen")

    def holds(self) -> None:
        """Every snapshot reads the rows that it read, and the current one those of the one before ours."""
        for snapshot, rows in self.before.items():
            assert self.rows(snapshot) == rows
        now = self.lake.load().current_snapshot().snapshot_id
        assert now != self.snapshot
        assert self.rows(now) == self.before[self.snapshot]

    def files(self) -> list[Path]:
        """The data files of the current snapshot."""
        tasks = self.lake.load().scan().plan_files()
        return [Path(task.file.file_path.removeprefix("file:").replace("//", "/")) for task in tasks]

    def found(self, where: str) -> int:
        self.spark.view(self.lake.load().metadata_location, "now")
        return self.spark.sql(f"SELECT count(*) FROM now WHERE {where}")[0][0]


def spoil(file: Path, column: int) -> None:
    """Make the pages of one column unreadable, whatever else stays."""
    footer = pq.read_metadata(file)
    with file.open("r+b") as out:
        for group in range(footer.num_row_groups):
            chunk = footer.row_group(group).column(column)
            out.seek(chunk.data_page_offset)
            out.write(b"\xff" * chunk.total_compressed_size)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum would notice


@pytest.mark.parametrize("case", more_then_slow(["deletes same-path", "all rows new-path", "all rows same-path"], 1))
def test_what_is_committed_reads_as_before(case: str, spark: IcebergSpark, tmp_path: Path) -> None:
    rows, way = case.rsplit(" ", 1)
    deleted = rows == "deletes"
    keys = Keys(spark, tmp_path, "keys_" + case.replace("-", "_").replace(" ", "_"), deleted)
    chosen = {} if deleted or way == "new-path" else {"commit": way}
    report = parquet_bloom.add_filters("iceberg:cat/ns.t", columns=["k"], **chosen, **keys.options)
    (commit,) = report.commits
    assert commit.same_path == (commit.files if way == "same-path" else 0)
    keys.holds()
    there = 4999 if deleted else 3
    assert keys.found(f"k = sha1('{there}')") == 1
    assert keys.found("k IN (sha1('3'), sha1('4998'), 'absent')") == (0 if deleted else 2)

    # A scan of what was appended sees no row of ours, and a change feed none either.
    spark.view(keys.lake.load().metadata_location, "added", start_snapshot_id=keys.snapshot)
    assert spark.sql("SELECT count(*) FROM added") == [[0]]
    ours = f"{keys.at}_ours"
    metadata = keys.lake.load().metadata_location
    spark.sql(f"CALL h.system.register_table(table => '{ours}', metadata_file => '{metadata}')")
    if not deleted:  # Iceberg's feed knows no delete files
        feed = f"CALL h.system.create_changelog_view(table => '{ours}', changelog_view => 'feed')"
        spark.sql(feed)
        assert spark.sql("SELECT _change_type, count(*) FROM feed GROUP BY 1") == [["INSERT", 5000]]

    # Iceberg goes on with the table.
    left = keys.before[keys.snapshot][0][0] - 1
    spark.sql(f"DELETE FROM h.{ours} WHERE row = {there}")
    assert spark.sql(f"SELECT count(*) FROM h.{ours}") == [[left]]
    spark.sql(f"CALL h.system.rewrite_position_delete_files(table => '{ours}', options => map('rewrite-all', 'true'))")
    spark.sql(f"CALL h.system.rewrite_manifests('{ours}')")
    assert spark.sql(f"SELECT count(*), count(DISTINCT k) FROM h.{ours}") == [[left, left]]

    parquet_bloom.remove_filters("iceberg:cat/ns.t", **keys.options)
    keys.holds()

    spark.sql(f"CALL h.system.rewrite_data_files(table => '{ours}', options => map('rewrite-all', 'true'))")
    later = (dt.datetime.now(dt.UTC) + dt.timedelta(days=1)).strftime("%F %T")
    spark.sql(f"CALL h.system.expire_snapshots(table => '{ours}', older_than => TIMESTAMP '{later}', retain_last => 1)")
    assert spark.sql(f"SELECT count(*), count(DISTINCT k) FROM h.{ours}") == [[left, left]]
    keys.lake.close()


@pytest.mark.parametrize("way", more_then_slow(["same-path", "new-path"], 1))
def test_iceberg_java_skips_by_our_filters(way: str, spark: IcebergSpark, tmp_path: Path) -> None:
    """The pages are unreadable: only who asks the filters can say that there is no such key."""
    keys = Keys(spark, tmp_path, f"skipped_{way}".replace("-", "_"), False)
    absent = f"k = sha1('{-1}') AND row >= 0"
    assert keys.found(absent) == 0
    for file in keys.files():
        spoil(file, 1)
    with pytest.raises(IcebergSparkError):
        keys.found(absent)
    keys.lake.close()

    keys = Keys(spark, tmp_path / "again", f"asked_{way}".replace("-", "_"), False)
    parquet_bloom.add_filters("iceberg:cat/ns.t", columns=["k"], commit=way, fpp=1e-6, **keys.options)
    for file in keys.files():
        assert pq.read_metadata(file).num_row_groups > 1
        spoil(file, 1)
    assert keys.found(absent) == 0
    with pytest.raises(IcebergSparkError):
        keys.found("k = sha1('3')")
    keys.lake.close()

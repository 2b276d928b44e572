"""`add` and `remove` while Iceberg's Java library writes to the same table, in the same catalog."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random

import pytest
from support.iceberg_spark import IcebergSpark, IcebergSparkError
from support.iceberg_tables import Warehouse
from support.postgres import JDBC, Postgres

import parquet_bloom
from parquet_bloom.errors import ConflictError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Iceberg scan planning")]

# What Iceberg's library says where it has changed nothing.
REFUSED = ("ValidationException", "CommitFailedException", "concurrently modified")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Warehouse, IcebergSpark]]:
    """A catalog, for pyiceberg and for Spark."""
    server, root = Postgres(), tmp_path_factory.mktemp("races")
    uri, jdbc = server.database()
    lake, spark = Warehouse(root, uri=uri), IcebergSpark(root / "warehouse", JDBC)
    spark.share("cat", jdbc)
    yield lake, spark
    spark.close()
    lake.close()
    server.close()


class Ours(threading.Thread):
    """Adds filters to a table, and takes them off now and then, until it is told to stop."""

    def __init__(self, lake: Warehouse, table: str, rng: Random, ways: Sequence[str | None]) -> None:
        super().__init__()
        self.commit_modes = ways
        self.lake, self.table, self.rng = lake, f"iceberg:cat/{table}", rng
        self.stopped = threading.Event()
        self.outcomes: Counter[str] = Counter()
        self.error: BaseException | None = None

    def run(self) -> None:
        options = {"catalog_properties": self.lake.properties}
        while self.error is None and not self.stopped.wait(self.rng.random()):
            try:
                way = self.rng.choice(self.commit_modes)
                if self.rng.random() < 0.2:
                    parquet_bloom.remove_filters(self.table, commit=way, **options)
                else:
                    done = parquet_bloom.add_filters(self.table, columns=["k"], commit=way, **options)
                    self.outcomes["commits"] += len(done.commits)
                self.outcomes["done"] += 1
            except ConflictError:
                self.outcomes["conflict"] += 1
            except BaseException as error:
                if "position deletes or a deletion vector name the file" not in str(error):  # on the way we asked for
                    self.error = error


class Theirs:
    """Changes a table by Spark, and knows the rows that it has: row -> the text of `k`."""

    def __init__(self, spark: IcebergSpark, table: str, rng: Random) -> None:
        self.spark, self.table, self.rng = spark, table, rng
        self.rows: dict[int, int] = {}
        self.next = 0
        self.outcomes: Counter[str] = Counter()
        self.reasons: list[str] = []

    def _done(self, statement: str) -> bool:
        try:
            self.spark.sql(statement)
        except IcebergSparkError as error:
            if not any(name in str(error) for name in REFUSED):
                raise
            self.outcomes["refused"] += 1
            self.reasons.append(f"{statement[:40]}: {str(error).rpartition('; ')[2][:150]}")
            return False
        self.outcomes["done"] += 1
        return True

    def change(self) -> None:
        rng, divisor = self.rng, self.rng.randint(3, 9)
        match rng.choice(["insert", "insert", "delete", "delete", "update", "compact", "manifests"]):
            case "insert":
                n = rng.randint(50, 400)
                if self._done(
                    f"INSERT INTO cat.{self.table} SELECT id, sha1(cast(id AS string)), cast(id % 2 AS int) "
                    f"FROM range({self.next}, {self.next + n})"
                ):
                    self.rows.update((row, row) for row in range(self.next, self.next + n))
                    self.next += n
            case "delete":
                if self._done(f"DELETE FROM cat.{self.table} WHERE row % {divisor} = 1"):
                    self.rows = {row: key for row, key in self.rows.items() if row % divisor != 1}
            case "update":
                if self._done(
                    f"UPDATE cat.{self.table} SET k = sha1(cast(row + 7 AS string)) WHERE row % {divisor} = 2"
                ):
                    self.rows = {row: row + 7 if row % divisor == 2 else key for row, key in self.rows.items()}
            case "compact":
                all_of_them = "options => map('rewrite-all', 'true')"
                self._done(f"CALL cat.system.rewrite_data_files(table => '{self.table}', {all_of_them})")
            case "manifests":
                self._done(f"CALL cat.system.rewrite_manifests('{self.table}')")


MIXED, IN_PLACE = (None, None, "new-path", "same-path"), ("same-path",)


@pytest.mark.parametrize(("seed", "ways"), [*[(seed, MIXED) for seed in range(6)], (6, IN_PLACE), (7, IN_PLACE)])
def test_no_row_is_lost_or_comes_back(
    seed: int, ways: Sequence[str | None], both: tuple[Warehouse, IcebergSpark]
) -> None:
    (lake, spark), rng, table = both, Random(seed), f"ns.t{seed}"
    mode = ["merge-on-read", "copy-on-write"][seed % 2]
    modes = ", ".join(f"'write.{what}.mode'='{mode}'" for what in ("delete", "update"))
    spark.sql(
        f"CREATE TABLE cat.{table} (row bigint, k string, p int) USING iceberg PARTITIONED BY (p) "
        f"TBLPROPERTIES('format-version'='2', 'commit.retry.num-retries'='10', {modes})"
    )
    theirs, ours = Theirs(spark, table, rng), Ours(lake, table, Random(seed + 100), ways)
    ours.start()
    for _ in range(40):
        theirs.change()
    ours.stopped.set()
    ours.join()
    assert ours.error is None, ours.error
    parquet_bloom.add_filters(f"iceberg:cat/{table}", columns=["k"], catalog_properties=lake.properties)

    told = f"{mode}: ours {dict(ours.outcomes)}, theirs {dict(theirs.outcomes)}, {theirs.reasons}"
    wanted = sorted(theirs.rows)
    spark.sql(f"REFRESH TABLE cat.{table}")
    by_spark = [row for (row,) in spark.sql(f"SELECT row FROM cat.{table} ORDER BY row")]
    assert by_spark == wanted, told
    read = parquet_bloom.read_table(f"iceberg:cat/{table}", columns=["row"], catalog_properties=lake.properties)
    assert sorted(read["row"].to_pylist()) == wanted, told
    assert sorted(lake.load(table).scan(selected_fields=("row",)).to_arrow()["row"].to_pylist()) == wanted, told
    for row in rng.sample(wanted, min(5, len(wanted))):
        key = f"sha1('{theirs.rows[row]}')"
        assert [row] in spark.sql(f"SELECT row FROM cat.{table} WHERE k = {key}"), told
    assert ours.outcomes["commits"] >= 3, told
    assert theirs.outcomes["done"] > 8, told
    in_the_way = [reason for reason in theirs.reasons if "rewrite_manifests" not in reason]
    assert ways is MIXED or not in_the_way, f"a file that keeps its path is in nobody's way: {told}"

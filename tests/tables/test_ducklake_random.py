"""Random histories of a DuckLake table: each snapshot's rows are DuckLake's, and no evidence denies one of them.

Between two statements the files may get filters, as commits must not be felt by anything that comes after them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.ducklake_tables import DuckLakeError, Lake, live_rows, sorted_rows, unsound
from support.repeats import more_then_slow

import parquet_bloom
from parquet_bloom.source.names import TableAccess
from parquet_bloom.source.snapshot import Change
from parquet_bloom.tables.ducklake.table import DuckLakeTable, open_ducklake

TYPES = {
    "INT": "(i * 7919) % 1000 - 500",
    "BIGINT": "(i * 1234567891) % 9999999999 - 5",
    "SMALLINT": "i % 300",
    "FLOAT": "CASE WHEN i % 13 = 0 THEN 'nan'::FLOAT ELSE (i / 7)::FLOAT END",
    "DOUBLE": "i / 7.0 - 3",
    "VARCHAR": "CASE i % 5 WHEN 0 THEN '' WHEN 1 THEN NULL ELSE 'v' || i % 17 || repeat('é', (i % 4)::INT) END",
    "DATE": "'2019-11-28'::DATE + (i % 90)::INT",
    "TIMESTAMP": "'2019-12-30'::TIMESTAMP + INTERVAL (i * 7) HOUR",
    "DECIMAL(8,2)": "i / 4",
    "UUID": "md5(i::VARCHAR)::UUID",
    "BOOLEAN": "i % 3 = 0",
    "STRUCT(a INT, b VARCHAR)": "CASE WHEN i % 4 = 0 THEN NULL ELSE {'a': i, 'b': NULLIF('s' || i % 9, 's3')} END",
    "INT[]": "CASE WHEN i % 6 = 0 THEN NULL ELSE [i, NULL, i % 5] END",
}
WIDER = {"INT": "BIGINT", "SMALLINT": "INT", "FLOAT": "DOUBLE"}
TRANSFORMS = {
    "INT": ("{}", "bucket(4, {})"),
    "BIGINT": ("bucket(3, {})",),
    "SMALLINT": ("{}",),
    "VARCHAR": ("{}", "bucket(3, {})"),
    "DATE": ("year({})", "month({})", "bucket(3, {})"),
    "TIMESTAMP": ("year({})", "day({})"),
    "BOOLEAN": ("{}",),
    "DECIMAL(8,2)": ("{}",),
}


class History:
    """A table, and what may happen to it next."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake = lake
        self.random = random.Random(seed)
        self.columns: dict[str, str] = {"id": "BIGINT"}
        self.rows = 0
        self.names = 0
        self.answers: dict[int, list[str]] = {}
        limit = self.random.choice([0, 5, 60])
        lake.sql(f"CALL lake.set_option('data_inlining_row_limit', {limit})", "CREATE TABLE t (id BIGINT)")
        for _ in range(4):
            self.add_column()

    def step(self) -> None:
        """Let something happen; what DuckLake refuses did not happen."""
        happens: list[tuple[int, Callable[[], None]]] = [
            (8, self.insert),
            (4, self.delete),
            (3, self.update),
            (2, self.add_column),
            (1, self.drop_column),
            (1, self.rename_column),
            (1, self.widen_column),
            (1, self.change_struct),
            (2, self.partition),
            (2, self.add_file),
            (2, self.maintain),
            (3, self.put_filters),
        ]
        weights, actions = zip(*happens, strict=True)
        [action] = self.random.choices(actions, weights)
        with suppress(DuckLakeError):
            action()

    def _name(self) -> str:
        self.names += 1
        return f"c{self.names}"

    def _some(self, kinds: set[str] | None = None) -> str | None:
        fit = [name for name, kind in self.columns.items() if name != "id" and (kinds is None or kind in kinds)]
        return self.random.choice(fit) if fit else None

    def insert(self) -> None:
        count = self.random.choice([1, 3, 40, 200])
        values = ", ".join("i" if name == "id" else f"({TYPES[kind]})::{kind}" for name, kind in self.columns.items())
        names = ", ".join(self.columns)
        self.lake.sql(f"INSERT INTO t ({names}) SELECT {values} FROM range({self.rows}, {self.rows + count}) r(i)")
        self.rows += count

    def _where(self) -> str:
        first = self.random.randrange(self.rows + 1)
        return self.random.choice([f"id = {first}", f"id BETWEEN {first} AND {first + 60}", f"id % 7 = {first % 7}"])

    def delete(self) -> None:
        self.lake.sql(f"DELETE FROM t WHERE {self._where()}")

    def update(self) -> None:
        name = self._some()
        if name is not None:
            made = f"(SELECT {TYPES[self.columns[name]]} FROM (SELECT {self.random.randrange(99)} AS i))"
            value = self.random.choice([made, "NULL"])
            self.lake.sql(f"UPDATE t SET {name} = {value} WHERE {self._where()}")

    def add_column(self) -> None:
        name, kind = self._name(), self.random.choice(list(TYPES))
        default = {"INT": "42", "VARCHAR": "'it''s'", "DATE": "'2020-02-29'", "DECIMAL(8,2)": "1.5", "FLOAT": "0.1"}
        text = f" DEFAULT {default[kind]}" if kind in default and self.random.random() < 0.5 else ""
        self.lake.sql(f"ALTER TABLE t ADD COLUMN {name} {kind}{text}")
        self.columns[name] = kind

    def drop_column(self) -> None:
        name = self._some()
        if name is not None:
            self.lake.sql(f"ALTER TABLE t DROP COLUMN {name}")
            del self.columns[name]

    def rename_column(self) -> None:
        old = self._some()
        if old is not None:
            new = self.random.choice(
                [self._name(), f"c{self.random.randrange(self.names) + 1}"]
            )  # perhaps a dropped one's
            self.lake.sql(f"ALTER TABLE t RENAME {old} TO {new}")
            self.columns = {new if name == old else name: kind for name, kind in self.columns.items()}

    def widen_column(self) -> None:
        name = self._some(set(WIDER))
        if name is not None:
            wider = WIDER[self.columns[name]]
            self.lake.sql(f"ALTER TABLE t ALTER {name} SET DATA TYPE {wider}")
            self.columns[name] = wider

    def change_struct(self) -> None:
        name = self._some({"STRUCT(a INT, b VARCHAR)"})
        if name is not None:
            change = self.random.choice(["ADD COLUMN {}.{} INT DEFAULT 3", "RENAME {}.b TO {}", "DROP COLUMN {}.a"])
            self.lake.sql("ALTER TABLE t " + change.format(name, self._name()))
            del self.columns[name]  # it is there, and gets no more values

    def partition(self) -> None:
        terms = []
        for name in self.random.sample(list(self.columns), min(2, len(self.columns))):
            if self.columns[name] in TRANSFORMS:
                terms.append(self.random.choice(TRANSFORMS[self.columns[name]]).format(name))
        self.lake.sql(
            f"ALTER TABLE t SET PARTITIONED BY ({', '.join(terms)})" if terms else "ALTER TABLE t RESET PARTITIONED BY"
        )

    def add_file(self) -> None:
        path = self.lake.folder / f"added{self.rows}-{self.names}.parquet"
        ids = {b"PARQUET:field_id": b"%d" % self.random.randrange(1, 9)} if self.random.random() < 0.5 else None
        fields = [pa.field("id", pa.int64(), metadata=ids)]
        arrays: list[pa.Array] = [pa.array(range(self.rows, self.rows + 5))]
        if (name := self._some({"INT"})) is not None:
            fields.insert(0, pa.field(name, pa.int32()))
            arrays.insert(0, pa.array([1, None, 3, -4, 5], pa.int32()))
        pq.write_table(pa.table(arrays, schema=pa.schema(fields)), path)
        self.lake.sql(f"CALL ducklake_add_data_files('lake', 't', '{path}', allow_missing => true)")
        self.rows += 5

    def maintain(self) -> None:
        expired = self.random.choice(self.lake.snapshots())
        self.lake.sql(
            self.random.choice(
                [
                    "CALL ducklake_merge_adjacent_files('lake')",
                    "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.1)",
                    "CALL ducklake_flush_inlined_data('lake')",
                    "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
                    "CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)",
                    f"CALL ducklake_expire_snapshots('lake', versions => [{expired}])",
                ]
            )
        )

    def put_filters(self) -> None:
        """Ours: new versions of some files."""
        self.lake.release()
        table = self._opened()
        snapshot = table.snapshot(stored_only=True)
        changes = []
        for file in self.random.sample(snapshot.files, len(snapshot.files) // 2):
            where = table.new_location(file)
            parquet_bloom.add_filters(file.path, where.path, columns=["id"], raw_files=True)
            data = Path(where.path).read_bytes()
            changes.append(Change(file, where, len(data), int.from_bytes(data[-8:-4], "little")))
        table.commit(snapshot, changes, {})

    def _opened(self, version: int | None = None) -> DuckLakeTable:
        access = TableAccess(None, (str(self.lake.folder),), True)  # `add_file` adds files that lie beside the data
        return open_ducklake(self.lake.name(), None if version is None else str(version), access)

    def remember(self) -> None:
        """Keep the answer of a new snapshot. Later, DuckLake 1.5.5 itself may give rows twice: after a flush two
        delete files of one data file may be live in an old snapshot.
        """
        latest = self.lake.snapshots()[-1]
        answer = sorted_rows(self.lake.answer("SELECT * FROM t"))
        assert self.answers.setdefault(latest, answer) == answer, "filters, and cleaning, change no row"

    def compare(self) -> int:
        """Hold every snapshot against DuckLake's answer of its time; how many had rows in the catalog itself."""
        versions = set(self.lake.snapshots()) & self.answers.keys()
        self.lake.release()
        inlined = 0
        for version in sorted(versions):
            snapshot = self._opened(version).snapshot()
            inlined += not all(file.stored for file in snapshot.files)
            assert sorted_rows(live_rows(snapshot)) == self.answers[version], f"snapshot {version}"
            assert unsound(snapshot) == []
        assert len(versions) > 10
        return inlined


@pytest.mark.parametrize("seed", [2, *more_then_slow(range(3, 13), 3)])
def test_snapshots_of_random_histories_are_those_of_ducklake(seed, tmp_path):
    lake = Lake(tmp_path, sqlite=seed % 2 == 0)
    history = History(lake, seed)
    for _ in range(30):
        history.step()
        history.remember()
    history.compare()
    lake.sql("CALL ducklake_flush_inlined_data('lake')")
    history.remember()
    assert history.compare() == 0, "all rows are in files now"
    lake.release()

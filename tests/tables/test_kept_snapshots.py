"""Snapshots that a process keeps: equal to a fresh read, never of another table, in bounded memory.

Of all kinds of tables; what one kind alone has: test_kept_iceberg.py, test_kept_ducklake.py.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support import delta_tables as made
from support import iceberg_tables
from support.ducklake_tables import NOTHING_INLINED, Lake
from support.iceberg_tables import BY_NAME, SCHEMA, Warehouse, add_deletes, entries, position_deletes
from support.repeats import first_then_more

import parquet_bloom
from parquet_bloom.errors import TableFormatError
from parquet_bloom.source import adapters
from parquet_bloom.source.adapters import KeptStates
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.storage import version_token
from parquet_bloom.storage.stores import LOCAL
from parquet_bloom.tables.delta import table as delta
from parquet_bloom.tables.ducklake import table as ducklake
from parquet_bloom.tables.iceberg import opened


def settle() -> None:
    """Wait until a change can be told from the next one."""
    time.sleep(0.12)


def as_text(snapshot: Snapshot) -> list[Any]:
    """All that a snapshot says."""
    leaves = [(field.name,) for field in snapshot.fields]
    said: list[Any] = [snapshot.version, snapshot.identity, snapshot.fields, dict(snapshot.filter_settings)]
    for file in snapshot.files:
        entry: Any = file.entry
        if hasattr(entry, "record"):
            entry = (entry.manifest, entry.record._data[:4])
        said += [file.path, file.shown, getattr(file, "relative", ""), file.rows, file.size, dict(file.constants)]
        said += [sorted(file.doubtful), [file.bounds.get(leaf) for leaf in leaves], entry]
        said.append(file.deletes and (file.deletes.rows, file.deletes.positions().tolist()))
    return [*said, getattr(snapshot, "logged", None)]


class DeltaKept:
    """A table with a column `id`.

    reads   what reads a log: a module or class, and the function
    states  where snapshots are kept
    """

    reads: tuple[Any, str] = (delta, "replay")
    states: tuple[Any, str] = (delta, "_VERSIONS")

    def __init__(self, root: Path) -> None:
        self.root, self.options = root / "t", {}
        self.name = f"delta:{self.root}"

    def append(self, first: int) -> None:
        """One more file of three rows."""
        write_deltalake(self.root, pa.table({"id": range(first, first + 3)}), mode="append")

    def versions(self) -> list[str]:
        return [*map(str, range(DeltaTable(self.root).version() + 1))]

    def snapshot(self, version: str | None = None) -> Snapshot:
        return delta.open_delta(str(self.root), version).snapshot()

    def ids(self, version: str | None = None) -> list[int]:
        name = self.name if version is None else f"{self.name}@{version}"
        return sorted(parquet_bloom.read_table(name, columns=["id"], **self.options)["id"].to_pylist())

    def again(self) -> None:
        """Another table, in the place of this one."""
        shutil.rmtree(self.root)

    def change(self, rng: Random, step: int) -> None:
        """Something that others may do next."""
        if step and rng.random() < 0.3:
            shutil.rmtree(self.root)
        if not self.root.exists():
            made.random_table(self.root, rng, rng.randint(1, 4))

    def close(self) -> None:
        pass


class IcebergKept(DeltaKept):
    reads = (opened, "read_manifests")
    states = (opened, "_SNAPSHOTS")

    def __init__(self, root: Path) -> None:
        self.warehouse = Warehouse(root)
        self.name, self.options = "iceberg:cat/ns.t", {"catalog_properties": self.warehouse.properties}
        self.warehouse.create(SCHEMA, partition_spec=BY_NAME, location=f"{self.warehouse.root}/here")

    def append(self, first: int, n: int = 3) -> None:
        rows = [{"id": i, "name": f"n{i % 2}"} for i in range(first, first + n)]
        iceberg_tables.append(self.warehouse.load(), rows)

    def versions(self) -> list[str]:
        return [str(one.snapshot_id) for one in self.warehouse.load().history()]

    def snapshot(self, version: str | None = None) -> Snapshot:
        return self.warehouse.read(version=version)

    def again(self) -> None:
        self.warehouse.catalog.drop_table("ns.t")
        self.warehouse.create(SCHEMA, partition_spec=BY_NAME, location=f"{self.warehouse.root}/here")

    def change(self, rng: Random, step: int) -> None:
        table = self.warehouse.load()
        if step and rng.random() < 0.4 and (there := entries(table)):
            chosen = rng.choice(there).data_file
            add_deletes(table, position_deletes(table, {chosen.file_path: [0]}, chosen))
        elif step and rng.random() < 0.3:
            table.delete(f"id >= {20 * (step - 1)}" if rng.random() < 0.5 else "id >= 0")
        else:
            self.append(20 * step, rng.randint(1, 9))

    def close(self) -> None:
        self.warehouse.close()


class DuckLakeKept(DeltaKept):
    reads = (ducklake.Reader, "snapshot")
    states = (ducklake, "_SNAPSHOTS")
    sqlite = False

    def __init__(self, root: Path) -> None:
        self.lake = Lake(root, self.sqlite)
        self.name, self.options = f"ducklake:{self.lake.name()}", {}
        self._do(NOTHING_INLINED, "CREATE TABLE t (id BIGINT, k VARCHAR)")

    def _do(self, *sql: str) -> None:
        self.lake.sql(*sql)
        self.lake.release()

    def append(self, first: int) -> None:
        self._do(f"INSERT INTO t SELECT i, 'a' FROM range({first}, {first + 3}) r(i)")

    def versions(self) -> list[str]:
        found = self.lake.snapshots()[2:]
        self.lake.release()
        return [*map(str, found)]

    def snapshot(self, version: str | None = None) -> Snapshot:
        return ducklake.open_ducklake(self.lake.name(), version).snapshot()

    def again(self) -> None:
        self.lake.catalog.unlink()
        shutil.rmtree(self.lake.data)
        self._do(NOTHING_INLINED, "CREATE TABLE t (id BIGINT, k VARCHAR)")

    def change(self, rng: Random, step: int) -> None:
        self._do(
            rng.choice([
                f"INSERT INTO t SELECT {step} * 100 + i, 'a' || i % 2 FROM range({rng.choice([3, 60])}) r(i)",
                f"DELETE FROM t WHERE id % {rng.randint(2, 5)} = 0",
                f"UPDATE t SET k = 'u' WHERE id % {rng.randint(2, 5)} = 1",
                "CALL ducklake_merge_adjacent_files('lake')",
                "ALTER TABLE t SET PARTITIONED BY (k)",
                "CALL lake.set_option('data_inlining_row_limit', 10)",
            ])
        )  # fmt: skip

    def close(self) -> None:
        self.lake.release()


class SQLiteKept(DuckLakeKept):
    sqlite = True


KINDS = {"delta": DeltaKept, "iceberg": IcebergKept, "duckdb": DuckLakeKept, "sqlite": SQLiteKept}


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DeltaKept]:
    """A table of each kind, without files."""
    made = KINDS[request.param](tmp_path)
    yield made
    made.close()


def noted(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> list[Any]:
    """The first arguments of each call of a function from now on."""
    calls: list[Any] = []
    real = getattr(where, name)

    def note(*arguments: Any) -> Any:
        calls.append(arguments[0])
        return real(*arguments)

    monkeypatch.setattr(where, name, note)
    return calls


# --- every kind -------------------------------------------------------------------------------------


def test_a_log_that_did_not_change_is_read_once(table: DeltaKept, monkeypatch: pytest.MonkeyPatch) -> None:
    for first in (0, 10):
        table.append(first)
    old = table.versions()[-2]
    settle()
    plans = noted(monkeypatch, *table.reads)
    for _ in range(3):
        assert table.ids() == [0, 1, 2, 10, 11, 12]
    assert parquet_bloom.count(table.name, "id = 11", **table.options) == 1
    assert len(plans) == 1
    for _ in range(2):
        assert table.ids(old) == [0, 1, 2]
    assert len(plans) == 2
    table.append(20)
    settle()
    for _ in range(2):
        assert len(table.ids()) == 9, "the latest version is looked up each time"
    assert len(plans) == 3
    assert table.ids(old) == [0, 1, 2]
    assert len(plans) == 3 + (type(table) is not DeltaKept), "a version of Delta's log needs no look at a later one"


def test_a_log_of_this_moment_is_not_kept(table: DeltaKept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_token, "_SETTLED_S", 600)  # the moment lasts as long as a slow machine needs
    table.append(0)
    plans = noted(monkeypatch, *table.reads)
    for _ in range(2):
        assert table.ids() == [0, 1, 2]
    assert len(plans) == 2


def test_a_table_that_was_made_again_is_another_one(table: DeltaKept) -> None:
    """At the same place, with the same numbers."""
    for first in (0, 50):
        table.append(first)
        settle()
        for _ in range(2):
            assert table.ids() == [first, first + 1, first + 2]
            settle()
        if first == 0:
            table.again()


@pytest.mark.parametrize("link", ["file", "folder"])
def test_links_and_rights_are_looked_at_by_each_call(table: DeltaKept, tmp_path: Path, link: str) -> None:
    """What one call may read the next may not."""
    table.append(0)
    settle()
    file = Path(table.snapshot().files[0].path)
    place = file if link == "file" or file.parent == getattr(table, "root", None) else file.parent
    shutil.move(place, tmp_path / "outside")
    place.symlink_to(tmp_path / "outside")
    for _ in range(2):
        with pytest.raises(TableFormatError, match="outside of.*allow_roots"):
            parquet_bloom.count(table.name, **table.options)
        assert parquet_bloom.count(table.name, allow_roots=tmp_path, **table.options) == 3


@pytest.mark.filterwarnings("ignore:Delete operation did not match")
@pytest.mark.parametrize("seed", first_then_more(range(4), 1))
def test_a_kept_snapshot_is_a_fresh_one(table: DeltaKept, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(seed)
    for step in range(4):
        table.change(rng, step)
        settle()
        for version in rng.choices([None, *table.versions()], k=3):
            found = [as_text(table.snapshot(version)) for _ in range(2)]
            with monkeypatch.context() as nothing_kept:
                nothing_kept.setattr(*table.states, KeptStates())
                wanted = as_text(table.snapshot(version))
            assert found == [wanted, wanted]


# --- Delta ------------------------------------------------------------------------------------------


def table_of(root: Path, name: str) -> None:
    row = made.file_of(root, name, pa.table({"id": [int(name[1])]}))
    made.commit(root, 0, made.protocol(), made.metadata([made.field("id", "long")]), row)


@pytest.mark.parametrize("anew", [False, True], ids=["written over", "made again"])
def test_a_commit_of_the_same_size_and_time_is_another_one(tmp_path: Path, anew: bool) -> None:
    root, log = tmp_path / "t", tmp_path / "t/_delta_log" / f"{0:020d}.json"
    table_of(root, "x1.parquet")
    settle()
    was = log.stat()
    assert parquet_bloom.read_table(root)["id"].to_pylist() == [1]
    if anew:
        shutil.rmtree(root)
        table_of(root, "x2.parquet")
    else:
        made.file_of(root, "x2.parquet", pa.table({"id": [2]}))
        log.write_text(log.read_text().replace("x1.parquet", "x2.parquet"))
    os.utime(log, ns=(was.st_atime_ns, was.st_mtime_ns))
    now = log.stat()
    assert (now.st_size, now.st_mtime_ns) == (was.st_size, was.st_mtime_ns)
    assert parquet_bloom.read_table(root)["id"].to_pylist() == [2]


def test_two_tables_by_one_relative_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in (1, 2):
        table_of(tmp_path / str(i) / "t", f"x{i}.parquet")
    settle()
    for i in (1, 2, 1):
        monkeypatch.chdir(tmp_path / str(i))
        assert parquet_bloom.read_table("delta:t")["id"].to_pylist() == [i]


# --- memory, threads, forks -------------------------------------------------------------------------


def test_few_states_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    states: KeptStates[int] = KeptStates()
    for i in range(20):
        states.keep(i, LOCAL, (i,), 1, i)
    assert len(states) == adapters._MOST_STATES
    assert states.find(12, LOCAL, (12,)) == 12, "used now, so that it stays"
    monkeypatch.setattr(adapters, "_MOST_FILES", 10)
    states.keep("large", LOCAL, (), 9, 99)
    assert [states.find(i, LOCAL, (i,)) for i in range(20)].count(None) == 19, "one more file has room"
    assert states.find(12, LOCAL, (12,)) == 12
    states.keep("larger", LOCAL, (), 11, 100)
    assert states.find("larger", LOCAL, ()) is None
    assert states.find("large", LOCAL, ("other",)) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_threads_and_forked_processes_share_them(tmp_path: Path) -> None:
    table, counts = DeltaKept(tmp_path), []
    for first in (0, 10):
        table.append(first)
    settle()

    def ask() -> None:
        for i in range(20):
            counts.append(len(table.ids(str(i % 2))) - 3 * (i % 2))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [3] * 80
    with delta._VERSIONS._lock.own:  # as if another thread of the parent had it
        child = os.fork()
        if not child:
            os._exit(0 if len(table.ids()) == 6 else 1)
    assert os.waitpid(child, 0)[1] == 0

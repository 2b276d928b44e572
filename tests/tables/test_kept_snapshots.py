"""Snapshots that a process keeps: equal to a fresh read, never of another table, in bounded memory."""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support import delta_tables as made
from support.repeats import more_then_slow

import parquet_bloom
from parquet_bloom.errors import TableFormatError
from parquet_bloom.source import kept
from parquet_bloom.source.kept import KeptStates
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.storage.stores import LOCAL
from parquet_bloom.tables.delta import table as delta
from parquet_bloom.tables.delta.table import open_delta


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """No test begins with another's tables."""
    delta._VERSIONS.clear()
    yield
    delta._VERSIONS.clear()


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions whose logs are read."""
    versions: list[int] = []
    replay = delta.replay

    def note(folder: Any, files: Any) -> Any:
        versions.append(files.version)
        return replay(folder, files)

    monkeypatch.setattr(delta, "replay", note)
    return versions


def settle() -> None:
    """Wait until a change can be told from the next one."""
    time.sleep(0.12)


def append(root: Path, first: int, rows: int = 10) -> None:
    write_deltalake(root, pa.table({"id": range(first, first + rows)}), mode="append")


def as_text(snapshot: Snapshot) -> list[Any]:
    """All that a snapshot says."""
    leaves = [(field.name,) for field in snapshot.fields]
    return [snapshot.version, snapshot.identity, snapshot.fields, snapshot.logged] + [
        (
            file.path, file.shown, file.relative, file.rows, file.size, dict(file.constants),
            [file.bounds.get(leaf) for leaf in leaves], file.entry,
            file.deletes and (file.deletes.rows, file.deletes.positions().tolist()),
        )
        for file in snapshot.files
    ]  # fmt: skip


def test_a_log_that_did_not_change_is_read_once(tmp_path: Path, replays: list[int]) -> None:
    for first in (0, 10, 20):
        append(tmp_path, first)
    settle()
    assert [parquet_bloom.count(tmp_path) for _ in range(3)] == [30] * 3
    assert parquet_bloom.check(tmp_path, "id = 15").excluded
    assert parquet_bloom.count(f"delta:{tmp_path}@2") == 30
    assert replays == [2]
    assert parquet_bloom.count(f"delta:{tmp_path}@1") == 20
    assert replays == [2, 1]
    append(tmp_path, 30)
    assert parquet_bloom.count(tmp_path) == 40, "the latest version is looked up each time"
    assert parquet_bloom.count(f"delta:{tmp_path}@1") == 20
    assert replays == [2, 1, 3]


def test_a_log_of_this_moment_is_not_kept(tmp_path: Path, replays: list[int]) -> None:
    for first in range(0, 30, 10):
        append(tmp_path, first)
        assert parquet_bloom.count(tmp_path) == first + 10
    assert replays == [0, 1, 2]


def table_of(root: Path, name: str) -> None:
    row = made.file_of(root, name, pa.table({"id": [int(name[1])]}))
    made.commit(root, 0, made.protocol(), made.metadata([made.field("id", "long")]), row)


def test_a_table_that_was_made_again_is_another_one(tmp_path: Path) -> None:
    """Same place, same version, same size and time of each file of the log, same id."""
    root, log = tmp_path / "t", tmp_path / "t/_delta_log" / f"{0:020d}.json"
    table_of(root, "x1.parquet")
    settle()
    was = log.stat()
    assert parquet_bloom.read_table(root)["id"].to_pylist() == [1]
    shutil.rmtree(root)
    table_of(root, "x2.parquet")
    os.utime(log, ns=(was.st_atime_ns, was.st_mtime_ns))
    now = log.stat()
    assert (now.st_size, now.st_mtime_ns) == (was.st_size, was.st_mtime_ns)
    for _ in range(2):
        assert parquet_bloom.read_table(root)["id"].to_pylist() == [2]
        settle()


def test_a_commit_that_was_written_over_is_another_one(tmp_path: Path) -> None:
    table_of(tmp_path, "x1.parquet")
    made.file_of(tmp_path, "x2.parquet", pa.table({"id": [2]}))
    log = tmp_path / "_delta_log" / f"{0:020d}.json"
    settle()
    was = log.stat()
    assert parquet_bloom.read_table(tmp_path)["id"].to_pylist() == [1]
    log.write_text(log.read_text().replace("x1.parquet", "x2.parquet"))
    os.utime(log, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert parquet_bloom.read_table(tmp_path)["id"].to_pylist() == [2]


def test_two_tables_by_one_relative_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in (1, 2):
        (tmp_path / str(i)).mkdir()
        table_of(tmp_path / str(i) / "t", f"x{i}.parquet")
    settle()
    for i in (1, 2, 1):
        monkeypatch.chdir(tmp_path / str(i))
        assert parquet_bloom.read_table("delta:t")["id"].to_pylist() == [i]


def test_what_one_call_may_read_the_next_may_not(tmp_path: Path) -> None:
    row = made.file_of(tmp_path / "other", "x1.parquet", pa.table({"id": [1]}))
    row["add"]["path"] = f"{tmp_path}/other/x1.parquet"
    made.commit(tmp_path / "t", 0, made.protocol(), made.metadata([made.field("id", "long")]), row)
    settle()
    for _ in range(2):
        assert parquet_bloom.count(tmp_path / "t", allow_roots=tmp_path / "other") == 1
        with pytest.raises(TableFormatError, match="allow_roots"):
            parquet_bloom.count(tmp_path / "t")


@pytest.mark.parametrize("link", ["part/x1.parquet", "part"])
def test_links_are_followed_by_each_call(tmp_path: Path, link: str) -> None:
    root = tmp_path / "t"
    row = made.file_of(root, "part/x1.parquet", pa.table({"id": [1]}))
    made.commit(root, 0, made.protocol(), made.metadata([made.field("id", "long")]), row)
    settle()
    assert parquet_bloom.count(root) == 1
    shutil.move(root / link, tmp_path / "outside")
    (root / link).symlink_to(tmp_path / "outside")
    with pytest.raises(TableFormatError, match="outside of"):
        parquet_bloom.count(root)


def test_deletes_are_those_of_the_version(tmp_path: Path, replays: list[int]) -> None:
    row = made.file_of(tmp_path, "x.parquet", pa.table({"id": range(10)}))
    first = [made.protocol(["deletionVectors"], ["deletionVectors"]), made.metadata([made.field("id", "long")]), row]
    made.commit(tmp_path, 0, *first)
    gone = {"remove": {"path": "x.parquet", "dataChange": True, "deletionTimestamp": 1}}
    made.commit(tmp_path, 1, gone, {"add": row["add"] | {"deletionVector": made.inline([1, 2])}})
    settle()
    for _ in range(2):
        assert parquet_bloom.read_table(tmp_path)["id"].to_pylist() == [0, 3, 4, 5, 6, 7, 8, 9]
        assert parquet_bloom.count(f"delta:{tmp_path}@0") == 10
        assert parquet_bloom.count(tmp_path) == 8
    assert sorted(replays) == [0, 1]


@pytest.mark.parametrize("seed", more_then_slow(range(20), 2))
def test_a_kept_snapshot_is_a_fresh_one(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    for round_ in range(3):
        if round_ and rng.random() < 0.3:
            shutil.rmtree(tmp_path / "t")
        if not (tmp_path / "t").exists():
            made.random_table(tmp_path / "t", rng, rng.randint(1, 4))
        settle()
        latest = DeltaTable(tmp_path / "t").version()
        for version in rng.choices(range(latest + 1), k=4):
            name = str(tmp_path / "t")
            found = [as_text(open_delta(name, str(version)).snapshot()) for _ in range(2)]
            with monkeypatch.context() as nothing_kept:
                nothing_kept.setattr(delta, "_VERSIONS", KeptStates())
                wanted = as_text(open_delta(name, str(version)).snapshot())
            assert found == [wanted, wanted]


# --- memory, threads, forks -------------------------------------------------------------------------


def test_few_states_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    states: KeptStates[int] = KeptStates()
    for i in range(20):
        states.keep(i, LOCAL, (i,), 1, i)
    assert len(states) == kept._MOST_STATES
    assert states.find(12, LOCAL, (12,)) == 12, "used now, so that it stays"
    monkeypatch.setattr(kept, "_MOST_FILES", 10)
    states.keep("large", LOCAL, (), 9, 99)
    assert [states.find(i, LOCAL, (i,)) for i in range(20)].count(None) == 19, "one more file has room"
    assert states.find(12, LOCAL, (12,)) == 12
    states.keep("larger", LOCAL, (), 11, 100)
    assert states.find("larger", LOCAL, ()) is None
    assert states.find("large", LOCAL, ("other",)) is None


def test_threads_share_them(tmp_path: Path) -> None:
    for first in (0, 10):
        append(tmp_path, first)
    settle()
    counts: list[int] = []

    def ask() -> None:
        for i in range(20):
            counts.append(parquet_bloom.count(f"delta:{tmp_path}@{i % 2}", "id >= 0" if i % 3 else None) - 10 * (i % 2))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [10] * 80


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_goes_on(tmp_path: Path) -> None:
    append(tmp_path, 0)
    settle()
    assert parquet_bloom.count(tmp_path) == 10
    with delta._VERSIONS._lock.own:  # as if another thread of the parent had it
        child = os.fork()
        if not child:
            append_seen = parquet_bloom.count(tmp_path) == 10
            os._exit(0 if append_seen else 1)
    assert os.waitpid(child, 0)[1] == 0

"""Commits of new versions of files to Delta tables: no row changes, for any reader, version or feed; others are met."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from support import delta_tables as made
from support.duckdb_process import Asked
from support.object_store import SECRET, ObjectStore, options_of
from support.repeats import by_turns
from test_delta_snapshot import rows_of

import parquet_bloom
from parquet_bloom.errors import ConflictError, RequestError, StorageError, TableFormatError, UnknownCommitError
from parquet_bloom.extras import to_install
from parquet_bloom.source.names import TableAccess
from parquet_bloom.source.snapshot import Change, Snapshot, Table, TableFile
from parquet_bloom.tables.delta import commit
from parquet_bloom.tables.delta import table as delta
from parquet_bloom.tables.delta.actions import _is_deep
from parquet_bloom.tables.delta.commit import reencoded_paths

WAYS = ("new-path", "same-path")
ID = made.metadata([made.field("id", "long")])  # of a table with one column


def grown(path: Path, to: Path) -> tuple[int, int]:
    """Put the footer behind a file once more, which is a Parquet file of the same rows; its size, and the footer's."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    to.write_bytes(data + data[-8 - length :])
    return len(data) + 8 + length, length


def change(table: Table, file: TableFile, way: str) -> Change:
    to = file if way == "same-path" else table.new_location(file)
    size, footer = grown(Path(file.path), Path(to.path))
    return Change(file, to, size, footer)


def changed(
    root: Path, way: str, only: Callable[[TableFile], bool] = lambda _: True
) -> tuple[Table, Snapshot, list[Change]]:
    """A commit that is prepared: new versions of all files, or of some."""
    table = delta.open_delta(str(root), None)
    snapshot = table.snapshot()
    return table, snapshot, [change(table, file, way) for file in snapshot.files if only(file)]


def ids(first: int, n: int = 100) -> pa.Table:
    return pa.table({"id": range(first, first + n), "p": ["a" if i % 2 else "b c/%=é" for i in range(n)]})


def opened(root: Path, version: int | None = None, **more: Any) -> DeltaTable:
    return DeltaTable(root.as_uri(), version=version, **more)


def live(root: Path, version: int | None = None) -> list[int]:
    """The ids of a version by deltalake, sorted."""
    return sorted(opened(root, version).to_pyarrow_table()["id"].to_pylist())


def vacuum(root: Path) -> None:
    """Take what the log's last version does not name, whoever wrote it."""
    opened(root).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)


def last_commit(root: Path) -> list[dict[str, Any]]:
    last = max((root / "_delta_log").glob("*.json"))
    return [json.loads(line) for line in last.read_text().splitlines()]


# --- what a commit says ---------------------------------------------------------------------------


def table_at(folder: Path, name: str = "t a#b") -> Path:
    """A table of two versions, four files in two partitions, ids 0 to 199."""
    root = folder / name
    root.mkdir()
    for first in (0, 100):
        write_deltalake(root.as_uri(), ids(first), mode="append", partition_by=["p"])
    return root


@pytest.mark.smoke
@pytest.mark.more
def test_duckdb_reads_what_was_committed(tmp_path, delta_duckdb: Asked):
    root = table_at(tmp_path, "t")
    for way in WAYS:
        second_add(root, way)
        for of, condition, expected in (
            ("", "", [200, 19900]),
            ("", "WHERE p = 'a' AND id < 50", [25, 625]),
            (", version => 0", "", [100, 4950]),
        ):
            found = delta_duckdb(f"SELECT count(*), sum(id)::INTEGER FROM delta_scan('{root}'{of}) {condition}")
            assert found == [expected], (way, of, condition)


def test_a_commit_says_what_the_log_said(tmp_path):
    root = table_at(tmp_path)
    for way in reversed(WAYS):
        table, snapshot, changes = changed(root, way)
        assert {(ways.default, ways.refusal) for ways in table.commit_modes(snapshot).values()} == {("new-path", "")}
        entries = {file.entry.path: file.entry for file in snapshot.files}
        table.commit(snapshot, changes, {"parquet-bloom": "id"})
        info, *actions = last_commit(root)
        assert info["commitInfo"]["parquet-bloom"] == "id"
        assert {kind for action in actions for kind in action} == {"new-path": {"add", "remove"}}.get(way, {"add"})
        assert not any(next(iter(action.values()))["dataChange"] for action in actions)
        added = {action["add"]["path"]: action["add"] for action in actions if "add" in action}
        for old, entry in entries.items():
            new = old if way == "same-path" else next(p for p in added if p.startswith(old.removesuffix(".parquet")))
            assert added[new]["stats"] == entry.stats
            assert added[new]["partitionValues"] == entry.values
            assert added[new]["modificationTime"] == entry.modified > 0, "streams begin with the oldest"
    removed = {action["remove"]["path"]: action["remove"] for action in actions if "remove" in action}
    assert set(removed) == set(entries), "a path is spelt as it was"
    told = {path: (one["partitionValues"], one["size"]) for path, one in removed.items()}
    assert told == {path: (entry.values, entry.size) for path, entry in entries.items()}


def test_no_change_is_no_commit(tmp_path):
    table = delta.open_delta(str(table_at(tmp_path)), None)
    assert table.commit(table.snapshot(), [], {}) == "1" == table.snapshot().version


def test_names_of_all_characters_stay_one_file(tmp_path):
    plain = "".join(chr(code) for code in range(32, 127) if chr(code) not in "/%*")
    names = [f"{c}-{i}.parquet" for i, c in enumerate(plain + "é")]
    actions = []
    for i, name in enumerate(names):
        action = made.file_of(tmp_path, name, pa.table({"id": [i]}))
        action["add"]["path"] = commit.quote(name, "!$&'()+,-.:;=@_~")
        actions.append(action)
    made.commit(tmp_path, 0, made.protocol(), ID, *actions)
    for way in (*WAYS, "new-path"):
        table, snapshot, changes = changed(tmp_path, way)
        assert not any(ways.refusal for ways in table.commit_modes(snapshot).values())
        table.commit(snapshot, changes, {})
        assert live(tmp_path) == list(range(len(names))), "a path that deltalake spelt anew would leave two files"


def test_a_path_that_deltalake_would_spell_anew_is_refused(tmp_path):
    spelt = ["p%3Da.parquet", "a*b.parquet", "a%c3%a9.parquet", "a b.parquet"]
    made.commit(tmp_path, 0, made.protocol(), ID, *map(made.add, spelt))
    table = delta.open_delta(str(tmp_path), None)
    found = table.commit_modes(table.snapshot()).values()
    assert [ways.default for ways in found] == [None] * 4
    assert all("written in a form that deltalake would change" in ways.refusal for ways in found)


class Later:
    """deltalake as a later version may be, which encodes more in the paths of removes."""

    def __init__(self) -> None:
        self.real = commit.deltalake()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def RemoveAction(self, path: str, *more: Any) -> Any:
        return self.real.RemoveAction(path.replace("=", "%3D"), *more)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills by a signal of Linux")
def test_what_a_killed_run_left_of_a_trial_goes_with_the_next(tmp_path):
    """A killed `add` left a folder in the system's for temporary files, and nobody removed it."""
    code = (
        "import os, signal, sys; from parquet_bloom.tables.delta import commit\n"
        "from parquet_bloom.tables.delta.commit import deltalake\n"
        "class Killed:\n"
        "    def __getattr__(self, name): os.kill(os.getpid(), signal.SIGKILL)\n"
        "commit.reencoded_paths(deltalake() if sys.argv[1:] else Killed(), ['a.parquet'])\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    killed = subprocess.run([sys.executable, "-c", code], env=environment)
    assert killed.returncode == -9
    [stale] = tmp_path.iterdir()
    subprocess.run([sys.executable, "-c", code, "again"], env=environment, check=True)
    assert list(tmp_path.iterdir()) == [stale], "it is young, and might belong to who has not locked it yet"
    os.utime(stale, (0, 0))
    foreign = tmp_path / "parquet-bloom-spelling-file"
    foreign.write_text("a file of that name is none of ours")
    subprocess.run([sys.executable, "-c", code, "again"], env=environment, check=True)
    assert list(tmp_path.iterdir()) == [foreign]


def test_what_deltalake_would_write_is_tried(tmp_path, monkeypatch):
    paths = ["a.parquet", "p=1/a.parquet", "p%3D1/a.parquet", "\ud800", "%00", "b.parquet"]
    assert reencoded_paths(commit.deltalake(), paths) == {"p%3D1/a.parquet", "\ud800"} | (
        reencoded_paths(commit.deltalake(), ["%00"])
    )
    assert reencoded_paths(Later(), ["a.parquet", "p=1/a.parquet"]) == {"p=1/a.parquet"}
    assert reencoded_paths(Later(), []) == set()
    rng, letters = random.Random(5), "aZ09_-.=/ %+~'é,;&"
    many = ["x" + "".join(rng.choices(letters, k=rng.randint(1, 6))) for _ in range(100)]
    alone = {path for path in many if reencoded_paths(commit.deltalake(), [path])}
    assert alone == reencoded_paths(commit.deltalake(), many), "names of one shape are tried once"
    root = table_at(tmp_path)
    monkeypatch.setattr(delta, "deltalake", Later)
    with pytest.raises(TableFormatError, match="its path is written in a form that deltalake would change"):
        parquet_bloom.add_filters(f"delta:{root}", columns=["id"])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(StorageError, match="no table to try paths in"):
        parquet_bloom.add_filters(f"delta:{root}", columns=["id"])


def test_a_commit_to_a_table_of_mapped_columns(tmp_path):
    fields = [made.mapped("id", "long", "col-1", 1), made.mapped("p", "string", "col-p", 2)]
    add = made.file_of(
        tmp_path, "a.parquet", pa.table({"col-1": [1, 2]}), stats={"numRecords": 2, "minValues": {"col-1": 1}}
    )
    add["add"]["partitionValues"] = {"col-p": "x"}
    mapping = {"delta__columnMapping__mode": "name"}
    made.commit(tmp_path, 0, made.protocol(2, 5), made.metadata(fields, ["p"], **mapping), add)
    for way in WAYS:
        table, snapshot, changes = changed(tmp_path, way)
        table.commit(snapshot, changes, {})
        [file] = table.snapshot().files
        assert (file.entry.values, file.entry.stats) == ({"col-p": "x"}, add["add"]["stats"])
        assert [next(iter(action)) for action in last_commit(tmp_path)] == [
            "commitInfo",
            *(["add", "remove"] if way == "new-path" else ["add"]),
        ]


# --- ways -----------------------------------------------------------------------------------------


REFUSED = {
    "deletion vector": made.add("a", deletionVector=made.inline([0])),
    "has baseRowId, defaultRowCommitVersion, which": made.add("b", baseRowId=0, defaultRowCommitVersion=0),
    "has the tag ZCUBE_ID, which deltalake cannot": made.add("c", tags={"ZCUBE_ID": "x"}),
    "has clusteringProvider": made.add("d", clusteringProvider="liquid"),
    "outside the table's folder": made.add("file:///elsewhere/a.parquet"),
}


def test_a_file_with_more_than_deltalake_carries_is_refused(tmp_path):
    hints = {"INSERTION_TIME": "1", "MIN_INSERTION_TIME": "1", "OPTIMIZE_TARGET_SIZE": "9"}
    free = [made.add("e"), made.add("f", tags={}), made.add("g", tags=hints)]
    feature = ["deletionVectors"]
    made.commit(tmp_path, 0, made.protocol(feature, feature), ID, *REFUSED.values(), *free)
    table = delta.open_delta(str(tmp_path), None, None, TableAccess(None, ("/elsewhere",), True))
    snapshot = table.snapshot()
    modes = table.commit_modes(snapshot)
    for reason, file in zip(REFUSED, snapshot.files, strict=False):
        ways = modes[file.path]
        assert ways.default is None
        assert reason in ways.no_same_path
        assert reason in ways.no_new_path
        assert ways.refusal == ways.no_new_path, "said once"
        with pytest.raises(TableFormatError, match=re.escape(reason)):
            table.commit(snapshot, [Change(file, file, 5, 1)], {})
    assert [modes[file.path].default for file in snapshot.files[-3:]] == ["new-path"] * 3, "the others are free"
    assert len(list((tmp_path / "_delta_log").iterdir())) == 1


def test_a_table_with_features_that_a_commit_would_break_is_refused(tmp_path):
    for i, (protocol, reason) in enumerate(
        [
            (made.protocol([], ["rowTracking", "domainMetadata"]), "row tracking is on"),
            (made.protocol([], ["icebergCompatV2", "columnMapping"]), "icebergCompatV2 is on"),
            (made.protocol([], ["zebra", "clustering"]), "deltalake does not commit: clustering, zebra"),
            (made.protocol(2, 6), "identityColumns"),
        ]
    ):
        made.commit(tmp_path / str(i), 0, protocol, ID, made.add("a"))
        table = delta.open_delta(str(tmp_path / str(i)), None)
        with pytest.raises(TableFormatError, match=reason):
            table.commit_modes(table.snapshot())


READER = ["columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"]
WRITER = ["appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants"]


def test_deltalake_commits_with_the_features_that_are_let_by(tmp_path):
    for feature in READER + WRITER:
        root = tmp_path / feature
        add = made.file_of(root, "a.parquet", pa.table({"id": [1, 2]}))
        only_grows = {"delta.appendOnly": "true"} if feature == "appendOnly" else {}
        needs = made.protocol([feature] if feature in READER else [], [feature])
        made.commit(root, 0, needs, made.metadata([made.field("id", "long")], **only_grows), add)
        for number, way in enumerate(WAYS, 1):
            table, snapshot, changes = changed(root, way)
            assert table.commit(snapshot, changes, {}) == str(number), feature
            assert rows_of(table.snapshot())["id"].to_pylist() == [1, 2], feature


# --- others ---------------------------------------------------------------------------------------


def append(root: Path) -> None:
    write_deltalake(root.as_uri(), ids(200), mode="append", partition_by=["p"])


def second_add(root: Path, way: str) -> None:
    table, snapshot, changes = changed(root, way)
    table.commit(snapshot, changes, {})


IN_THE_WAY: dict[str, Callable[[Path], Any]] = {
    "delete": lambda root: opened(root).delete("id = 7"),
    "compact": lambda root: opened(root).optimize.compact(),
    "a second add of new paths": lambda root: second_add(root, "new-path"),
    "a second add of the same paths": lambda root: second_add(root, "same-path"),
    "properties": lambda root: opened(root).alter.set_table_properties({"delta.appendOnly": "true"}),
    "restore": lambda root: opened(root).restore(0),
}
BESIDE: dict[str, Callable[[Path], Any]] = {
    "append": append,
    "two appends": lambda root: [append(root), append(root)],
    "delete elsewhere": lambda root: opened(root).delete("p = 'a'"),
}


def whole_partition(file: TableFile) -> bool:
    return file.constants["p"].as_py() != "a"


def let_in(moment: str, work: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another program work at the moment that is tested."""
    if moment == "before the commit":
        work()
        return
    real = commit.Transaction.attempt

    def attempt(self: commit.Transaction, version: int, actions: Any) -> bool:
        monkeypatch.setattr(commit.Transaction, "attempt", real)
        work()
        return real(self, version, actions)

    monkeypatch.setattr(commit.Transaction, "attempt", attempt)


MOMENTS = ("before the commit", "between check and commit")


def with_moments(names: Iterable[str]) -> list[tuple[str, str, str]]:
    """Each name and each way, at moments that take turns."""
    return [(name, way, MOMENTS[(i + j) % 2]) for i, name in enumerate(names) for j, way in enumerate(WAYS)]


@pytest.mark.parametrize(("name", "way", "moment"), with_moments(IN_THE_WAY))
def test_who_touched_a_file_of_ours_was_faster(tmp_path, monkeypatch, name, way, moment):
    root = table_at(tmp_path)
    table, snapshot, changes = changed(root, way)
    if name == "a second add of the same paths" and way == "same-path":
        for file in snapshot.files:  # the other program starts from the old bytes
            os.truncate(file.path, file.size)
    let_in(moment, lambda: IN_THE_WAY[name](root), monkeypatch)
    with pytest.raises(ConflictError, match="nothing was committed"):
        table.commit(snapshot, changes, {})
    assert "parquetBloomCommit" not in str(last_commit(root)) or "second add" in name, "the other commit is the last"
    wanted = {"delete": [i for i in range(200) if i != 7], "restore": list(range(100))}
    assert live(root) == wanted.get(name, list(range(200))), "the rows are those of the other commit"


@pytest.mark.parametrize(("name", "way", "moment"), with_moments(BESIDE))
def test_who_touched_other_files_is_no_conflict(tmp_path, monkeypatch, name, way, moment):
    root = table_at(tmp_path)
    table, snapshot, changes = changed(root, way, whole_partition)
    let_in(moment, lambda: BESIDE[name](root), monkeypatch)
    assert table.commit(snapshot, changes, {}) == ("4" if name == "two appends" else "3")
    wanted = {
        "append": list(range(300)),
        "two appends": sorted([*range(300), *range(200, 300)]),
        "delete elsewhere": list(range(0, 200, 2)),
    }
    assert live(root) == wanted[name]
    sizes = {file.path: file.size for file in table.snapshot().files}
    assert all(sizes[c.location.path] == c.size for c in changes)


def test_new_files_that_a_vacuum_took_or_that_were_cut_are_found(tmp_path):
    root = table_at(tmp_path)
    for way in reversed(WAYS):
        table, snapshot, changes = changed(root, way)
        os.truncate(changes[0].location.path, changes[0].size - 1)
        with pytest.raises(ConflictError, match=r"has \d+ bytes, not \d+ before the commit"):
            table.commit(snapshot, changes, {})
    vacuum(root)
    with pytest.raises(ConflictError, match="is gone before the commit; nothing was committed"):
        table.commit(snapshot, changes, {})
    assert live(root) == list(range(200))


def test_another_size_of_the_same_path_may_be_the_old_one(tmp_path):
    """So filters go out again: the bytes behind the size stay for versions that name them."""
    root = table_at(tmp_path)
    table, old, changes = changed(root, "same-path")
    table.commit(old, changes, {})
    snapshot = table.snapshot()
    back = {file.path: file.size for file in old.files}
    table.commit(snapshot, [Change(file, file, back[file.path], 1) for file in snapshot.files], {})
    assert {file.path: file.size for file in table.snapshot().files} == back
    assert live(root) == live(root, 2) == live(root, 1) == list(range(200))


def test_a_log_that_was_cleaned_meanwhile_is_a_conflict(tmp_path):
    root = table_at(tmp_path)
    table, snapshot, changes = changed(root, "new-path")
    append(root)
    append(root)
    opened(root).create_checkpoint()
    os.remove(root / "_delta_log" / f"{2:020d}.json")
    with pytest.raises(ConflictError, match="cannot be read any more; nothing was committed"):
        table.commit(snapshot, changes, {})


def test_deltalake_alone_does_not_refuse_after_a_compaction(tmp_path):
    """Why versions are read here: an append with a stale handle is let by, and rows come twice."""
    from deltalake.transaction import AddAction

    write_deltalake(str(tmp_path), ids(0))
    write_deltalake(str(tmp_path), ids(100), mode="append")
    stale = opened(tmp_path)
    [file, _] = delta.open_delta(str(tmp_path), None).snapshot().files
    opened(tmp_path).optimize.compact()
    again = AddAction(file.entry.path, file.size, {}, 0, False, file.entry.stats)
    stale.create_write_transaction([again], mode="append", schema=stale.schema())
    assert len(live(tmp_path)) == 300, "the day this is refused, reading the versions between may go"


def test_deltalake_commits_as_the_next_version_or_not_at_all(tmp_path):
    """What makes check and commit one step."""

    write_deltalake(str(tmp_path), ids(0))
    stale = opened(tmp_path)
    write_deltalake(str(tmp_path), ids(100), mode="append")
    with pytest.raises(CommitFailedError):
        stale.create_write_transaction(
            [], mode="append", schema=stale.schema(), commit_properties=CommitProperties(max_commit_retries=0)
        )
    assert opened(tmp_path).version() == 1


LATE: dict[str, tuple[Callable[[DeltaTable], Any], int, int]] = {  # rows then, after a new path and after the same one
    "compact": (lambda table: table.optimize.compact(), 400, 200),
    "delete all": (lambda table: table.delete(), 200, 0),
    "overwrite": (lambda table: write_deltalake(table, ids(500, 3), mode="overwrite"), 203, 3),
}
REFUSED_LATE: dict[str, Callable[[DeltaTable], Any]] = {
    "delete": lambda table: table.delete("id = 7"),
    "delete of a partition": lambda table: table.delete("p = 'a'"),
    "update": lambda table: table.update(updates={"id": "id + 1000"}, predicate="id < 50"),
    "merge": lambda table: (
        table.merge(ids(5, 1), "t.id = s.id", source_alias="s", target_alias="t").when_matched_delete().execute()
    ),
    "overwrite of a partition": lambda table: write_deltalake(
        table, pa.table({"id": [500], "p": ["a"]}), mode="overwrite", predicate="p = 'a'"
    ),
    "restore": lambda table: table.restore(0),
}


@pytest.mark.parametrize("name", LATE)
def test_who_removes_all_by_deltalake_and_is_late_does_not_notice(tmp_path, name):
    """Paths of the old table are removed, which the new one has no more: as after deltalake's own compaction.

    The day it does, docs/tables-delta.md may say so.
    """
    act, anew, same = LATE[name]
    meanwhile: dict[str, tuple[Callable[[Path], Any], int]] = {
        "new path": (lambda root: second_add(root, "new-path"), anew),
        "same path": (lambda root: second_add(root, "same-path"), same),
        "compaction": (lambda root: opened(root).optimize.compact(), anew),
    }
    for first, (work, rows) in meanwhile.items():
        root = table_at(tmp_path, first)
        began = opened(root)
        work(root)
        act(began)
        assert len(live(root)) == rows, first


@pytest.mark.parametrize(("name", "way"), by_turns(REFUSED_LATE, WAYS))
def test_who_removes_some_by_deltalake_and_is_late_is_refused(tmp_path, name, way):
    root = table_at(tmp_path)
    began = opened(root)
    second_add(root, way)
    with pytest.raises(CommitFailedError):
        REFUSED_LATE[name](began)
    assert live(root) == list(range(200))


# --- failures -------------------------------------------------------------------------------------


def test_a_log_that_cannot_be_written_is_an_error_and_nothing_is_committed(tmp_path):
    root = table_at(tmp_path)
    table, snapshot, changes = changed(root, "new-path")
    (root / "_delta_log" / "_in_the_way").write_text("")
    # A folder of the next version's name: nobody may write that.
    (root / "_delta_log" / f"{2:020d}.json").mkdir()
    with pytest.raises((StorageError, UnknownCommitError)):
        table.commit(snapshot, changes, {})
    (root / "_delta_log" / f"{2:020d}.json").rmdir()
    assert live(root) == list(range(200))
    assert table.commit(snapshot, changes, {}) == "2"


def is_trial(table: DeltaTable) -> bool:
    """Whether it is one in which the spelling of paths is tried."""
    return "/parquet-bloom-" in table.table_uri


@pytest.fixture
def panic(tmp_path) -> BaseException:
    """A panic of deltalake, which is no Exception."""
    with pytest.raises(BaseException, match="Invalid object store url") as caught:
        write_deltalake(str(tmp_path / "a[b]"), ids(0))
    assert not isinstance(caught.value, Exception), "the day it is one, nothing need be done for it"
    return caught.value


def failing(error: BaseException, lands: bool) -> Callable[..., None]:
    """deltalake's commit, which ends with an error; but not where the spelling of paths is tried."""
    real = DeltaTable.create_write_transaction

    def raising(self: DeltaTable, *arguments: Any, **named: Any) -> None:
        if lands or is_trial(self):
            real(self, *arguments, **named)
        if not is_trial(self):
            raise error

    return raising


def test_a_panic_of_deltalake_is_an_error_of_ours(tmp_path, monkeypatch, panic):
    root = table_at(tmp_path)
    before = sorted(root.rglob("*"))
    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create_write_transaction", failing(panic, False))
        with pytest.raises(StorageError, match="deltalake did not commit: .*; nothing was committed"):
            parquet_bloom.add_filters(f"delta:{root}", columns=["id"])
        assert sorted(root.rglob("*")) == before, "no new file stays"
        patched.setattr(DeltaTable, "schema", failing(panic, False))
        with pytest.raises(StorageError, match="deltalake does not open it: .*; nothing was committed"):
            parquet_bloom.add_filters(f"delta:{root}", columns=["id"])


def test_an_error_after_the_commit_is_none(tmp_path, monkeypatch, panic):
    """What comes after the log's file may fail: the log is asked, not the error."""
    root = table_at(tmp_path)
    for version, error in enumerate((panic, OSError("the network is down")), 2):
        table, snapshot, changes = changed(root, "new-path")
        with monkeypatch.context() as patched:
            patched.setattr(DeltaTable, "create_write_transaction", failing(error, True))
            assert table.commit(snapshot, changes, {}) == str(version)
        assert live(root) == list(range(200))


def test_who_ends_a_program_is_no_panic(tmp_path, monkeypatch):
    table, snapshot, changes = changed(table_at(tmp_path), "new-path")
    for kind in (KeyboardInterrupt, SystemExit):
        with monkeypatch.context() as patched, pytest.raises(kind):
            patched.setattr(DeltaTable, "create_write_transaction", failing(kind(), False))
            table.commit(snapshot, changes, {})


def test_what_deltalake_cannot_open_is_refused_before_any_work(tmp_path):
    fields = [made.field("id", "long"), made.field("t", "timestamp_ntz")]  # without the feature that it needs
    add = made.file_of(tmp_path, "a.parquet", pa.table({"id": [1, 2]}))
    made.commit(tmp_path, 0, made.protocol(), made.metadata(fields), add)
    before = {path: path.stat().st_size for path in tmp_path.rglob("*")}
    for options in ({"dry_run": True}, {}, {"commit": "same-path"}):
        with pytest.raises(TableFormatError, match="deltalake does not open it: .*timestampNtz.*; nothing was"):
            parquet_bloom.add_filters(f"delta:{tmp_path}", columns=["id"], **options)
        assert {path: path.stat().st_size for path in tmp_path.rglob("*")} == before
    assert parquet_bloom.count(f"delta:{tmp_path}", "id = 1") == 1


def test_statistics_that_crash_deltalake_never_reach_it(tmp_path):
    """deltalake 1.6.6 reads them by recursion, which ended the process of a dry run. It reads dead files' as well."""
    root = table_at(tmp_path)
    entry = made.add("deep.parquet", {"p": "x"}, stats='{"numRecords": 1, "x": ' + "[" * 100_000 + "]" * 100_000 + "}")
    for version, action in enumerate([entry, {"remove": {"path": "deep.parquet", "dataChange": True}}], 2):
        made.commit(root, version, action)
        with pytest.raises(TableFormatError, match="'deep.parquet' are nested too deep: deltalake would end the pr"):
            parquet_bloom.add_filters(f"delta:{root}", columns=["id"], dry_run=True)
    assert parquet_bloom.count(f"delta:{root}", "id >= 0") == 200


def test_nesting_of_a_wide_schema_is_not_deep():
    wide = '{"nullCount": {' + ", ".join(f'"c{i}": {{"x": 0}}' for i in range(5000)) + "}}"
    assert not _is_deep(wide)
    assert _is_deep("[" * 201)
    assert not _is_deep("[" * 200)


def made_anew(root: Path) -> None:
    """Another table in the folder, of the ids 500 to 699."""
    shutil.move(root / "_delta_log", root.parent / f"old log of {root.name}")
    for first in (500, 600):
        write_deltalake(root.as_uri(), ids(first), mode="append", partition_by=["p"])


def test_a_table_that_was_made_anew_is_another(tmp_path):
    for way in WAYS:
        root = table_at(tmp_path, way)
        table, snapshot, changes = changed(root, way)
        made_anew(root)
        for _ in range(2):
            with pytest.raises(ConflictError, match="a table with another id there: .*; nothing was committed"):
                table.commit(snapshot, changes, {})
        assert live(root) == list(range(500, 700))
        assert parquet_bloom.count(f"delta:{root}") == 200
        assert table.snapshot().identity != snapshot.identity


def test_a_table_that_is_made_anew_while_filters_are_built(tmp_path):
    root, done = table_at(tmp_path), []
    anew = lambda _: done or done.append(made_anew(root))  # noqa: E731
    report = parquet_bloom.add_filters(f"delta:{root}", columns=["id"], progress=anew)
    assert done
    assert [(one.version, one.files) for one in report.commits] == [("2", 4)], "the files of the new table have them"
    assert live(root) == list(range(500, 700))


@pytest.mark.parametrize(("threads", "steps"), [(4, 4), pytest.param(8, 12, marks=pytest.mark.more)])
def test_commits_side_by_side_keep_all_rows(tmp_path, threads, steps):
    """Threads put new versions in place, append and delete; who is refused starts anew from the table as it is."""
    root = table_at(tmp_path)
    done: list[str] = []
    gone: set[int] = set()
    failures: list[BaseException] = []

    def step(rng: random.Random, delete: int) -> None:
        what = rng.choice(["commit", "commit", "append", "delete"])
        try:
            if what == "append":
                append(root)
            elif what == "delete":
                opened(root).delete(f"id = {delete}")
                gone.add(delete)
            else:
                table, snapshot, changes = changed(root, "new-path", lambda _: rng.random() < 0.3)
                if changes:
                    table.commit(snapshot, changes, {})
            done.append(what)
        except (ConflictError, CommitFailedError):
            done.append("refused")

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for i in range(steps):
                step(rng, seed * steps + i)
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not failures
    assert "commit" in done
    appended = [i for i in range(200, 300) for _ in range(done.count("append"))]
    assert live(root) == sorted([*(set(range(200)) - gone), *appended])


def test_files_of_others_that_come_and_go_in_the_log_are_no_error(tmp_path):
    """deltalake writes a commit under another name first; such a file may go between a listing and a look at it."""
    root, ended = table_at(tmp_path), threading.Event()

    def others() -> None:
        while not ended.is_set():
            for number in range(20):
                (root / "_delta_log" / f"_commit_{number}.json.tmp").touch()
            for number in range(20):
                (root / "_delta_log" / f"_commit_{number}.json.tmp").unlink()

    running = threading.Thread(target=others)
    running.start()
    try:
        for _ in range(25):
            table, snapshot, changes = changed(root, "new-path", lambda _: True)
            table.commit(snapshot, changes[:1], {})
    finally:
        ended.set()
        running.join()


def test_writing_needs_deltalake_and_reading_does_not(tmp_path, monkeypatch):
    root = table_at(tmp_path)
    table, snapshot, changes = changed(root, "new-path")
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert len(table.snapshot().files) == 4
    for work in (lambda: table.commit_modes(snapshot), lambda: table.commit(snapshot, changes, {})):
        with pytest.raises(RequestError, match=f"^delta: a commit needs deltalake; {to_install('delta')}$"):
            work()


def test_reading_never_loads_deltalake(tmp_path):
    root = table_at(tmp_path)
    code = """
import sys
from parquet_bloom.tables.delta.table import open_delta
table = open_delta(sys.argv[1], None)
assert [dict(file.bounds) for file in table.snapshot().files]
print("deltalake" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_other_storages_are_read_and_not_written(tmp_path):
    import fsspec

    root = table_at(tmp_path)
    memory = fsspec.filesystem("memory")
    memory.put(str(root), "/kept", recursive=True)
    try:
        table = delta.open_delta("/kept", None, memory)
        snapshot = table.snapshot()
        assert sorted(file.relative for file in snapshot.files) == sorted(
            file.relative for file in delta.open_delta(str(root), None).snapshot().files
        )
        [first, *_] = snapshot.files
        no_change = [Change(first, first, 9, 1)]
        for work in (lambda: table.commit_modes(snapshot), lambda: table.commit(snapshot, no_change, {})):
            with pytest.raises(RequestError, match="on local disks and S3 alone"):
                work()
    finally:
        memory.rm("/kept", recursive=True)


# --- S3 -------------------------------------------------------------------------------------------


def s3_ids(store: ObjectStore, uri: str) -> list[int]:
    return sorted(DeltaTable(uri, storage_options=options_of(store)).to_pyarrow_table()["id"].to_pylist())


def test_a_table_on_s3(store, bucket):
    uri = f"s3://{bucket}/a table/t"
    for first in (0, 100):
        write_deltalake(uri, ids(first), mode="append", partition_by=["p"], storage_options=options_of(store))
    table = delta.open_delta(store.uri(f"{bucket}/a%20table/t"), None)
    assert SECRET not in table.name
    snapshot = table.snapshot()
    assert sum(file.rows or 0 for file in snapshot.files) == 200
    assert all(SECRET not in str(file) for file in snapshot.files)
    changes = []
    for file in snapshot.files:
        to = table.new_location(file)
        data = store.get(file.path)
        store.put(to.path, data)
        changes.append(Change(file, to, len(data), 1))
    write_deltalake(uri, ids(200), mode="append", partition_by=["p"], storage_options=options_of(store))
    assert table.commit(snapshot, changes, {}) == "3", "an append meanwhile is no conflict"
    assert s3_ids(store, uri) == list(range(300))
    with pytest.raises(ConflictError, match="was removed or changed by version 3"):
        table.commit(snapshot, changes, {})
    assert table.snapshot().version == "3"
    assert delta.open_delta(f"{bucket}/a table/t", "0", store.filesystem).snapshot().version == "0"


def begun_on_s3(store: ObjectStore, bucket: str) -> tuple[Table, Snapshot, Change]:
    """A table on a store, and a copy of its one file that is to take that one's place."""
    write_deltalake(f"s3://{bucket}/t", ids(0), storage_options=options_of(store))
    table = delta.open_delta(f"{bucket}/t", None, store.filesystem)
    snapshot = table.snapshot()
    [file] = snapshot.files
    to = table.new_location(file)
    store.put(to.path, store.get(file.path))
    return table, snapshot, Change(file, to, file.size, 1)


def test_on_s3_a_version_is_made_only_if_there_is_none(store, bucket):
    """Another commit arrives after deltalake looked and before its own is sent: the store's condition holds it back."""
    table, snapshot, change = begun_on_s3(store, bucket)
    other = json.dumps(made.add("other.parquet", stats={"numRecords": 1}))
    version = f"t/_delta_log/{1:020d}.json"
    met: list[str] = []

    def another(request: Any) -> None:
        if request.method == "PUT" and request.path.endswith(version) and not met:
            met.append(request.path)
            store.put(f"{bucket}/{version}", other.encode())

    store.wire.before = another
    assert table.commit(snapshot, [change], {}) == "2"
    store.wire.before = None
    assert met, "the other commit came in between"
    assert store.get(f"{bucket}/{version}") == other.encode(), "it was not overwritten"
    ours = change.location.path.rsplit("/")[-1]
    assert sorted(f.relative for f in table.snapshot().files) == sorted(["other.parquet", ours])


def test_a_store_that_fails_leaves_the_question_open(store, bucket):
    table, snapshot, change = begun_on_s3(store, bucket)

    def broken(request: Any) -> None:
        if request.method == "PUT" and "_delta_log" in request.path:
            raise OSError("the store fails")

    store.wire.before = broken
    with pytest.raises(UnknownCommitError, match="it is not known whether the commit landed"):
        table.commit(snapshot, [change], {})
    store.wire.before = None
    assert s3_ids(store, f"s3://{bucket}/t") == list(range(100))

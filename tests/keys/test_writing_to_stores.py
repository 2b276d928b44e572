"""A key index that lies on S3: built there, updated there, by two at once, and killed at every request."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.object_store import ObjectStore

import parquet_bloom
from keys.key_indexes import kept_of, write_ids
from parquet_bloom.errors import RequestError, StorageError
from parquet_bloom.keys.build import build_index
from parquet_bloom.keys.folder import IndexFolder
from parquet_bloom.keys.update import update_index
from parquet_bloom.keys.verify import verify_key_index


@pytest.fixture(autouse=True)
def places(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A bucket, files on this disk, and a folder for temporary files that a test can look at."""
    store.client.create_bucket(Bucket="lake")
    for number in range(4):
        write_ids(tmp_path / f"data/{number}.parquet", number)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    yield
    store.wire.before = None
    store.drop("lake")


def keys_of(data: Path) -> dict[str, int]:
    return {path.name: int(pq.read_table(path)["id"][150].as_py()) for path in sorted(data.iterdir())}


def hold(data: Path, index: str, strict: bool = True) -> None:
    """Hold what an index says of a key of each file against the rows."""
    for name, key in keys_of(data).items():
        found = parquet_bloom.check(data, f"id = {key}", index=index, strict_index=strict)
        kept = kept_of(found)
        assert (name, 1) in kept
        if strict:
            assert len(kept) == 1
            opened = {name, min(keys_of(data))}  # the first file, for its columns, and the one that has the key
            assert len(found.excluded) == len(list(data.iterdir())) - len(opened)


def content(store: ObjectStore) -> set[str]:
    return set(store.names("lake"))


def updating(folder: Path, index: str, data: Path, call: str) -> list[str]:
    """A process of another machine, which has another folder for temporary files."""
    folder.mkdir()
    script = f"import tempfile, sys, parquet_bloom; tempfile.tempdir, index, data = sys.argv[1:]; {call}"
    return [sys.executable, "-c", script, str(folder), index, str(data)]


def test_an_index_is_built_and_updated_on_a_store(store: ObjectStore, tmp_path: Path) -> None:
    data, index = tmp_path / "data", store.uri("lake/index")
    assert build_index(data, "id", index).files == 4
    assert not list((tmp_path / "tmp").iterdir()), "the working folder is gone"
    hold(data, index)
    with pytest.raises(StorageError, match="exists"):
        build_index(data, "id", index)
    build_index(data, "id", index, overwrite=True)
    hold(data, index)
    assert len([name for name in content(store) if "/files" in name]) == 1, "the old segment is gone"
    for number in range(4, 10):  # more than four segments merge
        write_ids(data / f"{number}.parquet", number)
        if number == 6:
            (data / "0.parquet").unlink()
        done = update_index(index, data)
        assert (done.added, done.gone) == (1, int(number == 6))
        if number == 6:
            hold(data, index)
    hold(data, index)
    verdict = verify_key_index(index, data, all_files=True)
    assert (verdict.status, verdict.missed) == ("right", 0)
    assert not list((tmp_path / "tmp").iterdir())


def test_where_no_index_is_written(store: ObjectStore, tmp_path: Path) -> None:
    for number in range(2):
        store.put(f"lake/data/{number}.parquet", (tmp_path / f"data/{number}.parquet").read_bytes())
    uri = store.uri("lake/data")
    for place in ("lake/data", "lake/data/index"):
        with pytest.raises(RequestError, match="would be read as data"):
            build_index(uri, "id", store.uri(place))
    with pytest.raises(RequestError, match="would be read as data"):
        build_index(store.uri("lake/*/*.parquet"), "id", store.uri("lake/data"))
    with pytest.raises(RequestError, match="only S3 has requests that replace a manifest safely"):
        build_index(tmp_path / "data", "id", "memory://index")
    with pytest.raises(StorageError, match=r"is no key index"):
        update_index(store.uri("lake/nothing"), tmp_path / "data")
    assert content(store) == {"data/0.parquet", "data/1.parquet"}


def test_the_working_folder_is_of_this_user_alone(store: ObjectStore, tmp_path: Path) -> None:
    index = store.uri("lake/index")
    made: list[str] = []

    def look(_: Any) -> None:
        made.extend(path.name for path in (tmp_path / "tmp").iterdir() if path.is_dir())

    store.wire.before = look
    build_index(tmp_path / "data", "id", index)
    store.wire.before = None
    [name] = set(made)
    target = tmp_path / "elsewhere"
    target.mkdir()
    (tmp_path / "tmp" / name).symlink_to(target)
    with pytest.raises(StorageError, match="not a folder of this user alone"):
        build_index(tmp_path / "data", "id", index, overwrite=True)
    assert not list(target.iterdir())
    (tmp_path / "tmp" / name).unlink()
    (tmp_path / "tmp" / name).mkdir()
    (tmp_path / "tmp" / name).chmod(0o777)
    with pytest.raises(StorageError, match="not a folder of this user alone"):
        build_index(tmp_path / "data", "id", index, overwrite=True)


@pytest.mark.more
@pytest.mark.parametrize("work", ["build", "update"])
def test_a_killed_writer_leaves_the_old_index(work: str, store: ObjectStore, tmp_path: Path) -> None:
    """Killed at each of its writing requests, before the store has done it; the machine then is gone for good."""
    data, index = tmp_path / "data", store.uri("lake/index")
    build_index(data, "id", index)
    write_ids(data / "new.parquet", 77)
    calls = {"build": "build_index(data, 'id', index, overwrite=True)", "update": "update_index(index, data)"}
    before = store.get("lake/index/manifest.json")
    for at in range(20):
        running = subprocess.Popen(updating(tmp_path / f"machine-{at}", index, data, f"parquet_bloom.{calls[work]}"))
        sent = 0

        def kill(request: Any, at: int = at, running: Any = running) -> None:
            nonlocal sent
            if request.kind not in ("HEAD", "GET", "LIST", "TAGS"):
                sent += 1
                if sent > at:
                    running.kill()
                    running.wait()
                    raise ConnectionAbortedError

        store.wire.before = kill
        status = running.wait(60)
        store.wire.before = None
        if status == 0:
            break
        manifest = store.get("lake/index/manifest.json")
        hold(data, index, strict=manifest != before)
    assert at >= 3, "files are sent before the manifest"
    assert store.get("lake/index/manifest.json") != before
    hold(data, index)


def test_updaters_of_one_machine_wait_for_each_other(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is done removes the folder in which the others wait."""
    data, index = tmp_path / "data", store.uri("lake/index")
    build_index(data, "id", index)
    locked, inside, most = IndexFolder.locked, [0], [0]

    @contextmanager
    def watched(self: IndexFolder) -> Iterator[None]:
        with locked(self):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            yield
            inside[0] -= 1

    monkeypatch.setattr(IndexFolder, "locked", watched)
    with ThreadPoolExecutor(4) as threads:
        for turn in range(2):
            write_ids(data / f"new-{turn}.parquet", 200 + turn)
            reports = list(threads.map(lambda _: update_index(index, data), range(6)))
            assert sorted(one.added for one in reports) == [0] * 5 + [1]
    assert most == [1]
    hold(data, index)
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.more
def test_names_of_files_that_were_sent_are_not_used_again(store: ObjectStore, tmp_path: Path) -> None:
    """Another machine may be removing them, as no manifest names them. What was not sent goes on."""
    data, index = tmp_path / "data", store.uri("lake/index")
    words = updating(tmp_path / "machine", index, data, "parquet_bloom.build_index(data, 'id', index)")
    running = subprocess.Popen(words)

    def kill(request: Any) -> None:
        if request.method == "PUT" and "manifest" in request.path:
            running.kill()
            running.wait()
            raise ConnectionAbortedError

    store.wire.before = kill
    assert running.wait(60) != 0
    store.wire.before = None
    before = content(store)
    assert len(before) == 2, "a listing and a part"
    subprocess.run(words, check=True, timeout=60)
    assert not before & content(store), "they have other names, and what nobody names is removed"
    hold(data, index)


@pytest.mark.parametrize("moment", [pytest.param("segments", marks=pytest.mark.more), "manifest"])
def test_of_two_updaters_on_two_machines_one_wins(moment: str, store: ObjectStore, tmp_path: Path) -> None:
    """Another machine has another folder for temporary files, and updates while this update sends a file."""
    data, index = tmp_path / "data", store.uri("lake/index")
    build_index(data, "id", index)
    write_ids(data / "new.parquet", 100)
    (data / "1.parquet").unlink()
    words = updating(tmp_path / "other", index, data, "print(parquet_bloom.update_index(index, data).added)")
    said: list[str] = []

    def overtake(request: Any) -> None:
        if request.method == "PUT" and moment in request.path and not said:
            said.append("begun")
            said[0] = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout

    store.wire.before = overtake
    report = update_index(index, data)
    store.wire.before = None
    assert said == ["1\n"]
    assert (report.added, report.gone) == (0, 0), "it lost, and planned again"
    hold(data, index)

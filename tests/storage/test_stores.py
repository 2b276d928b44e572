"""The local store and one of pyarrow's over the same folder: asked the same way, they give the same answers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyarrow import fs
from support.samples import write_keys

from parquet_bloom.errors import StorageError
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.store import Store
from parquet_bloom.storage.stores import LOCAL, store_of, store_on

STORES = {"local": LOCAL, "remote": store_on(fs.LocalFileSystem())}


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest) -> Store:
    return STORES[request.param]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    (tmp_path / "log/0.json").write_text("{}")
    (tmp_path / "log/1.json").write_text("[1]")
    (tmp_path / "b").write_text("twelve bytes")
    return tmp_path


def test_what_is_there(store: Store, folder: Path) -> None:
    at = str(folder)
    assert store.kinds([f"{at}/log", f"{at}/b", f"{at}/none"]) == [False, True, None]
    assert [store.is_folder(path) for path in (f"{at}/log", f"{at}/log/", f"{at}/b", f"{at}/none", "/")] == [
        True, True, False, False, True,
    ]  # fmt: skip
    assert [store.exists(path) for path in (f"{at}/log", f"{at}/b", f"{at}/none")] == [True, True, False]
    assert [store.size(path) for path in (f"{at}/log", f"{at}/b", f"{at}/none")] == [-1, 12, None]


def test_what_lies_in_a_folder(store: Store, folder: Path) -> None:
    assert list(store.entries(str(folder))) == [("b", 12), ("log", -1)]
    assert sorted(store.names_in(str(folder / "log"))) == ["0.json", "1.json"]
    assert store.names_in(str(folder / "none")) == []
    assert store.start_of(str(folder / "b"), 6) == b"twelve"
    with pytest.raises(FileNotFoundError):
        list(store.entries(str(folder / "none")))


def test_a_version_token_changes_with_the_file(store: Store, folder: Path) -> None:
    at = store.location(str(write_keys(folder / "keys.parquet")))
    file = store.open(at, pin=True)
    assert file.pinned
    assert store.version(at) == file.version()
    assert file.read(0, 4) == b"PAR1"
    assert len(file.read(file.size - 2, 4)) == 2, "as many as there are"
    os.utime(at.path, ns=(0, 0))
    assert store.version(at) != file.version()
    file.close()


def test_above(store: Store, folder: Path) -> None:
    at = store.location(str(folder / "log/0.json"))
    assert [str(one) for one in store.folders(at)] == [str(folder / "log")]
    above = [str(one).rstrip("/") for one in store.chain(store.location(str(folder / "log")))]
    assert above[:3] == [str(folder / "log"), str(folder), str(folder.parent)]
    assert store.names(at)[0] == str(folder / "log/0.json")


def test_what_cannot_be_opened_is_named(store: Store, folder: Path) -> None:
    for name, said in (("none", "no such file"), ("log", "folder|directory|not a regular file")):
        at = store.location(str(folder / name))
        with pytest.raises(StorageError, match=rf"(?i){name}: .*({said})"):
            OpenFile(at)


def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert LOCAL.start_of(str(folder / "pipe"), 5) == b""
    with pytest.raises(StorageError, match="pipe: is not a regular file"):
        OpenFile(str(folder / "pipe"))


def test_links_lead_to_one_file_and_never_in_circles(folder: Path) -> None:
    (folder / "log/up").symlink_to(folder)
    (folder / "log/dead").symlink_to("nothing")
    (folder / "log/b").symlink_to("../b")
    assert list(LOCAL.entries(str(folder / "log"))) == [("0.json", 2), ("1.json", 3), ("b", 12)]
    assert LOCAL.real(str(folder / "log/up/b")) == LOCAL.real(str(folder / "b"))
    assert LOCAL.kinds([str(folder / "log/dead")]) == [True], "a name that is taken"


def test_which_store_a_location_is_on(folder: Path) -> None:
    remote = Location(str(folder), fs.LocalFileSystem())
    assert store_of(Location(str(folder))).same(LOCAL)
    assert store_of(remote).same(STORES["remote"])
    assert not store_of(remote).same(LOCAL)
    assert not LOCAL.same(store_of(remote))
    assert (store_of(remote).is_local, LOCAL.is_local) == (False, True)

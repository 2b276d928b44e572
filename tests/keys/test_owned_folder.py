"""An index folder: what is no index is not built into, what others put there stays, and no link in it is followed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands import in_this_process

import parquet_bloom

KEYS = 300


def tree(folder: Path) -> dict[str, bytes | str]:
    """All that is below a folder: bytes of files, targets of links."""
    return {
        path.relative_to(folder).as_posix(): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("precious")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(3):
        pq.write_table(pa.table({"id": range(100 * number, 100 * number + 100)}), folder / f"{number}.parquet")
    return folder


@pytest.fixture
def index(data: Path, tmp_path: Path) -> Path:
    """The index of the data."""
    parquet_bloom.build_index(data, "id", tmp_path / "index")
    return tmp_path / "index"


def victim_in(folder: Path) -> Path:
    """A folder of others, with names that an index has too."""
    put(folder / "victim", "0-00000", "0123456789abcdef/files.parquet", "0123456789abcdef-00000.parquet",
        "0/0123456789abcdef-00000.parquet", "journal", "letter", ".letter.host-1-01234567.parquet-bloom")  # fmt: skip
    return folder / "victim"


FOREIGN = {
    "a project": ["build/dist/app.tar", "segments/customers/list.csv", "columns/doric/photo-1.jpg", "x.parquet-bloom"],
    "its build": ["build/journal", "build/Makefile"],
    "one text": ["readme.txt"],
    "names as in an index, and one more": ["segments/0123456789abcdef/files.parquet", "columns/0/more"],
    "another program's manifest": ["manifest.json", "segments/0123456789abcdef/files.parquet"],
}  # fmt: skip


def test_a_folder_that_is_no_index_is_not_built_into(data: Path, tmp_path: Path) -> None:
    for number, (case, names) in enumerate(FOREIGN.items()):
        project = tmp_path / str(number)
        put(project, *names)
        before = tree(project)
        for more in ([], ["--overwrite"]):
            done = in_this_process("index", "build", data, "-c", "id", "-o", project, *more)
            assert done.returncode == 2, case
            assert "name a folder that is not there yet" in done.stderr or "exists" in done.stderr
            assert tree(project) == before, case


def test_what_others_put_into_an_index_stays(data: Path, index: Path) -> None:
    foreign = ["notes.txt", "columns/0/notes.txt", "segments/mine/list.csv", "build/Makefile", "a.parquet-bloom",
               "columns/0/0123456789abcdef-1.txt"]  # fmt: skip
    put(index, *foreign)
    pq.write_table(pa.table({"id": range(900, 1000)}), data / "9.parquet")
    parquet_bloom.update_index(index, data)
    parquet_bloom.build_index(data, "id", index, overwrite=True)
    assert [(index / name).read_text() for name in foreign] == ["precious"] * len(foreign)
    assert parquet_bloom.count(data, "id = 950", index=index, strict_index=True) == 1


def linked(index: Path, victim: Path, name: str) -> None:
    """Move what has a name of the index to the victim's folder, and put a link there."""
    at, to = index / name, victim / "moved"
    if os.path.lexists(at):
        shutil.move(at, to)
    else:
        to = victim
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(to)


LINKS: dict[str, Callable[[Path], str]] = {
    "segments": lambda index: "segments",
    "a segment": lambda index: f"segments/{os.listdir(index / 'segments')[0]}",
    "a listing": lambda index: next(p.relative_to(index).as_posix() for p in index.glob("segments/*/files.parquet")),
    "columns": lambda index: "columns",
    "a column": lambda index: "columns/0",
    "a part": lambda index: next(p.relative_to(index).as_posix() for p in index.glob("columns/0/*.parquet")),
    "manifest": lambda index: "manifest.json",
    "lock": lambda index: "lock",
    "build": lambda index: "build",
    "the journal of a build": lambda index: "build/journal",
}


@pytest.mark.parametrize("command", ["update", "rebuild", "build"])
def test_no_link_in_an_index_is_followed(command: str, data: Path, index: Path, tmp_path: Path) -> None:
    for number, (case, name) in enumerate(LINKS.items()):
        (tmp_path / str(number)).mkdir()
        own = Path(shutil.copytree(index, tmp_path / str(number) / "index"))
        victim = victim_in(tmp_path / str(number))
        linked(own, victim, name(own))
        before = tree(victim)
        pq.write_table(pa.table({"id": range(900, 1000)}), data / "9.parquet")
        words = ["index", command, own, data]
        if command == "build":
            words = ["index", "build", data, "-c", "id", "-o", own, "--overwrite"]
        done = in_this_process(*words)
        assert tree(victim) == before, f"{case}: nothing there is removed, written or replaced"
        assert "Traceback" not in done.stderr
        if done.returncode:
            assert "link" in done.stderr, case
            assert done.returncode == 2
        else:  # what is read or replaced lies elsewhere
            assert parquet_bloom.count(data, "id = 950", index=own) == 1, case
        (data / "9.parquet").unlink()


def test_no_link_in_an_index_is_read(data: Path, index: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number, case in enumerate(("a listing", "a part", "manifest", "segments", "columns")):
        (tmp_path / str(number)).mkdir()
        own = Path(shutil.copytree(index, tmp_path / str(number) / "index"))
        linked(own, victim_in(tmp_path / str(number)), LINKS[case](own))
        caplog.clear()
        if case == "manifest":
            with pytest.raises(parquet_bloom.StorageError, match="is a link"):
                parquet_bloom.count(data, "id = 50", index=own)
        else:  # the rows are found without the index
            assert parquet_bloom.count(data, "id = 50", index=own) == 1
            assert "is a link" in caplog.text, case
        with pytest.raises((parquet_bloom.StorageError, parquet_bloom.StaleIndexError), match="link"):
            parquet_bloom.count(data, "id = 50", index=own, strict_index=True)


def test_an_index_that_a_link_leads_to_is_the_index(data: Path, index: Path, tmp_path: Path) -> None:
    """The folder itself is the user's word."""
    (tmp_path / "link").symlink_to(index)
    pq.write_table(pa.table({"id": range(900, 1000)}), data / "9.parquet")
    parquet_bloom.update_index(tmp_path / "link", data)
    assert parquet_bloom.count(data, "id = 950", index=tmp_path / "link", strict_index=True) == 1


def test_a_pipe_in_an_index_is_not_waited_for(data: Path, index: Path, tmp_path: Path) -> None:
    for case in ("a listing", "a part", "manifest", "lock"):
        own = Path(shutil.copytree(index, tmp_path / case))
        path = own / LINKS[case](own)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        for words in (["update", own, data], ["build", data, "-c", "id", "-o", own, "--overwrite"]):
            done = in_this_process("index", *words)
            assert (done.returncode, "Traceback" in done.stderr) in {(0, False), (2, False)}, case


def test_a_build_that_was_killed_is_begun_again_or_goes_on(data: Path, tmp_path: Path) -> None:
    """A folder with nothing but names of an index is one that is not finished."""
    index = tmp_path / "index"
    put(index, "lock", "segments/0123456789abcdef/files.parquet", "columns/0/0123456789abcdef-00000.parquet",
        "build/0123456789abcdef/0-00000", ".manifest.json.host-1-01234567.parquet-bloom")  # fmt: skip
    (index / "build/journal").write_text('{"plan": "0123456789abcdef"}\n')
    parquet_bloom.build_index(data, "id", index)
    assert parquet_bloom.count(data, "id = 50", index=index, strict_index=True) == 1
    assert not (index / "build").exists()
    assert not list(index.rglob("0123456789abcdef*"))

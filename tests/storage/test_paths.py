"""Files, folders, globs and outputs; every conflict is found before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.samples import no_listing_of, write_keys

import parquet_bloom
from parquet_bloom.errors import RequestError, StorageError
from parquet_bloom.storage.paths import expand, locate, targets


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("in/a.parquet", "in/sub/b.parq", "in/sub/c.PQ", "in/x=1/d.parquet", "in/notes.txt", "in/_metadata",
                 "in/.x.parquet", "in/_x.parquet", "in/_delta_log/e.parquet", "other/a.parquet", "bare"):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return tmp_path


def names(tree: Path, *sources: object) -> list[str]:
    return [Path(f.path).relative_to(tree).as_posix() for f in expand([str(s) for s in sources])]


def test_a_folder_gives_its_parquet_files_sorted_without_hidden_ones(tree: Path) -> None:
    assert names(tree, tree / "in") == ["in/a.parquet", "in/sub/b.parq", "in/sub/c.PQ", "in/x=1/d.parquet"]


def test_links_in_a_folder(tree: Path) -> None:
    """One file counts once, by its first name; links to folders are not followed, and a link to nothing is a file."""
    folder = tree / "in"
    (folder / "0.parquet").symlink_to(folder / "a.parquet")
    (folder / "sub/d.parquet").symlink_to(folder / "x=1/d.parquet")
    (folder / "out.parquet").symlink_to(tree / "other/a.parquet")
    (folder / "linked").symlink_to(tree / "other")
    (folder / "round.parquet").symlink_to("round.parquet")
    (folder / "gone.parquet").symlink_to(tree / "gone.parquet")
    found = ["0.parquet", "gone.parquet", "out.parquet", "round.parquet", "sub/b.parq", "sub/c.PQ", "sub/d.parquet"]
    assert names(tree, folder) == [f"in/{name}" for name in found]
    (tree / "named").symlink_to(folder)
    assert names(tree, tree / "named") == [f"named/{name}" for name in found], "a link that is named"


def test_files_of_nested_folders(tree: Path) -> None:
    made = sorted(f"deep/b={n % 3}/a-{n}/{m}.parquet" for n in range(6) for m in range(3))
    for name in [*made, "deep/b=0/top.parquet"]:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(b"x")
    for named in (tree / "deep", f"{tree}/deep/", f"{tree}/in/../deep"):
        found = expand(str(named))
        below = [Path(one.path).resolve().relative_to(tree / "deep").as_posix() for one in found]
        assert below == sorted([*(name.removeprefix("deep/") for name in made), "b=0/top.parquet"])
        assert [one.relative for one in found] == below
        assert [str(one) for one in found] == [one.path for one in found]
        assert [dict(one.partitions)["b"] for one in found] == [one.relative[2] for one in found]


def test_a_named_file_counts_whatever_its_name_and_once(tree: Path) -> None:
    assert names(tree, tree / "bare", tree / "bare", tree / "in/../bare") == ["bare"]


def test_globs(tree: Path) -> None:
    assert names(tree, tree / "in/*.parquet") == ["in/a.parquet"]
    assert names(tree, tree / "in/**/*.pa*q*") == ["in/a.parquet", "in/sub/b.parq", "in/x=1/d.parquet"]
    assert names(tree, tree / "in/s?b") == ["in/sub/b.parq", "in/sub/c.PQ"], "a glob may fit a folder"
    (tree / "in/[odd].parquet").write_bytes(b"x")
    assert names(tree, tree / "in/[odd].parquet") == ["in/[odd].parquet"], "a file of that very name goes first"


def test_nothing_found(tree: Path) -> None:
    (tree / "empty").mkdir()
    for source, says in (("no", "no such file"), ("in/_delta_log/x*", "no file fits"), ("empty", "no Parquet file")):
        with pytest.raises(StorageError, match=says) as caught:
            expand(str(tree / source))
        assert source in str(caught.value)


def test_among_several_a_name_without_files_is_one_failure(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "empty").mkdir()
    located = locate([tree / "no", tree / "in/a.parquet", tree / "empty", tree / "in/x*y"])
    assert [Path(f.path).name for f in located.files] == ["a.parquet"]
    assert [Path(f.path).name for f in located.failed] == ["no", "empty", "x*y"]
    assert not located.single
    no_listing_of("sub", monkeypatch)
    located = locate(tree / "in")
    assert [Path(f.path).name for f in located.files] == ["a.parquet", "d.parquet"], "the other folders count"
    assert [str(f.error) for f in located.failed] == [f"{tree}/in/sub: Permission denied"]
    with pytest.raises(StorageError, match="Permission denied"):
        locate(tree / "in/sub")


def test_partitions(tree: Path) -> None:
    for name in ("t/k=1/city=a%20b/x.parquet", "t/k=__HIVE_DEFAULT_PARTITION__/odd/=/y.parquet"):
        (tree / name).parent.mkdir(parents=True)
        (tree / name).write_bytes(b"x")
    one, other = (("k", "1"), ("city", "a b")), (("k", None),)
    assert [f.partitions for f in expand(tree / "t")] == [one, other]
    assert [f.partitions for f in expand(tree / "t/k=1")] == [one[1:]], "below the folder that was named"
    assert [f.partitions for f in expand(f"{tree}/t/*/*/*.parquet")] == [one], "below the fixed part"
    file = tree / "t/k=1/city=a%20b/x.parquet"
    assert [f.partitions for f in expand(file)] == [()], "one file alone"
    assert [f.partitions for f in expand([file, tree / "bare"])] == [one, ()], "of several, the whole path"


def test_file_uris(tree: Path) -> None:
    (tree / "a b.parquet").write_bytes(b"x")
    for uri in (f"file://{tree}/a%20b.parquet", f"file:{tree}/a%20b.parquet", f"file://localhost{tree}/a b.parquet"):
        assert names(tree, uri) == ["a b.parquet"]
    assert names(tree, f"file://{tree}/in/s*") == ["in/sub/b.parq", "in/sub/c.PQ"]
    assert targets(tree / "bare", f"file://{tree}/new", False, False).targets[expand(tree / "bare")[0]].path == str(
        tree / "new"
    )


def pairs(tree: Path, sources: object, output: str, **options: bool) -> dict[str, str]:
    found = targets(sources, tree / output if not output.endswith("/") else f"{tree}/{output}", False, **options)
    return {
        Path(a).relative_to(tree).as_posix(): Path(b).relative_to(tree).as_posix() for a, b in found.targets.items()
    }


def test_outputs(tree: Path) -> None:
    assert pairs(tree, str(tree / "bare"), "new", overwrite=False) == {"bare": "new"}
    assert pairs(tree, str(tree / "bare"), "new/", overwrite=False) == {"bare": "new/bare"}
    assert pairs(tree, str(tree / "bare"), "other", overwrite=False) == {"bare": "other/bare"}, "a folder that exists"
    assert pairs(tree, str(tree / "in"), "new", overwrite=False) == {
        "in/a.parquet": "new/a.parquet", "in/sub/b.parq": "new/sub/b.parq",
        "in/sub/c.PQ": "new/sub/c.PQ", "in/x=1/d.parquet": "new/x=1/d.parquet",
    }  # fmt: skip
    several = [str(tree / "bare"), str(tree / "other/a.parquet")]
    assert pairs(tree, several, "new", overwrite=False) == {"bare": "new/bare", "other/a.parquet": "new/a.parquet"}


def test_conflicts(tree: Path) -> None:
    bare, a = str(tree / "bare"), str(tree / "in/a.parquet")
    (tree / "link").symlink_to("bare")
    (tree / "out/bare").mkdir(parents=True)
    for sources, output, in_place, overwrite, says in (
        (bare, None, False, False, "give output for a new file, or in_place=True"),
        (bare, "x", True, False, "exclude each other"),
        ([a, str(tree / "other/a.parquet")], tree / "new", False, False, "would both go to"),
        (bare, bare, False, True, "itself a source"),
        (bare, tree / "link", False, True, "itself a source"),
    ):
        with pytest.raises(RequestError, match=says):
            targets(sources, output, in_place, overwrite)
    for sources, output, overwrite, says in (
        (bare, tree / "other/a.parquet", False, "overwrite=True"),
        (str(tree / "in"), bare, True, "not a folder"),
        (bare, tree / "out", True, "is a folder"),
    ):
        with pytest.raises(StorageError, match=says):
            targets(sources, output, False, overwrite)
    with pytest.raises(RequestError, match="no file was named"):
        expand([])


@pytest.mark.parametrize("change", [parquet_bloom.add_filters, parquet_bloom.remove_filters])
def test_several_files_do_not_go_into_a_folder_with_the_name_of_a_file(tmp_path: Path, change: Any) -> None:
    named = [write_keys(tmp_path / f"{name}.parquet") for name in "fg"]
    columns = {} if change is parquet_bloom.remove_filters else {"columns": ["id"]}
    for sources in (named, str(tmp_path / "*.parquet"), [named[0], named[1].parent / "g.parquet"]):
        with pytest.raises(RequestError, match=r"one\.parquet: several sources need a folder, and this names a file"):
            change(sources, tmp_path / "one.parquet", **columns)
        assert not (tmp_path / "one.parquet").exists()
    change(named, f"{tmp_path}/one.parquet/", **columns)
    assert sorted(path.name for path in (tmp_path / "one.parquet").iterdir()) == ["f.parquet", "g.parquet"]
    # One folder, as Spark names what it writes, and its copy.
    change(tmp_path / "one.parquet", tmp_path / "two.parquet", **columns)
    assert (tmp_path / "two.parquet/f.parquet").is_file()

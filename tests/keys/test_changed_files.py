"""Files that change between the build of a key index and a question: no row is lost, and a note counts them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import disguised_changes
from support.commands import command, error_lines
from support.repeats import more_then_slow

import parquet_bloom
import parquet_bloom.lance as zones
from keys.key_indexes import content_of, same_rows
from parquet_bloom.errors import ParquetBloomError, RequestError, StaleIndexError
from parquet_bloom.keys.build import build_index
from parquet_bloom.keys.update import update_index

PLANTED = 123456789012345678
ROWS, FILES = 300, 4


@pytest.fixture(autouse=True)
def haste() -> None:
    """None: these tests are of the times that users have."""


def write(path: Path, seed: int) -> None:
    ids = np.random.default_rng(seed).integers(0, 1 << 60, ROWS)
    table = pa.table({"id": ids, "name": [f"n{(seed * 7 + n) % 90}" for n in range(ROWS)]})
    pq.write_table(table, path, row_group_size=100, write_page_index=seed % 2 == 0)


def made(folder: Path) -> tuple[Path, Path]:
    """A folder of files, and their index."""
    (folder / "data").mkdir(parents=True)
    for number in range(FILES):
        write(folder / f"data/{number}.parquet", number)
    build_index(folder / "data", ["id", "name"], folder / "index")
    return folder / "data", folder / "index"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Files of which tmp/index is the index."""
    return made(tmp_path)[0]


def key_of(path: Path, row: int = 150) -> int:
    return int(pq.ParquetFile(path).read()["id"][row].as_py())


def hold(data: Path, index: Path, *more: str) -> None:
    """Hold rows by keys of each file, and of none, against those without an index."""
    keys = [key_of(path) for path in sorted(data.rglob("*.parquet"))]
    assert same_rows(data, f"id IN ({', '.join(map(str, [*keys, 5]))})", index) >= len(set(keys))
    assert same_rows(data, f"id = {keys[1]} AND NOT name = 'no'", index) >= 1
    same_rows(data, f"id = {PLANTED} OR name = 'new'", index)
    for predicate in more:
        same_rows(data, predicate, index)


def note_of(data: Any, index: Path, predicate: str = "id = 5") -> str | None:
    """The only note of a question, without the index's name."""
    notes = parquet_bloom.check(data, predicate, index=index).notes
    assert len(notes) <= 1
    return notes[0].removeprefix(f"{index}: ") if notes else None


def not_covered(n: int, of: int) -> str:
    return f"{n} of {of} files are not covered, or changed since; these are read as without an index"


def test_nothing_changed(data: Path, tmp_path: Path) -> None:
    hold(data, tmp_path / "index")
    verdicts = parquet_bloom.check(data, "id = 5", index=tmp_path / "index")
    assert (len(verdicts), len(verdicts.excluded), verdicts.notes) == (3, FILES - 1, []), "the first has the schema"


# --- filters ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placement", "update"), [("tail", False), ("footer", True), ("chunk-start", True), ("appended tail", True)]
)
def test_filters_come_and_go(placement: str, update: bool, data: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    options: dict[str, Any] = {"placement": placement}
    if placement == "appended tail":
        options = {"placement": "tail", "append": True}

    def see(changed: int) -> None:
        hold(data, index)
        if update:
            report = update_index(index, data)
            assert (report.kept, report.recognised, report.added, report.gone) == (FILES, changed, 0, 0)
            hold(data, index)
            changed = 0
        assert note_of(data, index) == (not_covered(changed, FILES) if changed else None)

    parquet_bloom.add_filters(data / "1.parquet", in_place=True, columns=["id"], **options)
    see(1)
    parquet_bloom.add_filters(data / "2.parquet", in_place=True, columns=["name"], **options)
    see(1 if update else 2)
    parquet_bloom.remove_filters(data / "1.parquet", in_place=True)
    see(1 if update else 2)


def test_a_file_that_cannot_be_compared_for_a_moment_is_kept(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, refused, stat = tmp_path / "index", [sorted(data.iterdir())[1]], os.stat

    def refuse(path: Any, *args: Any, **how: Any) -> os.stat_result:
        if refused and str(path) == str(refused[0]):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(refused.pop()))
        return stat(path, *args, **how)

    before = content_of(index)
    monkeypatch.setattr(os, "stat", refuse)
    report = update_index(index, data)
    assert not refused
    assert (report.kept, report.recognised, report.added, report.gone) == (FILES, 0, 0, 0)
    assert content_of(index) == before


def test_copies_with_filters_are_other_files(data: Path, tmp_path: Path) -> None:
    parquet_bloom.add_filters(data, output=tmp_path / "copies", columns=["id"])
    with pytest.raises(StaleIndexError, match="none of these files"):
        parquet_bloom.read_table(tmp_path / "copies", "id = 5", index=tmp_path / "index")
    both = [data, tmp_path / "copies"]
    assert same_rows(both, f"id = {key_of(data / '2.parquet')}", tmp_path / "index") == 2
    assert note_of(both, tmp_path / "index") == not_covered(FILES, 2 * FILES)


# --- rewritten --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rewrite", disguised_changes.REWRITES)
def test_a_rewrite_that_keeps_size_footer_and_mtime(rewrite: str, data: Path, tmp_path: Path) -> None:
    path, index = data / "2.parquet", tmp_path / "index"
    table = pa.table({"id": np.random.default_rng(7).integers(0, 1 << 60, 5000), "name": ["x"] * 5000})
    old = disguised_changes.written(table)
    new = disguised_changes.written(disguised_changes.replaced(table, "id", 2500, PLANTED))
    assert disguised_changes.looks_alike(old, new)
    path.write_bytes(old)
    build_index(data, ["id", "name"], index, overwrite=True)
    assert same_rows(data, f"id = {PLANTED}", index) == 0
    for content, rows, update in ((new, 1, False), (old, 0, False), (new, 1, True), (old, 0, True), (new, 1, True)):
        disguised_changes.REWRITES[rewrite](path, content)
        assert same_rows(data, f"id = {PLANTED}", index) == rows
        assert note_of(data, index) == not_covered(1, FILES)
        if update:
            report = update_index(index, data)
            assert (report.kept, report.recognised, report.added) == (FILES - 1, 0, 1)
            assert same_rows(data, f"id = {PLANTED}", index) == rows
            assert note_of(data, index) is None
    hold(data, index)


def test_a_rewrite_at_once(tmp_path: Path) -> None:
    """Written, indexed and written again in a moment, in which the kernel's clock may stand still."""
    table = pa.table({"id": np.random.default_rng(7).integers(0, 1 << 60, 200)})
    old = disguised_changes.written(table)
    new = disguised_changes.written(disguised_changes.replaced(table, "id", 100, PLANTED))
    (tmp_path / "data").mkdir()
    path = tmp_path / "data/a.parquet"
    for rewrite in [*disguised_changes.REWRITES.values()] * 3:
        path.write_bytes(old)
        build_index(tmp_path / "data", ["id"], tmp_path / "index", overwrite=True)
        rewrite(path, new)
        with pytest.raises(StaleIndexError, match="changed since it was built; parquet-bloom index update"):
            parquet_bloom.count(tmp_path / "data", f"id = {PLANTED}", index=tmp_path / "index")


def test_a_rewrite_between_two_questions_of_one_process(data: Path, tmp_path: Path) -> None:
    """An index that is open, a source that was listed before, a scan that is read later: no row that came is lost."""
    source = parquet_bloom.Source(data, index=tmp_path / "index")
    assert source.count(f"id = {PLANTED}") == 0
    assert parquet_bloom.dataset(data, f"id = {PLANTED}", index=tmp_path / "index").count_rows() == 0
    lazy = parquet_bloom.scan_polars(data, index=tmp_path / "index").filter(pl.col("id") == PLANTED)
    assert lazy.collect().height == 0
    table = pq.read_table(data / "3.parquet")
    pq.write_table(disguised_changes.replaced(table, "id", 7, PLANTED), data / "3.parquet", row_group_size=100)
    assert lazy.collect().height == 1
    assert parquet_bloom.count(data, f"id = {PLANTED}", index=tmp_path / "index") == 1
    assert parquet_bloom.Source(data, index=tmp_path / "index").count(f"id = {PLANTED}") == 1


# --- names ------------------------------------------------------------------------------------------


def change_rows(data: Path) -> None:
    table = pq.read_table(data / "1.parquet")
    more = pa.table({"id": [PLANTED], "name": ["new"]})
    pq.write_table(pa.concat_tables([table, more]), data / "1.parquet", row_group_size=100)


def exchange(data: Path) -> None:
    (data / "0.parquet").rename(data / "x")
    (data / "1.parquet").rename(data / "0.parquet")
    (data / "x").rename(data / "1.parquet")


def replace_by_another(data: Path) -> None:
    shutil.copy2(data / "0.parquet", data / "1.parquet")


def other_type(data: Path) -> None:
    table = pq.read_table(data / "1.parquet")
    values = pa.array([PLANTED, *table["id"].to_pylist()[1:]], pa.decimal128(38, 0))
    pq.write_table(table.set_column(0, "id", values), data / "1.parquet", row_group_size=100)


CHANGES: dict[str, tuple[Callable[[Path], Any], int, int]] = {
    "rows are appended": (change_rows, 1, FILES),
    "a file is new": (lambda data: write(data / "9.parquet", 9), 1, FILES + 1),
    "a file comes first": (lambda data: write(data / "!.parquet", 9), 1, FILES + 1),
    "a file is in a new folder": (lambda data: ((data / "p").mkdir(), write(data / "p/9.parquet", 9)), 1, FILES + 1),
    "a file vanished": (lambda data: (data / "1.parquet").unlink(), 0, FILES - 1),
    "a file has another name": (lambda data: (data / "1.parquet").rename(data / "7.parquet"), 1, FILES),
    "two files exchange names": (exchange, 2, FILES),
    "a file is another one": (replace_by_another, 1, FILES),
    "a file has no rows": (lambda data: pq.write_table(pq.read_table(data / "1.parquet").slice(0, 0),
                                                       data / "1.parquet"), 1, FILES),
    "a column has another type": (other_type, 1, FILES),
}  # fmt: skip


def test_what_changed_is_read(tmp_path: Path) -> None:
    for name, (change, changed, files) in CHANGES.items():
        data, index = made(tmp_path / name)
        change(data)
        rows = [path for path in data.rglob("*.parquet") if pq.read_metadata(path).num_rows]
        keys = [] if name == "a column has another type" else [key_of(path) for path in rows]
        one_of_them = f"id IN ({', '.join(map(str, [*keys, 5]))})"
        assert same_rows(data, one_of_them, index) >= len(set(keys)), name
        same_rows(data, f"id = {PLANTED} OR name = 'new'", index)
        same_rows(data, "id IS NULL OR NOT name = 'n5'", index)
        assert note_of(data, index) == (not_covered(changed, files) if changed else None), name
        if name == "a column has another type":
            continue
        report = update_index(index, data)
        assert report.kept + report.added == files, name
        assert same_rows(data, one_of_them, index) >= len(set(keys)), name
        assert note_of(data, index) is None, name


def test_a_file_that_vanished_is_the_error_that_it_is_without_an_index(data: Path, tmp_path: Path) -> None:
    paths = sorted(data.glob("*.parquet"))
    paths[1].unlink()
    errors = []
    for index in (None, tmp_path / "index"):
        with pytest.raises(ParquetBloomError) as e:
            parquet_bloom.read_table(paths, "id = 5", index=index)
        errors.append(str(e.value))
    assert errors[0] == errors[1]


def test_a_link_to_a_file_is_the_file(data: Path, tmp_path: Path) -> None:
    """Another name of the same version; and a link that leads elsewhere by now."""
    (tmp_path / "linked").mkdir()
    link = tmp_path / "linked/a.parquet"
    link.symlink_to(data / "0.parquet")
    build_index(tmp_path / "linked", ["id"], tmp_path / "index2")
    key = key_of(data / "1.parquet")
    assert same_rows(tmp_path / "linked", f"id = {key}", tmp_path / "index2") == 0
    link.unlink()
    link.symlink_to(data / "1.parquet")
    with pytest.raises(StaleIndexError, match="changed since it was built"):
        parquet_bloom.read_table(tmp_path / "linked", f"id = {key}", index=tmp_path / "index2")


# --- of other data ----------------------------------------------------------------------------------


def test_a_folder_that_moved_is_told(data: Path, tmp_path: Path) -> None:
    data.rename(tmp_path / "elsewhere")
    with pytest.raises(StaleIndexError, match=f"is an index of {data}, and of none of these files"):
        parquet_bloom.read_table(tmp_path / "elsewhere", "id = 5", index=tmp_path / "index")
    done = command("check", tmp_path / "elsewhere", "id = 5", "--index", tmp_path / "index")
    assert (done.returncode, error_lines(done.stderr)) == (2, 1)
    assert f"is an index of {data}" in done.stderr
    (tmp_path / "elsewhere").rename(data)
    hold(data, tmp_path / "index")


def test_a_root_may_be_relative(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for root in ("data", "./data/", ".", "/", "elsewhere"):
        build_index("data", ["id"], "index2", root=root, overwrite=True)
        for source in ("data", data, Path("data"), "./data"):
            assert note_of(source, Path("index2")) is None, root
            assert same_rows(source, f"id = {key_of(data / '2.parquet')}", "index2") == 1
        assert note_of(data, tmp_path / "index2") is None


def test_links_to_the_data_are_the_data(data: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(data)
    (tmp_path / "far").mkdir()
    (tmp_path / "far/link").symlink_to(tmp_path / "link")
    build_index(tmp_path / "link", ["id"], tmp_path / "index2")
    for source in (data, tmp_path / "link", tmp_path / "far/link"):
        assert note_of(source, tmp_path / "index2") is None
        assert same_rows(source, f"id = {key_of(data / '2.parquet')}", tmp_path / "index2") == 1


def test_an_index_of_other_data_and_a_wrong_name_are_told(data: Path, tmp_path: Path) -> None:
    """Each in one line, with the name."""
    other, index = tmp_path / "other", tmp_path / "index"
    other.mkdir()
    write(other / "0.parquet", 0)
    functions: list[Callable[..., Any]] = [
        parquet_bloom.check, parquet_bloom.prune, parquet_bloom.read_table, parquet_bloom.count, parquet_bloom.dataset,
        lambda *words, **how: list(parquet_bloom.read_batches(*words, **how)),
    ]  # fmt: skip
    told = [(partial(one, other, "id = 5", index=index), index, StaleIndexError) for one in functions]
    told.append((partial(update_index, index, other), index, StaleIndexError))
    for name in ("nothing", "data", "data/0.parquet", "index/columns", "index/manifest.json"):
        wrong = tmp_path / name
        told += [(partial(one, data, "id = 5", index=wrong), wrong, ParquetBloomError) for one in functions[::2]]
    for call, named, error in told:
        with pytest.raises(error) as e:
            call()
        assert str(named) in str(e.value)
        assert "\n" not in str(e.value)


def test_each_error_of_an_index_whose_files_changed_names_the_command_that_mends_it(data: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    all_changed = f"all of its {FILES} files that are here changed since it was built"
    for change in (
        lambda path: os.utime(path, (0, 0)),  # their bytes are the same
        lambda path: parquet_bloom.add_filters(path, columns="id", in_place=True),
    ):
        for path in data.iterdir():
            change(path)
        with pytest.raises(
            StaleIndexError, match=f"{all_changed}; parquet-bloom index update {index} DATA brings it up to date"
        ):
            parquet_bloom.count(data, "id = 5", index=index)
        report = update_index(index, data)
        assert (report.kept, report.recognised) == (FILES, FILES)
        hold(data, index)
    for path in data.iterdir():
        pq.write_table(pa.table({"id": [1, 5]}), path)
    with pytest.raises(StaleIndexError, match=f"parquet-bloom index rebuild {index} DATA brings it up to date"):
        update_index(index, data)
    parquet_bloom.rebuild_index(index, data)
    assert parquet_bloom.count(data, "id = 5", index=index) == FILES


# --- by chance --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, *more_then_slow(range(1, 40), 2)])
def test_random_changes_and_updates(seed: int, data: Path, tmp_path: Path) -> None:
    rng, index = Random(seed), tmp_path / "index"
    old: list[bytes] = []
    for step in range(10):
        paths = sorted(data.glob("*.parquet"))
        path = rng.choice(paths)
        match rng.choice(["new", "new", "gone", "rewritten", "filters", "renamed", "old", "copy", "update", "update"]):
            case "new":
                write(data / f"{rng.randrange(30)}.parquet", rng.randrange(1000))
            case "gone" if len(paths) > 2:
                old.append(path.read_bytes())
                path.unlink()
            case "rewritten":
                table = pq.ParquetFile(path).read()
                old.append(path.read_bytes())
                changed = disguised_changes.replaced(table, "id", rng.randrange(ROWS), rng.randrange(1 << 60))
                pq.write_table(changed, path, row_group_size=100)
            case "filters":
                placement = rng.choice(["footer", "chunk-start", "tail"])
                parquet_bloom.remove_filters(path, in_place=True)
                parquet_bloom.add_filters(path, in_place=True, columns=["id"], placement=placement)
            case "renamed":
                path.rename(data / f"{rng.randrange(30)}.parquet")
            case "old" if old:  # an older version comes back under some name
                path.write_bytes(rng.choice(old))
            case "copy":
                write(data / "copied", rng.randrange(9))
                shutil.copy2(path, data / "copied")
                (data / "copied").rename(rng.choice(paths))
            case "update":
                try:
                    update_index(index, data)
                except StaleIndexError:
                    build_index(data, ["id", "name"], index, overwrite=True)
                assert note_of(data, index) is None
        for one in sorted(data.glob("*.parquet")):
            try:
                assert same_rows(data, f"id = {key_of(one, rng.randrange(ROWS))}", index) >= 1, step
            except StaleIndexError:
                break


def test_a_name_that_is_no_utf8_is_refused_in_one_line(data: Path, tmp_path: Path) -> None:
    before = (tmp_path / "index/manifest.json").read_bytes()
    shutil.copy(data / "0.parquet", os.fsdecode(os.fsencode(data) + b"/\xff.parquet"))
    for call in (
        lambda: update_index(tmp_path / "index", data),
        lambda: parquet_bloom.rebuild_index(tmp_path / "index", data),
        lambda: build_index(data, "id", tmp_path / "other"),
        lambda: zones.build_index(data, ["id"], tmp_path / "zones"),
    ):
        with pytest.raises(
            RequestError, match=r"udcff.*: its name is no UTF-8, so no index can have it; rename it"
        ) as e:
            call()
        str(e.value).encode()  # it can be printed
    assert (tmp_path / "index/manifest.json").read_bytes() == before
    assert not (tmp_path / "other/manifest.json").exists()
    assert not list((tmp_path / "zones").rglob("*.lance"))


# --- rewritten by the same program, with one value corrected ----------------------------------------------------------

LAYOUTS = [
    *({"compression": codec} for codec in ("none", "snappy", "gzip", "zstd", "lz4", "brotli")),
    *({"compression": "gzip", "compression_level": level} for level in (1, 6, 9)),
    *({"compression": "gzip", "use_dictionary": False, "data_page_size": size} for size in (256, 1 << 20)),
    {"compression": "gzip", "data_page_version": "2.0"},
    {"compression": "gzip", "write_page_checksum": True},
]


QUICK, OTHERS = LAYOUTS[:3] + LAYOUTS[9:11], LAYOUTS[3:9] + LAYOUTS[11:]


@pytest.mark.parametrize("layouts", [QUICK, pytest.param(OTHERS, marks=pytest.mark.more)], ids=["some", "others"])
def test_a_corrected_value_is_found_whatever_the_codec(layouts: list[dict[str, Any]], tmp_path: Path) -> None:
    """GZIP ends with the CRC-32 of its bytes: if deflate stores these, the CRC-32 of all is always the same."""
    rng = Random(5)
    ids = [rng.getrandbits(63) for _ in range(1000)]
    old = sorted(ids)[500]
    corrected = [one + (one == old) for one in ids]  # bounds stay as they are
    for number, layout in enumerate(layouts):
        data, index, zone_index = (tmp_path / f"{name}{number}" for name in ("data", "index", "zones"))
        data.mkdir()
        path = data / "a.parquet"
        pq.write_table(pa.table({"id": ids}), path, **layout)
        pq.write_table(pa.table({"id": [1, 2, 3]}), data / "b.parquet", **layout)  # it stays
        before = path.read_bytes()
        build_index(data, "id", index)
        zones.build_index(path, "id", zone_index)
        pq.write_table(pa.table({"id": corrected}), path, **layout)
        predicate = f"id = {old + 1}"
        with pytest.raises(StaleIndexError, match="is not as it was"):
            zones.query_index(zone_index, predicate)
        update_index(index, data)
        assert parquet_bloom.count(data, predicate, index=index, strict_index=True) == 1, layout
        assert parquet_bloom.locate(data, "id", [old + 1], index=index).num_rows == 1, layout
        assert parquet_bloom.locate(data, "id", [old], index=index).num_rows == 0, layout
        if layout["compression"] == "gzip" and len(layout) == 1:
            assert disguised_changes.looks_alike(before, path.read_bytes()), "the adversary is as strong as it was"


def test_an_index_by_crc32_is_refused(data: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "index/manifest.json"
    manifest.write_text(manifest.read_text().replace('"format_version": 2', '"format_version": 1'))
    refused = pytest.raises(parquet_bloom.RequestError, match="has version 1 of the format.*build it again")
    with refused:
        parquet_bloom.count(data, "id = 5", index=tmp_path / "index")
    with refused:
        update_index(tmp_path / "index", data)
    build_index(data, "id", tmp_path / "index", overwrite=True)
    assert parquet_bloom.count(data, f"id = {key_of(data / '0.parquet')}", index=tmp_path / "index") >= 1

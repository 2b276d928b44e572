"""Files that get other values and keep size, footer and times: no zone index hides a row of them."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import disguised_changes
from support.lance_data import crafted
from support.repeats import more_then_slow

import parquet_bloom
import parquet_bloom.lance as zones
from parquet_bloom.errors import ConflictError, StaleIndexError
from parquet_bloom.filters import content
from parquet_bloom.storage import version_token
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.zones.container import FRAGMENTS, ZoneFile

PLANTED = 123456789012345678


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    content._remembered.renew()


@pytest.fixture(autouse=True)
def haste() -> None:
    """None: these tests are of the times that users have."""


def two_versions(rows: int = 5000) -> tuple[bytes, bytes]:
    """pyarrow's defaults, and one value corrected."""
    table = pa.table({"id": np.random.default_rng(7).integers(0, 1 << 60, rows)})
    old = disguised_changes.written(table)
    new = disguised_changes.written(disguised_changes.replaced(table, "id", rows // 2, PLANTED))
    assert disguised_changes.looks_alike(old, new)
    return old, new


@pytest.fixture
def checksums(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The chunks whose checksums are taken."""
    taken: list[tuple[str, int]] = []
    real = content.chunk_hash

    def noted(source: OpenFile, footer: Any, leaf: Any, row_group: int) -> int:
        taken.append((leaf.name, row_group))
        return real(source, footer, leaf, row_group)

    monkeypatch.setattr(content, "chunk_hash", noted)
    return taken


@pytest.mark.parametrize("rewrite", disguised_changes.REWRITES)
def test_a_rewritten_file_is_refused_by_whatever_opens_it(rewrite: str, tmp_path: Path) -> None:
    old, new = two_versions()
    path = tmp_path / "data/a.parquet"
    path.parent.mkdir()
    path.write_bytes(old)
    zones.build_index(tmp_path / "data", ["id"], tmp_path / "index", sync=False)
    assert parquet_bloom.read_table(path, f"id = {PLANTED}", index=tmp_path / "index").num_rows == 0
    disguised_changes.REWRITES[rewrite](path, new)
    assert parquet_bloom.read_table(path, f"id = {PLANTED}").num_rows == 1
    wanted = r"a.parquet: is not as it was when .*: column id of row group 0 has other bytes; build the index again"
    for call in (
        lambda: parquet_bloom.read_table(path, f"id = {PLANTED}", index=tmp_path / "index"),
        lambda: zones.query_index(tmp_path / "index", f"id = {PLANTED}"),
        lambda: zones.verify_index(tmp_path / "index"),
        lambda: zones.verify_index(tmp_path / "index", tmp_path / "data"),
    ):
        with pytest.raises(StaleIndexError, match=wanted):
            call()
    disguised_changes.REWRITES[rewrite](path, old)
    assert zones.verify_index(tmp_path / "index")[0].status == "right", "the old bytes are back"


@pytest.mark.parametrize("rewrite", disguised_changes.REWRITES)
def test_a_file_that_is_rewritten_at_once_is_refused(rewrite: str, tmp_path: Path) -> None:
    """Written, indexed and written again in a moment, in which the kernel's clock may stand still."""
    old, new = two_versions(200)
    path = tmp_path / "data/a.parquet"
    path.parent.mkdir()
    for _ in range(5):
        path.write_bytes(old)
        zones.build_index(tmp_path / "data", ["id"], tmp_path / "index", overwrite=True, sync=False)
        disguised_changes.REWRITES[rewrite](path, new)
        with pytest.raises(StaleIndexError):
            parquet_bloom.read_table(path, f"id = {PLANTED}", index=tmp_path / "index")


@pytest.mark.parametrize("proof", ["token", "checksums"])
def test_a_file_that_is_rewritten_while_it_is_indexed_gives_no_index(
    proof: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = two_versions()
    path = tmp_path / "a.parquet"
    path.write_bytes(old)
    if proof == "checksums":  # as on a network file system, whose times are none
        monkeypatch.setattr(version_token, "_KEEP_CTIME", set())
    real, calls = content.chunk_hash, []

    def rewriting(*arguments: Any) -> int:
        calls.append(arguments)
        if len(calls) == (1 if proof == "token" else 2):  # its values are decoded by then
            disguised_changes.in_place(path, new)
        return real(*arguments)

    monkeypatch.setattr(content, "chunk_hash", rewriting)
    with pytest.raises(ConflictError, match="was changed by another program meanwhile"):
        zones.build_index(path, ["id"], tmp_path / "index", sync=False)
    assert calls
    assert not list(tmp_path.glob("index/**/*.lance"))


# --- what is no change ----------------------------------------------------------------------------


def test_an_unchanged_file_is_not_read(tmp_path: Path, checksums: list[tuple[str, int]]) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(two_versions()[0])
    zones.build_index(path, ["id"], tmp_path / "index", sync=False)
    if "token" not in json.loads(ZoneFile(str(tmp_path / "index/id/bloomfilter.lance")).metadata[FRAGMENTS])[0]:
        pytest.skip("this file system's times are no proof")
    checksums.clear()
    for _ in range(3):
        parquet_bloom.read_table(path, f"id = {PLANTED}", index=tmp_path / "index")
    zones.query_index(tmp_path / "index", "id = 5", root=tmp_path)
    assert checksums == []


def test_a_copy_is_read_once_and_only_where_the_index_is_asked(
    tmp_path: Path, checksums: list[tuple[str, int]], caplog: pytest.LogCaptureFixture
) -> None:
    table = pa.table({"id": np.arange(4000) * 3, "other": np.arange(4000)})
    (tmp_path / "one").mkdir()
    pq.write_table(table, tmp_path / "one/a.parquet", row_group_size=1000)
    zones.build_index(tmp_path / "one/a.parquet", ["id"], tmp_path / "one/index", items=100, sync=False)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    data, index = tmp_path / "two/a.parquet", tmp_path / "two/index"
    checksums.clear()
    with caplog.at_level("INFO", "parquet_bloom"):
        for _ in range(3):
            assert parquet_bloom.read_table(data, "id = 3003", index=index)["other"].to_pylist() == [1001]
    settled = OpenFile(data).lasting_token(wait=True) is not None
    if settled:
        assert set(checksums) == {("id", 1)}, "the bounds rule the other row groups out"
        checksums.clear()
        content._remembered.renew()
        for _ in range(3):
            parquet_bloom.read_table(data, "id = 3003", index=index)
            assert checksums == [("id", 1)]
        assert zones.query_index(index, "id = 3003", root=tmp_path).rows == 100
        assert checksums == [("id", group) for group in (1, 0, 2, 3)]
    told = [record for record in caplog.records if "by reading its column only" in record.getMessage()]
    assert len(told) == 1


def test_filters_that_come_and_go_change_no_content(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"id": np.arange(3000) * 7, "name": [f"n{i}" for i in range(3000)]})
    pq.write_table(table, path, row_group_size=700, write_page_index=True)
    zones.build_index(path, ["id", "name"], tmp_path / "index", items=100, sync=False)
    whole = path.read_bytes()

    def check() -> None:
        for value in (0, 7 * 1234, 7 * 2999):
            found = parquet_bloom.read_table(path, f"id = {value} AND name = 'n{value // 7}'", index=tmp_path / "index")
            assert found["id"].to_pylist() == [value]
        assert [one.status for one in zones.verify_index(tmp_path / "index", path)] == ["right"] * 2

    for placement in ("footer", "chunk-start", "tail"):
        parquet_bloom.add_filters(path, columns=["id"], in_place=True, placement=placement)
        assert path.read_bytes() != whole
        check()
        parquet_bloom.add_filters(path, columns=["name"], in_place=True, placement="tail")
        check()
        parquet_bloom.remove_filters(path, in_place=True)
        assert path.read_bytes() == whole
        check()
    parquet_bloom.add_filters(path, columns=["id"], in_place=True)
    parquet_bloom.add_filters(path, columns=["id", "name"], in_place=True, replace=True, placement="chunk-start")
    path.write_bytes(path.read_bytes().replace(b"parquet_bloom", b"parquet_BLOOM"))
    check()


def test_another_column_may_change(tmp_path: Path) -> None:
    table = pa.table({"id": np.arange(3000) * 7, "other": np.arange(3000)})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=700)
    zones.build_index(path, ["id"], tmp_path / "index", items=100, sync=False)
    table = table.set_column(1, "other", [np.arange(3000) % 5])
    pq.write_table(table, path, row_group_size=700)
    assert parquet_bloom.read_table(path, "id = 700", index=tmp_path / "index")["other"].to_pylist() == [0]
    pq.write_table(table, path, row_group_size=701)
    with pytest.raises(StaleIndexError, match="other rows"):
        parquet_bloom.read_table(path, "id = 700", index=tmp_path / "index")
    pq.write_table(table.drop(["id"]), path, row_group_size=700)
    with pytest.raises(StaleIndexError, match="no column id"):
        zones.query_index(tmp_path / "index", "id = 700", root=tmp_path)


# --- by chance --------------------------------------------------------------------------------------


def random_table(chance: random.Random, rng: np.random.Generator) -> tuple[pa.Table, Any]:
    """A table of a column `c`, and a value that it does not hold."""
    rows = chance.choice([50, 400, 3000])
    kind = chance.choice(["int64", "int32", "text", "few", "double", "nullable"])
    if kind == "text":
        return pa.table({"c": [f"{n:016x}" for n in rng.integers(0, 1 << 60, rows)]}), "8" + "z" * 15
    if kind == "few":
        return pa.table({"c": rng.integers(0, 9, rows) * 10}), 45
    if kind == "double":
        return pa.table({"c": rng.normal(size=rows)}), 0.123456789
    numbers = rng.integers(0, 1 << 30, rows)
    mask = rng.random(rows) < 0.1 if kind == "nullable" else None
    return pa.table({"c": pa.array(numbers, pa.int32() if kind == "int32" else pa.int64(), mask=mask)}), 123456789


def rewrites_of(seed: int) -> Iterator[tuple[bytes, bytes, Any]]:
    """Files, each with a rewrite of equal size and footer, and the value that came into it."""
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    for _ in range(40):
        table, value = random_table(chance, rng)
        options = {
            "compression": chance.choice(["none", "none", "snappy", "zstd"]),
            "use_dictionary": chance.random() < 0.5,
            "write_statistics": chance.random() < 0.5,
            "data_page_version": chance.choice(["1.0", "2.0"]),
            "write_page_checksum": chance.random() < 0.5,
            "row_group_size": chance.choice([37, 500, 100_000]),
            "data_page_size": chance.choice([200, 1 << 20]),
        }
        row = chance.randrange(table.num_rows)
        if table["c"][row].as_py() is None:
            continue
        try:
            old, new = (
                disguised_changes.written(one, **options)
                for one in (table, disguised_changes.replaced(table, "c", row, value))
            )
        except pa.ArrowInvalid:
            continue
        if disguised_changes.looks_alike(old, new):
            yield old, new, value


@pytest.mark.parametrize("seed", [0, *more_then_slow(range(1, 40), 4)])
def test_no_row_is_lost_to_a_random_rewrite(seed: int, tmp_path: Path) -> None:
    cases = list(rewrites_of(seed))
    assert len(cases) >= 5, "most random files have a rewrite that looks alike"
    chance = random.Random(seed)
    for i, (old, _, _) in enumerate(cases):  # all at first: what is built at once after a file was written waits
        (tmp_path / f"{i}.parquet").write_bytes(old)
    for i, (_, new, value) in enumerate(cases):
        path, index = tmp_path / f"{i}.parquet", tmp_path / f"index{i}"
        zones.build_index(path, ["c"], index, items=chance.choice([10, 8192]), sync=False)
        where = f"c = {value!r}"
        assert parquet_bloom.read_table(path, where, index=index).num_rows == 0
        disguised_changes.REWRITES[chance.choice(list(disguised_changes.REWRITES))](path, new)
        wanted = parquet_bloom.read_table(path, where, use_filters=False)
        assert wanted.num_rows == 1
        try:
            found = parquet_bloom.read_table(path, where, index=index)
        except StaleIndexError:
            continue
        assert found.equals(wanted), (seed, i)


# --- stores -----------------------------------------------------------------------------------------


def test_an_object_that_is_rewritten_is_refused(store: Any, bucket: str, tmp_path: Path) -> None:
    old, new = two_versions()
    store.put(f"{bucket}/data/a.parquet", old)
    named = f"{bucket}/data/a.parquet"
    zones.build_index(named, ["id"], tmp_path / "index", filesystem=store.filesystem, sync=False)
    [one] = json.loads(ZoneFile(str(tmp_path / "index/id/bloomfilter.lance")).metadata[FRAGMENTS])
    assert set(one["token"]) == {"size", "etag", "modified"}

    def read(key: int = PLANTED) -> int:
        options = {"index": tmp_path / "index", "filesystem": store.filesystem}
        return int(parquet_bloom.read_table(named, f"id = {key}", **options).num_rows)

    assert read() == 0
    store.put(named, new)
    assert parquet_bloom.read_table(named, f"id = {PLANTED}", filesystem=store.filesystem).num_rows == 1
    with pytest.raises(StaleIndexError, match="has other bytes"):
        read()
    store.put(named, old)
    assert read() == 0
    assert read(pq.read_table(pa.BufferReader(old))["id"][17].as_py()) == 1


def test_an_object_is_read_once_to_build(store: Any, bucket: str, tmp_path: Path) -> None:
    table = pa.table({"id": np.random.default_rng(3).integers(0, 1 << 60, 200_000), "more": range(200_000)})
    data = disguised_changes.written(table, row_group_size=50_000)
    store.put(f"{bucket}/a.parquet", data)
    store.wire.clear()
    zones.build_index(f"{bucket}/a.parquet", ["id"], tmp_path / "index", filesystem=store.filesystem, sync=False)
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        groups = [file.metadata.row_group(i) for i in range(4)]
    column = sum(group.column(0).total_compressed_size for group in groups)
    assert column <= store.wire.down < 1.1 * column + 3 * (64 << 10), "checksums are of the bytes that were decoded"


def test_a_storage_without_etags_is_read_to_know_it(tmp_path: Path, checksums: list[tuple[str, int]]) -> None:
    """fsspec's memory tells a time, which says nothing of the bytes."""
    old, new = two_versions()
    filesystem, path = fsspec.filesystem("memory"), "/rewritten/a.parquet"
    filesystem.pipe_file(path, old)
    options = {"filesystem": filesystem}
    try:
        zones.build_index(path, ["id"], tmp_path / "index", sync=False, **options)
        for _ in range(2):
            checksums.clear()
            found = parquet_bloom.read_table(path, f"id = {PLANTED}", index=tmp_path / "index", **options)
            assert (found.num_rows, checksums) == (0, [("id", 0)])
        filesystem.store[path].seek(0)
        filesystem.store[path].write(new)
        with pytest.raises(StaleIndexError, match="has other bytes"):
            parquet_bloom.read_table(path, f"id = {PLANTED}", index=tmp_path / "index", **options)
    finally:
        filesystem.rm(path)


# --- what an index says -----------------------------------------------------------------------------


def saying(index: Path, folder: Path, change: Any) -> Path:
    """An index that says other things of its files."""
    said = json.loads(ZoneFile(str(index)).metadata[FRAGMENTS])
    for one in said:
        change(one)
    return crafted(index, folder, **{FRAGMENTS: json.dumps(said)})


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """An index of tmp/data/a.parquet."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.parquet").write_bytes(two_versions(300)[0])
    built = zones.build_index(tmp_path / "data", ["id"], tmp_path / "index", items=50, sync=False)
    return Path(built.indexes[0].path)


def test_an_index_without_checksums_is_refused(index: Path, tmp_path: Path) -> None:
    def older(one: dict[str, Any]) -> None:
        for name in ("rows", "chunk_xxh3", "token"):
            one.pop(name, None)

    old = saying(index, tmp_path / "older", older)
    for call in (
        lambda: parquet_bloom.read_table(tmp_path / "data", f"id = {PLANTED}", index=old),
        lambda: zones.query_index(old, "id = 5"),
        lambda: zones.verify_index(old),
    ):
        with pytest.raises(
            StaleIndexError, match="was built without checksums of its columns; build the index again"
        ) as e:
            call()
        assert "\n" not in str(e.value)
    assert zones.inspect_index(old).fragments is not None


def test_checksums_that_do_not_fit_make_an_index_stale(index: Path, tmp_path: Path) -> None:
    """What is no checksum at all is damage: test_hostile_indexes.py."""
    for at, told in enumerate((
        {"rows": [300], "chunk_xxh3": []}, {"rows": [], "chunk_xxh3": []}, {"rows": [300], "chunk_xxh3": ["-1"]},
        {"rows": [1 << 70], "chunk_xxh3": ["f" * 64]},
    )):  # fmt: skip
        wrong = saying(index, tmp_path / f"{at}", lambda one, told=told: (one.update(told), one.pop("token", None)))
        with pytest.raises(StaleIndexError, match="is not as it was"):
            zones.query_index(wrong, "id = 5")


def test_a_token_that_is_none_proves_nothing(index: Path, tmp_path: Path, checksums: list[tuple[str, int]]) -> None:
    for at, token in enumerate(({}, {"size": 1}, {"inode": 1}, {"device": {}}, {"etag": "a", "size": 1})):
        content._remembered.renew()
        checksums.clear()
        other = saying(index, tmp_path / f"{at}", lambda one, token=token: one.update(token=token))
        assert zones.query_index(other, "id IS NULL").rows == 0
        assert checksums, token

"""read_table, read_batches, dataset, count and Scan: what is read, what is said when something is wrong.

What must not be read is garbage here: `hollow` zeroes everything but the footer, so that reading a
page is an error. Which rows come is tested in engines/, against pyarrow and DuckDB.
"""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.samples import ROW_GROUPS, ROWS, keys_table, no_listing_of, same_rows, write_keys

import parquet_bloom
from parquet_bloom import FooterCache, Scan, add_filters, check, count, dataset, prune, read_batches, read_table
from parquet_bloom.errors import (
    DamagedFileError,
    FileError,
    NotParquetError,
    RequestError,
    StorageError,
    TextError,
    UnknownColumnError,
)
from parquet_bloom.predicates.rows import RowFilter


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of three row groups with filters; `part` is 0, 1, 2 and sorted."""
    folder = tmp_path_factory.mktemp("keys")
    part = pa.array([i // ROWS for i in range(ROW_GROUPS * ROWS)], pa.int32())
    pq.write_table(keys_table().append_column("part", part), folder / "plain.parquet", row_group_size=ROWS)
    add_filters(
        folder / "plain.parquet", folder / "keys.parquet", columns=["id", "name", "tags", "user.id"], sync=False
    )
    return folder / "keys.parquet"


def hollow(source: Path, target: Path) -> Path:
    """The file without its pages and filters, which are zeros: whatever reads one of them fails."""
    data = bytearray(source.read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    data[4:footer] = bytes(footer - 4)
    target.write_bytes(data)
    return target


# --- wrong requests -------------------------------------------------------------------------------


READERS = [read_table, count, dataset, lambda *a, **k: list(read_batches(*a, **k)), prune]


def test_wrong_requests_are_told_before_data_is_read(path: Path, tmp_path: Path) -> None:
    """Unknown columns by the footer; what is no predicate before any file is opened: this one is not there."""
    file = hollow(path, tmp_path / "hollow.parquet")
    for read in READERS:
        for predicate, said in (
            ("part = 0 OR nam = 'x'", "no column nam; near names: name"), ([("nam", "=", "x")], "nam"),
            ("user.i = 5", "no column user.i; near names: .*user.id"),
        ):  # fmt: skip
            with pytest.raises(UnknownColumnError, match=said):
                read(file, predicate)
        with pytest.raises(TextError):
            read("never opened.parquet", "id = = 5")
        with pytest.raises(RequestError, match="filters"):
            read("never opened.parquet", [("id", "~", 5)])
        with pytest.raises(StorageError, match="no such file"):
            read("never opened.parquet", "id = 5")
        with pytest.raises(TypeError, match="use_filter'"):
            read(path, "id = 5", use_filter=False)  # a misspelt keyword is no option


def test_columns_that_are_not_there(path: Path, tmp_path: Path) -> None:
    file = hollow(path, tmp_path / "hollow.parquet")
    for read in (read_table, lambda *a, **k: list(read_batches(*a, **k))):
        with pytest.raises(UnknownColumnError, match="no column colur; near names: colour"):
            read(file, "part = 0", columns=["id", "colur"])
        with pytest.raises(UnknownColumnError, match="no column zzzzzz; there are: id, name"):
            read(file, "part = 9", columns=["zzzzzz"])
        with pytest.raises(UnknownColumnError, match="no column colur; near names: colour"):
            read(file, "part = 0", columns="colur")


def test_a_part_that_rows_cannot_be_filtered_by(path: Path) -> None:
    """check takes it, says so in `unused`, and still skips by the other part."""
    text = "part = 1 AND lower(name) = 'x'"
    verdicts = check(path, text)
    assert [v.skipped for v in verdicts] == [True, False, True]
    assert [part for part, _ in verdicts.unused] == ["lower(name) = 'x'"]
    assert Scan(path, text).unused == verdicts.unused
    for read in (read_table, count, lambda *a: list(read_batches(*a))):
        with pytest.raises(RequestError, match=r"rows cannot be filtered by lower\(name\) = 'x': "):
            read(path, text)
    assert dataset(path, text).to_table()["part"].unique().to_pylist() == [1], "whoever takes it filters the rows"
    assert prune(path, text) == [(str(path), [1])]


def test_pyarrow_filters_rows_by_what_we_do_not_understand(path: Path) -> None:
    filters = (pc.field("part") == 1) & pc.starts_with(pc.field("name"), "user-1")
    ours = read_table(path, filters)
    assert len(ours) > 0
    assert same_rows(ours, pq.read_table(path, filters=filters))
    assert Scan(path, filters).kept == [(str(path), [1])]


def test_pyarrow_filters_all_rows_of_nested_extension_types_away(tmp_path: Path) -> None:
    """pyarrow makes no record batch without rows of such a type."""
    keys = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16)))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 1], pa.int32()), keys)
    pq.write_table(pa.table({"id": [1, 3], "keys": lists}), tmp_path / "a.parquet")
    for wanted, found in ((2, []), (3, [3])):
        filters = pc.field("id") == wanted
        assert read_table(tmp_path / "a.parquet", filters)["id"].to_pylist() == found
        assert count(tmp_path / "a.parquet", filters) == len(found)


U5, U7 = uuid.UUID(int=5), uuid.UUID(int=7 << 100)
UUIDS: list[tuple[Any, list[int]]] = [
    ([("u", "=", U5)], [5]),
    ([("u", "=", U5.bytes)], [5]),
    ([("u", "=", str(U5))], [5]),
    ([("u", "!=", U5), ("id", "<", 8)], [0, 1, 3, 4, 6, 7]),
    ([("u", "in", [U5, uuid.UUID(int=9)])], [5, 9]),
    ([("u", "not in", [uuid.UUID(int=i) for i in range(9)])], [2, 9, 100]),  # as pyarrow has it: NULL is none of these
    ([[("u", "=", U5)], [("id", "=", 3)]], [3, 5]),
    ([("u", ">", uuid.UUID(int=8))], [9, 100]),
    (pc.field("u") == pa.scalar(U7.bytes, pa.uuid()), [100]),
    (pc.field("u").is_null(), [2]),
    (~(pc.field("u") == pa.scalar(U5.bytes, pa.uuid())) & (pc.field("id") > 8), [9, 100]),
    (pc.field("st", "u") == pa.scalar(U5.bytes, pa.uuid()), [5]),
]


@pytest.mark.parametrize("with_filters", [False, True])
def test_uuids_are_compared_though_pyarrow_does_not(tmp_path: Path, with_filters: bool) -> None:
    numbers = [*range(10), 100]
    values = [None if i == 2 else U7.bytes if i == 100 else uuid.UUID(int=i).bytes for i in numbers]
    keys = pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))
    table = pa.table({"id": numbers, "u": keys, "st": pa.StructArray.from_arrays([keys], ["u"])})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    if with_filters:
        add_filters(tmp_path / "a.parquet", columns=["u"], in_place=True)
    for filters, found in UUIDS:
        assert read_table(tmp_path / "a.parquet", filters)["id"].to_pylist() == found, filters
        assert count(tmp_path / "a.parquet", filters) == len(found), filters


def test_what_pyarrow_cannot_compare_is_a_wrong_request_and_no_damaged_file(tmp_path: Path) -> None:
    keys = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16)))
    pq.write_table(pa.table({"u": keys}), tmp_path / "a.parquet")
    for filters in ([("u", "=", 5)], pc.starts_with(pc.field("u"), "a"), [("u", "=", "no uuid")]):
        with pytest.raises(RequestError):
            read_table(tmp_path / "a.parquet", filters)


# --- what is read ---------------------------------------------------------------------------------


def test_counting_what_the_footer_decides_reads_no_data(path: Path, tmp_path: Path) -> None:
    file = hollow(path, tmp_path / "hollow.parquet")
    for text, rows in (
        ("part = 1", ROWS), ("part >= 1", 2 * ROWS), ("NOT (part = 1)", 2 * ROWS), ("part IS NULL", 0),
        ("TRUE", 3 * ROWS),
        ("id IS NOT NULL", 3 * ROWS), ("part = 1 OR part < 1", 2 * ROWS), ("id < 0 AND colour = 'red'", 0),
        ("part IN (0, 2) AND part IS NOT NULL", 2 * ROWS), ("part = 7", 0), ("id >= 0", 3 * ROWS),
    ):  # fmt: skip
        assert count(file, text) == count(path, text) == rows, text
    assert count(file) == 3 * ROWS
    assert count(file, [("part", "=", 1)]) == ROWS
    with pytest.raises(FileError):
        count(file, "colour = 'red'", use_filters=False)


def test_small_row_groups_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel takes as long for 7 rows as for one. Rows in memory stay bounded, whatever their types."""
    n = 700
    table = pa.table(
        {
            "x": range(n),
            "text": pa.array([None if i % 3 == 0 else "t" * (i % 5) for i in range(n)], pa.string_view()),
            "word": pa.array([f"w{i % 9}" for i in range(n)]).dictionary_encode(),
            "numbers": [[i, None] for i in range(n)],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    counted = RowFilter.count
    sizes: list[int] = []

    def seen(self: RowFilter, batch: pa.RecordBatch) -> int:
        sizes.append(batch.num_rows)
        return counted(self, batch)

    monkeypatch.setattr(RowFilter, "count", seen)
    for text in ("NOT (x = 5)", "text = 'ttt'", "word IN ('w1', 'w8')", "text IS NULL OR word = 'w2'"):
        sizes.clear()
        assert count(tmp_path / "a.parquet", text) == read_table(tmp_path / "a.parquet", text).num_rows > 0
        assert len(sizes) == 1
    sizes.clear()
    monkeypatch.setattr("parquet_bloom.rows.scan._GATHERED_ROWS", 70)
    assert count(tmp_path / "a.parquet", "word = 'w1' AND x >= 3") == 77
    assert max(sizes) == 70
    assert len(sizes) > 5


def test_rows_of_row_groups_that_match_whole_are_not_filtered(path: Path) -> None:
    whole = pq.read_table(path)
    assert same_rows(read_table(path, "part = 1"), whole.slice(ROWS, ROWS))
    assert same_rows(read_table(path), whole)
    assert same_rows(read_table(path, "part = 1 OR part = 2", columns=["colour"]), whole.slice(ROWS).select(["colour"]))


@pytest.mark.smoke
def test_other_row_groups_are_not_read(path: Path, tmp_path: Path) -> None:
    """All pages but those of row group 1 are zeros, and its rows come."""
    key = keys_table()["id"][ROWS + 7].as_py()
    data = bytearray(path.read_bytes())
    with pq.ParquetFile(path) as file:
        first, last = (file.metadata.row_group(g).column(0).dictionary_page_offset or 4 for g in (1, 2))
    until = min(found.offset for found in parquet_bloom.inspect(path).files[0].filters)
    data[4:first] = bytes(first - 4)
    data[last:until] = bytes(until - last)
    (tmp_path / "one.parquet").write_bytes(data)
    assert read_table(tmp_path / "one.parquet", f"id = {key}")["id"].to_pylist() == [key]
    assert count(tmp_path / "one.parquet", f"id = {key}") == 1
    with pytest.raises(FileError, match="one.parquet"):
        read_table(tmp_path / "one.parquet", f"id = {key}", use_filters=False)


def test_batches_are_bounded(path: Path) -> None:
    for rows in (1, 7, 100, ROWS, 10 * ROWS):
        batches = list(read_batches(path, "part >= 1", ["part", "id"], batch_rows=rows))
        assert all(0 < batch.num_rows <= rows for batch in batches)
        assert same_rows(pa.Table.from_batches(batches), pq.read_table(path, columns=["part", "id"]).slice(ROWS))
    by_hand = list(read_batches(path, "list_contains(tags, 5) OR part = 2", ["id"], batch_rows=64))
    assert sum(b.num_rows for b in by_hand) == ROWS
    assert max(b.num_rows for b in by_hand) <= 64
    assert by_hand[0].schema.names == ["id"]


def test_batches_that_nobody_takes_leave_nothing_open(path: Path) -> None:
    batches = read_batches(path, "part >= 1", batch_rows=10)
    assert next(batches).num_rows == 10
    batches.close()


# --- footers --------------------------------------------------------------------------------------


def test_a_footer_is_read_once_while_the_file_is_the_same(tmp_path: Path) -> None:
    path = write_keys(tmp_path / "keys.parquet")
    cache = FooterCache()
    assert Scan(path, "id = 5", cache=cache, use_filters=False).files[0].requests == 1
    again = Scan(path, "id > 5", cache=cache, use_filters=False).files[0]
    assert (again.requests, again.bytes_read) == (0, 0)
    assert len(check(path, "id = 5", cache=cache)) == ROW_GROUPS
    assert len(cache) == 1
    key = keys_table()["id"][3].as_py()
    assert read_table(path, f"id = {key}", cache=cache).num_rows == count(path, f"id = {key}", cache=cache) == 1


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    path, cache = tmp_path / "a.parquet", FooterCache()
    for rows in ([1, 2, 3], [4, 5, 6], [7, 8]):
        pq.write_table(pa.table({"x": rows}), tmp_path / "new.parquet")
        os.replace(tmp_path / "new.parquet", path)
        assert read_table(path, f"x >= {rows[0]}", cache=cache)["x"].to_pylist() == rows
        assert count(path, f"x >= {rows[0]}", cache=cache) == len(rows)
    stamp = os.stat(path)
    pq.write_table(pa.table({"x": [9, 10]}), path)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 1))
    assert count(path, "x > 8", cache=cache) == 2
    assert len(cache) == 1


def test_the_cache_lets_go_of_what_is_used_least(tmp_path: Path) -> None:
    cache = FooterCache(max_row_groups=3)
    for name in "abcd":
        pq.write_table(pa.table({"x": [1, 2]}), tmp_path / f"{name}.parquet", row_group_size=1)
        check(tmp_path / f"{name}.parquet", "x = 1", cache=cache)
        assert len(cache) == 1, "two files of two row groups are one row group too many"


def test_a_file_that_changes_between_verdict_and_reading(tmp_path: Path) -> None:
    """Row groups of the old file mean nothing in the new one."""
    gone = r"keys.parquet: (was changed by another program|No such file)"
    for change in ("replaced", "written to", "gone"):
        path = write_keys(tmp_path / "keys.parquet")
        scan = Scan(path, "half_null > 5")
        assert scan.kept
        if change == "replaced":
            pq.write_table(pa.table({"half_null": [7.0]}), tmp_path / "new")
            os.replace(tmp_path / "new", path)
        elif change == "written to":
            shutil.copy(write_keys(tmp_path / "other", compression="none"), path)
        else:
            path.unlink()
        for read in (scan.to_table, lambda scan=scan: list(scan.to_batches()), scan.count):
            with pytest.raises(FileError, match=gone):
                read()


# --- several files --------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for at, year in enumerate((2024, 2025, 2026)):
        (tmp_path / "data" / f"year={year}").mkdir(parents=True)
        file = tmp_path / "data" / f"year={year}" / "a.parquet"
        pq.write_table(pa.table({"row": range(10 * at, 10 * at + 10)}), file, row_group_size=5)
    return tmp_path / "data"


def test_files_that_their_folder_excludes_are_not_opened(folder: Path) -> None:
    garbage = folder / "year=2025" / "a.parquet"
    garbage.write_bytes(b"this is no Parquet file at all")
    scan = Scan(folder, "year = 2026 AND row > 22")
    assert scan.to_table()["row"].to_pylist() == list(range(23, 30))
    assert scan.excluded == [str(garbage)]
    assert [(Path(v.path).parent.name, v.row_group, v.skipped) for v in scan.verdicts] == [
        ("year=2024", 0, True), ("year=2024", 1, True), ("year=2026", 0, False), ("year=2026", 1, False),
    ]  # fmt: skip
    assert count(folder, "year = 2026") == 10
    with pytest.raises(NotParquetError, match="year=2025/a.parquet"):
        read_table(folder, "row > 22")
    verdicts = check(folder, "row > 22")
    assert [failed.path for failed in verdicts.failed] == [str(garbage)]
    assert len(verdicts) == 4, "check says what it can of the others"


def test_a_wider_type_in_a_later_folder_holds_what_the_first_cannot(tmp_path: Path) -> None:
    for year, kind in ((2025, pa.int32()), (2026, pa.int64())):
        (tmp_path / f"year={year}").mkdir()
        values = pa.array([5, 6 if year == 2025 else 2**40], kind)
        pq.write_table(pa.table({"id": values}), tmp_path / f"year={year}" / "a.parquet")
    later = [(str(tmp_path / "year=2026" / "a.parquet"), [0])]
    assert prune(tmp_path, f"id = {2**40}") == later
    assert prune(tmp_path, f"id = {2**40} AND year > 2020") == later
    assert prune(tmp_path, f"id = {2**40} AND year < 2026") == []
    assert read_table(tmp_path, f"id = {2**40}")["id"].to_pylist() == [2**40]


def test_a_damaged_file_among_several_is_an_error_that_names_it(folder: Path) -> None:
    damaged = folder / "year=2025" / "a.parquet"
    hollow(damaged, damaged)
    with pytest.raises(DamagedFileError, match=r"one of the files|year=2025"):
        read_table(folder, "row > 12")
    assert read_table(folder, "row > 22")["row"].to_pylist() == list(range(23, 30)), "bounds spare us the damaged one"


def test_verdicts_of_a_scan_are_those_of_check(folder: Path) -> None:
    for text in ("row = 7", "year = 2025 AND row < 13", "row IS NULL"):
        assert Scan(folder, text).verdicts == [
            v for v in check(folder, text) if v.path not in Scan(folder, text).excluded
        ]
        kept = [(v.path, v.row_group) for v in check(folder, text) if not v.skipped]
        assert kept == [(path, group) for path, groups in prune(folder, text) for group in groups]


def test_sources(folder: Path, tmp_path: Path) -> None:
    files = sorted(str(p) for p in folder.rglob("*.parquet"))
    text, wanted = "row >= 8 AND row < 22", list(range(8, 22))
    for source in (folder, f"{folder}/*/a.parquet", f"{folder}/**/*.parquet", files, [Path(f) for f in files]):
        assert read_table(source, text)["row"].to_pylist() == wanted, source
        assert count(source, text) == len(wanted)
    assert read_table(files[::-1], "row >= 8")["row"].to_pylist() == [*range(20, 30), *range(10, 20), 8, 9]
    assert read_table(files[0], "row > 7")["row"].to_pylist() == [8, 9]
    (tmp_path / "empty").mkdir()
    for source in (tmp_path / "empty", f"{tmp_path}/*.nothing", [], tmp_path / "missing.parquet"):
        with pytest.raises((StorageError, RequestError)):
            read_table(source, text)


NAMES = ["~", "a b.parquet", "100%.parquet", "%41.parquet", "s3:", "a=b.parquet", "[x].parquet", "ünï.parquet",
         "#?&.parquet", "file:x.parquet", "~root", "-", "a\\b.parquet"]  # fmt: skip


def test_odd_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, and a folder, of such a name, by relative and absolute path."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / "plain")
    for name in NAMES:
        shutil.copy(tmp_path / "plain", tmp_path / name)
        Path("folder", name).mkdir(parents=True)
        shutil.copy(tmp_path / "plain", tmp_path / "folder" / name / name)
        for source in (name, tmp_path / name, f"folder/{name}/{name}", tmp_path / "folder" / name / name):
            assert read_table(source, "x > 1")["x"].to_pylist() == [2, 3], source
            assert count(source, "x = 2") == 1
            assert dataset(source, "x > 1").to_table().num_rows == 3


def test_what_was_skipped_is_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "parquet_bloom"):
        read_table(path, "part = 1")
    assert [r.message for r in caplog.records if "part = 1: 2 of 3 row groups and " in r.message]
    with caplog.at_level(logging.INFO, "parquet_bloom"):
        parquet_bloom.prune(path, "part = 1 AND lower(name) = 'x'")
    assert "not used to skip: lower(name) = 'x': LOWER is not understood" in caplog.messages


def test_on_a_file_system(folder: Path) -> None:
    local = pa.fs.SubTreeFileSystem(str(folder), pa.fs.LocalFileSystem())
    names = ["year=2024/a.parquet", "year=2026/a.parquet"]
    assert read_table(names, "row > 7 AND row < 23", filesystem=local)["row"].to_pylist() == [8, 9, 20, 21, 22]
    assert parquet_bloom.count(names, "row > 7", filesystem=local) == 12


def test_a_name_without_files_is_an_error_of_the_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among several sources too: rows must not be missing in silence."""
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    for sources in ([tmp_path / "a.parquet", tmp_path / "nowhere"], [tmp_path / "no", tmp_path / "nowhere"]):
        for read in (parquet_bloom.read_table, parquet_bloom.count, parquet_bloom.dataset):
            with pytest.raises(StorageError, match="no such file or folder"):
                read(sources)
    (tmp_path / "sub").mkdir()
    no_listing_of("sub", monkeypatch)
    with pytest.raises(StorageError, match="sub: Permission denied"):
        parquet_bloom.read_table(tmp_path)


def test_columns_of_one_name_are_an_error_only_where_they_are_wanted(tmp_path: Path) -> None:
    path = tmp_path / "twice.parquet"
    columns = [pa.array([1, 2, 3]), pa.array([4, 5, 6]), pa.array([7, 8, 9])]
    pq.write_table(pa.Table.from_arrays(columns, names=["a", "a", "b"]), path)
    for call in (parquet_bloom.read_table, lambda *args, **more: list(parquet_bloom.read_batches(*args, **more))):
        for wanted in (None, ["a"], ["b", "a"]):
            with pytest.raises(RequestError, match="has 2 columns named a, .* name others with columns$"):
                call(path, "b >= 8", columns=wanted)
    with pytest.raises(RequestError, match="ambiguous"):
        parquet_bloom.read_table(path, "a = 5", columns=["b"])
    with pytest.raises(RequestError, match="ambiguous"):
        parquet_bloom.count(path, "a = 5")
    assert parquet_bloom.read_table(path, "b >= 8", columns=["b"]).num_rows == parquet_bloom.count(path, "b >= 8") == 2


def test_a_predicate_by_either_of_its_names(path: Path) -> None:
    """pyarrow calls it `filters`; whoever gives both has two predicates, of which one would be lost."""
    wanted = read_table(path, "part = 1")
    assert 0 < len(wanted) < len(read_table(path))
    for read in (read_table, dataset, lambda *a, **k: pa.Table.from_batches(read_batches(*a, **k))):
        for given in ({"predicate": "part = 1"}, {"filters": "part = 1"}, {"filters": [("part", "=", 1)]}):
            rows = read(path, **given)
            assert len(rows if isinstance(rows, pa.Table) else rows.to_table()) == len(wanted), given
        with pytest.raises(RequestError, match="predicate and filters are two names of one argument"):
            read(path, "part = 1", filters="part = 1")


def test_an_option_that_is_none(path: Path) -> None:
    for ask in (check, prune, read_table, count, dataset):
        with pytest.raises(RequestError, match="nan 'java' is neither 'ieee' nor 'largest'"):
            ask(path, "part = 1", nan="java")
        with pytest.raises(TypeError, match="range_value'"):
            ask(path, "part = 1", range_value=5)

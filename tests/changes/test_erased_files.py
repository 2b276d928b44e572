"""Rows deleted from files by their keys: what is kept, refused and reported, case by case."""

from __future__ import annotations

import datetime
import itertools
import os
import shutil
from contextlib import nullcontext, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import fastparquet
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from changes.erased import erase, footer_of, read, rows_of
from datafusion import SessionContext
from deltalake import write_deltalake
from support.commands import command
from support.corpus import corpus_file
from support.footers import edited_footer
from support.repeats import by_turns
from support.samples import flat_table, keys_table, write_keys

import parquet_bloom
from parquet_bloom import delete_keys
from parquet_bloom._thrift.parquet.ttypes import PageHeader
from parquet_bloom.changes import files
from parquet_bloom.changes.keys import Located
from parquet_bloom.changes.values import KeyChanges
from parquet_bloom.errors import (
    DamagedFileError,
    EncryptedFileError,
    FileChangedError,
    LayoutError,
    RequestError,
    StorageError,
    TableFormatError,
    TableWarning,
    UnknownColumnError,
)
from parquet_bloom.format import compact

UPDATE = "until update_index or rebuild_index"


def written(path: Path, table: pa.Table, **options: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path, **options)
    return path


def flat(path: Path, **options: Any) -> Path:
    return written(path, flat_table(), row_group_size=400, **options)


def some(*rows: int) -> pa.Array:
    return flat_table()["id"].combine_chunks().take(pa.array(rows))


def deleted(report: KeyChanges) -> list[int]:
    """How many rows each file lost, of those that lost any."""
    return [one.deleted for one in report.rewritten]


def snapshot(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Every file below a folder: bytes, inode, time."""
    files = (one for one in sorted(folder.rglob("*")) if one.is_file())
    return {
        str(one.relative_to(folder)): (one.read_bytes(), one.stat().st_ino, one.stat().st_mtime_ns) for one in files
    }


# --- rows -----------------------------------------------------------------------------------------


def test_engines_read_the_rows_that_remain(tmp_path: Path) -> None:
    path = flat(tmp_path / "a" / "a.parquet", write_page_index=True)
    parquet_bloom.add_filters(path, in_place=True, columns=["id", "name", "half_null"])
    erase(path, "id", some(5, 7, 900))
    wanted = rows_of(read(path))
    assert len(wanted) == 1197
    assert rows_of(duckdb.read_parquet(str(path)).to_arrow_table()) == wanted
    assert rows_of(polars.read_parquet(path).to_arrow().cast(read(path).schema)) == wanted
    context = SessionContext()
    context.register_parquet("t", str(path))
    names = ", ".join(read(path).column_names)
    assert sorted(rows_of(context.sql(f"SELECT {names} FROM t").to_arrow_table().cast(read(path).schema))) == sorted(
        wanted
    )
    for row in (0, 5, 400, 900, 1199):
        one = flat_table()["id"][row].as_py()
        rows = 0 if row in (5, 900) else 1
        assert parquet_bloom.count(path, f"id = {one}") == rows
        assert duckdb.sql(f"SELECT count(*) FROM '{path}' WHERE id = {one}").fetchall() == [(rows,)]
        assert polars.scan_parquet(path).filter(polars.col("id") == one).collect().height == rows
        assert context.sql(f"SELECT * FROM t WHERE id = {one}").count() == rows


def test_a_file_that_loses_all_rows_stays_without_row_groups(tmp_path: Path) -> None:
    path = flat(tmp_path / "a" / "a.parquet")
    parquet_bloom.add_filters(path, in_place=True, columns=["id"])
    report = erase(path, "id", flat_table()["id"].combine_chunks())
    assert deleted(report) == [1200]
    assert pq.read_metadata(path).num_row_groups == 0
    assert duckdb.sql(f"SELECT count(*) FROM '{path}'").fetchall() == [(0,)]
    assert polars.read_parquet(path).height == 0
    assert parquet_bloom.verify(path).files[0].filters == []


def test_a_row_group_that_is_decoded_in_several_batches(tmp_path: Path) -> None:
    rows = 150_000
    table = pa.table({"id": range(rows), "text": [f"{n % 1000}" if n % 7 else None for n in range(rows)]})
    path = written(tmp_path / "a" / "a.parquet", table, write_page_index=True)
    parquet_bloom.add_filters(path, in_place=True, columns=["id"])
    assert erase(path, "id", pa.array([0, 1, 65_535, rows - 1])).deleted == 4


def test_null_in_a_file_equals_no_key(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": pa.array([1, None, 3, None])}), path)
    assert delete_keys(path, "id", [1], in_place=True).deleted == 1
    assert pq.read_table(path)["id"].to_pylist() == [None, 3, None]


def test_keys_of_several_columns(tmp_path: Path) -> None:
    """By brute force: rows of which a part of a key fits stay."""
    rng = np.random.default_rng(3)
    for n in range(3):
        kinds = {"tenant": pa.array(rng.integers(0, 4, 500).astype(str)), "id": rng.integers(0, 200, 500)}
        day = pa.array([None if i % 9 == 0 else datetime.date(2026, 1, 1 + i % 5) for i in range(500)])
        pq.write_table(pa.table({**kinds, "day": day, "n": range(500)}), tmp_path / f"{n}.parquet", row_group_size=100)
    parquet_bloom.add_filters(tmp_path, in_place=True, columns=["id"])
    before = {path: read(path) for path in sorted(tmp_path.iterdir())}
    keys = pa.table(
        {
            "id": [3, 3, 77, 78, 100_000],
            "day": pa.array([datetime.date(2026, 1, one) for one in (1, 2, 3, 4, 5)]),
            "tenant": ["1", "1", "3", "3", "0"],
        }
    )
    keys = pa.concat_tables([keys, before[tmp_path / "0.parquet"].slice(11, 40).select(keys.column_names).drop_null()])
    keys = keys.group_by(keys.column_names).aggregate([])
    wanted = {tuple(row.values()) for row in keys.to_pylist()}
    report = delete_keys(tmp_path, keys.column_names, keys, in_place=True)
    assert report.columns == keys.column_names
    assert report.deleted == sum(deleted(report)) >= 30
    for path, table in before.items():
        rest = [row for row in table.to_pylist() if tuple(row[name] for name in keys.column_names) not in wanted]
        assert read(path).to_pylist() == rest


# --- with an index --------------------------------------------------------------------------------


def test_files_that_the_index_does_not_know_are_searched(tmp_path: Path) -> None:
    """One that came later; then one that another program wrote anew, whose places are those of the file before."""
    data, index = tmp_path / "data", tmp_path / "index"
    for n in range(2):
        flat(data / f"{n}.parquet")
    parquet_bloom.build_index(data, "id", index)
    flat(data / "2.parquet")
    pq.write_table(flat_table().take(pa.array(range(1199, -1, -1))), data / "1.parquet", row_group_size=300)
    report = delete_keys(data, "id", some(5, 900), in_place=True, index=index)
    assert deleted(report) == [2, 2, 2]
    assert report.notes == [f"{index} does not know the new files, and has hashes of the deleted keys, {UPDATE}"]
    parquet_bloom.rebuild_index(index, data)
    assert delete_keys(data, "id", some(5, 900), in_place=True, index=index).notes == []
    rest = [row for n, row in enumerate(rows_of(flat_table())) if n not in (5, 900)]
    assert [rows_of(read(data / f"{n}.parquet")) for n in range(3)] == [rest, rest[::-1], rest]


# --- which files are written ----------------------------------------------------------------------


def test_a_file_without_such_rows_is_not_touched(tmp_path: Path) -> None:
    flat(tmp_path / "0.parquet")
    other = tmp_path / "1.parquet"
    pq.write_table(flat_table().slice(0, 0).append_column("more", pa.array([], pa.int8())), other)
    before = snapshot(tmp_path)
    report = delete_keys(tmp_path, "id", [1, 2, *some(3).to_pylist()], in_place=True)
    after = snapshot(tmp_path)
    assert after["1.parquet"] == before["1.parquet"]
    assert after["0.parquet"] != before["0.parquet"]
    assert (report.files, deleted(report)) == (2, [1])


def test_output_gets_copies_of_files_without_such_rows(tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    flat(source / "0.parquet")
    pq.write_table(flat_table().slice(100, 50), source / "1.parquet")
    before = snapshot(source)
    report = delete_keys(source, "id", some(5), output=output)
    assert snapshot(source) == before
    assert (output / "1.parquet").read_bytes() == before["1.parquet"][0]
    assert (report.files, deleted(report)) == (2, [1])
    assert rows_of(read(output / "0.parquet")) == [row for n, row in enumerate(rows_of(flat_table())) if n != 5]
    with pytest.raises(StorageError, match=r"1\.parquet|0\.parquet"):
        delete_keys(source / "0.parquet", "id", some(5), output=output / "0.parquet")
    delete_keys(source / "0.parquet", "id", some(6), output=output / "0.parquet", overwrite=True)
    assert read(output / "0.parquet").num_rows == 1199


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path: Path) -> None:
    flat(tmp_path / "0.parquet")
    (tmp_path / "0.parquet").chmod(0o640)
    before = snapshot(tmp_path)
    dry = delete_keys(tmp_path, "id", some(5, 900), in_place=True, dry_run=True)
    assert snapshot(tmp_path) == before
    done = delete_keys(tmp_path, "id", some(5, 900), in_place=True)
    assert "dry run" in repr(dry)
    (one,), (other,) = dry.rewritten, done.rewritten
    assert (one.path, one.rows, one.deleted, one.bytes_before) == (other.path, 1200, 2, other.bytes_before)
    assert (dry.deleted, dry.bytes_written, one.bytes_after) == (2, 0, 0)
    assert (tmp_path / "0.parquet").stat().st_mode & 0o777 == 0o640, "permissions stay"


# --- what is kept ---------------------------------------------------------------------------------


SECRET = "zz-erase-me-" * 3


@pytest.mark.parametrize("placement", ["footer", "tail", "chunk-start", "statistics"])
def test_no_byte_of_an_erased_value_stays(tmp_path: Path, placement: str) -> None:
    """It was the greatest of its column, so all footers and page indexes had it too, that before a tail among them."""
    names = flat_table()["name"].to_pylist()
    names[5] = SECRET
    table = flat_table().set_column(1, "name", pa.array(names))
    path = written(tmp_path / "a" / "a.parquet", table, row_group_size=400, compression="none", write_page_index=True)
    how: Any = {"form": "statistics"} if placement == "statistics" else {"placement": placement}
    parquet_bloom.add_filters(path, in_place=True, columns=["id", "name"], **how)
    assert path.read_bytes().count(SECRET.encode()) >= 3
    erase(path, "id", some(5))
    assert SECRET.encode() not in path.read_bytes()
    assert {one.column for one in parquet_bloom.inspect(path).files[0].filters} == {"id", "name"}
    parquet_bloom.remove_filters(path, in_place=True)
    assert parquet_bloom.inspect(path).files[0].filters == [], "they are still known as ours"


def test_bytes_that_nothing_names_go(tmp_path: Path) -> None:
    path = flat(tmp_path / "a" / "a.parquet")
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[: -8 - length] + SECRET.encode() + data[-8 - length :])
    erase(path, "id", some(5))
    assert SECRET.encode() not in path.read_bytes()


def test_a_column_has_bounds_in_all_row_groups_or_in_none(tmp_path: Path) -> None:
    """A deletion that leaves a NaN alone in a row group: DataFusion would take the bounds of the others for all."""
    values = [1.0, float("nan"), 2.0, 3.0, 4.0, 5.0]
    path = written(tmp_path / "a" / "a.parquet", pa.table({"id": range(6), "f": values}), row_group_size=2)
    report = erase(path, "id", pa.array([0]))
    metadata = pq.read_metadata(path)
    assert [metadata.row_group(g).column(1).statistics.has_min_max for g in range(3)] == [False] * 3
    assert [metadata.row_group(g).column(0).statistics.has_min_max for g in range(3)] == [True] * 3
    assert report.notes == [f"{path}: column f has no min and max more: a new row group has a NaN"]
    context = SessionContext()
    context.register_parquet("t", str(path))
    assert context.sql("SELECT * FROM t WHERE f > 4.5").count() == 2, "NaN is the greatest there"


def test_remove_takes_page_indexes_of_new_row_groups_too(tmp_path: Path) -> None:
    """Some of them alone would end DataFusion before 51."""
    path = flat(tmp_path / "a" / "a.parquet")
    parquet_bloom.add_filters(path, in_place=True, columns=["id"], page_index=True, page_bounds=["name"])
    erase(path, "id", some(5))
    indexes = [
        [(chunk.offset_index_offset, chunk.column_index_offset) for chunk in group.columns]
        for group in footer_of(path.read_bytes()).row_groups
    ]
    assert all(offset for group in indexes for offset, _ in group)
    assert [bounds is not None for _, bounds in indexes[0]] == [False, True, False, False, False]
    parquet_bloom.remove_filters(path, in_place=True)
    groups = footer_of(path.read_bytes()).row_groups
    assert not any(chunk.offset_index_offset or chunk.column_index_offset for one in groups for chunk in one.columns)


@pytest.mark.parametrize("options", [{}, {"use_deprecated_int96_timestamps": True}, {"store_decimal_as_integer": True}])
def test_types_that_arrow_knows_alone_stay(tmp_path: Path, options: dict[str, Any]) -> None:
    """They are in the schema of Arrow that the file carries; and INT96, which pyarrow writes of no other type."""
    n = 50
    uuids = pa.array([bytes([i] * 16) for i in range(n)], pa.binary(16))
    table = pa.table(
        {
            "id": range(n),
            "categories": pa.array([["a", "b", None][i % 3] for i in range(n)]).dictionary_encode(),
            "duration": pa.array(range(n), pa.duration("ms")),
            "decimal": pa.array([Decimal(i) for i in range(n)], pa.decimal256(60, 2)),
            "small": pa.array([Decimal(i) for i in range(n)], pa.decimal128(5, 2)),
            "time": pa.array(range(n), pa.time32("ms")),
            "seconds": pa.array(range(n), pa.timestamp("s")),
            "nanoseconds": pa.array(range(n), pa.timestamp("ns", "Europe/Berlin")),
            "large": pa.array([str(i) for i in range(n)], pa.large_string()),
            "uuid": pa.ExtensionArray.from_storage(pa.uuid(), uuids),
            "bytes": pa.array(range(n), pa.uint8()),
        }
    )
    path = written(tmp_path / "a" / "a.parquet", table, row_group_size=20, **options)
    assert erase(path, "id", pa.array([3, 4]), read_back=True).notes == []
    keys = [UUID(bytes=bytes([i] * 16)) for i in (5, 49)]
    assert delete_keys(path, "uuid", keys, in_place=True).deleted == 2
    assert pq.read_table(path)["id"].to_pylist() == [i for i in range(n) if i not in (3, 4, 5, 49)]


def test_row_groups_are_numbered_anew(tmp_path: Path) -> None:
    path = flat(tmp_path / "a" / "a.parquet")
    with edited_footer(path) as footer:
        for number, group in enumerate(footer.row_groups):
            group.ordinal = number
    assert erase(path, "id", flat_table()["id"].combine_chunks().slice(399, 402)).deleted == 402
    assert [group.ordinal for group in footer_of(path.read_bytes()).row_groups] == [0, 1]


def test_row_groups_without_statistics_get_none(tmp_path: Path) -> None:
    path = flat(tmp_path / "a" / "a.parquet", write_statistics=["name"])
    erase(path, "id", some(5))
    metadata = pq.read_metadata(path)
    assert not any(metadata.row_group(g).column(0).is_stats_set for g in range(3))
    assert all(metadata.row_group(g).column(1).statistics.has_min_max for g in range(3))


@pytest.mark.parametrize(
    ("codec", "version"), by_turns(["none", "snappy", "zstd", "gzip", "lz4", "brotli"], ["1.0", "2.0"])
)
def test_codec_encodings_and_page_version_stay(tmp_path: Path, codec: str, version: str) -> None:
    options: dict[str, Any] = {
        "compression": codec,
        "use_dictionary": ["colour"],
        "column_encoding": {"id": "DELTA_BINARY_PACKED", "name": "DELTA_BYTE_ARRAY", "half_null": "BYTE_STREAM_SPLIT"},
        "data_page_version": version,
        "write_page_checksum": True,
    }
    path = flat(tmp_path / "a" / "a.parquet", **options)
    assert erase(path, "id", some(5)).notes == []
    metadata = pq.read_metadata(path)
    for number in range(metadata.num_columns):
        one, other = (metadata.row_group(group).column(number) for group in (0, 1))
        assert (one.compression, {*one.encodings}) == (other.compression, {*other.encodings})
    groups = footer_of(path.read_bytes()).row_groups
    for one, other in zip(groups[0].columns, groups[1].columns, strict=True):
        kinds = [{(s.page_type, s.encoding) for s in chunk.meta_data.encoding_stats} for chunk in (one, other)]
        assert kinds[0] == kinds[1]


def test_key_values_field_ids_and_created_by_stay(tmp_path: Path) -> None:
    schema = flat_table().schema
    fields = [f.with_metadata({"PARQUET:field_id": str(10 + n)}) for n, f in enumerate(schema)]
    table = flat_table().cast(pa.schema(fields, {"own": "words"}))
    path = written(tmp_path / "a" / "a.parquet", table, row_group_size=400)
    with edited_footer(path) as footer:
        footer.created_by = "parquet-mr version 1.8.0 (build abc)"
    before = footer_of(path.read_bytes())
    erase(path, "id", some(5))
    after = footer_of(path.read_bytes())
    assert after.created_by == before.created_by
    assert after.key_value_metadata == before.key_value_metadata
    assert [one.field_id for one in after.schema[1:]] == [10, 11, 12, 13, 14]


def test_hadoops_lz4_becomes_that_of_today_and_the_report_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a" / "a.parquet"
    path.parent.mkdir()
    shutil.copyfile(corpus_file("nasty/parquet-testing__hadoop_lz4_compressed.parquet"), path)
    report = erase(path, read(path).column_names[0], read(path).column(0).combine_chunks().unique().slice(0, 1))
    assert "codec LZ4_RAW in the place of LZ4" in " ".join(report.notes)


# --- refusals -------------------------------------------------------------------------------------


def test_keys_that_are_none(tmp_path: Path) -> None:
    """One text or bytes among them: pyarrow makes an array of its letters, and the rows of these would go."""
    path = written(tmp_path / "a.parquet", pa.table({"name": ["a", "b", "ab"], "id": [97, 98, 99]}))
    before = snapshot(tmp_path)
    for keys, words in (
        ([1, None], "NULL"),
        ([1, 1], "twice"),
        ([1.5], "double does not fit it"),
        ([1, "a"], "one type"),
        (pa.table({"x": [1]}), "id"),
        ([["a"]], "keys must be an array, or a list, of values of one type: these are"),
        (pa.array([{"x": "a"}]), "keys must be an array, or a list, of values of one type: these are"),
    ):
        with pytest.raises(RequestError, match=words):
            delete_keys(path, "id", keys, in_place=True)
    one_value = r"not one value; give \[value\]"
    for key, column in itertools.product(("ab", b"ab", bytearray(b"ab"), memoryview(b"ab")), ("name", "id")):
        with pytest.raises(RequestError, match=one_value):
            delete_keys(path, column, key, in_place=True)
        with pytest.raises(RequestError, match=one_value):
            delete_keys(path, ["name", "id"], {"name": ["a"], "id": [97], column: key}, in_place=True)
        with pytest.raises(RequestError, match=one_value):
            parquet_bloom.locate(path, column, key)
    assert snapshot(tmp_path) == before
    same = pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array(["a"]))
    assert delete_keys(path, "name", same, in_place=True).deleted == 1


def test_keys_of_a_frame(tmp_path: Path) -> None:
    for frame in (pandas.DataFrame, polars.DataFrame, pa.table, pa.record_batch):
        path = written(tmp_path / "a.parquet", pa.table({"name": ["a", "b", "c", "c"], "id": [1, 2, 3, 4]}))
        assert delete_keys(path, "id", frame({"id": [2, 9]}), in_place=True).deleted == 1
        assert delete_keys(path, ["id", "name"], frame({"id": [3, 1], "name": ["c", "b"]}), in_place=True).deleted == 1
        assert pq.read_table(path).to_pydict() == {"name": ["a", "c"], "id": [1, 4]}
        with pytest.raises(RequestError, match="give a table or a mapping that has these columns"):
            delete_keys(path, "id", frame({"x": [1]}), in_place=True)


def test_keys_in_the_types_that_programs_give_them(tmp_path: Path) -> None:
    """UUIDs are texts in a CSV, and whole numbers are floats in pandas where one is missing."""
    ids = [UUID(int=number) for number in range(1000, 1006)]
    path, keys = tmp_path / "a.parquet", tmp_path / "keys.txt"
    pq.write_table(pa.table({"u": pa.array(ids, pa.uuid()), "n": range(6)}), path)
    keys.write_text(f"{ids[0]}\n{str(ids[1]).upper()}\n")
    assert command("delete", path, "-c", "u", "--keys", keys, "--in-place").returncode == 0
    assert delete_keys(path, ["n", "u"], {"n": ["2", "4"], "u": [str(ids[2]), str(ids[2])]}, in_place=True).deleted == 1
    assert delete_keys(path, "n", np.array([3.0, 9.0]), in_place=True).deleted == 1
    assert pq.read_table(path)["n"].to_pylist() == [4, 5]
    for column, key in (("u", "zz"), ("n", 4.5)):
        with pytest.raises(RequestError, match=f"{column}: the column is .* does not fit it"):
            delete_keys(path, column, [key], in_place=True)


def test_no_key_becomes_another_one_on_its_way_to_arrow(tmp_path: Path) -> None:
    """pyarrow cuts nanoseconds off Timestamps in lists, and times beside a date to days: other rows were deleted."""
    day = datetime.datetime(2026, 1, 2)
    times, path = [day - datetime.timedelta(1), day], tmp_path / "a.parquet"
    kinds = {"us": pa.timestamp("us"), "utc": pa.timestamp("ms", "UTC"), "ns": pa.timestamp("ns"), "day": pa.date32()}
    pq.write_table(pa.table({"n": [1, 2], **{name: pa.array(times, kind) for name, kind in kinds.items()}}), path)
    finer = pandas.Timestamp(day) + pandas.Timedelta(1, "ns")
    for name in kinds:
        zone = "UTC" if name == "utc" else None
        for keys in ([finer.tz_localize(zone)], pandas.Series([finer.tz_localize(zone)], dtype=object)):
            assert parquet_bloom.prune(path, column=name, values=list(keys)) == []
            assert parquet_bloom.locate(path, name, keys, verify=True).num_rows == 0
            with suppress(RequestError):  # days
                assert delete_keys(path, name, keys, in_place=True, dry_run=True).deleted == 0
    for keys in ([day.date(), day + datetime.timedelta(hours=5)], [day.date(), finer]):
        with pytest.raises(RequestError, match="values of one type: days and times are among them"):
            delete_keys(path, "day", keys, in_place=True)
    exact = [finer.to_pydatetime(warn=False), day - datetime.timedelta(1)]
    assert parquet_bloom.locate(path, "us", exact, verify=True).num_rows == 2


def test_times_of_day_may_be_texts(tmp_path: Path) -> None:
    """As for `locate`; a finer one than the column has is no value of it."""
    columns = {name: pa.array([0, 3_600_000, 3_600_005], pa.int32()) for name in ("n", "t")}
    path, keys = tmp_path / "a.parquet", tmp_path / "keys.txt"
    pq.write_table(pa.table({**columns, "t": columns["t"].cast(pa.time32("ms"))}), path)
    keys.write_text("01:00:00.005\n")
    assert command("delete", path, "-c", "t", "--keys", keys, "--in-place").returncode == 0
    assert delete_keys(path, "t", ["01:00"], in_place=True).deleted == 1
    assert pq.read_table(path)["n"].to_pylist() == [0]
    for text in ("00:00:00.0001", "24:00", "0"):
        with pytest.raises(RequestError, match="t: the column is time32.* does not fit it"):
            delete_keys(path, "t", [text], in_place=True)


def test_files_without_the_column_are_counted(tmp_path: Path) -> None:
    """They may have rows of the user all the same."""
    columns = {"a": ["id", "n"], "b": ["ID", "n"], "c": ["x", "n"], "d": ["id", "N"], "e": ["id", "n"]}
    values = {name: pa.array([] if name == "e" else [1], pa.int64()) for name in columns}
    every = [written(tmp_path / name, pa.table([values[name]] * 2, names)) for name, names in columns.items()]
    report = delete_keys(every, "id", [1], in_place=True, dry_run=True)
    assert (report.deleted, report.notes) == (2, ["2 files without a column id: all rows stay"])
    report = delete_keys(every, ["id", "n"], {"id": [1], "n": [1]}, in_place=True, dry_run=True)
    assert report.deleted == 1
    assert report.notes == ["2 files without a column id: all rows stay", "1 file without a column n: all rows stay"]
    assert delete_keys(every[0], "id", [1], in_place=True).notes == []


def test_files_with_a_summary_are_refused(tmp_path: Path) -> None:
    for number, below in enumerate((".", "y=1/m=2")):
        table, output = tmp_path / f"t{number}", tmp_path / f"new{number}"
        path = table / below / "a.parquet"
        path.parent.mkdir(parents=True)
        fastparquet.write(path, pandas.DataFrame({"id": range(10)}))
        fastparquet.writer.merge([str(path)], root=str(table))
        before = snapshot(table)
        for dry_run in (True, False):
            with pytest.raises(LayoutError, match="_metadata says where the rows of this file are"):
                delete_keys(table, "id", [3], in_place=True, dry_run=dry_run)
        assert delete_keys(table, "id", [77], in_place=True).deleted == 0
        assert snapshot(table) == before
        assert delete_keys(table, "id", [3], output).deleted == 1
        assert delete_keys(table, "id", [3], in_place=True, force=True).deleted == 1


def test_requests_that_make_no_sense(tmp_path: Path) -> None:
    path = flat(tmp_path / "a.parquet")
    before = snapshot(tmp_path)
    place: dict[str, Any] = {"in_place": True}
    for source, columns, keys, options, error, words in (
        (path, "nobody", [1], place, UnknownColumnError, "nobody"),
        (path, "id", [1], {}, RequestError, "output"),
        (path, "id", None, place, RequestError, "keys is None"),
        (path, "id", [1], place | {"append": True}, RequestError, "append"),
        (f"delta:{tmp_path}", "id", [1], place, RequestError, "is for files"),
        (path, ["id", "name"], {"id": [1], "name": []}, place, RequestError, "one length"),
        (path, "id", [1], place | {"comit": "x"}, TypeError, "comit"),
    ):
        with pytest.raises(error, match=words):
            delete_keys(source, columns, keys, **options)
    assert snapshot(tmp_path) == before


def test_files_that_cannot_lose_rows_are_refused_before_any_file_is_changed(tmp_path: Path) -> None:
    """Nested ones, but for those without such rows; and encrypted ones, of which nobody knows."""
    first, second = flat(tmp_path / "0.parquet"), tmp_path / "1.parquet"
    for data, error, told in (
        (first.read_bytes()[:-4] + b"PARE", EncryptedFileError, r"1\.parquet"),
        (write_keys(second).read_bytes(), LayoutError, r"1\.parquet.*nested columns \(tags\.list\.element, user\.id"),
    ):
        second.write_bytes(data)
        before = snapshot(tmp_path)
        with pytest.raises(error, match=told):
            delete_keys(tmp_path, "id", some(5), in_place=True)
        assert snapshot(tmp_path) == before
    pq.write_table(keys_table().slice(600), second)
    assert deleted(delete_keys(tmp_path, "id", some(5), in_place=True)) == [1]


def test_files_of_a_table_are_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), flat_table())
    before = snapshot(tmp_path)
    for force in (False, True):
        with pytest.raises(TableFormatError, match="Delta"), nullcontext() if not force else pytest.warns(TableWarning):
            delete_keys(tmp_path, "id", some(5), in_place=True, force=force)
    assert snapshot(tmp_path) == before


def test_a_file_that_changes_meanwhile_is_an_error(tmp_path: Path) -> None:
    """The second of two files, while the first one is written; it has the keys then too, and in more row groups."""
    flat(tmp_path / "0.parquet")
    second = flat(tmp_path / "1.parquet")

    def change(progress: parquet_bloom.Progress) -> None:
        if progress.files_done == 1:
            other = second.with_suffix(".new")
            pq.write_table(pa.concat_tables([flat_table(), flat_table()]), other, row_group_size=400)
            os.replace(other, second)

    report = delete_keys(tmp_path, "id", some(5), in_place=True, progress=change)
    assert deleted(report) == [1]
    (failed,) = report.failed
    assert isinstance(failed.error, FileChangedError)
    assert read(second).num_rows == 2400, "as the other program left it"


@pytest.mark.parametrize("more", [-1, 1])
def test_other_numbers_of_rows_than_were_located_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    """As where somebody writes over a file's bytes and no version token tells."""
    path = flat(tmp_path / "a.parquet")
    before = snapshot(tmp_path)
    located = files.located_rows

    def wrong(*arguments: Any) -> Located:
        found = located(*arguments)
        return Located(found.column, {str(path): {0: found.rows[str(path)][0] + more}})

    monkeypatch.setattr(files, "located_rows", wrong)
    with pytest.raises(FileChangedError, match=f"has 2 rows with the keys, {2 + more} were located"):
        delete_keys(path, "id", some(5, 7), in_place=True)
    assert snapshot(tmp_path) == before


def test_a_page_with_more_values_than_its_chunk_is_refused(tmp_path: Path) -> None:
    """pyarrow reads two tables of such a file: by row group, and as a whole, where all later rows of it move."""
    path = flat(tmp_path / "a.parquet", use_dictionary=False, compression="none")
    data = bytearray(path.read_bytes())
    at = footer_of(bytes(data)).row_groups[0].columns[2].meta_data.data_page_offset
    header, length = compact.decode(PageHeader, bytes(data[at : at + 200]))
    assert header.data_page_header.num_values == 400
    header.data_page_header.num_values = 401
    data[at : at + length] = compact.encode(header)
    path.write_bytes(data)
    before = snapshot(tmp_path)
    with pytest.raises(DamagedFileError, match=r"half_null: its pages have 401 values .* the footer says 400"):
        delete_keys(path, "id", some(5), in_place=True)
    assert snapshot(tmp_path) == before


def test_a_row_group_that_takes_too_much_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": range(50), "text": ["x" * 100_000] * 50}), path)
    before = snapshot(tmp_path)
    old = parquet_bloom.set_limits(max_memory=400_000)
    try:
        with pytest.raises(parquet_bloom.LimitError, match="max_memory"):
            delete_keys(path, "id", [5], in_place=True)
    finally:
        parquet_bloom.set_limits(max_memory=old.max_memory)
    assert snapshot(tmp_path) == before
    assert deleted(delete_keys(path, "id", [5], in_place=True)) == [1]

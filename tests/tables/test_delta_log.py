"""What a Delta log says at a version: checkpoints of all kinds, times, protocol, column mapping, paths, wrong logs."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import shutil
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from support import delta_tables as made

import parquet_bloom
from parquet_bloom.errors import ParquetBloomError, RequestError, StorageError, TableFormatError
from parquet_bloom.source.names import TableAccess
from parquet_bloom.source.snapshot import FileBounds, Snapshot
from parquet_bloom.tables.delta.log import LogFiles
from parquet_bloom.tables.delta.table import open_delta

ID = made.field("id", "long")


def snapshot_of(root: Path, version: str | None = None) -> Snapshot:
    return open_delta(str(root), version).snapshot()


def names_in(root: Path, version: str | None = None) -> list[str]:
    return sorted(file.relative for file in snapshot_of(root, version).files)


def table_of(root: Path, *fields: dict[str, Any], **properties: str) -> None:
    """Version 0: a table with two files that nobody has to open."""
    adds = [made.add("a.parquet", stats={"numRecords": 1}), made.add("b.parquet", stats={"numRecords": 2})]
    made.commit(root, 0, made.protocol(), made.metadata(fields or [ID], **properties), *adds)


# --- checkpoints ----------------------------------------------------------------------------------

ACTIONS = pa.schema(
    [
        ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])),
        (
            "metaData",
            pa.struct(
                [
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", pa.map_(pa.string(), pa.string())),
                ]
            ),
        ),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", pa.map_(pa.string(), pa.string())),
                    ("size", pa.int64()),
                    ("stats", pa.string()),
                    (
                        "stats_parsed",
                        pa.struct([("numRecords", pa.int64()), ("minValues", pa.struct([("id", pa.int64())]))]),
                    ),
                    ("tags", pa.map_(pa.string(), pa.string())),
                ]
            ),
        ),
        ("sidecar", pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64())])),
    ]
)
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
SCHEMA = made.metadata([ID])["metaData"]["schemaString"]
METADATA = {"metaData": {"schemaString": SCHEMA, "partitionColumns": [], "configuration": []}}


def checkpoint_add(name: str, **more: Any) -> dict[str, Any]:
    return {"add": {"path": name, "partitionValues": [], "size": 7, "stats": '{"numRecords":3}'} | more}


def write_actions(path: Path, *actions: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([dict.fromkeys(ACTIONS.names) | a for a in actions], ACTIONS), path)


def log_of(root: Path) -> Path:
    (root / "_delta_log").mkdir(exist_ok=True)
    return root / "_delta_log"


def classic(root: Path) -> None:
    adds = [checkpoint_add("x.parquet"), checkpoint_add("y.parquet")]
    write_actions(log_of(root) / f"{5:020d}.checkpoint.parquet", PROTOCOL, METADATA, *adds)


def in_parts(root: Path) -> None:
    for part, actions in enumerate(
        ([PROTOCOL, checkpoint_add("x.parquet")], [METADATA], [checkpoint_add("y.parquet")]), 1
    ):
        write_actions(log_of(root) / f"{5:020d}.checkpoint.{part:010d}.{3:010d}.parquet", *actions)


def sidecars(root: Path, kind: str) -> None:
    for name in ("x", "y"):
        write_actions(log_of(root) / "_sidecars" / f"{name}.parquet", checkpoint_add(f"{name}.parquet"))
    top = [PROTOCOL, METADATA, *({"sidecar": {"path": f"{name}.parquet", "sizeInBytes": 9}} for name in ("x", "y"))]
    path = log_of(root) / f"{5:020d}.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.{kind}"
    if kind == "parquet":
        write_actions(path, *top)
        return
    top[1] = made.metadata([ID])
    path.write_text("\n".join(json.dumps(action) for action in [{"checkpointMetadata": {"version": 5}}, *top]))


CHECKPOINTS = {
    "one file": classic,
    "three parts": in_parts,
    "sidecars of Parquet": lambda root: sidecars(root, "parquet"),
    "sidecars of JSON": lambda root: sidecars(root, "json"),
}


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_a_table_is_read_from_its_last_checkpoint_on(tmp_path, kind):
    CHECKPOINTS[kind](tmp_path)
    made.commit(tmp_path, 6, {"remove": {"path": "x.parquet", "dataChange": True}}, made.add("z.parquet"))
    assert names_in(tmp_path, "5") == ["x.parquet", "y.parquet"]
    assert names_in(tmp_path) == ["y.parquet", "z.parquet"], "the commit behind it counts too"
    assert [file.rows for file in snapshot_of(tmp_path, "5").files] == [3, 3]
    with pytest.raises(TableFormatError, match="version 4 cannot be read: the log has no commit 0"):
        snapshot_of(tmp_path, "4")


@pytest.mark.parametrize("name", ["txn", "remove", "domainMetadata", "checkpointMetadata"])
def test_a_part_of_a_checkpoint_may_have_one_column_of_another_kind(tmp_path, name):
    in_parts(tmp_path)
    inside = pa.array([{"appId": "stream", "path": "gone.parquet", "version": 7}] * 3)
    part = log_of(tmp_path) / f"{5:020d}.checkpoint.{{:010d}}.{4:010d}.parquet"
    for old in range(1, 4):
        os.rename(log_of(tmp_path) / f"{5:020d}.checkpoint.{old:010d}.{3:010d}.parquet", str(part).format(old))
    pq.write_table(pa.table({name: inside}), str(part).format(4))
    assert names_in(tmp_path) == ["x.parquet", "y.parquet"]


def test_deltalakes_binary_partitions_have_the_bytes_that_were_written(tmp_path):
    values = [b"a", b"\1\2", b"\xff\0z", b"\\u0061", "é".encode(), b"plain"]
    write_deltalake(tmp_path, pa.table({"x": range(len(values)), "b": values}), partition_by=["b"])
    rows = parquet_bloom.read_table(f"delta:{tmp_path}").sort_by("x")
    assert rows["b"].to_pylist() == values
    assert parquet_bloom.read_table(f"delta:{tmp_path}", "x >= 0 AND b = x'ff007a'")["x"].to_pylist() == [2]


def test_a_checkpoint_that_lacks_a_part_is_none(tmp_path):
    for version in range(6):
        made.commit(
            tmp_path, version, *([made.protocol(), made.metadata([ID])] if not version else []), made.add(f"{version}")
        )
    in_parts(tmp_path)
    os.remove(log_of(tmp_path) / f"{5:020d}.checkpoint.{2:010d}.{3:010d}.parquet")
    assert names_in(tmp_path) == [*"012345"], "commits still tell all"


def test_statistics_that_are_columns_of_a_checkpoint_are_read(tmp_path):
    parsed = {"numRecords": 4, "minValues": {"id": 17}}
    adds = [checkpoint_add("x", stats=None, stats_parsed=parsed), checkpoint_add("y", stats_parsed=parsed)]
    write_actions(log_of(tmp_path) / f"{0:020d}.checkpoint.parquet", PROTOCOL, METADATA, *adds)
    x, y = snapshot_of(tmp_path).files
    assert (x.rows, y.rows) == (4, 3), "JSON comes first, as the log's own form"
    assert x.bounds[("id",)] == FileBounds(lower=17)
    assert x.entry.stats is None, "what the log does not have is not made up for a commit"


def test_times_of_96_bits_in_a_checkpoint_are_those_that_they_are(tmp_path):
    """As Spark writes them unless it is told otherwise; as nanoseconds the year 9999 would be 1816."""
    end = dt.datetime(9999, 12, 31)
    valid_to = made.field("valid_to", "timestamp_ntz")
    bounds = pa.struct([("valid_to", pa.timestamp("us"))])
    parsed = pa.struct([("numRecords", pa.int64()), ("minValues", bounds), ("maxValues", bounds)])
    kept = [field for field in ACTIONS.field("add").type if field.name not in ("stats", "stats_parsed")]
    schema = ACTIONS.set(2, pa.field("add", pa.struct([*kept, ("stats_parsed", parsed)])))
    told = {"numRecords": 2, "minValues": {"valid_to": end}, "maxValues": {"valid_to": end}}
    add = {"path": "x.parquet", "partitionValues": [], "size": 7, "stats_parsed": told}
    metadata = {
        "metaData": METADATA["metaData"] | {"schemaString": made.metadata([valid_to])["metaData"]["schemaString"]}
    }
    rows = [dict.fromkeys(ACTIONS.names) | action for action in (PROTOCOL, metadata, {"add": add})]
    path = log_of(tmp_path) / f"{0:020d}.checkpoint.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema), path, use_deprecated_int96_timestamps=True)
    [x] = snapshot_of(tmp_path).files
    found, place = x.bounds[("valid_to",)], (end - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    assert found.lower <= place <= found.upper
    assert found.upper - found.lower < 2_000


def test_deltalakes_checkpoints_give_what_its_commits_give(tmp_path):
    for first in (0, 5):
        write_deltalake(
            str(tmp_path),
            pa.table({"id": range(first, first + 5), "p": ["a", "b", "", None, "a"]}),
            partition_by="p",
            mode="append",
        )
    before = snapshot_of(tmp_path)
    DeltaTable(str(tmp_path)).create_checkpoint()
    for version in (0, 1):
        os.remove(log_of(tmp_path) / f"{version:020d}.json")
    after = snapshot_of(tmp_path)
    key = lambda file: file.path  # noqa: E731
    for one, other in zip(sorted(before.files, key=key), sorted(after.files, key=key), strict=True):
        assert (one.path, one.rows, one.size, one.constants) == (other.path, other.rows, other.size, other.constants)
        assert dict(one.bounds) == dict(other.bounds)
        assert one.entry == other.entry, "a commit carries the same over"


# --- versions and times ---------------------------------------------------------------------------


def three_versions(root: Path, *times: int) -> None:
    table_of(root)
    made.commit(root, 1, made.add("c.parquet"))
    made.commit(root, 2, made.add("d.parquet"))
    for version, time in enumerate(times):
        os.utime(log_of(root) / f"{version:020d}.json", (time, time))


DAY = 1_767_225_600  # 2026-01-01


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        ("0", 0),
        ("2", 2),
        ("2026-01-01", 0),
        ("2026-01-01T00:00:00Z", 0),
        ("2026-01-01T00:00:59.999", 0),
        ("2026-01-01T01:01:00+01:00", 1),
        ("2026-01-01 00:01:00", 1),
        ("2030-01-01", 2),
    ],
)
def test_a_version_is_named_by_number_or_time(tmp_path, asked, version):
    three_versions(tmp_path, DAY, DAY + 60, DAY + 120)
    assert snapshot_of(tmp_path, asked).version == str(version)


def test_a_version_that_is_not_there_is_an_error(tmp_path):
    three_versions(tmp_path, DAY, DAY + 60, DAY + 120)
    with pytest.raises(TableFormatError, match="has no version 3; the latest is 2"):
        snapshot_of(tmp_path, "3")
    with pytest.raises(TableFormatError, match="no version of 2025-12-31T00:00:00"):
        snapshot_of(tmp_path, "2025-12-31")
    with pytest.raises(RequestError, match="@yesterday is no version"):
        open_delta(str(tmp_path), "yesterday")


def test_a_clock_that_went_back_is_put_right(tmp_path):
    three_versions(tmp_path, DAY + 60, DAY, DAY + 120)
    assert snapshot_of(tmp_path, "2026-01-01T00:01:00").version == "0"
    assert snapshot_of(tmp_path, "2026-01-01T00:01:00.001").version == "1", "a commit is later than the one before it"


def test_times_are_those_of_deltalake(tmp_path):
    three_versions(tmp_path, DAY, DAY + 60, DAY + 120)
    for seconds in (0, 1, 59, 60, 61, 120, 1000):
        when = dt.datetime.fromtimestamp(DAY + seconds, dt.UTC)
        theirs = DeltaTable(str(tmp_path))
        theirs.load_as_version(when)
        assert snapshot_of(tmp_path, when.isoformat()).version == str(theirs.version())


def test_times_in_commits_count_where_the_table_has_them(tmp_path):
    told = {"delta__enableInCommitTimestamps": "true", "delta__inCommitTimestampEnablementVersion": "1"}
    made.commit(tmp_path, 0, made.protocol(), made.metadata([ID]), made.add("a"))
    own = lambda seconds: {"commitInfo": {"inCommitTimestamp": (DAY + seconds) * 1000}}  # noqa: E731
    made.commit(tmp_path, 1, own(60), made.metadata([ID], **told))
    made.commit(tmp_path, 2, own(120), made.add("b"))
    made.commit(tmp_path, 3, own(180), made.add("c"))
    for version, time in enumerate((DAY, DAY + 9000, DAY + 9000, DAY + 9000)):
        os.utime(log_of(tmp_path) / f"{version:020d}.json", (time, time))
    found = [
        snapshot_of(tmp_path, dt.datetime.fromtimestamp(DAY + s, dt.UTC).isoformat()).version
        for s in (0, 59, 60, 119, 120, 500)
    ]
    assert found == ["0", "0", "1", "1", "2", "3"]


# --- the protocol ---------------------------------------------------------------------------------


def test_unknown_reader_features_are_named(tmp_path):
    made.commit(tmp_path, 0, made.protocol(["deletionVectors", "zebra", "variantType"], []), made.metadata([ID]))
    with pytest.raises(TableFormatError, match="reader features that this version does not know: variantType, zebra$"):
        snapshot_of(tmp_path)


def test_a_later_version_of_the_protocol_is_refused(tmp_path):
    made.commit(tmp_path, 0, made.protocol(4, 2), made.metadata([ID]))
    with pytest.raises(TableFormatError, match="needs a reader of version 4"):
        snapshot_of(tmp_path)


def test_a_table_that_a_catalog_manages_is_refused(tmp_path):
    made.commit(tmp_path, 0, made.protocol(["catalogManaged"], ["catalogManaged"]), made.metadata([ID]))
    with pytest.raises(TableFormatError, match="managed by a catalog"):
        snapshot_of(tmp_path)


def test_unknown_writer_features_hinder_no_reader(tmp_path):
    made.commit(tmp_path, 0, made.protocol(1, ["zebra"]), made.metadata([ID]), made.add("a"))
    assert names_in(tmp_path) == ["a"]


# --- schemas --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_found_by_their_physical_names(tmp_path, mode):
    inner = {"type": "struct", "fields": [made.mapped("x", "string", "col-x", 3)]}
    fields = [
        made.mapped("id", "long", "col-1", 1),
        made.mapped("st", inner, "col-2", 2),
        made.mapped("p", "date", "col-p", 4),
    ]
    stats = {"numRecords": 5, "minValues": {"col-1": 3, "col-2": {"col-x": "k"}}, "nullCount": {"col-1": 0, "id": 5}}
    mapping = {"delta__columnMapping__mode": mode}
    made.commit(
        tmp_path,
        0,
        made.protocol(2, 5),
        made.metadata(fields, ["p"], **mapping),
        made.add("Ab/a.parquet", {"col-p": "2026-01-01"}, stats),
    )
    snapshot = snapshot_of(tmp_path)
    assert snapshot.by_id == (mode == "id")
    assert [(f.name, f.physical, f.field_id) for f in snapshot.fields] == [
        ("id", "col-1", 1),
        ("st", "col-2", 2),
        ("p", "col-p", 4),
    ]
    assert [(f.name, f.physical, f.field_id) for f in snapshot.fields[1].children] == [("x", "col-x", 3)]
    [file] = snapshot.files
    assert file.bounds[("id",)] == FileBounds(lower=3, null_count=0)
    assert file.bounds[("st", "x")] == FileBounds(lower=b"k")
    assert file.constants == {"p": pa.scalar(dt.date(2026, 1, 1))}


@pytest.mark.parametrize("protocol", [made.protocol(), made.protocol([], [])], ids=["1", "3"])
@pytest.mark.parametrize("mode", ["name", "id", "else"])
def test_a_mapping_that_the_protocol_does_not_have_is_none(tmp_path, protocol, mode):
    fields = [made.mapped("id", "long", "col-1", 1), made.field("name", "string")]
    add = made.file_of(tmp_path, "a.parquet", pa.table({"id": [7], "name": ["n"]}))
    made.commit(tmp_path, 0, protocol, made.metadata(fields, delta__columnMapping__mode=mode), add)
    assert [field.physical for field in snapshot_of(tmp_path).fields] == ["", ""]
    assert not snapshot_of(tmp_path).by_id
    rows = [{"id": 7, "name": "n"}]
    assert parquet_bloom.read_table(f"delta:{tmp_path}").to_pylist() == rows
    if mode != "else":  # which the kernel of deltalake does not parse
        query = QueryBuilder().register("t", DeltaTable(tmp_path)).execute("SELECT * FROM t").read_all()
        assert pa.table(query).to_pylist() == rows, "as DataFusion reads it through deltalake"


def test_nested_types_are_read(tmp_path):
    inner = {"type": "struct", "fields": [made.field("x", "short", False)]}
    array = {"type": "array", "elementType": inner, "containsNull": False}
    whole = {"type": "map", "keyType": "string", "valueType": array, "valueContainsNull": True}
    table_of(tmp_path, made.field("m", whole, False), made.field("d", "decimal(10, 2)"), made.field("v", "void"))
    m, d, v = snapshot_of(tmp_path).fields
    element = pa.field("element", pa.struct([pa.field("x", pa.int16(), False)]), False)
    assert m.type == pa.map_(pa.string(), pa.field("value", pa.list_(element)))
    assert not m.nullable
    assert [child.name for child in m.children] == ["key", "value"]
    assert (d.type, v.type) == (pa.decimal128(10, 2), pa.null())


@pytest.mark.parametrize("kind", ["interval", "variant", {"type": "zebra"}, 5, "decimal(99,2)"])
def test_types_that_are_not_known_are_an_error(tmp_path, kind):
    table_of(tmp_path, made.field("x", kind))
    with pytest.raises(TableFormatError, match="its schema is not understood"):
        snapshot_of(tmp_path)


def test_a_column_that_was_float_has_bounds_as_float(tmp_path):
    changes = [{"fromType": "float", "toType": "double"}]
    stats = {"numRecords": 1, "minValues": {"x": 0.1}, "maxValues": {"x": 0.1}}
    fields = [made.field("x", "double", **{"delta.typeChanges": changes})]
    made.commit(
        tmp_path,
        0,
        made.protocol(["typeWidening"], ["typeWidening"]),
        made.metadata(fields),
        made.add("a", stats=stats),
    )
    bounds = snapshot_of(tmp_path).files[0].bounds[("x",)]
    assert bounds.lower <= 0.1 < 0.10000000149011612 <= bounds.upper, "the FLOAT 0.1 is no DOUBLE 0.1"


def test_a_day_is_a_bound_of_a_column_that_became_a_timestamp(tmp_path):
    stats = {"numRecords": 1, "minValues": {"x": "1970-01-02"}, "maxValues": {"x": "1970-01-02"}}
    made.commit(
        tmp_path,
        0,
        made.protocol(["timestampNtz"], []),
        made.metadata([made.field("x", "timestamp_ntz")]),
        made.add("a", stats=stats),
    )
    bounds = snapshot_of(tmp_path).files[0].bounds[("x",)]
    assert bounds.lower <= 86_400_000_000 <= bounds.upper


# --- paths ----------------------------------------------------------------------------------------


def test_names_in_the_log_are_url_encoded(tmp_path):
    made.commit(tmp_path, 0, made.protocol(), made.metadata([ID]), made.add("p=a%20b%2525/%C3%A9.parquet"))
    [file] = snapshot_of(tmp_path).files
    assert file.path == f"{tmp_path}/p=a b%25/é.parquet"
    assert file.relative == "p=a b%25/é.parquet"
    made.commit(tmp_path, 1, {"remove": {"path": "p=a%20b%2525/%c3%a9.parquet"}})
    assert snapshot_of(tmp_path).files == [], "two spellings are one file"


@pytest.mark.parametrize("prefix", ["file://", "file:", ""])
def test_absolute_names_that_are_allowed_lie_outside(tmp_path, prefix):
    made.commit(
        tmp_path / "clone", 0, made.protocol(), made.metadata([ID]), made.add(f"{prefix}{tmp_path}/other/a%20b.parquet")
    )
    allowed = TableAccess(None, (str(tmp_path / "other"),))
    [file] = open_delta(str(tmp_path / "clone"), None, None, allowed).snapshot().files
    assert (file.path, file.relative) == (f"{tmp_path}/other/a b.parquet", "a b.parquet")


def test_a_file_on_another_file_system_is_refused(tmp_path):
    made.commit(tmp_path, 0, made.protocol(), made.metadata([ID]), made.add("s3://bucket/a.parquet?region=us-east-1"))
    with pytest.raises(TableFormatError, match="is on another storage"):
        snapshot_of(tmp_path)


# --- wrong logs -----------------------------------------------------------------------------------


def test_a_folder_without_a_log_is_no_table(tmp_path):
    with pytest.raises((TableFormatError, StorageError), match="no Delta table"):
        snapshot_of(tmp_path)


@pytest.mark.parametrize("line", ["{", '{"add":{"path":"x"}}', "[1]", '{"add":5}', '{"protocol":{}}'])
def test_a_commit_that_is_not_understood_is_an_error(tmp_path, line):
    table_of(tmp_path)
    made.commit(tmp_path, 1).write_text(line)
    with pytest.raises(TableFormatError):
        snapshot_of(tmp_path)


def test_a_gap_in_the_log_is_an_error(tmp_path):
    three_versions(tmp_path)
    os.remove(log_of(tmp_path) / f"{1:020d}.json")
    with pytest.raises(TableFormatError, match="has no commit 1 any more"):
        snapshot_of(tmp_path)


def test_a_log_without_schema_is_an_error(tmp_path):
    made.commit(tmp_path, 0, made.protocol())
    with pytest.raises(TableFormatError, match="no protocol or no schema"):
        snapshot_of(tmp_path)


def test_a_file_that_one_commit_adds_and_removes_is_an_error(tmp_path):
    table_of(tmp_path)
    made.commit(tmp_path, 1, made.add("a.parquet"), {"remove": {"path": "a.parquet"}})
    with pytest.raises(TableFormatError, match=r"adds and removes a\.parquet"):
        snapshot_of(tmp_path)


def test_a_checkpoint_that_is_damaged_is_an_error(tmp_path):
    classic(tmp_path)
    path = log_of(tmp_path) / f"{5:020d}.checkpoint.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TableFormatError, match=r"checkpoint\.parquet: is no checkpoint"):
        snapshot_of(tmp_path)
    shutil.copy(__file__, path)
    with pytest.raises(TableFormatError):
        snapshot_of(tmp_path)


def spoil(rng: random.Random, data: bytes) -> bytes:
    """A few bytes of a file changed, taken out or doubled."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(out))
        match rng.randrange(3):
            case 0:
                out[at] = rng.choice([*b'{}[]",:0919.eE-nul\\ ', rng.randrange(256)])
            case 1:
                del out[at : at + rng.randint(1, 20)]
            case _:
                out[at:at] = out[at : at + rng.randint(1, 20)]
    return bytes(out)


def read_whole(root: Path) -> None:
    """All that a snapshot says, or an error of ours: nothing else may come."""
    try:
        for file in snapshot_of(root).files:
            dict(file.bounds)
        snapshot_of(root, "2030-01-01")
    except ParquetBloomError:
        pass


def wide_commit(root: Path) -> Path:
    stats = {"numRecords": 3, "minValues": {"id": 1, "t": "2026-01-01T00:00:00.000Z"}, "nullCount": {"id": 0}}
    array = {"type": "array", "elementType": "long", "containsNull": True}
    fields = [ID, made.field("t", "timestamp"), made.field("p", "decimal(5,2)"), made.field("l", array)]
    adds = [made.add(f"{i}%20", {"p": f"{i}.5"}, stats, tags={}, deletionVector=made.inline([i])) for i in range(3)]
    info = {"commitInfo": {"inCommitTimestamp": DAY * 1000}}
    feature = ["deletionVectors"]
    told = {"delta__enableInCommitTimestamps": "true", "delta__inCommitTimestampEnablementVersion": "0"}
    return made.commit(root, 0, info, made.protocol(feature, feature), made.metadata(fields, ["p"], **told), *adds)


@pytest.mark.parametrize("seed", range(10))
def test_a_spoilt_commit_gives_errors_of_ours_alone(tmp_path, seed):
    path = wide_commit(tmp_path)
    read_whole(tmp_path)
    data, rng = path.read_bytes(), random.Random(seed)
    for _ in range(30):
        path.write_bytes(spoil(rng, data))
        read_whole(tmp_path)


@pytest.mark.more
@pytest.mark.parametrize("seed", range(10))
def test_a_spoilt_checkpoint_gives_errors_of_ours_alone(tmp_path, seed):
    classic(tmp_path)
    path = log_of(tmp_path) / f"{5:020d}.checkpoint.parquet"
    data, rng = path.read_bytes(), random.Random(seed)
    for _ in range(50):
        path.write_bytes(spoil(rng, data))
        read_whole(tmp_path)


# --- partition values -----------------------------------------------------------------------------

VALUES = {
    "string": [("x", "x"), ("", None), (None, None), (" ", " ")],
    "long": [("-9223372036854775808", -(2**63)), ("", None)],
    "byte": [("-128", -128)],
    "float": [("0.1", 0.1), ("Infinity", float("inf")), ("-Infinity", float("-inf"))],
    "double": [("1.0E300", 1e300), ("100000000000000000", 1e17)],
    "boolean": [("true", True), ("false", False)],
    "date": [("2026-01-01", dt.date(2026, 1, 1)), ("0001-01-01", dt.date(1, 1, 1))],
    "decimal(5,2)": [("1.5", made.Decimal("1.50")), ("-999.99", made.Decimal("-999.99"))],
    "timestamp": [("1970-01-01 00:00:00.000001", 1), ("1970-01-01T00:00:00.123456Z", 123456)],
    "timestamp_ntz": [("1970-01-01 00:00:01", 10**6), ("1970-01-02", 86_400_000_000)],
    "binary": [("abc", b"abc"), ("", None), ("\\u0061", b"a"), ("\\u00FF\\u0000\\u005c", b"\xff\0\\")],
}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES)
def test_partition_values_are_values_of_their_type(tmp_path, kind):
    adds = [made.add(f"{i}", {"p": text}) for i, (text, _) in enumerate(VALUES[kind])]
    made.commit(
        tmp_path, 0, made.protocol(["timestampNtz"], []), made.metadata([ID, made.field("p", kind)], ["p"]), *adds
    )
    snapshot = snapshot_of(tmp_path)
    for file, (_, value) in zip(snapshot.files, VALUES[kind], strict=True):
        assert file.constants["p"] == pa.scalar(value, snapshot.fields[1].type)


WRONG = [("long", "1.5"), ("long", "1_0"), ("byte", "200"), ("date", "20260101"), ("boolean", "1"), ("double", "x")]
WRONG += [
    ("timestamp", "noon"),
    ("decimal(5,2)", "1.234"),
    ("binary", "a\\u00FF"),
    ("binary", "\\u0100"),
    ("binary", "é"),
]


@pytest.mark.parametrize(("kind", "text"), WRONG)
def test_a_partition_value_that_is_none_is_an_error(tmp_path, kind, text):
    made.commit(
        tmp_path, 0, made.protocol(), made.metadata([ID, made.field("p", kind)], ["p"]), made.add("a", {"p": text})
    )
    with pytest.raises(TableFormatError, match="in the partition column p"):
        snapshot_of(tmp_path)


def test_a_partition_value_that_is_missing_is_an_error(tmp_path):
    made.commit(tmp_path, 0, made.protocol(), made.metadata([ID, made.field("p", "string")], ["p"]), made.add("a", {}))
    with pytest.raises(TableFormatError, match="no value of the partition column p for a"):
        snapshot_of(tmp_path)


# --- names and numbers that lie -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["99999999999999999999.json"], None),  # beyond Delta's LONG: no commit
        (["09223372036854775807.json"], "has no commit 1 any more"),
        (["09223372036854775807.checkpoint.parquet"], "is no checkpoint of a Delta log|is no Parquet file"),
        (["00000000000000000000.checkpoint.0000000001.9999999999.parquet"], None),
        (["0000000000000000000\u0661.json"], None),  # an Arabic digit
    ],
)
def test_a_name_in_the_log_costs_no_more_than_the_files_there_are(tmp_path, names, reason):
    """`touch t/_delta_log/99999999999999999999.json` took all memory: a list of each version up to that one."""
    table_of(tmp_path)
    for name in names:
        (tmp_path / "_delta_log" / name).touch()
    tracemalloc.start()
    try:
        if reason is None:
            assert names_in(tmp_path) == ["a.parquet", "b.parquet"]
        else:
            with pytest.raises(ParquetBloomError, match=reason):
                names_in(tmp_path)
            assert names_in(tmp_path, "0") == ["a.parquet", "b.parquet"]
        with suppress(ParquetBloomError):
            assert LogFiles(open_delta(str(tmp_path), None)._folder).commits_after(0) == []
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": -1}, {"size": 1 << 63}, {"size": 10**4000}, {"size": float("1e300")}, {"modificationTime": 10**4000},
        {"deletionVector": {"storageType": "i", "pathOrInlineDv": "", "sizeInBytes": 10**30, "cardinality": 1}},
        {"deletionVector": {"storageType": "i", "pathOrInlineDv": "", "sizeInBytes": 0, "cardinality": -1}},
        {"partitionValues": {"p": "9" * 5000}}, {"path": "x" * 70_000}, {"path": "\ud800"}, {"path": "a\0b"},
        {"path": ""},
    ],
)  # fmt: skip
def test_numbers_and_names_without_measure_are_errors_of_ours(tmp_path, wrong):
    fields = [ID, made.field("p", "integer")]
    entry = made.add("a.parquet", values={"p": "1"})
    entry["add"] |= wrong
    made.commit(tmp_path, 0, made.protocol(), made.metadata(fields, ["p"]), entry)
    with suppress(ParquetBloomError):
        snapshot_of(tmp_path)
    with pytest.raises(ParquetBloomError):
        parquet_bloom.read_table(f"delta:{tmp_path}")


def test_a_line_that_no_action_needs_is_not_read(tmp_path):
    table_of(tmp_path)
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_bytes(b'{"commitInfo":{"x":"' + b"y" * (17 << 20) + b'"}}\n')
    with pytest.raises(TableFormatError, match="a line of 17,825"):
        snapshot_of(tmp_path)
    assert len(snapshot_of(tmp_path, "0").files) == 2


def test_a_commit_as_large_as_no_log_has_is_not_read(tmp_path):
    table_of(tmp_path)
    with open(tmp_path / "_delta_log" / f"{1:020d}.json", "wb") as file:
        file.truncate(2 << 30)  # takes no room on the disk
    with pytest.raises(TableFormatError, match="has 2,147,483,648 bytes"):
        snapshot_of(tmp_path)


def test_rows_that_a_checkpoint_claims_are_not_all_made(tmp_path):
    """2 billion NULLs are a few bytes of Parquet."""
    table_of(tmp_path)
    nothing = pa.array([None], ACTIONS.field("add").type)
    path = tmp_path / "_delta_log" / f"{0:020d}.checkpoint.parquet"
    pq.write_table(pa.table({"add": pa.chunked_array([pa.concat_arrays([nothing] * 1000)])}), path)
    footer = pq.read_metadata(path)
    assert footer.num_rows == 1000
    data = path.read_bytes()
    claimed = data.replace(b"\x16\xd0\x0f", b"\x16\x80\xa8\xd6\xb9\x07")  # zigzag 1000 -> 1,000,000,000
    length = int.from_bytes(data[-8:-4], "little") + len(claimed) - len(data)
    path.write_bytes(claimed[:-8] + length.to_bytes(4, "little") + b"PAR1")
    with pytest.raises(TableFormatError, match="row group 0 claims 1,000,000,000 rows"):
        snapshot_of(tmp_path)


@pytest.mark.parametrize("features", [{"a": 1}, [{}], [["x"]], [5, None], "x", [{"deep": []}]])
@pytest.mark.parametrize("name", ["readerFeatures", "writerFeatures"])
def test_features_that_are_no_texts_are_one_line(tmp_path, name, features):
    needs = made.protocol(["deletionVectors"], ["deletionVectors"])
    needs["protocol"][name] = features
    made.commit(tmp_path, 0, needs, made.metadata([ID]), made.file_of(tmp_path, "a.parquet", pa.table({"id": [1, 2]})))
    with pytest.raises(parquet_bloom.ParquetBloomError) as caught:
        parquet_bloom.add_filters(f"delta:{tmp_path}", columns=["id"], dry_run=True)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_that_is_no_parquet_is_told_in_one_line(tmp_path):
    """pyarrow's own error of a footer has two lines."""
    classic(tmp_path)
    [path] = log_of(tmp_path).glob("*.parquet")
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[: -8 - length] + b"\xff" * length + data[-8:])
    with pytest.raises(TableFormatError) as caught:
        parquet_bloom.inspect(f"delta:{tmp_path}")
    assert "\n" not in str(caught.value)

"""What a Delta log says at a version: checkpoints of all kinds, times, protocol, column mapping, paths, wrong logs."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import tracemalloc
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from support import delta_tables as made
from support.repeats import by_turns, first_then_more

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

TEXTS = pa.map_(pa.string(), pa.string())
PARSED = pa.struct([("numRecords", pa.int64()), ("minValues", pa.struct([("id", pa.int64())]))])
METADATA_FIELDS = [("schemaString", pa.string()), ("partitionColumns", pa.list_(pa.string())), ("configuration", TEXTS)]
ADD_FIELDS = [("path", pa.string()), ("partitionValues", TEXTS), ("size", pa.int64()), ("stats", pa.string())]
ACTIONS = pa.schema(
    {
        "protocol": pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]),
        "metaData": pa.struct(METADATA_FIELDS),
        "add": pa.struct([*ADD_FIELDS, ("stats_parsed", PARSED), ("tags", TEXTS)]),
        "sidecar": pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64())]),
    }
)
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def metadata_action(field: dict[str, Any]) -> dict[str, Any]:
    schema = made.metadata([field])["metaData"]["schemaString"]
    return {"metaData": {"schemaString": schema, "partitionColumns": [], "configuration": []}}


METADATA = metadata_action(ID)


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


CHECKPOINTS: dict[str, Callable[[Path], None]] = {
    "one file": classic,
    "three parts": in_parts,
    "sidecars of Parquet": lambda root: sidecars(root, "parquet"),
    "sidecars of JSON": lambda root: sidecars(root, "json"),
}


def test_a_table_is_read_from_its_last_checkpoint_on(tmp_path):
    for kind, make in CHECKPOINTS.items():
        root = tmp_path / kind
        root.mkdir()
        make(root)
        made.commit(root, 6, {"remove": {"path": "x.parquet", "dataChange": True}}, made.add("z.parquet"))
        assert names_in(root, "5") == ["x.parquet", "y.parquet"], kind
        assert names_in(root) == ["y.parquet", "z.parquet"], f"{kind}: the commit behind it counts too"
        assert [file.rows for file in snapshot_of(root, "5").files] == [3, 3], kind
        with pytest.raises(TableFormatError, match="version 4 cannot be read: the log has no commit 0"):
            snapshot_of(root, "4")


def test_a_part_of_a_checkpoint_may_have_one_column_of_another_kind(tmp_path):
    in_parts(tmp_path)
    inside = pa.array([{"appId": "stream", "path": "gone.parquet", "version": 7}] * 3)
    part = str(log_of(tmp_path) / f"{5:020d}.checkpoint.{{:010d}}.{{:010d}}.parquet")
    for old in range(1, 4):
        os.rename(part.format(old, 3), part.format(old, 4))
    for name in ("txn", "remove", "domainMetadata", "checkpointMetadata"):
        pq.write_table(pa.table({name: inside}), part.format(4, 4))
        assert names_in(tmp_path) == ["x.parquet", "y.parquet"], name


def test_deltalakes_binary_partitions_have_the_bytes_that_were_written(tmp_path):
    values = [b"a", b"\1\2", b"\xff\0z", b"\\u0061", "é".encode(), b"plain"]
    write_deltalake(tmp_path, pa.table({"x": range(len(values)), "b": values}), partition_by=["b"])
    rows = parquet_bloom.read_table(f"delta:{tmp_path}").sort_by("x")
    assert rows["b"].to_pylist() == values
    assert parquet_bloom.read_table(f"delta:{tmp_path}", "x >= 0 AND b = x'ff007a'")["x"].to_pylist() == [2]


def test_a_checkpoint_that_lacks_a_part_is_none(tmp_path):
    made.commit(tmp_path, 0, made.protocol(), made.metadata([ID]), made.add("0"))
    for version in range(1, 6):
        made.commit(tmp_path, version, made.add(f"{version}"))
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
    bounds = pa.struct([("valid_to", pa.timestamp("us"))])
    parsed = pa.struct([("numRecords", pa.int64()), ("minValues", bounds), ("maxValues", bounds)])
    told = {"numRecords": 2, "minValues": {"valid_to": end}, "maxValues": {"valid_to": end}}
    add = {"path": "x.parquet", "partitionValues": [], "size": 7, "stats_parsed": told}
    schema = ACTIONS.set(2, pa.field("add", pa.struct([*ADD_FIELDS[:3], ("stats_parsed", parsed)])))
    actions = (PROTOCOL, metadata_action(made.field("valid_to", "timestamp_ntz")), {"add": add})
    rows = pa.Table.from_pylist([dict.fromkeys(ACTIONS.names) | action for action in actions], schema)
    path = log_of(tmp_path) / f"{0:020d}.checkpoint.parquet"
    pq.write_table(rows, path, use_deprecated_int96_timestamps=True)
    [x] = snapshot_of(tmp_path).files
    found, place = x.bounds[("valid_to",)], (end - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    assert found.lower <= place <= found.upper
    assert found.upper - found.lower < 2_000


def test_deltalakes_checkpoints_give_what_its_commits_give(tmp_path):
    for first in (0, 5):
        rows = pa.table({"id": range(first, first + 5), "p": ["a", "b", "", None, "a"]})
        write_deltalake(str(tmp_path), rows, partition_by="p", mode="append")

    def told() -> list[Any]:
        files = sorted(snapshot_of(tmp_path).files, key=lambda file: file.path)
        return [(file.path, file.rows, file.size, file.constants, dict(file.bounds), file.entry) for file in files]

    before = told()
    DeltaTable(str(tmp_path)).create_checkpoint()
    for version in (0, 1):
        os.remove(log_of(tmp_path) / f"{version:020d}.json")
    assert told() == before, "a commit carries the same over"


# --- versions and times ---------------------------------------------------------------------------


def three_versions(root: Path, *times: int) -> None:
    table_of(root)
    made.commit(root, 1, made.add("c.parquet"))
    made.commit(root, 2, made.add("d.parquet"))
    for version, time in enumerate(times):
        os.utime(log_of(root) / f"{version:020d}.json", (time, time))


DAY = 1_767_225_600  # 2026-01-01


VERSIONS = {
    "0": ("0", "2026-01-01", "2026-01-01T00:00:00Z", "2026-01-01T00:00:59.999"),
    "1": ("2026-01-01T01:01:00+01:00", "2026-01-01 00:01:00"),
    "2": ("2", "2030-01-01"),
}


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


def test_a_version_is_named_by_number_or_time(tmp_path):
    three_versions(tmp_path, DAY, DAY + 60, DAY + 120)
    for version, names in VERSIONS.items():
        assert {snapshot_of(tmp_path, name).version for name in names} == {version}
    for seconds in (0, 1, 59, 60, 61, 120, 1000):
        when = dt.datetime.fromtimestamp(DAY + seconds, dt.UTC)
        theirs = DeltaTable(str(tmp_path))
        theirs.load_as_version(when)
        assert snapshot_of(tmp_path, when.isoformat()).version == str(theirs.version()), "as deltalake has it"


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


def test_what_the_protocol_asks_and_nobody_knows_is_named(tmp_path):
    unknown = "reader features that this version does not know: variantType, zebra$"
    for i, (protocol, said) in enumerate(
        [
            (made.protocol(["deletionVectors", "zebra", "variantType"], []), unknown),
            (made.protocol(4, 2), "needs a reader of version 4"),
            (made.protocol(["catalogManaged"], ["catalogManaged"]), "managed by a catalog"),
        ]
    ):
        made.commit(tmp_path / str(i), 0, protocol, made.metadata([ID]))
        with pytest.raises(TableFormatError, match=said):
            snapshot_of(tmp_path / str(i))
    made.commit(tmp_path, 0, made.protocol(1, ["zebra"]), made.metadata([ID]), made.add("a"))
    assert names_in(tmp_path) == ["a"], "a writer's feature hinders no reader"


# --- schemas --------------------------------------------------------------------------------------


def test_mapped_columns_are_found_by_their_physical_names(tmp_path):
    inner = {"type": "struct", "fields": [made.mapped("x", "string", "col-x", 3)]}
    columns = (("id", "long", "col-1", 1), ("st", inner, "col-2", 2), ("p", "date", "col-p", 4))
    fields = [made.mapped(*column) for column in columns]
    stats = {"numRecords": 5, "minValues": {"col-1": 3, "col-2": {"col-x": "k"}}, "nullCount": {"col-1": 0, "id": 5}}
    add = made.add("Ab/a.parquet", {"col-p": "2026-01-01"}, stats)
    for mode in ("name", "id"):
        mapping = {"delta__columnMapping__mode": mode}
        made.commit(tmp_path / mode, 0, made.protocol(2, 5), made.metadata(fields, ["p"], **mapping), add)
        snapshot = snapshot_of(tmp_path / mode)
        assert snapshot.by_id == (mode == "id")
        found = [(f.name, f.physical, f.field_id) for f in [*snapshot.fields, *snapshot.fields[1].children]]
        assert found == [("id", "col-1", 1), ("st", "col-2", 2), ("p", "col-p", 4), ("x", "col-x", 3)]
        [file] = snapshot.files
        assert file.bounds[("id",)] == FileBounds(lower=3, null_count=0)
        assert file.bounds[("st", "x")] == FileBounds(lower=b"k")
        assert file.constants == {"p": pa.scalar(dt.date(2026, 1, 1))}


def test_a_mapping_that_the_protocol_does_not_have_is_none(tmp_path):
    fields = [made.mapped("id", "long", "col-1", 1), made.field("name", "string")]
    rows = [{"id": 7, "name": "n"}]
    for protocol, mode in ((made.protocol(), "name"), (made.protocol([], []), "id"), (made.protocol(), "else")):
        root = tmp_path / mode
        add = made.file_of(root, "a.parquet", pa.Table.from_pylist(rows))
        made.commit(root, 0, protocol, made.metadata(fields, delta__columnMapping__mode=mode), add)
        assert [field.physical for field in snapshot_of(root).fields] == ["", ""], mode
        assert not snapshot_of(root).by_id
        assert parquet_bloom.read_table(f"delta:{root}").to_pylist() == rows, mode
        if mode != "else":  # which the kernel of deltalake does not parse
            query = QueryBuilder().register("t", DeltaTable(root)).execute("SELECT * FROM t").read_all()
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


def test_types_that_are_not_known_are_an_error(tmp_path):
    for kind in ("interval", "variant", {"type": "zebra"}, 5, "decimal(99,2)"):
        table_of(tmp_path, made.field("x", kind))
        with pytest.raises(TableFormatError, match="its schema is not understood"):
            snapshot_of(tmp_path)


def test_bounds_of_columns_that_were_of_another_type(tmp_path):
    def bounds(field: dict[str, Any], feature: str, value: Any) -> FileBounds:
        stats = {"numRecords": 1, "minValues": {"x": value}, "maxValues": {"x": value}}
        needs = made.protocol([feature], [feature])
        made.commit(tmp_path, 0, needs, made.metadata([field]), made.add("a", stats=stats))
        return snapshot_of(tmp_path).files[0].bounds[("x",)]

    changes = [{"fromType": "float", "toType": "double"}]
    found = bounds(made.field("x", "double", **{"delta.typeChanges": changes}), "typeWidening", 0.1)
    assert found.lower <= 0.1 < 0.10000000149011612 <= found.upper, "the FLOAT 0.1 is no DOUBLE 0.1"
    found = bounds(made.field("x", "timestamp_ntz"), "timestampNtz", "1970-01-02")
    assert found.lower <= 86_400_000_000 <= found.upper, "a day bounds a column that became a timestamp"


# --- paths ----------------------------------------------------------------------------------------


def test_names_in_the_log_are_url_encoded(tmp_path):
    made.commit(tmp_path, 0, made.protocol(), made.metadata([ID]), made.add("p=a%20b%2525/%C3%A9.parquet"))
    [file] = snapshot_of(tmp_path).files
    assert file.path == f"{tmp_path}/p=a b%25/é.parquet"
    assert file.relative == "p=a b%25/é.parquet"
    made.commit(tmp_path, 1, {"remove": {"path": "p=a%20b%2525/%c3%a9.parquet"}})
    assert snapshot_of(tmp_path).files == [], "two spellings are one file"


def test_absolute_names_that_are_allowed_lie_outside(tmp_path):
    allowed = TableAccess(None, (str(tmp_path / "other"),))
    for prefix in ("file://", "file:", ""):
        add = made.add(f"{prefix}{tmp_path}/other/a%20b.parquet")
        made.commit(tmp_path / "clone", 0, made.protocol(), made.metadata([ID]), add)
        [file] = open_delta(str(tmp_path / "clone"), None, None, allowed).snapshot().files
        assert (file.path, file.relative) == (f"{tmp_path}/other/a b.parquet", "a b.parquet"), prefix


# --- wrong logs -----------------------------------------------------------------------------------


def test_a_commit_that_is_not_understood_is_an_error(tmp_path):
    with pytest.raises((TableFormatError, StorageError), match="no Delta table"):
        snapshot_of(tmp_path)
    made.commit(tmp_path, 0, made.protocol())
    with pytest.raises(TableFormatError, match="no protocol or no schema"):
        snapshot_of(tmp_path)
    table_of(tmp_path)
    both = "\n".join(map(json.dumps, (made.add("a.parquet"), {"remove": {"path": "a.parquet"}})))
    elsewhere = json.dumps(made.add("s3://bucket/a.parquet?region=us-east-1"))
    for lines, said in (
        *((line, None) for line in ("{", '{"add":{"path":"x"}}', "[1]", '{"add":5}', '{"protocol":{}}')),
        (both, r"adds and removes a\.parquet"),
        (elsewhere, "is on another storage"),
    ):
        made.commit(tmp_path, 1).write_text(lines)
        with pytest.raises(TableFormatError, match=said):
            snapshot_of(tmp_path)


def test_a_gap_in_the_log_is_an_error(tmp_path):
    three_versions(tmp_path)
    os.remove(log_of(tmp_path) / f"{1:020d}.json")
    with pytest.raises(TableFormatError, match="has no commit 1 any more"):
        snapshot_of(tmp_path)


def test_a_checkpoint_that_is_damaged_is_an_error_of_one_line(tmp_path):
    """pyarrow's own error of a footer has two lines."""
    classic(tmp_path)
    [path] = log_of(tmp_path).glob("*.parquet")
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    for damaged, said in (
        (data[:-20], r"checkpoint\.parquet: is no checkpoint"),
        (Path(__file__).read_bytes(), None),
        (data[: -8 - length] + b"\xff" * length + data[-8:], None),
    ):
        path.write_bytes(damaged)
        with pytest.raises(TableFormatError, match=said) as caught:
            parquet_bloom.inspect(f"delta:{tmp_path}")
        assert "\n" not in str(caught.value)


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


@pytest.mark.parametrize("seeds", first_then_more([range(4), range(4, 10)], 1), ids=str)
def test_a_spoilt_commit_gives_errors_of_ours_alone(tmp_path, seeds):
    path = wide_commit(tmp_path)
    read_whole(tmp_path)
    data = path.read_bytes()
    for rng in map(random.Random, seeds):
        for _ in range(30):
            path.write_bytes(spoil(rng, data))
            read_whole(tmp_path)


@pytest.mark.more
def test_a_spoilt_checkpoint_gives_errors_of_ours_alone(tmp_path):
    classic(tmp_path)
    path = log_of(tmp_path) / f"{5:020d}.checkpoint.parquet"
    data = path.read_bytes()
    for rng in map(random.Random, range(10)):
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


def partitioned(root: Path, kind: str, *values: dict[str, str | None]) -> Snapshot:
    """A table with a partition column p, and a file for each of these values in the log."""
    fields = made.metadata([ID, made.field("p", kind)], ["p"])
    adds = [made.add(f"{i}", one) for i, one in enumerate(values)]
    made.commit(root, 0, made.protocol(["timestampNtz"], []), fields, *adds)
    return snapshot_of(root)


def test_partition_values_are_values_of_their_type(tmp_path):
    for kind, pairs in VALUES.items():
        snapshot = partitioned(tmp_path, kind, *({"p": text} for text, _ in pairs))
        wanted = [pa.scalar(value, snapshot.fields[1].type) for _, value in pairs]
        assert [file.constants["p"] for file in snapshot.files] == wanted, kind


WRONG = {
    "long": ("1.5", "1_0"), "byte": ("200",), "date": ("20260101",), "boolean": ("1",), "double": ("x",),
    "timestamp": ("noon",), "decimal(5,2)": ("1.234",), "binary": ("a\\u00FF", "\\u0100", "é"),
}  # fmt: skip


def test_a_partition_value_that_is_none_is_an_error(tmp_path):
    for kind, text in [(kind, text) for kind, texts in WRONG.items() for text in texts]:
        with pytest.raises(TableFormatError, match="in the partition column p"):
            partitioned(tmp_path, kind, {"p": text})
    with pytest.raises(TableFormatError, match="no value of the partition column p for 0"):
        partitioned(tmp_path, "string", {})


# --- names and numbers that lie -------------------------------------------------------------------


def test_a_name_in_the_log_costs_no_more_than_the_files_there_are(tmp_path):
    """`touch t/_delta_log/99999999999999999999.json` took all memory: a list of each version up to that one."""
    table_of(tmp_path)
    tracemalloc.start()
    try:
        for name, reason in (
            ("99999999999999999999.json", None),  # beyond Delta's LONG: no commit
            ("09223372036854775807.json", "has no commit 1 any more"),
            ("09223372036854775807.checkpoint.parquet", "is no checkpoint of a Delta log|is no Parquet file"),
            ("00000000000000000000.checkpoint.0000000001.9999999999.parquet", None),
            ("0000000000000000000\u0661.json", None),  # an Arabic digit
        ):
            (tmp_path / "_delta_log" / name).touch()
            with pytest.raises(ParquetBloomError, match=reason) if reason else nullcontext():
                assert names_in(tmp_path) == ["a.parquet", "b.parquet"], name
            assert names_in(tmp_path, "0") == ["a.parquet", "b.parquet"], name
            with suppress(ParquetBloomError):
                assert LogFiles(open_delta(str(tmp_path), None)._folder).commits_after(0) == []
            (tmp_path / "_delta_log" / name).unlink()
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


INLINE = {"storageType": "i", "pathOrInlineDv": ""}
WITHOUT_MEASURE: list[dict[str, Any]] = [
    {"size": -1}, {"size": 1 << 63}, {"size": 10**4000}, {"size": float("1e300")}, {"modificationTime": 10**4000},
    {"deletionVector": INLINE | {"sizeInBytes": 10**30, "cardinality": 1}},
    {"deletionVector": INLINE | {"sizeInBytes": 0, "cardinality": -1}},
    {"partitionValues": {"p": "9" * 5000}}, {"path": "x" * 70_000}, {"path": "\ud800"}, {"path": "a\0b"}, {"path": ""},
]  # fmt: skip


def test_numbers_and_names_without_measure_are_errors_of_ours(tmp_path):
    for wrong in WITHOUT_MEASURE:
        entry = made.add("a.parquet", values={"p": "1"})
        entry["add"] |= wrong
        made.commit(tmp_path, 0, made.protocol(), made.metadata([ID, made.field("p", "integer")], ["p"]), entry)
        with suppress(ParquetBloomError):
            snapshot_of(tmp_path)
        with pytest.raises(ParquetBloomError):
            parquet_bloom.read_table(f"delta:{tmp_path}")
            pytest.fail(str(wrong)[:80])


def test_a_commit_as_large_as_no_log_has_is_not_read(tmp_path):
    table_of(tmp_path)
    log = tmp_path / "_delta_log" / f"{1:020d}.json"
    log.write_bytes(b'{"commitInfo":{"x":"' + b"y" * (17 << 20) + b'"}}\n')
    with pytest.raises(TableFormatError, match="a line of 17,825"):
        snapshot_of(tmp_path)
    assert len(snapshot_of(tmp_path, "0").files) == 2
    with open(log, "wb") as file:
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


def test_features_that_are_no_texts_are_one_line(tmp_path):
    add = made.file_of(tmp_path, "a.parquet", pa.table({"id": [1, 2]}))
    hostile = [{"a": 1}, [{}], [["x"]], [5, None], "x", [{"deep": []}]]
    for features, name in by_turns(hostile, ("readerFeatures", "writerFeatures")):
        needs = made.protocol(["deletionVectors"], ["deletionVectors"])
        needs["protocol"][name] = features
        made.commit(tmp_path, 0, needs, made.metadata([ID]), add)
        with pytest.raises(parquet_bloom.ParquetBloomError) as caught:
            parquet_bloom.add_filters(f"delta:{tmp_path}", columns=["id"], dry_run=True)
        assert "\n" not in str(caught.value)

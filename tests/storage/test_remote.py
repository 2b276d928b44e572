"""Other storages: S3 by moto's server on loopback, fsspec, pyarrow's wrappers; requests and bytes counted."""

from __future__ import annotations

import builtins
import io
import itertools
import signal
import subprocess
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from support.commands import command, error_lines
from support.object_store import KEY, READERS, REGION, SECRET, ObjectStore, Request, objects, reading_by, serving
from support.samples import ROW_GROUPS, keys_table, leftovers, random_bytes, write_keys

import parquet_bloom
from parquet_bloom.cli import run
from parquet_bloom.errors import ConflictError, RequestError, StorageError, TableFormatError, TableWarning
from parquet_bloom.output import s3 as s3_module
from parquet_bloom.output.draft import Extent
from parquet_bloom.output.s3 import LEAST, MOST, MOST_PARTS, Part, plan_parts
from parquet_bloom.output.target import Target, UploadedFile, Writing
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import expand, locate
from parquet_bloom.storage.remote import Location, submit

SAFE = "/=:,+@!$&'()*;~"  # may stand in a URI's path as they are


@pytest.fixture(scope="session")
def server() -> Iterator[ObjectStore]:
    with serving() as store:
        yield store


@pytest.fixture
def store(server: ObjectStore) -> Iterator[ObjectStore]:
    """An empty bucket `data`."""
    server.client.create_bucket(Bucket="data")
    server.wire.clear()
    yield server
    server.wire.before = None
    server.drop("data")


@pytest.fixture(scope="session")
def big() -> bytes:
    """12 MiB, uncompressed, four row groups; 128 thousand bytes of them are `id`."""
    rng = np.random.default_rng(5)
    n = 16_000
    wide = {f"wide_{i}": random_bytes(rng, n, 190) for i in range(4)}
    table = pa.table({"id": pa.array(rng.integers(0, 2**62, n)), **wide})
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=n // 4, use_dictionary=False, compression="none", write_statistics=False)
    return out.getvalue()


@pytest.fixture
def small(tmp_path: Path) -> bytes:
    return write_keys(tmp_path / "small.parquet").read_bytes()


def locally(tmp_path: Path, data: bytes, **options: object) -> bytes:
    """What `add` makes of a local file."""
    (tmp_path / "in.parquet").write_bytes(data)
    parquet_bloom.add_filters(
        tmp_path / "in.parquet", tmp_path / "local.parquet", sync=False, overwrite=True, **{"columns": ["*"], **options}
    )
    return (tmp_path / "local.parquet").read_bytes()


def at_once(store: ObjectStore, kinds: str, action: Callable[[], object]) -> None:
    """Do something when the next request of these kinds comes, before it is answered."""

    def before(request: Request) -> None:
        if request.kind in kinds.split():
            store.wire.before = None
            action()

    store.wire.before = before


def without_boto3(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("parquet_bloom.output.target.importlib.util.find_spec", lambda name: None)


# --- reading --------------------------------------------------------------------------------------


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> Iterator[str]:
    with reading_by(request.param):
        yield request.param


def test_a_footer_costs_one_request_or_two(store: ObjectStore, small: bytes, reader: str) -> None:
    """64 KiB; its size, where pyarrow reads; and whether the bucket is a table's."""
    store.put("data/x.parquet", small)
    uri = store.uri("data/x.parquet")
    for name, options, shown in (
        (uri, {}, "s3://data/x.parquet"),  # no key, no options
        ("data/x.parquet", {"filesystem": store.filesystem}, "data/x.parquet"),
        ("s3://data/x.parquet", {"filesystem": store.filesystem}, "s3://data/x.parquet"),
    ):
        store.wire.clear()
        [file] = parquet_bloom.inspect(name, **options).files
        assert (file.path, file.rows) == (shown, 1200)
        heads = ["HEAD"] if reader == "pyarrow" else []
        assert sorted(store.wire.kinds) == ["GET", *heads, *3 * ["LIST"]], name
        assert [r.down for r in store.wire.requests if r.kind == "GET"] == [min(len(small), 64 << 10)]


def test_ranges_are_joined_or_read_side_by_side(store: ObjectStore, big: bytes) -> None:
    store.put("data/x.parquet", big)
    with OpenFile("data/x.parquet", store.filesystem) as source:
        store.wire.clear()
        near = [(i * 1000, 500) for i in range(50)]
        far = [(i << 20, 100) for i in range(1, 11)]
        ranges = [*far, *near, far[0]]
        assert source.read_ranges(ranges) == [big[o : o + n] for o, n in ranges]
        assert len(store.wire.requests) == source.requests == 11
        assert source.bytes_read == store.wire.down == 49_500 + 10 * 100
        assert source.read_ranges([(0, len(big))]) == [big], "what is long is read in pieces"
        assert source.requests == 11 + 2
        rng = np.random.default_rng(2)
        many = [
            (int(o), int(n)) for o, n in zip(rng.integers(0, 11 << 20, 5000), rng.integers(0, 300, 5000), strict=True)
        ]
        many += [(0, 10 << 20), (5, 9 << 20), (7, 0), (len(big), 0)]
        assert source.read_ranges(many) == [big[o : o + n] for o, n in many]
        assert len(set(submit(source.read_ranges, many).result())) > 1000, "also from one of its own threads"


def test_inspect_reads_many_filters_with_few_requests(store: ObjectStore, tmp_path: Path, small: bytes) -> None:
    store.put("data/y.parquet", locally(tmp_path, small))
    store.wire.clear()
    report = parquet_bloom.inspect("data/y.parquet", filesystem=store.filesystem)
    assert len(report.files[0].filters) == 7 * ROW_GROUPS
    assert report.files[0].problems == 0
    assert len(store.wire.requests) <= 3 + 3, "three look for a table's log"
    assert not parquet_bloom.verify("data/y.parquet", filesystem=store.filesystem).files[0].wrong


def test_a_column_chunk_is_decoded_with_one_request(
    store: ObjectStore, tmp_path: Path, big: bytes, reader: str
) -> None:
    store.put("data/y.parquet", locally(tmp_path, big, columns=["id"]))
    store.wire.clear()
    verified = parquet_bloom.verify("data/y.parquet", filesystem=store.filesystem).files[0]
    assert [f.status for f in verified.filters] == ["right"] * 4
    assert sum(f.values for f in verified.filters) == 16_000
    reading = [kind for kind in store.wire.kinds if kind != "LIST"]
    asked = [*(["HEAD"] if reader == "pyarrow" else []), *5 * ["GET"], *(["HEAD"] if reader == "pyarrow" else [])]
    assert reading == asked, "the filters came with the footer, each chunk as one; pyarrow's requests name no version"


def test_folders_globs_and_lists(store: ObjectStore, small: bytes) -> None:
    names = ("in/a.parquet", "in/year=2026/b.parq", "in/year=2026/city=a%2Fb/c.PQ", "in/_delta/e.parquet", "in/notes",
             "in/.hidden.parquet", "in/year=__HIVE_DEFAULT_PARTITION__/d.parquet")  # fmt: skip
    for name in names:
        store.put(f"data/{name}", small)

    def found(*sources: str) -> dict[str, object]:
        return {f.path.removeprefix("data/in/"): f.partitions for f in expand(list(sources), store.filesystem)}

    everything = {
        "a.parquet": (),
        "year=2026/b.parq": (("year", "2026"),),
        "year=2026/city=a%2Fb/c.PQ": (("year", "2026"), ("city", "a/b")),
        "year=__HIVE_DEFAULT_PARTITION__/d.parquet": (("year", None),),
    }
    assert found("data/in") == everything
    assert found("data/in/") == everything
    assert found("data/in/year=2026") == {"year=2026/b.parq": (), "year=2026/city=a%2Fb/c.PQ": (("city", "a/b"),)}
    assert found("data/in/*.parquet") == {"a.parquet": ()}
    assert found("data/in/**/*.p[aq]*") == {k: v for k, v in everything.items() if not k.endswith("PQ")}
    assert found("data/in/year=*/?.parq") == {"year=2026/b.parq": (("year", "2026"),)}
    assert set(found("data/i?")) == set(everything), "a glob may fit a folder"
    assert found("data/in/_delta/*") == {"_delta/e.parquet": ()}
    assert found("data/in/year=2026/b.parq") == {"year=2026/b.parq": ()}, "one file alone tells of no partitions"
    assert found("data/in/year=2026/b.parq", "data/in/notes") == {"year=2026/b.parq": (("year", "2026"),), "notes": ()}
    shown = [str(f) for f in expand(store.uri("data/in/year=2026"))]
    assert shown == ["s3://data/in/year=2026/b.parq", "s3://data/in/year=2026/city=a%252Fb/c.PQ"]
    with OpenFile(expand(store.uri("data/in/year=2026"))[1]) as source:
        assert source.footer().n_row_groups == ROW_GROUPS


def test_a_missing_name_among_several_is_one_failure(store: ObjectStore, small: bytes) -> None:
    store.put("data/a.parquet", small)
    store.put("data/empty/notes", b"x")
    report = parquet_bloom.inspect(
        ["data/a.parquet", "data/none", "data/empty", "data/*.pq"], filesystem=store.filesystem
    )
    assert [f.path for f in report.files] == ["data/a.parquet"]
    assert {f.path: f.error.reason[:12] for f in report.failed} == {
        "data/none": "no such file", "data/empty": "no Parquet f", "data/*.pq": "no file fits",
    }  # fmt: skip
    for alone in ("data/none", "data/empty", "data/*.pq", "no-bucket/x.parquet"):
        with pytest.raises(StorageError, match=alone.replace("*", r"\*")):
            parquet_bloom.inspect(alone, filesystem=store.filesystem)


def test_errors_of_a_storage_are_one_line(store: ObjectStore, capsys: pytest.CaptureFixture[str]) -> None:
    refused = objects(
        endpoint_override="127.0.0.1:9", scheme="http", access_key="a", secret_key="b", region="us-east-1",
        connect_timeout=1,
    )  # fmt: skip
    with pytest.raises(StorageError, match=r"^data/x: .*(?i:connection)") as caught:
        parquet_bloom.inspect("data/x", filesystem=refused)
    assert "\n" not in str(caught.value)
    for name, says in {
        store.uri("data/none.parquet"): "s3://data/none.parquet: no such file",
        "nope://data/x": "nope://data/: ",
        "file://elsewhere/x": "names no other machine",
        "s3:///x": "names no bucket",
    }.items():
        assert run(["inspect", name]) == 2
        told = capsys.readouterr().err
        assert says in told
        assert error_lines(told) == 1
        assert "tests-secret" not in told


def test_folders_with_objects_of_their_own(store: ObjectStore, small: bytes) -> None:
    """Hadoop, pyarrow and consoles mark a folder by an empty object, whose key ends with a slash."""
    for key in ("in/", "in/sub/", "in/empty/"):
        store.put(f"data/{key}", b"")
    for key in ("in/x.parquet", "in/sub/y.parquet"):
        store.put(f"data/{key}", small)
    found = parquet_bloom.inspect(store.uri("data/in")).files
    assert sorted(file.path.partition("?")[0].rpartition("/")[2] for file in found) == ["x.parquet", "y.parquet"]
    assert len(parquet_bloom.inspect(store.uri("data/in/sub")).files) == 1
    assert len(parquet_bloom.inspect(store.uri("data/in/*.parquet")).files) == 1
    with pytest.raises(StorageError, match="no Parquet file"):
        parquet_bloom.inspect(store.uri("data/in/empty"))


def test_threads_leave_each_other_what_they_fetched(store: ObjectStore, big: bytes) -> None:
    store.put("data/x.parquet", big)
    with OpenFile("data/x.parquet", store.filesystem) as source:
        source.prefetch([(1000, 500)])
        other = threading.Thread(target=source.prefetch, args=([(9000, 500)],))
        other.start()
        other.join()
        store.wire.clear()
        assert source.read(1100, 100) == big[1100:1200]
        assert source.read(9100, 100) == big[9100:9200]
        assert store.wire.requests == []
        source.prefetch([(5000, 500)])
        store.wire.clear()
        source.read(1100, 100)
        assert [request.kind for request in store.wire.requests] == ["GET"], "a thread keeps one call's ranges"
        source.forget()
        assert source.bytes_kept == 0


def test_one_call_has_one_file_system(store: ObjectStore, tmp_path: Path, small: bytes) -> None:
    store.put("data/x.parquet", small)
    with pytest.raises(RequestError, match="different file systems"):
        parquet_bloom.inspect([store.uri("data/x.parquet"), tmp_path / "small.parquet"])
    with pytest.raises(RequestError, match="not on that file system"):
        parquet_bloom.inspect("gs://data/x.parquet", filesystem=store.filesystem)
    with pytest.raises(RequestError, match="not a file system"):
        parquet_bloom.inspect("x", filesystem=object())


# --- writing to S3 --------------------------------------------------------------------------------


def test_unchanged_bytes_do_not_travel(store: ObjectStore, tmp_path: Path, big: bytes) -> None:
    store.put("data/x.parquet", big)
    store.wire.clear()
    report = parquet_bloom.add_filters(
        store.uri("data/x.parquet"), store.uri("data/y.parquet"), columns=["id"], sync=False
    )
    file = report.files[0]
    assert store.wire.up < 0.01 * len(big), "filters and footer, and the requests' own texts"
    assert store.wire.down < 0.02 * len(big), "the column and the footer"
    assert abs(store.wire.up + store.wire.down - file.bytes_travelled) < 8192
    assert file.bytes_copied > 0.99 * len(big)
    assert store.get("data/y.parquet") == locally(tmp_path, big, columns=["id"]), "the very file that local add writes"
    assert store.get("data/x.parquet") == big
    store.wire.clear()
    removed = parquet_bloom.remove_filters("data/y.parquet", in_place=True, filesystem=store.filesystem).files[0]
    assert store.wire.up + store.wire.down < 0.02 * len(big)
    assert removed.bytes_copied > 0.99 * len(big)
    assert store.get("data/y.parquet") == big, "remove gives the old object back, byte for byte"
    assert store.uploads("data") == []


def test_a_small_file_travels_and_is_the_same(store: ObjectStore, tmp_path: Path, small: bytes) -> None:
    how: dict[str, Any] = {"in_place": True, "filesystem": store.filesystem}
    for options in ({}, {"placement": "chunk-start"}, {"spec": "parquet-41", "replace": True}):
        store.put("data/x.parquet", small, ContentType="a/b")
        report = parquet_bloom.add_filters("data/x.parquet", columns=["*"], **how, **options)
        assert store.get("data/x.parquet") == locally(tmp_path, small, **options), options
        assert report.files[0].bytes_copied == 0
        assert "5 MiB" in report.files[0].why_travelled
        assert store.client.head_object(Bucket="data", Key="x.parquet")["ContentType"] == "a/b"
    again = parquet_bloom.add_filters("data/x.parquet", replace=True, columns=["*"], **how)
    assert len(again.files[0].filters) == 7 * ROW_GROUPS
    parquet_bloom.remove_filters("data/x.parquet", **how)
    assert pq.read_table(io.BytesIO(store.get("data/x.parquet"))).equals(keys_table())


def test_what_an_object_has_beside_its_bytes_stays(store: ObjectStore, big: bytes) -> None:
    kept = {
        "ContentType": "application/vnd.apache.parquet", "CacheControl": "max-age=60", "ContentLanguage": "de",
        "ContentDisposition": "attachment", "Metadata": {"owner": "ada"}, "StorageClass": "STANDARD_IA",
        "ServerSideEncryption": "AES256",
    }  # fmt: skip
    store.put("data/x.parquet", big, Tagging="team=blue&note=a%20%2B%20b", **kept)
    parquet_bloom.add_filters("data/x.parquet", in_place=True, columns=["id"], filesystem=store.filesystem)
    head = store.client.head_object(Bucket="data", Key="x.parquet")
    assert {name: head[name] for name in kept} == kept
    tags = store.client.get_object_tagging(Bucket="data", Key="x.parquet")["TagSet"]
    assert {t["Key"]: t["Value"] for t in tags} == {"team": "blue", "note": "a + b"}
    store.put("data/plain.parquet", big)
    parquet_bloom.add_filters("data/plain.parquet", in_place=True, columns=["id"], filesystem=store.filesystem)
    assert store.client.head_object(Bucket="data", Key="plain.parquet")["Metadata"] == {}


def test_odd_names_and_versions(store: ObjectStore, big: bytes) -> None:
    store.client.put_bucket_versioning(Bucket="data", VersioningConfiguration={"Status": "Enabled"})
    for key in ("a b+c%&=ü'[1]*?#.parquet", "x/y=ö %2F/z"):
        store.put(f"data/{key}", big)
        parquet_bloom.add_filters(f"data/{key}", in_place=True, columns=["id"], filesystem=store.filesystem)
        assert len(store.client.list_object_versions(Bucket="data", Prefix=key)["Versions"]) == 2, "the old one is kept"
        assert parquet_bloom.inspect(store.uri(f"data/{quote(key)}")).files[0].path == f"s3://data/{quote(key, SAFE)}"
        parquet_bloom.remove_filters(store.uri(f"data/{quote(key)}"), in_place=True)
        assert store.get(f"data/{key}") == big
    for one in store.client.list_object_versions(Bucket="data")["Versions"]:
        store.client.delete_object(Bucket="data", Key=one["Key"], VersionId=one["VersionId"])


def test_an_object_that_is_replaced_while_it_is_verified_is_not_called_wrong(
    store: ObjectStore, tmp_path: Path
) -> None:
    """pyarrow's file systems name no version: with footers of one and values of another all would seem wrong."""
    versions, own = [], store.endpoint.removeprefix("http://")
    for seed in (0, 1):
        keys = np.random.default_rng(seed).integers(0, 2**62, 100_000)
        path = tmp_path / "keys.parquet"
        pq.write_table(pa.table({"id": keys}), path, row_group_size=25_000, use_dictionary=False, compression="none")
        parquet_bloom.add_filters(path, in_place=True, columns="id", max_bytes=1 << 15, sync=False)
        versions.append(path.read_bytes())
    assert len(versions[0]) == len(versions[1])
    given = fs.S3FileSystem(access_key=KEY, secret_key=SECRET, region=REGION, endpoint_override=own, scheme="http")
    calls: list[Callable[[], Any]] = [
        lambda: parquet_bloom.verify("data/x.parquet", filesystem=given, statistics=True).files[0].wrong,
        lambda: parquet_bloom.repair("data/x.parquet", filesystem=given, in_place=True, dry_run=True).files[0].wrong,
    ]
    for call in calls:
        said = 0
        for number in range(2, 12):
            store.put("data/x.parquet", versions[0])
            count = itertools.count(1)

            def before(request: Request, number: int = number, count: Iterator[int] = count) -> None:
                if request.kind in ("GET", "HEAD") and next(count) == number:
                    store.wire.before = None
                    store.put("data/x.parquet", versions[1])

            store.wire.before = before
            try:
                assert call() == []
            except parquet_bloom.FileChangedError:
                said += 1
        store.wire.before = None
        assert said > 3


@pytest.mark.parametrize(
    ("placement", "when"),
    [("footer", "TAGS"), ("footer", "begin"), ("footer", "complete"), ("tail", "COPY"), ("tail", "PUT")],
)
def test_an_object_that_was_replaced_meanwhile_stays(store: ObjectStore, big: bytes, placement: str, when: str) -> None:
    store.put("data/x.parquet", big)
    other = big[:-1] + b"?"
    at_once(store, when, lambda: store.put("data/x.parquet", other))
    options: dict[str, Any] = {"in_place": True, "placement": placement, "filesystem": store.filesystem}
    with pytest.raises(StorageError, match="data/x.parquet: was changed by another program"):
        parquet_bloom.add_filters("data/x.parquet", columns=["id"], **options)
    assert store.wire.before is None, "it was replaced in the middle"
    assert store.get("data/x.parquet") == other
    assert store.uploads("data") == []


def test_a_tail_is_copies_of_the_object_and_one_part(store: ObjectStore, tmp_path: Path, big: bytes) -> None:
    store.put("data/x.parquet", big, Metadata={"owner": "ada"})
    options: dict[str, Any] = {"in_place": True, "placement": "tail", "filesystem": store.filesystem}
    states = [big]
    for column in ("id", "wide_0"):
        store.wire.clear()
        report = parquet_bloom.add_filters("data/x.parquet", columns=[column], **options).files[0]
        states.append(store.get("data/x.parquet"))
        assert states[-1].startswith(states[-2]), "no old byte changes"
        assert (report.bytes_before, report.bytes_after) == (len(states[-2]), len(states[-1]))
        assert report.bytes_copied == len(states[-2]), "inside the store"
        sent = [r.up for r in store.wire.requests if r.kind == "PUT"]
        assert sent == [len(states[-1]) - len(states[-2])], "filters and footer, as one part"
    assert states[1] == locally(tmp_path, big, columns=["id"], placement="tail")
    assert not parquet_bloom.verify("data/x.parquet", filesystem=store.filesystem).files[0].wrong
    assert store.client.head_object(Bucket="data", Key="x.parquet")["Metadata"] == {"owner": "ada"}
    for last, state in ((True, states[1]), (False, big)):
        store.wire.clear()
        options = {"in_place": True, "filesystem": store.filesystem, "last": last}
        removed = parquet_bloom.remove_filters("data/x.parquet", **options).files[0]
        assert store.get("data/x.parquet") == state
        assert (removed.tails, removed.bytes_copied) == (1, len(state))
        assert [r.up for r in store.wire.requests if r.kind == "PUT"] == [], "the beginning of an object is its parts"
    assert store.uploads("data") == []


def test_a_tail_of_a_small_object_goes_with_all_of_it(store: ObjectStore, small: bytes) -> None:
    store.put("data/x.parquet", small)
    options: dict[str, Any] = {"in_place": True, "filesystem": store.filesystem}
    report = parquet_bloom.add_filters("data/x.parquet", columns=["id"], placement="tail", **options).files[0]
    assert store.get("data/x.parquet").startswith(small)
    assert report.bytes_copied == 0
    assert "5 MiB" in report.why_travelled
    with pytest.raises(StorageError, match="is not on a local disk, where alone append can be done"):
        parquet_bloom.add_filters("data/x.parquet", columns=["name"], placement="tail", append=True, **options)
    with pytest.raises(StorageError, match="is not on a local disk, where alone append can be done"):
        parquet_bloom.remove_filters("data/x.parquet", append=True, **options)
    parquet_bloom.remove_filters("data/x.parquet", **options)
    assert store.get("data/x.parquet") == small


def test_a_tail_of_more_than_five_gib_is_several_copies() -> None:
    size = 11 << 30
    parts = plan_parts([Extent(0, size, 0, True), Extent(size, size + 1000, 0, False)])
    assert [part.at for part in parts if part.origin is None] == [size], "what is sent is the tail alone"
    assert all(part.stop - part.at <= MOST and part.origin == part.at for part in parts[:-1])
    assert parts[-1] == Part(size, size + 1000, None)


def test_the_object_that_is_not_there_yet_is_a_source_like_any_other(store: ObjectStore, small: bytes) -> None:
    store.put("data/x.parquet", small)
    target = Location("data/y.parquet", store.filesystem)
    with (
        OpenFile(Location("data/x.parquet", store.filesystem), pin=True) as old,
        s3_module.StoredFile(old, target, overwrite=False, force=False) as new,
    ):
        new.copy_from(0, old, 0, 100)
        new.at = 100
        new.append(b"new")
        with new.reopen() as source:
            assert source.read(98, 5) == small[98:100] + b"new"
            assert source.arrow_file().read() == small[:100] + b"new"
            assert (source.size, source.path, source.is_remote) == (103, "data/y.parquet", True)
            assert (source.version_token, source.etag) == (None, None), "no version of it is there yet"
    assert store.names("data") == ["x.parquet"]


def test_an_error_in_the_middle_aborts_the_upload(
    store: ObjectStore, big: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("data/x.parquet", big)
    for error in (KeyboardInterrupt(), OSError("the disk is gone"), MemoryError()):

        def fail(*_: object, error: BaseException = error) -> str:
            raise error

        monkeypatch.setattr(s3_module.StoredFile, "_send", fail)
        store.wire.clear()
        with pytest.raises((StorageError, KeyboardInterrupt, MemoryError)):
            parquet_bloom.add_filters("data/x.parquet", "data/y.parquet", columns=["id"], filesystem=store.filesystem)
        assert store.names("data") == ["x.parquet"]
        assert store.uploads("data") == []
        assert "abort" in store.wire.kinds


def test_an_existing_target_needs_overwrite(store: ObjectStore, small: bytes) -> None:
    for name, data in (("x", small), ("y", b"old")):
        store.put(f"data/{name}.parquet", data)

    def add(target: str, **more: bool) -> None:
        parquet_bloom.add_filters("data/x.parquet", target, filesystem=store.filesystem, columns=["*"], **more)

    with pytest.raises(StorageError, match="overwrite=True"):
        add("data/y.parquet")
    with pytest.raises(RequestError, match="itself a source"):
        add("data/x.parquet", overwrite=True)
    at_once(store, "complete PUT", lambda: store.put("data/z.parquet", b"just now"))
    with pytest.raises(StorageError):
        add("data/z.parquet")
    assert store.get("data/z.parquet") == b"just now"
    assert store.get("data/y.parquet") == b"old"
    add("data/y.parquet", overwrite=True)
    assert store.get("data/y.parquet") != b"old"


def test_several_go_to_a_folder_and_keep_their_tree(store: ObjectStore, tmp_path: Path, small: bytes) -> None:
    store.put("data/in/a.parquet", small)
    store.put("data/in/k=1/b.parquet", small)
    report = parquet_bloom.add_filters(store.uri("data/in"), store.uri("data/out"), columns=["*"])
    assert [f.output for f in report.files] == ["s3://data/out/a.parquet", "s3://data/out/k=1/b.parquet"]
    local = parquet_bloom.add_filters(store.uri("data/in"), tmp_path / "here", sync=False, columns=["*"])
    assert not local.failed
    assert (tmp_path / "here/k=1/b.parquet").read_bytes() == store.get("data/out/k=1/b.parquet")
    assert leftovers(tmp_path / "here") == []
    back = parquet_bloom.remove_filters(tmp_path / "here/a.parquet", store.uri("data/back.parquet"))
    assert store.get("data/back.parquet") == small
    assert "another storage" in back.files[0].why_travelled


def test_dry_run_and_nothing_to_do_write_nothing(store: ObjectStore, small: bytes) -> None:
    store.put("data/x.parquet", small)
    store.wire.clear()
    dry = parquet_bloom.add_filters(
        "data/x.parquet", "data/y.parquet", dry_run=True, filesystem=store.filesystem, columns=["*"]
    )
    assert dry.files[0].planned_filters == 7 * ROW_GROUPS
    parquet_bloom.remove_filters("data/x.parquet", in_place=True, filesystem=store.filesystem)
    assert not {"PUT", "begin", "COPY"} & set(store.wire.kinds)
    copied = parquet_bloom.remove_filters("data/x.parquet", "data/y.parquet", filesystem=store.filesystem)
    assert store.get("data/y.parquet") == small
    assert copied.files[0].removed == 0


LOGS = [("_delta_log/0.json", "Delta"), (".hoodie/hoodie.properties", "Hudi"), ("metadata/v1.metadata.json", "Iceberg")]


def test_a_table_s_files_are_refused(store: ObjectStore, small: bytes) -> None:
    for mark, kind in LOGS:
        name = f"data/{kind}/k=1/x.parquet"
        store.put(f"data/{kind}/{mark}", b"{}")
        store.put(name, small)
        with pytest.raises(TableFormatError, match=f"{kind} table data/{kind}"):
            parquet_bloom.add_filters(name, in_place=True, filesystem=store.filesystem, columns=["*"])
        assert store.get(name) == small
        with pytest.warns(TableWarning, match=f"lies in the {kind} table data/{kind},"):
            parquet_bloom.add_filters(name, in_place=True, force=True, filesystem=store.filesystem, columns=["*"])


def test_without_boto3_all_bytes_travel_and_the_command_says_so(
    store: ObjectStore, tmp_path: Path, big: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_boto3(monkeypatch)
    monkeypatch.setitem(sys.modules, "boto3", None)
    store.put("data/x.parquet", big)
    assert run(["add", store.uri("data/x.parquet"), "-c", "id", "-o", store.uri("data/y.parquet")]) == 0
    out = capsys.readouterr().out
    assert "travelled: boto3 is not installed (" in out
    assert "tests-secret" not in out
    assert store.get("data/y.parquet") == locally(tmp_path, big, columns=["id"])


def test_a_role_that_pyarrow_assumes_is_the_reason_with_and_without_boto3(
    small: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installing boto3 would not help, so nobody is told to."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # the role is asked for at once, and nobody answers
    role = objects(role_arn="arn:aws:iam::1:role/x", session_name="s", external_id="e", region="us-east-1")
    (tmp_path / "x.parquet").write_bytes(small)

    def why(filesystem: fs.FileSystem) -> str:
        with OpenFile(tmp_path / "x.parquet") as source:
            how = Writing(overwrite=False, sync=False, force=False)
            target = Target(Location("data/y.parquet", filesystem), how)
            assert target.disk_needed(source, 5) == source.size + 5, "a local file is made of it first"
            with target.begin(source, needed=0) as new:
                return new.transfer.why

    assert why(role).startswith("pyarrow assumes the role of role_arn itself")
    assert "give access_key, secret_key and session_token" in why(role)
    assert why(fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem("memory")))).startswith("this file system cannot")
    without_boto3(monkeypatch)
    assert why(role).startswith("pyarrow assumes the role of role_arn itself")
    assert why(objects(region="us-east-1")).startswith("boto3 is not installed (pip install ")


FORGETS = """
import importlib.util, sys
import parquet_bloom, parquet_bloom.storage.open_file as storage
from parquet_bloom.storage.remote import Objects
from parquet_bloom.errors import StorageError

importlib.util.find_spec = lambda name: None
looks = []

def changed(self):
    looks.append(1)
    if len(looks) == 2:  # when all was sent
        raise StorageError(self.path, "changed")

storage.OpenFile.check_unchanged = changed
try:
    parquet_bloom.add_filters("data/x.parquet", "data/y.parquet", filesystem=Objects("s3", dict(
        endpoint_override=sys.argv[1], scheme="http", access_key="a", secret_key="b", region="us-east-1")))
except StorageError as error:
    print(error)
"""


def test_without_boto3_the_end_of_the_process_publishes_nothing_either(store: ObjectStore, small: bytes) -> None:
    store.put("data/x.parquet", small)
    endpoint = store.endpoint.removeprefix("http://")
    done = subprocess.run([sys.executable, "-c", FORGETS, endpoint], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "data/x.parquet: changed\n", "")
    assert store.names("data") == ["x.parquet"]


def control_c() -> None:
    """To the main thread, which is the one that Python tells of it, whichever thread asks."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


@pytest.fixture
def given_up(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Wait until the main thread has told the thread that uploads to give up: it may be slow to wake."""
    uploads: list[UploadedFile] = []
    commit = UploadedFile.commit

    def noted(self: UploadedFile, *arguments: Any) -> None:
        uploads.append(self)
        commit(self, *arguments)

    def wait() -> None:
        while not uploads[0]._given_up:
            time.sleep(0.005)

    monkeypatch.setattr(UploadedFile, "commit", noted)
    return wait


@pytest.mark.parametrize(
    ("boto3", "when", "what"),
    [
        (True, "COPY", "control-c"),
        (False, "PUT", "control-c"),
        (False, "complete", "control-c"),
        (False, "PUT", "other"),
    ],
)
def test_what_does_not_end_publishes_nothing(
    store: ObjectStore, tmp_path: Path, big: bytes, monkeypatch: pytest.MonkeyPatch,
    given_up: Callable[[], None], boto3: bool, when: str, what: str,
) -> None:  # fmt: skip
    """While bytes are copied or sent. pyarrow publishes when a stream is closed or forgotten: so it is neither.

    When all was sent and the stream is being closed, the new object is there, whole; never a part of it.
    """
    store.put("data/x.parquet", big)

    def interrupt() -> None:
        control_c()
        if not boto3:  # the store answers when the main thread has given up
            given_up()

    if not boto3:
        without_boto3(monkeypatch)
    at_once(store, when, interrupt if what != "other" else lambda: store.put("data/x.parquet", big[:-1] + b"?"))
    with pytest.raises((KeyboardInterrupt, StorageError), match="^$" if what != "other" else "changed by another prog"):
        parquet_bloom.add_filters("data/x.parquet", "data/y.parquet", columns=["id"], filesystem=store.filesystem)
    # A machine so busy that the client gave the store up after ten seconds leaves nothing behind instead.
    if when == "complete" and "y.parquet" in store.names("data"):
        assert store.get("data/y.parquet") == locally(tmp_path, big, columns=["id"])
    else:
        assert store.names("data") == ["x.parquet"]
    assert not boto3 or store.uploads("data") == []


def test_the_command_line(store: ObjectStore, big: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    store.put("data/x.parquet", big)
    uri = store.uri("data/x.parquet")
    assert run(["add", uri, "--column", "id", "--in-place"]) == 0
    assert "KiB travelled, 12." in (out := capsys.readouterr().out)
    assert "MiB copied inside the store" in out
    assert run(["inspect", uri]) == 0
    assert "16,000 rows, 4 row groups, 4 filters" in capsys.readouterr().out
    assert run(["verify", uri]) == 0
    assert "4 filters, none wrong" in capsys.readouterr().out
    assert run(["remove", uri, "--in-place"]) == 0
    assert store.get("data/x.parquet") == big
    options = f"region=us-east-1&scheme=http&endpoint_override={store.endpoint.removeprefix('http://')}"
    environment = {
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/none", "AWS_SHARED_CREDENTIALS_FILE": "/none",
    }  # fmt: skip
    done = command("add", f"s3://data/x.parquet?{options}", "-c", "id", "--in-place", **environment)
    assert (done.returncode, done.stderr) == (0, ""), "credentials from the environment"
    assert "copied inside the store" in done.stdout
    environment.update(AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
    done = command("inspect", f"s3://none/x.parquet?{options}", **environment)
    assert (done.returncode, error_lines(done.stderr)) == (2, 1), "without credentials: one line"


# --- parts ----------------------------------------------------------------------------------------


def made_of(parts: list[Part], pieces: list[Extent]) -> None:
    """Check the store's limits, and that copied bytes are the right ones."""
    assert [p.at for p in parts[1:]] == [p.stop for p in parts[:-1]]
    assert (parts[0].at, parts[-1].stop) == (0, pieces[-1].stop)
    assert all(LEAST <= p.stop - p.at <= MOST for p in parts[:-1])
    assert len(parts) <= MOST_PARTS
    starts = [piece.at for piece in pieces]
    for part in parts:
        if part.origin is not None:
            piece = pieces[bisect_right(starts, part.at) - 1]
            assert piece.copied
            assert part.stop <= piece.stop
            assert part.origin - piece.origin == part.at - piece.at


def test_parts_keep_the_store_s_limits() -> None:
    mib = 1 << 20
    one = [Extent(0, 12 * mib, 0, True), Extent(12 * mib, 12 * mib + 99, 0, False)]
    parts = plan_parts(one)
    made_of(parts, one)
    assert [p.origin for p in parts] == [0, None]
    short = [Extent(0, 4 * mib, 0, True), Extent(4 * mib, 5 * mib, 0, False)]
    assert [p.origin for p in plan_parts(short)] == [None], "what is too short to be copied is sent"
    huge = [Extent(0, 3 << 40, 0, True), Extent(3 << 40, (3 << 40) + 5, 0, False)]
    made_of(plan_parts(huge), huge)
    rng = np.random.default_rng(3)
    for _ in range(50):
        pieces, at, origin = [], 0, 0
        for i in range(rng.integers(1, 40)):
            n = int(rng.integers(1, 40 * mib))
            pieces.append(Extent(at, at + n, origin, bool(i % 2 == 0)))
            at, origin = at + n, origin + int(rng.integers(1, mib)) + n
        made_of(plan_parts(pieces), pieces)
    many = [Extent(i * 11 * mib, (i + 1) * 11 * mib, i * 12 * mib, bool(i % 2)) for i in range(12_000)]
    made_of(plan_parts(many), many)


# --- other file systems ---------------------------------------------------------------------------


def test_fsspec_in_memory(tmp_path: Path, small: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pipe("/d/in/k=1/x.parquet", small)
    assert [f.partitions for f in expand("/d/in", memory)] == [(("k", "1"),)]
    report = parquet_bloom.add_filters("/d/in", "/d/out", filesystem=memory, columns=["*"])
    assert report.files[0].output == "/d/out/k=1/x.parquet"
    assert "parts" in report.files[0].why_travelled
    assert memory.cat("/d/out/k=1/x.parquet") == locally(tmp_path, small)
    assert not parquet_bloom.verify("memory://d/out", filesystem=memory).files[0].wrong
    parquet_bloom.remove_filters(
        "/d/out/k=1/x.parquet", in_place=True, filesystem=fs.PyFileSystem(fs.FSSpecHandler(memory))
    )
    assert memory.cat("/d/out/k=1/x.parquet") == small
    assert len(memory.find("/d")) == 2, "nothing else is left"
    assert run(["inspect", "memory://d/in/k=1/x.parquet"]) == 0
    assert "memory://d/in/k=1/x.parquet: 1,200 rows, 3 row groups, no filter" in capsys.readouterr().out
    memory.store.clear()


def test_what_is_kept_in_memory_is_no_end_of_a_file() -> None:
    memory = fsspec.filesystem("memory")
    data = bytes(range(256)) * 2048
    memory.pipe("/kept/x.bin", data)
    with OpenFile("/kept/x.bin", memory) as source:
        source.prefetch([(0, 1000), (200_000, 5000)])
        for at, length in ((0, 1000), (500, 1000), (900, 300_000), (204_999, 2), (200_000, 5000), (205_000, 1)):
            assert source.read(at, length) == data[at : at + length]
    memory.rm("/kept", recursive=True)


def test_an_object_that_another_program_replaced_meanwhile_stays(small: bytes) -> None:
    """On a storage that neither swaps names nor compares versions, the last look is all there is."""
    memory = fsspec.filesystem("memory")
    memory.pipe("/replaced/x.parquet", small)
    newer = small + b"newer"

    def replaced(*_: object) -> None:
        memory.pipe("/replaced/x.parquet", newer)

    with pytest.raises(ConflictError, match="was changed by another program meanwhile; nothing was written"):
        parquet_bloom.add_filters(
            "/replaced/x.parquet", filesystem=memory, columns=["*"], in_place=True, progress=replaced
        )
    assert memory.cat("/replaced/x.parquet") == newer
    memory.rm("/replaced", recursive=True)


def test_fsspec_s_own_errors_are_ours(small: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pipe("/d/x.parquet", small)

    class OddError(Exception):
        pass

    def fail(*_: object, **__: object) -> bytes:
        raise OddError("no credentials\nsecond line")

    monkeypatch.setattr(type(memory), "cat_file", fail)
    with pytest.raises(StorageError, match=r"^/d/x.parquet: no credentials$"):
        parquet_bloom.inspect("/d/x.parquet", filesystem=memory)
    monkeypatch.undo()
    monkeypatch.setattr(type(memory), "cp_file", fail)
    with pytest.raises(StorageError, match="no credentials"):
        parquet_bloom.add_filters("/d/x.parquet", in_place=True, filesystem=memory, columns=["*"])
    assert memory.find("/d") == ["/d/x.parquet"]
    assert memory.cat("/d/x.parquet") == small
    memory.store.clear()


def test_local_file_systems_are_local(tmp_path: Path, small: bytes) -> None:
    (tmp_path / "x.parquet").write_bytes(small)
    local = fs.LocalFileSystem()
    for filesystem, folder in (
        (local, f"{tmp_path}/"), (fs.SubTreeFileSystem(str(tmp_path), local), ""),
        (fsspec.filesystem("file"), f"{tmp_path}/"),
    ):  # fmt: skip
        assert locate(f"{folder}x.parquet", filesystem).filesystem is None
        options: dict[str, Any] = {"filesystem": filesystem, "sync": False, "columns": ["*"], "overwrite": True}
        report = parquet_bloom.add_filters(f"{folder}x.parquet", f"{folder}y.parquet", **options)
        assert report.files[0].output == f"{folder}y.parquet", "as it was named"
        assert (tmp_path / "y.parquet").read_bytes() == locally(tmp_path, small)
        assert parquet_bloom.inspect(f"file://{tmp_path}/y.parquet").files[0].path == f"{tmp_path}/y.parquet"
        (tmp_path / "y.parquet").unlink()


def test_a_subtree_of_another_storage(store: ObjectStore, small: bytes) -> None:
    store.put("data/in/x.parquet", small)
    below = fs.SubTreeFileSystem("data/in", store.filesystem.arrow)
    report = parquet_bloom.add_filters("x.parquet", "y.parquet", filesystem=below, columns=["*"])
    assert report.files[0].output == "y.parquet"
    assert store.names("data") == ["in/x.parquet", "in/y.parquet"]


class NoOverwritingMove(fs.SubTreeFileSystem):
    """As HDFS: `move` refuses where something is."""

    def move(self, src: str, dest: str) -> None:
        if self.get_file_info(dest).type != fs.FileType.NotFound:
            raise OSError("exists")
        super().move(src, dest)


def test_where_move_does_not_replace_the_old_file_steps_aside(tmp_path: Path) -> None:
    from parquet_bloom.output.target import _move

    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "new").write_bytes(b"new")
    _move(NoOverwritingMove(str(tmp_path), fs.LocalFileSystem()), "new", "old")
    assert [p.name for p in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_bytes() == b"new"


def test_importing_what_reads_needs_no_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def guarded(name: str, *rest: object, **more: object) -> object:
        assert name.split(".")[0] not in {"boto3", "botocore"}
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", guarded)
    with pytest.raises(StorageError):
        parquet_bloom.add_filters("/none.parquet", in_place=True, columns=["*"])

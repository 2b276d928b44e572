"""Objects of Azure through obstore: one request each after a listing, configured as pyarrow is."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import pytest
from pyarrow import fs
from storage.test_object_lies import LIES
from support.azure_store import ACCOUNT, KEY, RecordingAzure, on, options, sas, serving
from support.object_store import objects, reading_by
from support.recording_store import Answer, Asked, running

import parquet_bloom
from parquet_bloom.errors import FileChangedError, NotParquetError, ParquetBloomError, StorageError
from parquet_bloom.process import Recent
from parquet_bloom.storage import object_reader
from parquet_bloom.storage.object_azure import settings_of
from parquet_bloom.storage.object_settings import InexpressibleError
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.stores import Stores

LARGE = bytes(range(256)) * 1000
NAMES = ["a b#c%20d+e=1.parquet", "year=2026/über/ü.parquet", "100%.parquet", "a'b(c)!~&.parquet"]


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("azurite")) as address:
        made = on(address).arrow
        for container in ("data", "names", "empty"):
            made.create_dir(container)
        yield address


@pytest.fixture
def store(upstream: str, data: bytes) -> Iterator[RecordingAzure]:
    with running(RecordingAzure(upstream=upstream)) as there:
        for number in range(3):
            there.put(f"data/in/{number}.parquet", data)
        there.put("data/large", LARGE)
        yield there


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No store is known yet, and nothing is configured."""
    for name in list(os.environ):
        if name.startswith(("AZURE_", "IDENTITY_", "MSI_")) or "proxy" in name.lower():
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with reading_by("obstore"):
        yield


def uri(store: RecordingAzure, path: str = "data/in/0.parquet", **query: str) -> str:
    more = "&".join(f"{name}={quote(value, '')}" for name, value in query.items())
    return f"abfs://{ACCOUNT}@127.0.0.1:{store.port}/{path}?enable_tls=false&{more}".rstrip("&")


def at(store: RecordingAzure) -> str:
    return f"127.0.0.1:{store.port}"


def rows(store: RecordingAzure, path: str = "data/in/0.parquet", **more: Any) -> int:
    return parquet_bloom.inspect(path, filesystem=on(at(store), **more)).files[0].rows


# --- requests -------------------------------------------------------------------------------------


def test_a_single_object(store: RecordingAzure) -> None:
    """Azure knows no requests for last bytes: HEAD tells the size."""
    assert rows(store) == 1200
    assert store.methods() == ["HEAD", "GET"]


def test_a_folder_costs_one_listing_and_one_request_an_object(store: RecordingAzure) -> None:
    """And one HEAD in a process for each container: whether listings and answers tell one version is looked at."""
    for source in ("data/in", "data/in/*.parquet", "data/i*"):
        with reading_by("obstore"):
            filesystem = on(at(store))
            store.asked.clear()
            for _ in range(2):
                assert not any(v.skipped for v in parquet_bloom.check(source, "id >= 0", filesystem=filesystem))
            assert store.methods() == ["HEAD"] + ["GET"] * 6, source
            assert all(one.headers["if-match"].startswith('"0x') for one in store.of_objects()[1:])


def relisted(store: RecordingAzure, old: bytes, new: bytes) -> None:
    """Let listings say something else."""

    def wrong(_: Asked, answer: Answer) -> None:
        assert answer.body is not None
        answer.body = answer.body.replace(old, new)

    store.lists = wrong


def test_a_listing_of_other_versions_is_not_believed(store: RecordingAzure) -> None:
    relisted(store, b"<Etag>0x", b"<Etag>0x0")
    assert parquet_bloom.count("data/in", "id >= 0 OR id < 0", filesystem=on(at(store))) == 3600
    assert store.methods().count("HEAD") == 4


def test_later_reads_name_the_etag(store: RecordingAzure) -> None:
    with OpenFile("data/large", on(at(store))) as source:
        assert source.is_of_one_version
        assert source.read(1000, 5000) == LARGE[1000:6000]
        assert store.asked[-1].headers["range"] == "bytes=1000-5999"
        assert source.etag == store.asked[-1].headers["if-match"]
        store.put("data/large", LARGE)
        with pytest.raises(FileChangedError, match="large"):
            source.read(1000, 5000)
        on(store.upstream).arrow.delete_file("data/large")
        with pytest.raises(FileChangedError, match="large"):  # a condition that does not hold, Azure says
            source.read(1000, 5000)


def test_a_source_sees_a_change_between_two_questions(store: RecordingAzure, data: bytes) -> None:
    source = parquet_bloom.Source("data/in", filesystem=on(at(store)))
    assert source.count("id >= 0 OR id < 0") == 3600
    store.put("data/in/2.parquet", data)
    with pytest.raises(FileChangedError, match=r"in/2\.parquet"):
        source.count("id >= 0 OR id < 0")


def test_pyarrow_reads_with_more(store: RecordingAzure) -> None:
    with reading_by("pyarrow"):
        assert rows(store) == 1200
        assert store.methods() == ["HEAD", "GET"]
        store.asked.clear()
        parquet_bloom.check("data/in", "id >= 0", filesystem=on(at(store)))
        assert store.methods().count("HEAD") == store.methods().count("GET") == 3


def test_a_token_is_the_same_whoever_reads(store: RecordingAzure) -> None:
    filesystem = on(at(store))
    with OpenFile("data/large", filesystem) as one:
        with reading_by("pyarrow"), OpenFile("data/large", filesystem) as other:
            assert one.version_token == other.version_token
            assert one.lasting_token() == other.lasting_token()
            assert one.etag == other.etag
        one.check_unchanged()
        store.put("data/large", LARGE)
        with pytest.raises(StorageError, match="changed"):
            one.check_unchanged()
        with reading_by("pyarrow"), pytest.raises(StorageError, match="changed"):
            one.check_unchanged()


def test_names_of_all_kinds(store: RecordingAzure, data: bytes) -> None:
    for name in NAMES:
        store.put(f"names/in/{name}", data)
        store.asked.clear()
        assert rows(store, f"names/in/{name}") == 1200, name
        assert parquet_bloom.count(uri(store, quote(f"names/in/{name}"), sig=sas_of("sig"), **sas_rest())) == 1200, name
        assert store.methods()[:2] == ["HEAD", "GET"], name
    on(store.upstream).arrow.delete_dir("names/in")


def sas_of(name: str) -> str:
    return parse_qs(sas())[name][0]


def sas_rest() -> dict[str, str]:
    return {name: sas_of(name) for name in ("sv", "ss", "srt", "sp", "st", "se", "spr")}


def test_an_empty_object_may_be_a_folder(store: RecordingAzure) -> None:
    """A folder of a hierarchical namespace answers as one does: a listing tells."""
    store.put("empty/e.parquet", b"")
    filesystem = on(at(store))
    with pytest.raises(NotParquetError, match=r"e\.parquet"):
        parquet_bloom.inspect("empty/e.parquet", filesystem=filesystem)
    assert parquet_bloom.inspect("data/in/0.parquet", filesystem=filesystem).files[0].rows == 1200
    assert [one.method for one in store.of_objects() if one.key == "data/in/0.parquet"] == ["HEAD", "GET"]


def test_a_lie_is_an_error(store: RecordingAzure) -> None:
    for name, lie in LIES.items():
        store.wrong = None
        with reading_by("obstore"), OpenFile("data/large", on(at(store))) as source:
            store.wrong = lie
            said = ""
            try:
                source.read(1000, 5000)
            except ParquetBloomError as error:
                said = str(error)
            assert "data/large" in said, name


def test_a_listing_that_lies_is_an_error(store: RecordingAzure) -> None:
    """A size that is not the object's: each read is of the version that the listing named, and shows its size."""
    filesystem = on(at(store))
    relisted(store, b"<Content-Length>", b"<Content-Length>1")
    assert parquet_bloom.count("data/in", "id >= 0 OR id < 0", filesystem=filesystem) == 3600, "it is not believed"
    object_reader._process.own.kept = Recent(1)
    store.lists, filesystem = None, on(at(store))
    assert parquet_bloom.count("data/in", "id >= 0 OR id < 0", filesystem=filesystem) == 3600, "this one is"
    relisted(store, b"<Content-Length>", b"<Content-Length>1")
    with pytest.raises(ParquetBloomError):
        parquet_bloom.count("data/in", "id = 5", filesystem=filesystem)


def test_a_listing_that_names_objects_of_another_folder_is_refused(store: RecordingAzure) -> None:
    relisted(store, b"<Name>in/1.parquet<", b"<Name>up/1.parquet<")
    with pytest.raises(StorageError, match="its listing names 'up/1.parquet', which is not in it"):
        parquet_bloom.count("data/in", "id = 5", filesystem=on(at(store)))


# --- configuration --------------------------------------------------------------------------------


def test_a_signature(store: RecordingAzure) -> None:
    for token in (sas(), f"?{sas()}"):
        store.asked.clear()
        assert rows(store, sas_token=token) == 1200
        assert store.methods() == ["HEAD", "GET"]
        assert all("sig=" in one.target and "authorization" not in one.headers for one in store.of_objects())
    store.asked.clear()
    assert parquet_bloom.count(f"{uri(store)}&{sas()}") == 1200
    assert store.methods() == ["HEAD", "GET"]


def test_without_signatures(store: RecordingAzure, caplog: pytest.LogCaptureFixture) -> None:
    """Azurite refuses such requests here: who was asked as whom is what counts."""
    caplog.set_level(logging.INFO, "parquet_bloom")
    with pytest.raises(StorageError):
        parquet_bloom.count(uri(store, credential_kind="anonymous"))
    assert "HEAD" in {one.method for one in store.asked}
    assert not [one for one in store.asked if "authorization" in one.headers]


@pytest.fixture
def machine(store: RecordingAzure, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let the identity of a machine, which a server beside it tells, be this token's; for both libraries."""
    for name in ("IDENTITY_ENDPOINT", "AZURE_MSI_ENDPOINT"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{store.port}/token")
    monkeypatch.setenv("IDENTITY_HEADER", "secret")

    def has(token: str) -> None:
        until = str(int(time.time()) + 3600)
        answer = {"access_token": token, "expires_on": until, "resource": "r", "token_type": "Bearer"}
        store.other["/token"] = json.dumps(answer).encode()

    return has


def start_of_large(store: RecordingAzure, **more: str) -> bytes:
    with OpenFile("data/large", objects("abfs", **options(at(store), **more))) as source:
        return source.read(0, 3)


def test_a_token_of_azure_identity(store: RecordingAzure, machine: Callable[[str], None]) -> None:
    """The default credential."""
    pytest.importorskip("azure.identity")
    machine("of-machine")
    assert start_of_large(store) == LARGE[:3]
    assert [one.headers["authorization"] for one in store.of_objects()] == ["Bearer of-machine"] * 2
    assert sum("/token" in one.target for one in store.asked) == 1, "it is kept"
    machine("of-another")
    store.asked.clear()
    assert start_of_large(store) == LARGE[:3]
    assert {one.headers["authorization"] for one in store.of_objects()} == {"Bearer of-another"}, "of who asks now"


def test_a_token_that_takes_its_time_keeps_nobody_else_waiting(
    store: RecordingAzure, machine: Callable[[str], None]
) -> None:
    pytest.importorskip("azure.identity")
    machine("x")
    store.waits_for.clear()
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(start_of_large, store)
        while not any("/token" in one.target for one in store.asked):
            time.sleep(0.01)
        try:
            assert pool.submit(start_of_large, store, sas_token=sas()).result(10) == LARGE[:3]
            assert not slow.done()
        finally:
            store.waits_for.set()
        assert slow.result(20) == LARGE[:3]


def test_without_azure_identity_obstore_asks_for_tokens(
    store: RecordingAzure, machine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("IDENTITY_ENDPOINT", "IDENTITY_HEADER"):
        monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    machine("of-machine")
    for more in ({}, {"client_id": "c"}):
        store.asked.clear()
        assert start_of_large(store, **more) == LARGE[:3]
        assert {one.headers["authorization"] for one in store.of_objects()} == {"Bearer of-machine"}


def test_the_kind_of_credential_of_a_uri(store: RecordingAzure, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer, pyarrow's file system, has the same one."""
    for name in ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE"):
        monkeypatch.setenv(name, "x")
    for kind in ("anonymous", "environment", "cli", "workload_identity"):
        text = uri(store, credential_kind=kind)
        ours, _ = Stores().locate(text)
        assert ours.filesystem.arrow.equals(fs.FileSystem.from_uri(text)[0]), kind


def test_endpoints() -> None:
    for authority, endpoint in (
        (".blob.core.windows.net", "https://acct.blob.core.windows.net"),
        (".blob.core.chinacloudapi.cn", "https://acct.blob.core.chinacloudapi.cn"),
        ("blobs.example:8443", "https://blobs.example:8443/acct"),
    ):
        given = {"account_name": "acct", "account_key": KEY, "blob_storage_authority": authority}
        assert settings_of(given, "data").config["endpoint"] == endpoint


def test_what_cannot_be_told(store: RecordingAzure, monkeypatch: pytest.MonkeyPatch) -> None:
    given = on(at(store)).settings
    for change, container, reason in (
        ({"speed": "high"}, "data", "speed"),
        ({}, "$root", "container"),
        ({}, "", "con"),
    ):
        with pytest.raises(InexpressibleError, match=reason):
            settings_of({**given, **change}, container)
    monkeypatch.setenv("AZURE_ENCRYPTION_KEY", "x")
    with pytest.raises(InexpressibleError, match="AZURE_ENCRYPTION_KEY"):
        settings_of(given, "data")


def test_variables_that_obstore_alone_knows_change_nothing(
    store: RecordingAzure, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "AZURE_SKIP_SIGNATURE": "true", "AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:9", "AZURE_STORAGE_TOKEN": "t",
        "AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=2", "AZURE_STORAGE_ACCOUNT_NAME": "other", "AZURE_TIMEOUT": "1ms",
        "AZURE_STORAGE_USE_EMULATOR": "true", "AZURE_PROXY_URL": "http://127.0.0.1:9", "AZURE_CREDENTIAL_TYPE": "auto",
        "AZURE_STORAGE_ACCOUNT_KEY": "AAAA", "AZURE_CONTAINER_NAME": "other", "AZURE_ALLOW_HTTP": "false",
        "HTTP_PROXY": "http://127.0.0.1:9",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    assert rows(store) == 1200
    assert store.methods() == ["HEAD", "GET"]
    assert all(one.headers["authorization"].startswith(f"SharedKey {ACCOUNT}:") for one in store.of_objects())


@pytest.mark.parametrize(("variable", "direct"), [("http_proxy", ""), ("all_proxy", "127.0.0.0/8")])
def test_the_proxy_of_the_environment_is_libcurls(
    store: RecordingAzure, monkeypatch: pytest.MonkeyPatch, variable: str, direct: str
) -> None:
    with running(RecordingAzure(upstream=store.upstream, objects=store.objects)) as proxy:
        monkeypatch.setenv(variable, f"http://{proxy.endpoint}")
        monkeypatch.setenv("no_proxy", direct)
        filesystem = on(at(store))
        with reading_by("pyarrow"):
            rows(store)
        both = (store.methods(), proxy.methods())
        assert parquet_bloom.inspect("data/in/0.parquet", filesystem=filesystem).files[0].rows == 1200
        assert (store.methods(), proxy.methods()) == (both[0] * 2, both[1] * 2), "as pyarrow does"
        assert bool(both[0]) == bool(direct)

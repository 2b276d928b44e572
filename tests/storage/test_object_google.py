"""Objects of Google's storage through obstore: one request each, configured as pyarrow is."""

from __future__ import annotations

import datetime as dt
import json
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from storage.test_object_lies import LIES
from support.google_store import RecordingGoogle, asking, filled, generation, levels, serving
from support.object_store import objects, reading_by
from support.programs import program
from support.recording_store import Answer, Asked, recording, running

import parquet_bloom
from parquet_bloom.errors import FileChangedError, ParquetBloomError, StorageError
from parquet_bloom.spark.listing import list_named
from parquet_bloom.spark.storages import Storages
from parquet_bloom.storage.object_google import settings_of
from parquet_bloom.storage.object_settings import InexpressibleError
from parquet_bloom.storage.open_file import OpenFile

LARGE = bytes(range(256)) * 1000


@pytest.fixture
def store(data: bytes) -> Iterator[RecordingGoogle]:
    with running(RecordingGoogle()) as there:
        there.objects.update({f"data/in/{number}.parquet": data for number in range(3)})
        there.objects["data/large"] = LARGE
        yield there


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No store is known yet, and nothing is configured."""
    for name in list(os.environ):
        if name.startswith(("GOOGLE_", "GCE_", "CLOUD_STORAGE_")) or "proxy" in name.lower():
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with reading_by("obstore"):
        yield


def rows(store: RecordingGoogle, **more: object) -> int:
    return parquet_bloom.inspect("data/in/0.parquet", filesystem=asking(store, **more)).files[0].rows


def in_a_process(store: RecordingGoogle, code: str, by_pyarrow: bool = True) -> str:
    """For requests of pyarrow's, which waits for them with the GIL held."""
    start = f"""
        import datetime as dt, os, signal, sys, warnings
        import parquet_bloom
        from parquet_bloom.storage import object_reader
        from parquet_bloom.storage.open_file import OpenFile
        from parquet_bloom.storage.remote import Objects
        def asking():
            limit = dt.timedelta(seconds=5)
            return Objects("gcs", dict(
                scheme="http", endpoint_override={store.endpoint!r}, retry_time_limit=limit, anonymous=True))
        object_reader._process.own.forked = {by_pyarrow}
    """
    done = program(textwrap.dedent(start) + textwrap.dedent(code))
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


# --- requests -------------------------------------------------------------------------------------


def test_one_request_an_object(store: RecordingGoogle) -> None:
    """Of the last 64 KiB; a folder costs listings beside."""
    assert rows(store) == 1200
    [asked] = store.of_objects()
    assert (asked.method, asked.headers["range"]) == ("GET", "bytes=-65536")
    store.asked.clear()
    assert not any(v.skipped for v in parquet_bloom.check("data/in", "id >= 0", filesystem=asking(store)))
    assert store.methods() == ["GET"] * 3


def test_a_uri(store: RecordingGoogle) -> None:
    uri = f"gs://anonymous@data/in/0.parquet?scheme=http&endpoint_override={store.endpoint}"
    assert parquet_bloom.count(uri) == 1200
    assert store.methods() == ["GET"]


def test_later_reads_name_the_generation(store: RecordingGoogle) -> None:
    with OpenFile("data/large", asking(store)) as source:
        assert source.is_of_one_version
        assert source.read(1000, 5000) == LARGE[1000:6000]
        assert store.asked[-1].target.endswith(f"?generation={generation(LARGE)}")
        assert store.asked[-1].headers["range"] == "bytes=1000-5999"
        store.objects["data/large"] = LARGE[::-1]
        with pytest.raises(FileChangedError, match="large"):
            source.read(1000, 5000)
        assert source.read(source.size - 10, 10) == LARGE[-10:], "the end is here"
        del store.objects["data/large"]
        with pytest.raises(FileChangedError, match="large"):
            source.read(1000, 5000)


def test_pyarrow_reads_with_more(store: RecordingGoogle) -> None:
    """What is saved: a request for the description, and one that pyarrow begins and does not end."""
    code = 'print(parquet_bloom.inspect("data/in/0.parquet", filesystem=asking()).files[0].rows)'
    assert in_a_process(store, code) == "1200\n"
    assert store.methods() == ["HEAD", "GET", "GET"]


def test_a_token_is_the_same_whoever_reads(store: RecordingGoogle) -> None:
    """One that is kept, too: size and generation."""
    with OpenFile("data/large", asking(store)) as one:
        mine = one.lasting_token()
        one.check_unchanged()
        store.objects["data/large"] += b"x"
        with pytest.raises(StorageError, match="changed"):
            one.check_unchanged()
        store.objects["data/large"] = LARGE
    code = 'print(OpenFile("data/large", asking()).lasting_token())'
    assert in_a_process(store, code).strip() == str(mine) == str({"size": len(LARGE), "generation": generation(LARGE)})


def test_a_fork_reads_through_pyarrow(store: RecordingGoogle) -> None:
    code = """
        warnings.simplefilter("ignore")
        source = OpenFile("data/large", asking())
        child = os.fork()
        if not child:
            signal.alarm(60)
            print(source.read(0, 3), parquet_bloom.count("data/in/0.parquet", filesystem=asking()), flush=True)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print(source.read(0, 3), source.is_of_one_version)
    """
    said = in_a_process(store, code, by_pyarrow=False)
    assert said == "b'\\x00\\x01\\x02' 1200\nb'\\x00\\x01\\x02' True\n"
    assert store.methods().count("HEAD") == 2, "the child's"


# Of the first answer those that a request of pyarrow's follows: it would wait for the test with the GIL held.
PYARROWS = {"changed", "no XML", "gone", "broken off", "no ETag"}
HARMLESS = {"another ETag", "another time"}  # the generation is the version


def test_a_lie_is_an_error_or_changes_nothing(store: RecordingGoogle) -> None:
    for when, name in [("first", one) for one in LIES if one not in PYARROWS] + [("later", one) for one in LIES]:

        def wrong(asked: Asked, answer: Answer, when: str = when, name: str = name) -> None:
            if ("generation=" in asked.target) == (when == "later"):
                LIES[name](asked, answer)

        with reading_by("obstore"):
            store.wrong = None
            with OpenFile("data/in/0.parquet", asking(store)):
                pass  # this storage works, and is known to
            store.wrong = wrong
            try:
                with OpenFile("data/large", asking(store)) as source:
                    assert (source.size, source.read(1000, 5000)) == (len(LARGE), LARGE[1000:6000]), (when, name)
                noticed = False
            except ParquetBloomError as error:
                noticed = "data/large" in str(error)
            assert noticed == (when == "later" and name not in HARMLESS), (when, name)


def test_another_version_in_an_answer_is_noticed(store: RecordingGoogle) -> None:
    with OpenFile("data/large", asking(store)) as source:
        store.wrong = lambda _, answer: answer.headers.update({"x-goog-generation": "1"})
        with pytest.raises(FileChangedError, match="large"):
            source.read(1000, 5000)


def test_a_storage_without_generations_is_refused(store: RecordingGoogle) -> None:
    store.wrong = lambda _, answer: answer.headers.pop("x-goog-generation", None)
    with pytest.raises(StorageError, match="the store gives no generation of the object"):
        rows(store)


def test_an_emulator_that_has_one_api_alone(data: bytes) -> None:
    """gcp-storage-emulator, which obstore cannot read from: who hands a file system over reads there."""
    with serving() as endpoint, filled(endpoint, data) as gcs:
        assert parquet_bloom.count("data/d/top.parquet", filesystem=gcs) == 1200
        uri = f"gs://anonymous@data/d/top.parquet?scheme=http&endpoint_override={endpoint}"
        with pytest.raises(StorageError, match=r"gs://.*top\.parquet: "):
            parquet_bloom.count(uri)


def test_level_by_level_as_tasks_of_spark_list(data: bytes) -> None:
    """No folder is left out, though none has an object of its own."""
    with levels(data) as (store, settings):
        found = {path: kind for path, _, _, kind, _ in list_named("gs://data/d", Storages(settings), False)}
        assert len(store.asked) == 3, "HEAD, and two listings: it is a folder, and its level"
    assert found == {
        "gs://data/d/top.parquet": "file", "gs://data/d/year=2025": "folder", "gs://data/d/year=2026": "folder",
    }  # fmt: skip


# --- configuration --------------------------------------------------------------------------------


def test_a_token_that_is_given(store: RecordingGoogle) -> None:
    until = dt.datetime(2099, 1, 1, tzinfo=dt.UTC)
    assert rows(store, anonymous=False, access_token="a-token", credential_token_expiration=until) == 1200
    [asked] = store.of_objects()
    assert (asked.method, asked.headers["authorization"]) == ("GET", "Bearer a-token")


def test_the_account_of_a_machine(store: RecordingGoogle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's metadata server, which gives tokens."""
    token = "/computeMetadata/v1/instance/service-accounts/default/token"
    store.other[token] = json.dumps({"access_token": "of-machine", "expires_in": 3600, "token_type": "Bearer"}).encode()
    monkeypatch.setenv("GCE_METADATA_HOST", store.endpoint)
    with OpenFile("data/large", asking(store, anonymous=False)) as source:
        source.read(0, 10)
    assert [one.headers.get("authorization") for one in store.of_objects()] == ["Bearer of-machine"] * 2
    assert sum("computeMetadata" in one.target for one in store.asked) == 1, "a token is kept"


def test_the_key_of_a_service_account(store: RecordingGoogle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Application default credentials, of gcloud or a variable: a token is signed with it, nobody is asked for one."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    login = {
        "type": "service_account", "client_email": "reader@example.iam.gserviceaccount.com", "private_key_id": "k1",
        "private_key": key.decode(), "client_id": "1", "token_uri": "http://127.0.0.1:9/token",
    }  # fmt: skip
    path = tmp_path / ".config/gcloud/application_default_credentials.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(login))
    for place in ("gcloud", "variable"):
        if place == "variable":
            path = path.rename(tmp_path / "key.json")
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        store.asked.clear()
        with reading_by("obstore"), OpenFile("data/large", asking(store, anonymous=False)):
            pass
        [asked] = store.of_objects()
        assert asked.headers["authorization"].startswith("Bearer ey"), place


def test_what_cannot_be_told_is_refused(
    store: RecordingGoogle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Options, files of credentials, and variables that no argument overrides."""

    def refused(reason: str, **change: object) -> None:
        with pytest.raises(InexpressibleError, match=reason):
            settings_of({**asking(store).settings, **change}, "data")

    refused("target_service_account", target_service_account="other@example.iam.gserviceaccount.com")
    refused("endpoint_override", endpoint_override="http://127.0.0.1:9")
    refused("speed", speed="high")
    login = tmp_path / "login.json"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(login))
    for said in ({"type": "external_account"}, [], {"type": "service_account", "disable_oauth": 1}):
        login.write_text(json.dumps(said))
        refused("credentials", anonymous=False)
    login.unlink()
    refused("no file", anonymous=False)
    for variable in ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_BEARER_TOKEN", "GOOGLE_CLOUD_CPP_USER_PROJECT"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, "x")
            refused(variable)


def test_variables_that_obstore_alone_knows_change_nothing(
    store: RecordingGoogle, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "GOOGLE_BASE_URL": "http://127.0.0.1:9", "GOOGLE_SKIP_SIGNATURE": "false", "GOOGLE_BUCKET": "other",
        "GOOGLE_PROXY_URL": "http://127.0.0.1:9", "GOOGLE_TIMEOUT": "1ms", "GOOGLE_ALLOW_HTTP": "false",
        "HTTP_PROXY": "http://127.0.0.1:9",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    assert rows(store) == 1200
    assert store.methods() == ["GET"]


def test_an_emulator_of_the_environment(store: RecordingGoogle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's library asks there before it looks at the options; so both do."""
    for variable in ("CLOUD_STORAGE_EMULATOR_ENDPOINT", "CLOUD_STORAGE_TESTBENCH_ENDPOINT"):
        with monkeypatch.context() as patch, reading_by("obstore"):
            patch.setenv(variable, f"http://{store.endpoint}")
            other = objects("gcs", anonymous=True, scheme="http", endpoint_override="127.0.0.1:9")
            assert other.arrow.get_file_info("data/large").size == len(LARGE)
            store.asked.clear()
            assert parquet_bloom.inspect("data/in/0.parquet", filesystem=other).files[0].rows == 1200
            assert store.methods() == ["GET"]


PROXIES = [("http_proxy", ""), ("all_proxy", "example.com"), ("ALL_PROXY", "localhost"), ("http_proxy", "*")]


@pytest.mark.parametrize(("variable", "direct"), PROXIES)
def test_the_proxy_of_the_environment_is_libcurls(
    store: RecordingGoogle, data: bytes, monkeypatch: pytest.MonkeyPatch, variable: str, direct: str
) -> None:
    with running(RecordingGoogle()) as proxy:
        proxy.objects["data/in/0.parquet"] = data
        monkeypatch.setenv(variable, proxy.endpoint if variable == "http_proxy" else f"http://{proxy.endpoint}")
        monkeypatch.setenv("no_proxy", direct)
        filesystem = asking(store)
        assert filesystem.arrow.get_file_info("data/in/0.parquet").is_file
        assert rows(store) == 1200
        is_direct = direct in ("localhost", "*")
        assert (store if is_direct else proxy).methods() == ["HEAD", "GET"]
        assert (proxy if is_direct else store).methods() == []


def test_stores_of_two_kinds_with_one_name(store: RecordingGoogle, data: bytes) -> None:
    with recording() as s3:
        s3.objects["data/in/0.parquet"] = data
        other = objects(anonymous=True, scheme="http", endpoint_override=s3.endpoint, region="us-east-1")
        assert parquet_bloom.count("data/in/0.parquet", filesystem=other) == 1200
        assert rows(store) == 1200
        assert (s3.methods(), store.methods()) == (["GET"], ["GET"])


def test_a_proxy_has_no_part_in_the_machines_own_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a token of the machine's account would go through it in plain text."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "example.org")
    client = settings_of({}, "data").client
    assert client["proxy_url"] == "http://127.0.0.1:9"
    assert client["proxy_excludes"] == "example.org,metadata.google.internal,169.254.169.254"


def test_without_a_home_no_login_of_the_working_folder_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    login = tmp_path / ".config/gcloud/application_default_credentials.json"
    login.parent.mkdir(parents=True)
    login.write_text(
        json.dumps({"type": "authorized_user", "client_id": "x", "client_secret": "y", "refresh_token": "z"})
    )
    monkeypatch.chdir(tmp_path)
    assert "application_credentials" in settings_of({}, "data").config
    monkeypatch.delenv("HOME")
    assert "application_credentials" not in settings_of({}, "data").config

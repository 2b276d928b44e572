"""Objects of S3 through obstore: configured as pyarrow is, whatever else the environment says."""

from __future__ import annotations

import json
import logging
import os
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha1
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pyarrow import fs
from support.object_store import objects, reading_by
from support.programs import program
from support.recording_store import RecordingStore, keyed, recording

import parquet_bloom
from parquet_bloom.storage import object_reader
from parquet_bloom.storage.object_s3 import settings_of
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.remote import arrow_options
from parquet_bloom.storage.stores import Stores

NAMES = ["x.parquet", "a b#c%20d+e=1.parquet", "year=2026/über/ü.parquet", "100%.parquet", "a'b(c)!~&.parquet"]


@pytest.fixture
def store(data: bytes) -> Iterator[RecordingStore]:
    with recording() as running:
        running.objects["data/x.parquet"] = data
        yield running


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No store is known yet, and nothing is configured."""
    for name in list(os.environ):
        if name.startswith("AWS_") or "proxy" in name.lower():
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with reading_by("obstore"):
        yield


def rows(name: str, **options: Any) -> int:
    return parquet_bloom.inspect(name, **options).files[0].rows


def uri(store: RecordingStore, path: str = "data/x.parquet", keys: str = "k:s@", **options: str) -> str:
    given = {"scheme": store.scheme, "endpoint_override": store.endpoint, "region": "eu-north-1", **options}
    return f"s3://{keys}{path}?" + "&".join(f"{name}={quote(value)}" for name, value in given.items())


# --- options --------------------------------------------------------------------------------------


def test_requests_are_signed_as_the_options_say(store: RecordingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request each, and the environment's keys for nothing that has its own or wants none."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-environment")
    bare = {"anonymous": True, "scheme": "http", "endpoint_override": store.endpoint, "region": "us-east-1"}
    for what, options, signed_by, region, token in (
        (uri(store), {}, "k", "eu-north-1", None),
        (uri(store).replace("s3://", "s3a://"), {}, "k", "eu-north-1", None),  # as the Python client of Hadoop
        ("data/x.parquet", keyed(store, session_token="a-token"), "given-key", "eu-north-1", "a-token"),
        ("data/x.parquet", bare, "", "", None),  # as many public buckets are read
    ):
        store.asked.clear()
        assert rows(what, **({"filesystem": objects(**options)} if options else {})) == 1200
        [asked] = store.of_objects()
        assert (asked.method, asked.signed_by, asked.region) == ("GET", signed_by, region), what
        assert asked.headers.get("x-amz-security-token") == token, what
        assert asked.headers["range"] == "bytes=-65536"


def test_names_of_all_kinds(store: RecordingStore, data: bytes) -> None:
    for name in NAMES:
        store.objects = {f"data/in/{name}": data}
        store.asked.clear()
        assert rows(uri(store, quote(f"data/in/{name}"))) == 1200, name
        assert rows(f"data/in/{name}", filesystem=objects(**keyed(store))) == 1200, name
        assert rows(uri(store, "data/in")) == 1200, "found by a listing"
        assert store.methods() == ["GET"] * 3, name
    for name in ("a//x.parquet", "a/../x.parquet", "./x.parquet"):  # obstore takes them for paths
        store.objects = {f"data/{name}": data, "data/a/x.parquet": data, "data/x.parquet": data}
        store.asked.clear()
        with pytest.raises(parquet_bloom.StorageError, match="rename it"):
            rows(f"data/{name}", filesystem=objects(**keyed(store)))
        assert not store.of_objects(), "no other object is read in its place"


def test_a_proxy_that_is_given(store: RecordingStore, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")  # pyarrow asks its proxy all the same
    with recording() as proxy:
        proxy.objects["data/x.parquet"] = data
        given = {"scheme": "http", "host": "localhost", "port": proxy.port, "username": "user@x", "password": "p:s/"}
        assert rows("data/x.parquet", filesystem=objects(**keyed(store, proxy_options=given))) == 1200
        assert [(one.method, one.through) for one in proxy.of_objects()] == [("GET", True)]
        assert "proxy-authorization" in proxy.of_objects()[0].headers
        assert store.asked == []


@pytest.mark.parametrize(("variable", "host"), [("HTTP_PROXY", "localhost"), ("ALL_PROXY", "127.0.0.1")])
def test_proxies_of_the_environment_are_none_of_pyarrows(
    store: RecordingStore, monkeypatch: pytest.MonkeyPatch, variable: str, host: str
) -> None:
    """With NO_PROXY and without it."""
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.setenv(variable.lower(), "http://127.0.0.1:9")
    given = keyed(store, endpoint_override=f"{host}:{store.port}")
    assert rows("data/x.parquet", filesystem=objects(**given)) == 1200
    monkeypatch.setenv("NO_PROXY", host)
    assert rows("data/x.parquet", filesystem=objects(**{**given, "region": "us-east-1"})) == 1200
    assert store.methods() == ["GET", "GET"]


def test_variables_that_obstore_alone_knows_change_nothing(
    store: RecordingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "AWS_SKIP_SIGNATURE": "true", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9", "AWS_ENDPOINT": "http://127.0.0.1:9",
        "AWS_REQUEST_PAYER": "true", "AWS_PROXY_URL": "http://127.0.0.1:9", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
        "AWS_SESSION_TOKEN": "of-others", "AWS_ACCESS_KEY_ID": "of-others", "AWS_SECRET_ACCESS_KEY": "of-others",
        "AWS_ALLOW_HTTP": "false", "AWS_REGION": "ap-south-1", "AWS_TIMEOUT": "1ms", "AWS_BUCKET": "other",
        "AWS_HTTP2_ONLY": "true", "AWS_SERVER_SIDE_ENCRYPTION": "aws:kms", "AWS_SSE_KMS_KEY_ID": "a-key",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    assert rows("data/x.parquet", filesystem=objects(**keyed(store))) == 1200
    [asked] = store.of_objects()
    assert (asked.method, asked.signed_by, asked.region) == ("GET", "given-key", "eu-north-1")
    assert {"x-amz-security-token", "x-amz-request-payer"}.isdisjoint(asked.headers)
    assert not [name for name in asked.headers if "encryption" in name]


def test_the_endpoint_of_the_environment(store: RecordingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{store.endpoint}")
    assert rows("s3://k:s@data/x.parquet?region=eu-west-1") == 1200
    assert [(one.method, one.region) for one in store.of_objects()] == [("GET", "eu-west-1")]


def test_endpoints(store: RecordingStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Amazon's own, of a region and a bucket, and its other kinds; a host of one's own with the bucket in its name."""
    for bucket, region, endpoint, virtual in (
        ("my-data", "eu-north-1", "https://my-data.s3.eu-north-1.amazonaws.com", True),
        ("my.data", "us-east-1", "https://s3.us-east-1.amazonaws.com", False),
        ("data", "cn-north-1", "https://data.s3.cn-north-1.amazonaws.com.cn", True),
    ):
        config = settings_of({"access_key": "k", "secret_key": "s", "region": region}, bucket).config
        assert (config["endpoint"], config["virtual_hosted_style_request"]) == (endpoint, virtual)
    config = settings_of(keyed(store, force_virtual_addressing=True), "data").config
    assert (config["endpoint"], config["virtual_hosted_style_request"]) == (f"http://data.{store.endpoint}", True)
    given = {"access_key": "k", "secret_key": "s", "region": "us-east-1"}
    profiles(tmp_path, "[default]\nuse_dualstack_endpoint = true\n")
    with pytest.raises(OSError, match="set the variable AWS_USE_DUALSTACK_ENDPOINT"):
        settings_of(given, "data")
    for fips, dual, host in (
        ("true", "false", "s3-fips"), ("false", "true", "s3.dualstack"), ("true", "true", "s3-fips.dualstack"),
        ("false", "false", "s3"),
    ):  # fmt: skip
        monkeypatch.setenv("AWS_USE_FIPS_ENDPOINT", fips)
        monkeypatch.setenv("AWS_USE_DUALSTACK_ENDPOINT", dual)
        assert settings_of(given, "data").config["endpoint"] == f"https://data.{host}.us-east-1.amazonaws.com"


CANNOT: dict[str, tuple[dict[str, Any], str]] = {
    "a file of a CA that is not there": ({"tls_ca_file_path": "/no/ca.pem"}, r"/no/ca\.pem.*No such file"),
    "what a later pyarrow has": ({"speed": "high"}, "speed cannot be used here; leave it out, or give"),
    "another cloud": ({"endpoint_override": "", "region": "us-iso-east-1"}, "us-iso-east-1.*give endpoint_override"),
    "an old name of a region": ({"endpoint_override": "", "region": "aws-global"}, "region aws-global"),
    "half a key": ({"secret_key": ""}, "access_key and secret_key go together"),
}


def test_what_cannot_be_used_is_refused_in_one_line(store: RecordingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for change, reason in CANNOT.values():
        with pytest.raises(parquet_bloom.StorageError, match=f"data/x.parquet: .*{reason}") as caught:
            rows("data/x.parquet", filesystem=objects(**keyed(store, **change)))
        assert "given-secret" not in str(caught.value)
    for bucket in ("data--use1-az4--x-s3", "arn:aws:s3:eu-north-1:1:accesspoint", "a/b", ""):
        with pytest.raises(OSError, match="no bucket of S3's usual kind"):
            settings_of(keyed(store), bucket)
    monkeypatch.setenv("AWS_SSE_CUSTOMER_KEY_BASE64", "a2V5")  # no argument overrides it
    with pytest.raises(parquet_bloom.StorageError, match="AWS_SSE_CUSTOMER_KEY_BASE64 .* unset it"):
        rows(uri(store))
    assert store.asked == []


URIS = [
    "s3://k:s%2F@data/?region=eu-north-1&scheme=http&endpoint_override=localhost%3A9000",
    "s3://data/?region=eu-north-1&allow_bucket_creation=true&allow_delayed_open=false",
    "gs://anonymous@data/?scheme=http&endpoint_override=localhost:4443",
    "gs://data/?project_id=p&retry_limit_seconds=3",
    "abfs://data@acct.dfs.core.windows.net/",
    "abfss://acct.dfs.core.windows.net/data/",
    "abfs://acct@data/?enable_tls=false&tenant_id=t&client_id=c&client_secret=s",
    "abfs://acct.blob.core.windows.net/data/?sv=2020&sig=a%2Bb",
    "abfs://acct@data/?blob_storage_authority=localhost:1&dfs_storage_authority=localhost:1",
    "abfs://acct@127.0.0.1:10000/data/?enable_tls=false",
]


def test_a_uri_means_what_pyarrow_takes_it_for() -> None:
    """So that the writer, which is pyarrow's file system of the same settings, and the reader are of one storage."""
    for text in URIS:
        ours, path = Stores().locate(text)
        theirs, _ = fs.FileSystem.from_uri(text)
        given = {name: value for name, value in arrow_options(theirs).items() if value}
        mine = {name: value for name, value in arrow_options(ours.filesystem).items() if value}
        for options in (given, mine):  # pyarrow keeps the whole query as a signature
            options["sas_token"] = options.get("sas_token", "").removeprefix("?")
        assert {name: given.get(name) for name in mine} == mine, text
        assert ours.filesystem.arrow.type_name == theirs.type_name, text
        assert path.strip("/") in ("data", ""), text


def test_a_uri_that_says_nothing_is_refused() -> None:
    for text, reason in (
        ("s3://data/x?speed=1", "'speed'"), ("gs://me@data/x", "anonymous"), ("abfs://data/x", "names no account"),
        ("abfs://data@acct.dfs.core.windows.net/x?credential_kind=bad", "'bad'"),
        ("gs://data/x?retry_limit_seconds=never", "a number of seconds"), ("s3://k:s@/x?region=r", "names no bucket"),
        ("s3://data/x?region=r&anonymous=perhaps", "true or false"),
    ):  # fmt: skip
        with pytest.raises(parquet_bloom.RequestError, match=reason):
            parquet_bloom.inspect(text)


# --- other file systems, and which one reads ------------------------------------------------------


def test_a_file_system_that_is_handed_over_reads_itself(store: RecordingStore) -> None:
    assert rows("data/x.parquet", filesystem=fs.S3FileSystem(**keyed(store))) == 1200
    assert store.methods() == ["HEAD", "GET"]


def test_a_store_without_suffix_ranges(store: RecordingStore, caplog: pytest.LogCaptureFixture) -> None:
    """One that answers with the whole object: HEAD tells size and ETag, and does so at once for the next ones."""
    caplog.set_level(logging.INFO, "parquet_bloom")

    def whole(asked: Any, answer: Any) -> None:
        if asked.headers.get("range", "").startswith("bytes=-"):
            answer.status, answer.body = 200, store.objects[asked.key]
            answer.headers.pop("Content-Range")

    store.wrong = whole
    filesystem = objects(**keyed(store))
    assert rows("data/x.parquet", filesystem=filesystem) == 1200
    assert store.methods() == ["GET", "HEAD", "GET"]
    assert rows("data/x.parquet", filesystem=filesystem) == 1200
    assert store.methods()[3:] == ["HEAD", "GET"]
    assert "does not know requests for last bytes" in caplog.text


def test_a_store_without_etags_of_the_bytes(store: RecordingStore) -> None:
    for etag in (None, 'W/"1"'):

        def without(_: Any, answer: Any, etag: str | None = etag) -> None:
            answer.headers |= {"ETag": etag}
            if etag is None:
                del answer.headers["ETag"]

        store.wrong, store.objects["data/large"] = without, bytes(200_000)
        store.asked.clear()
        with OpenFile("data/large", objects(**keyed(store))) as source:
            assert source.read(0, 3) == bytes(3)
            assert not source.is_of_one_version, "its requests name no version"
            store.objects["data/large"] = b"x" * 200_001
            with pytest.raises(parquet_bloom.FileChangedError):
                source.read(3, 3)
        assert all("if-match" not in one.headers for one in store.of_objects())
        assert store.methods() == ["GET"] * 3


def test_an_empty_object_is_no_reason_to_give_up(store: RecordingStore) -> None:
    store.objects["data/empty.parquet"] = b""
    filesystem = objects(**keyed(store))
    with pytest.raises(parquet_bloom.NotParquetError, match=r"empty\.parquet"):
        rows("data/empty.parquet", filesystem=filesystem)
    assert rows("data/x.parquet", filesystem=filesystem) == 1200
    assert [one.method for one in store.of_objects() if one.key == "data/x.parquet"] == ["GET"]


def test_connections_are_kept_from_one_call_to_the_next(store: RecordingStore) -> None:
    for _ in range(3):
        assert rows(uri(store)) == 1200
    assert len(object_reader._process.own.kept) == 1
    for number in range(20):
        assert rows(uri(store, keys=f"k:s{number}@")) == 1200
        assert len(object_reader._process.own.kept) == min(number + 2, object_reader._STORES), "a secret, a store"


def test_a_token_is_the_same_whoever_reads(store: RecordingStore) -> None:
    filesystem = objects(**keyed(store))
    with OpenFile("data/x.parquet", filesystem) as one:
        with reading_by("pyarrow"), OpenFile("data/x.parquet", filesystem) as other:
            assert one.version_token == other.version_token
            assert one.lasting_token() == other.lasting_token()
            assert one.etag == other.etag
        one.check_unchanged()
        store.objects["data/x.parquet"] += b"x"
        with pytest.raises(parquet_bloom.StorageError, match="changed"):
            one.check_unchanged()


# --- credentials ----------------------------------------------------------------------------------


def test_keys_of_the_environment(store: RecordingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "env-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "env-secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "env-token")
    assert rows(uri(store, keys="")) == 1200
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "next-key")
    monkeypatch.delenv("AWS_SESSION_TOKEN")
    assert rows(uri(store, keys="")) == 1200
    asked = store.of_objects()
    assert [(one.method, one.signed_by) for one in asked] == [("GET", "env-key"), ("GET", "next-key")]
    assert [one.headers.get("x-amz-security-token") for one in asked] == ["env-token", None]


def in_a_process(store: RecordingStore, home: Path, before: str = "", **variables: str) -> list[tuple[str, str]]:
    """Read the object in a process of its own, as pyarrow and boto3 look at profiles once; (method, key id) of each."""
    code = f"""
        import logging, sys
        logging.basicConfig(level=logging.INFO)
        import parquet_bloom
        print(parquet_bloom.inspect({uri(store, keys="")!r}).files[0].rows)
    """
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "AWS_EC2_METADATA_DISABLED": "true"}
    done = program(before + textwrap.dedent(code), only=environment, **variables)
    assert done.stdout.strip() == "1200", done.stderr
    return [(one.method, one.signed_by) for one in store.of_objects()]


def profiles(home: Path, config: str = "", credentials: str = "") -> None:
    (home / ".aws").mkdir()
    (home / ".aws/config").write_text(config)
    (home / ".aws/credentials").write_text(credentials)


SOON = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
KEYS_OF = "[{}]\naws_access_key_id = of-{}\naws_secret_access_key = s\n"
WITHOUT_BOTO3 = "import sys; sys.modules['botocore'] = sys.modules['boto3'] = None\n"


def test_a_profile(store: RecordingStore, tmp_path: Path) -> None:
    profiles(tmp_path, credentials=KEYS_OF.format("default", "default") + KEYS_OF.format("work", "work"))
    assert in_a_process(store, tmp_path) == [("GET", "of-default")]
    store.asked.clear()
    assert in_a_process(store, tmp_path, AWS_PROFILE="work") == [("GET", "of-work")]


def test_a_profile_without_boto3_is_an_error_that_names_the_extra(store: RecordingStore, tmp_path: Path) -> None:
    profiles(tmp_path, credentials=KEYS_OF.format("default", "default"))
    with pytest.raises(AssertionError, match=r"need boto3 \(pip install '.*'\)"):
        in_a_process(store, tmp_path, WITHOUT_BOTO3)
    assert store.asked == []
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    assert in_a_process(store, tmp_path, WITHOUT_BOTO3, **keys) == [("GET", "k")], "these need none"


def test_a_role_of_the_settings(store: RecordingStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-base")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://{store.endpoint}")
    store.other["/"] = of_role("of-role")
    given = keyed(store, access_key=None, secret_key=None, role_arn="arn:aws:iam::1:role/r", session_name="tests")
    assert rows("data/x.parquet", filesystem=objects(**given)) == 1200
    assert [one.signed_by for one in store.of_objects()] == ["of-role"]


def test_a_program_that_gives_credentials(store: RecordingStore, tmp_path: Path) -> None:
    given = {"Version": 1, "AccessKeyId": "of-program", "SecretAccessKey": "s", "SessionToken": "t", "Expiration": SOON}
    (tmp_path / "answer.json").write_text(json.dumps(given))
    profiles(tmp_path, f"[default]\nregion = eu-north-1\ncredential_process = cat {tmp_path}/answer.json\n")
    assert in_a_process(store, tmp_path) == [("GET", "of-program")]


def of_role(key: str, action: str = "AssumeRole") -> bytes:
    """What STS answers."""
    return f"""<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
        <{action}Result><Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>s</SecretAccessKey>
        <SessionToken>t</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></{action}Result>
        </{action}Response>""".encode()


def test_a_role_that_a_profile_assumes(store: RecordingStore, tmp_path: Path) -> None:
    reader = "[profile reader]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = base\nregion = eu-north-1\n"
    profiles(tmp_path, reader, KEYS_OF.format("base", "base"))
    store.other["/"] = of_role("of-role")
    asked = in_a_process(store, tmp_path, AWS_PROFILE="reader", AWS_ENDPOINT_URL_STS=f"http://{store.endpoint}")
    assert asked == [("GET", "of-role")]
    assert [one.signed_by for one in store.asked if one.target == "/"] == ["of-base"]


def test_the_role_of_a_container(store: RecordingStore, tmp_path: Path) -> None:
    given = {"AccessKeyId": "of-task", "SecretAccessKey": "s", "Token": "t", "Expiration": SOON}
    store.other["/task"] = json.dumps(given).encode()
    asked = in_a_process(store, tmp_path, AWS_CONTAINER_CREDENTIALS_FULL_URI=f"http://{store.endpoint}/task")
    assert asked == [("GET", "of-task")]


def test_single_sign_on(store: RecordingStore, tmp_path: Path) -> None:
    start = "https://example.awsapps.com/start"
    more = "sso_account_id = 123456789012\nsso_role_name = reader\nregion = eu-north-1\n"
    profiles(tmp_path, f"[default]\nsso_start_url = {start}\nsso_region = eu-north-1\n{more}")
    cache = tmp_path / ".aws/sso/cache"
    cache.mkdir(parents=True)
    token = {"startUrl": start, "region": "eu-north-1", "accessToken": "signed-on", "expiresAt": SOON}
    (cache / f"{sha1(start.encode()).hexdigest()}.json").write_text(json.dumps(token))
    given = {"accessKeyId": "of-sso", "secretAccessKey": "s", "sessionToken": "t", "expiration": 4102444800000}
    store.other["/federation/credentials"] = json.dumps({"roleCredentials": given}).encode()
    asked = in_a_process(store, tmp_path, AWS_ENDPOINT_URL_SSO=f"http://{store.endpoint}")
    assert asked == [("GET", "of-sso")]


@pytest.mark.parametrize("before", ["", WITHOUT_BOTO3], ids=["boto3", "without boto3"])
def test_without_credentials_requests_are_not_signed(store: RecordingStore, tmp_path: Path, before: str) -> None:
    """As a public bucket is read."""
    assert in_a_process(store, tmp_path, before) == [("GET", "")]


def test_credentials_of_a_file_that_is_written_anew(
    store: RecordingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    file.write_text(KEYS_OF.format("default", "old"))
    settings = settings_of(keyed(store, access_key=None, secret_key=None), "data")
    assert settings.credentials is not None
    assert settings.credentials()["access_key_id"] == "of-old"
    file.write_text(KEYS_OF.format("default", "new"))
    os.utime(file, ns=(0, 1))
    assert settings.credentials()["access_key_id"] == "of-new"
    assert settings.credentials()["expires_at"] <= datetime.now(UTC) + timedelta(minutes=10)


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A CA's certificate, and one of localhost with its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder = tmp_path_factory.mktemp("tls")
    now, day, pem = datetime.now(UTC), timedelta(days=1), serialization.Encoding.PEM
    keys = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("our CA", "localhost")]
    both = []
    for own, name, is_ca in ((keys[0], names[0], True), (keys[1], names[1], False)):
        made = x509.CertificateBuilder().subject_name(name).issuer_name(names[0]).public_key(own.public_key())
        made = made.serial_number(x509.random_serial_number()).not_valid_before(now - day).not_valid_after(now + day)
        made = made.add_extension(x509.BasicConstraints(is_ca, None), True)
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        both.append(made.sign(keys[0], hashes.SHA256()).public_bytes(pem))
    (folder / "ca.pem").write_bytes(both[0])
    private = keys[1].private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "server.pem").write_bytes(both[1] + private)
    return folder / "ca.pem", folder / "server.pem"


@pytest.mark.parametrize("before", ["", WITHOUT_BOTO3], ids=["boto3", "without boto3"])
def test_a_web_identity(authority: tuple[Path, Path], data: bytes, tmp_path: Path, before: str) -> None:
    """Its server, and the store, have certificates of a private CA of the environment."""
    (tmp_path / "token").write_text("a-web-token")
    with recording(authority[1]) as store:
        store.objects["data/x.parquet"] = data
        store.other["/"] = of_role("of-role", "AssumeRoleWithWebIdentity")
        asked = in_a_process(
            store, tmp_path, before, AWS_WEB_IDENTITY_TOKEN_FILE=str(tmp_path / "token"), AWS_REGION="eu-north-1",
            AWS_ROLE_ARN="arn:aws:iam::1:role/r", AWS_ENDPOINT_URL_STS=f"https://{store.endpoint}",
            SSL_CERT_FILE=str(authority[0]), AWS_CA_BUNDLE=str(authority[0]),
        )  # fmt: skip
        assert asked == [("GET", "of-role")]


def test_a_private_ca_of_a_uri_is_trusted_and_no_other(authority: tuple[Path, Path], data: bytes) -> None:
    with recording(authority[1]) as store:
        store.objects["data/x.parquet"] = data
        assert rows(uri(store, tls_ca_file_path=str(authority[0]))) == 1200
        assert store.methods() == ["GET"]
        store.asked.clear()
        with pytest.raises(parquet_bloom.StorageError, match=r"data/x\.parquet") as caught:
            rows("data/x.parquet", filesystem=objects(**keyed(store)))
        assert "given-secret" not in str(caught.value)
        assert store.asked == []


# --- what is loaded -------------------------------------------------------------------------------


def test_a_local_file_needs_none_of_it(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(data)
    code = """
        import sys
        import parquet_bloom
        parquet_bloom.check(sys.argv[1], "id = 5")
        print([name for name in sys.modules if name.startswith("obstore") or ".object_" in name])
    """
    assert program(code, tmp_path / "x.parquet").stdout == "[]\n"

"""storages: Spark's names and Hadoop's settings -> pyarrow's file systems."""

from __future__ import annotations

import os
from typing import Any

import pytest
from pyarrow import fs

from parquet_bloom.errors import RequestError
from parquet_bloom.spark.storages import Storages, azure_options, gcs_options, s3_options


def test_names_as_spark_has_them() -> None:
    """Nothing is percent-encoded; what has no scheme is on the default file system."""
    for name, default, parts in (
        ("/a b/c%20d", "file:///", ("file", "", "/a b/c%20d")),
        ("d/x.parquet", "file:///", ("file", "", os.path.abspath("d/x.parquet"))),
        ("file:/a", "hdfs://n:8020", ("file", "", "/a")),
        ("file://localhost/a", "file:///", ("file", "", "/a")),
        ("file:///a", "file:///", ("file", "", "/a")),
        ("S3A://bucket/year=2026/a b", "file:///", ("s3a", "bucket", "/year=2026/a b")),
        ("s3a://bucket", "file:///", ("s3a", "bucket", "/")),
        ("/a/b", "hdfs://n:8020", ("hdfs", "n:8020", "/a/b")),
        ("/a/b", "s3a://bucket/ignored", ("s3a", "bucket", "/a/b")),
        ("abfss://c@acc.dfs.core.windows.net/d", "file:///", ("abfss", "c@acc.dfs.core.windows.net", "/d")),
    ):
        assert Storages(default=default).split(name) == parts, name


def test_relative_names_are_the_drivers() -> None:
    local, hdfs = Storages(), Storages(default="hdfs://n:8020")
    assert local.absolute("d/x*.parquet") == os.path.abspath("d/x*.parquet")
    assert local.absolute("./a b/") == os.path.abspath("a b")
    for name in ("/a/../b", "s3a://bucket/d", "file:/a", "hdfs://n/x"):
        assert (local.absolute(name), hdfs.absolute(name)) == (name, name)
    with pytest.raises(RequestError, match="give an absolute path"):
        hdfs.absolute("d/x")


def test_names_that_nothing_opens() -> None:
    for name, default, said in (
        ("d/x", "hdfs://n", "give an absolute path"),
        ("file://host/a", "file:///", "write file:///host/a"),
        ("wasb://c@acc/d", "file:///", "executors cannot open wasb:"),
    ):
        with pytest.raises(RequestError, match=said):
            Storages(default=default).split(name)
    with pytest.raises(RequestError, match="s3a://bucket: .*secret_key"):
        Storages({"fs.s3a.access.key": "a"}).open("s3a://bucket/x")


def test_s3() -> None:
    known: list[tuple[dict[str, str], dict[str, Any]]] = [
        ({}, {}),
        ({"access.key": "a", "secret.key": "b", "session.token": "t"},
         {"access_key": "a", "secret_key": "b", "session_token": "t"}),
        ({"access.key": "a", "secret.key": "b", "bucket.logs.secret.key": "of the bucket"},
         {"access_key": "a", "secret_key": "of the bucket"}),
        ({"access.key": "a", "secret.key": "b", "bucket.other.secret.key": "of another"},
         {"access_key": "a", "secret_key": "b"}),
        ({"aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"}, {"anonymous": True}),
        ({"endpoint": "http://minio:9000", "path.style.access": "true"},
         {"endpoint_override": "minio:9000", "scheme": "http"}),
        ({"endpoint": "s3.eu-central-1.amazonaws.com", "endpoint.region": "eu-central-1", "path.style.access": "false"},
         {"endpoint_override": "s3.eu-central-1.amazonaws.com", "scheme": "https", "region": "eu-central-1",
          "force_virtual_addressing": True}),
        ({"endpoint": "minio:9000", "connection.ssl.enabled": "false"},
         {"endpoint_override": "minio:9000", "scheme": "http"}),
        ({"access.key": "a", "secret.key": "b", "assumed.role.arn": "arn:x", "assumed.role.session.name": "s"},
         {"role_arn": "arn:x", "session_name": "s"}),
        ({"proxy.host": "p", "proxy.port": "3128"}, {"proxy_options": "http://p:3128"}),
    ]  # fmt: skip
    for settings, expected in known:
        found = s3_options("logs", {f"fs.s3a.{name}": value for name, value in settings.items()})
        assert found == expected
        if "role_arn" not in found:  # which asks AWS at once
            fs.S3FileSystem(**found)


HOST = "acc.dfs.core.windows.net"


def test_azure() -> None:
    known: list[tuple[str, dict[str, str], dict[str, Any]]] = [
        (f"c@{HOST}", {}, {"account_name": "acc"}),
        (f"c@{HOST}", {"account.key": "any", f"account.key.{HOST}": "a2V5"},
         {"account_name": "acc", "account_key": "a2V5"}),
        (f"c@{HOST}", {f"sas.fixed.token.{HOST}": "sv=1"}, {"account_name": "acc", "sas_token": "sv=1"}),
        (f"c@{HOST}", {"account.oauth2.client.id": "i", "account.oauth2.client.secret": "s",
                       "account.oauth2.client.endpoint": "https://login.microsoftonline.com/tenant/oauth2/token"},
         {"account_name": "acc", "client_id": "i", "client_secret": "s", "tenant_id": "tenant"}),
        ("c@acc.dfs.core.chinacloudapi.cn", {},
         {"account_name": "acc", "dfs_storage_authority": ".dfs.core.chinacloudapi.cn",
          "blob_storage_authority": ".blob.core.chinacloudapi.cn"}),
    ]  # fmt: skip
    for authority, settings, expected in known:
        found = azure_options(authority, {f"fs.azure.{name}": value for name, value in settings.items()})
        assert found == expected
        fs.AzureFileSystem(**found)


def test_google() -> None:
    known: list[tuple[dict[str, str], dict[str, Any]]] = [
        ({}, {}),
        ({"auth.type": "UNAUTHENTICATED", "project.id": "p"}, {"anonymous": True, "project_id": "p"}),
        ({"auth.null.enable": "true"}, {"anonymous": True}),
        ({"storage.root.url": "http://127.0.0.1:9023/"}, {"scheme": "http", "endpoint_override": "127.0.0.1:9023"}),
        ({"storage.root.url": "https://storage.googleapis.com/"},
         {"scheme": "https", "endpoint_override": "storage.googleapis.com"}),
    ]  # fmt: skip
    for settings, expected in known:
        found = gcs_options({f"fs.gs.{name}": value for name, value in settings.items()})
        assert found == expected
        fs.GcsFileSystem(**found)


def test_the_path_on_a_file_system() -> None:
    where = Storages({"fs.s3a.access.key": "a", "fs.s3a.secret.key": "b", "fs.gs.auth.type": "UNAUTHENTICATED"})
    assert where.open("s3a://user@bucket/a b/")[1] == "bucket/a b"
    assert where.open("gs://bucket/x")[1] == "bucket/x"
    assert where.open("abfss://c@acc.dfs.core.windows.net/d/e")[1] == "c/d/e"
    assert where.open("/tmp/x")[0].is_local
    found = where.data_file("s3a://bucket/d/year=2026/x.parquet", "s3a://bucket/d")
    assert (str(found), found.path) == ("s3a://bucket/d/year=2026/x.parquet", "bucket/d/year=2026/x.parquet")
    assert "secret" not in repr(where)

"""S3 as obstore reads it: the options of a URI or of a session, in obstore's words.

    option                                  obstore
    endpoint_override, scheme, region       endpoint, with the bucket in the host's name on Amazon's own
    access_key, secret_key, session_token   credential_provider
    role_arn                                credential_provider: boto3 assumes the role
    none of them                            keys of the environment, else boto3's chain: profiles, SSO,
                                            credential_process, web identity, containers, EC2. Without boto3 obstore
                                            has the last three itself
    anonymous, proxy_options, time-outs     as they are; without proxy_options no proxy
    tls_ca_file_path                        root_certificate

A URI without endpoint has that of AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, and without region Amazon says the bucket's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from parquet_bloom.errors import RequestError, first_line
from parquet_bloom.extras import to_install
from parquet_bloom.storage.display import without_secret
from parquet_bloom.storage.object_settings import (
    BUCKET,
    CREDENTIALS_KEPT,
    DIRECT,
    Credentials,
    InexpressibleError,
    ObjectSettings,
    client_options,
    options_in,
    refuse_unused,
    refuse_variables,
    variables,
    yes_or_no,
)
from parquet_bloom.storage.remote import proxy_of, s3_endpoint

_OF_URIS = {
    "region", "scheme", "endpoint_override", "anonymous", "tls_ca_file_path", "allow_bucket_creation",
    "allow_bucket_deletion", "allow_delayed_open",
}  # fmt: skip
_USED = {
    "access_key", "secret_key", "session_token", "anonymous", "region", "scheme", "connect_timeout", "request_timeout",
    "endpoint_override", "proxy_options", "force_virtual_addressing", "tls_ca_file_path", "role_arn", "session_name",
    "external_id",
}  # fmt: skip
_OF_WRITING = {
    "background_writes", "allow_delayed_open", "allow_bucket_creation", "allow_bucket_deletion", "default_metadata",
    "check_directory_existence_before_creation", "load_frequency",
}  # fmt: skip
# Variables that would make obstore's requests other ones, and that no argument overrides.
_OBSTORE_ONLY = ("AWS_SSE_CUSTOMER_KEY", "AWS_ROOT_CERTIFICATE", "AWS_DEFAULT_HEADERS")
# In a profile they have these names in small letters, without AWS_.
_FIPS, _DUALSTACK = "AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT"
_REGION = re.compile(r"(?!us-iso|eu-iso|eusc-)[a-z]{2}(-[a-z]+)+-[0-9]+")  # the others have domains of their own
_HOST_LABEL = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_REGION_S = 10.0  # until Amazon has said a bucket's region


def options_of(authority: str, query: str) -> tuple[dict[str, Any], str]:
    """The options of a URI, and its bucket. Raises RequestError, OSError where Amazon does not say a region."""
    user, _, bucket = authority.rpartition("@")
    key, _, secret = user.partition(":")
    found: dict[str, Any] = options_in(query, _OF_URIS, "S3")
    for name in ("anonymous", "allow_bucket_creation", "allow_bucket_deletion", "allow_delayed_open"):
        if name in found:
            found[name] = yes_or_no(name, found[name])
    if key:
        found |= {"access_key": unquote(key), "secret_key": unquote(secret)}
    if not bucket:
        raise RequestError("names no bucket; write s3://bucket/path")
    if "endpoint_override" not in found:
        named = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
        endpoint = next((text for name in named if (text := os.environ.get(name))), None)
        if endpoint is not None:
            found["endpoint_override"] = endpoint
    if not found.get("region"):
        found["region"] = _region_for(found, bucket)
    return found, f"{bucket}/"


def _region_of_environment() -> str:
    """As Amazon's own libraries have it."""
    named = os.environ.get("AWS_DEFAULT_REGION") or os.environ.get("AWS_REGION")
    if not named and any(map(os.path.exists, _files())):
        with suppress(Exception):  # a profile that is not there; who asks for credentials says so
            import botocore.session

            named = botocore.session.Session().get_config_variable("region")
    return named or "us-east-1"


def _region_of(bucket: str, scheme: str) -> str:
    """The region that Amazon names in its answer to one request, which needs no rights. Raises OSError."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    if not BUCKET.fullmatch(bucket):
        raise RequestError("is no name of a bucket")
    host = f"{bucket}.s3.amazonaws.com" if _HOST_LABEL.fullmatch(bucket) else "s3.amazonaws.com"
    connection = (HTTPConnection if scheme == "http" else HTTPSConnection)(host, timeout=_REGION_S)
    try:
        connection.request("HEAD", "/" if host.startswith(bucket) else f"/{bucket}")
        answer = connection.getresponse()
        region = answer.getheader("x-amz-bucket-region") or ""
    except HTTPException as error:
        raise OSError(f"{host} does not say the region of the bucket; give region= in the URI") from error
    except OSError as error:
        raise OSError(
            f"the region of the bucket: {host}: {error.strerror or error}; give region= in the URI"
        ) from error
    finally:
        connection.close()
    if answer.status == 404:
        raise FileNotFoundError("no such bucket")
    if not re.fullmatch("[a-z0-9-]{1,40}", region):
        raise OSError(f"{host} does not say the region of the bucket; give region= in the URI")
    return region


def settings_of(options: Mapping[str, Any], bucket: str) -> ObjectSettings:
    """The settings for a bucket on a storage with these options (storage.remote.Objects). Raises InexpressibleError."""
    refuse_unused(options, _USED | _OF_WRITING)
    refuse_variables(_OBSTORE_ONLY)
    if not BUCKET.fullmatch(bucket) or bucket.endswith(("--x-s3", "--ol-s3")):
        raise InexpressibleError(f"{bucket or 'no name'} is no bucket of S3's usual kind, and no other can be read")
    check_keys(options)
    region = options.get("region") or _region_for(options, bucket)
    endpoint, virtual = _endpoint(options, bucket, region)
    anonymous = bool(options.get("anonymous"))
    credentials, secrets = (None, ()) if anonymous else _credentials(options)
    anonymous |= secrets == _NOBODY
    config: dict[str, Any] = {
        "endpoint": endpoint,
        "aws_endpoint_url_s3": endpoint,
        "region": region,
        "virtual_hosted_style_request": virtual,
        "skip_signature": anonymous,
        "request_payer": False,
        "s3_express": False,
        "unsigned_payload": False,
    }
    return ObjectSettings("S3Store", bucket, config, _client(options, endpoint), credentials, secrets)


def check_keys(options: Mapping[str, Any]) -> None:
    """Raise InexpressibleError for half a key."""
    if bool(options.get("access_key")) != bool(options.get("secret_key")):
        raise InexpressibleError("access_key and secret_key go together; one of them is missing")


def _region_for(options: Mapping[str, Any], bucket: str) -> str:
    if s3_endpoint(options) is not None:
        return _region_of_environment()
    return _region_of(bucket, options.get("scheme") or "https")


def _endpoint(options: Mapping[str, Any], bucket: str, region: str) -> tuple[str, bool]:
    """The URL that paths of keys begin with, but for a bucket in the path; whether the bucket is in the host's name."""
    endpoint = s3_endpoint(options)
    if endpoint is not None:
        if not options.get("force_virtual_addressing"):
            return endpoint.rstrip("/"), False
        scheme, _, host = endpoint.partition("://")
        return f"{scheme}://{bucket}.{host}".rstrip("/"), True
    if not _REGION.fullmatch(region):
        raise InexpressibleError(f"the region {region} has no known endpoint; give endpoint_override beside it")
    scheme = options.get("scheme") or "https"
    fips, dual = _kind_of_endpoint()
    host = f"s3{'-fips' if fips else ''}{'.dualstack' if dual else ''}.{region}.amazonaws.com"
    host += ".cn" if region.startswith("cn-") else ""
    if _HOST_LABEL.fullmatch(bucket):  # of others TLS's certificate has no name
        return f"{scheme}://{bucket}.{host}", True
    return f"{scheme}://{host}", False


def _client(options: Mapping[str, Any], endpoint: str) -> dict[str, Any]:
    proxy = proxy_of(options)
    through = DIRECT if proxy is None else (proxy, "")
    times = options.get("connect_timeout"), options.get("request_timeout")
    return client_options(endpoint, through, *times, options.get("tls_ca_file_path") or None)


# --- credentials ----------------------------------------------------------------------------------


_NOBODY = ("nobody",)  # requests are not signed, as Amazon's own libraries do where they find no credentials


def _credentials(options: Mapping[str, Any]) -> tuple[Credentials | None, tuple[object, ...]]:
    if options.get("role_arn"):
        return _of_role(options)
    if options.get("access_key"):
        given = options["access_key"], options.get("secret_key") or "", options.get("session_token") or None
        return (lambda: _answer(*given, None)), given
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        if not os.environ.get("AWS_SECRET_ACCESS_KEY"):
            raise InexpressibleError("AWS_ACCESS_KEY_ID stands alone in the environment; set AWS_SECRET_ACCESS_KEY too")
        return _of_environment, ("environment", _of_environment()["access_key_id"])
    if not _has_boto3():
        if os.environ.get("AWS_PROFILE") or any(map(os.path.exists, _files())):
            raise InexpressibleError(f"credentials of a profile need boto3 ({to_install('s3')})")
        return None, _NOBODY if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true" and not any(
            os.environ.get(name) for name in _OBSTORES_OWN
        ) else ("obstore", *_sources())
    found = _ChainCredentials()
    return (found, ("boto3", *found.looked_at)) if found.are_there else (None, _NOBODY)


def _has_boto3() -> bool:
    try:
        import botocore.session  # noqa: F401
    except ImportError:
        return False
    return True


# Web identity and containers, by the variables that name them; without them EC2.
_OBSTORES_OWN = (
    "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)  # fmt: skip


def _of_role(options: Mapping[str, Any]) -> tuple[Credentials, tuple[object, ...]]:
    try:
        import boto3
    except ImportError:
        raise InexpressibleError(f"role_arn needs boto3 ({to_install('s3')})") from None
    role = {"RoleArn": options["role_arn"], "RoleSessionName": options.get("session_name") or "parquet-bloom"}
    if options.get("external_id"):
        role["ExternalId"] = options["external_id"]
    client = boto3.session.Session().client("sts", region_name=options.get("region") or None)

    def assumed() -> dict[str, Any]:
        now = client.assume_role(**role)["Credentials"]
        return _answer(
            now["AccessKeyId"], now["SecretAccessKey"], now["SessionToken"], now["Expiration"].astimezone(UTC)
        )

    return assumed, (*sorted(role.items()), *_sources())


def _answer(key: str, secret: str, token: str | None, until: datetime | None) -> dict[str, Any]:
    return {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": until}


def _of_environment() -> dict[str, Any]:
    found = os.environ
    token = found.get("AWS_SESSION_TOKEN") or None
    until = datetime.now(UTC) + CREDENTIALS_KEPT
    return _answer(found["AWS_ACCESS_KEY_ID"], found["AWS_SECRET_ACCESS_KEY"], token, until)


class _ChainCredentials:
    """Those that boto3 finds, found anew when the files change in which they may stand.

    looked_at  the variables and files that the choice depends on, as they were
    Raises InexpressibleError where a source of credentials fails.
    """

    def __init__(self) -> None:
        self.looked_at, self._found = _sources(), _find()

    @property
    def are_there(self) -> bool:
        """Whether boto3 finds any."""
        return self._found is not None

    def __call__(self) -> dict[str, Any]:
        looked_at = _sources()
        if looked_at != self.looked_at:
            self.looked_at, self._found = looked_at, _find()
        if self._found is None:
            raise InexpressibleError("boto3 finds its credentials no more")
        now = self._found.get_frozen_credentials()
        return _answer(now.access_key, now.secret_key, now.token, datetime.now(UTC) + CREDENTIALS_KEPT)


def _find() -> Any:
    """boto3's credentials; None without any."""
    import botocore.session

    try:
        found = botocore.session.Session().get_credentials()
        if found is not None:
            found.get_frozen_credentials()
    except Exception as error:  # such as a profile that is not there, or a program that fails
        raise InexpressibleError(f"boto3 finds no credentials: {without_secret(first_line(error))}") from error
    return found


def _files() -> list[str]:
    named = (("AWS_CONFIG_FILE", "~/.aws/config"), ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"))
    return [os.path.expanduser(os.environ.get(variable) or path) for variable, path in named]


def _sources() -> tuple[object, ...]:
    return (*variables("AWS_"), *map(_changed_at, _files()))


def _changed_at(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def _kind_of_endpoint() -> tuple[bool, bool]:
    """Whether requests go to Amazon's FIPS endpoints, and to dual-stack ones. Raises InexpressibleError.

    Variables say so. Which profile does is boto3's to know, so one that does is refused.
    """
    fips, dual = (os.environ.get(name, "").lower() == "true" for name in (_FIPS, _DUALSTACK))
    try:
        with open(_files()[0], encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 20)
    except OSError:
        return fips, dual
    for name in (_FIPS, _DUALSTACK):
        if (option := name.lower().removeprefix("aws_")) in text and not os.environ.get(name):
            raise InexpressibleError(f"{option} stands in a profile; set the variable {name} to true or false instead")
    return fips, dual

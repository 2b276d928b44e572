"""The options of pyarrow's file system of S3 in obstore's words, or the reason why they have none.

obstore reads the environment too, and asks it for more than pyarrow does: AWS_ENDPOINT_URL, AWS_SKIP_SIGNATURE,
HTTPS_PROXY. So nothing is left to it: whatever changes how an object is read is given here, from pyarrow's options.

    pyarrow's option                        obstore
    endpoint_override, scheme, region       endpoint, with the bucket in the host's name where pyarrow has it there
    access_key, secret_key, session_token   credential_provider
    none of them                            keys of the environment, else boto3's: profiles, SSO, credential_process,
                                            web identity, containers, EC2
    anonymous, proxy_options, time-outs     as they are; without proxy_options no proxy, as pyarrow takes none
    role_arn, tls_ca_file_path, others      InexpressibleError: pyarrow reads such objects itself
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from parquet_bloom.storage.object_settings import (
    BUCKET,
    CREDENTIALS_KEPT,
    DIRECT,
    Credentials,
    InexpressibleError,
    ObjectSettings,
    client_options,
    refuse_variables,
)
from parquet_bloom.storage.remote import s3_endpoint

# Options of S3FileSystem that are told to obstore, and those that mean nothing to who only reads.
_TOLD = {
    "access_key", "secret_key", "session_token", "anonymous", "region", "scheme", "connect_timeout", "request_timeout",
    "endpoint_override", "proxy_options",
}  # fmt: skip
_OF_WRITING = {
    "background_writes", "allow_delayed_open", "allow_bucket_creation", "allow_bucket_deletion", "default_metadata",
    "check_directory_existence_before_creation",
}  # fmt: skip
_OF_ROLES = {"session_name", "external_id", "load_frequency"}  # nothing without role_arn
# Variables that would make obstore's requests other ones, and that no argument overrides.
_OBSTORE_ONLY = ("AWS_SERVER_SIDE_ENCRYPTION", "AWS_SSE_", "AWS_ROOT_CERTIFICATE", "AWS_DEFAULT_HEADERS")
# Endpoints of Amazon's that obstore cannot name; in a profile they have these names in small letters, without AWS_.
_OTHER_ENDPOINTS = ("AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT")
_REGION = re.compile(r"(?!us-iso|eu-iso|eusc-)[a-z]{2}(-[a-z]+)+-[0-9]+")  # the others have domains of their own
_HOST_LABEL = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")


def settings_of(options: Mapping[str, Any], bucket: str) -> ObjectSettings:
    """The settings for a bucket on the file system with these options (storage.remote.arrow_options).

    Raises InexpressibleError.
    """
    for name, value in options.items():
        if value and name not in _TOLD | _OF_WRITING | _OF_ROLES:
            raise InexpressibleError(name)
    refuse_variables(_OBSTORE_ONLY)
    endpoint, virtual = _endpoint(options, bucket)
    anonymous = bool(options.get("anonymous"))
    credentials, secrets = (None, ()) if anonymous else _credentials(options)
    config = {
        "endpoint": endpoint,
        "aws_endpoint_url_s3": endpoint,
        "region": options["region"],
        "virtual_hosted_style_request": virtual,
        "skip_signature": anonymous,
        "request_payer": False,
        "s3_express": False,
        "unsigned_payload": False,
    }
    return ObjectSettings("S3Store", bucket, config, _client(options, endpoint), credentials, secrets)


def _endpoint(options: Mapping[str, Any], bucket: str) -> tuple[str, bool]:
    """The URL that paths of keys begin with, but for a bucket in the path; whether the bucket is in the host's name."""
    if not BUCKET.fullmatch(bucket) or bucket.endswith(("--x-s3", "--ol-s3")):
        raise InexpressibleError("a bucket of this name")
    region = options.get("region") or ""
    endpoint = s3_endpoint(options)
    if endpoint is not None:
        if not region:
            raise InexpressibleError("an endpoint without a region")
        return endpoint.rstrip("/"), False
    if not _REGION.fullmatch(region):
        raise InexpressibleError(f"the region {region}" if region else "no region")
    if any(os.environ.get(name) for name in _OTHER_ENDPOINTS) or _profiles_name_endpoints():
        raise InexpressibleError("FIPS or dual-stack endpoints")
    scheme = options.get("scheme") or "https"
    host = f"s3.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")
    if _HOST_LABEL.fullmatch(bucket):  # of others TLS's certificate has no name
        return f"{scheme}://{bucket}.{host}", True
    return f"{scheme}://{host}", False


def _client(options: Mapping[str, Any], endpoint: str) -> dict[str, Any]:
    proxy = options.get("proxy_options") or {}
    through = DIRECT
    if proxy.get("host"):
        user = f"{quote(proxy['username'], '')}:{quote(proxy['password'], '')}@" if proxy.get("username") else ""
        through = f"{proxy.get('scheme') or 'http'}://{user}{proxy['host']}:{proxy['port']}", ""
    return client_options(endpoint, through, options.get("connect_timeout"), options.get("request_timeout"))


# --- credentials ----------------------------------------------------------------------------------


def _credentials(options: Mapping[str, Any]) -> tuple[Credentials, tuple[object, ...]]:
    if options.get("access_key"):
        given = options["access_key"], options.get("secret_key") or "", options.get("session_token") or None
        return (lambda: _answer(*given, None)), given
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        if not os.environ.get("AWS_SECRET_ACCESS_KEY"):
            raise InexpressibleError("AWS_ACCESS_KEY_ID alone")
        return _of_environment, ("environment", _of_environment()["access_key_id"])
    found = _ChainCredentials()
    return found, ("boto3", *found.looked_at)


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
    Raises InexpressibleError where there are none: pyarrow says so in its own words, or has some.
    """

    def __init__(self) -> None:
        self.looked_at, self._found = _sources(), _find()

    def __call__(self) -> dict[str, Any]:
        looked_at = _sources()
        if looked_at != self.looked_at:
            self.looked_at, self._found = looked_at, _find()
        now = self._found.get_frozen_credentials()
        return _answer(now.access_key, now.secret_key, now.token, datetime.now(UTC) + CREDENTIALS_KEPT)


def _find() -> Any:
    try:
        import botocore.session
    except ImportError:
        reason = "no keys in the options or the environment, and boto3 is not installed"
        raise InexpressibleError(reason) from None
    try:
        found = botocore.session.Session().get_credentials()
        if found is not None:
            found.get_frozen_credentials()
    except Exception as error:  # such as a profile that is not there, or a program that fails
        raise InexpressibleError(f"boto3 finds no credentials ({type(error).__name__})") from error
    if found is None:
        raise InexpressibleError("boto3 finds no credentials")
    return found


def _files() -> list[str]:
    named = (("AWS_CONFIG_FILE", "~/.aws/config"), ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"))
    return [os.path.expanduser(os.environ.get(variable) or path) for variable, path in named]


def _sources() -> tuple[object, ...]:
    variables = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_")))
    return (*variables, *map(_changed_at, _files()))


def _changed_at(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def _profiles_name_endpoints() -> bool:
    """Whether a profile names endpoints of another kind; not which one."""
    try:
        with open(_files()[0], encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 20)
    except OSError:
        return False
    return any(name.lower().removeprefix("aws_") in text for name in _OTHER_ENDPOINTS)

"""Google's storage as obstore reads it: the options of a URI or of a session, in obstore's words.

    option                                obstore
    scheme, endpoint_override             base_url; both have the bucket in the path
    anonymous                             skip_signature
    access_token                          credential_provider
    none of them, the default             application_credentials: the key of a service account, or the login of gcloud;
                                          without such a file the machine's own account
    target_service_account, other files   InexpressibleError

Tokens come from Google, or are signed here, as obstore does both. The proxy is the one that libcurl would take.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from parquet_bloom.errors import RequestError
from parquet_bloom.storage.object_settings import (
    BUCKET,
    InexpressibleError,
    ObjectSettings,
    client_options,
    curls_proxy,
    of_no_use,
    options_in,
    refuse_unused,
    refuse_variables,
)

_USED = {"anonymous", "access_token", "credential_token_expiration", "scheme", "endpoint_override"}
_OF_URIS = {"scheme", "endpoint_override", "project_id", "retry_limit_seconds"}
# How long a request may be tried again is no matter for reading: obstore does so for half a minute.
_OF_WRITING = {"default_bucket_location", "default_metadata", "project_id", "retry_time_limit"}
# Variables that would make obstore's requests other ones, or Google's own library's, and that no argument overrides.
_OTHERS = (
    "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_BEARER_TOKEN", "GOOGLE_ROOT_CERTIFICATE", "GOOGLE_DEFAULT_HEADERS",
    "GOOGLE_PROXY_CA_CERTIFICATE", "GOOGLE_CLOUD_CPP_USER_PROJECT", "GOOGLE_CLOUD_UNIVERSE_DOMAIN",
)  # fmt: skip
# Google's library asks here, whatever the options say.
_EMULATORS = ("CLOUD_STORAGE_EMULATOR_ENDPOINT", "CLOUD_STORAGE_TESTBENCH_ENDPOINT")
_LOGINS = {"service_account", "authorized_user"}
_LOGIN_BYTES = 1 << 20
_MACHINES = ("the machine's",)  # credentials that are in no file
_METADATA_HOSTS = "metadata.google.internal", "169.254.169.254"


def options_of(authority: str, query: str) -> tuple[dict[str, Any], str]:
    """The options of a URI, and its bucket. Raises RequestError."""
    user, _, bucket = authority.rpartition("@")
    found: dict[str, Any] = options_in(query, _OF_URIS, "GCS")
    if user not in ("", "anonymous"):
        raise RequestError('the user in a URI of Google\'s storage must be "anonymous"')
    if not bucket:
        raise RequestError("names no bucket; write gs://bucket/path")
    if "retry_limit_seconds" in found:
        try:
            found["retry_time_limit"] = timedelta(seconds=float(found.pop("retry_limit_seconds")))
        except (ValueError, OverflowError) as error:
            raise RequestError("retry_limit_seconds must be a number of seconds") from error
    return {**found, "anonymous": True} if user else found, f"{bucket}/"


def settings_of(options: Mapping[str, Any], bucket: str) -> ObjectSettings:
    """The settings for a bucket on a storage with these options (remote.Objects). Raises InexpressibleError."""
    refuse_unused(options, _USED | _OF_WRITING)
    refuse_variables(_OTHERS)
    if not BUCKET.fullmatch(bucket):
        raise InexpressibleError("is no name of a bucket")
    endpoint = _endpoint(options)
    config: dict[str, Any] = {"base_url": endpoint, "skip_signature": bool(options.get("anonymous"))}
    credentials, secrets = None, tuple[object, ...]()
    if options.get("access_token"):
        answer = {"token": options["access_token"], "expires_at": options.get("credential_token_expiration")}
        credentials, secrets = (lambda: answer), (options["access_token"],)
    elif not config["skip_signature"]:
        secrets = _login(config)
    proxy, direct = curls_proxy(endpoint)
    if secrets == _MACHINES:  # the machine's own answers are no matter of a proxy, as libcurl has it
        direct = ",".join([one for one in (direct, *_METADATA_HOSTS) if one])
    client = client_options(endpoint, (proxy, direct))
    return ObjectSettings("GCSStore", bucket, config, client, credentials, secrets, by_generation=True)


def _endpoint(options: Mapping[str, Any]) -> str:
    """The URL that a bucket's name follows."""
    emulator = next((found for name in _EMULATORS if (found := os.environ.get(name))), None)
    if emulator is not None:
        return emulator.rstrip("/")
    host = options.get("endpoint_override") or "storage.googleapis.com"
    if "://" in host:
        raise InexpressibleError("endpoint_override has no scheme before its host; give scheme beside it")
    return f"{options.get('scheme') or 'https'}://{host}".rstrip("/")


def _login(config: dict[str, Any]) -> tuple[object, ...]:
    """Name the file of the default credentials to obstore, where there is one. Its path and time; or the machine's.

    Raises InexpressibleError for one that obstore does not know, or that is damaged.
    """
    named = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    home = os.environ.get("HOME")
    if not named and not home:
        return _MACHINES
    path = named or os.path.join(home or "", ".config/gcloud/application_default_credentials.json")
    try:
        with open(path, encoding="utf-8") as file:
            login = json.loads(file.read(_LOGIN_BYTES))
        changed = os.stat(path).st_mtime_ns
    except FileNotFoundError:
        if named:
            raise InexpressibleError("there is no file at GOOGLE_APPLICATION_CREDENTIALS") from None
        return _MACHINES
    except (OSError, ValueError) as error:
        raise InexpressibleError(f"the file of credentials cannot be read ({type(error).__name__})") from error
    kind = login.get("type") if isinstance(login, dict) else None
    if kind not in _LOGINS:
        raise of_no_use("a file of credentials of another type than service_account and authorized_user")
    if login.get("universe_domain", "googleapis.com") != "googleapis.com" or login.get("disable_oauth"):
        raise of_no_use("a file of credentials of another cloud")
    config["application_credentials"] = path
    return path, changed

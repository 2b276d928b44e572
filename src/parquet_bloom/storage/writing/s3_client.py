"""boto3 for S3: a client with the options of pyarrow's file system, and what stores answer, or do not."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from parquet_bloom.errors import StorageError
from parquet_bloom.storage.remote import Location, s3_endpoint, s3_options


def can_speak_for(filesystem: Any) -> bool:
    """Whether boto3 can be given this file system's credentials; a role that pyarrow assumes cannot."""
    return not s3_options(filesystem).get("role_arn")


def client_of(filesystem: Any) -> Any:
    """Make boto3's client for a pyarrow S3FileSystem: the same endpoint, region and credentials."""
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    o = s3_options(filesystem)
    endpoint = s3_endpoint(o)
    settings: dict[str, Any] = {"max_pool_connections": 16}
    if endpoint is not None and not o.get("force_virtual_addressing"):
        settings["s3"] = {"addressing_style": "path"}
    for ours, theirs in (("connect_timeout", "connect_timeout"), ("read_timeout", "request_timeout")):
        if (o.get(theirs) or -1) > 0:
            settings[ours] = o[theirs]
    if o.get("anonymous"):
        settings["signature_version"] = UNSIGNED
    proxy = o.get("proxy_options") or {}
    if proxy.get("host"):
        user = f"{proxy['username']}:{proxy['password']}@" if proxy.get("username") else ""
        url = f"{proxy.get('scheme') or 'http'}://{user}{proxy['host']}:{proxy['port']}"
        settings["proxies"] = {"http": url, "https": url}
    try:
        # Checksums that not every store knows; each part sent has its MD5.
        config = Config(
            request_checksum_calculation="when_required", response_checksum_validation="when_required", **settings
        )
    except TypeError:  # botocore before 1.36, which sends none
        config = Config(**settings)
    return boto3.session.Session().client(
        "s3",
        region_name=o.get("region") or None,
        endpoint_url=endpoint,
        use_ssl=o.get("scheme") != "http",
        verify=o.get("tls_ca_file_path") or None,
        aws_access_key_id=o.get("access_key") or None,
        aws_secret_access_key=o.get("secret_key") or None,
        aws_session_token=o.get("session_token") or None,
        config=config,
    )


# --- answers --------------------------------------------------------------------------------------


def told_of(answer: Mapping[str, Any], name: str, target: Location) -> str:
    """A part of a store's answer. Raises StorageError where there is none."""
    if not answer.get(name):
        raise StorageError(target, f"the store answered without {name}; nothing was changed")
    return str(answer[name])


def etag_of(parts: Sequence[str]) -> str | None:
    """The ETag that S3 gives an object of these parts; None where the parts' ETags are no MD5 sums."""
    bare = [part.strip('"') for part in parts]
    if not all(re.fullmatch("[0-9a-f]{32}", part) for part in bare):
        return None
    return f"{hashlib.md5(bytes.fromhex(''.join(bare)), usedforsecurity=False).hexdigest()}-{len(bare)}"


def abort(client: Any, upload: dict[str, str]) -> str:
    """Give an upload up; returns what is to be told where that failed."""
    from botocore.exceptions import ClientError

    for _ in range(2):
        try:
            answer = client.abort_multipart_upload(**upload)
            if answer["ResponseMetadata"]["HTTPStatusCode"] == 204:  # as S3 says that it is done, and nothing else
                return ""
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in ("NoSuchUpload", "404"):
                return ""
        except Exception:  # the first error is the one to tell
            continue
    return f"; its unfinished upload {upload['UploadId']} stays in the store, abort it"


def may_have_begun(error: Exception) -> bool:
    """Whether a request that failed may have been carried out."""
    from botocore.exceptions import ClientError

    if not isinstance(error, ClientError):
        return True
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)) >= 500


def abort_lost(client: Any, where: dict[str, str], ours: str | None) -> str:
    """Give up uploads of this object that have no parts: one whose beginning was never answered stays like that.

    Returns what is to be told where that failed.
    """
    try:
        begun = client.list_multipart_uploads(Bucket=where["Bucket"], Prefix=where["Key"]).get("Uploads", [])
        left = [{**where, "UploadId": u["UploadId"]} for u in begun if u["Key"] == where["Key"]]
        lost = [one for one in left if one["UploadId"] != ours and not client.list_parts(**one).get("Parts")]
    except Exception:
        return "; an unfinished upload of it may stay in the store"
    return "".join(abort(client, one) for one in lost)

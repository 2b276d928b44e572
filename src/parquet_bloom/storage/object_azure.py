"""Azure's storage as obstore reads it: the options of a URI or of a session, in obstore's words.

    option                                obstore
    account_name, blob_storage_*          endpoint, with the account in the host's name or behind it
    account_key, sas_token                credential_provider
    credential_kind=anonymous             skip_signature
    client_id, client_secret, tenant_id,  credential_provider: a token of azure-identity, by the credential of the same
    none of them, other kinds             name. Without that package obstore has them itself: a client's secret, the
                                          machine's identity, workload identity, the login of az

The proxy is the one that libcurl would take. The options dfs_storage_* are of writing and of folders.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from parquet_bloom.errors import RequestError, first_line
from parquet_bloom.storage.display import without_secret
from parquet_bloom.storage.object_settings import (
    BUCKET,
    Credentials,
    InexpressibleError,
    ObjectSettings,
    client_options,
    curls_proxy,
    options_in,
    refuse_unused,
    refuse_variables,
    variables,
    yes_or_no,
)

_USED = {
    "account_name", "account_key", "sas_token", "client_id", "client_secret", "tenant_id", "blob_storage_authority",
    "blob_storage_scheme", "dfs_storage_authority", "dfs_storage_scheme",
    "credential_kind",
}  # fmt: skip
# Variables that would make obstore's requests other ones, and that no argument overrides.
_OTHERS = (
    "AZURE_ENCRYPTION_KEY", "AZURE_ROOT_CERTIFICATE", "AZURE_DEFAULT_HEADERS", "AZURE_PROXY_CA_CERTIFICATE",
    "AZURE_FABRIC_",
)  # fmt: skip
_SCOPE = "https://storage.azure.com/.default"
# credential_kind -> azure-identity's class
_CREDENTIALS = {
    "default": "DefaultAzureCredential",
    "environment": "EnvironmentCredential",
    "workload_identity": "WorkloadIdentityCredential",
    "cli": "AzureCliCredential",
}
_OF_URIS = {
    "blob_storage_authority", "dfs_storage_authority", "credential_kind", "enable_tls", "tenant_id", "client_id",
    "client_secret",
}  # fmt: skip
_BLOB, _DFS = ".blob.core.windows.net", ".dfs.core.windows.net"


def options_of(authority: str, query: str) -> tuple[dict[str, Any], str]:
    """The options of a URI, and its container, "" where that begins the path. Raises RequestError.

    abfs://container@account.dfs.core.windows.net/, abfs://account.dfs.core.windows.net/container/,
    abfs://account@container/, abfs://account@host:port/container/
    """
    user, _, host = authority.rpartition("@")
    user = unquote(user.partition(":")[0])
    parts = [part for part in query.split("&") if part]
    is_signed = any(part.startswith("sig=") for part in parts)
    signature = [part for part in parts if is_signed and unquote(part.partition("=")[0]) not in _OF_URIS]
    named = options_in("&".join(part for part in parts if part not in signature), _OF_URIS, "Azure Blob File System")
    scheme = "https" if yes_or_no("enable_tls", named.pop("enable_tls", "true")) else "http"
    found: dict[str, Any] = {"blob_storage_authority": _BLOB, "dfs_storage_authority": _DFS}
    if host.endswith(_BLOB):
        account, container = host.removesuffix(_BLOB), ""
    elif host.endswith(_DFS):
        account, container = host.removesuffix(_DFS), user
    elif "." in host or ":" in host:
        account, container = user, ""
        found = dict.fromkeys(found, host)
    else:
        account, container = user, host
    if not account:
        raise RequestError("names no account; write abfs://container@account.dfs.core.windows.net/path")
    found |= {**named, "account_name": account, "blob_storage_scheme": scheme, "dfs_storage_scheme": scheme}
    kind = found.get("credential_kind")
    if kind not in (None, "anonymous", *_CREDENTIALS):
        raise RequestError(f"Unexpected credential_kind: '{kind}'")
    if kind == "default":
        del found["credential_kind"]
    if signature:
        found["sas_token"] = "&".join(signature)
    return found, f"{container}/" if container else ""


def settings_of(options: Mapping[str, Any], container: str) -> ObjectSettings:
    """The settings for a container on a storage with these options (remote.Objects). Raises InexpressibleError."""
    refuse_unused(options, _USED)
    refuse_variables(_OTHERS)
    account, authority = options.get("account_name"), options.get("blob_storage_authority") or _BLOB
    if not BUCKET.fullmatch(container) or not account:
        raise InexpressibleError(f"{container or 'no name'} is no name of a container")
    scheme = options.get("blob_storage_scheme") or "https"
    endpoint = f"{scheme}://{account}{authority}" if authority.startswith(".") else f"{scheme}://{authority}/{account}"
    credentials, secrets, more = _credentials(options)
    config = {
        "account_name": account,
        "endpoint": endpoint,
        "use_emulator": False,
        "use_fabric_endpoint": False,
        "skip_signature": credentials is None and not secrets,
        **more,
    }
    client = client_options(endpoint, curls_proxy(endpoint))
    suffixes, folders = False, True  # a folder of a hierarchical namespace answers HEAD as an empty object does
    return ObjectSettings("AzureStore", container, config, client, credentials, secrets, suffixes, False, folders)


def _credentials(
    options: Mapping[str, Any],
) -> tuple[Credentials | None, tuple[object, ...], dict[str, Any]]:
    """The provider of credentials, a key of them, and the options by which obstore finds others."""
    key, sas = options.get("account_key"), (options.get("sas_token") or "").removeprefix("?")
    if key:
        return (lambda: {"access_key": key, "expires_at": None}), (key,), {}
    if sas:
        return (lambda: {"sas_token": sas, "expires_at": None}), (sas,), {}
    kind = options.get("credential_kind") or "default"
    if kind == "anonymous":
        return None, (), {}
    own = {name: options[name] for name in ("tenant_id", "client_id", "client_secret") if options.get(name)}
    if not _has_identity():
        more = {**own, "use_azure_cli": "true"} if kind == "cli" else dict(own)
        return None, ("obstore", kind, *sorted(own.items()), *variables("AZURE_")), more
    if "client_secret" in own:
        made = _by_identity("ClientSecretCredential", *(own.get(name, "") for name in _OF_CLIENTS))
        return made, tuple(own.items()), {}
    if "client_id" in own:
        return *_alone(_by_identity("ManagedIdentityCredential", client_id=own["client_id"])), {}
    return *_alone(_by_identity(_CREDENTIALS[kind])), {}


def _has_identity() -> bool:
    try:
        import azure.identity  # noqa: F401
    except ImportError:
        return False
    return True


_OF_CLIENTS = "tenant_id", "client_id", "client_secret"


def _alone(credentials: Credentials) -> tuple[Credentials, tuple[object, ...]]:
    """Credentials for one file system alone.

    Variables and `az login` say whose they are, and may say something else when another file system is made.
    """
    return credentials, (credentials,)


def _by_identity(name: str, *arguments: str, **named: str) -> Credentials:
    """Tokens of azure-identity, which keeps and renews them. The first is requested here, for its error."""
    import azure.identity

    try:
        found = getattr(azure.identity, name)(*arguments, **named)
        found.get_token(_SCOPE)
    except Exception as error:  # such as a machine without an identity
        reason = without_secret(first_line(error))
        raise InexpressibleError(f"azure-identity gives no token: {reason}") from error

    def token() -> dict[str, Any]:
        now = found.get_token(_SCOPE)
        return {"token": now.token, "expires_at": datetime.fromtimestamp(now.expires_on, UTC)}

    return token

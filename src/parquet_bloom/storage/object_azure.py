"""The options of pyarrow's file system of Azure as obstore's, or the reason why they cannot be.

    pyarrow's option                      obstore
    account_name, blob_storage_*          endpoint, with the account in the host's name or behind it, as pyarrow has it
    account_key, sas_token                credential_provider
    credential_kind=anonymous in a URI    skip_signature
    client_id, client_secret, tenant_id,  credential_provider: a token of azure-identity, by the credential of the same
    none of them, other kinds             name; without that package InexpressibleError, and pyarrow asks for the token

The proxy is the one that libcurl would take. pyarrow's dfs_storage_* are of writing and of folders.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from parquet_bloom.storage.object_settings import (
    BUCKET,
    Credentials,
    InexpressibleError,
    ObjectSettings,
    client_options,
    curls_proxy,
    refuse_variables,
)

_USED = {
    "account_name", "account_key", "sas_token", "client_id", "client_secret", "tenant_id", "blob_storage_authority",
    "blob_storage_scheme", "dfs_storage_authority", "dfs_storage_scheme",
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


def credential_kind(filesystem: Any, options: Mapping[str, Any]) -> str | None:
    """The credential_kind of the URI that a file system was made of; "default" without; None: another one.

    pyarrow does not export it, but compares it.
    """
    from pyarrow import fs

    if any(options[name] for name in ("account_key", "sas_token", "client_id")):
        return None
    if filesystem.equals(fs.AzureFileSystem(**options)):
        return "default"
    names = ("blob_storage_authority", "dfs_storage_authority")
    query = {name: options[name] for name in names}
    query["enable_tls"] = "false" if options["blob_storage_scheme"] == "http" else "true"
    for kind in ("anonymous", *_CREDENTIALS):
        uri = f"abfs://{options['account_name']}@data/?{urlencode({**query, 'credential_kind': kind})}"
        try:
            other, _ = fs.FileSystem.from_uri(uri)
        except Exception:
            continue
        if filesystem.equals(other):
            return kind
    return None


def settings_of(options: Mapping[str, Any], container: str, kind: str | None) -> ObjectSettings:
    """The settings for a container on the file system with these options (remote.arrow_options).

    kind  as `credential_kind` gives it
    Raises InexpressibleError.
    """
    for name, value in options.items():
        if value and name not in _USED:
            raise InexpressibleError(name)
    refuse_variables(_OTHERS)
    account, authority = options["account_name"], options["blob_storage_authority"]
    if not BUCKET.fullmatch(container) or not account:
        raise InexpressibleError("a container of this name")
    scheme = options["blob_storage_scheme"]
    endpoint = f"{scheme}://{account}{authority}" if authority.startswith(".") else f"{scheme}://{authority}/{account}"
    credentials, secrets = _credentials(options, kind)
    config = {
        "account_name": account,
        "endpoint": endpoint,
        "use_emulator": False,
        "use_fabric_endpoint": False,
        "skip_signature": credentials is None,
    }
    client = client_options(endpoint, curls_proxy(endpoint))
    suffixes, folders = False, True  # a folder of a hierarchical namespace answers HEAD as an empty object does
    return ObjectSettings("AzureStore", container, config, client, credentials, secrets, suffixes, False, folders)


def _credentials(options: Mapping[str, Any], kind: str | None) -> tuple[Credentials | None, tuple[object, ...]]:
    key, sas = options["account_key"], options["sas_token"].removeprefix("?")
    if key:
        return (lambda: {"access_key": key, "expires_at": None}), (key,)
    if sas:
        return (lambda: {"sas_token": sas, "expires_at": None}), (sas,)
    if kind == "anonymous":
        return None, ()
    tenant, client, secret = options["tenant_id"], options["client_id"], options["client_secret"]
    if secret:
        return _by_identity("ClientSecretCredential", tenant, client, secret), (tenant, client, secret)
    if client:
        return _alone(_by_identity("ManagedIdentityCredential", client_id=client))
    if kind not in _CREDENTIALS:
        raise InexpressibleError("a credential_kind of a later pyarrow")
    return _alone(_by_identity(_CREDENTIALS[kind]))


def _alone(credentials: Credentials) -> tuple[Credentials, tuple[object, ...]]:
    """Credentials for one file system alone.

    Variables and `az login` say whose they are, and may say something else when another file system is made.
    """
    return credentials, (credentials,)


def _by_identity(name: str, *arguments: str, **named: str) -> Credentials:
    """Tokens of azure-identity, which keeps and renews them. The first is requested here: else pyarrow has its try."""
    try:
        import azure.identity
    except ImportError:
        reason = "no key and no SAS in the options, and azure-identity is not installed"
        raise InexpressibleError(reason) from None
    try:
        found = getattr(azure.identity, name)(*arguments, **named)
        found.get_token(_SCOPE)
    except Exception as error:  # such as a machine without an identity
        raise InexpressibleError(f"azure-identity gives no token ({type(error).__name__})") from error

    def token() -> dict[str, Any]:
        now = found.get_token(_SCOPE)
        return {"token": now.token, "expires_at": datetime.fromtimestamp(now.expires_on, UTC)}

    return token

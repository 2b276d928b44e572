"""Arguments of obstore's stores that its readers of S3, Google's storage and Azure have in common.

obstore reads the environment too, and takes more from it than a URI means: HTTPS_PROXY, AWS_SKIP_SIGNATURE,
GOOGLE_BEARER_TOKEN. So what changes how an object is read is named here. A module for each kind finds it:

    object_s3, object_google, object_azure     options_of(authority, query) -> options of a URI, and the bucket in it
                                               settings_of(options, bucket) -> ObjectSettings, or InexpressibleError

Options have the names of parameters of pyarrow's file systems, as remote.Objects has them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import unquote, urlsplit

from parquet_bloom.errors import RequestError

BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{,254}")
_CONNECT_S, _ANSWER_S = 3.0, 10.0  # until a connection stands, and between two pieces of an answer
_WHOLE_S = 3600.0  # of an answer: a slow line is none that hangs
_CERTIFICATES = 8 << 20  # bytes
_RETRIES, _RETRIES_S = 3, 30.0
CREDENTIALS_KEPT = timedelta(minutes=10)  # then their source is asked again, which renews those that would end before
# A proxy that no host goes through: without any it would be the environment's.
DIRECT = "http://127.0.0.1:9", "*,0.0.0.0/0,::/0"


class InexpressibleError(OSError):
    """A setting that obstore does not have; its text says what to do."""


def of_no_use(name: str) -> InexpressibleError:
    """The error for a setting."""
    return InexpressibleError(
        f"{name} cannot be used here; leave it out, or give a file system of pyarrow as filesystem"
    )


def refuse_unused(options: Mapping[str, Any], used: Collection[str]) -> None:
    """Raise InexpressibleError for an option that is set, and is none of those that are used."""
    for name, value in options.items():
        if value and name not in used:
            raise of_no_use(name)


def variables(beginning: str) -> tuple[tuple[str, str], ...]:
    """Names and values of the environment's variables that begin so."""
    return tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith(beginning)))


def options_in(query: str, known: Collection[str], storage: str) -> dict[str, str]:
    """The options of a URI. Raises RequestError for others than those known."""
    found = {}
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        name = unquote(name)
        if name not in known:
            raise RequestError(f"Unexpected query parameter in {storage} URI: '{name}'")
        found[name] = unquote(value)
    return found


def yes_or_no(name: str, value: str) -> bool:
    """An option that is true or false. Raises RequestError."""
    if value.lower() not in ("true", "false", "1", "0"):
        raise RequestError(f"{name} is true or false, not {value!r}")
    return value.lower() in ("true", "1")


Credentials = Callable[[], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ObjectSettings:
    """A store of obstore's, and its arguments.

    store          the name of its class
    credentials    None: obstore finds them by `config`, or requests are not signed
    secrets        what tells the credentials of two settings apart, beside the others
    has_suffixes   whether the storage knows requests for last bytes
    by_generation  whether its versions have numbers, which requests name; else they have ETags
    has_folders    whether it shows a folder as an empty object, too
    """

    store: str
    bucket: str
    config: Mapping[str, Any]
    client: Mapping[str, Any]
    credentials: Credentials | None
    secrets: tuple[object, ...]
    has_suffixes: bool = True
    by_generation: bool = False
    has_folders: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for settings that make equal stores."""
        return self.store, self.bucket, *sorted(self.config.items()), *sorted(self.client.items()), self.secrets

    def make(self) -> Any:
        """Make the store. Raises InexpressibleError; ImportError without obstore."""
        from obstore import store

        backoff = {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=2), "base": 2}
        # After 5xx, 429, and connections that fail or end: again after 0.1 s, 0.2 s, 0.4 s.
        retry = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRIES_S), "backoff": backoff}
        return getattr(store, self.store)(
            self.bucket,
            config=self.config,
            client_options=self.client,
            retry_config=retry,
            credential_provider=self.credentials,
        )


def refuse_variables(beginnings: tuple[str, ...]) -> None:
    """Raise InexpressibleError for a variable that would change obstore's requests, and that no argument overrides."""
    for name in os.environ:
        if name.upper().startswith(beginnings):
            raise InexpressibleError(f"the variable {name} would change what is requested; unset it")


def client_options(
    endpoint: str,
    proxy: tuple[str, str],
    connect_s: float | None = None,
    answer_s: float | None = None,
    authority: str | None = None,
) -> dict[str, Any]:
    """obstore's client_options.

    proxy      its URL, and the hosts that are asked directly: DIRECT or of `curls_proxy`
    connect_s  until a connection stands
    answer_s   between two pieces of an answer
    authority  the file of certificates that are trusted beside the system's
    """

    def ms(given: float | None, otherwise: float) -> str:
        return f"{round(1000 * (given if given is not None and given > 0 else otherwise))}ms"

    options = {
        "allow_http": endpoint.startswith("http:"),
        "allow_invalid_certificates": False,
        "connect_timeout": ms(connect_s, _CONNECT_S),
        "read_timeout": ms(answer_s, _ANSWER_S),
        "timeout": ms(None, _WHOLE_S),
        "http1_only": True,
        "http2_only": False,
        "randomize_addresses": False,
        "proxy_url": proxy[0],
        "proxy_excludes": proxy[1],
    }
    if authority is not None:
        try:
            with open(authority, "rb") as file:
                options["root_certificate"] = file.read(_CERTIFICATES)
        except OSError as error:
            raise InexpressibleError(f"{authority}, the file of certificates: {error.strerror}") from error
    return options


def curls_proxy(endpoint: str) -> tuple[str, str]:
    """The proxy that libcurl takes from the environment, as Google's and Azure's libraries do; as in client_options."""
    url = urlsplit(endpoint)
    # HTTP_PROXY is none of libcurl's: a web server would have it from a header of whoever asks it.
    variables = ["http_proxy"] if url.scheme == "http" else ["https_proxy", "HTTPS_PROXY"]
    found = next((text for name in [*variables, "all_proxy", "ALL_PROXY"] if (text := os.environ.get(name))), None)
    direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if found is None or _is_among(url.hostname or "", re.split(r"[,\s]+", direct)):
        return DIRECT
    return (found if "://" in found else f"http://{found}"), direct


def _is_among(host: str, names: list[str]) -> bool:
    """Whether no_proxy names a host: itself, a domain that it is in, a network, or * for all."""
    try:
        address = ip_address(host)
    except ValueError:
        named = [name.strip(".").lower() for name in names]
        return "*" in names or any(name and (host == name or host.endswith(f".{name}")) for name in named)
    for name in names:
        try:
            if name == "*" or address in ip_network(name.strip("[]"), strict=False):
                return True
        except ValueError:
            continue
    return False

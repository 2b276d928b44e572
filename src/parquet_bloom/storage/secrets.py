"""Secrets in what people type, as in URIs: s3://KEY:SECRET@bucket/path. No message shows them."""

from __future__ import annotations

import re

# A secret of S3's may hold "/", which ends the authority of a URI; it then stands in part where a path would.
_USER = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)([^\s:/?#@'\"]*):([^\s@'\"]*)@")
_ANY_USER = re.compile(r"://[^/?#]*@")
_WORDS = re.compile(r"pass|pwd|secret|token|credential|key|auth|header|signature|sas\b", re.IGNORECASE)
_PORT = re.compile(r"[0-9]+(/|$)")


def without_secret(text: str) -> str:
    """A text with the user and the secret of each URI in it taken out: s3://bucket/path."""
    return _USER.sub(lambda found: found[0] if _is_port(found) else found[1], text)


def may_be_secret(pair: str) -> bool:
    """Whether a catalog's property, as NAME=VALUE, is better not shown: by its words, or by a user in a URI."""
    return _WORDS.search(pair) is not None or _ANY_USER.search(pair) is not None


def _is_port(found: re.Match[str]) -> bool:
    """hdfs://host:8020/user@home/x has a port, and an "@" in its path; a bucket has no port."""
    return not found[1].lower().startswith("s3") and _PORT.match(found[3]) is not None

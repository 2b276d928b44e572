"""Which features a table's protocol names, and which of them this package reads.

Source: the Delta protocol, "Table Features" and "Valid Feature Names in Table Features".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parquet_bloom.errors import TableFormatError

# Reader features that change nothing for who reads files by the log, or whose meaning is read here.
_READ = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
_CATALOG = ("catalogManaged", "catalogOwned-preview")
# What versions of the protocol before features stand for.
_WRITER_OF = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}


def check_readable(table: object, protocol: Mapping[str, Any]) -> None:
    """Raise TableFormatError for a table with reader features that are not read here; it names them."""
    version = int(protocol["minReaderVersion"])
    if version > 3:
        raise TableFormatError(table, f"needs a reader of version {version} of the Delta protocol; this one knows 3")
    if version < 3:
        return
    named = set(protocol.get("readerFeatures") or ())
    if any(name in named for name in _CATALOG):
        reason = "is managed by a catalog, which alone knows its latest version; the log in its folder is not enough"
        raise TableFormatError(table, reason)
    if unknown := sorted(named - _READ):
        raise TableFormatError(table, f"has reader features that this version does not know: {', '.join(unknown)}")


def maps_columns(protocol: Mapping[str, Any]) -> bool:
    """Whether readers must heed column mapping: by the version of the protocol, or as a feature that it names."""
    version = int(protocol["minReaderVersion"])
    return version == 2 if version < 3 else "columnMapping" in (protocol.get("readerFeatures") or ())


def writer_features(protocol: Mapping[str, Any]) -> frozenset[str]:
    """The features that a writer must heed: named ones, or those of its version of the protocol."""
    version = int(protocol["minWriterVersion"])
    if version >= 7:
        return frozenset(protocol.get("writerFeatures") or ())
    return frozenset(name for since, names in _WRITER_OF.items() if since <= version for name in names)

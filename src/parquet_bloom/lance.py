"""Zone indexes as Lance has them, beside Parquet files that must not be touched, or for a Lance data set.

    from parquet_bloom import lance

    lance.build_index("events/", ["trace_id"], "events-index/")
    lance.query_index("events-index/", "trace_id = '4bf92f3577b34da6'").zones
    parquet_bloom.read_table("events/", "trace_id = '4bf92f3577b34da6'", index="events-index/")

Each function is one command of `parquet-bloom index` too. Needs the extra `lance` (pylance).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parquet_bloom.zones.build import BuildReport, BuiltIndex, build_index
    from parquet_bloom.zones.query import Matches, Zone, query_index
    from parquet_bloom.zones.verify import (
        IndexInfo,
        VerifiedIndex,
        ZoneInfo,
        inspect_index,
        register_index,
        verify_index,
    )

_HOMES = {
    "BuildReport": "build",
    "BuiltIndex": "build",
    "IndexInfo": "verify",
    "Matches": "query",
    "VerifiedIndex": "verify",
    "Zone": "query",
    "ZoneInfo": "verify",
    "build_index": "build",
    "inspect_index": "verify",
    "query_index": "query",
    "register_index": "verify",
    "verify_index": "verify",
}

__all__ = [
    "BuildReport",
    "BuiltIndex",
    "IndexInfo",
    "Matches",
    "VerifiedIndex",
    "Zone",
    "ZoneInfo",
    "build_index",
    "inspect_index",
    "query_index",
    "register_index",
    "verify_index",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"parquet_bloom.zones.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__

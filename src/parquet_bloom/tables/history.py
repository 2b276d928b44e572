"""What a table's log tells of the past: when its files came, and which commits were ours.

    commit of ours, version 7: columns trace_id     file a came with version 7       has filters
                                                    file b came with version 9       lacks them: they were lost with 9
                                                    nobody knows when file c came    lacks them: that is all

Nothing is guessed: what the log does not say, any more, is left out here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

OPERATION = "parquet-bloom.operation"
_COLUMNS, _COMPLETE = "parquet-bloom.columns", "parquet-bloom.complete"
_MOST_NAMES = 100_000  # a list of columns that is longer is nobody's
_SHOWN = 6


class Version(NamedTuple):
    """A version of a table: its place in the order of versions, and its name."""

    order: int
    name: str


@dataclass(frozen=True, slots=True)
class FilterCommit:
    """A commit of ours.

    operation  "add" or "remove"
    columns    that got filters in files of it, or lost them, as the table named them then
    complete   of an `add`: columns of which each row group of each file of it has a filter, or needs none
    current    the table's schema is still the one of then, so that names mean the same columns
    """

    version: Version
    operation: str
    columns: frozenset[str]
    complete: frozenset[str] = frozenset()
    current: bool = True


@dataclass(frozen=True, slots=True)
class History:
    """What the log knows of the files of one snapshot.

    since    path of a file -> the version with which it came as it is; only where that is certain
    until    path of a file -> a version at which it was there as it is, whether or not it came earlier
    commits  of ours, the oldest first
    grows    a file of `until` may have got a tail later, which the log does not tell
    """

    since: Mapping[str, Version] = field(default_factory=dict)
    until: Mapping[str, Version] = field(default_factory=dict)
    commits: Sequence[FilterCommit] = ()
    grows: bool = False

    def complete_in(self, path: str) -> Collection[str]:
        """Columns that need no filter more in a file, as the commit of ours says with which it came."""
        came = self.since.get(path)
        for commit in self.commits if came is not None else ():
            if commit.version == came and commit.operation == "add" and commit.current:
                return commit.complete
        return ()


def properties_of(operation: str, columns: Collection[str], complete: Collection[str] | None) -> dict[str, str]:
    """What a commit of ours says of itself in the log; `filter_commit` reads it."""
    found = {OPERATION: operation, _COLUMNS: json.dumps(sorted(columns))}
    return found if complete is None else {**found, _COMPLETE: json.dumps(sorted(complete))}


def described(properties: Mapping[str, Any]) -> str:
    """The same in words, for people who read a table's history."""
    names = sorted(_names(properties.get(_COLUMNS)))
    on = f" on {', '.join(names[:_SHOWN])}" if names else ""
    more = f" and {len(names) - _SHOWN:,} more columns" if len(names) > _SHOWN else ""
    return f"parquet-bloom {properties.get(OPERATION)}: Bloom filters{on}{more}; no row changed"


def filter_commit(version: Version, properties: Mapping[str, Any], current: bool = True) -> FilterCommit | None:
    """The commit of ours that properties tell of; None: it is another's, or says nothing that can be read."""
    operation = properties.get(OPERATION)
    if operation not in ("add", "remove"):
        return None
    columns, complete = (_names(properties.get(name)) for name in (_COLUMNS, _COMPLETE))
    return FilterCommit(version, operation, columns, complete, current)


def _names(text: Any) -> frozenset[str]:
    """A list of names, as JSON; none for what is no such list."""
    try:
        names = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return frozenset()
    if not isinstance(names, list) or len(names) > _MOST_NAMES:
        return frozenset()
    return frozenset(name for name in names if isinstance(name, str))

"""The past of a table by its log: when its files came, and which commits were ours.

    commit of ours, version 7: columns trace_id     file a came with version 7       has filters
                                                    file b came with version 9       lacks them: they were lost with 9
                                                    nobody knows when file c came    lacks them: that is all
    commit of ours, version 11: columns user_id     file b' took the place of b      its rows came with 9

Nothing is guessed: what the log does not say, any more, is left out here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple

OPERATION = "parquet-bloom.operation"
OF_ROWS = ("delete", "upsert")  # operations that change rows, by their keys
_COLUMNS, _COMPLETE, _CHOICE = "parquet-bloom.columns", "parquet-bloom.complete", "parquet-bloom.choice"
_OPTIONS = "parquet-bloom.options"
_SHOWN = 6

Identity = tuple[str, ...]  # of a column, see source.columns.identities
Identities = Mapping[str, Identity]  # by name
Column = tuple[str, Identity]  # and the name that it had


class Version(NamedTuple):
    """A version of a table: its place in the order of versions, and its name."""

    order: int
    name: str


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """The options of a column's filters, so that more of them can be built alike.

    spec       the name of their form, as the log has it: it may be that of a later release
    fpp        the rate to stay within, or "auto"
    max_bytes  the most a bitset may take; None: as much as the form allows
    """

    spec: str
    fpp: float | Literal["auto"]
    max_bytes: int | None = None

    @classmethod
    def read(cls, told: Any) -> FilterOptions | None:
        """Of what a log says; None for what no `add` writes."""
        if not isinstance(told, dict) or not isinstance(told.get("spec"), str):
            return None
        fpp, most = told.get("fpp"), told.get("max_bytes")
        if fpp != "auto" and not (type(fpp) is float and 0 < fpp < 1):
            return None
        if most is not None and not (type(most) is int and 0 < most < 1 << 31):
            return None
        return cls(told["spec"], fpp, most)


@dataclass(frozen=True, slots=True)
class FilterCommit:
    """A commit of ours.

    operation  "add" or "remove"
    columns    that got filters in files of it, or lost them, by their names of today
    complete   of an `add`: columns of which each row group of each file of it has a filter, or needs none
    choice     of an `add` that named no columns: what it was asked for; each file of it has what that gives
    options    of an `add`: what was asked of each column's filters
    """

    version: Version
    operation: str
    columns: frozenset[str]
    complete: frozenset[str] = frozenset()
    choice: str = ""
    options: Mapping[str, FilterOptions] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class History:
    """The log's history of the files of one snapshot.

    since    path of a file -> the version with which it came as it is; only where that is certain
    rows_since  the same of its rows: where a commit of ours brought the file, those of the file whose place it took
    until    path of a file -> a version at which it was there as it is, whether or not it came earlier
    commits  of ours, the oldest first
    grows    a file of `until` may have got a tail later, which the log does not tell
    """

    since: Mapping[str, Version] = field(default_factory=dict)
    rows_since: Mapping[str, Version] = field(default_factory=dict)
    until: Mapping[str, Version] = field(default_factory=dict)
    commits: Sequence[FilterCommit] = ()
    grows: bool = False

    def options(self) -> dict[str, FilterOptions]:
        """The options of the last `add` of ours on each column, as far as the log has them."""
        return {
            name: commit.options[name]
            for commit in self.commits
            if commit.operation == "add"
            for name in commit.columns & commit.options.keys()
        }

    def promised(self) -> dict[str, FilterCommit]:
        """Path of a file -> the `add` of ours with which it came: what that says of its files still holds.

        What a later `remove` took from any file does not count: on the same path a file got shorter, and its entry may
        not tell.
        """
        holds: dict[Version, FilterCommit] = {}
        removed: frozenset[str] = frozenset()
        any_removed = False
        for commit in reversed(self.commits):
            if commit.operation == "remove":
                removed, any_removed = removed | commit.columns, True
            else:
                choice = "" if any_removed else commit.choice
                holds[commit.version] = replace(commit, complete=commit.complete - removed, choice=choice)
        return {path: holds[came] for path, came in self.since.items() if came in holds}


def properties_of(
    operation: str,
    columns: Collection[Column],
    complete: Collection[Column] | None,
    choice: str,
    options: Mapping[Column, FilterOptions],
) -> dict[str, str]:
    """The properties of a commit of ours in the log; `filter_commit` reads them."""
    found = {OPERATION: operation, _COLUMNS: json.dumps(sorted(columns))}
    if complete is not None:
        found[_COMPLETE] = json.dumps(sorted(complete))
    if options:
        found[_OPTIONS] = json.dumps([[*column, asdict(of)] for column, of in sorted(options.items())])
    return {**found, **({_CHOICE: choice} if choice else {})}


def described(properties: Mapping[str, Any]) -> str:
    """The same in words, for people who read a table's history."""
    if properties.get(OPERATION) in OF_ROWS:
        return f"parquet-bloom {properties[OPERATION]}: rows by their keys"
    names = [name for name, _ in _columns(properties.get(_COLUMNS))]
    on = f" on {', '.join(names[:_SHOWN])}" if names else ""
    more = f" and {len(names) - _SHOWN:,} more columns" if len(names) > _SHOWN else ""
    what = "true statistics" if properties.get(OPERATION) == "repair" else "Bloom filters"
    return f"parquet-bloom {properties.get(OPERATION)}: {what}{on}{more}; no row changed"


def filter_commit(version: Version, properties: Mapping[str, Any], today: Identities) -> FilterCommit | None:
    """The commit of ours that properties describe; None: it is another program's.

    today  the table's columns: what is none of these any more, though it has the name, is left out
    """
    operation = properties.get(OPERATION)
    if operation not in ("add", "remove"):
        return None
    names = {identity: name for name, identity in today.items()}
    columns, complete = (
        frozenset(names[identity] for _, identity in _columns(properties.get(key)) if identity in names)
        for key in (_COLUMNS, _COMPLETE)
    )
    choice = properties.get(_CHOICE)
    return FilterCommit(
        version,
        operation,
        columns,
        complete,
        choice if isinstance(choice, str) else "",
        {names[identity]: of for identity, of in _options(properties.get(_OPTIONS)) if identity in names},
    )


def _columns(text: Any) -> list[Column]:
    """Columns as `properties_of` wrote them; none for what is no such text."""
    try:
        return [(str(name), tuple(map(str, identity))) for name, identity in _json(text)]
    except (ValueError, TypeError):
        return []


def _options(text: Any) -> list[tuple[Identity, FilterOptions]]:
    """The options of columns, as `properties_of` wrote them; none for another text."""
    try:
        told = [(tuple(map(str, identity)), FilterOptions.read(of)) for _, identity, of in _json(text)]
    except (ValueError, TypeError):
        return []
    return [(identity, of) for identity, of in told if of is not None]


def _json(text: Any) -> Any:
    """Raises ValueError."""
    try:
        return (json.loads(text) if isinstance(text, str) else None) or ()
    except RecursionError as error:
        raise ValueError from error

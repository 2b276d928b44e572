"""Names become tables and files: delta:PATH@3, iceberg:CATALOG/NS.TABLE, or paths; and commands that name them.

    delta:PATH_OR_URI[@version]
    iceberg:CATALOG/namespace.table[@snapshot]
    ducklake:CATALOG/schema.table[@snapshot]

Only digits or an ISO time behind the last @ are a version. A path that begins with ~/ lies in the user's own folder;
no shell sees to that behind a colon. A file of such a name is reached as ./delta:name.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from parquet_bloom.errors import RequestError, parameter
from parquet_bloom.options import TableOptions
from parquet_bloom.storage.display import may_be_secret, without_secret
from parquet_bloom.storage.paths import DataFile

FORMS = {
    "delta": "delta:PATH_OR_URI[@VERSION]",
    "iceberg": "iceberg:CATALOG/NAMESPACE.TABLE[@SNAPSHOT]",
    "ducklake": "ducklake:CATALOG/SCHEMA.TABLE[@SNAPSHOT]",
}
_NAME = re.compile(rf"({'|'.join(FORMS)}):(.*)", re.DOTALL)
_TIME = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_VERSION = re.compile(rf"(.+)@(\d+|{_TIME})", re.DOTALL)
_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*")  # an @ in it stands before a host or bucket


class NamedSource:
    """A value in the place of a call's names: `paths` as they were named, on `filesystem`."""

    paths: Any
    filesystem: Any


def paths_of_source(source: Any) -> Any:
    """The paths of a call, also of a Source."""
    return source.paths if isinstance(source, NamedSource) else source


def refuse_named(source: object, instead: str) -> None:
    """Raise RequestError for a Source where its file system and its access to a table would be lost."""
    if isinstance(source, NamedSource):
        raise RequestError(f"a Source is no list of paths here; {instead}")


class TableName(NamedTuple):
    """A table as it is named.

    kind     "delta", "iceberg" or "ducklake"
    where    path, URI, or catalog and name in it
    version  digits or an ISO time; None: the latest
    """

    kind: str
    where: str
    version: str | None

    @property
    def unversioned(self) -> str:
        """The name without its version, which means the latest."""
        return f"{self.kind}:{self.where}"


def parse(text: str) -> TableName | None:
    """Parse a table's name; None for other texts. Raises RequestError for a name without a place."""
    found = _NAME.fullmatch(text)
    if found is None:
        return None
    kind, where = found[1], found[2]
    version = _VERSION.fullmatch(where)
    if version is not None and _AUTHORITY.fullmatch(version[1]) is None:
        where, at = version[1], version[2]
    else:
        at = None
    if not where or where.startswith("@"):
        raise RequestError(f"{without_secret(text)} names no table; write {FORMS[kind]}")
    return TableName(kind, os.path.expanduser(where) if where.startswith("~/") else where, at)


def named_table(sources: Any) -> TableName | None:
    """The one table that the sources of a call name; None where they are files.

    Raises RequestError for several of which one is a table. Names are texts: a Path is always a file's.
    """
    sources = paths_of_source(sources)
    many: Sequence[Any] = sources if isinstance(sources, list | tuple) else [sources]
    names = [parse(source) if isinstance(source, str) else None for source in many if not isinstance(source, DataFile)]
    first = next((name for name in names if name is not None), None)
    if first is not None and len(many) > 1:
        texts = [without_secret(str(source)) for source in many[:2]]
        raise RequestError(f"{texts[0]} and {texts[1]}: a table is read alone; use one call for each")
    return first


def typed_sources(source: Any, filesystem: Any) -> list[str]:
    """The names of a call for a command line; empty where none can name it: bytes, other file systems."""
    if isinstance(source, NamedSource):
        source, filesystem = source.paths, source.filesystem
    many = source if isinstance(source, list | tuple) else [source]
    if filesystem is not None or not all(isinstance(one, str | os.PathLike) for one in many):
        return []
    return [os.fspath(one) for one in many]


# --- what is said beside a name -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableAccess:
    """A user's options of a table beside its name, and what they are for.

    properties   of its catalog, name -> value, as pyiceberg's configuration has them
    allow_roots  paths and URIs of folders: files below these may be read too, if the log names them
    force        files outside of the table's own folders may be changed too
    changes      the table is about to be changed, so that what another writer began may be undone first
    """

    properties: Mapping[str, str] | None = None
    allow_roots: tuple[str, ...] = ()
    force: bool = False
    changes: bool = False

    @classmethod
    def of(cls, properties: Mapping[str, str] | None = None, allow_roots: Any = (), force: bool = False) -> TableAccess:
        """The same from a function's arguments: one root may be a text or a path. Raises RequestError."""
        several = allow_roots if isinstance(allow_roots, list | tuple) else [allow_roots]
        try:
            roots = tuple(os.fspath(root) for root in several if root is not None)
        except TypeError as error:
            raise RequestError(parameter("allow_roots") + f" takes paths and URIs of folders: {error}") from None
        if not all(isinstance(root, str) and root for root in roots):
            raise RequestError(parameter("allow_roots") + " takes paths and URIs of folders, and none is empty")
        return cls(properties, roots, force)

    @classmethod
    def from_options(cls, options: TableOptions, force: bool = False) -> TableAccess:
        """The same from a function's options. Raises RequestError."""
        return cls.of(options.get("catalog_properties"), options.get("allow_roots", ()), force)

    def refuse_files(self) -> None:
        """Raise RequestError where files are named: nothing of this is for them."""
        if self.properties:
            raise RequestError(parameter("catalog_properties") + " are for iceberg: and ducklake:, not for files")
        if self.allow_roots:
            raise RequestError(parameter("allow_roots") + " is for tables, whose logs name files; these are files")


ORDINARY = TableAccess()


# --- commands that people paste -------------------------------------------------------------------
#
# The command that adds filters, as a shell takes it and as Python does: results advise it, and people paste it.


class ShellCommand(str):
    """A command for a shell; `python` is the call that does the same."""

    __slots__ = ("python",)
    python: str

    def __new__(cls, command: str, python: str) -> ShellCommand:
        """Both as they are pasted."""
        made = super().__new__(cls, command)
        made.python = python
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return ShellCommand, (str(self), self.python)


def add_command(
    sources: Sequence[str],
    columns: Sequence[str],
    *,
    in_place: bool = True,
    replace: bool = False,
    spec: str | None = None,
    rate: float | str | None = None,
    rates: Mapping[str, float | str] | None = None,
    max_bytes: int | None = None,
    catalog_properties: Mapping[str, str] | None = None,
    allow_roots: Sequence[str] = (),
) -> ShellCommand:
    """`parquet-bloom add` of these columns, quoted; a source that begins with a dash is no option there.

    sources  of a table the latest version alone is changed, by a commit
    rate   of all columns but those of `rates`
    catalog_properties  of those that may be secrets the name alone is shown
    """
    if (table := named_table(sources)) is not None:
        sources = [table.unversioned]
    of_source, more = _of_source(sources, in_place, catalog_properties, allow_roots)
    options = [word for name in columns for word in ("--column", name)]
    options += ["--replace"] if replace else []
    options += ["--spec", spec] if spec is not None else []
    options += ["--max-bytes", str(max_bytes)] if max_bytes is not None else []
    options += ["--fpp", str(rate)] if rate is not None else []
    options += [word for name, one in (rates or {}).items() for word in ("--column-fpp", f"{name}={one}")]
    options += of_source
    behind = any(one.startswith("-") for one in sources)
    words = [*options, "--", *sources] if behind else [*sources, *options]
    fpp = {**({"*": rate} if rate is not None else {}), **rates} if rates else rate
    python = _call(
        "add_filters",
        _one_or_all(sources),
        {
            "columns": list(columns),
            "replace": replace or None,
            "spec": spec,
            "fpp": fpp,
            "max_bytes": max_bytes,
            **more,
        },
    )
    return ShellCommand(shlex.join(["parquet-bloom", "add", *words]), python)


def repair_command(
    sources: Sequence[str], catalog_properties: Mapping[str, str] | None = None, allow_roots: Sequence[str] = ()
) -> ShellCommand:
    """`parquet-bloom repair` of files, in place, or of a table; arguments as add_command has them."""
    options, more = _of_source(sources, True, catalog_properties, allow_roots)
    behind = any(one.startswith("-") for one in sources)
    words = [*options, "--", *sources] if behind else [*sources, *options]
    python = _call("repair", _one_or_all(sources), more)
    return ShellCommand(shlex.join(["parquet-bloom", "repair", *words]), python)


def _of_source(
    sources: Sequence[str], in_place: bool, properties: Mapping[str, str] | None, roots: Sequence[str]
) -> tuple[list[str], dict[str, Any]]:
    """Options of files that are changed, or of a table, which are no change in place; and the same as keywords."""
    in_place = in_place and named_table(sources) is None
    shown = {key: "..." if may_be_secret(f"{key}={text}") else text for key, text in (properties or {}).items()}
    options = ["--in-place"] if in_place else []
    options += [word for key, text in shown.items() for word in ("--catalog-property", f"{key}={text}")]
    options += [word for root in roots for word in ("--allow-root", root)]
    keywords = {
        "in_place": in_place or None,
        "catalog_properties": shown or None,
        "allow_roots": list(roots) or None,
    }
    return options, keywords


def check_command(sources: Sequence[str], predicate: str) -> ShellCommand:
    """`parquet-bloom check` of a predicate."""
    python = _call("check", _one_or_all(sources), {}, predicate)
    return ShellCommand(shlex.join(["parquet-bloom", "check", *sources, predicate]), python)


def _one_or_all(sources: Sequence[str]) -> str | list[str]:
    return sources[0] if len(sources) == 1 else list(sources)


def _call(function: str, source: Any, keywords: Mapping[str, Any], *more: Any) -> str:
    shown = [*map(repr, (source, *more)), *(f"{key}={value!r}" for key, value in keywords.items() if value is not None)]
    return f"parquet_bloom.{function}({', '.join(shown)})"

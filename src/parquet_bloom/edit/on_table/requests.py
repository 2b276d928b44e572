"""What may be asked of a table that gets new versions of its files, and what of files alone."""

from __future__ import annotations

from typing import Any

from parquet_bloom.edit.on_table.commits import CommitOptions
from parquet_bloom.errors import RequestError, parameter
from parquet_bloom.storage.secrets import without_secret
from parquet_bloom.storage.source import PathLike
from parquet_bloom.tables.named.names import TableName
from parquet_bloom.tables.named.sources import open_table
from parquet_bloom.tables.roots import TableAccess
from parquet_bloom.tables.snapshot import Table, Way


def commit_options(operation: str, commit: Way | None, files: int | None, dry_run: bool) -> CommitOptions:
    """How a table gets its commits. Raises RequestError."""
    if commit not in (None, "same-path", "new-path"):
        raise RequestError(parameter("commit") + f" {commit!r} is neither 'same-path' nor 'new-path'")
    if files is not None and files < 1:
        raise RequestError(parameter("files_per_commit") + f" {files} is not positive")
    return CommitOptions(operation, commit, files, dry_run)


def refuse_outputs(name: TableName, output: PathLike | None, in_place: bool, overwrite: bool, raw_files: bool) -> None:
    """Raise RequestError for what is said of files, where a table is named."""
    given = [
        (output is not None, parameter("output")), (in_place, parameter("in_place", True)),
        (overwrite, parameter("overwrite", True)), (raw_files, parameter("raw_files", True)),
    ]  # fmt: skip
    for is_given, option in given:
        if is_given:
            raise RequestError(f"{_shown(name)}: " + option + " is for files; a table's change is its commit")


def refuse_commits(commit: Way | None, files: int | None, access: TableAccess) -> None:
    """Raise RequestError for what is said of tables, where files are named."""
    given = [
        (commit, parameter("commit")), (files, parameter("files_per_commit")),
        (access.properties, parameter("catalog_properties")), (access.allow_roots or None, parameter("allow_roots")),
    ]  # fmt: skip
    for value, option in given:
        if value is not None:
            raise RequestError(option + " is for tables, as delta:PATH or iceberg:CATALOG/namespace.table")


def check_append(append: bool, commit: Way | None) -> None:
    """Raise RequestError where a table could get copies, behind which nothing is written."""
    if append and commit != "same-path":
        raise RequestError(parameter("append", True) + " is, of a table, for " + parameter("commit", "same-path"))


def check_placement(placement: str | None, commit: Way | None) -> None:
    """Raise RequestError where filters are wanted at a place that a file which keeps its path has not."""
    if commit == "same-path" and placement not in (None, "tail"):
        where, way = parameter("placement", placement), parameter("commit", "same-path")
        reason = ", which puts filters behind the file; leave it out, or see " + parameter("commit", "new-path")
        raise RequestError(where + " is not for " + way + reason)


def refuse_tails(name: TableName, last: bool, append: bool) -> None:
    """Raise RequestError for what cuts files."""
    for is_given, option in ((last, parameter("last", True)), (append, parameter("append", True))):
        if is_given:
            raise RequestError(f"{_shown(name)}: " + option + " is for files; no file of a table is cut")


def latest(name: TableName, access: TableAccess, filesystem: Any) -> Table:
    """Open a table that is to be changed. Raises RequestError for a version of the past, and as open_table."""
    if name.version is not None:
        raise RequestError(f"{_shown(name)}: leave out @{name.version}; only the latest version can be changed")
    return open_table(name, access, filesystem)


def _shown(name: TableName) -> str:
    return without_secret(name.unversioned)

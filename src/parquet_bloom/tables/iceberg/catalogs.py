"""Catalogs: a name becomes a table, a version one of its snapshots; pyiceberg's errors become ours."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    ValidationError,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from parquet_bloom.errors import ParquetBloomError, RequestError, StorageError, TableFormatError, first_line
from parquet_bloom.storage.secrets import without_secret


@contextmanager
def telling(table: str, *kept: type[Exception]) -> Iterator[None]:
    """Errors of pyiceberg and of what it uses become ours, in one line that names the table. kept: those that stay."""
    try:
        yield
    except ParquetBloomError:
        raise
    except kept:
        raise
    except (NoSuchTableError, NoSuchNamespaceError, NoSuchIcebergTableError) as error:
        raise RequestError(f"{table}: the catalog has no such table") from error
    except NotInstalledError as error:
        raise RequestError(f"{table}: {first_line(error)}") from error
    except (ValidationError, NotImplementedError, ValueError, TypeError, KeyError) as error:
        raise TableFormatError(table, f"has metadata that pyiceberg cannot read: {_told(error)}") from error
    except Exception as error:  # a catalog's client has errors of its own: SQL's, HTTP's, AWS's
        raise StorageError(table, without_secret(first_line(error))) from error


def _told(error: Exception) -> str:
    """What an error says; of pydantic's, what is wrong with which value."""
    lines = [line.strip() for line in str(error).splitlines()]
    return without_secret("; ".join(lines[:3]) if len(lines) > 2 else first_line(error))


def split_name(name: str) -> tuple[str, tuple[str, ...]]:
    """CATALOG/namespace.table -> the catalog's name, and the table's identifier in it. Raises RequestError."""
    catalog, slash, table = name.partition("/")
    identifier = tuple(table.split("."))
    if not slash or not catalog or len(identifier) < 2 or not all(identifier):
        raise RequestError(f"iceberg:{name} names no table; write iceberg:CATALOG/namespace.table")
    return catalog, identifier


def find_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """Open a catalog as pyiceberg's configuration and these properties tell. Raises RequestError."""
    try:
        with telling(f"iceberg:{name}", ValueError, KeyError, NotInstalledError):
            return load_catalog(name, **properties)
    except (ValueError, NotInstalledError, KeyError) as error:
        hint = "configure it in .pyiceberg.yaml, or give its properties"
        raise RequestError(f"iceberg:{name}: {without_secret(first_line(error))}; {hint}") from error


@contextmanager
def released(catalog: Catalog) -> Iterator[None]:
    """Afterwards a catalog keeps no connection; it opens one when it is asked again.

    Otherwise each call would leave one with the database or server, until Python collects garbage. Catalogs of others
    stay open: theirs need not be of use when they were closed.
    """
    try:
        yield
    finally:
        if type(catalog).__module__ in _OPEN_AGAIN:
            with suppress(Exception):
                catalog.close()


def snapshot_of(table: Table, version: str | None, shown: str) -> Snapshot | None:
    """The snapshot that a version names; the latest for None, which is None in a table without any.

    Raises RequestError for one that the table does not have, or no longer.
    """
    if version is None:
        return table.current_snapshot()
    if version.isdigit():
        found = table.snapshot_by_id(int(version))
    else:
        try:
            when = dt.datetime.fromisoformat(version)
        except ValueError as error:
            raise RequestError(f"{shown}: version {version} is neither a snapshot's id nor an ISO time") from error
        when = when if when.tzinfo else when.replace(tzinfo=dt.UTC)
        found = table.snapshot_as_of_timestamp(int((when - _EPOCH) / dt.timedelta(milliseconds=1)))
    if found is None:
        raise RequestError(f"{shown}: has no snapshot {version}, or not any longer")
    return found


_OPEN_AGAIN = ("pyiceberg.catalog.sql", "pyiceberg.catalog.rest")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

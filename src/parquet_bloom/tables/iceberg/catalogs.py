"""Catalogs: a name becomes a table, a version one of its snapshots; pyiceberg's errors become ours."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec

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
from pyiceberg.utils.config import Config

from parquet_bloom.errors import (
    ParquetBloomError,
    RequestError,
    StorageError,
    TableFormatError,
    first_line,
)
from parquet_bloom.storage.secrets import without_secret
from parquet_bloom.tables.iceberg.strangers import guarded


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
        said = without_secret(first_line(error))
        if _NO_CATALOG.search(said) is not None:
            reason = "the catalog's database has no table iceberg_tables, so it is no catalog; look at its property uri"
            raise RequestError(f"{table}: {reason}") from error
        raise StorageError(table, said) from error


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
    """Open a catalog as pyiceberg's configuration and these properties tell; none is made. Metadata cannot add any.

    Raises RequestError; StorageError where its database is missing.
    """
    try:
        with telling(f"iceberg:{name}", ValueError, KeyError, NotInstalledError):
            known = {**(Config().get_catalog_config(name) or {}), **properties}
            if _MAKES_TABLES not in known:  # else to look at a table would make a catalog of any database
                _check_database(name, str(known.get("uri", "")))
                properties = {**properties, _MAKES_TABLES: "false"}
            return guarded(load_catalog(name, **properties))
    except ParquetBloomError:
        raise
    except NotInstalledError as error:  # it says what to install
        raise RequestError(f"iceberg:{name}: {first_line(error)}") from error
    except (ValueError, KeyError) as error:
        hint = "configure it in .pyiceberg.yaml, or give its properties"
        raise RequestError(f"iceberg:{name}: {without_secret(first_line(error))}; {hint}") from error


def _check_database(name: str, uri: str) -> None:
    """Raise StorageError where a file of SQLite is missing, which would be made by being asked."""
    if find_spec("sqlalchemy") is None:
        return  # pyiceberg says what to install
    found = _SQLITE.fullmatch(uri)
    if found is not None and not found[1].startswith((":", "file:")) and not os.path.exists(found[1]):
        raise StorageError(f"iceberg:{name}", f"there is no database {found[1]}; look at the catalog's property uri")


def refresh(table: Table, shown: str) -> None:
    """Read a table's metadata as they are now. Raises RequestError where it is gone, as `telling` for the rest."""
    with telling(shown):
        try:
            table.refresh()
        except NoSuchTableError as error:
            raise RequestError(f"{shown}: was dropped or renamed meanwhile; the catalog has no such table") from error
        except ValueError as error:
            if not str(error).startswith("Table UUID does not match"):
                raise
            raise RequestError(f"{shown}: was dropped and created again meanwhile; name it again") from error


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
                _close_pools(catalog)
            with suppress(Exception):
                catalog.close()


def _close_pools(catalog: Catalog) -> None:
    """Close the connections of a REST catalog: its session only forgets them, and an error keeps hold of them."""
    session = getattr(catalog, "_session", None)
    for adapter in [] if session is None else session.adapters.values():
        for manager in (adapter.poolmanager, *adapter.proxy_manager.values()):
            for key in manager.pools.keys():  # noqa: SIM118 - it is no dict, and not iterable
                manager.pools[key].close()


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


_MAKES_TABLES = "init_catalog_tables"  # of pyiceberg's SqlCatalog
_SQLITE = re.compile(r"sqlite(?:\+\w+)?:///([^?]+)(?:\?.*)?")
_NO_CATALOG = re.compile(r"no such table: iceberg_|\biceberg_\w+\W+does ?n[o']t exist")
_OPEN_AGAIN = ("pyiceberg.catalog.sql", "pyiceberg.catalog.rest")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

"""Catalogs: a name becomes a table, a version one of its snapshots; pyiceberg's errors become ours."""

from __future__ import annotations

import datetime as dt
import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    ValidationError,
)
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.utils.config import Config

from parquet_bloom.errors import (
    ParquetBloomError,
    RequestError,
    StorageError,
    TableFormatError,
    first_line,
)
from parquet_bloom.storage.display import without_secret
from parquet_bloom.tables.iceberg.files import check_metadata

# --- refused settings of a catalog ----------------------------------------------------------------
#
# Keeps pyiceberg from obeying a table's metadata: they are a stranger's words, the catalog is the caller's.
#
#    s3.endpoint, s3.proxy-uri, hdfs.host, ...   would send the caller's credentials to a host of their choice
#    py-io-impl, s3.retry-strategy-impl          would import a module of their choice
#    write.py-location-provider.impl             too, in a commit
#    metadata-log                                would have any file deleted, after a commit
#
# pyiceberg merges a table's properties into those of the catalog wherever it opens files. Here no property of the
# metadata gets there, known or not: what opens files comes from the catalog, which the caller configured, and from
# what a REST catalog answers beside the metadata ("config", "storage-credentials"). Source: pyiceberg 0.12,
# Catalog._load_file_io and those who call it.

_PROVIDER = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL


def guarded(catalog: Catalog) -> Catalog:
    """A catalog, changed so that its tables' metadata have no say in how files are opened and which are deleted."""
    if hasattr(catalog, "_response_to_table"):
        _guard_answers(catalog)
    elif hasattr(catalog, "_load_file_io"):
        _guard_properties(catalog)
    _guard_old_metadata(catalog)
    if not type(catalog).__module__.startswith("pyiceberg."):
        _guard_load(catalog)
    return catalog


def check_provider(table: str, properties: Mapping[str, str], catalog: Mapping[str, Any]) -> None:
    """Raise TableFormatError where a commit would import what a table's property names, and the catalog does not."""
    named = properties.get(_PROVIDER)
    if named and catalog.get(_PROVIDER) != named:
        reason = f"its property {_PROVIDER} names Python code that a commit would run, {named}"
        raise TableFormatError(table, f"{reason}; give the catalog the same property if it is to be trusted")


def _guard_properties(catalog: Any) -> None:
    """Of catalogs that read metadata files themselves: SQL, Hive, Glue, DynamoDB, BigQuery, in memory, users' own."""
    load: Any = catalog._load_file_io
    stage: Any = getattr(catalog, "_update_and_stage_table", None)

    def load_without(properties: Mapping[str, str] | None = None, location: str | None = None) -> FileIO:
        if location is not None:
            check_metadata(location)  # what is read next
        opened: FileIO = load(location=location)
        return opened

    def stage_checked(current: Table | None, *others: Any, **more: Any) -> Any:
        if current is not None:
            check_provider(".".join(current.name()), current.metadata.properties, catalog.properties)
        return stage(current, *others, **more)

    catalog._load_file_io = load_without
    if (convert := getattr(catalog, "_convert_orm_to_iceberg", None)) is not None:  # of SQL, which reads them first

        def convert_checked(row: Any) -> Table:
            check_metadata(row.metadata_location)
            table: Table = convert(row)
            return table

        catalog._convert_orm_to_iceberg = convert_checked
    if stage is not None:
        catalog._update_and_stage_table = stage_checked


def _guard_answers(catalog: Any) -> None:
    """Of REST catalogs, whose answers have metadata and what is to be configured."""
    table_of = catalog._response_to_table

    def table_without(identifier: tuple[str, ...], answer: Any) -> Table:
        metadata = answer.metadata
        table: Table = table_of(
            identifier, answer.model_copy(update={"metadata": metadata.model_copy(update={"properties": {}})})
        )
        table.metadata = metadata
        return table

    catalog._response_to_table = table_without


def _guard_old_metadata(catalog: Any) -> None:
    """A commit deletes old metadata only beside the newest: their list is the table's own."""
    delete: Any = getattr(catalog, "_delete_old_metadata", None)

    def delete_beside(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        if not metadata.metadata_log:
            return
        folder = posixpath.dirname(metadata.metadata_log[-1].metadata_file)
        ours = [one for one in base.metadata_log if posixpath.dirname(one.metadata_file) == folder]
        delete(io, base.model_copy(update={"metadata_log": ours}), metadata)

    if delete is not None:
        catalog._delete_old_metadata = delete_beside


def _guard_load(catalog: Any) -> None:
    """A catalog of somebody else's that merges properties by itself: what it took from metadata is taken out."""
    load = catalog.load_table

    def load_without(identifier: Any) -> Table:
        table: Table = load(identifier)
        taken = {
            name
            for name, value in table.metadata.properties.items()
            if table.io.properties.get(name) == value and catalog.properties.get(name) != value
        }
        if taken:
            kept = {name: value for name, value in table.io.properties.items() if name not in taken}
            table.io = load_file_io({**kept, **catalog.properties}, table.metadata_location)
        return table

    catalog.load_table = load_without


# --- catalogs -------------------------------------------------------------------------------------


@contextmanager
def translated_errors(table: str, *kept: type[Exception]) -> Iterator[None]:
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
        raise TableFormatError(table, f"has metadata that pyiceberg cannot read: {_error_text(error)}") from error
    except Exception as error:  # a catalog's client has errors of its own: SQL's, HTTP's, AWS's
        said = without_secret(first_line(error))
        if _NO_CATALOG.search(said) is not None:
            reason = "the catalog's database has no table iceberg_tables, so it is no catalog; check its property uri"
            raise RequestError(f"{table}: {reason}") from error
        raise StorageError(table, said) from error


def _error_text(error: Exception) -> str:
    """The text of an error; of pydantic's, each value with its fault."""
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
    """Open a catalog by pyiceberg's configuration and these properties; none is made. Metadata cannot add any.

    Raises RequestError; StorageError where its database is missing.
    """
    try:
        with translated_errors(f"iceberg:{name}", ValueError, KeyError, NotInstalledError):
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
    """Raise StorageError where a file of SQLite is missing, which a query would make."""
    if find_spec("sqlalchemy") is None:
        return  # pyiceberg says what to install
    found = _SQLITE.fullmatch(uri)
    if found is not None and not found[1].startswith((":", "file:")) and not os.path.exists(found[1]):
        raise StorageError(f"iceberg:{name}", f"there is no database {found[1]}; check the catalog's property uri")


def refresh(table: Table, shown: str) -> None:
    """Read a table's metadata as they are now. Raises RequestError where it is gone, and as `translated_errors`."""
    with translated_errors(shown):
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
    """Afterwards a catalog keeps no connection; the next query opens one.

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

"""Iceberg tables by name: CATALOG/namespace.table, with pyiceberg's own configuration of catalogs."""

from __future__ import annotations

from parquet_bloom.errors import RequestError
from parquet_bloom.extras import SQL_CATALOG, to_install
from parquet_bloom.source.names import ORDINARY, TableAccess
from parquet_bloom.source.snapshot import Table


def open_iceberg(name: str, version: str | None, access: TableAccess = ORDINARY) -> Table:
    """Find a table in a catalog.

    name        "CATALOG/namespace.table"; a namespace may have dots
    version     a snapshot's id, or an ISO time (UTC unless it names a zone) for the snapshot of then; None: the latest
    access      what the user says of it beside that; its properties go over those of pyiceberg's configuration
                (.pyiceberg.yaml, PYICEBERG_CATALOG__...)
    Raises RequestError for a name, version or configuration that leads nowhere, StorageError where the catalog fails.
    """
    try:
        from parquet_bloom.tables.iceberg.opened import open_table
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("parquet_bloom"):
            raise
        more = f"; for a catalog in SQL add {SQL_CATALOG}"
        raise RequestError(f"iceberg: needs pyiceberg; {to_install('iceberg')}{more}") from error
    return open_table(name, version, access)

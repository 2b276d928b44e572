"""Keeps pyiceberg from obeying a table's metadata: they are a stranger's words, the catalog is the caller's.

    s3.endpoint, s3.proxy-uri, hdfs.host, ...   would send the caller's credentials to a host of their choice
    py-io-impl, s3.retry-strategy-impl          would import a module of their choice
    write.py-location-provider.impl             too, in a commit
    metadata-log                                would have any file deleted, after a commit

pyiceberg merges a table's properties into those of the catalog wherever it opens files. Here no property of the
metadata gets there, known or not: what opens files comes from the catalog, which the caller configured, and from what
a REST catalog answers beside the metadata ("config", "storage-credentials"). Source: pyiceberg 0.12,
Catalog._load_file_io and those who call it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata

from parquet_bloom.errors import TableFormatError

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
        opened: FileIO = load(location=location)
        return opened

    def stage_checked(current: Table | None, *others: Any, **more: Any) -> Any:
        if current is not None:
            check_provider(".".join(current.name()), current.metadata.properties, catalog.properties)
        return stage(current, *others, **more)

    catalog._load_file_io = load_without
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

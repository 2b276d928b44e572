"""Files that belong to a table: its log holds their sizes, so they must not change behind its back.

Iceberg manifests hold file_size_in_bytes and split_offsets, Delta's log and Hudi's metadata hold
sizes; a reader of the table trusts them and looks for the footer at the old end.
"""

from __future__ import annotations

import glob
import os

from parquet_bloom.errors import TableFormatError


def table_above(path: str) -> tuple[str, str] | None:
    """The kind and folder of the table that a file lies in; None if it lies in none."""
    folder = os.path.dirname(os.path.realpath(path))
    while True:
        if os.path.isdir(os.path.join(folder, "_delta_log")):
            return "Delta", folder
        if os.path.isdir(os.path.join(folder, ".hoodie")):
            return "Hudi", folder
        if glob.glob(os.path.join(glob.escape(folder), "metadata", "*.metadata.json")):
            return "Iceberg", folder
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def refuse_table_file(path: str, target: str, force: bool) -> None:
    """Raise TableFormatError if writing `target` would change a file of a table, unless forced."""
    found = None if force else table_above(target)
    if found is not None:
        kind, folder = found
        reason = (
            f"lies in the {kind} table {folder}, whose log holds file sizes; rewrite it through the table, or --force"
        )
        raise TableFormatError(path, reason)

"""Files that belong to a table: its log holds their sizes, so they must not change behind its back.

Iceberg manifests hold file_size_in_bytes and split_offsets, Delta's log and Hudi's metadata hold
sizes; a reader of the table trusts them and looks for the footer at the old end.
"""

from __future__ import annotations

import glob
import os
import posixpath
from typing import Any

from parquet_bloom.errors import StorageError, TableFormatError
from parquet_bloom.files.remote import Location, storage_error

Table = tuple[str, str]  # kind and folder


class Tables:
    """Which table a file lies in. Remembers the folders it looked at, for the other files of a call."""

    def __init__(self) -> None:
        self._known: dict[str, Table | None] = {}

    def above(self, at: Location) -> Table | None:
        """The kind and folder of the table that a file lies in; None if it lies in none. Raises StorageError."""
        folder = os.path.dirname(os.path.realpath(at.path)) if at.filesystem is None else posixpath.dirname(at.path)
        passed = []
        while folder not in self._known:
            passed.append(folder)
            try:
                kind = _kind(at.filesystem, folder)
            except Exception as error:
                reason = f"cannot tell whether it lies in a table (--force goes on): {storage_error(at, error).reason}"
                raise StorageError(at, reason) from error
            if kind is not None:
                self._known[folder] = (kind, folder)
                break
            above = os.path.dirname(folder)
            if above == folder or (at.filesystem is not None and not above):
                self._known[folder] = None
                break
            folder = above
        found = self._known[folder]
        self._known.update(dict.fromkeys(passed, found))
        return found

    def refuse(self, at: Location, target: Location, force: bool) -> None:
        """Raise TableFormatError if writing `target` would change a file of a table, unless forced."""
        found = None if force else self.above(target)
        if found is not None:
            kind, folder = found
            reason = (
                f"lies in the {kind} table {folder}, whose log holds file sizes; "
                "rewrite it through the table, or --force"
            )
            raise TableFormatError(at, reason)


def _kind(filesystem: Any, folder: str) -> str | None:
    if filesystem is not None:
        return _remote_kind(filesystem, folder)
    if os.path.isdir(os.path.join(folder, "_delta_log")):
        return "Delta"
    if os.path.isdir(os.path.join(folder, ".hoodie")):
        return "Hudi"
    if glob.glob(os.path.join(glob.escape(folder), "metadata", "*.metadata.json")):
        return "Iceberg"
    return None


def _remote_kind(filesystem: Any, folder: str) -> str | None:
    from pyarrow import fs

    signs = [posixpath.join(folder, name) for name in ("_delta_log", ".hoodie", "metadata")]
    delta, hudi, metadata = (info.type == fs.FileType.Directory for info in filesystem.get_file_info(signs))
    if delta:
        return "Delta"
    if hudi:
        return "Hudi"
    if metadata:
        inside = filesystem.get_file_info(fs.FileSelector(signs[2]))
        if any(info.base_name.endswith(".metadata.json") for info in inside):
            return "Iceberg"
    return None

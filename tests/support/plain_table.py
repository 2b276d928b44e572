"""The least that a table can be: a folder of Parquet files and a log, a JSON file a version, which names live ones.

For what tables of all kinds have in common: other commits can be made to come at any moment of ours.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from parquet_bloom.errors import ConflictError
from parquet_bloom.source.history import History
from parquet_bloom.source.snapshot import Change, CommitModes, Field, FileBounds, LeafPath, Snapshot, TableFile
from parquet_bloom.storage.remote import Location

NEW, SAME = CommitModes("new-path"), CommitModes("same-path", "", "row-level deletes name its path")


class PlainTable:
    """`before_commit` is called with the table before each commit of ours reaches the log."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self.folder, self.name = folder, f"plain:{folder.name}"
        self.fields = tuple(Field(one.name, one.type) for one in schema)
        self.filter_settings: Mapping[str, object] = {}
        self.open_ways: dict[str, CommitModes] = {}
        self.before_commit: Callable[[PlainTable], None] = lambda _: None
        folder.mkdir(exist_ok=True)
        (folder / "log").mkdir(exist_ok=True)

    # --- as any program changes it ----------------------------------------------------------------

    @property
    def version(self) -> int:
        return len(os.listdir(self.folder / "log"))

    def entries(self, version: int | None = None) -> dict[str, int]:
        """Name -> size at a version."""
        at = self.version if version is None else version
        return json.loads((self.folder / "log" / f"{at}.json").read_text()) if at else {}

    def put(self, entries: Mapping[str, int]) -> int:
        """A new version. Raises FileExistsError where another was first."""
        version = self.version + 1
        with open(self.folder / "log" / f"{version}.json", "x") as out:
            json.dump(dict(entries), out)
        return version

    def append(self, table: pa.Table, row_group_size: int = 1000) -> str:
        name = f"{uuid.uuid4().hex}.parquet"
        pq.write_table(table, self.folder / name, row_group_size=row_group_size)
        self.put({**self.entries(), name: (self.folder / name).stat().st_size})
        return name

    def drop(self, *names: str) -> None:
        self.put({name: size for name, size in self.entries().items() if name not in names})

    def rows(self, version: int | None = None) -> pa.Table:
        """Read as programs do that trust the log's sizes."""
        tables = []
        for name, size in self.entries(version).items():
            data = (self.folder / name).read_bytes()
            assert size <= len(data), f"{name}: the log promises {size} bytes"
            tables.append(pq.read_table(pa.BufferReader(data[:size])))
        return pa.concat_tables(tables) if tables else pa.table({})

    def files(self) -> set[str]:
        """Everything that lies in the folder, but the log."""
        return set(os.listdir(self.folder)) - {"log"}

    # --- source.snapshot.Table --------------------------------------------------------------------

    def snapshot(self, stored_only: bool = False) -> Snapshot:
        files = [TableFile(str(self.folder / name), size=size) for name, size in self.entries().items()]
        return Snapshot(self.name, str(self.version), self.fields, False, files, self.filter_settings)

    def history(self, snapshot: Snapshot) -> History:
        return History()

    def stated(self, snapshot: Snapshot) -> Callable[[TableFile], Mapping[LeafPath, FileBounds]]:
        return lambda file: file.bounds

    def commit_modes(self, snapshot: Snapshot) -> Mapping[str, CommitModes]:
        return {file.path: self.open_ways.get(Path(file.path).name, NEW) for file in snapshot.files}

    def new_location(self, file: TableFile) -> Location:
        stem = Path(file.path).stem.split("-bloom-")[0]
        return Location(str(self.folder / f"{stem}-bloom-{uuid.uuid4().hex}.parquet"))

    def commit(self, snapshot: Snapshot, changes: Sequence[Change], properties: Mapping[str, str]) -> str:
        self.before_commit(self)
        entries = self.entries()
        for change in changes:
            if entries.get(Path(change.file.path).name) != change.file.size:
                raise ConflictError(change.file, "another commit changed it")
        replaced = {Path(change.file.path).name for change in changes}
        left = {name: size for name, size in entries.items() if name not in replaced}
        try:
            return str(self.put(left | {Path(change.location.path).name: change.size for change in changes}))
        except FileExistsError:
            raise ConflictError(self.folder, "another commit was first") from None

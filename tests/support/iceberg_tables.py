"""Iceberg tables for tests: what pyiceberg cannot write is written here from the spec, with its own records.

Partitioned files of any transform, position and equality deletes, deletion vectors, metadata of format version 3.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import struct
import uuid
import zlib
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType
from pyroaring import BitMap64

from parquet_bloom.source.names import TableAccess
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.source.snapshot import Table as OurTable
from parquet_bloom.storage.paths import DataFile as OurFile
from parquet_bloom.storage.remote import arrow_of
from parquet_bloom.tables.iceberg.table import open_iceberg

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
PATH_ID, POSITION_ID = 2147483546, 2147483545
_EPOCH = dt.datetime(1970, 1, 1)


@cache
def _new_catalog() -> bytes:
    """The file of a catalog that has its tables and a namespace: making both takes longer than all else here."""
    with TemporaryDirectory() as folder:
        catalog = SqlCatalog("cat", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder)
        catalog.create_namespace("ns")
        catalog.close()
        return (Path(folder) / "catalog.db").read_bytes()


class Warehouse:
    """A catalog in SQLite with one namespace, "ns", and its files in a folder."""

    def __init__(self, root: Path, **properties: str) -> None:
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{root}/catalog.db",
            "warehouse": f"file://{root}/warehouse",
        }
        self.properties |= properties
        self.root = self.properties["warehouse"]
        made = "uri" in properties or (root / "catalog.db").exists()
        if not made:
            (root / "catalog.db").write_bytes(_new_catalog())
        self.catalog = SqlCatalog("cat", **self.properties)
        if made:
            self.catalog.create_namespace("ns")

    def create(self, schema: Any, name: str = "ns.t", version: int = 2, **more: Any) -> Table:
        properties = {"format-version": str(version), **more.pop("properties", {})}
        return self.catalog.create_table(name, schema, properties=properties, **more)

    def filled(self, *files: Sequence[dict[str, Any]], schema: Any = SCHEMA, name: str = "ns.t", **more: Any) -> Table:
        """A table with a file, or one a partition, for each of these lists of rows."""
        table = self.create(schema, name, **more)
        for rows in files:
            append(table, rows)
        return table

    def load(self, name: str = "ns.t") -> Table:
        return self.catalog.load_table(name)

    def open(self, name: str = "ns.t", version: str | None = None) -> OurTable:
        return open_iceberg(f"cat/{name}", version, TableAccess(self.properties))

    def read(self, name: str = "ns.t", version: str | None = None) -> Snapshot:
        return self.open(name, version).snapshot()

    def close(self) -> None:
        self.catalog.close()


# --- data files -----------------------------------------------------------------------------------


def number(value: Any) -> Any:
    """A Python value as Iceberg's transforms take it: days and microseconds since 1970 as numbers."""
    if isinstance(value, dt.datetime):
        return (value.replace(tzinfo=None) - _EPOCH) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - _EPOCH.date()).days
    if isinstance(value, dt.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    return value


def partition_of(table: Table, row: dict[str, Any]) -> tuple[Any, ...]:
    """The partition of a row of top-level columns under the table's default spec."""
    found = []
    for part in table.spec().fields:
        source = table.schema().find_field(part.source_id)
        found.append(part.transform.transform(source.field_type)(number(row[source.name])))
    return tuple(found)


def append(table: Table, rows: Sequence[dict[str, Any]], **options: Any) -> None:
    """Write rows as files, one a partition, and append them; pyiceberg itself does so for identity alone.

    options  of pyarrow's writer
    """
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)  # by text: the two zeros are two partitions
    for row in rows:
        groups[repr(partition_of(table, row))].append(row)
    with table.transaction() as change, change.update_snapshot().fast_append() as adding:
        for members in groups.values():
            adding.append_data_file(data_file(table, members, partition_of(table, members[0]), **options))
    table.refresh()


def data_file(table: Table, rows: Sequence[dict[str, Any]], values: tuple[Any, ...] = (), **options: Any) -> DataFile:
    """Write a data file with the statistics that pyiceberg gives it."""
    path = f"{table.location()}/data/{uuid.uuid4()}.parquet"
    arrow = pa.Table.from_pylist(list(rows), schema=schema_to_pyarrow(table.schema()))
    with table.io.new_output(path).create() as sink, pq.ParquetWriter(sink, arrow.schema) as writer:
        writer.write_table(arrow, **options)
    source = table.io.new_input(path)
    with source.open() as stream:
        metadata = pq.read_metadata(stream)
    told = data_file_statistics_from_parquet_metadata(
        metadata, compute_statistics_plan(table.schema(), table.properties), parquet_path_to_id_mapping(table.schema())
    )
    file = DataFile.from_args(
        content=DataFileContent.DATA, file_path=path, file_format=FileFormat.PARQUET, partition=Record(*values),
        file_size_in_bytes=len(source), **told.to_serialized_dict(),
    )  # fmt: skip
    file.spec_id = table.spec().spec_id
    return file


# --- deletes --------------------------------------------------------------------------------------


class _DeleteManifest(ManifestWriterV2):
    """A manifest of delete files, with the fields of format version 3 too."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        told = data_file_with_partition(self._spec.partition_type(self._schema), 3)
        ids = NestedField(
            135, "equality_ids", ListType(136, IntegerType(), True)
        )  # pyiceberg has long; Java fails then
        file = StructType(*[ids if field.field_id == 135 else field for field in told.fields])
        schema = manifest_entry_schema_with_data_file(3, file)
        return AvroOutputFile[ManifestEntry](self._output_file, schema, "manifest_entry", schema, self._meta)


class _AddDeletes(_FastAppendFiles):
    def __init__(self, change: Any, io: Any, files: Sequence[DataFile]) -> None:
        super().__init__(operation=Operation.DELETE, transaction=change, io=io, commit_uuid=uuid.uuid4())
        self._files = files

    def _summary(self, snapshot_properties: Any = None) -> Summary:
        return Summary(operation=Operation.DELETE)

    def _manifests(self) -> Any:
        found = []
        if self._added_data_files:
            with self.new_manifest_writer(self._transaction.table_metadata.spec()) as adding:
                for file in self._added_data_files:
                    adding.add(
                        ManifestEntry.from_args(
                            status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, sequence_number=None,
                            file_sequence_number=None, data_file=file,
                        )
                    )  # fmt: skip
            found.append(adding.to_manifest_file())
        for spec_id in sorted({file.spec_id for file in self._files}):
            output = self.new_manifest_output()
            with _DeleteManifest(self.spec(spec_id), self.schema(), output, self._snapshot_id, "gzip") as writer:
                for file in self._files:
                    if file.spec_id == spec_id:
                        entry = ManifestEntry.from_args(
                            status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, sequence_number=None,
                            file_sequence_number=None, data_file=file,
                        )  # fmt: skip
                        writer.add(entry)
            found.append(writer.to_manifest_file())
        return [*found, *self._existing_manifests()]


def add_deletes(table: Table, *files: DataFile, data: Sequence[DataFile] = ()) -> None:
    """Commit delete files as one snapshot, with data files if there are some."""
    with table.transaction() as change:
        adding = _AddDeletes(change, table.io, files)
        for file in data:
            adding.append_data_file(file)
        adding.commit()
    table.refresh()


def position_deletes(table: Table, rows: dict[str, Sequence[int]], of: DataFile, bounds: bool = True) -> DataFile:
    """Write position deletes: path -> positions, for the partition of a data file."""
    pairs = sorted((path, at) for path, positions in rows.items() for at in positions)
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), False, {b"PARQUET:field_id": str(PATH_ID).encode()}),
            pa.field("pos", pa.int64(), False, {b"PARQUET:field_id": str(POSITION_ID).encode()}),
        ]
    )
    path = f"{table.location()}/data/{uuid.uuid4()}-deletes.parquet"
    with table.io.new_output(path).create() as sink:
        pq.write_table(pa.table({"file_path": [p for p, _ in pairs], "pos": [a for _, a in pairs]}, schema), sink)
    lower = {PATH_ID: min(rows).encode()} if bounds else None
    upper = {PATH_ID: max(rows).encode()} if bounds else None
    return _delete_file(
        table,
        of,
        DataFileContent.POSITION_DELETES,
        path,
        record_count=len(pairs),
        lower_bounds=lower,
        upper_bounds=upper,
    )


def equality_deletes(table: Table, columns: Sequence[str], rows: pa.Table, of: DataFile) -> DataFile:
    """Write equality deletes: rows of some columns, for the partition of a data file."""
    ids = [table.schema().find_field(name).field_id for name in columns]
    path = f"{table.location()}/data/{uuid.uuid4()}-equality.parquet"
    schema = schema_to_pyarrow(table.schema().select(*columns))
    with table.io.new_output(path).create() as sink:
        pq.write_table(rows.select(schema.names).cast(schema), sink)
    return _delete_file(table, of, DataFileContent.EQUALITY_DELETES, path, record_count=len(rows), equality_ids=ids)


def deletion_vectors(table: Table, rows: dict[str, Sequence[int]], of: dict[str, DataFile]) -> list[DataFile]:
    """Write a Puffin file with a deletion vector for each of some data files: path -> positions."""
    data, blobs, found = b"PFA1", [], []
    path = f"{table.location()}/data/{uuid.uuid4()}.puffin"
    for target, positions in rows.items():
        inside = struct.pack("<I", 1681511377) + BitMap64(positions).serialize()
        blob = struct.pack(">I", len(inside)) + inside + struct.pack(">I", zlib.crc32(inside))
        properties = {"referenced-data-file": target, "cardinality": str(len(positions))}
        blobs.append(
            {"type": "deletion-vector-v1", "fields": [POSITION_ID], "snapshot-id": -1, "sequence-number": -1,
             "offset": len(data), "length": len(blob), "properties": properties}
        )  # fmt: skip
        found.append((of[target], target, len(positions), len(data), len(blob)))
        data += blob
    footer = json.dumps({"blobs": blobs, "properties": {}}).encode()
    data += b"PFA1" + footer + struct.pack("<I", len(footer)) + bytes(4) + b"PFA1"
    with table.io.new_output(path).create() as sink:
        sink.write(data)
    return [
        _delete_file(
            table, file, DataFileContent.POSITION_DELETES, path, format=FileFormat.PUFFIN, record_count=count,
            referenced_data_file=target, content_offset=offset, content_size_in_bytes=length,
        )
        for file, target, count, offset, length in found
    ]  # fmt: skip


def _delete_file(
    table: Table, of: DataFile, content: DataFileContent, path: str, format: Any = FileFormat.PARQUET, **more: Any
) -> DataFile:
    file = DataFile.from_args(
        _table_format_version=3, content=content, file_path=path, file_format=format, partition=of.partition,
        file_size_in_bytes=len(table.io.new_input(path)), **more,
    )  # fmt: skip
    file.spec_id = of.spec_id
    return file


# --- what is there --------------------------------------------------------------------------------


def entries(table: Table, content: DataFileContent = DataFileContent.DATA) -> list[ManifestEntry]:
    """The live entries of a table's current snapshot, as pyiceberg reads them."""
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    found = [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]
    return [entry for entry in found if entry.data_file.content == content]


def stored_rows(file: OurFile) -> pa.Table:
    """All rows of a file, deleted ones too."""
    if file.filesystem is None:
        return pq.ParquetFile(file.path).read()
    with arrow_of(file.filesystem).open_input_file(file.path) as stream:
        return pq.ParquetFile(stream).read()


def live_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The rows of a table of top-level columns, read as a snapshot of ours tells: by field ids, without deletes."""
    found: list[dict[str, Any]] = []
    for file in snapshot.files:
        stored = stored_rows(file)
        ids = {int((f.metadata or {}).get(b"PARQUET:field_id", -1)): i for i, f in enumerate(stored.schema)}
        gone = set(file.deletes.positions().tolist()) if file.deletes else set()
        columns = {}
        for field in snapshot.fields:
            if field.field_id in ids:
                columns[field.name] = stored.column(ids[field.field_id]).to_pylist()
            else:
                value = file.constants.get(field.name, field.default)
                columns[field.name] = [None if value is None else value.as_py()] * len(stored)
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        found += [row for at, row in enumerate(rows) if at not in gone]
    return found


def rows_of(*ids: int, name: str = "x") -> list[dict[str, Any]]:
    """Rows of a table with SCHEMA."""
    return [{"id": i, "name": name} for i in ids]


def scanned(table: Table, snapshot: int | None = None) -> list[str]:
    """The rows as pyiceberg reads them."""
    return by_text(table.refresh().scan(snapshot_id=snapshot).to_arrow().to_pylist())


def by_text(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Rows in an order that has nothing to do with files; NaN equals itself."""
    return sorted(repr([(name, _plain(value)) for name, value in sorted(row.items())]) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value.isoformat() if isinstance(value, dt.datetime) else value


def as_version_3(warehouse: Warehouse, name: str) -> Table:
    """A table of format version 3 with the snapshots of one of version 2."""
    old = warehouse.load()
    path = old.metadata_location.removeprefix("file://")
    metadata = json.loads(Path(path).read_text())
    metadata |= {"format-version": 3, "next-row-id": 0}
    for snapshot in metadata["snapshots"]:
        snapshot |= {"first-row-id": 0, "added-rows": 0}
    new = f"{os.path.dirname(path)}/v3-{uuid.uuid4()}.metadata.json"
    Path(new).write_text(json.dumps(metadata))
    return warehouse.catalog.register_table(name, f"file://{new}")

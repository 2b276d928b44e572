"""Changes of an Iceberg table's rows: pyiceberg writes the new files, and one snapshot (`overwrite`) names them.

pyiceberg refuses the snapshot where rows were added since, or deleted from one of the old files. That is serializable
isolation, the default of the property write.delete.isolation-level.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow, write_file
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import Table as IcebergLog
from pyiceberg.table import WriteTask
from pyiceberg.table.metadata import TableMetadata

from parquet_bloom.errors import ConflictError, RequestError, TableFormatError, first_line
from parquet_bloom.source.adapters import NewFile
from parquet_bloom.source.names import TableAccess
from parquet_bloom.source.snapshot import Snapshot, TableFile
from parquet_bloom.tables.iceberg.catalogs import released, translated_errors
from parquet_bloom.tables.iceberg.commits import (
    FILE_SIZE,
    LOST_SPEC,
    check_writable,
    file_like,
    land,
    lost_specs,
    not_committed,
)
from parquet_bloom.tables.iceberg.files import Files, RootedIO

BLOOM = "write.parquet.bloom-filter-"  # properties that ask for filters
_ISOLATION = "write.delete.isolation-level"
_PAGE_ROWS = "write.parquet.page-row-limit"


class IcebergRows:
    """See source.adapters.RowChanges."""

    def __init__(self, log: IcebergLog, name: str, access: TableAccess, snapshot: Snapshot) -> None:
        self._log, self._name = log, name
        self._files = Files.of(log, name, access)
        assert isinstance(log.io, RootedIO)
        self._io = log.io
        self._schema = schema_to_pyarrow(log.schema(), include_field_ids=False)
        check_writable(log, name)
        if reason := self._refusal():
            raise TableFormatError(name, reason)
        found = log.metadata.current_snapshot_id
        if str(-1 if found is None else found) != snapshot.version:
            raise ConflictError(name, "another commit came while it was read; try again")

    def _refusal(self) -> str:
        """Why no row of the table may be changed; "" where it may."""
        level = self._log.properties.get(_ISOLATION, "serializable")
        if level != "serializable":
            return f"its property {_ISOLATION} is {level}: a row with one of the keys could be appended meanwhile"
        if lost_specs(self._log.schema(), self._log.specs()):
            return LOST_SPEC
        if not re.fullmatch(r"0*[1-9]\d*", rows := self._log.properties.get(_PAGE_ROWS, "1")):  # pyarrow waits for ever
            return f"its property {_PAGE_ROWS} is {rows[:50]!r}, and pages have one row at least"
        top = {field.field_id for field in self._log.schema().fields}
        if any(part.source_id not in top for part in self._log.spec().fields):
            return "it is partitioned by a field of a struct"
        if wrong := [field.name for field in self._schema if _has_structs_in_lists(field.type)]:
            return f"pyiceberg writes an empty list in the place of NULL in lists of structs: {', '.join(wrong)}"
        return ""

    def check(self, files: Sequence[TableFile]) -> None:
        """Raise TableFormatError for a file that the caller may not change."""
        for file in files:
            if reason := self._files.roots.no_change(file):
                raise TableFormatError(file, reason)

    def write(self, rows: pa.Table) -> list[NewFile]:
        """Write rows as data files, one or more for each partition of the current spec."""
        schema = self._log.schema()
        try:
            with translated_errors(self._name, pa.ArrowException):
                tasks = [
                    WriteTask(uuid.uuid4(), number, schema, part.combine_chunks().to_batches(), partition_key=key)
                    for number, (key, part) in enumerate(self._parts(rows.cast(self._schema)))
                ]
                written = list(write_file(self._io, self._metadata(), iter(tasks)))
        except pa.ArrowException as error:
            raise RequestError(f"{self._name}: pyiceberg cannot write these rows: {first_line(error)}") from error
        for one in written:
            one.spec_id = self._log.spec().spec_id
        places = [(one, self._files.location(one.file_path)) for one in written]
        return [
            NewFile(
                TableFile(at.path, at.filesystem, at.shown, rows=one.record_count, size=one.file_size_in_bytes), one
            )
            for one, at in places
        ]

    def _metadata(self) -> TableMetadata:
        """The metadata without what they ask of filters: pyiceberg would warn that it writes none."""
        metadata = self._log.metadata
        kept = {name: value for name, value in metadata.properties.items() if not name.startswith(BLOOM)}
        return metadata.model_copy(update={"properties": kept})

    def _parts(self, rows: pa.Table) -> Iterator[tuple[PartitionKey | None, pa.Table]]:
        """The rows of each partition, and its key."""
        spec, schema = self._log.spec(), self._log.schema()
        if not spec.fields:
            yield None, rows
            return
        values: dict[str, Any] = {"row": pa.array(range(rows.num_rows))}
        for field in spec.fields:
            source = schema.find_field(field.source_id)
            values[f"value {field.field_id}"] = field.transform.pyarrow_transform(source.field_type)(rows[source.name])
        names = list(values)[1:]
        for group in pa.table(values).group_by(names).aggregate([("row", "list")]).to_pylist():
            of = [PartitionFieldValue(field, group[name]) for field, name in zip(spec.fields, names, strict=True)]
            yield PartitionKey(of, spec, schema), rows.take(pa.array(group["row_list"]))

    def commit(self, gone: Sequence[TableFile], new: Sequence[NewFile], properties: Mapping[str, str]) -> str:
        """Commit as one snapshot after the one that was read. Raises as source.adapters.RowChanges has it."""
        transaction = self._log.transaction()
        with released(self._log.catalog):
            try:
                producer = transaction.update_snapshot(snapshot_properties=dict(properties)).overwrite()
                for file in gone:
                    producer.delete_data_file(file.entry.file)
                for file, entry in new:
                    producer.append_data_file(file_like(entry, {FILE_SIZE: file.size}))
                producer.commit()  # writes manifests; the catalog knows nothing yet
            except Exception as error:
                raise not_committed(self._name, error) from error
            land(self._log, self._name, transaction, producer.snapshot_id)
        return str(producer.snapshot_id)

    def discard(self) -> None:
        """Remove what was written, manifests too."""
        for path in self._io.written:
            with suppress(Exception):  # it stays, as after a kill
                self._io.delete(path)


def _has_structs_in_lists(kind: pa.DataType, inside: bool = False) -> bool:
    """Whether structs lie in a list or a map of a type: pyiceberg 0.12 writes such a list as empty where it is NULL."""
    if pa.types.is_struct(kind):
        return inside or any(_has_structs_in_lists(field.type) for field in kind)
    if pa.types.is_map(kind):
        return _has_structs_in_lists(kind.key_type, True) or _has_structs_in_lists(kind.item_type, True)
    return isinstance(kind, pa.ListType | pa.LargeListType) and _has_structs_in_lists(kind.value_type, True)

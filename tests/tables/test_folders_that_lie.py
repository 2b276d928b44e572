"""Where the log of a table has a file there is a link, a pipe or a file of holes: one line, and nobody waits."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from support.delta_tables import commit, field, file_of, metadata, protocol
from support.iceberg_tables import Warehouse, add_deletes, entries, position_deletes, rows_of

import parquet_bloom
from parquet_bloom.errors import ParquetBloomError
from parquet_bloom.tables.iceberg import row_deletes

ROWS = pa.table({"id": range(20)})
HOLES = 1 << 40  # bytes


def linked(path: Path, outside: Path) -> None:
    """The same file, moved out of the table, with a link in its place."""
    outside.mkdir()
    path.rename(outside / path.name)
    path.symlink_to(outside / path.name)


def piped(path: Path, _: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def sparse(path: Path, _: Path) -> None:
    with path.open("ab") as file:
        file.truncate(HOLES)


KINDS: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "a link": (linked, "is a link"),
    "a pipe": (piped, "is not a regular file"),
    "a file of holes": (sparse, "has at most 1,073,741,824"),
}


def refused(call: Callable[[], object], said: str, name: str) -> None:
    """One line that names the file."""
    with pytest.raises(ParquetBloomError) as caught:
        call()
    assert said in str(caught.value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


# --- Delta ----------------------------------------------------------------------------------------


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    root = tmp_path / "tables" / "t"
    commit(root, 0, protocol(), metadata([field("id", "long")]), file_of(root, "a.parquet", ROWS))
    return root


@pytest.mark.parametrize("kind", KINDS)
def test_hints_that_deltalake_reads_are_checked_before(delta: Path, tmp_path: Path, kind: str) -> None:
    """We never open them, so what reads rows goes on."""
    change, said = KINDS[kind]
    name = "_last_checkpoint" if kind == "a pipe" else f"{0:020d}.crc"
    hint = delta / "_delta_log" / name
    hint.write_text('{"version":0,"size":1}')
    change(hint, tmp_path / "outside")
    assert parquet_bloom.count(f"delta:{delta}", "id = 5") == 1
    for dry_run in (True, False):
        refused(lambda dry=dry_run: parquet_bloom.add_filters(f"delta:{delta}", columns="id", dry_run=dry), said, name)
    assert sorted(path.name for path in delta.iterdir()) == ["_delta_log", "a.parquet"]


def test_a_log_that_is_a_link_is_not_followed(delta: Path) -> None:
    elsewhere = delta.parents[1] / "elsewhere"
    (delta / "_delta_log").rename(elsewhere)
    (delta / "_delta_log").symlink_to(elsewhere)
    refused(lambda: parquet_bloom.check(f"delta:{delta}", "id = 5"), "is a link", "_delta_log")


# --- Iceberg --------------------------------------------------------------------------------------


@pytest.fixture
def iceberg(warehouse: Warehouse) -> Table:
    table = warehouse.filled(rows_of(*range(5)))
    [entry] = entries(table)
    add_deletes(table, position_deletes(table, {entry.data_file.file_path: [1]}, entry.data_file))
    return table


def of_log(table: Table, what: str) -> Path:
    """A file of the table's newest state."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    if what == "metadata":
        name = table.metadata_location
    elif what == "list":
        name = snapshot.manifest_list
    else:
        name = snapshot.manifests(table.io)[0].manifest_path
    return Path(name.removeprefix("file://"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["metadata", "list", "manifest"])
def test_files_of_an_iceberg_log_are_whole_files_in_its_folder(
    warehouse: Warehouse, iceberg: Table, tmp_path: Path, what: str, kind: str
) -> None:
    change, said = KINDS[kind]
    path = of_log(iceberg, what)
    change(path, tmp_path / "outside")
    if kind == "a link" and what != "metadata":
        said = "outside of"  # of the folders that the table may name
    properties = {"catalog_properties": warehouse.properties}
    for call in (
        lambda: parquet_bloom.count("iceberg:cat/ns.t", "id = 1", **properties),
        lambda: parquet_bloom.add_filters("iceberg:cat/ns.t", columns="id", **properties),
    ):
        refused(call, said, path.name)


def test_a_pipe_in_the_place_of_deletes_is_not_waited_for(warehouse: Warehouse) -> None:
    for format in ("PARQUET", "ORC", "AVRO"):
        table = warehouse.filled(rows_of(*range(5)), name=f"ns.{format}")
        [entry] = entries(table)
        made = position_deletes(table, {entry.data_file.file_path: [1]}, entry.data_file)
        made._data[2] = format
        add_deletes(table, made)
        piped(Path(made.file_path.removeprefix("file://")), Path())
        name, given = f"iceberg:cat/ns.{format}", {"catalog_properties": warehouse.properties}
        with pytest.raises(ParquetBloomError) as caught:
            parquet_bloom.count(name, "id = 1", **given)
        assert f"{made.file_path.rpartition('/')[2]}: is not a regular file" in str(caught.value)


def test_deletes_in_avro_that_are_cut_or_changed_are_one_line(warehouse: Warehouse) -> None:
    """Or all of them count: no length of theirs leads out of their bytes, and no row comes back."""
    table = warehouse.filled(rows_of(*range(5)))
    [entry] = entries(table)
    made = position_deletes(table, {entry.data_file.file_path: [1, 2]}, entry.data_file)
    path = Path(made.file_path.removeprefix("file://"))
    rows = pq.read_table(path).to_pylist()
    with AvroOutputFile[Record](table.io.new_output(made.file_path), row_deletes.avro_schema(), "deletes") as sink:
        sink.write_block([Record(*row.values()) for row in rows])
    made._data[2] = "AVRO"
    add_deletes(table, made)
    properties = {"catalog_properties": warehouse.properties}
    assert parquet_bloom.count("iceberg:cat/ns.t", **properties) == 3
    whole, errors = path.read_bytes(), []
    block = whole.rindex(whole[-16:], 0, -16) + 16  # behind the header, whose sync marker ends it
    changed = [whole[:at] for at in range(block, len(whole))]
    changed += [whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :] for at in range(block, len(whole))]
    for data in changed:
        path.write_bytes(data)
        try:
            parquet_bloom.count("iceberg:cat/ns.t", **properties)
        except ParquetBloomError as error:
            errors.append(str(error))
    assert all(path.name in error and "\n" not in error for error in errors)
    assert len(errors) > len(changed) / 2

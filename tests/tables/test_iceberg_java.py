"""Iceberg's Java library plans scans of what was committed: the jars are those that bodo-iceberg-connector brings."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from support.iceberg_tables import Warehouse, add_deletes, append, entries, equality_deletes, position_deletes
from support.pip_packages import fetched, unavailable
from test_iceberg_commits import changed

PACKAGE = "bodo-iceberg-connector==2026.10"
PROGRAM = """
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.*;
import org.apache.iceberg.hadoop.HadoopFileIO;

public class Plan {
  public static void main(String[] arguments) throws Exception {
    Table table = new BaseTable(new StaticTableOperations(arguments[0], new HadoopFileIO(new Configuration())), "t");
    System.out.println(table.currentSnapshot().operation());
    try (var tasks = table.newScan().includeColumnStats().planFiles()) {
      for (FileScanTask task : tasks) {
        DataFile file = task.file();
        System.out.println(String.join("\\t", file.path().toString(), "" + file.fileSizeInBytes(),
            file.specId() + " " + file.partition() + " " + file.dataSequenceNumber() + " " + file.recordCount() + " "
            + task.deletes().size() + " " + file.lowerBounds() + " " + file.upperBounds() + " "
            + file.nullValueCounts()));
      }
    }
  }
}
"""


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the jars and the program; skips where there is no Java, or pip cannot bring them."""
    if shutil.which("java") is None:
        unavailable("no Java")
    folder = tmp_path_factory.mktemp("java")
    (folder / "libs").symlink_to(fetched(PACKAGE, [PACKAGE]) / "bodo_iceberg_connector" / "jars" / "libs")
    (folder / "Plan.java").write_text(PROGRAM)
    return folder


def planned(jars: Path, metadata: str) -> tuple[str, dict[str, int], list[str]]:
    """What Java says: the operation, path -> size, and all else of each file."""
    libraries = str(jars / "libs" / "*")
    command = ["java", "-cp", libraries, str(jars / "Plan.java"), metadata]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    operation, *lines = done.stdout.splitlines()
    files = [line.split("\t") for line in lines]
    return operation, {path: int(size) for path, size, _ in files}, sorted(told for _, _, told in files)


@pytest.mark.more
def test_java_plans_the_same_scan_after_a_commit(tmp_path: Path, jars: Path) -> None:
    warehouse = Warehouse(tmp_path)
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    by_name = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    table = warehouse.create(schema, partition_spec=by_name)
    for i in range(2):
        append(table, [{"id": 100 * i + j, "name": "ab"[j % 2]} for j in range(100)])
    first = next(e.data_file for e in entries(table) if e.data_file.partition[0] == "a" and e.sequence_number == 1)
    add_deletes(table, position_deletes(table, {first.file_path: [3, 7]}, first))
    b = next(e.data_file for e in entries(table) if e.data_file.partition[0] == "b")
    add_deletes(table, equality_deletes(table, ["id"], pa.table({"id": [1, 3, 101]}), b))
    with table.update_spec() as change:
        change.add_field("id", BucketTransform(4), "bucket")
    append(table, [{"id": 7, "name": None}])
    _, _, before = planned(jars, table.metadata_location)
    ours = warehouse.open()
    snapshot = ours.snapshot()
    ways = ours.commit_modes(snapshot)
    assert {way.default for way in ways.values()} == {"same-path", "new-path"}
    ours.commit(snapshot, [changed(ours, file, ways[file.path].default) for file in snapshot.files], {})
    operation, sizes, after = planned(jars, warehouse.load().metadata_location)
    assert operation == "replace"
    assert after == before, "specs, partitions, data sequence numbers, deletes and statistics are carried over"
    assert sizes == {file.entry.path: file.size for file in warehouse.read().files}
    warehouse.close()

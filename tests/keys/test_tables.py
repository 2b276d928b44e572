"""Key indexes of tables: rows with an index are those without one, at every version, whatever came to the table."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support import delta_tables as made
from support.random_questions import Leaves, random_predicate
from support.repeats import more_then_slow
from support.table_kinds import KINDS, Kind

import parquet_bloom
from keys.key_indexes import same_rows
from parquet_bloom.errors import RequestError, StaleIndexError
from parquet_bloom.format.schema import join_path
from parquet_bloom.keys.build import build_index
from parquet_bloom.keys.update import update_index

REFUSED = {"flag", "p_flag"}


def hold(source: str, leaves: Leaves, index: Path, rng: Random, n: int, **options: Any) -> int:
    """Hold the rows of random predicates with an index against those without; returns how many matched."""
    found = 0
    for _ in range(n):
        tree = random_predicate(rng, leaves)
        try:
            parquet_bloom.read_table(source, tree, **options)
        except RequestError as error:
            with pytest.raises(RequestError, match=re.escape(str(error))):
                parquet_bloom.read_table(source, tree, index=index, **options)
            continue
        found += same_rows(source, tree, index, **options)
    return found


# --- of any kind ------------------------------------------------------------------------------------


@pytest.fixture(params=["delta", "iceberg", "ducklake"])
def kind(request: Any, tmp_path: Path) -> Iterator[Kind]:
    """A table of each kind with two files."""
    table = KINDS[request.param](tmp_path)
    table.append(1)
    table.append(2)
    yield table
    table.close()


def keys_hold(table: Kind, index: Path) -> None:
    """Each row of some is found by its key, and no other."""
    rows = table.read_by_us()
    some = rows.slice(0, 400).to_pylist()[::67]
    one_of_them = f"id IN ({', '.join(str(row['id']) for row in some)}, 5)"
    assert same_rows(table.name, one_of_them, index, **table.options) >= len(some)
    one = some[len(some) // 2]
    assert same_rows(table.name, f"name = '{one['name']}' AND id = {one['id']}", index, **table.options) >= 1
    assert parquet_bloom.count(table.name, "id = 5 OR name = 'none'", index=index, **table.options) == 0


def notes_of(table: Kind, index: Path) -> list[str]:
    return parquet_bloom.check(table.name, "id = 5", index=index, **table.options).notes


def test_a_file_that_the_index_closes_is_not_opened(kind: Kind, tmp_path: Path) -> None:
    build_index(kind.name, ["id", "name"], tmp_path / "index", **kind.options)
    verdicts = parquet_bloom.check(kind.name, "id = 576460752303423488", index=tmp_path / "index", **kind.options)
    assert (len(verdicts), verdicts.notes) == (0, [])
    assert {one.decided_by for one in verdicts.excluded} <= {"index", "bounds"}
    assert "index" in {one.decided_by for one in verdicts.excluded}


def test_filters_are_added_after_a_build(kind: Kind, tmp_path: Path) -> None:
    """By each way that the table's format has; then they are removed."""
    index = tmp_path / "index"
    build_index(kind.name, ["id", "name"], index, **kind.options)
    for how in ({} if mode is None else {"commit": mode} for mode in type(kind).commit_modes):
        kind.add(["id"], **how)
        keys_hold(kind, index)
        update_index(index, kind.name, **kind.options)
        keys_hold(kind, index)
        assert notes_of(kind, index) == []
        kind.remove()
        keys_hold(kind, index)


@pytest.mark.parametrize("seed", [0, *more_then_slow(range(1, 30), 1)])
def test_a_table_that_goes_on(seed: int, kind: Kind, tmp_path: Path) -> None:
    """Appends, deletes, rewrites and filters, with updates now and then, and questions at older versions."""
    rng, index = Random(seed), tmp_path / "index"
    build_index(kind.name, ["id", "name"], index, **kind.options)
    versions = [kind.version()]
    for step in range(4):
        match rng.choice(["append", "append", "delete", "rewrite", "add", "update", "update"]):
            case "append":
                kind.append(10 + step)
            case "delete":
                kind.delete(f"n{rng.randrange(50)}")
            case "rewrite":
                kind.rewrite()
            case "add":
                kind.add([rng.choice(["id", "name"])])
            case "update":
                update_index(index, kind.name, **kind.options)
                assert notes_of(kind, index) == []
        versions.append(kind.version())
        keys_hold(kind, index)
    for version in rng.sample(versions, 3):
        name = f"{kind.name}@{version}"
        rows = parquet_bloom.read_table(name, **kind.options)
        some = rows.to_pylist()[:: max(1, rows.num_rows // 3)]
        one_of_them = f"id IN ({', '.join(str(row['id']) for row in some)})"
        assert same_rows(name, one_of_them, index, **kind.options) >= len(some)


# --- Delta ------------------------------------------------------------------------------------------


def leaves_of(root: Path, version: int | None = None) -> tuple[Leaves, list[str]]:
    """The columns of a random table of delta_tables, with their values; and the names of those that are indexed."""
    schema = pa.schema(DeltaTable(str(root), version=version).schema().to_arrow())
    kinds = made.KINDS | made.PARTITIONS
    leaves: dict[tuple[str, ...], Any] = {}
    names = []
    for name in schema.names:
        if name == "row":
            continue
        kind, values = kinds[name]
        if name == "st":
            leaves[name, "x"] = pa.int64(), [1, 2]
            leaves[name, "y"] = pa.string(), ["a", "b" * 40]
            names += ["st.x", "st.y"]
        elif name == "li":
            leaves[name,] = kind, [1, 5]
            names.append("li.list.element")
        else:
            leaves[name,] = kind, values
            names += [join_path((name,))] if name not in REFUSED and name not in made.PARTITIONS else []
    return leaves, names


@pytest.mark.parametrize("seed", [0, *more_then_slow(range(1, 100), 1)])
def test_random_delta_tables_at_all_versions(seed: int, tmp_path: Path) -> None:
    rng, root, index = Random(seed), tmp_path / "t", tmp_path / "index"
    made.random_table(root, rng, 8)
    last = DeltaTable(str(root)).version()
    at = rng.randint(0, last)
    leaves, names = leaves_of(root, at)
    some = [name for name in names if rng.random() < 0.7] or names[:1]
    build_index(f"delta:{root}@{at}", some, index)
    for version in {at, last, rng.randint(0, last)}:
        hold(f"delta:{root}@{version}", leaves_of(root, version)[0], index, rng, 8)
    update_index(index, f"delta:{root}")
    hold(f"delta:{root}", leaves_of(root)[0], index, rng, 8)
    if at < last:
        DeltaTable(str(root)).restore(at)
        hold(f"delta:{root}", leaves, index, rng, 8)


@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize("seed", [0, *more_then_slow(range(1, 2), 1)])
def test_mapped_columns_are_renamed_and_their_names_used_again(mode: str, seed: int, tmp_path: Path) -> None:
    rng, root, index = Random(seed), tmp_path / "t", tmp_path / "index"
    mapping = {"delta__columnMapping__mode": mode}

    def file(number: int, **columns: tuple[int, list[Any]]) -> Any:
        fields = [pa.field(f"col-{n}", pa.array(values).type, metadata={"PARQUET:field_id": str(n)})
                  for n, values in columns.values()]  # fmt: skip
        arrays = [pa.array(values) for _, values in columns.values()]
        return made.file_of(root, f"{number}.parquet", pa.table(arrays, pa.schema(fields)))

    one, two = made.mapped("a", "long", "col-1", 1), made.mapped("b", "long", "col-2", 2)
    made.commit(root, 0, made.protocol(2, 5), made.metadata([one, two], **mapping),
                file(0, a=(1, [1, 2, 3]), b=(2, [10, 20, 30])), file(1, a=(1, [4, 5]), b=(2, [40, 50])))  # fmt: skip
    build_index(f"delta:{root}", ["a", "b"], index)
    known = {(name,): (pa.int64(), [1, 2, 4, 5, 7, 10, 20, 40, 70, 99]) for name in "ab"}
    found = 0
    # 1. The names change places.
    one["name"], two["name"] = "b", "a"
    made.commit(root, 1, made.metadata([one, two], **mapping), file(2, b=(1, [7]), a=(2, [70])))
    assert same_rows(f"delta:{root}", "a = 10 AND b = 1", index) == 1
    assert same_rows(f"delta:{root}", "a = 1", index) == 0
    assert same_rows(f"delta:{root}", "a = 70", index) == 1
    found += hold(f"delta:{root}", known, index, rng, 8)
    # 2. One is dropped, and its name is another column's.
    three = made.mapped("b", "long", "col-3", 3)
    made.commit(root, 2, made.metadata([two, three], **mapping), file(3, a=(2, [99]), b=(3, [1])))
    assert same_rows(f"delta:{root}", "b = 1", index) == 1
    assert same_rows(f"delta:{root}", "b IS NULL", index) == 6
    found += hold(f"delta:{root}", known, index, rng, 8)
    for version in (0, 1):
        found += hold(f"delta:{root}@{version}", known, index, rng, 8)
    with pytest.raises(RequestError, match="build the index again"):
        update_index(index, f"delta:{root}")
    build_index(f"delta:{root}", ["a", "b"], index, overwrite=True)
    for version in ("", "@0", "@1"):
        found += hold(f"delta:{root}{version}", known, index, rng, 8)
    assert found > 20


def test_files_of_the_same_names_in_a_table_that_was_made_again(tmp_path: Path) -> None:
    root, index = tmp_path / "t", tmp_path / "index"
    fields = [made.field("id", "long")]

    def make(identity: str, *values: list[int]) -> None:
        shutil.rmtree(root, ignore_errors=True)
        told = made.metadata(fields)
        told["metaData"]["id"] = identity
        files = [made.file_of(root, f"{n}.parquet", pa.table({"id": some})) for n, some in enumerate(values)]
        made.commit(root, 0, made.protocol(), told, *files)

    make("5fba94ed-9794-4965-ba6e-6ee3c0d22af9", [1, 2], [3, 4])
    build_index(f"delta:{root}", "id", index)
    make("00000000-9794-4965-ba6e-6ee3c0d22af9", [5, 6], [7, 8])
    assert parquet_bloom.count(f"delta:{root}", "id = 7") == 1
    with pytest.raises(StaleIndexError):
        parquet_bloom.read_table(f"delta:{root}", "id = 7", index=index)
    with pytest.raises(StaleIndexError):
        update_index(index, f"delta:{root}")
    build_index(f"delta:{root}", "id", index, overwrite=True)
    assert same_rows(f"delta:{root}", "id = 7", index) == 1


def test_a_partition_column_that_files_have_too_is_the_logs(tmp_path: Path) -> None:
    root, index = tmp_path / "t", tmp_path / "index"
    fields = [made.field("id", "long"), made.field("p", "long")]
    files = [
        made.file_of(root, f"{n}.parquet", pa.table({"id": [n, n + 10], "p": [500 + n, 600]}), values={"p": str(n)})
        for n in range(3)
    ]
    made.commit(root, 0, made.protocol(), made.metadata(fields, ["p"]), *files)
    for columns in (["id"], ["id", "p"]):
        build_index(f"delta:{root}", columns, index, overwrite=True)
        for predicate in ("p = 1", "p = 501", "p = 600", "p = 1 AND id = 11", "p = 2 OR id = 0", "NOT p = 1"):
            same_rows(f"delta:{root}", predicate, index)


def test_an_index_of_files_and_one_of_their_table(tmp_path: Path) -> None:
    """Each is asked about the other's source: the same files are recognised by their tokens."""
    root = tmp_path / "t"
    for number in range(3):
        write_deltalake(str(root), pa.table({"id": [number * 10 + i for i in range(9)]}), mode="append")
    build_index(f"delta:{root}", "id", tmp_path / "table")
    build_index(str(root), "id", tmp_path / "files", raw_files=True)
    for index in (tmp_path / "table", tmp_path / "files"):
        assert same_rows(f"delta:{root}", "id = 15", index) == 1
        assert same_rows(str(root), "id = 15", index, raw_files=True) == 1
    for predicate in ("id = 15", "id = 9"):
        assert len(parquet_bloom.check(str(root), predicate, raw_files=True, index=tmp_path / "table").excluded) >= 1

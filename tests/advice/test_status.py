"""status: what columns lack, what they lost since which version, and the command that adds it, which is run."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from support.corpus import corpus_file
from support.ducklake_tables import NOTHING_INLINED, Lake
from support.iceberg_tables import Warehouse, append
from support.object_store import ObjectStore
from support.repeats import first_then_more
from support.samples import keys_table, write_keys

import parquet_bloom as pb
from parquet_bloom.cli import run
from parquet_bloom.errors import UnknownColumnError
from parquet_bloom.storage.open_file import OpenFile

N = 300


def rows_of(seed: int) -> pa.Table:
    ids = np.random.default_rng(seed).integers(0, 2**60, N)
    return pa.table({"id": ids, "name": [f"n{i % 70}" for i in range(N)], "flag": [True] * N})


def column(report: pb.StatusReport, name: str) -> pb.ColumnStatus:
    (found,) = [one for one in report.columns if one.column == name]
    return found


def mended(name: str, **options: Any) -> pb.StatusReport:
    """Run what status says to run, as a shell would."""
    report = pb.status(name, **options)
    assert report.mend
    for command in report.mend:
        assert run([*shlex.split(command)[1:], "--quiet"]) == 0
    after = pb.status(name, **options)
    assert (after.complete, after.mend) == (True, []), command
    return after


# --- files ----------------------------------------------------------------------------------------


def test_files_have_lack_and_are_mended(tmp_path: Path) -> None:
    folder = tmp_path / "two words; $(echo no)"
    folder.mkdir()
    for number in range(3):
        write_keys(folder / f"{number}.parquet")
    assert pb.status(folder).columns == []
    pb.add_filters(folder / "1.parquet", in_place=True, columns=["id", "name"], fpp=0.001)
    report = pb.status(str(folder))
    assert [(one.column, one.files, one.row_groups, one.files_lacking, one.row_groups_lacking, one.row_groups_lost)
            for one in report.columns] == [("id", 3, 9, 2, 6, 0), ("name", 3, 9, 2, 6, 0)]  # fmt: skip
    assert (report.files, report.row_groups, report.table, report.complete) == (3, 9, None, False)
    (file,) = pb.inspect(folder / "1.parquet").files
    assert column(report, "id").filter_bytes == sum(f.num_bytes for f in file.filters if f.column == "id")
    assert column(report, "id").fpp == max(f.fpp for f in file.filters if f.column == "id")
    after = mended(str(folder))
    rates = [f.fpp for file in pb.inspect(folder).files for f in file.filters if f.column == "id"]
    assert column(after, "id").fpp == max(rates)


def test_columns_of_any_name_are_mended(tmp_path: Path) -> None:
    names = ["-x", "a b", "it's", '"q"', "$HOME", "a,b", "*"]
    for number in range(2):
        pq.write_table(pa.table([rows_of(number)["id"]] * len(names), names), tmp_path / f"{number}.parquet")
    pb.add_filters(tmp_path / "0.parquet", in_place=True)
    assert [one.row_groups_lacking for one in mended(str(tmp_path)).columns] == [0] * len(names)


def test_row_groups_without_values_and_columns_that_can_have_no_filter_need_none(tmp_path: Path) -> None:
    path = tmp_path / "nulls.parquet"
    values = [None] * 100 + [*range(100)]
    table = pa.table({"id": pa.array(values, pa.int64()), "flag": [True, False] * 100})
    pq.write_table(table, path, row_group_size=100)
    pb.add_filters(path, in_place=True, columns=["id"])
    report = pb.status(path)
    assert [(one.column, one.row_groups, one.row_groups_lacking) for one in report.columns] == [("id", 1, 0)]
    assert pb.status(path, columns=["id", "flag"]).columns == report.columns


def test_a_filter_that_is_not_sound_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "bad.parquet"
    path.write_bytes(Path(corpus_file("malformed_lab/09_length_too_big_padding64.parquet")).read_bytes())
    report = pb.status(path)
    assert [one.row_groups_lacking for one in report.columns if one.row_groups_lacking] != []
    assert all("--replace" in command for command in report.mend)
    pb.status(path, assert_filters=[report.columns[0].column])
    mended(str(path))


def test_the_rate_of_a_large_filter_is_that_of_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    pq.write_table(pa.table({"id": np.arange(200_000) * 7919}), path)
    pb.add_filters(path, in_place=True, columns=["id"], fpp=0.01)
    (exact,) = pb.inspect(path).files[0].filters
    found = column(pb.status(path), "id")
    assert exact.num_bytes > 128 << 10
    assert found.filter_bytes == exact.num_bytes
    assert found.fpp == pytest.approx(exact.fpp, rel=0.2)


def test_names_and_errors(tmp_path: Path) -> None:
    path = write_keys(tmp_path / "keys.parquet")
    report = pb.status(path, columns=["id"])
    assert [(one.column, one.row_groups_lacking) for one in report.columns] == [("id", 3)], "though it never had one"
    assert pb.status(path, assert_filters=["id"]).asserted == ["id"]
    with pytest.raises(UnknownColumnError):
        pb.status(path, columns=["idd"])
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no footer PAR1")
    report = pb.status(tmp_path)
    assert [len(report.failed), report.files] == [1, 1]


def test_what_it_prints_of_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(2):
        write_keys(tmp_path / f"{number}.parquet")
    pb.add_filters(tmp_path / "0.parquet", in_place=True, columns=["id"], fpp=0.0001)
    report = pb.status(tmp_path)
    assert repr(report) == "StatusReport(1 column, 2 files, 6 row groups; id lacks 3 of 6)"
    assert report.to_arrow().column_names[:3] == ["column", "files", "row_groups"]
    assert "3 of 6 row groups lack a filter on id" in report._repr_html_(), "what the command prints"
    assert pb.status(tmp_path, filesystem=pa.fs.LocalFileSystem()).mend == [], "no command line says this"
    assert run(["status", str(tmp_path)]) == 0
    told = "  new filters get the default false positive rate, 1 %; --fpp sets another\n"
    assert told in capsys.readouterr().out, "where nobody knows the rate"


def test_it_reads_footers_and_the_beginnings_of_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, n = 5, 100_000
    for number in range(files):
        ids = np.random.default_rng(number).integers(0, 2**60, n)
        pq.write_table(pa.table({"id": ids, "other": ids}), tmp_path / f"{number}.parquet", row_group_size=n // 2)
    pb.add_filters(tmp_path, in_place=True, columns=["id"])
    read: list[tuple[str, int]] = []
    whole = OpenFile.read

    def counting(self: OpenFile, offset: int, length: int) -> bytes:
        read.append((self.path, length))
        return whole(self, offset, length)

    monkeypatch.setattr(OpenFile, "read", counting)
    report = pb.status(tmp_path)
    assert column(report, "id").filter_bytes >= files * 2 * (64 << 10)
    for path in {path for path, _ in read}:
        lengths = [length for name, length in read if name == path]
        assert sum(lengths) < (64 << 10) + 2 * (17 << 10), "the end of the file, and twice 16 KiB"
        assert len(lengths) <= 1 + 2 * 2, "the end; header and blocks of each of two filters"


def test_requests_of_a_table_in_a_store(store: ObjectStore, bucket: str, tmp_path: Path) -> None:
    files = 40
    for number in range(files):
        pq.write_table(rows_of(number), tmp_path / f"{number}.parquet")
    pb.add_filters(tmp_path, in_place=True, columns=["id"], sync=False)
    for path in tmp_path.iterdir():
        store.put(f"{bucket}/t/{path.name}", path.read_bytes())
    name = store.uri(f"{bucket}/t/")
    store.wire.clear()
    report = pb.status(name)
    assert (report.files, report.complete) == (files, True)
    of_files = [one for one in store.wire.requests if one.path.endswith(".parquet")]
    assert len(of_files) <= 2 * files, "a HEAD and the end of each, in which a small file's filters lie"


# --- a column that gains nothing ------------------------------------------------------------------


def by_duckdb(folder: Path) -> None:
    """Three files of two row groups: DuckDB gives filters to what it writes by a dictionary."""
    import duckdb

    for number, id_of in enumerate(("i % 500", "i", "i")):
        rows = f"SELECT hash({number}, {id_of}) AS id, if(i % 2 = 0, 'a', 'b') AS kind, i AS n FROM range(20000) t(i)"
        duckdb.sql(f"COPY ({rows}) TO '{folder}/{number}.parquet' (ROW_GROUP_SIZE 10000)")
    table = pq.read_table(folder / "0.parquet")
    pq.write_table(table, folder / "3.parquet", row_group_size=10_000)  # by pyarrow: no filter on anything


def test_what_a_writer_does_by_itself_is_not_asked_of_all_files(tmp_path: Path) -> None:
    """One judgement: a column on which `advise` would waste no filter is not one that lacks them."""
    by_duckdb(tmp_path)
    report = pb.status(tmp_path)
    advice = {one.column: one for one in pb.advise(tmp_path).columns}
    kind, ids = column(report, "kind"), column(report, "id")
    assert (kind.row_groups, kind.row_groups_lacking, kind.no_gain) == (8, 2, advice["kind"].reason)
    assert "few distinct values" in (kind.no_gain or "")
    assert (ids.no_gain, advice["id"].advised, ids.row_groups_lacking > 0) == (None, True, True)
    assert not report.complete
    [command] = report.mend
    assert " id" in command
    assert "kind" not in command
    assert mended(str(tmp_path)).complete
    assert run(["status", str(tmp_path), "--assert-complete", "--quiet"]) == 0


def test_who_chose_a_column_is_asked_for_it(tmp_path: Path) -> None:
    by_duckdb(tmp_path)
    assert column(pb.status(tmp_path, columns=["kind"]), "kind").no_gain is None
    assert column(pb.status(tmp_path, assert_filters=["kind"]), "kind").no_gain is None
    assert run(["status", str(tmp_path), "--assert-filters", "kind", "--quiet"]) == 1
    pq.write_table(pq.read_table(tmp_path / "0.parquet"), tmp_path / "4.parquet")
    pb.add_filters(tmp_path / "4.parquet", in_place=True, columns=["kind"])
    assert column(pb.status(tmp_path), "kind").no_gain is None, "somebody chose it"


# --- Delta ----------------------------------------------------------------------------------------


def write(root: Path, seed: int, **options: Any) -> None:
    write_deltalake(str(root), rows_of(seed), mode="append", **options)


def test_a_delta_table_loses_filters_and_gets_them_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(5):
        write(tmp_path, seed)
    name = f"delta:{tmp_path}"
    pb.add_filters(name, columns=["id", "name"])  # version 5
    assert pb.status(name).complete
    write(tmp_path, 5)  # 6
    DeltaTable(str(tmp_path)).delete(f"id = {rows_of(0)['id'][0]}")  # 7
    report = pb.status(name)
    found = column(report, "id")
    assert (found.files, found.files_lost, found.row_groups_lost, found.lost_since) == (6, 2, 2, "6")
    assert pb.status(f"{name}@7").mend == [], "a version of the past stays as it is"
    assert column(pb.status(f"{name}@6"), "id").row_groups_lost == 1
    assert pb.status(tmp_path).mend == report.mend == [f"parquet-bloom add {name} --column id --column name"]
    assert run(["status", name]) == 0
    printed = capsys.readouterr().out
    assert "2 of 6 row groups have no filter on id since version 6 (2 of 6 files)" in printed
    assert f"  parquet-bloom add {name} --column id --column name\n" in printed
    mended(name)  # 8
    DeltaTable(str(tmp_path)).optimize.compact()  # 9
    found = column(pb.status(name), "name")
    assert (found.row_groups, found.row_groups_lost, found.lost_since) == (1, 1, "9"), "no file with a filter lives"
    mended(name)


def test_a_loss_stays_one_when_another_column_is_mended(tmp_path: Path) -> None:
    for seed in range(2):
        write(tmp_path, seed)  # 0, 1
    name = f"delta:{tmp_path}"
    pb.add_filters(name, columns=["id", "name"])  # 2
    write(tmp_path, 2)  # 3
    for way in None, "same-path", "new-path":
        pb.add_filters(name, columns="id", replace=True, commit=way)
        found = column(pb.status(name), "name")
        assert (found.row_groups_lacking, found.row_groups_lost, found.lost_since) == (1, 1, "3")
    pb.remove_filters(name, columns=["id"], commit="new-path")
    assert column(pb.status(name), "name").lost_since == "3"
    mended(name)


def test_what_is_added_keeps_its_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def rates() -> dict[str, float]:
        return {one.column: one.fpp for one in pb.status(name).columns if one.fpp is not None}

    write(tmp_path, 0)
    name = f"delta:{tmp_path}"
    pb.add_filters(name, columns=["id", "name"], fpp={"id": 0.0001, "*": 0.03})
    write(tmp_path, 1)
    report = pb.status(name)
    assert [one.fpp_target for one in report.columns] == [0.0001, 0.03]
    both = "--column id --column name --column-fpp id=0.0001 --column-fpp name=0.03"
    assert report.mend == [f"parquet-bloom add {name} {both}"]
    mended(name)
    assert rates()["id"] <= 0.0001
    write(tmp_path, 2)
    pb.add_filters(name, columns=["id"])
    pb.add_filters(name, columns=["name"], max_bytes=64)
    write(tmp_path, 3)
    assert pb.status(name).mend == [
        f"parquet-bloom add {name} --column id",
        f"parquet-bloom add {name} --column name --max-bytes 64",
    ], "the last that was asked for"
    mended(name)
    pb.add_filters(name, columns=["id"], fpp="auto", replace=True)
    write(tmp_path, 4)
    assert pb.status(name, columns="id").mend == [f"parquet-bloom add {name} --column id --fpp auto"]
    mended(name)
    capsys.readouterr()
    write(tmp_path, 5)
    assert run(["status", name]) == 0
    assert "default rate" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["parquet-41", "statistics"])
def test_what_is_added_keeps_its_form(tmp_path: Path, name: str) -> None:
    write(tmp_path, 0)
    table = f"delta:{tmp_path}"
    pb.add_filters(table, columns=["name"], spec=name, fpp=0.02)
    write(tmp_path, 1)
    mended(table)
    filters = [one for file in pb.inspect(table).files for one in file.filters]
    assert [one.spec for one in filters] == [filters[0].spec] * 2


OPTIONS = [
    "[", "7", "{}", '[["id", ["id", "int64"], 7]]', '[["id"]]', "[" * 100_000,
    *(f'[["id", IDENTITY, {{"spec": {spec}, "fpp": {fpp}, "max_bytes": {most}}}]]' for spec, fpp, most in [
        ("7", "0.01", "null"), ('"final"', "2", "null"), ('"final"', "NaN", "null"), ('"final"', "true", "null"),
        ('"final"', '"0.1 --in-place"', "null"), ('"final"', "0.1", "-1"), ('"final"', "0.1", "1e99"),
        ('"final; rm x"', "0.5", "null")]),
]  # fmt: skip


def test_a_log_may_say_anything_of_options(tmp_path: Path) -> None:
    write(tmp_path, 0)
    name = f"delta:{tmp_path}"
    pb.add_filters(name, columns=["id"])
    last = tmp_path / "_delta_log" / f"{1:020d}.json"
    lines = [json.loads(line) for line in last.read_text().splitlines()]
    (info,) = [line["commitInfo"] for line in lines if "commitInfo" in line]
    ((_, identity, _),) = json.loads(info["parquet-bloom.options"])
    write(tmp_path, 1)
    for options in OPTIONS:
        info["parquet-bloom.options"] = options.replace("IDENTITY", json.dumps(identity))
        last.write_text("\n".join(map(json.dumps, lines)))
        assert pb.status(name).mend == [f"parquet-bloom add {name} --column id"], options[:99]
    mended(name)


def test_what_never_had_filters_or_was_taken_lacks_them(tmp_path: Path) -> None:
    for seed in range(2):
        write(tmp_path, seed)
    name = f"delta:{tmp_path}"
    pb.add_filters(name, columns=["id"], files_per_commit=1)
    pb.remove_filters(name, columns=["id"])
    assert pb.status(name).columns == [], "nobody expects them any more"
    pb.add_filters(name, columns=["name"])
    report = pb.status(name, columns=["id"])
    assert [(one.row_groups_lacking, one.row_groups_lost) for one in report.columns] == [(2, 0)]
    write(tmp_path, 2)
    report = pb.status(name, columns=["id", "name"])
    assert [(one.column, one.row_groups_lacking, one.row_groups_lost) for one in report.columns] == [
        ("id", 3, 0), ("name", 1, 1)]  # fmt: skip


def test_files_that_grew_on_their_paths(tmp_path: Path) -> None:
    write(tmp_path, 0)  # 0
    write(tmp_path, 1)  # 1
    name = f"delta:{tmp_path}"
    pb.add_filters(name, columns=["id"], commit="same-path")  # 2
    assert pb.status(name).complete
    log = tmp_path / "_delta_log"
    old = [line for v in range(2) for line in (log / f"{v:020d}.json").read_text().splitlines() if '{"add"' in line]
    (log / f"{3:020d}.json").write_text("\n".join(old))  # a restore: the same paths, with their old sizes
    found = column(pb.status(name), "id")
    assert (found.row_groups_lost, found.lost_since) == (2, "3")
    assert column(pb.status(f"{name}@2"), "id").row_groups_lacking == 0
    mended(name)


def test_a_log_that_was_cleaned_is_not_guessed_at(tmp_path: Path) -> None:
    write(tmp_path, 0)
    name = f"delta:{tmp_path}"
    pb.add_filters(name, columns=["id"])  # 1
    write(tmp_path, 1)  # 2
    assert column(pb.status(name), "id").row_groups_lost == 1
    DeltaTable(str(tmp_path)).create_checkpoint()
    for path in sorted((tmp_path / "_delta_log").glob("*.json"))[:-1]:
        path.unlink()
    found = column(pb.status(name), "id")
    assert (found.row_groups_lacking, found.row_groups_lost, found.lost_since) == (1, 0, None)
    write(tmp_path, 2)  # 3: behind the checkpoint
    found = column(pb.status(name), "id")
    assert (found.row_groups_lacking, found.row_groups_lost, found.lost_since) == (2, 1, "3")


def test_a_log_may_say_anything_of_our_commits(tmp_path: Path) -> None:
    whole = '[["id", ["id", "int64"]]]'
    for number, text in enumerate(["[", "{}", "7", '["id", 8]', '[["x", ["x", "int64"]]]', whole, "[" * 100_000]):
        root = tmp_path / str(number)
        write(root, 0)
        told = {"parquet-bloom.operation": "add", "parquet-bloom.columns": text, "parquet-bloom.complete": text}
        write(root, 1, commit_properties=CommitProperties(custom_metadata=told))
        assert [one.column for one in pb.status(f"delta:{root}").columns] == (["id"] if text == whole else []), text[:9]


def rows_in(path: str) -> str:
    return str(pq.read_table(path, columns=["id"])["id"].to_pylist())


@pytest.mark.parametrize("seed", first_then_more(range(5), 2))
def test_random_histories(tmp_path: Path, seed: int) -> None:
    """Against what each version's files showed when it was new."""
    pick = random.Random(seed)
    name = f"delta:{tmp_path}"
    write(tmp_path, 0)
    had: list[dict[str, set[str]]] = []  # of each version: the rows of a file -> columns with filters
    ours: list[str] = []
    for step in range(1, 9):
        before = DeltaTable(str(tmp_path)).version()
        what = pick.choice(["append", "append", "add", "delete", "compact", "remove", "tail", "checkpoint"])
        some = pick.sample(["id", "name"], pick.randint(1, 2))
        if what == "append":
            write(tmp_path, step)
        elif what in ("add", "tail"):
            pb.add_filters(name, columns=some, commit="same-path" if what == "tail" else None)
        elif what == "delete":
            DeltaTable(str(tmp_path)).delete(f"name = 'n{pick.randrange(70)}'")
        elif what == "compact":
            DeltaTable(str(tmp_path)).optimize.compact()
        elif what == "remove":
            pb.remove_filters(name, columns=some)
        else:
            DeltaTable(str(tmp_path)).create_checkpoint()
        for version in range(len(had), DeltaTable(str(tmp_path)).version() + 1):
            files = pb.inspect(f"{name}@{version}").files
            had.append({rows_in(f.path): {one.column for one in f.filters} for f in files})
            ours.append(f"{what} {','.join(some)}" if version > before and what in ("add", "tail", "remove") else "")
    now = had[-1]
    report = pb.status(name, columns=["id", "name"])
    for column_name in ("id", "name"):
        taken = max((v for v, text in enumerate(ours) if text.startswith("remove") and column_name in text), default=-1)
        first = next(
            (v for v, files in enumerate(had) if v > taken and column_name in set().union(*files.values())), 99
        )
        lost = []
        for file in [file for file, columns in now.items() if column_name not in columns]:
            came = len(had) - 1
            while came and file in had[came - 1]:
                came -= 1
            if came > first:
                lost.append(came)
        found = column(report, column_name)
        assert found.row_groups_lost == len(lost)
        assert found.row_groups_lacking == sum(column_name not in columns for columns in now.values())
        assert found.lost_since == (str(min(lost)) if lost else None)


# --- Iceberg, DuckLake ----------------------------------------------------------------------------

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    made = Warehouse(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("way", ["new-path", "same-path"])
def test_an_iceberg_table_loses_filters_and_gets_them_back(warehouse: Warehouse, way: Any) -> None:
    table = warehouse.create(SCHEMA)
    for seed in range(2):
        append(table, rows_of(seed).select(["id", "name"]).to_pylist())
    name, more = "iceberg:cat/ns.t", {"catalog_properties": warehouse.properties}
    pb.add_filters(name, columns=["id"], commit=way, **more)
    assert pb.status(name, **more).complete
    append(warehouse.load(), rows_of(2).select(["id", "name"]).to_pylist())
    since = str(warehouse.load().current_snapshot().snapshot_id)
    found = column(pb.status(name, **more), "id")
    assert (found.row_groups, found.row_groups_lost, found.lost_since) == (3, 1, since)
    append(warehouse.load(), rows_of(3).select(["id", "name"]).to_pylist())
    log = warehouse.load()
    for old in log.snapshots()[:-1]:
        log.maintenance.expire_snapshots().by_id(old.snapshot_id).commit()
    found = column(pb.status(name, **more), "id")
    told = (found.row_groups_lacking, found.row_groups_lost)
    assert told == ((2, 2) if way == "new-path" else (2, 0)), "of a tail nobody knows when it came"
    assert mended(name, **more)


@pytest.mark.parametrize("way", ["new-path", "same-path"])
def test_an_iceberg_table_keeps_a_loss_and_a_rate(warehouse: Warehouse, way: Any) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows_of(0).select(["id", "name"]).to_pylist())
    name, more = "iceberg:cat/ns.t", {"catalog_properties": warehouse.properties}
    pb.add_filters(name, columns=["id", "name"], fpp=0.002, commit="new-path", **more)
    append(warehouse.load(), rows_of(1).select(["id", "name"]).to_pylist())
    since = str(warehouse.load().current_snapshot().snapshot_id)
    for columns in ["id"], ["id"]:
        pb.add_filters(name, columns=columns, replace=True, commit=way, **more)
        found = column(pb.status(name, **more), "name")
        assert (found.row_groups_lacking, found.row_groups_lost, found.lost_since) == (1, 1, since)
    assert "--column name --fpp 0.002" in pb.status(name, **more).mend[0]
    mended(name, **more)


def test_a_ducklake_table_lacks_filters_and_gets_them(tmp_path: Path) -> None:
    lake = Lake(tmp_path, True)
    rows = "SELECT (i * 7919) % 1000003 AS id, md5(i::VARCHAR) AS s FROM range({}, {}) r(i)"
    lake.sql(NOTHING_INLINED, f"CREATE TABLE t AS {rows.format(0, 3000)}")
    lake.release()
    name = f"ducklake:{lake.name()}"
    pb.add_filters(name, columns=["id"])
    lake.sql(f"INSERT INTO t {rows.format(3000, 6000)}")
    lake.release()
    report = pb.status(name, columns=["id"])
    found = column(report, "id")
    assert (found.row_groups, found.row_groups_lacking, found.row_groups_lost) == (2, 1, 0)
    mended(name, columns=["id"])


def test_secrets_of_a_catalog_are_not_shown(warehouse: Warehouse) -> None:
    append(warehouse.create(SCHEMA), rows_of(0).select(["id", "name"]).to_pylist())
    properties = {**warehouse.properties, "s3.secret-access-key": "hidden"}
    report = pb.status("iceberg:cat/ns.t", columns=["id"], catalog_properties=properties)
    assert "hidden" not in str(report.to_dict())
    assert "s3.secret-access-key=..." in report.mend[0]


# --- the command ----------------------------------------------------------------------------------


def test_gates_and_exit_statuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write_keys(tmp_path / "keys.parquet"))
    assert run(["status", path]) == 0
    assert "no column has a filter" in capsys.readouterr().out
    assert run(["status", path, "--assert-complete"]) == 0, "nobody expects any"
    assert run(["status", path, "--assert-filters", "id"]) == 1
    told = "parquet-bloom: --assert-filters: 3 of 3 row groups lack a filter on id (1 of 1 file)\n"
    assert capsys.readouterr().err == told
    pb.add_filters(path, in_place=True, columns=["id"])
    pq.write_table(keys_table(), tmp_path / "other.parquet")
    assert run(["status", path, "--assert-filters", "id", "--assert-complete"]) == 0
    assert run(["status", str(tmp_path), "--assert-complete", "--quiet"]) == 1
    capsys.readouterr()
    assert run(["status", str(tmp_path), "--assert-complete", "--output-format", "github"]) == 1
    assert capsys.readouterr().out.startswith("::error title=parquet-bloom status::1 of 4 row groups lacks a filter")
    assert run(["status", path, "--assert-filters", "idd"]) == 2
    assert run(["status", str(tmp_path / "none.parquet")]) == 2
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no footer PAR1")
    assert run(["status", str(tmp_path), "--assert-complete"]) == 2

"""`repair`: footers with right statistics behind files whose statistics are wrong; all else stays, to the byte."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from filters.test_wrong_statistics import KINDS, some_table, write
from support.corpus import FIXTURES
from support.footers import edited_footer, footer
from support.repeats import first_then_more

import parquet_bloom
from parquet_bloom import Outcomes, add_filters, check, count, inspect, remove_filters, repair, verify
from parquet_bloom._thrift.parquet.ttypes import Statistics
from parquet_bloom.cli import run
from parquet_bloom.errors import LayoutError, RequestError, StorageError, TableFormatError

OLD = FIXTURES / "old_statistics"
EXPECTED: dict[str, Any] = json.loads((OLD / "expected.json").read_text())
WRONG = sorted(name for name, one in EXPECTED.items() if one["wrong"])


def wrong_in(path: Path) -> list[str]:
    found = verify(path, statistics=True).files[0].statistics
    assert found is not None
    return [one.text for one in found.wrong]


def repaired(path: Path, output: Path, **options: Any) -> parquet_bloom.RepairedFile:
    return repair(path, output, sync=False, **options).files[0]


# --- files of released programs -------------------------------------------------------------------


def of_each_kind(releases: Iterable[str]) -> list[Any]:
    """Of the releases those that are wrong as no other is, and a sound one; the others have the marker `more`."""
    kinds = {"chdb-3.4.1", "duckdb-0.10.0", "polars-0.19.19", "polars-0.20.31", "polars-1.44.2", "pyarrow-10.0.1"}
    kinds.add("polars-2.1.0")
    return [one if one in kinds else pytest.param(one, marks=pytest.mark.more) for one in sorted(releases)]


@pytest.mark.parametrize("release", of_each_kind(EXPECTED))
def test_all_is_right_afterwards_and_every_old_byte_stays(release: str, tmp_path: Path) -> None:
    """And what gives the old file back: undo, and `remove` with last=True."""
    path, output = OLD / f"{release}.parquet", tmp_path / "out.parquet"
    report, old, wrong = repaired(path, output), path.read_bytes(), {*EXPECTED[release]["wrong"]}
    assert {one.column for one in report.wrong} >= wrong
    assert wrong_in(output) == []
    new = output.read_bytes()
    assert new.startswith(old)
    assert report.bytes_after == len(new)
    assert (new == old) == (report.wrong == []), "a sound file is not touched"
    assert repaired(output, tmp_path / "again").wrong == []
    assert (tmp_path / "again").read_bytes() == new
    has_true_statistics(output, {one.column for one in report.wrong if not one.statistic.startswith("column_index")})
    assert repaired(output, tmp_path / "undone", undo=True).undone == bool(report.wrong)
    assert (tmp_path / "undone").read_bytes() == old
    remove_filters(output, tmp_path / "last", last=True, sync=False)
    assert (tmp_path / "last").read_bytes() == old
    remove_filters(output, tmp_path / "kept", sync=False)
    assert (tmp_path / "kept").read_bytes() == new, "remove keeps repaired statistics"


def has_true_statistics(output: Path, names: set[str]) -> None:
    """Every chunk of a mended column, compared with its values by pyarrow; floats with a NaN have no bounds at all."""
    file = pq.ParquetFile(output)
    stored = footer(output)
    groups, orders = stored.row_groups, stored.column_orders
    for number in range(file.metadata.num_columns):
        name = file.metadata.row_group(0).column(number).path_in_schema
        if name not in names or "." in name:
            continue
        columns = [file.read_row_group(group, [name])[name].combine_chunks() for group in range(len(groups))]
        columns = [one.dictionary_decode() if isinstance(one, pa.DictionaryArray) else one for one in columns]
        columns = [one.storage if isinstance(one, pa.ExtensionArray) else one for one in columns]
        has_nan = pa.types.is_floating(columns[0].type) and any(pc.any(pc.is_nan(one)).as_py() for one in columns)
        for group, values in enumerate(columns):
            stated = groups[group].columns[number].meta_data.statistics
            assert stated.null_count == values.null_count
            bounds = [stated.min_value if stated.min_value is not None else stated.min]
            bounds += [stated.max_value if stated.max_value is not None else stated.max]
            if has_nan or values.null_count == len(values):
                assert bounds == [None, None]
                continue
            if bounds == [None, None]:  # nobody could say in which order the bounds of bytes are
                assert orders is None
                assert columns[0].type in (pa.binary(16), pa.binary(), pa.string())
                continue
            assert None not in bounds, (group, name)
            shown = file.metadata.row_group(group).column(number).statistics
            if shown.has_min_max:  # pyarrow passes over bounds without column_orders; `verify` above does not
                found = pc.min_max(values).as_py()
                assert (shown.min, shown.max) == (found["min"], found["max"])


def test_what_states_nothing_is_decoded_where_its_column_is_mended(tmp_path: Path) -> None:
    """Row groups without Statistics, without one field of them, and of nothing but NULL."""
    path, output = tmp_path / "in.parquet", tmp_path / "out.parquet"
    table = pa.table({name: [1, 2, None, 4, None, None, 7, 8] for name in ("mended", "mixed", "silent")})
    pq.write_table(table, path, row_group_size=2)
    with edited_footer(path) as footer:
        for number in range(3):
            for group, fields in ((0, ["null_count"]), (1, None), (3, ["max", "max_value"])):
                meta = footer.row_groups[group].columns[number].meta_data
                for field in fields or ():
                    setattr(meta.statistics, field, None)
                meta.statistics = meta.statistics if fields else None
        footer.row_groups[0].columns[0].meta_data.statistics.max_value = (1).to_bytes(8, "little")
        for group in range(4):
            footer.row_groups[group].columns[2].meta_data.statistics = None
    assert {(one.column, one.statistic) for one in repaired(path, output).wrong} == {("mended", "max_value")}
    metadata = pq.read_metadata(output)
    for number, expected in ((0, True), (1, True), (2, False)):
        found = [metadata.row_group(group).column(number).statistics for group in range(4)]
        if expected:
            assert [(one.min, one.max, one.null_count) for one in found] == [
                (1, 2, 0), (4, 4, 1), (None, None, 2), (7, 8, 0)
            ]  # fmt: skip
        else:
            assert found == [None] * 4
    assert wrong_in(output) == []
    repaired(output, tmp_path / "undone", undo=True)
    assert (tmp_path / "undone").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(("release", "placement"), [("polars-1.44.2", "footer"), ("duckdb-0.10.0", "tail")])
def test_filters_come_and_go_behind_a_repair(release: str, placement: Any, tmp_path: Path) -> None:
    path, output, more = OLD / f"{release}.parquet", tmp_path / "out.parquet", tmp_path / "more.parquet"
    repaired(path, output)
    add_filters(output, more, columns="*", placement=placement, sync=False)
    assert wrong_in(more) == []
    assert inspect(more).files[0].repaired
    assert not verify(more).files[0].wrong
    with pytest.raises(LayoutError, match="has filters since its repair"):
        repair(more, tmp_path / "undone", undo=True, sync=False)
    remove_filters(more, tmp_path / "less.parquet", columns="int64", sync=False)
    assert wrong_in(tmp_path / "less.parquet") == []
    remove_filters(more, tmp_path / "back.parquet", sync=False)
    assert (tmp_path / "back.parquet").read_bytes() == output.read_bytes()


@pytest.mark.parametrize(
    ("release", "options"),
    [
        ("polars-1.44.2", {"placement": "footer"}),
        ("polars-1.44.2", {"placement": "tail"}),
        ("duckdb-0.10.0", {"form": "statistics"}),  # those of 2015 lie in the place of a flag
    ],
)
def test_a_file_with_filters(release: str, options: Any, tmp_path: Path) -> None:
    path, filters, output = OLD / f"{release}.parquet", tmp_path / "filters.parquet", tmp_path / "out.parquet"
    add_filters(path, filters, columns="*", sync=False, **options)
    assert len(repaired(filters, output).wrong) > 5
    assert wrong_in(output) == []
    assert len(inspect(output).files[0].filters) == len(inspect(filters).files[0].filters) > 5
    assert not verify(output).files[0].wrong
    repaired(output, tmp_path / "undone", undo=True)
    assert (tmp_path / "undone").read_bytes() == filters.read_bytes()
    without = tmp_path / "without.parquet"
    remove_filters(output, without, sync=False)
    if "form" not in options:  # a filter of 2015 leaves no byte behind, so there is nothing to pass over
        with pytest.raises(LayoutError, match="lost filters since its repair; remove_filters undoes both"):
            repair(without, in_place=True, undo=True, sync=False)
        remove_filters(without, in_place=True, last=True, sync=False)
        remove_filters(without, in_place=True, sync=False)
        assert without.read_bytes() == path.read_bytes()
        remove_filters(output, without, overwrite=True, sync=False)
    assert inspect(tmp_path / "without.parquet").files[0].filters == []
    assert wrong_in(tmp_path / "without.parquet") == []


# --- belief ---------------------------------------------------------------------------------------


def skipped(path: Path, predicate: str) -> int:
    return sum(verdict.skipped for verdict in check(path, predicate, use_filters=False))


def test_repaired_statistics_are_believed(tmp_path: Path) -> None:
    """`decimal38 = 1000` is above both row groups; of 1.44.2 bounds of such a column are not believed."""
    path, output = OLD / "polars-1.44.2.parquet", tmp_path / "out.parquet"
    assert skipped(path, "decimal38 = 1000") == 0
    repaired(path, output)
    assert skipped(output, "decimal38 = 1000") == 2
    assert skipped(output, "late IS NULL") == 1
    assert skipped(path, "late IS NULL") == 0
    with_filters = tmp_path / "filters.parquet"
    add_filters(output, with_filters, columns="int64", sync=False)
    assert skipped(with_filters, "decimal38 = 1000") == 2
    assert {verdict.outcome for verdict in check(output, "decimal38 < 1000")} == {Outcomes.TRUE}
    assert Outcomes.TRUE not in {verdict.outcome for verdict in check(path, "decimal38 < 1000")}


def _another_bound(metadata: Any) -> None:
    stated = metadata.row_groups[1].columns[0].meta_data.statistics
    stated.min_value = stated.max_value


def _more(of: Callable[[Any], Any], name: str) -> Callable[[Any], None]:
    """A number of a footer is greater by one."""
    return lambda metadata: setattr(of(metadata), name, getattr(of(metadata), name) + 1)


CHANGES: dict[str, Callable[[Any], None]] = {
    "bound": _another_bound,
    "nulls": _more(lambda footer: footer.row_groups[1].columns[0].meta_data.statistics, "null_count"),
    "rows": _more(lambda footer: footer.row_groups[1], "num_rows"),
    "bytes": _more(lambda footer: footer.row_groups[1].columns[0].meta_data, "total_compressed_size"),
    "writer": lambda footer: setattr(footer, "created_by", "Arrow2 - Native Rust implementation of Arrow"),
}


def test_another_footer_with_the_same_entry_is_not_believed(tmp_path: Path) -> None:
    """As when a program writes the file anew, and carries the key-values along."""
    output = tmp_path / "out.parquet"
    repaired(OLD / "polars-1.44.2.parquet", output)
    data = output.read_bytes()
    for name, change in CHANGES.items():
        output.write_bytes(data)
        with edited_footer(output) as metadata:
            change(metadata)
        assert skipped(output, "decimal38 = 1000") == 0, name
        assert not inspect(output).files[0].repaired, name


def test_a_rewritten_file_is_not_believed(tmp_path: Path) -> None:
    """pyarrow carries the key-values of a schema; here a footer by the name of Polars stands behind the new pages."""
    output, new = tmp_path / "out.parquet", tmp_path / "new.parquet"
    repaired(OLD / "polars-1.44.2.parquet", output)
    pairs = pq.ParquetFile(output).metadata.metadata
    table = pq.read_table(output).replace_schema_metadata(pairs)
    pq.write_table(table, new, row_group_size=120)
    with edited_footer(new) as metadata:
        metadata.created_by = "Polars"
        for group in metadata.row_groups:
            for chunk in group.columns:
                chunk.meta_data.statistics.null_count = 0
    assert any(pair.startswith(b"parquet_bloom") for pair in pq.ParquetFile(new).metadata.metadata)
    assert skipped(new, "late IS NULL") == 0
    assert count(new, "late IS NULL") == 120
    report = repaired(new, tmp_path / "again.parquet")
    assert report.mended
    assert skipped(tmp_path / "again.parquet", "late IS NULL") == 1
    repaired(tmp_path / "again.parquet", tmp_path / "undone", undo=True)
    assert (tmp_path / "undone").read_bytes() == new.read_bytes()


@pytest.mark.parametrize("seed", first_then_more(range(4), 1))
def test_a_folder_of_repaired_and_other_files(seed: int, tmp_path: Path) -> None:
    """Files are decided together: what is proven of one is not believed of another."""
    rng = random.Random(seed)
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(12):
        name = rng.choice(["polars-1.38.1", "polars-1.44.2"])
        path = folder / f"{number:02}.parquet"
        shutil.copy(OLD / f"{name}.parquet", path)
        if rng.random() < 0.5:
            repair(path, in_place=True, sync=False)
    for predicate in ("decimal38 = -7", "late IS NULL", "half_null IS NOT NULL", "nan_high > 10", "day_null IS NULL"):
        wanted = sum(count(path, predicate) for path in folder.iterdir())
        assert count(folder, predicate) == wanted
        alone = {path: skipped(path, predicate) for path in sorted(folder.iterdir())}
        together = check(folder, predicate, use_filters=False)
        assert sum(verdict.skipped for verdict in together) == sum(alone.values()), predicate


def test_an_entry_in_another_spelling_makes_no_other_file_believed(tmp_path: Path) -> None:
    """An entry with a blank in it is not seen where files are sorted, so it proves nothing."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(20):
        shutil.copy(OLD / "polars-1.44.2.parquet", folder / f"{number:02}.parquet")
    repair(folder / "00.parquet", in_place=True, sync=False)
    with edited_footer(folder / "00.parquet") as metadata:
        for pair in metadata.key_value_metadata:
            pair.value = pair.value.replace('"statistics_crc32":', '"statistics_crc32" :')
    assert skipped(folder, "decimal38 = 1000") == 0


HOSTILE = [
    '[{"statistics_crc32":1}]',
    '[{"statistics_crc32":CRC,"unchecked":"all"}]',
    '[{"statistics_crc32":CRC,"unchecked":[true]}]',
    '[{"statistics_crc32":true,"tail":{"size":1,"footer_crc32":1}}]',
    '[{"statistics_crc32":1e400,"tail":{"size":1e400,"footer_crc32":1}}]',
    '[{"statistics_crc32":123,"tail":{"size":-1,"footer_crc32":0}}]',
    '[{"statistics_crc32":123,"tail":{"size":99999999999999999999,"footer_crc32":0}}]',
    '{"statistics_crc32":1}',
    '"statistics_crc32":' + "[" * 5000,
]


def test_a_hostile_entry_proves_nothing_and_raises_nothing(tmp_path: Path) -> None:
    sound, output, again = (tmp_path / f"{name}.parquet" for name in ("sound", "out", "again"))
    repaired(OLD / "polars-1.44.2.parquet", sound)
    options: dict[str, Any] = {"sync": False, "overwrite": True}
    for entry in HOSTILE:
        shutil.copy(sound, output)
        with edited_footer(output) as metadata:
            (pair,) = [one for one in metadata.key_value_metadata if one.key == "parquet_bloom"]
            pair.value = entry.replace("CRC", str(json.loads(pair.value)[0]["statistics_crc32"]))
        assert skipped(output, "decimal38 = 1000") == 0, entry
        assert not inspect(output).files[0].repaired, entry
        remove_filters(output, again, **options)
        assert again.read_bytes() == output.read_bytes(), entry
        add_filters(output, again, columns="int64", **options)
        assert repair(output, again, **options).files[0].wrong == [], entry
        with suppress(LayoutError):  # of entries that name a tail which is none
            assert not repair(output, again, undo=True, **options).files[0].undone, entry


def test_an_entry_whose_old_footer_says_more_is_cut_off_by_nobody(tmp_path: Path) -> None:
    """The footer before a repair may differ in statistics alone: here it names another type of a column."""
    output = tmp_path / "out.parquet"
    repaired(OLD / "polars-1.44.2.parquet", output)
    with edited_footer(output) as metadata:
        metadata.schema[1].name = "another"
        for group in metadata.row_groups:
            group.columns[0].meta_data.path_in_schema = ["another"]
    data = output.read_bytes()
    with pytest.raises(LayoutError, match="footer of another program"):
        repair(output, in_place=True, undo=True)
    remove_filters(output, in_place=True, last=True)
    assert output.read_bytes() == data


# --- random lies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", first_then_more(range(30), 4))
def test_random_lies_are_mended(seed: int, tmp_path: Path) -> None:
    """And no row is lost by the new statistics. Of every other file the writer is not believed, so the repair is."""
    rng = random.Random(1000 + seed)
    table, path, output = some_table(rng, rng.choice([20, 150])), tmp_path / "f.parquet", tmp_path / "out.parquet"
    write(table, path, rng)
    with edited_footer(path) as metadata:
        for _ in range(rng.randint(1, 12)):
            lie(rng.choice(rng.choice(metadata.row_groups).columns), metadata, rng)
        if seed % 2:
            metadata.created_by = "Polars"
            metadata.num_rows += 1  # so that something is wrong
    lies = wrong_in(path)
    assert [one.text for one in repaired(path, output).wrong] == lies
    assert wrong_in(output) == []
    assert inspect(output).files[0].repaired == bool(lies)
    assert repr(pq.read_table(output).to_pydict()) == repr(table.to_pydict())
    data = path.read_bytes()
    assert output.read_bytes()[: len(data)] == data
    if lies:
        assert not any(nan_with_bounds(output))
        finds_all_rows(output, table)
    repaired(output, tmp_path / "undone", undo=True)
    assert (tmp_path / "undone").read_bytes() == data


def finds_all_rows(path: Path, table: pa.Table) -> None:
    for name, (kind, pool) in KINDS.items():
        if name in ("uuid", "float16", "boolean"):
            continue
        values, field = table[name].to_pylist(), pc.field(name)
        assert count(path, field.is_null()) == sum(v is None for v in values), name
        found = [one for one in values if one is not None and one == one]
        for v in pool:
            if v == v:
                scalar = pa.scalar(v, kind)
                assert count(path, field == scalar) == sum(one == v for one in found), (name, v)
                assert count(path, field < scalar) == sum(one < v for one in found), (name, v)
                assert count(path, field >= scalar) == sum(one >= v for one in found), (name, v)


def lie(chunk: Any, metadata: Any, rng: random.Random) -> None:
    stated: Statistics = chunk.meta_data.statistics
    if stated is None:
        return
    path = chunk.meta_data.path_in_schema
    others = [c for g in metadata.row_groups for c in g.columns if c.meta_data.path_in_schema == path]
    kind = rng.choice(["swap", "nulls", "index", "order", "rows"])
    if kind == "swap":
        stated.min_value, stated.max_value = stated.max_value, stated.min_value
    elif kind == "nulls":
        stated.null_count = rng.choice([0, 1, chunk.meta_data.num_values])
    elif kind == "index" and chunk.column_index_offset:
        other = rng.choice(others)
        chunk.column_index_offset, chunk.column_index_length = other.column_index_offset, other.column_index_length
    elif kind == "order" and chunk.offset_index_offset:
        other = rng.choice(others)
        chunk.offset_index_offset, chunk.offset_index_length = other.offset_index_offset, other.offset_index_length
    elif kind == "rows":
        metadata.num_rows += 1


def nan_with_bounds(path: Path) -> list[bool]:
    file, found = pq.ParquetFile(path), []
    for group in range(file.num_row_groups):
        table = file.read_row_group(group)
        for number in range(len(KINDS)):
            chunk = file.metadata.row_group(group).column(number)
            if chunk.path_in_schema.startswith("float"):
                nan = any(v is not None and math.isnan(v) for v in table[chunk.path_in_schema].to_pylist())
                found.append(nan and chunk.is_stats_set and chunk.statistics.has_min_max)
    return found


def test_texts_that_are_too_long_for_a_footer_get_no_bounds(tmp_path: Path) -> None:
    path, output = tmp_path / "f.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({"t": ["x" * 5000, "y" * 5000], "u": ["x" * 4096, "y"]}), path)
    with edited_footer(path) as metadata:
        for chunk in metadata.row_groups[0].columns:
            chunk.meta_data.statistics = Statistics(null_count=1, min_value=b"z", max_value=b"z")
    repaired(path, output)
    t, u = statistics_of(output)
    assert (t.has_min_max, t.null_count) == (False, 0)
    assert (u.min, u.max) == ("x" * 4096, "y")


def test_signed_numbers_get_bounds_without_column_orders(tmp_path: Path) -> None:
    """In the old fields, whose order is theirs; texts have no order there."""
    path, output = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({"i": [3, -1, None], "text": ["a", "b", None]}), path)
    with edited_footer(path) as metadata:
        metadata.column_orders = None
        for chunk in metadata.row_groups[0].columns:
            chunk.meta_data.statistics = Statistics(null_count=3)
    assert len(repaired(path, output).wrong) == 2
    i, text = statistics_of(output)
    assert (i.null_count, i.min, i.max) == (1, -1, 3)
    assert (text.null_count, text.has_min_max) == (1, False)


def statistics_of(path: Path) -> list[Any]:
    """What the first row group of a file states, as pyarrow shows it."""
    group = pq.read_metadata(path).row_group(0)
    return [group.column(at).statistics for at in range(group.num_columns)]


def test_a_zero_gets_the_sign_of_a_bound_of_both(tmp_path: Path) -> None:
    path, output = tmp_path / "f.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({"f": [0.0, 0.0]}), path)
    with edited_footer(path) as metadata:
        metadata.row_groups[0].columns[0].meta_data.statistics.null_count = 2
    repaired(path, output)
    with edited_footer(output) as metadata:
        stated = metadata.row_groups[0].columns[0].meta_data.statistics
    assert (stated.min_value, stated.max_value) == (b"\0" * 7 + b"\x80", b"\0" * 8)


def test_num_values_is_not_for_a_footer_to_mend(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"n": [1, 2, 3]}), path)
    with edited_footer(path) as metadata:
        metadata.row_groups[0].columns[0].meta_data.num_values = 4
    old = path.read_bytes()
    with pytest.raises(LayoutError, match=r"num_values is 4, the values give 3 rows: no footer mends that"):
        repair(path, in_place=True)
    assert path.read_bytes() == old


# --- where the new version goes -------------------------------------------------------------------


def copied(folder: Path, release: str = "polars-1.44.2") -> Path:
    return Path(shutil.copy(OLD / f"{release}.parquet", folder / "f.parquet"))


@pytest.mark.parametrize("append", [False, True])
def test_in_place(append: bool, tmp_path: Path) -> None:
    path = copied(tmp_path)
    old, inode = path.read_bytes(), path.stat().st_ino
    report = repair(path, in_place=True, dry_run=True).files[0]
    assert (report.dry_run, path.read_bytes()) == (True, old)
    assert report.mended == repair(path, tmp_path / "out.parquet").files[0].mended > 0
    (tmp_path / "out.parquet").unlink()
    repair(path, in_place=True, append=append)
    assert (path.stat().st_ino == inode) == append
    assert wrong_in(path) == []
    assert os.listdir(tmp_path) == ["f.parquet"]
    repair(path, in_place=True, append=append, undo=True)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["f.parquet"]


def test_a_sound_file_keeps_its_inode_and_time(tmp_path: Path) -> None:
    path = copied(tmp_path, "polars-2.1.0")
    before = path.stat()
    report = repair(path, in_place=True).files[0]
    assert (report.wrong, report.mended, report.bytes_after) == ([], 0, before.st_size)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_folder(tmp_path: Path) -> None:
    """A source does it too."""
    folder, output = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for name in ("polars-1.44.2", "polars-2.1.0"):
        shutil.copy(OLD / f"{name}.parquet", folder)
    source = parquet_bloom.Source(folder)
    report = source.repair(output, sync=False)
    assert sorted(os.listdir(output)) == ["polars-1.44.2.parquet", "polars-2.1.0.parquet"]
    assert [file.wrong for file in report.files] == [
        one.wrong_statistics for one in source.verify(statistics=True).files
    ]
    assert [bool(file.wrong) for file in report.files] == [True, False]
    assert repr(report) == f"RepairReport({len(report.files[0].wrong)} statistics wrong, 2 files)"
    assert all(wrong_in(path) == [] for path in output.iterdir())


def test_requests_that_mean_nothing(tmp_path: Path) -> None:
    path = OLD / "polars-1.44.2.parquet"
    with pytest.raises(RequestError, match="a table's change is its commit"):
        repair("delta:lake/events", in_place=True)
    with pytest.raises(RequestError):
        repair(path, tmp_path / "out", append=True)
    with pytest.raises(TypeError, match="columns"):
        repair(path, tmp_path / "out", columns="a")  # type: ignore[call-arg]
    (tmp_path / "there.parquet").write_bytes(b"x")
    with pytest.raises((RequestError, StorageError)):
        repair(path, tmp_path / "there.parquet")


def test_files_of_a_table_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{0:020}.json").write_text('{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n')
    path = copied(tmp_path)
    with pytest.raises(TableFormatError, match="Delta"):
        repair(path, in_place=True)
    assert path.read_bytes() == (OLD / "polars-1.44.2.parquet").read_bytes()


# --- the command ----------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = copied(tmp_path, "duckdb-0.10.0")
    old = path.read_bytes()
    assert run(["repair", str(path), "--in-place", "--dry-run"]) == 1
    assert "statistics of 6 column chunks would be written right" in " ".join(capsys.readouterr().out.split())
    assert run(["verify", str(path), "--statistics"]) == 1
    command = [
        line.strip() for line in capsys.readouterr().out.splitlines() if line.startswith("  parquet-bloom repair")
    ]
    assert command == [f"parquet-bloom repair {path} --in-place"]
    assert run(command[0].split()[1:]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "statistics of 6 column chunks are written right" in text
    assert "row group 1, column late: null_count is 2048, the values give 0" in text
    assert run(["repair", str(path), "--in-place", "--dry-run"]) == 0
    assert "no statistic is wrong, nothing to repair" in " ".join(capsys.readouterr().out.split())
    assert run(["inspect", str(path)]) == 0
    assert "repair --undo takes a repair off" in " ".join(capsys.readouterr().out.split())
    assert run(["repair", str(path), "--undo", "--in-place", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"][0]["undone"] is True
    assert path.read_bytes() == old


# --- add, which decodes some columns anyway -------------------------------------------------------


@pytest.mark.parametrize("release", of_each_kind(WRONG))
def test_add_compares_what_it_decodes(release: str, tmp_path: Path) -> None:
    path, output = OLD / f"{release}.parquet", tmp_path / "out.parquet"
    (added,) = add_filters(path, output, columns="*", sync=False).files
    columns = {one.column for one in added.filters}  # of BOOLEAN none is built, and nothing decoded
    found = verify(path, statistics=True).files[0].wrong_statistics
    of_footers = {one for one in found if "_index" not in one.statistic and one.column in columns}
    more = {one for one in added.wrong_statistics if one.column not in columns}
    assert {*added.wrong_statistics} - more == of_footers
    assert {one.column for one in more} <= {"all_null"}
    assert output.read_bytes()[: 1 << 10] == path.read_bytes()[: 1 << 10]
    assert wrong_in(output) == wrong_in(path), "nothing is changed that nobody asked for"


def test_add_says_so_in_a_line_with_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = copied(tmp_path, "duckdb-0.10.0")
    assert run(["add", str(path), "--column", "late", "--in-place"]) == 0
    shown = capsys.readouterr().out
    assert (
        f"1 statistic of these columns wrong, by which engines lose rows: {path}, row group 1, column late: null_count "
        "is 2048, the values give 0"
    ) in " ".join(shown.split())
    (command,) = [line.strip() for line in shown.splitlines() if line.startswith("  parquet-bloom ")]
    assert run(command.split()[1:]) == 0
    assert wrong_in(path) == []
    shutil.copy(OLD / "duckdb-1.0.0.parquet", path)
    capsys.readouterr()
    assert run(["add", str(path), "--column", "late", "--in-place"]) == 0
    assert "wrong" not in capsys.readouterr().out


# --- notes before a value is read -----------------------------------------------------------------


def test_inspect_and_status_name_writers_that_are_known_for_wrong_statistics(tmp_path: Path) -> None:
    path = copied(tmp_path, "duckdb-0.10.0")
    for look in (inspect, parquet_bloom.status):
        (note,) = look(path).notes
        assert note == (
            f"{path}: written by DuckDB, of which releases write wrong null_count of all columns; "
            "they are not believed here, and may lose rows elsewhere; verify with statistics=True compares them"
        )
    repair(path, in_place=True)
    assert inspect(path).notes == parquet_bloom.status(path).notes == []
    (note,) = inspect([OLD / "polars-1.44.2.parquet", OLD / "polars-1.38.1.parquet"]).notes
    assert "and 1 more file: written by Polars, of which releases write wrong min and max of " in note
    assert inspect(OLD / "polars-2.1.0.parquet").notes == inspect(OLD / "pyarrow-14.0.2.parquet").notes == []

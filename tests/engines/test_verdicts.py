"""Our verdicts and the engines' own, value by value: DuckDB's probe, DataFusion's pruning, our check.

Values that are stored, values that are not, and those at the edges of their type. A row group that
holds the value must be denied by nobody; of the others all three must say the same, because they
ask the same filter for the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.repeats import first_then_more

from engines import made
from engines.asking import DataFusion, DuckDB, duckdb, skipped_by_check
from engines.spelling import counts, from_expected, spelled
from parquet_bloom import add_filters, verify

FEW = 8  # values a row group
TABLES = made.row_groups((*made.ROWS, 40))
STORED, NOT_STORED = TABLES[:-1], TABLES[-1]
NO_VALUES = ("boolean", "all_nulls", "null_type")  # columns without filters
COLUMNS = [name for name in made.flat(STORED[0]) if name not in NO_VALUES]
EDGES = made.boundaries()
NO_FILTERS = ("pyarrow/trace_ids", "pyarrow/types_no_filters")
NO_USABLE_FILTERS = ("duckdb/interval_and_variant", "spark/int96")

# DuckDB 2.0 takes filters of DECIMAL in INT32 and INT64 only.
DUCKDB_ASKS_NOT = ("decimal_9", "decimal_18", "decimal_38")


@pytest.fixture(scope="module")
def asked() -> Iterator[DuckDB]:
    with duckdb() as engine:
        yield engine


@pytest.fixture(scope="module")
def asked_datafusion() -> DataFusion:
    return DataFusion()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files with filters on all columns: random values, edges (filters at chunk starts), and decimals as integers.

    Without statistics, so that no engine skips a row group for another reason than its filter.
    """
    folder = tmp_path_factory.mktemp("ours")
    sources = {
        "random": made.write(folder / "random.parquet", STORED, write_statistics=False),
        "edges": made.write(folder / "edges.parquet", EDGES, write_statistics=False),
        "decimals": made.with_decimals_as_integers(folder / "decimals.parquet", STORED, write_statistics=False),
    }
    for name, source in sources.items():
        made_file = folder / f"{name}-filters.parquet"
        placement = "chunk-start" if name == "edges" else "footer"
        add_filters(source, made_file, columns=made.leaves(source), placement=placement, sync=False)
        sources[name] = made_file
    return sources


def sql_name(column: str) -> str:
    return made.quoted(column)


def disagreements(asked: DuckDB, path: Path, column: str, tables: Any, absent: pa.Table | None = None) -> list[str]:
    """Where DuckDB and check differ over the stored values and those of `absent`; raises if a value is denied."""
    found = []
    stored = [spelled(table[column]) for table in tables]
    holds = [set(values) for values in stored]
    wanted = [value for values in stored for value in values[:FEW]]
    wanted += spelled(absent[column])[:FEW] if absent is not None else []
    for value in dict.fromkeys(wanted):
        mine = skipped_by_check(path, sql_name(column), value.sql)
        theirs = asked.excludes(path, column, value.duckdb)
        for group, values in enumerate(holds):
            assert not (value in values and mine[group]), f"check denies {value}, row group {group} holds it"
            assert not (value in values and theirs[group]), f"DuckDB denies {value}, row group {group} holds it"
        if mine != theirs:
            found.append(f"{value.sql}: check {mine}, DuckDB {theirs}")
    return found


a_third = pytest.mark.parametrize("first", first_then_more(range(3), 1))


class TestDuckDB:
    @a_third
    def test_agrees(self, asked: DuckDB, ours: dict[str, Path], first: int) -> None:
        """Over random values, at the edges of types, and over decimals in integers, whose filters it takes."""
        for column in [c for c in COLUMNS if c not in ("float16", *DUCKDB_ASKS_NOT)][first::3]:
            assert disagreements(asked, ours["random"], column, STORED, NOT_STORED) == [], column
        for column in [c for c in EDGES[0].column_names if c not in ("float16", *DUCKDB_ASKS_NOT)][first::3]:
            assert disagreements(asked, ours["edges"], column, EDGES) == [], column
        for column in ("decimal_9", "decimal_18"):
            assert disagreements(asked, ours["decimals"], column, STORED, NOT_STORED) == [], column

    def test_takes_no_filter_of_a_decimal_in_bytes(self, asked: DuckDB, ours: dict[str, Path]) -> None:
        """So it reads what check skips. Should it learn to, the columns move to the test above."""
        for column in DUCKDB_ASKS_NOT:
            values = [spelled(table[column])[0] for table in STORED] + spelled(NOT_STORED[column])[:FEW]
            assert not any(any(asked.excludes(ours["random"], column, value.duckdb)) for value in values), column
            assert any(all(skipped_by_check(ours["random"], column, value.sql)) for value in values), column

    @a_third
    def test_finds_every_row(self, asked: DuckDB, ours: dict[str, Path], first: int) -> None:
        """Real queries, not probes: as many rows as Arrow counts in the tables."""
        for column in COLUMNS[first::3]:
            for value, (_, rows) in list(counts(pa.concat_tables(STORED)[column]).items())[:FEW]:
                where = f"{json.dumps(column)} = {value.duckdb}"
                assert asked.count(ours["random"], where) == rows, where


class TestFloat16:
    """DuckDB asks a FLOAT16 filter for the four bytes of a FLOAT, and we insert both spellings."""

    def test_both_admit_what_is_stored(self, asked: DuckDB, ours: dict[str, Path]) -> None:
        disagreements(asked, ours["random"], "float16", STORED, NOT_STORED)  # raises where a value is denied
        disagreements(asked, ours["edges"], "float16", EDGES)

    def test_both_deny_most_of_what_is_not(self, asked: DuckDB, ours: dict[str, Path]) -> None:
        """With two spellings a value, rates stay within the target: 1 % of some 100 answers."""
        stored = {value for table in STORED for value in spelled(table["float16"])}
        absent = [value for value in spelled(NOT_STORED["float16"]) if value not in stored]
        mine = [x for v in absent for x in skipped_by_check(ours["random"], "float16", v.sql)]
        theirs = [x for v in absent for x in asked.excludes(ours["random"], "float16", v.duckdb)]
        assert len(absent) > 20
        assert sum(mine) > 0.9 * len(mine)
        assert sum(theirs) > 0.9 * len(theirs)

    def test_replacing_repairs_another_program_s(self, asked: DuckDB, tmp_path: Path) -> None:
        """DuckDB denies stored values in these fixtures (duckdb_wrong); with our filters it does not."""
        for name in ("pyarrow/types_filters", "datafusion/types"):
            expected, ours = expected_of(name), tmp_path / f"{name.partition('/')[0]}.parquet"
            assert "float16" in expected["duckdb_wrong"]
            add_filters(made.fixture(name), ours, columns=["float16"], replace=True, sync=False)
            for group, values in enumerate(expected["columns"]["float16"]["present"]):
                for text in values:
                    assert not asked.excludes(ours, "float16", f"'{text}'::FLOAT")[group], text
                    assert asked.count(ours, f"float16 = '{text}'::FLOAT") > 0, text


class TestNested:
    def test_duckdb_finds_struct_members(self, asked: DuckDB, ours: dict[str, Path]) -> None:
        """DuckDB filters on members of structs, and has no probe of theirs to compare: rows are counted."""
        for leaf in ("number", '"text"', '"inner"."date"', '"inner"."double"'):
            column = f"struct_members.{leaf}"
            members = pa.chunked_array([leaf_values(table, leaf) for table in STORED])
            for value, (_, rows) in list(counts(members).items())[:FEW]:
                assert asked.count(ours["random"], f"{column} = {value.duckdb}") == rows
                verdicts = skipped_by_check(ours["random"], column, value.sql)
                held = [value in set(spelled(leaf_values(table, leaf))) for table in STORED]
                assert not any(no and yes for no, yes in zip(verdicts, held, strict=True)), column
        value = spelled(leaf_values(STORED[1], "number"))[0]
        kept = [not s for s in skipped_by_check(ours["random"], "struct_members.number", value.sql)]
        assert asked.scanned(ours["random"], f"struct_members.number = {value.duckdb}") == (sum(kept), 3)

    def test_every_leaf_admits_its_values(self, ours: dict[str, Path]) -> None:
        """Lists, maps, structs: verify decodes every leaf and asks for each value."""
        for path in ours.values():
            assert {verdict.status for verdict in verify(path, sample=1).files[0].filters} == {"right"}


def leaf_values(table: pa.Table, leaf: str) -> pa.Array:
    array = table["struct_members"].combine_chunks()
    for name in leaf.replace('"', "").split("."):
        array = array.flatten()[array.type.get_field_index(name)]
    return array


# --- DataFusion -------------------------------------------------------------------------------------

DATAFUSION_ASKS = (
    "random_int64", "random_int32", "uint32", "uint64", "half_null", "dotted.name", "random_float", "random_double",
    "empty_strings", "utf8", "long_common_prefix", "large_utf8", "dictionary_utf8", "json", "binary", "fixed_binary_5",
    "decimal_9", "decimal_18", "decimal_38",
)  # fmt: skip


def probes(column: str, few: int) -> Iterator[tuple[str, pa.Scalar, int]]:
    """Some stored values of each row group and some that are not stored, with the rows that hold them."""
    rows = counts(pa.concat_tables(STORED)[column])
    wanted = [part for table in STORED for part in list(counts(table[column]).items())[:few]]
    wanted += list(counts(NOT_STORED[column]).items())[: 2 * few]
    for value, (scalar, _) in wanted:
        yield value.sql, scalar, rows[value][1] if value in rows else 0


class TestDataFusion:
    def test_prunes_what_check_skips(self, asked_datafusion: DataFusion, ours: dict[str, Path]) -> None:
        decimals = [("decimals", f"decimal_{n}") for n in (9, 18, 38)]
        for file, column in [("random", column) for column in DATAFUSION_ASKS] + decimals:
            pruned = set()
            for value, scalar, rows in probes(column, 2):
                skipped = sum(skipped_by_check(ours[file], sql_name(column), value))
                found, by_statistics, by_filters = asked_datafusion.ask(ours[file], column, scalar)
                assert (found, by_statistics, by_filters) == (rows, 0, skipped), (column, value)
                pruned.add(by_filters)
            assert {2, 3} & pruned, f"it prunes nothing by {column}, so nothing was compared"

    def test_asks_no_filter_or_agrees(self, asked_datafusion: DataFusion, ours: dict[str, Path]) -> None:
        """DataFusion 55 asks none of INT8 and INT16, dates, times, timestamps and UUID, whoever wrote them."""
        for column in [c for c in COLUMNS if c not in DATAFUSION_ASKS]:
            for value, scalar, rows in probes(column, 1):
                skipped = sum(skipped_by_check(ours["random"], sql_name(column), value))
                found, _, by_filters = asked_datafusion.ask(ours["random"], column, scalar)
                assert found == rows, (column, value)
                assert by_filters in (0, skipped), (column, value)


# --- fixtures ---------------------------------------------------------------------------------------


def expected_of(name: str) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads(made.fixture(name).with_suffix(".expected.json").read_text("utf-8"))
    return expected


def verdicts(name: str, column: str, facts: dict[str, Any], text: str) -> list[bool] | None:
    """What check says of a value of expected.json; None of NaN, which no SQL literal spells."""
    literal = from_expected(text, facts["physical"], facts["logical"])
    return None if literal is None else skipped_by_check(made.fixture(name), column, literal)


@pytest.mark.parametrize("name", made.fixtures())
def test_filters_of_other_programs(name: str) -> None:
    """Against the values that their files are known to hold: no stored one is denied, most others are.

    Where there is a filter that can be used; BOOLEAN, INT96 and INTERVAL are never denied. What DuckDB answered when
    the file was made is what we say.
    """
    expected, asked, absent = expected_of(name), 0, []
    for column, facts in expected["columns"].items():
        for group, texts in enumerate(facts["present"]):
            for text, skipped in ((text, verdicts(name, column, facts, text)) for text in texts):
                asked += skipped is not None
                assert skipped is None or not skipped[group], f"{column} = {text}, row group {group}"
        if facts["physical"] not in ("BOOLEAN", "INT96") and facts["logical"] != "Interval":
            for text in facts["absent"]:
                said = verdicts(name, column, facts, text) or []
                absent += [answer for place, answer in zip(facts["filters"], said, strict=False) if place]
    assert asked
    assert absent or name in (*NO_FILTERS, *NO_USABLE_FILTERS)
    assert sum(absent) >= 0.9 * len(absent)
    for column, probed in expected.get("duckdb_probe", {}).items():
        facts = expected["columns"][column]
        if column not in DUCKDB_ASKS_NOT or facts["physical"] in ("INT32", "INT64"):
            for text, excluded in probed:
                assert verdicts(name, column, facts, text) in (excluded, None), f"{column} = {text}"

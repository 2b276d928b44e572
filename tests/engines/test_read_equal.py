"""A file with our filters is read as the source is, by every engine, and comes back byte for byte.

Each engine reads both, the file with filters and the file without: all columns, all bits. What an
engine cannot read is left out with its reason; it fails on the source in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from engines import made
from engines.made import Layout
from engines.reading import READERS, assert_equal, source_read_with, with_fastparquet
from parquet_bloom import add_filters, inspect, remove_filters

# Nothing of ours is in the way: these fail on the fixtures as they are.
UNREADABLE = {
    ("polars", "duckdb/interval_and_variant"): "Polars 2.1 does not know the type VARIANT",
    ("fastparquet", "duckdb/interval_and_variant"): "fastparquet cannot read an INTERVAL",
    ("fastparquet", "datafusion/no_dictionary"): "fastparquet crashes the process on DELTA_BINARY_PACKED INT64",
}
NO_VALUES = {"all_nulls", "null_type", "variant.value"}  # nothing to insert
NO_FILTERS = ("pyarrow/trace_ids", "pyarrow/types_no_filters")


def fastparquet_cannot(layout: Layout) -> list[str]:
    """Columns that fastparquet 2026.9 fails on, with the source as with ours."""
    table = made.row_groups()[0]
    columns = []
    if layout.page_version == "2.0":  # it mistakes the number of values where pages of v2 hold nulls or lists
        columns += [*made.nested(table), "half_null"]
    if layout.dictionary and layout.codec == "none":  # it does not expect an empty dictionary page
        columns += ["all_nulls", "null_type"]
    return columns


@pytest.fixture(scope="module", params=made.LAYOUTS, ids=str)
def layout(request: pytest.FixtureRequest) -> Layout:
    return request.param


@pytest.fixture(scope="module")
def source(layout: Layout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = made.write(tmp_path_factory.mktemp("source") / "source.parquet", made.row_groups(), layout)
    yield path
    path.unlink()


@pytest.fixture(scope="module")
def ours(layout: Layout, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The source with filters on every column that can have one, of each layout at another place than of the next."""
    path = tmp_path_factory.mktemp("ours") / "ours.parquet"
    placement = made.PLACEMENTS[made.LAYOUTS.index(layout) % len(made.PLACEMENTS)]
    # Named, because a column that is wholly dictionary-encoded gets a filter only if it is named.
    add_filters(source, path, columns=made.leaves(source), placement=placement, sync=False)
    yield path
    path.unlink()


class TestEveryLayout:
    def test_every_chunk_with_values_has_a_filter(self, source: Path, ours: Path) -> None:
        wanted = {(i, leaf) for i in range(3) for leaf in made.leaves(source) if leaf not in NO_VALUES}
        assert set(made.filters(ours)) == wanted
        assert inspect(ours).files[0].problems == 0

    @pytest.mark.parametrize("engine", READERS)
    def test_is_read_as_the_source(self, layout: Layout, source: Path, ours: Path, engine: str) -> None:
        if engine == "fastparquet":
            but = tuple(fastparquet_cannot(layout))
            assert_equal(with_fastparquet(ours, but), source_read_with(engine, source, but))
        else:
            assert_equal(READERS[engine](ours), source_read_with(engine, source))

    def test_comes_back_byte_for_byte(self, source: Path, ours: Path, tmp_path: Path) -> None:
        remove_filters(ours, tmp_path / "back.parquet", sync=False)
        assert (tmp_path / "back.parquet").read_bytes() == source.read_bytes()


# --- files that other programs wrote ----------------------------------------------------------------

WHAT = {"fill": {"replace": False}, "replace": {"replace": True}}


@dataclass(frozen=True)
class Added:
    name: str
    source: Path
    ours: Path
    replaced: bool


def pairs() -> list[tuple[str, str, str]]:
    """Each fixture is filled and replaced, at places that change from one to the next."""
    turns = [(name, what) for name in made.fixtures() for what in WHAT]
    places = len(made.PLACEMENTS)
    return [(*turn, made.PLACEMENTS[(at + at // places) % places]) for at, turn in enumerate(turns)]


@pytest.fixture(
    scope="module",
    params=pairs(),
    ids="-".join,
)
def added(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Added:
    """A fixture with our filters where it had none, or (replace) everywhere."""
    name, what, placement = request.param
    source, ours = made.fixture(name), tmp_path_factory.mktemp("added") / "ours.parquet"
    add_filters(source, ours, columns=made.leaves(source), placement=placement, sync=False, **WHAT[what])
    return Added(name, source, ours, what == "replace")


class TestFixtures:
    @pytest.mark.parametrize("engine", READERS)
    def test_is_read_as_the_source(self, added: Added, engine: str) -> None:
        if (engine, added.name) in UNREADABLE:
            pytest.skip(UNREADABLE[engine, added.name])
        assert_equal(READERS[engine](added.ours), source_read_with(engine, added.source))

    def test_filters_stay_or_are_replaced(self, added: Added) -> None:
        """Without replace, the other program's filters are there to the byte, wherever they now lie."""
        old, new = made.filters(added.source), made.filters(added.ours)
        lost = {column for _, column in set(old) - set(new)}
        # A chunk that holds no value has nothing to replace its filter with.
        assert lost == ({column for _, column in old} & NO_VALUES if added.replaced else set())
        here, there = added.source.read_bytes(), added.ours.read_bytes()
        leaves = set(made.leaves(added.source))
        for key, (at, size) in new.items():
            if key not in old or (added.replaced and key[1] in leaves):
                continue
            offset, length = old[key]
            assert there[at : at + size] == here[offset : offset + length], key
        assert inspect(added.ours, columns=sorted(leaves)).files[0].problems == 0

    def test_removing_all_leaves_the_data(self, added: Added, tmp_path: Path) -> None:
        back = tmp_path / "back.parquet"
        remove_filters(added.ours, back, sync=False, all_writers=True)
        assert not made.filters(back)
        assert_equal(READERS["pyarrow"](back), READERS["pyarrow"](added.source))
        if added.name in NO_FILTERS:
            assert back.read_bytes() == added.source.read_bytes()


def gained(name: str) -> list[str]:
    """The columns of a fixture that have a filter in no row group, and can have one."""
    had = {column for _, column in made.filters(made.fixture(name))}
    return [leaf for leaf in made.leaves(made.fixture(name)) if leaf not in had]


@pytest.mark.parametrize("placement", made.PLACEMENTS)
@pytest.mark.parametrize("name", [name for name in made.fixtures() if gained(name)])
def test_only_ours_leave_again(name: str, placement: str, tmp_path: Path) -> None:
    """The other program's filters stay through add and remove: the fixture is there again, byte for byte."""
    source, ours, back = made.fixture(name), tmp_path / "ours.parquet", tmp_path / "back.parquet"
    add_filters(source, ours, columns=gained(name), placement=placement, sync=False)
    assert {column for _, column in made.filters(ours)} >= set(gained(name)) - NO_VALUES
    remove_filters(ours, back, columns=gained(name), sync=False)
    assert back.read_bytes() == source.read_bytes()

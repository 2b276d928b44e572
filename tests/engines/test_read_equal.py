"""A file with our filters is read as the source is, by every engine, and comes back byte for byte.

Sources of every layout and every writer, filters of every form at every place, and every engine that reads files: any
two of them stand together in one case. What an engine cannot read is left out with its reason; it fails on the source
in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from engines import made, written
from engines.reading import READERS, assert_equal, with_fastparquet
from parquet_bloom import Draft2015, add_filters, inspect, remove_filters, verify

# Nothing of ours is in the way: these fail on the sources as they are.
UNREADABLE = {
    ("polars", "duckdb/interval_and_variant"): "Polars 2.1 does not know the type VARIANT",
    ("fastparquet", "duckdb/interval_and_variant"): "fastparquet cannot read an INTERVAL",
    ("fastparquet", "datafusion/no_dictionary"): "fastparquet crashes the process on DELTA_BINARY_PACKED INT64",
    ("fastparquet", "by_datafusion_v2"): "fastparquet crashes the process on DELTA_BINARY_PACKED INT64",
}
NO_VALUES = {"all_nulls", "null_type", "variant.value"}  # nothing to insert
LAYOUTS = {str(layout): layout for layout in made.LAYOUTS}
SOURCES = [*LAYOUTS, *made.fixtures(), *written.WRITERS]


def fastparquet_cannot(source: str) -> list[str]:
    """Columns that fastparquet 2026.9 fails on, with the source as with ours."""
    if source not in LAYOUTS:
        return []
    layout, table, columns = LAYOUTS[source], made.row_groups()[0], []
    if layout.page_version == "2.0":  # it mistakes the number of values where pages of v2 hold nulls or lists
        columns += [*made.nested(table), "half_null"]
    if layout.dictionary and layout.codec == "none":  # it does not expect an empty dictionary page
        columns += ["all_nulls", "null_type"]
    return columns


def read(engine: str, source: str, path: Path) -> Any:
    return with_fastparquet(path, fastparquet_cannot(source)) if engine == "fastparquet" else READERS[engine](path)


def write(source: str, folder: Path) -> Path:
    """The file that a name of SOURCES stands for."""
    if source in LAYOUTS:
        return made.write(folder / "source.parquet", made.row_groups(), LAYOUTS[source])
    if source in written.WRITERS:
        written.WRITERS[source](folder / "source.parquet")
        return folder / "source.parquet"
    return made.fixture(source)


FORMS: dict[str, dict[str, Any]] = {
    "footer": {},
    "chunk-start": {"placement": "chunk-start"},
    "tail": {"placement": "tail"},
    "two-tails": {"placement": "tail"},
    "replaced": {"replace": True},
    "replaced-chunk-start": {"placement": "chunk-start", "replace": True},
    **{spec: {"spec": spec} for spec in ("parquet-41", "parquet-41-early", "parquet-41-raw")},
    "orc": {"form": Draft2015("orc", None)},
    "hive": {"form": Draft2015("hive", None)},
    "guava": {"form": Draft2015("guava", "MURMUR128_64")},
}
# 12 forms and 5 engines: each 12 sources see all 60 pairs of them, and each source each engine.
CASES = [(*pair, form) for pair, form in zip(product(SOURCES, READERS), cycle(FORMS), strict=False)]


@pytest.mark.parametrize(
    ("name", "engine", "form"),
    [pytest.param(*case, id="-".join(case), marks=[pytest.mark.more] if n % 2 else []) for n, case in enumerate(CASES)],
)
def test_is_read_as_the_source_and_comes_back(name: str, engine: str, form: str, tmp_path: Path) -> None:
    if (engine, name) in UNREADABLE:
        pytest.skip(UNREADABLE[engine, name])
    source, ours, back = write(name, tmp_path), tmp_path / "ours.parquet", tmp_path / "back.parquet"
    had = {column for _, column in made.filters(source)}
    # Named, because a column that is wholly dictionary-encoded gets a filter only if it is named.
    columns = [leaf for leaf in made.leaves(source) if leaf not in had or "replace" in FORMS[form]]
    if form == "two-tails":  # the first has some of the columns, the second all of them, anew
        add_filters(source, back, columns=columns[::2], sync=False, **FORMS[form])
        add_filters(back, ours, columns=columns, sync=False, replace=True, **FORMS[form])
    else:
        add_filters(source, ours, columns=columns, sync=False, **FORMS[form])
    assert_equal(read(engine, name, ours), read(engine, name, source))
    assert inspect(ours).files[0].problems == inspect(source).files[0].problems
    if not had & set(columns):
        remove_filters(ours, back, columns=columns, sync=False, overwrite=True)
        assert back.read_bytes() == source.read_bytes()


SOME = ["random_int64", "utf8", "both_zeros", "some_nan"]


@pytest.mark.parametrize("name", [*LAYOUTS, *written.WRITERS])
def test_every_chunk_with_values_has_a_right_filter(name: str, tmp_path: Path) -> None:
    source, ours = write(name, tmp_path), tmp_path / "ours.parquet"
    assert not made.filters(source), "the writer made filters, though it was not asked to"
    leaves = made.leaves(source)
    placement = made.PLACEMENTS[SOURCES.index(name) % len(made.PLACEMENTS)]
    add_filters(source, ours, columns=leaves, placement=placement, sync=False)
    with pq.ParquetFile(source) as file:
        groups = [i for i in range(file.metadata.num_row_groups) if file.metadata.row_group(i).num_rows]
    assert set(made.filters(ours)) == {(i, leaf) for i in groups for leaf in leaves if leaf not in NO_VALUES}
    filters = verify(ours, columns=SOME).files[0].filters
    assert len(filters) == len(SOME) * len(groups)
    assert {verdict.status for verdict in filters} <= {"right"}


# --- files that other programs wrote ----------------------------------------------------------------


Added = tuple[Path, list[Path]]


@pytest.fixture(scope="module", params=made.fixtures())
def added(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Added]:
    """A fixture, and it with our filters where it had none, and everywhere."""
    source, folder = made.fixture(request.param), tmp_path_factory.mktemp("added")
    paths = [folder / "filled.parquet", folder / "replaced.parquet"]
    places = made.PLACEMENTS[:: -1 if made.fixtures().index(request.param) % 2 else 1]
    for path, placement in zip(paths, places, strict=True):
        replace = path.stem == "replaced"
        add_filters(source, path, columns=made.leaves(source), placement=placement, sync=False, replace=replace)
    yield source, paths
    for path in paths:
        path.unlink()


@pytest.mark.parametrize("replaced", [False, True], ids=["filled", "replaced"])
def test_filters_stay_or_are_replaced(added: Added, replaced: bool) -> None:
    """Without replace, the other program's filters are there to the byte, wherever they now lie."""
    source, ours = added[0], added[1][replaced]
    old, new = made.filters(source), made.filters(ours)
    lost = {column for _, column in set(old) - set(new)}
    # A chunk that holds no value has nothing to replace its filter with.
    assert lost == ({column for _, column in old} & NO_VALUES if replaced else set())
    here, there = source.read_bytes(), ours.read_bytes()
    leaves = set(made.leaves(source))
    for key, (at, size) in new.items():
        if key not in old or (replaced and key[1] in leaves):
            continue
        offset, length = old[key]
        assert there[at : at + size] == here[offset : offset + length], key
    assert inspect(ours, columns=sorted(leaves)).files[0].problems == 0


def test_removing_all_leaves_the_data(added: Added, tmp_path: Path) -> None:
    source, paths = added
    for path in paths:
        back = tmp_path / path.name
        remove_filters(path, back, sync=False, all_writers=True)
        assert not made.filters(back)
        assert_equal(READERS["pyarrow"](back), READERS["pyarrow"](source))
        if not made.filters(source):
            assert back.read_bytes() == source.read_bytes()

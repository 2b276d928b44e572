"""A file with our filters is read as the source is, by every engine, and comes back byte for byte.

Sources of every layout and every writer, filters of every form at every place, and every engine that reads files: any
two of them stand together in one case. What an engine cannot read is left out with its reason; it fails on the source
in the same way.
"""

from __future__ import annotations

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
    ("name", "turn"), [*((name, 0) for name in SOURCES), *(pytest.param(s, 1, marks=pytest.mark.more) for s in SOURCES)]
)
def test_is_read_as_the_source_and_comes_back(name: str, turn: int, tmp_path: Path) -> None:
    source, back = write(name, tmp_path), tmp_path / "back.parquet"
    had = {column for _, column in made.filters(source)}
    assert not had or name in made.fixtures(), "the writer made filters, though it was not asked to"
    for _, engine, form in [case for case in CASES[turn::2] if case[0] == name and (case[1], name) not in UNREADABLE]:
        ours = tmp_path / f"{engine}.parquet"
        # Named, because a column that is wholly dictionary-encoded gets a filter only if it is named.
        columns = [leaf for leaf in made.leaves(source) if leaf not in had or {"replace", "form"} & FORMS[form].keys()]
        if form == "two-tails":  # the first has some of the columns, the second all of them, anew
            add_filters(source, back, columns=columns[::2], sync=False, overwrite=True, **FORMS[form])
            add_filters(back, ours, columns=columns, sync=False, replace=True, **FORMS[form])
        else:
            add_filters(source, ours, columns=columns, sync=False, **FORMS[form])
        assert_equal(read(engine, name, ours), read(engine, name, source))
        assert inspect(ours).files[0].problems == inspect(source).files[0].problems, form
        if not had and "form" not in FORMS[form] and "spec" not in FORMS[form]:
            assert_every_chunk_has_a_right_filter(source, ours)
        if not had & set(columns):
            remove_filters(ours, back, columns=columns, sync=False, overwrite=True)
            assert back.read_bytes() == source.read_bytes(), form


SOME = ["random_int64", "utf8", "both_zeros", "some_nan"]


def assert_every_chunk_has_a_right_filter(source: Path, ours: Path) -> None:
    """Each chunk that has values; of some columns they are compared."""
    leaves = made.leaves(source)
    with pq.ParquetFile(source) as file:
        groups = [i for i in range(file.metadata.num_row_groups) if file.metadata.row_group(i).num_rows]
    assert set(made.filters(ours)) == {(i, leaf) for i in groups for leaf in leaves if leaf not in NO_VALUES}
    if set(SOME) <= set(leaves):
        filters = verify(ours, columns=SOME).files[0].filters
        assert len(filters) == len(SOME) * len(groups)
        assert {verdict.status for verdict in filters} <= {"right"}


# --- files that other programs wrote ----------------------------------------------------------------


@pytest.mark.parametrize("name", made.fixtures())
def test_filters_of_others_stay_or_are_replaced(name: str, tmp_path: Path) -> None:
    """Without replace, the other program's filters are there to the byte, wherever they now lie."""
    source = made.fixture(name)
    old, leaves = made.filters(source), set(made.leaves(source))
    places = made.PLACEMENTS[:: -1 if made.fixtures().index(name) % 2 else 1]
    for replaced, placement in zip((False, True), places, strict=True):
        ours, back = tmp_path / f"{placement}.parquet", tmp_path / "back.parquet"
        add_filters(source, ours, columns=made.leaves(source), placement=placement, sync=False, replace=replaced)
        new = made.filters(ours)
        lost = {column for _, column in set(old) - set(new)}
        # A chunk that holds no value has nothing to replace its filter with.
        assert lost == ({column for _, column in old} & NO_VALUES if replaced else set())
        here, there = source.read_bytes(), ours.read_bytes()
        for key in new.keys() & old.keys():
            if not replaced or key[1] not in leaves:
                (offset, length), (at, size) = old[key], new[key]
                assert there[at : at + size] == here[offset : offset + length], key
        assert inspect(ours, columns=sorted(leaves)).files[0].problems == 0

        remove_filters(ours, back, sync=False, all_writers=True, overwrite=True)
        assert not made.filters(back)
        assert_equal(READERS["pyarrow"](back), READERS["pyarrow"](source))
        assert old or back.read_bytes() == source.read_bytes()

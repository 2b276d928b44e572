"""Every filter of a file is asked, read and described in one way, whether the body has it or the footer."""

from __future__ import annotations

import struct
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import draft_2015_files
from support.corpus import corpus_file, corpus_files, fixture_files
from support.named import named
from support.samples import ROWS, digest, keys_table, write_keys

import parquet_bloom
from parquet_bloom.errors import FileError, FilterFormatError
from parquet_bloom.filters.asking import ask
from parquet_bloom.filters.locate import filter_ranges_of
from parquet_bloom.filters.stored import StoredFilter, StoredFilters
from parquet_bloom.format.forms import FORMATS
from parquet_bloom.storage.open_file import OpenFile

STYLES = [(spec, None) for spec in FORMATS] + [("statistics", "hive"), ("statistics", "guava")]
# A draft that admits all, one that denies most.
FULL, EMPTY = draft_2015_files.struct([-1] * 3, 2), draft_2015_files.struct([0, 0, 1], 2)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_keys(tmp_path_factory.mktemp("keys") / "keys.parquet")


@pytest.mark.parametrize(("spec", "family"), STYLES, ids=lambda value: str(value))
def test_all_that_ask_a_filter_agree(keys: Path, tmp_path: Path, spec: str, family: str | None) -> None:
    out = tmp_path / "out.parquet"
    parquet_bloom.add_filters(
        keys, out, columns=["id"], form=parquet_bloom.Draft2015(family) if family else spec, sync=False
    )
    ids = keys_table()["id"].to_numpy()
    with OpenFile(out) as source:
        filters, leaf = StoredFilters(source), source.footer().leaves[0]
        for group in range(3):
            (one,) = filters.of(group, leaf)
            assert one == filters.queried(group, leaf), "the one there is, is the one that is asked"
            stored = ids[group * ROWS : (group + 1) * ROWS]
            values = np.concatenate([stored, -np.arange(1, 200)]).astype(np.int64)
            admitted = [one.might_contain(struct.pack("<q", value)) for value in values.tolist()]
            assert all(admitted[: len(stored)]), f"a value of row group {group} would be lost"
            assert sum(admitted[len(stored) :]) < 40, "absent values are denied, but for a few"
            bloom = one.evidence()
            assert bloom.spec == spec
            assert bloom.might_contain_array(pa.array(values)).tolist() == admitted
            answers = [ask(source, 0, np.array([group]), (struct.pack("<q", v),)) for v in values[-20:].tolist()]
            assert [not answer.denied[0] for answer in answers] == admitted[-20:]
            described = one.describe()
            assert (described.spec, described.problems, described.notes) == (spec, [], [])
            assert described.bits_set == bloom.bits_set > 0
            assert (described.num_bytes, one.read().num_bytes) == (bloom.num_bytes, bloom.num_bytes)
        assert [filters.of(0, other) for other in source.footer().leaves[1:]] == [[]] * (
            len(source.footer().leaves) - 1
        )
        assert filters.queried(0, source.footer().leaves[1]) is None


def test_a_filter_in_the_body_goes_before_one_in_the_footer(keys: Path, tmp_path: Path) -> None:
    """Two programs may have written one each. Readers ask one of them; inspect and verify tell of both."""
    ours, both = tmp_path / "ours.parquet", tmp_path / "both.parquet"
    parquet_bloom.add_filters(keys, ours, columns=["id"], sync=False)
    draft_2015_files.with_drafts(ours, both, {(0, 0): EMPTY, (2, 1): FULL})
    with OpenFile(both) as source:
        filters, leaves = StoredFilters(source), source.footer().leaves
        first, second = filters.of(0, leaves[0])
        assert (first.spec, second.spec) == (None, "statistics"), "the header, which nobody has read, tells the first's"
        assert (first.place(filters.pages_end), second.place(filters.pages_end)) == ("footer", "Statistics")
        assert filters.queried(0, leaves[0]) == first
        assert filters.queried(2, leaves[1]) == filters.of(2, leaves[1])[0], "where there is one only, that one"
    assert [(f.row_group, f.column, f.spec) for f in parquet_bloom.inspect(both).files[0].filters] == [
        (0, "id", "final"), (0, "id", "statistics"), (1, "id", "final"), (2, "id", "final"), (2, "name", "statistics"),
    ]  # fmt: skip
    verdicts = {(f.row_group, f.spec): f.status for f in parquet_bloom.verify(both).files[0].filters}
    assert (verdicts[0, "final"], verdicts[0, "statistics"]) == ("right", "wrong")
    assert not parquet_bloom.check(both, f"id = {keys_table()['id'][0].as_py()}")[0].skipped, (
        "the wrong one is not asked"
    )
    plain = tmp_path / "plain.parquet"
    (report,) = parquet_bloom.remove_filters(both, plain, sync=False).files
    assert (report.removed, report.others) == (2, 2), "no filter of another program leaves with one of ours"
    assert [(f.row_group, f.column, f.spec) for f in parquet_bloom.inspect(plain).files[0].filters] == [
        (0, "id", "final"), (0, "id", "statistics"), (2, "name", "statistics"),
    ]  # fmt: skip
    parquet_bloom.remove_filters(both, in_place=True, sync=False, all_writers=True)
    without = draft_2015_files.with_drafts(keys, tmp_path / "without.parquet", {})
    assert digest(both) == digest(without), "both leave"


def test_a_filter_without_any_bit_over_a_refused_column_is_wrong(tmp_path: Path) -> None:
    """No form has filters for BOOLEAN. One without any bit denies what is stored all the same, wherever it lies."""
    source, path = tmp_path / "flags.parquet", tmp_path / "blank.parquet"
    pq.write_table(pa.table({"flag": [True, False, None]}), source)
    draft_2015_files.with_drafts(source, path, {(0, 0): draft_2015_files.struct([0, 0], 2)})
    (verdict,) = parquet_bloom.verify(path).files[0].filters
    assert (verdict.status, verdict.reason) == ("wrong", "no bit is set, but values are stored")
    draft_2015_files.with_drafts(source, path, {(0, 0): FULL})
    (verdict,) = parquet_bloom.verify(path).files[0].filters
    assert (verdict.status, verdict.reason) == ("unknown", "not used: the 2015 draft has no filter for BOOLEAN")


def test_filters_of_the_footer_alone_cost_no_reading(keys: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    parquet_bloom.add_filters(keys, out, columns=["id"], spec="statistics", sync=False)
    with OpenFile(out) as source:
        leaf = source.outline().leaves[0]
        read, requests = source.bytes_read, source.requests
        filters = StoredFilters(source)
        assert not any(one.might_contain(struct.pack("<q", -5)) for g in range(3) if (one := filters.queried(g, leaf)))
        assert (source.bytes_read, source.requests) == (read, requests)
        assert source._footer is None, "the outline is enough, no Thrift object is made"


def read(one: StoredFilter) -> Any:
    try:
        return one.read().num_bytes
    except FilterFormatError as error:
        return str(error)


def test_the_one_that_is_asked_is_the_first_there_is() -> None:
    """The outline, which `asked` goes by, and the footer, which `of` goes by, tell the same of every file."""
    for name in (*fixture_files(), *corpus_files()):
        with named(name), OpenFile(corpus_file(name)) as source:
            try:
                footer, outline = source.footer(), source.outline()
            except FileError:
                continue  # what damaged files say is the matter of other tests
            filters = StoredFilters(source)
            for leaf, group in product(footer.leaves, range(footer.n_row_groups)):
                exists = filter_ranges_of(outline, leaf.index).exists
                of_chunk, asked = filters.of(group, leaf), filters.queried(group, leaf)
                assert bool(of_chunk) == exists[group] == (asked is not None)
                if asked is not None:
                    assert (asked.offset, read(asked)) == (of_chunk[0].offset, read(of_chunk[0]))

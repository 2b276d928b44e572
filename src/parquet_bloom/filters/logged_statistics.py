"""Statistics that a table's log states of its files, compared with the decoded values.

    the log's own form -> Table.stated -> FileBounds of each leaf    <- LeafTruth <- true statistics of all row groups

A log takes what it states from a file's footer, or its writer counted. A loose bound is right. Files may have another
unit than the table, as milliseconds where it has microseconds; a value becomes one of the table's order first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from parquet_bloom.filters.decode import ColumnReader
from parquet_bloom.filters.inspect import NAN_LOST
from parquet_bloom.filters.true_statistics import ChunkStatistics
from parquet_bloom.filters.wrong_statistics import Compared, WrongStatistic, compare_statistics, shown
from parquet_bloom.format.footer import Footer
from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.statistics import domain_of, limits
from parquet_bloom.source.snapshot import FileBounds, LeafPath, Snapshot, TableFile
from parquet_bloom.source.truth import LeafTruth
from parquet_bloom.source.view import TableNames
from parquet_bloom.storage.open_file import OpenFile

LOG = "log."  # before the name of a statistic of the log


@dataclass(frozen=True, slots=True)
class FileOfLog:
    """One file of a table, with all that is stated of it.

    compared  its footer and page indexes, and in `statistics.wrong` the log's too
    leaves    of the file, with the table's names
    truth     of each leaf of which the log states anything, as far as it could be decoded
    lies      the leaves of these whose statistics in the log are wrong
    """

    compared: Compared
    leaves: Sequence[Leaf]
    truth: Mapping[LeafPath, LeafTruth] = field(default_factory=dict)
    lies: frozenset[LeafPath] = frozenset()

    @property
    def wrong_in_file(self) -> bool:
        """Whether the file itself states anything wrong."""
        return any(not one.statistic.startswith(LOG) for one in self.compared.statistics.wrong)

    def to_commit(self) -> dict[LeafPath, LeafTruth]:
        """The leaves whose statistics in the log are to be written anew: wrong ones, and those that a log copied.

        Of a column whose own statistics were wrong, and of which the log's are in no order that is known here.
        """
        names = {one.column for one in self.compared.statistics.wrong}
        changed = {leaf.path for leaf in self.leaves if leaf.name in names} | self.lies
        some = bool(changed)
        return {path: true for path, true in self.truth.items() if path in changed or (some and true.nans)}


class LoggedStatistics:
    """Compares the statistics of a table's files, and those that its log states of them.

    stated  as Table.stated gives it
    """

    def __init__(self, snapshot: Snapshot, stated: Callable[[TableFile], Mapping[LeafPath, FileBounds]]) -> None:
        self._names = TableNames(snapshot)
        self._leaves = {leaf.path: leaf for leaf in self._names.leaves}
        self._stated = stated
        self._files = {file.path: file for file in snapshot.files}

    def comparing(
        self,
        source: OpenFile,
        leaves: Sequence[Leaf],
        groups: Sequence[int],
        step: Callable[[int], object],
        also: Collection[int],
        reader_of: Callable[[OpenFile, Leaf], ColumnReader],
    ) -> Compared:
        """As compare_statistics, of a file of the snapshot that was made for it."""
        return self.compare(source, self._files[source.location.path], leaves, groups, step, also, reader_of).compared

    def compare(
        self,
        source: OpenFile,
        file: TableFile,
        leaves: Sequence[Leaf],
        groups: Sequence[int],
        step: Callable[[int], object] = lambda _: None,
        also: Collection[int] = (),
        reader_of: Callable[[OpenFile, Leaf], ColumnReader] = ColumnReader,
    ) -> FileOfLog:
        """Compare what the file and the log state about some columns in some row groups with the values.

        leaves  with the table's names; the others as compare_statistics has them
        Raises as compare_statistics.
        """
        footer = source.footer()
        here = self._names.of(file, footer).here
        chosen = {leaf.index for leaf in leaves}
        stated = {path: one for path, one in self._stated(file).items() if path in here and here[path].index in chosen}
        whole = len(groups) == footer.n_row_groups
        decoded = {*also, *(here[path].index for path in stated)} if whole else also
        compared = compare_statistics(source, leaves, groups, step, decoded, reader_of)
        statistics = compared.statistics
        if stated and not whole:
            statistics.unchecked.append("what the log states of the file, as not all of its row groups were read")
            return FileOfLog(compared, leaves)
        truth, wrong = {}, []
        lies = set()
        for path, said in stated.items():
            leaf, name = here[path], self._leaves[path].name
            true = _truth_of(footer, leaf, self._leaves[path], compared.truth)
            if true is None:
                statistics.unchecked.append(f"column {name}: what the log states, as it was not decoded")
                continue
            truth[path] = true
            if not true.in_order and (said.lower is not None or said.upper is not None):
                statistics.unchecked.append(f"column {name}: the log's bounds, as the file has another type of values")
            if said.unread:
                reason = "as programs do not agree how these are written, or ordered"
                statistics.unchecked.append(f"column {name}: the log's bounds, {reason}")
            found = [WrongStatistic(None, name, LOG + statistic, *both) for statistic, *both in _wrong(said, true)]
            wrong += found
            lies |= {path} if found else set()
            if true.nans and not found and (said.lower is not None or said.upper is not None):
                some = f"the log has bounds of column {name} beside {true.nans:,} NaN"
                statistics.notes.append(f"{some}: {NAN_LOST}")
        rows = sum(footer.rows)
        if file.rows is not None and file.rows != rows:
            wrong.append(WrongStatistic(None, "", LOG + "num_rows", f"{file.rows:,}", f"{rows:,}"))
        statistics.wrong += wrong
        return FileOfLog(compared, leaves, truth, frozenset(lies))


def _wrong(said: FileBounds, true: LeafTruth) -> Iterator[tuple[str, str, str]]:
    """Name, stated and found of each statistic that the values contradict."""
    nulls = said.null_count
    if true.nulls is not None and nulls is not None and nulls != true.nulls:
        yield "null_count", f"{nulls:,}", f"{true.nulls:,}"
    elif not said.has_values and true.values:
        yield "null_count", "that of all rows", f"{true.values:,} that are not NULL"
    if said.nan_free and true.nans:
        yield "nan_count", "0", f"{true.nans:,}"
    if not true.in_order or true.low is None:
        return
    if said.lower is not None and said.lower > true.low:
        yield "min_value", shown(said.lower), shown(true.low)
    if said.upper is not None and said.upper < true.high:
        yield "max_value", shown(said.upper), shown(true.high)


def _truth_of(
    footer: Footer, leaf: Leaf, of_table: Leaf, known: Mapping[tuple[int, int], ChunkStatistics]
) -> LeafTruth | None:
    """The truth of a leaf in all row groups, in the table's order; None where one was not decoded."""
    chunks = [known.get((group, leaf.index)) for group in range(footer.n_row_groups)]
    if any(chunk is None for chunk in chunks):
        return None
    there = [chunk for chunk in chunks if chunk is not None]
    values = sum(chunk.values for chunk in there)
    nulls = None if leaf.repeated else sum(footer.rows) - values
    nans = sum(chunk.nans for chunk in there)
    in_order = all(chunk.has_bounds for chunk in there) and _scaled(0, leaf, of_table, True) is not None
    lows = [chunk.low for chunk in there if chunk.low is not None]
    highs = [chunk.high for chunk in there if chunk.high is not None]
    if not in_order or not lows:
        return LeafTruth(values, nulls, nans, in_order=in_order)
    low, high = _scaled(min(lows), leaf, of_table, True), _scaled(max(highs), leaf, of_table, False)
    if not (_fits(low, of_table) and _fits(high, of_table)):
        return LeafTruth(values, nulls, nans, in_order=False)
    return LeafTruth(values, nulls, nans, low, high)


def _fits(value: Any, leaf: Leaf) -> bool:
    """Whether a value is one of the table's type: programs do not open a log that has another one."""
    if leaf.logical == "DECIMAL":
        return bool(abs(value) < 10**leaf.precision)
    least_and_most = limits(leaf)
    return least_and_most is None or domain_of(leaf) != "integer" or least_and_most[0] <= value <= least_and_most[1]


def _scaled(value: Any, leaf: Leaf, of_table: Leaf, is_low: bool) -> Any:
    """A file's value in the order of the table's leaf; one that is not there is rounded outwards.

    None where the two have no common order.
    """
    if domain_of(leaf) != domain_of(of_table) or domain_of(leaf) is None:
        return None
    if domain_of(leaf) != "integer":
        return value
    if leaf.logical != of_table.logical and {leaf.logical, of_table.logical} != {None, "INTEGER"}:
        return None
    if leaf.logical == "DECIMAL":
        more = of_table.scale - leaf.scale
        return value * 10**more if more >= 0 else None
    if not leaf.unit_ns:
        return value
    whole, rest = divmod(value * leaf.unit_ns, of_table.unit_ns)
    return whole if is_low or not rest else whole + 1

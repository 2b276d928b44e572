"""Locating keys: the row groups of files that may hold each of up to ten million keys, for joins and upserts.

keys, distinct -> as the column stores them, by type                     search.keys
files that an index covers -> hashes -> entries -> places                one sorted merge, no file is opened
other files -> footer -> bounds -> whole filters                         side by side on other storages
verify: the column of these row groups is decoded, and compared
"""

from __future__ import annotations

import json
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from parquet_bloom.errors import FileChangedError, FileError, RefusedTypeError, RequestError, StaleIndexError
from parquet_bloom.filters.decode import ColumnReader
from parquet_bloom.format.arrow_types import array_of, without_views
from parquet_bloom.format.outline import Outline
from parquet_bloom.format.schema import Leaf, find_leaf, split_path
from parquet_bloom.format.values import type_of
from parquet_bloom.keys.coverage import Coverage, named_leaves
from parquet_bloom.keys.evidence import SearchedIndex
from parquet_bloom.keys.index import KeyIndex
from parquet_bloom.options import PathLike, refuse_unknown
from parquet_bloom.predicates.tree import And
from parquet_bloom.search.keys import Keys, admitted_keys, numbered_keys
from parquet_bloom.search.log import FileResult
from parquet_bloom.search.options import Options, SearchOptions
from parquet_bloom.search.question import NO_COST, Cost, unlisted
from parquet_bloom.search.search import Search
from parquet_bloom.source.source import ResolvedSource, resolved_files, source_of
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import in_order
from parquet_bloom.storage.table_folders import RAW_FILES

Integers = NDArray[np.int64]
METADATA = b"parquet_bloom"  # of the table's schema: how it was found, as JSON


@dataclass(frozen=True, slots=True)
class FoundPlaces:
    """Places of one file: for each pair the number of a key and a row group, int64[n] both.

    position  of the file among those of the source
    is_same  whether a version token is that of the file that was searched, or indexed
    """

    file: DataFile
    position: int
    is_same: Callable[[object], bool]
    keys: Integers
    groups: Integers
    first_row: Integers
    rows: Integers


@dataclass(slots=True)
class LocatedFacts:
    """How places were found.

    covered, searched  files that the index answered for, and files that were opened
    absent             of these, the ones without the column
    expected_false     pairs that are expected to be there by chance
    note               what the index could not be asked for
    cost               what was read of the index
    """

    covered: int = 0
    searched: int = 0
    absent: int = 0
    expected_false: float = 0.0
    note: str | None = None
    cost: Cost = NO_COST


def locate(
    source: PathLike | Sequence[PathLike],
    column: str,
    keys: Any,
    index: PathLike | None = None,
    *,
    verify: bool = False,
    filesystem: Any = None,
    **options: Unpack[SearchOptions],
) -> pa.Table:
    """Find the row groups that may hold each of many keys.

    source   a file, a folder, a glob, a URI, or a list of them; or one table: delta:, iceberg:, ducklake:
    column   of the keys
    keys     an Arrow array, or anything that pyarrow makes one of; NULLs are left out, and each key counts once
    index    folder of a key index: files that it covers are not opened. Without one filters are asked, and row groups
             without a filter may hold every key within their bounds
    verify   read the column of these row groups: only those that do hold a key are left, with the numbers of its rows;
             rows that a table has deleted do not count
    options  see SearchOptions

    returns  a table sorted by file and row group, keys in the order of the call: `key`, `file`, `row_group`,
             `first_row` of the row group in the file, `rows` that it has, `deletes`: whether a table has deleted rows
             of the file; with verify also `row_numbers`, lists of rows in the file. The metadata of its schema has
             `parquet_bloom`: JSON with covered and searched files, those of them that lack the column, the pairs that
             are expected to be there by chance, and what was read of the index

    Raises UnknownColumnError, FileError; RequestError for keys that cannot be compared with the column;
    StaleIndexError for an index of other data; TableFormatError for files of a table without raw_files.
    """
    refuse_unknown("locate", options, SearchOptions)
    wanted = distinct_keys(keys)
    how = Options.of(options)
    asked = None if index is None else SearchedIndex(index, False, And(()))
    where = source_of(source, filesystem, options)
    found = where.resolve(refuses=RAW_FILES) if how.listing else unlisted(where, asked)
    found.raise_failed()
    search = Search(found, And(()), how)
    if asked is not None:
        asked.expect(found, how)
    if any(key.path == split_path(column) for key in search.keys):
        raise RequestError(f"{column}: the folders' names have its values; name a column of the files")
    sought = _first_leaf(search, column)
    casts = KeyCasts(wanted, sought)
    facts = LocatedFacts()
    places: list[FoundPlaces] = []
    left: Sequence[DataFile] = found.files
    if asked is not None and found.files:
        opened = asked.index
        coverage = asked.coverage(found, how)
        coverage.refuse_none()
        indexed = places_by_index(opened, coverage, search, sought, casts, facts)
        places += indexed[0]
        left = [found.files[position] for position in np.flatnonzero(~indexed[1]).tolist()]
        facts.covered, facts.cost = len(found.files) - len(left), opened.take_cost()
        if how.strict_index and left:
            raise StaleIndexError(opened.path, facts.note or coverage.lacks(len(left), len(found.files)))
    facts.searched = len(left)
    places += places_by_filters(left, found, how, sought, casts, facts)
    places.sort(key=operator.attrgetter("position"))
    return located_table(wanted, places, facts, verify, casts, search, sought)


def facts_of(found: pa.Table) -> dict[str, Any]:
    """How a table of `locate` was found: covered, searched, absent, expected_false, note, index_requests and _bytes."""
    facts: dict[str, Any] = json.loads((found.schema.metadata or {})[METADATA])
    return facts


def keys_as_array(keys: Any) -> pa.Array:
    """Keys as an Arrow array of one plain type. Raises RequestError."""
    if isinstance(keys, str | bytes | bytearray | memoryview):  # pyarrow makes its letters, or its bytes, an array
        raise RequestError("keys must be an array, or a list, and not one value; give [value]")
    with _refusing_mixed():
        found = keys if isinstance(keys, pa.Array | pa.ChunkedArray) else array_of(keys)
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        if isinstance(found, pa.ExtensionArray):
            found = found.storage
        if pa.types.is_dictionary(found.type):
            found = found.dictionary_decode()
        if pa.types.is_run_end_encoded(found.type):
            found = pc.run_end_decode(found)
        if pa.types.is_nested(found.type):
            raise TypeError(f"these are {found.type}")
        return found.cast(without_views(found.type))  # Polars' texts, of which pyarrow finds none in another array


def distinct_keys(keys: Any) -> pa.Array:
    """Keys as an Arrow array, each once and without NULLs. Raises RequestError."""
    found = keys_as_array(keys)
    with _refusing_mixed():
        if pa.types.is_floating(found.type):  # the two zeros are one key, and a NaN equals nothing
            values = found.drop_null().to_numpy(zero_copy_only=False)
            found = pa.array(values[~np.isnan(values)] + values.dtype.type(0))
        return found.unique().drop_null()


@contextmanager
def _refusing_mixed() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise RequestError(f"keys must be an array, or a list, of values of one type: {error}") from error


def _first_leaf(search: Search, column: str) -> Leaf:
    """The column, as the table or the first file that can be read has it. Raises UnknownColumnError, FileError."""
    leaves: Sequence[Leaf] = search.log.leaves
    if not search.log.has_log and search.files:
        with OpenFile(search.files[0]) as source:
            leaves = source.outline().leaves
    return key_leaf(leaves, column)


def key_leaf(leaves: Sequence[Leaf], column: str) -> Leaf:
    """A column by whose values rows can be found. Raises UnknownColumnError, RefusedTypeError."""
    found = find_leaf(leaves, column)
    if found.refusal is not None:
        raise RefusedTypeError(f"column {found.name}: {found.refusal}")
    return found


class KeyCasts:
    """The keys as columns of several types store them, each type once."""

    def __init__(self, wanted: pa.Array, sought: Leaf) -> None:
        self._wanted, self._first = wanted, sought
        self._known: dict[Any, Keys] = {}
        self._lock = threading.Lock()

    def to(self, leaf: Leaf) -> Keys:
        """The keys as a column stores them. Raises RequestError."""
        kind = type_of(leaf)
        with self._lock:
            if kind not in self._known:
                self._known[kind] = numbered_keys(self._wanted, leaf, self._first)
            return self._known[kind]


# --- by an index ----------------------------------------------------------------------------------


def places_by_index(
    index: KeyIndex, coverage: Coverage, search: Search, sought: Leaf, casts: KeyCasts, facts: LocatedFacts
) -> tuple[list[FoundPlaces], NDArray[np.bool_]]:
    """The places of files that an index covers, and which files of the source these are: bool[files]."""
    answered = np.zeros(len(search.files), bool)
    found: list[FoundPlaces] = []
    problems = []
    # Without a predicate nothing else tells files of one schema apart.
    said = (lambda file: None) if search.log.has_log else None
    for members in coverage.groups(coverage.is_sure, said):
        segment = index.manifest.segments[members.segment]
        schema = segment.schemas[members.schema]
        try:
            leaves = named_leaves(schema, search.log, members.first)
            at = next((leaf.index for leaf in leaves if leaf.path == sought.path), None)
            numbered = next((n for n, leaf in schema.columns.items() if leaf == at), None)
            column = None if numbered is None else segment.column(numbered)
            if at is None or column is None:
                continue
            keys = casts.to(leaves[at])
            positions, places = index.find(segment, column, keys.hashes)
            listing = index.listing(segment)
            first_row, rows = listing.rows
        except FileError as error:
            problems.append(str(error))
            continue
        # The answer is of the whole segment, which also has files of other groups.
        member_of = np.full(len(listing), -1, np.intp)
        member_of[members.numbers] = np.arange(len(members.numbers))
        files = np.searchsorted(listing.first, places, "right") - 1
        numbers_of = keys.numbers[positions]
        order = np.lexsort((numbers_of, places))
        numbers_of, places, files = numbers_of[order], places[order], files[order]
        twin = np.zeros(len(places), bool)  # a key may be stored in two ways, as zero is
        twin[1:] = (places[1:] == places[:-1]) & (numbers_of[1:] == numbers_of[:-1])
        numbers_of, places, files = numbers_of[~twin], places[~twin], files[~twin]
        cuts = np.flatnonzero(np.diff(files)) + 1
        for start, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(files)], strict=True):
            if start == stop or (member := int(member_of[files[start]])) < 0:
                continue
            position = int(members.positions[member])
            some = places[start:stop].astype(np.int64)
            own = numbers_of[start:stop]
            group = some - listing.first[files[start]]
            is_same = partial(coverage.is_same, int(members.at[member]))
            found.append(
                FoundPlaces(search.files[position], position, is_same, own, group, first_row[some], rows[some])
            )
        answered[members.positions] = True
        # `false_places` is of a lookup in all places of the segment.
        n_places = int((listing.first[members.numbers + 1] - listing.first[members.numbers]).sum())
        facts.expected_false += len(keys.numbers) * column.false_places * n_places / max(1, listing.places)
    if problems:
        facts.note = "; ".join(dict.fromkeys(problems))
    return found, answered


# --- by filters -----------------------------------------------------------------------------------


def places_by_filters(
    files: Sequence[DataFile], found: ResolvedSource, how: Options, sought: Leaf, casts: KeyCasts, facts: LocatedFacts
) -> Iterator[FoundPlaces]:
    """The places of files that are opened; with the option ignore_case a file's column may have another case.

    Raises the first file's error: no place may be missing in silence.
    """
    if not files:
        return
    position_of = {id(file): position for position, file in enumerate(found.files)}
    search = Search(found, And(()), how).of(files) if found.has_log else Search(resolved_files(files), And(()), how)

    absent: set[int] = set()  # once each, also of a file that is searched again

    def ask(source: OpenFile, file: FileResult) -> tuple[FoundPlaces, float] | None:
        outline = file.outline
        assert outline is not None
        leaf = next((one for one in outline.leaves if one.path == sought.path), None)
        if leaf is None and how.ignore_case:
            leaf = _in_any_case(outline.leaves, sought, file.file)
        if leaf is None:
            _refuse_constant(search, file, outline, sought, casts)
            absent.add(position_of[id(file.file)])
            return None
        keys = casts.to(leaf)
        false = 0.0
        numbers, groups = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for group, positions, by_chance in admitted_keys(source, outline, leaf, keys, how.use_filters):
            numbers.append(np.unique(keys.numbers[positions]))
            groups.append(np.full(len(numbers[-1]), group, np.int64))
            false += by_chance
        of = np.concatenate(groups)
        rows = outline.rows
        is_same = partial(operator.eq, source.version_token)
        position = position_of[id(file.file)]
        found = FoundPlaces(
            file.file, position, is_same, np.concatenate(numbers), of, (np.cumsum(rows) - rows)[of], rows[of]
        )
        return found, false

    search.visit = ask
    for one in search:
        if isinstance(one, tuple):
            raise one[1]
        if one.visited is not None:
            facts.expected_false += one.visited[1]
            yield one.visited[0]
    facts.absent = len(absent)


def _in_any_case(leaves: Sequence[Leaf], sought: Leaf, file: DataFile) -> Leaf | None:
    """The column of a file whose name differs in case alone. Raises RequestError for several."""
    path = folded(sought.path)
    found = [leaf for leaf in leaves if folded(leaf.path) == path]
    if len(found) > 1:
        names = ", ".join(leaf.name for leaf in found[:5])
        raise RequestError(
            f"{file}: {sought.name} may be any of {names}, which differ in case alone; rename them in that file"
        )
    return found[0] if found else None


def folded(path: Sequence[str]) -> tuple[str, ...]:
    """A path that is equal for names that differ in case alone."""
    return tuple(part.lower() for part in path)


def _refuse_constant(search: Search, file: FileResult, outline: Outline, sought: Leaf, casts: KeyCasts) -> None:
    """Raise RequestError for a file that lacks the column, where its rows have a value all the same."""
    absent = search.log.absent(sought, outline.n_row_groups, file.file)
    if absent.some_value.any():
        reason = f"has no column {sought.name}, whose value the log of the table has"
        raise RequestError(f"{file.file}: {reason}; a predicate in check or read_table finds such rows")


# --- the answer -----------------------------------------------------------------------------------


def located_table(
    wanted: pa.Array,
    places: Sequence[FoundPlaces],
    facts: LocatedFacts,
    verify: bool,
    casts: KeyCasts,
    search: Search,
    sought: Leaf,
) -> pa.Table:
    """The places of the source's files, in their order, as `locate` gives them. Raises FileError where it verifies."""
    row_numbers: list[pa.Array] = []
    if verify:
        if sought.repeated:
            raise RequestError(f"{sought.name} is a list, and an element has no row number; leave verify away")
        local = all(one.file.is_local for one in places)

        def check(one: FoundPlaces) -> tuple[FoundPlaces, pa.Array]:
            return _verified(one, wanted, casts, search, sought)

        checked = [result() for result in in_order(check, places, 0 if local else None)]
        places, row_numbers = [one for one, _ in checked], [rows for _, rows in checked]
    files = [str(one.file) for one in places]
    counts = [len(one.keys) for one in places]
    numbers = _joined([one.keys for one in places])
    named = pa.array(files, pa.string()).take(pa.array(np.repeat(np.arange(len(files)), counts)))
    deleted = pa.array([one.file.deletes is not None for one in places], pa.bool_())
    columns = {
        "key": wanted.take(pa.array(numbers)),
        "file": named,
        "row_group": pa.array(_joined([one.groups for one in places]).astype(np.int32)),
        "first_row": pa.array(_joined([one.first_row for one in places])),
        "rows": pa.array(_joined([one.rows for one in places])),
        "deletes": deleted.take(pa.array(np.repeat(np.arange(len(files)), counts))),
    }
    if verify:
        kind = pa.list_(pa.int64())
        columns["row_numbers"] = pa.chunked_array(row_numbers, kind).combine_chunks()
    words = {
        "covered": facts.covered,
        "searched": facts.searched,
        "absent": facts.absent,
        "expected_false": 0.0 if verify else facts.expected_false,
        "note": None if facts.note is None else f"{facts.note}; these files are searched as without an index",
        "index_requests": facts.cost.requests,
        "index_bytes": facts.cost.bytes_read,
    }
    return pa.table(columns).replace_schema_metadata({METADATA: json.dumps(words).encode()})


def _joined(parts: Sequence[Integers]) -> Integers:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _verified(
    one: FoundPlaces, wanted: pa.Array, casts: KeyCasts, search: Search, sought: Leaf
) -> tuple[FoundPlaces, pa.Array]:
    """The places of a file that do hold their keys, and for each the numbers of the rows: list<int64>."""
    with ExitStack() as stack:
        source = stack.enter_context(OpenFile(one.file))
        if not one.is_same(source.version_token):
            raise FileChangedError(one.file, "was changed since it was searched; ask again")
        stack.enter_context(source.as_one_version(by_token=True))  # its row groups are known by that
        outline = search.log.outline(source.outline(), one.file)
        leaf = next((leaf for leaf in outline.leaves if leaf.path == sought.path), None)
        if leaf is None:
            raise StaleIndexError(one.file, f"has no column {sought.name}")
        keys = casts.to(leaf)
        reader = ColumnReader(source, source.outline().leaves[leaf.index])
        deleted = one.file.deletes.positions() if one.file.deletes is not None else np.empty(0, np.int64)
        starts = np.cumsum(outline.rows) - outline.rows
        found: list[tuple[Integers, Integers, int]] = []
        for group in np.unique(one.groups).tolist():
            # Those that can be there alone: Arrow makes a table of them for each batch, of a million in 50 ms.
            can_be = np.zeros(len(wanted), bool)
            can_be[one.keys[one.groups == group]] = True
            at = np.flatnonzero(can_be[keys.numbers])
            row, number = rows_of_keys(reader, group, keys.stored.take(pa.array(at)), keys.numbers[at])
            row += int(starts[group])
            lives = ~np.isin(row, deleted)
            found.append((number[lives], row[lives], group))
    keys_of, groups, values, counts = [], [], [], []
    for number, row, group in found:
        order = np.lexsort((row, number))
        number = number[order]
        firsts = np.flatnonzero(np.diff(number, prepend=-1))  # of each key
        keys_of.append(number[firsts])
        values.append(row[order])
        counts.append(np.diff(np.append(firsts, len(number))))
        groups.append(np.full(len(firsts), group, np.int64))
    of = _joined(groups)
    kept = FoundPlaces(one.file, one.position, one.is_same, _joined(keys_of), of, starts[of], outline.rows[of])
    offsets = np.cumsum(np.append(0, _joined(counts)))
    return kept, pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(_joined(values)))


def rows_of_keys(
    reader: ColumnReader, row_group: int, keys: pa.Array, numbers_of: Integers
) -> tuple[Integers, Integers]:
    """The rows of a row group that hold a key, from 0 and ascending, and the number of each one's key: int64[n] both.

    keys        as the column stores them
    numbers_of  of each its number
    Raises DamagedFileError, LimitError.
    """
    as_bytes = not pa.types.is_integer(keys.type)
    at, numbers, rows = 0, [], []
    for batch in reader.batches(row_group):
        hits = pc.index_in(_plain(batch) if as_bytes else batch, keys)
        here = np.flatnonzero(hits.is_valid().to_numpy(zero_copy_only=False))
        numbers.append(numbers_of[hits.drop_null().to_numpy()])
        rows.append(here + at)
        at += len(batch)
    return _joined(rows), _joined(numbers)


def _plain(array: pa.Array) -> pa.Array:
    """Physical values as their PLAIN bytes, so that the two zeros differ and a NaN equals itself."""
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        width = array.type.bit_width // 8
        values = np.ascontiguousarray(array.fill_null(0).to_numpy(zero_copy_only=False))
        raw = pa.Array.from_buffers(pa.binary(width), len(values), [None, pa.py_buffer(values)])
        array = pc.if_else(array.is_valid(), raw, pa.scalar(None, raw.type))
    return array.cast(pa.large_binary())

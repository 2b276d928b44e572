"""A predicate over many files: names resolved once, then one decision a file, in order.

What every reading function shares (check, prune, count, read_table, dataset): which files there
are, what their folders say, what each row group may give.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.errors import FileChangedError, FilterWarning, ParquetBloomError, RequestError, UnknownColumnError
from parquet_bloom.filters.asking import ask
from parquet_bloom.format.outline import Outline
from parquet_bloom.format.schema import Leaf, find_leaf, split_path
from parquet_bloom.predicates.bind import Bound, FirstFile, Schema, bind
from parquet_bloom.predicates.outcomes import FALSE, NULL, TRUE
from parquet_bloom.predicates.tree import Predicate, null_hints, plain
from parquet_bloom.search.evidence import Question, decide, literal_outcome, partition_keys, partition_outcome
from parquet_bloom.search.index import Evidence, Index, closed_groups
from parquet_bloom.search.log import BY_FOLDER, Exclusion, Log, log_of
from parquet_bloom.search.options import Options
from parquet_bloom.search.results import FileResult, UnopenedFiles, open_groups
from parquet_bloom.search.together import Stretch, Together
from parquet_bloom.source.source import ResolvedSource
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile

if TYPE_CHECKING:
    from parquet_bloom.source.snapshot import TableFile

T = TypeVar("T")
Failed = tuple[DataFile, ParquetBloomError]
logger = logging.getLogger("parquet_bloom")
logger.addHandler(logging.NullHandler())  # whoever wants the lines adds a handler; the warning is enough
_AGAIN = 2  # times that a file is searched anew that changes meanwhile
_KEPT_BYTES = 128 << 20  # of files that stay open until their rows are read


def leaf_of(file: FileResult, column: str, first: Sequence[Leaf], keys: Sequence[Leaf]) -> tuple[Leaf | None, Leaf]:
    """The column a name means in a file, None if only the first one has it, and in the first; a key is both.

    first  leaves of the first file of the data set, or of the table
    """
    for key in keys:
        if key.path == split_path(column):
            return key, key
    assert file.outline is not None
    there, path = find_leaf(first, column), split_path(column)
    if not any(leaf.path[: len(path)] == path for leaf in file.outline.leaves):
        return None, there
    try:
        return find_leaf(file.outline.leaves, column), there
    except UnknownColumnError as error:
        raise UnknownColumnError(f"{file.file}: " + error.message) from error


def _keys_of(found: ResolvedSource) -> tuple[Leaf, ...]:
    """The columns of the folders' names, found out once for a listing. Raises as partition_keys."""
    memory = found.snapshot.memory
    if "keys" not in memory:
        memory["keys"] = partition_keys(data_file.partitions for data_file in found.files)
    keys: tuple[Leaf, ...] = memory["keys"]
    return keys


def as_predicate(predicate: Any) -> Predicate:
    """SQL text, DNF lists, a pyarrow Expression or a tree -> a tree.

    Raises TextError with the spot marked, RequestError for lists that are no DNF.
    """
    if isinstance(predicate, str):
        tree = plain(predicate)
        if tree is not None:
            return tree
        from parquet_bloom.predicates.text import parse

        return parse(predicate)
    if isinstance(predicate, Predicate):
        return predicate
    from parquet_bloom.predicates.arrow import from_filters

    return from_filters(predicate)


class Search:
    """A predicate over the files of a source. Iterating gives one FileResult or one error a file, in order.

    log            of these files, where it was asked before
    index          that is asked before files are opened
    columns, leaf  names beside the predicate's that the first file must have, see hold_names
    visit          more that is read of each file while it is open; its value is FileResult.visited
    reads_rows     files on other storages in which rows may match stay open, with what was read of them, as far as
                   _KEPT_BYTES go; the first file does in any case, for its schema
    opened         these files, by id(DataFile)
    """

    def __init__(
        self,
        found: ResolvedSource,
        predicate: Any,
        options: Options,
        log: Log | None = None,
        index: Index | None = None,
    ) -> None:
        self.predicate = as_predicate(predicate)
        self.found, self.files = found, found.files
        self.log = log_of(found.snapshot) if log is None else log
        self.options = options
        self._first = self.log.first
        self._refused: RequestError | None = None
        self._noted = False
        self.columns: list[str] = []
        self.leaf: str | None = None
        if options.dataset_schema is not None:
            self.keys = options.dataset_schema.keys
            self._first = FirstFile(options.dataset_schema.leaves, options.dataset_schema.path, options.ignore_case)
        else:
            self.keys = _keys_of(found)
        self._bound: tuple[Any, Bound, int] | None = None
        self.visit: Callable[[OpenFile, FileResult], Any] | None = None
        self.reads_rows = False
        self.opened: dict[int, OpenFile] = {}
        self._spare_bytes = _KEPT_BYTES
        self._index = index
        if index is not None:
            index.expect(found, options)
        self.evidence: Evidence | None = None

    def of(self, files: Sequence[DataFile]) -> Search:
        """The same over some of a table's files."""
        snapshot = replace(self.found.snapshot, files=cast("list[TableFile]", list(files)))
        return Search(self.found._replace(snapshot=snapshot), self.predicate, self.options, index=self._index)

    def __iter__(self) -> Iterator[FileResult | tuple[DataFile, ParquetBloomError]]:
        """Raises RequestError for what is wrong with the predicate, by the first footer that can be read.

        Of a table by its schema, before any file is opened.
        """
        for part in self.parts():
            if isinstance(part, Stretch | UnopenedFiles):
                yield from part.results()
            else:
                yield part

    def parts(self) -> Iterator[FileResult | Stretch | UnopenedFiles | tuple[DataFile, ParquetBloomError]]:
        """The same, but files that were decided together are one Stretch, and files that an index excludes one part."""
        # Without a table's schema the first file that can be read gives it. So files are searched one by one until
        # there is one, and then local files many at a time. The first file of another storage begins those that
        # are searched side by side.
        self.ask_log()
        here = 0
        while here < len(self.files) and self._first is None:
            yield self.attempt(self._search, self.files[here])
            here += 1
        self.ask_index()
        far = len(self.files)
        if self.log.has_log or self.found.snapshot.filesystem is not None:
            far = next((at for at in range(here, far) if not self.files[at].is_local), far)
        if here < far:
            yield from self._here(here, far)
        if far < len(self.files):
            from parquet_bloom.search import far as far_files  # for those alone who have such files

            yield from far_files.results(self, self.files[far:])

    def _here(self, start: int, stop: int) -> Iterator[FileResult | Stretch | UnopenedFiles | Failed]:
        """The parts of local files, from `start` up to `stop`."""
        together = Together(self)
        left = self._not_excluded(start, stop)
        seen = start
        for first in range(0, len(left), together.most):
            numbers = left[first : first + together.most]
            last = None
            several = [self.files[number] for number in numbers]
            for number, one, found in zip(numbers, several, together.results(several, numbers), strict=True):
                if seen < number:
                    yield self._unopened(seen, number)
                if found is None:
                    yield self.attempt(self._search, one)
                elif found is not last:
                    yield found
                last, seen = found, number + 1
        if seen < stop:
            yield self._unopened(seen, stop)

    def _unopened(self, start: int, stop: int) -> UnopenedFiles:
        assert self.evidence is not None
        return UnopenedFiles(self.files[start:stop], self.evidence.row_groups[start:stop])

    def _not_excluded(self, start: int, stop: int) -> Sequence[int]:
        """Files, by their numbers, without those that an index excludes and nothing cheaper does."""
        if self.evidence is None or self.log.has_log or (self.options.skip_files and self.keys):
            return range(start, stop)
        left: list[int] = (np.flatnonzero(~self.evidence.excluded[start:stop]) + start).tolist()
        return left

    def ask_log(self) -> None:
        """Apply the predicate to the log, once. Raises RequestError for a name or literal that does not fit."""
        if self.log.first is None:
            return
        try:
            self.log.ask(self.predicate, self.options.nan)
        except RequestError as error:
            raise self.refusal(self.log.first.name, error) from error
        self.hold_names(self.log.leaves, self.log.first.name)

    def attempt(self, work: Callable[[DataFile], T], data_file: DataFile) -> T | tuple[DataFile, ParquetBloomError]:
        """Work on one file: the value or the error of it. Raises RequestError where the predicate itself is wrong."""
        try:
            return work(data_file)
        except RequestError as error:
            if error is self._refused:
                raise
            return data_file, type(error)(f"{data_file}: " + error.message)
        except ParquetBloomError as error:
            return data_file, error

    def _search(self, data_file: DataFile) -> FileResult:
        if (excluded := self.excluded(data_file)) is not None:
            return excluded
        for _ in range(_AGAIN):
            with suppress(FileChangedError):  # as after an append of ours that ended meanwhile
                return self.finish(self.open(data_file), data_file)
        return self.finish(self.open(data_file), data_file)

    def open(self, data_file: DataFile) -> OpenFile:
        """Open a file. Raises StorageError, FileChangedError."""
        cache = self.options.cache
        return OpenFile(data_file if cache is None or data_file.is_local else cache.opened(data_file))

    def finish(self, source: OpenFile, data_file: DataFile) -> FileResult:
        """Search an open file, and close it, or keep it for its rows."""
        try:
            with source.as_one_version(by_token=self._index is not None):
                searched = self._search_open(source, data_file)
        except BaseException:
            source.close()
            raise
        searched.of_one_version = source.is_of_one_version
        self.keep_or_close(source, searched)
        return searched

    def keep_or_close(self, source: OpenFile, searched: FileResult) -> None:
        """Keep a file of another storage for its rows, or close it."""
        data_file = searched.file
        if not data_file.is_local and self._keeps(source, searched):
            self.opened[id(data_file)] = source
        else:
            source.close()

    @property
    def may_exclude(self) -> bool:
        """Whether there is anything by which a file could be excluded unopened."""
        return self.log.has_log or self.evidence is not None or (self.options.skip_files and bool(self.keys))

    def excluded(self, data_file: DataFile) -> FileResult | None:
        """The result for a file that its folder's name or the log excludes unopened, or None. Raises RequestError."""
        # Cheapest first: the folder's name and the log open no file.
        if self.options.skip_files and data_file.partitions and self._first is not None:
            outcome = partition_outcome(self.question(self._first.leaves, data_file))
            if not outcome & TRUE:
                return FileResult(data_file, excluded=BY_FOLDER)
        excluded = self.exclusion(data_file)
        return FileResult(data_file, excluded=excluded) if excluded is not None else None

    def exclusion(self, data_file: DataFile) -> Exclusion | None:
        """Why the log, or an index, excludes a file unopened; None where neither does."""
        excluded = self.log.exclusion(data_file)
        return excluded if excluded is not None or self.evidence is None else self.evidence.exclusion(data_file)

    def ask_index(self) -> None:
        """Ask the index of this search about all files, once names have a meaning. Raises StaleIndexError."""
        if self._index is not None and self.evidence is None and self._first is not None:
            self.evidence = self._index.evidence(self)
            if (note := self.evidence.note) is not None:
                logger.warning(note)

    @property
    def first(self) -> FirstFile | None:
        """The columns that names mean; None before the first file is searched."""
        return self._first

    def predicate_of(self, leaves: Sequence[Leaf]) -> Predicate:
        """The predicate of this search: names mean the same in all files."""
        return self.predicate

    @property
    def notes(self) -> list[str]:
        """Notes on comparisons with NULL, on tables of the files, and on files that an index does not cover."""
        of_index = None if self.evidence is None else self.evidence.note
        hints = dict.fromkeys(null_hints(self.predicate))
        return [*hints, *self.found.notes, *([of_index] if of_index is not None else [])]

    def closed(self, data_file: DataFile, version_token: object, n: int) -> NDArray[np.bool_] | None:
        """The row groups, of n, that an index closes in an open file; None where it says nothing."""
        return None if self.evidence is None else closed_groups(self.evidence, data_file, version_token, n)

    def _search_open(self, source: OpenFile, data_file: DataFile) -> FileResult:
        cache = self.options.cache
        outline = cache.outline(source) if cache is not None else source.outline()
        if (note := self.found.see(source.path, outline)) is not None:
            logger.warning(note)
        outline = self.log.outline(outline, data_file)
        self._note(outline, data_file)
        question = self.question(outline.leaves, data_file)
        self.ask_index()  # of the first file's columns, if this is it
        if (closed := self.closed(data_file, source.version_token, outline.n_row_groups)) is not None:
            question = question._replace(closed=closed)
        decision = decide(partial(ask, source), outline, question)
        searched = FileResult(
            data_file,
            source.size,
            outline,
            decision,
            question.bound,
            source.requests,
            source.bytes_read,
            source.version_token,
        )
        if self.visit is not None:
            searched.visited = self.visit(source, searched)
        if decision.damaged:
            warn_of_damage(str(data_file), decision.damaged)
        return searched

    def _keeps(self, source: OpenFile, searched: FileResult) -> bool:
        if not source.stays_open or not (data_file := searched.file).stored:
            return False
        if data_file is not self.files[0]:
            if not self.reads_rows or not open_groups(searched):
                return False
            self._spare_bytes -= source.bytes_kept
            if self._spare_bytes < 0:
                return False
        searched.of_one_version |= self.reads_rows and source.is_whole_in_memory and data_file.pins is None
        return True

    @property
    def first_leaves(self) -> Sequence[Leaf]:
        """The columns that names must be among, once the first file is searched: its own, or the table's."""
        if self.log.has_log:
            return self.log.leaves
        return () if self._first is None else self._first.leaves

    def question(self, leaves: Sequence[Leaf], data_file: DataFile) -> Question:
        """The predicate over the columns of a file. Raises RequestError for what does not fit them."""
        bound, literal = self._bind(leaves, data_file)
        absent = partial(self.log.absent, file=data_file)
        # The log may exclude a file, and take TRUE away. It takes no FALSE or NULL away from one that is open: that all
        # rows match is for the file itself to show.
        log = self.log.outcome(data_file) | FALSE | NULL
        return Question(bound, self.options, data_file.partitions, literal, log, absent)

    def _note(self, outline: Outline, data_file: DataFile) -> None:
        """Warn, once for a table, of a file that contradicts the log."""
        found = None if self._noted else self.log.contradiction(outline, data_file)
        if found is not None:
            self._noted = True
            message = f"{found}; rows are read and filtered as files have them"
            logger.warning(message)
            warnings.warn(message, FilterWarning, stacklevel=2)

    def _bind(self, leaves: Sequence[Leaf], data_file: DataFile) -> tuple[Bound, int]:
        """The predicate over one file's columns; files of one schema share it."""
        # By identity: files of one schema share the tuple of leaves (format.outlines), and comparing costs nothing.
        last = self._bound
        if last is not None and last[0] is leaves:
            return last[1:]
        first = self._first if self._first is not None and self._first.leaves else None
        try:
            bound = bind(self.predicate, Schema(leaves, self.keys, first, strict=self.options.dataset_schema is None))
        except RequestError as error:
            self._refused = self.refusal(data_file, error)
            raise self._refused from error
        literal = literal_outcome(bound, self.options.nan)
        if self._first is None:
            self.hold_names(leaves, data_file)
            self._first = FirstFile(leaves, str(data_file))
        self._bound = leaves, bound, literal
        return bound, literal

    def hold_names(self, leaves: Sequence[Leaf], data_file: object) -> None:
        """Raise UnknownColumnError for a name that is not among the leaves of the first file and the folders' keys.

        data_file  that has these leaves, or the table, for messages
        `columns` are top-level names, as pyarrow takes them; `leaf` is the name of one leaf.
        """
        try:
            names = self.log.columns([*leaves, *self.keys])
            for name in self.columns:
                if name not in names and name.split(".")[0] not in names:
                    find_leaf([Leaf(at, (there,), 0) for at, there in enumerate(names)], (name,))
            if self.leaf is not None and all(key.path != split_path(self.leaf) for key in self.keys):
                find_leaf(leaves, self.leaf)
        except RequestError as error:
            self._refused = self.refusal(data_file, error)
            raise self._refused from error

    def refusal(self, data_file: object, error: RequestError) -> RequestError:
        """An error about names or types, which says by which file, or table, it was found out."""
        count = 1 if self.log.has_log else len(self.files)
        of_many = f" (the first of {count:,} files)" if count > 1 else ""
        return type(error)(f"{data_file}{of_many}: " + error.message)


def warn_of_damage(path: str, damaged: list[str]) -> None:
    """One warning a file, however many of its filters are damaged."""
    filters = "1 damaged filter" if len(damaged) == 1 else f"{len(damaged)} damaged filters"
    message = f"{path}: {filters} ignored, the first: {damaged[0]}"
    logger.warning(message)
    warnings.warn(message, FilterWarning, stacklevel=2)

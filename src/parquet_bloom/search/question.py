"""The question to each file of a source: a predicate, the names that it has, its log and its index.

Files are known by the first one's columns, or the table's. What excludes a file before it is opened stands here too.

What a search asks of an index, whatever its kind:

    index= of a function -> open_index: the kind is found out -> Index
    Search               -> Index.evidence: once, over all files -> Evidence
    each file            -> exclusion: it is not opened; or closed: which of its row groups need not be read

Evidence is about certain absence: a row group is closed if the predicate is TRUE for no row of it. It never says that
one is, and what it does not know it leaves open.
"""

from __future__ import annotations

import importlib
import logging
import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.errors import FilterWarning, RequestError
from parquet_bloom.filters.asking import Files
from parquet_bloom.format.outline import Outline
from parquet_bloom.format.schema import Leaf, find_leaf, split_path
from parquet_bloom.options import several
from parquet_bloom.predicates.bind import Bound, FirstFile, Schema, bind
from parquet_bloom.predicates.outcomes import FALSE, NULL, TRUE
from parquet_bloom.predicates.tree import Predicate, null_hints, plain
from parquet_bloom.search.evidence import Question, literal_outcome, partition_outcome
from parquet_bloom.search.log import BY_FOLDER, Exclusion, FileResult, Log, log_of
from parquet_bloom.search.options import Options
from parquet_bloom.source.columns import partition_keys
from parquet_bloom.source.source import ResolvedSource
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile

if TYPE_CHECKING:
    from parquet_bloom.format.schema import Leaf
    from parquet_bloom.predicates.bind import FirstFile
    from parquet_bloom.predicates.tree import Predicate
    from parquet_bloom.search.options import Options
    from parquet_bloom.source.source import CallSource, ResolvedSource
    from parquet_bloom.storage.paths import DataFile


MANIFEST = "manifest.json"  # what a key index has in its folder, and a zone index has not


class Cost(NamedTuple):
    """The reads of an index for a question: requests to its storage, or reads of a local disk, and their bytes."""

    requests: int = 0
    bytes_read: int = 0

    def plus(self, requests: int, bytes_read: int) -> Cost:
        """This, and more."""
        return Cost(self.requests + requests, self.bytes_read + bytes_read)


NO_COST = Cost()


class Asking(NamedTuple):
    """A question to an index.

    keys          the columns of folders' names
    first         the columns that names mean; None: nothing is known of them yet
    predicate_of  the predicate over the columns of a file that has these leaves; None: the same over all files
    """

    predicate: Predicate
    found: ResolvedSource
    log: Log
    options: Options
    keys: tuple[Leaf, ...] = ()
    first: FirstFile | None = None
    predicate_of: Callable[[Sequence[Leaf]], Predicate] | None = None

    @property
    def files(self) -> Sequence[DataFile]:
        """The files of the question."""
        return self.found.files


class Evidence(Protocol):
    """The answers of an index on the files of one search.

    cost        what was read of the index for them
    excluded    bool[files]: those that `exclusion` has a reason for
    row_groups  int64[files]: of those that are excluded
    """

    excluded: NDArray[np.bool_]
    row_groups: NDArray[np.int64]

    @property
    def cost(self) -> Cost:
        """As above."""

    @property
    def note(self) -> str | None:
        """One line on files that are read as without the index; None where there are none."""

    def exclusion(self, file: DataFile) -> Exclusion | None:
        """Why no row of a file can match; None where one may."""

    def closed(self, file: DataFile, version_token: object) -> NDArray[np.bool_] | None:
        """The row groups of an open file that hold no row that matches: bool[row groups]; None where nothing is known.

        file           the first one of the search, or one that is not excluded
        version_token  of the file, as it was opened
        """


class Index(Protocol):
    """An index that was opened."""

    def files(self, where: CallSource) -> ResolvedSource:
        """The files of a call as the index names them, without a listing."""

    def expect(self, found: ResolvedSource, options: Options) -> None:
        """Get ready for a search over files, where that saves time. Raises as key_index, where it is not open yet."""

    def evidence(self, search: Asking) -> Evidence:
        """Ask it about all files of a search. Raises StaleIndexError for an index of none of them (key_index)."""


def unlisted(where: CallSource, index: Index | None) -> ResolvedSource:
    """The files of a call as an index names them. Raises RequestError without an index."""
    if index is None:
        raise RequestError("without a listing the names of files must come from a key index; name it")
    return index.files(where)


def is_key_index(where: Any) -> bool:
    """Whether a key index is named: a folder with a manifest, or a URI."""
    many = several(where)
    if len(many) != 1 or not isinstance(many[0], str | os.PathLike):
        return False
    text = os.fspath(many[0])
    return "://" in text or os.path.isfile(os.path.join(text, MANIFEST))


def key_index_of(where: Any) -> Any:
    """The name of a key index, of what a Source has; None where that is none, or a zone index."""
    return several(where)[0] if where is not None and is_key_index(where) else None


def closed_groups(evidence: Evidence, file: DataFile, version_token: object, n: int) -> NDArray[np.bool_] | None:
    """The row groups, of n, that an index closes in an open file; None where it says nothing."""
    found = evidence.closed(file, version_token)
    return None if found is None or len(found) != n else found


def key_index(
    where: Any, of_part: bool = False, predicate: Predicate | None = None, options: Options | None = None
) -> Index:
    """Open a key index.

    of_part             it is asked about some files of many, and may be of the others
    predicate, options  that it is going to be asked with: one on a store is opened and read in threads while its caller
                        looks for files, and `expect` raises the errors
    Raises StorageError, DamagedFileError; RequestError for another kind.
    """
    if not is_key_index(where):
        shown = ", ".join(str(one) for one in several(where))
        raise RequestError(
            f"{shown}: no key index ({MANIFEST} is not in it); a zone index is for functions that read rows"
        )
    [where] = several(where)
    opened = importlib.import_module("parquet_bloom.keys.evidence").SearchedIndex  # a room above this one
    return cast(Index, opened(where, of_part, predicate, 0 if options is None else options.range_values))


# --- questions ------------------------------------------------------------------------------------


logger = logging.getLogger("parquet_bloom")
logger.addHandler(logging.NullHandler())  # whoever wants the lines adds a handler; the warning is enough


def _keys_of(found: ResolvedSource) -> tuple[Leaf, ...]:
    """The columns of the folders' names, found out once for a listing. Raises as partition_keys."""
    memory = found.snapshot.memory
    if "keys" not in memory:
        pairs = [data_file.partitions for data_file in found.files]
        memory["keys"] = partition_keys(pairs) if any(pairs) else ()
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


class Questions:
    """A predicate over the files of a source, and its question to each.

    log            of these files, where it was asked before
    index          that is asked before files are opened
    columns, leaf  names beside the predicate's that the first file must have, see hold_names
    visit          more that is read of each file while it is open; its value is FileResult.visited
    visit_several  the same of the files of an outline that were decided together, of which the first has this result;
                   None for one to be searched alone. Without it files are searched alone where there is a visit
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
        self.visit_several: Callable[[Files, FileResult, Outline], Sequence[Any]] | None = None
        self._index = index
        if index is not None:
            index.expect(found, options)
        self.evidence: Evidence | None = None

    def ask_log(self) -> None:
        """Apply the predicate to the log, once. Raises RequestError for a name or literal that does not fit."""
        if self.log.first is None:
            return
        try:
            self.log.ask(self.predicate, self.options.nan)
        except RequestError as error:
            raise self.refusal(self.log.first.name, error) from error
        self.hold_names(self.log.leaves, self.log.first.name)

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
            asking = Asking(self.predicate, self.found, self.log, self.options, self.keys, self._first)
            self.evidence = self._index.evidence(asking)
            if (note := self.evidence.note) is not None:
                logger.warning(note)

    @property
    def first(self) -> FirstFile | None:
        """The columns that names mean; None before the first file is searched."""
        return self._first

    @property
    def notes(self) -> list[str]:
        """Notes on comparisons with NULL, on tables of the files, and on files that an index does not cover."""
        of_index = None if self.evidence is None else self.evidence.note
        hints = dict.fromkeys(null_hints(self.predicate))
        return [*hints, *self.found.notes, *([of_index] if of_index is not None else [])]

    def closed(self, data_file: DataFile, version_token: object, n: int) -> NDArray[np.bool_] | None:
        """The row groups, of n, that an index closes in an open file; None where it says nothing."""
        return None if self.evidence is None else closed_groups(self.evidence, data_file, version_token, n)

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

    def note(self, outline: Outline, data_file: DataFile) -> None:
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

"""Indexes as evidence: what a search asks of an index, whatever its kind.

    index= of a function -> open_index: the kind is found out -> Index
    Search               -> Index.evidence: once, over all files -> Evidence
    each file            -> exclusion: it is not opened; or closed: which of its row groups need not be read

Evidence is about certain absence: a row group is closed if the predicate is TRUE for no row of it. It never says that
one is, and what it does not know it leaves open.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.errors import RequestError
from parquet_bloom.options import several
from parquet_bloom.search.log import Exclusion, Log

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

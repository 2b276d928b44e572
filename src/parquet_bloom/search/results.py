"""The result of a search in one file: which row groups can match, and what was read to find that out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.format.outline import Outline
from parquet_bloom.predicates.bind import Bound
from parquet_bloom.predicates.outcomes import TRUE
from parquet_bloom.search.evidence import Decision
from parquet_bloom.search.log import Exclusion, by_index
from parquet_bloom.storage.paths import DataFile


@dataclass(slots=True)
class FileResult:
    """One file and what is known of its row groups; or, without a decision, why it was not opened.

    visited         what Search.visit gave
    of_one_version  what is read of it later is of that same version: all of the file came with one answer of its
                    storage and is still there, or each request names the version
    """

    file: DataFile
    size: int = 0
    outline: Outline | None = None
    decision: Decision | None = None
    bound: Bound | None = None
    requests: int = 0
    bytes_read: int = 0
    version_token: object = None
    excluded: Exclusion | None = None
    visited: Any = None
    of_one_version: bool = False


@dataclass(frozen=True, slots=True)
class UnopenedFiles:
    """Files one behind the other that a key index excludes, or one file that anything excludes.

    row_groups  of the files, as the index has them: int64[files]; None: not known
    why         of the one file; None: the index
    """

    files: Sequence[DataFile]
    row_groups: NDArray[np.int64] | None = None
    why: Exclusion | None = None

    @classmethod
    def of(cls, file: FileResult) -> UnopenedFiles:
        """A file that was not opened."""
        assert file.excluded is not None
        known = file.excluded.row_groups
        return cls([file.file], None if known is None else np.array([known]), file.excluded)

    def __len__(self) -> int:
        return len(self.files)

    def results(self) -> Iterator[FileResult]:
        """The result of each file."""
        if self.why is not None:
            return (FileResult(file, excluded=self.why) for file in self.files)
        assert self.row_groups is not None
        counts = self.row_groups.tolist()
        return (FileResult(file, excluded=by_index(n)) for file, n in zip(self.files, counts, strict=True))


def open_groups(file: FileResult) -> list[int]:
    """The row groups of a file in which a row can match."""
    return [] if file.decision is None else file.decision.open_groups


def sure_groups(file: FileResult) -> list[int]:
    """The row groups of a file in which every row matches."""
    return [] if file.decision is None else [int(i) for i in (file.decision.outcomes == TRUE).nonzero()[0]]


def undecided_groups(file: FileResult) -> list[int]:
    """The row groups of a file in which some rows can match and others not."""
    sure = set(sure_groups(file))
    return [group for group in open_groups(file) if group not in sure]

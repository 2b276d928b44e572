"""The deleted rows of one data file: positions of its deletion vector, of delete files, and those that values delete.

Executors of Spark read them as the library does, so nothing here needs pyiceberg.
Source: Iceberg table spec, "Row-level Deletes".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.storage.remote import Location
from parquet_bloom.tables.iceberg.delete_files import PositionFile, VectorBlob
from parquet_bloom.tables.iceberg.equality import EqualityColumn, EqualityFile, equal_positions


@dataclass(frozen=True, slots=True)
class RowDeletes:
    """The deleted rows of one data file; see tables.snapshot.Deletes.

    path       of the data file, as the log has it
    location   where it lies
    vectors    its deletion vector; more than one only in a table that is wrong
    files      position deletes that may name it
    equality   files with equality deletes for it
    columns    by which these compare
    """

    path: str
    location: Location
    vectors: tuple[VectorBlob, ...] = ()
    files: tuple[PositionFile, ...] = ()
    equality: tuple[EqualityFile, ...] = ()
    columns: Mapping[int, EqualityColumn] = field(default_factory=dict)

    @property
    def rows(self) -> int | None:
        """How many; None: not known before they are read."""
        return self.vectors[0].rows if len(self.vectors) == 1 and not self.equality else None

    def positions(self) -> NDArray[np.int64]:
        """Their positions in the file, from 0, sorted, each once: int64[n].

        Raises TableFormatError for equality deletes that cannot be applied for sure, StorageError, FileError.
        """
        if self.vectors:
            found = [vector.positions() for vector in self.vectors]
        else:
            found = [file.positions(self.path) for file in self.files]
        if self.equality:
            found.append(equal_positions(self.location, self.equality, self.columns))
        return reduce(np.union1d, found, np.empty(0, np.int64))

"""A table at one version, in one form for files, Delta, Iceberg and DuckLake.

    delta:, iceberg:, ducklake:  -> Table -> Snapshot -> TableFile, TableFile, ...
                                                          constants, bounds, buckets: evidence before a file is opened
                                                          deletes: rows of it that are no rows of the table
    new versions of files        -> Change, Change, ...  -> Table.commit

Filters are unknown here. An adapter (tables.delta, tables.iceberg, tables.ducklake) reads one kind of log; the library
of that format is imported there and nowhere else.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.values import Operand
from parquet_bloom.options import CommitMode
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import Location

if TYPE_CHECKING:
    from parquet_bloom.source.history import History
    from parquet_bloom.source.truth import LeafTruth


LeafPath = tuple[str, ...]  # the components of a leaf's name in the table, as `leaves_of` has them


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a table's schema.

    name      as people write it
    type      of the rows that are read
    field_id  by which a file's column is found; None where the format has none
    physical  its name in files, by which it is found where a file has no ids; "" for `name`
    aliases   further names that it has in some of these files: it was renamed since
    children  of a struct its fields, of a list its element, of a map key and value
    default   the value of rows in files that were written before it was added; a NULL unless the format has such
    reused    one name was this column's and another's: a file without ids does not tell which of them it has
    """

    name: str
    type: pa.DataType
    nullable: bool = True
    field_id: int | None = None
    physical: str = ""
    children: tuple[Field, ...] = ()
    default: pa.Scalar | None = None
    aliases: tuple[str, ...] = ()
    reused: bool = False


@dataclass(frozen=True, slots=True)
class FileBounds:
    """A log's bounds of one leaf in one file. A value that is not in [lower, upper] is in no row of the file.

    lower, upper  places in the leaf's order (format.statistics.domain_of): int, float or bytes; None: not known
    null_count    exact, None: not known
    has_values    False: every row is NULL; True where that is not certain
    nan_free      certainly no NaN
    unread        whether the log has bounds that are not known here: their text, or their order
    """

    lower: Any = None
    upper: Any = None
    null_count: int | None = None
    has_values: bool = True
    nan_free: bool = False
    unread: bool = False


class Bucket(Protocol):
    """A partition value that can deny a literal without bounds: then no row of the file equals it."""

    @property
    def path(self) -> LeafPath:
        """The leaf that it speaks of."""

    def admits(self, leaf: Leaf, operand: Operand) -> bool:
        """Whether a row may equal the literal; True too where that is unknown."""


class Deletes(Protocol):
    """The rows of one file that a table has deleted."""

    @property
    def rows(self) -> int | None:
        """How many; None: not known before they are read."""

    def positions(self) -> NDArray[np.int64]:
        """Their positions in the file, from 0, sorted, each once: int64[n]. Raises StorageError, FileError."""


@dataclass(frozen=True, slots=True)
class TableFile(DataFile):
    """A data file of a table, with what its log says of it. `partitions` stay empty: see `constants`.

    rows       that it stores, deleted ones too; None: not known
    size       in bytes, as the log has it
    constants  top-level name -> the one value of all rows, of the field's type: partition values. They hold where the
               file lacks the column or `Snapshot.logged` names it, and are evidence unless `doubtful` names it
    bounds     of leaves of the table's schema
    buckets    other partition values
    deletes    None: every row lives
    fields     of a file whose columns have names of their own, and ids that mean nothing here: the table's fields,
               found in it by `physical` alone; () where `Snapshot.fields` and `by_id` tell
    entry      the adapter's own record of it, for `Table.commit_modes` and `Table.commit`
    stored     False: the log holds these rows itself, and the file is in memory alone
    doubtful   top-level columns of which the file may have another one than the log means, or other values than the
               constant; it is no evidence then
    """

    rows: int | None = field(default=None, compare=False)
    size: int = field(default=0, compare=False)
    constants: Mapping[str, pa.Scalar] = field(default_factory=dict, compare=False)
    bounds: Mapping[LeafPath, FileBounds] = field(default_factory=dict, compare=False)
    buckets: tuple[Bucket, ...] = field(default=(), compare=False)
    deletes: Deletes | None = field(default=None, compare=False)
    fields: tuple[Field, ...] = field(default=(), compare=False)
    entry: Any = field(default=None, compare=False, repr=False)
    stored: bool = field(default=True, compare=False)
    doubtful: Collection[str] = field(default=(), compare=False)

    @property
    def has_log(self) -> bool:
        """Whether it is a table's: it is."""
        return True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table at one version.

    table       as it was named, without a secret
    version     a Delta version, an Iceberg or DuckLake snapshot's id
    fields      of its schema at this version
    by_id       True: a file's columns are found by field id, and by physical name in a file without ids. False: always
                by physical name
    logged      top-level columns whose values are the constants alone, whatever a file has under their names: Delta's
                partition columns. Elsewhere what a file has goes first
    files       in the order of the log
    filter_settings  of the table's properties: "columns" is a list of names, "fpp" name -> rate,
                "max_bytes" a number, "passed_over" texts on properties that say none, "wrong" "fpp" or
                "max_bytes" -> why it cannot be meant; only what is set
    filesystem  of all files
    identity    tells the table from another that was at the same place before; "" where the name alone is enough
    has_log     False: files without a log, the simplest table. It has no name, version and schema; `files` are
                DataFiles, each with its own columns
    memory      values that were derived from `files`, and nothing else; a copy with other files begins without
    """

    table: str
    version: str
    fields: tuple[Field, ...]
    by_id: bool
    files: list[TableFile]
    filter_settings: Mapping[str, Any] = field(default_factory=dict)
    filesystem: Any = None
    logged: frozenset[str] = frozenset()
    identity: str = ""
    has_log: bool = True
    memory: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)


class CommitModes(NamedTuple):
    """How a file of a table may get a new version.

    default          the way that keeps every promise of this table; None: neither does, `refusal` says why
    no_same_path     why the log may not name the same path with another size; "" where it may
    no_new_path      why another file may not take its place; "" where it may
    """

    default: CommitMode | None
    no_same_path: str = ""
    no_new_path: str = ""

    @property
    def refusal(self) -> str:
        """Why neither mode is possible."""
        return "; ".join(dict.fromkeys(reason for reason in (self.no_same_path, self.no_new_path) if reason))


class Change(NamedTuple):
    """One file of a commit.

    file      as the snapshot has it
    location  of its new version: the same path, or another
    size      of that, in bytes
    footer_size  bytes of its Thrift footer, without length and magic
    truth     of leaves whose statistics in the log become these, or are left out where its form cannot say them
    """

    file: TableFile
    location: Location
    size: int
    footer_size: int
    truth: Mapping[LeafPath, LeafTruth] = MappingProxyType({})

    @property
    def same_path(self) -> bool:
        """Whether the file keeps its path and grew, or shrank."""
        return self.location.path == self.file.path


class Table(Protocol):
    """A table that was named: its log at the named version, or at the latest."""

    @property
    def name(self) -> str:
        """As it was named, without a secret."""

    def snapshot(self, stored_only: bool = False) -> Snapshot:
        """Read the log.

        stored_only  without rows that the log holds itself, for who looks at stored files or changes them; else these
                     are files too, in memory, so that nobody who wants rows misses one
        Raises StorageError, TableFormatError for a table with a feature that is not understood.
        """

    def history(self, snapshot: Snapshot) -> History:
        """The history of its files in the log. Raises StorageError, TableFormatError."""

    def stated(self, snapshot: Snapshot) -> Callable[[TableFile], Mapping[LeafPath, FileBounds]]:
        """The statistics of a file that the log states: others may believe what `TableFile.bounds` leaves out."""

    def commit_modes(self, snapshot: Snapshot) -> Mapping[str, CommitModes]:
        """For each file's path, how it may get a new version. Raises TableFormatError where the whole table refuses."""

    def new_location(self, file: TableFile) -> Location:
        """A path that no file of the table has or had, for a version of a file that takes its place."""

    def commit(self, snapshot: Snapshot, changes: Sequence[Change], properties: Mapping[str, str]) -> str:
        """Put new versions of files into the table, in one commit that changes no row; returns the new version.

        properties  what the log tells of the commit, as far as the format can
        Raises ConflictError where another commit, since the snapshot, removed one of the files or deleted rows of one:
        the table is then as that commit left it. StorageError where nothing was committed for another reason.
        """


# --- new names ------------------------------------------------------------------------------------
#
# Names of new versions of a table's files: events.parquet -> events-bloom-UUID.parquet, beside the old one.

_OURS = re.compile(r"(-bloom-[0-9a-f]{32})?(\.parquet)?$")


def new_name(name: str) -> str:
    """A name that no file of any table has or had; a version of a version is named by the first."""
    return f"{first_name(name)}-bloom-{uuid.uuid4().hex}.parquet"


def first_name(name: str) -> str:
    """The common name of all versions of a file: the first one's name, or path, without its ending."""
    return _OURS.sub("", name, count=1)


def location_beside(file: Location) -> Location:
    """A place beside a file, with a new name."""
    name = new_name(file.path.rpartition("/")[2])
    return Location(beside(file.path, name), file.filesystem, beside(file.shown, name) if file.shown else "")


def beside(path: str, new: str) -> str:
    """The last part of one path in the folder of another, whose text stays as it is: relative, or not normalised."""
    return path[: path.rfind("/") + 1] + new[new.rfind("/") + 1 :]

"""What `add` and `remove` did, as values: for people, for JSON, for Spark's rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from parquet_bloom.edit.plan import Skipped
from parquet_bloom.storage.paths import Failed
from parquet_bloom.storage.source import Source
from parquet_bloom.storage.writing.draft import Travel


@dataclass(slots=True, kw_only=True)
class Travelled:
    """What the way between us and a storage cost.

    remote           the file, or its output, is not on a local disk
    bytes_travelled  read from a remote storage, and sent to one
    bytes_copied     of the new file, copied inside the store; they did not travel
    why_travelled    why all unchanged bytes had to travel, where they had to
    """

    remote: bool = False
    bytes_travelled: int = 0
    bytes_copied: int = 0
    why_travelled: str = ""

    def add_travel(self, travel: Travel, source: Source) -> None:
        self.bytes_travelled = travel.sent + (source.bytes_read if source.is_remote else 0)
        self.bytes_copied, self.why_travelled = travel.copied, travel.why


@dataclass(frozen=True, slots=True)
class AddedFilter:
    """One filter that was written.

    offset, length  header and bitset in the new file, bytes; of statistics no offset, and its base64
    num_bytes       of the bitset
    rate            its exact false positive rate; `reached` says whether that is within fpp
    """

    row_group: int
    column: str
    offset: int | None
    length: int
    num_bytes: int
    rate: float
    reached: bool
    estimated_ndv: float


@dataclass(slots=True)
class AddedFile(Travelled):
    """What `add` did to one file, or would do (dry_run)."""

    source: str
    output: str
    row_groups: int
    columns: list[str]
    bytes_before: int
    bytes_after: int = 0
    filters: list[AddedFilter] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    seconds: float = 0.0
    dry_run: bool = False
    planned_filters: int = 0
    planned: dict[str, int] = field(default_factory=dict)  # column -> filters
    planned_bytes: int = 0  # of filters, at most
    bytes_needed: int = 0  # of disk, at most, while the new file is written

    @property
    def filter_bytes(self) -> int:
        return sum(f.length for f in self.filters)


@dataclass(slots=True)
class AddReport:
    """What `add` did: a report a file, and the files among several that failed.

    notes  of tables whose files were changed, as was forced: which readers fail on them
    """

    files: list[AddedFile]
    failed: list[Failed]
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RemovedFile(Travelled):
    """What `remove` did to one file.

    removed      filters that the footer no longer points at
    bytes_stay   how many of them left their bytes behind, because nothing could be cut safely
    """

    source: str
    output: str
    removed: int
    columns: list[str]
    bytes_stay: int
    bytes_before: int
    bytes_after: int
    seconds: float = 0.0
    dry_run: bool = False


@dataclass(slots=True)
class RemoveReport:
    """What `remove` did: a report a file, and the files among several that failed.

    notes  of tables whose files were changed, as was forced: which readers fail on them
    """

    files: list[RemovedFile]
    failed: list[Failed]
    notes: list[str] = field(default_factory=list)

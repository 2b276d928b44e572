"""How far a call is, for a callback that shows it.

    add_filters("events/", in_place=True, progress=lambda p: print(f"{100 * p.share:.0f} %, {p.path}"))

The callback runs in the caller's thread, between two steps of the work. An error that it raises ends the call
as any other error would.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from parquet_bloom.storage.display import Brief
from parquet_bloom.storage.remote import Location


@dataclass(frozen=True, slots=True, repr=False)
class Progress(Brief):
    """One report of a call that works on files.

    stage                  "search" while footers and filters are asked which row groups to read, else "work"
    files_done, files      files that are finished, of how many
    bytes_done, bytes      of the files' sizes (of `read`: of the row groups to read), the finished share of the
                           current file included; None where sizes are not known without asking a storage
    path                   the current file, or the one that was just finished
    parts_done, parts      of the current file; 0 where not counted
    unit                   what the parts are: "filters" (add), "column chunks" (verify), "row groups" (inspect)
    """

    stage: str
    files_done: int
    files: int
    bytes_done: int | None
    bytes: int | None
    path: str
    parts_done: int = 0
    parts: int = 0
    unit: str = ""

    @property
    def share(self) -> float:
        """How much is done, 0 to 1: of bytes where these are known, else of files."""
        if self.bytes:
            return min(1.0, (self.bytes_done or 0) / self.bytes)
        part = self.parts_done / self.parts if self.parts and self.files_done < self.files else 0.0
        return (self.files_done + part) / self.files if self.files else 1.0


ProgressCallback = Callable[[Progress], None]


class Meter:
    """Counts the files of one call, in order, for a callback. Without a callback it does nothing."""

    def __init__(
        self,
        callback: ProgressCallback | None,
        files: Sequence[Location | str] = (),
        stage: str = "work",
        unit: str = "",
    ) -> None:
        self._tell = callback
        self._stage, self._unit = stage, unit
        self._paths: list[str] = []
        self._ends: list[int] | None = None  # bytes of the files up to each one
        self._done = 0
        self._thread = threading.get_ident()
        if callback is not None:
            self._paths = [str(file) for file in files]
            local = [file for file in files if isinstance(file, Location) and file.is_local]
            if len(local) == len(files):
                self._ends = list(accumulate(map(_size, local)))

    def start(self) -> None:
        """The next file is begun."""
        self._report(self._done, 0, 0)

    def part(self, done: int, parts: int) -> None:
        """So many filters or row groups of the current file are done; files that run side by side report no parts."""
        if threading.get_ident() == self._thread:
            self._report(self._done, done, parts)

    def finish(self, files: int = 1) -> None:
        """The current file is finished, or has failed; or so many are, one after the other."""
        if self._tell is None:
            self._done += files
            return
        for _ in range(files):
            self._done += 1
            self._report(self._done, 0, 0)

    def _report(self, files_done: int, done: int, parts: int) -> None:
        if self._tell is None:
            return
        at = min(files_done if parts or not files_done else files_done - 1, len(self._paths) - 1)
        so_far = total = None
        if self._ends:
            total = self._ends[-1]
            so_far = self._ends[files_done - 1] if files_done else 0
            if parts and files_done < len(self._ends):
                so_far += (self._ends[files_done] - so_far) * done // parts
        path = self._paths[at] if self._paths else ""
        self._tell(Progress(self._stage, files_done, len(self._paths), so_far, total, path, done, parts, self._unit))


class RowMeter:
    """Counts the rows of row groups that are read one after the other, and reports bytes and files to a callback.

    files  (path, rows, bytes) of what is to be read of each file, in order
    """

    def __init__(self, callback: ProgressCallback | None, files: Sequence[tuple[str, int, int]]) -> None:
        self._tell = callback
        self._paths = [path for path, _, _ in files]
        self._rows = list(accumulate(rows for _, rows, _ in files))
        self._bytes = sum(size for _, _, size in files)
        self._seen = 0

    def add(self, rows: int) -> None:
        """So many rows more were read."""
        self._seen += rows
        if self._tell is not None and self._paths:
            done = bisect_right(self._rows, self._seen)
            size = self._bytes * self._seen // self._rows[-1] if self._rows[-1] else self._bytes
            path = self._paths[min(done, len(self._paths) - 1)]
            self._tell(Progress("work", done, len(self._paths), size, self._bytes, path))


def _size(file: Location) -> int:
    try:
        return os.stat(file.path).st_size
    except OSError:  # opening it will say so
        return 0

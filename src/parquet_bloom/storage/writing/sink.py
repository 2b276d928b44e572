"""The body of a new version, written from its start to its end: old bytes and new ones in turn."""

from __future__ import annotations

from parquet_bloom.storage.source import Source
from parquet_bloom.storage.writing.new_file import NewVersion


class FileSink:
    """Appends to a new file at a place of its own: copying and other writing may go on side by side."""

    def __init__(self, new: NewVersion, source: Source) -> None:
        self._new, self._source = new, source
        self.at = 0

    def copy(self, start: int, stop: int) -> None:
        self._new.copy_from(self.at, self._source, start, stop)
        self.at += stop - start

    def write(self, data: bytes) -> None:
        self._new.write_at(self.at, data)
        self.at += len(data)

"""Footers that a caller keeps between calls: asking the same files again then reads filters only."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from parquet_bloom.formats.metadata.outline import Outline
from parquet_bloom.storage.shown import counted, line
from parquet_bloom.storage.source import Source


def _store(source: Source) -> Any:
    """An identity of the file system, as far as it has one: the same path on another is another file."""
    return None if not source.is_remote else repr(getattr(source.location.filesystem, "__reduce__", lambda: None)())


class FooterCache:
    """Outlines of footers by path, size, modification time and inode; the least used ones leave.

    A file that was replaced or written to since has another version token and is read anew; on a store that
    tells neither time nor ETag nothing is kept. May be shared by threads.

    max_row_groups  so many are kept, of all files together (some 200 bytes a column each)
    """

    def __init__(self, max_row_groups: int = 1_000_000) -> None:
        self.max_row_groups = max_row_groups
        self._held = 0
        self._outlines: OrderedDict[tuple[Any, str], tuple[Any, Outline]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._outlines)

    def __repr__(self) -> str:
        of = f"{counted(self._held, 'row groups')} of at most {self.max_row_groups:,}"
        return line("FooterCache", [counted(len(self), "files"), of])

    def outline(self, source: Source) -> Outline:
        """The outline of an open file, read if it is not here. Raises as Source.outline."""
        version_token = source.version_token
        if version_token is None:
            return source.outline()
        key = (_store(source), source.path)
        with self._lock:
            held = self._outlines.get(key)
            if held is not None and held[0] == version_token:
                self._outlines.move_to_end(key)
                source.adopt(held[1])
                return held[1]
        outline = source.outline()
        if source.is_cut:  # to be looked at again, by where it ended before
            return outline
        with self._lock:
            old = self._outlines.pop(key, None)
            self._held += outline.n_row_groups - (old[1].n_row_groups if old is not None else 0)
            self._outlines[key] = version_token, outline
            while self._held > self.max_row_groups and len(self._outlines) > 1:
                _, (_, gone) = self._outlines.popitem(last=False)
                self._held -= gone.n_row_groups
        return outline

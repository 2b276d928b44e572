"""One writer of a file at a time: who comes later waits, and then works on the newest version.

The lock (flock) is on the file itself, not on its name, and ends with its process. Programs that do
not take it are noticed at the end all the same, see storage.writing.renaming.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from parquet_bloom.errors import ConflictError
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.source import Source
from parquet_bloom.storage.writing.litter import clear_beside, try_lock
from parquet_bloom.storage.writing.recovery import recover

PATIENCE_S = 60.0
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.002, 0.05


@contextmanager
def opened(file: Location, to_replace: bool) -> Iterator[Source]:
    """Open a file that is to get a new version.

    to_replace  the new version takes its place: wait until no other run works on one
    Raises StorageError; ConflictError where another run takes longer than a minute.
    """
    stop, pause = time.monotonic() + PATIENCE_S, _FIRST_PAUSE_S
    if to_replace and file.is_local:
        # What killed runs left, also where nothing is to be done now. One of them may be a second name of this file,
        # which goes by its lock, and so before we have that.
        clear_beside(file.path, os.path.realpath(file.path))
    while True:
        with Source(file, pin=True) as source:
            if not to_replace or source.fd is None:
                yield source
                return
            if _is_ours(source.fd) and _is_newest(source):
                if recover(source):
                    continue  # it is another version now
                yield source
                return
        if time.monotonic() > stop:
            reason = f"another program holds its lock, as one does that writes it; waited {PATIENCE_S:.0f} seconds"
            raise ConflictError(file, f"{reason}; nothing was written")
        time.sleep(pause)
        pause = min(2 * pause, _LAST_PAUSE_S)


def _is_ours(fd: int) -> bool:
    try:
        return try_lock(fd)
    except OSError:  # a file system, or a system, without locks: the end of the work tells
        return True


def _is_newest(source: Source) -> bool:
    """Whether the path still names what was opened, as it was then."""
    try:
        source.check_unchanged()
    except (ConflictError, OSError):
        return False
    return True

"""The threads of one call: some that decode and hash, one that copies. They serve all its files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, TypeVar

K = TypeVar("K")
R = TypeVar("R")


class Workers:
    """`threads` threads for building filters and one for copying bytes."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._builders = ThreadPoolExecutor(threads, "parquet-bloom")
        self._copier = ThreadPoolExecutor(1, "parquet-bloom-copy")
        self._pending: deque[Future[Any]] = deque()
        self._copying: Future[Any] | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._builders.shutdown(cancel_futures=True)
        self._copier.shutdown(cancel_futures=True)

    def in_order(self, work: Callable[[K], R], keys: Sequence[K]) -> Iterator[R]:
        """Work on keys side by side, a few ahead of the caller, and give the results in order."""
        rest = iter(keys)
        pending: deque[Future[R]] = deque()
        self._pending = pending
        for key in islice(rest, 2 * self.threads):
            pending.append(self._builders.submit(work, key))
        while pending:
            result = pending[0].result()
            pending.popleft()
            for key in islice(rest, 1):
                pending.append(self._builders.submit(work, key))
            yield result

    def copy(self, work: Callable[[], R]) -> Future[R]:
        """Start copying beside the building."""
        self._copying = self._copier.submit(work)
        return self._copying

    def settle(self) -> None:
        """Cancel what has not begun and wait for what has: the file it works on is about to close."""
        waiting = [*self._pending, *([self._copying] if self._copying is not None else [])]
        self._pending, self._copying = deque(), None
        wait([future for future in waiting if not future.cancel()])

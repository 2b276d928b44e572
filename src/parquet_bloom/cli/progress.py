"""How far a command is, on stderr: a bar on a terminal, else a line every ten seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import IO, TYPE_CHECKING, ClassVar

from parquet_bloom.cli.process import go_on
from parquet_bloom.report.text import cells, shortened, visible, width_of

if TYPE_CHECKING:
    from parquet_bloom.storage.progress import Progress

_LINE_EVERY = 10.0  # seconds
_BAR_EVERY = 0.2
_BAR_AFTER = 0.5  # a command that ends sooner shows none
_BAR_CELLS = 20


class Watch:
    """Shows the last thing it was told, until it is closed.

        with Watch("verify") as watch:
            verify(files, progress=watch.files)

    A terminal gets one line that is rewritten and goes away at the end; everything else gets a line every ten
    seconds: "verify: 120 of 3,000 files, 1.2 GiB of 30.0 GiB, 00:40 left". A command that ends sooner shows
    nothing. `tell` may be called from any thread.
    """

    _shown: ClassVar[Watch | None] = None  # the one that may have drawn a bar

    def __init__(self, name: str, quiet: bool = False, file: IO[str] | None = None) -> None:
        self._name = name
        self._file = file or sys.stderr
        self._terminal = self._file.isatty()
        self._started = time.monotonic()
        self._text: Callable[[], str] = lambda: ""
        self._share: float | None = None
        self._drawn = False
        self._over = threading.Event()
        self._drawing = threading.RLock()
        self._thread: threading.Thread | None = None
        if not quiet:
            self._thread = threading.Thread(target=self._run, name="parquet-bloom-progress", daemon=True)

    def __enter__(self) -> Watch:
        if self._thread is not None:
            with suppress(RuntimeError):  # no memory for a thread: nothing is shown
                self._thread.start()
        Watch._shown = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def tell(self, text: str | Callable[[], str], share: float | None = None) -> None:
        """What to show from now on.

        text   in words, or what makes the words when they are shown
        share  how much is done, 0 to 1; None: not known, so neither a bar nor the time left
        """
        self._text = text if callable(text) else lambda: text
        self._share = share

    def files(self, progress: Progress) -> None:
        """Show the progress of a call of the library; to be given as its `progress`."""
        go_on()
        self.tell(lambda: in_words(progress), progress.share)

    def close(self) -> None:
        """Take the bar away; nothing is shown any more. May be called twice."""
        self._over.set()
        if self._thread is not None and self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        with self._drawing:
            self._erase()

    @staticmethod
    @contextmanager
    def room() -> Iterator[None]:
        """Take the bar away for lines of others on the terminal; it comes back below them."""
        shown = Watch._shown
        if shown is None:
            yield
            return
        with shown._drawing:
            shown._erase()
            yield

    def _erase(self) -> None:
        if self._drawn:
            self._write("\r\x1b[K")
            self._drawn = False

    def _run(self) -> None:
        if self._over.wait(_BAR_AFTER if self._terminal else _LINE_EVERY):
            return
        while True:
            with self._drawing:
                self._draw()
            if self._over.wait(_BAR_EVERY if self._terminal else _LINE_EVERY):
                return

    def _draw(self) -> None:
        text = visible(self._text())
        if not text:
            return
        left = self._time_left()
        whole = f"{text}, {left} left" if left else text
        if not self._terminal:
            self._write(f"{self._name}: {whole}\n")
            return
        full = round(_BAR_CELLS * (self._share or 0.0))
        bar = f"{'━' * full}{'·' * (_BAR_CELLS - full)} " if self._share is not None else ""
        line = shortened(f"{self._name}: {bar}{whole}", width_of(self._file, least=1) - 1)
        self._write(f"\r{line}\x1b[K")
        self._drawn = cells(line) > 0

    def _time_left(self) -> str:
        seconds = time.monotonic() - self._started
        if not self._share or seconds < 1:
            return ""
        minutes, rest = divmod(round(seconds / self._share * (1 - self._share)), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"

    def _write(self, text: str) -> None:
        try:
            self._file.write(text)
            self._file.flush()
        except (OSError, ValueError):  # nobody looks any more, or not in this encoding
            self._over.set()


def in_words(progress: Progress) -> str:
    """120 of 3,000 files, 1.2 GiB of 30.0 GiB"""
    from parquet_bloom.report.tables import size

    words = []
    if progress.files > 1 or not progress.parts:
        words.append(f"{progress.files_done:,} of {progress.files:,} files")
    elif progress.stage == "work":
        words.append(f"{progress.parts_done:,} of {progress.parts:,} {progress.unit}")
    if progress.bytes:
        words.append(f"{size(progress.bytes_done or 0)} of {size(progress.bytes)}")
    return ("looking, " if progress.stage == "search" else "") + ", ".join(words)

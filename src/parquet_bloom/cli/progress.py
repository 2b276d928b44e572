"""How far a command is, on stderr: a bar on a terminal, else a line every ten seconds; with -v what it logs."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, ClassVar

from parquet_bloom.cli.process import go_on, talk
from parquet_bloom.report.text import cells, inert, painted, shortened, visible, width_of
from parquet_bloom.storage.display import without_secret

if TYPE_CHECKING:
    from parquet_bloom.spark.sessions import JobProgress
    from parquet_bloom.storage.workers import Progress

_LINE_EVERY = 10.0  # seconds
_BAR_EVERY = 0.2
_BAR_AFTER = 0.5  # a command that ends sooner shows none
_BAR_CELLS, _BAR_LEAST = 20, 8


class Watch:
    """Shows the last state that was reported, until it is closed.

        with Watch("verify") as watch:
            verify(files, progress=watch.files)

    A terminal gets one line that is rewritten and goes away at the end; everything else, and one that knows no
    codes (TERM=dumb), gets a line every ten seconds: "verify: 120 of 3,000 files, 1.2 GiB of 30.0 GiB,
    31.4 MiB/s, 00:40 left". A command that ends sooner shows nothing, as one does with --quiet. `tell` may be
    called from any thread.
    """

    _shown: ClassVar[Watch | None] = None  # the one that may have drawn a bar

    def __init__(self, name: str, quiet: bool = False, file: IO[str] | None = None) -> None:
        self._name = name
        self._file = file or sys.stderr
        self._terminal = self._file.isatty() and os.environ.get("TERM") != "dumb"
        self._started = time.monotonic()
        self._text: Callable[[], str] = lambda: ""
        self._share: float | None = None
        self._done = _Done()
        self._drawn = False
        self._over = threading.Event()
        self._drawing = threading.RLock()
        self._thread: threading.Thread | None = None
        if not (quiet or talk.quiet):
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
        """Set the text to show from now on.

        text   in words, or what makes the words when they are shown
        share  how much is done, 0 to 1; None: not known, so neither a bar nor the time left
        """
        self._text = text if callable(text) else lambda: text
        self._share = share

    def poll(self, look: Callable[[], tuple[str, float | None]]) -> None:
        """Show from now on what a function says, as `tell` has it, whenever something is shown."""

        def text() -> str:
            words, self._share = look()
            return words

        self._text = text

    def files(self, progress: Progress) -> None:
        """Show the progress of a call of the library, as its `progress`."""
        go_on()
        if progress.stage != self._done.stage or progress.share < (self._share or 0.0):  # another part of the work
            self._done = _Done(progress.stage)
            self._started = time.monotonic()
        self._done.log(self._name, progress)
        self.tell(lambda: f"{in_words(progress)}, {self._rate(progress)}".removesuffix(", "), progress.share)

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
        told = [part for part in (*text.split(", "), self._time()) if part]
        if self._terminal:
            self._write(f"\r{self._line(told)}\x1b[K")
            self._drawn = True
        else:
            self._write(f"{self._name}: {', '.join(told)}\n")

    def _line(self, told: list[str]) -> str:
        """Fit one line to the terminal: shorten the text, then drop the bar, then everything."""
        room = width_of(self._file, least=1) - 1
        head = shortened(f"{self._name}: ", room)
        room -= cells(head)
        least = 0 if self._share is None else _BAR_LEAST + 1
        while len(told) > 2 and cells(", ".join(told)) > room - least:
            del told[-3]
        words = shortened(", ".join(told), max(0, room))
        width = min(_BAR_CELLS, room - cells(words) - 1)
        if self._share is None or width < _BAR_LEAST:
            return head + words
        full = round(width * self._share)
        done, rest = painted("━" * full, "green", self._file), painted("·" * (width - full), "dim", self._file)
        return f"{head}{done}{rest} {words}"

    def _time(self) -> str:
        """The remaining time, as 00:40; the time so far where nothing is done yet, or the whole is unknown."""
        seconds = time.monotonic() - self._started
        if seconds < 1:
            return ""
        if not self._share:
            return _clock(seconds)
        return f"{_clock(seconds / self._share * (1 - self._share))} left" if self._share < 1 else "finishing"

    def _rate(self, progress: Progress) -> str:
        """31.4 MiB/s, or 12 files/s where sizes are not known; nothing in the first second."""
        from parquet_bloom.report.text import size

        seconds = time.monotonic() - self._started
        if seconds < 1 or progress.share >= 1:
            return ""
        if progress.bytes:
            return f"{size(round(progress.bytes_done / seconds))}/s" if progress.bytes_done else ""
        rate = progress.files_done / seconds
        return f"{rate:,.{1 if rate < 10 else 0}f} files/s" if rate else ""

    def _write(self, text: str) -> None:
        try:
            self._file.write(text)
            self._file.flush()
        except (OSError, ValueError):  # nobody looks any more, or not in this encoding
            self._over.set()


@contextmanager
def watched(spark: Any, name: str) -> Iterator[JobProgress | None]:
    """Show how far the jobs of a Spark session are; gives what `spark.add` counts with, None on Spark Connect."""
    from parquet_bloom.spark.sessions import counted

    with counted(spark) as (job, look), Watch(name) as watch:
        watch.poll(look)
        yield job


class _Done:
    """The log of a stage: a line a file, and one a step of a file."""

    def __init__(self, stage: str = "") -> None:
        self.stage = stage
        self._files = 0

    def log(self, name: str, progress: Progress) -> None:
        if not talk.verbose:
            return
        path = str(without_secret(progress.path))
        if progress.files_done > self._files:
            self._files = progress.files_done
            verb = "looked at" if progress.stage == "search" else "done with"
            _log(name, "info", f"{verb} {path}, {progress.files_done:,} of {progress.files:,}")
        elif progress.parts:
            _log(name, "debug", f"{path}: {progress.parts_done:,} of {progress.parts:,} {progress.unit or 'parts'}")


def _log(name: str, level: str, text: str) -> None:
    """One line of the command's own among those that the library logs."""
    if talk.verbose:
        import logging

        getattr(logging.getLogger("parquet_bloom.cli"), level)("%s: %s", name, text)


def log_as_lines(verbose: int) -> Callable[[], None]:
    """Print what the package logs as lines on stderr: INFO, from 2 on DEBUG. Returns what ends it."""
    import logging

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = inert(visible(without_secret(" ".join(record.getMessage().split()))))
            with Watch.room(), suppress(OSError, ValueError):
                level = record.levelname.lower()
                sys.stderr.write(f"parquet-bloom: {level}, {record.relativeCreated / 1000:.2f} s: {text}\n")

    logger, handler = logging.getLogger("parquet_bloom"), Lines()
    before = logger.level, list(logger.handlers)
    for other in before[1]:
        if type(other).__name__ == "Lines":  # of -v before the command's name; this one is for both
            logger.removeHandler(other)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if verbose > 1 else logging.INFO)

    def end() -> None:
        logger.removeHandler(handler)
        logger.setLevel(before[0])

    return end


def _clock(seconds: float) -> str:
    """00:40, 1:02:03"""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def in_words(progress: Progress) -> str:
    """120 of 3,000 files, 1.2 GiB of 30.0 GiB"""
    from parquet_bloom.report.text import plural, size

    words = []
    if progress.files > 1 or not progress.parts:
        words.append(f"{progress.files_done:,} of {plural(progress.files, 'file')}")
    elif progress.stage == "work":
        words.append(f"{progress.parts_done:,} of {progress.parts:,} {progress.unit}")
    if progress.bytes:
        words.append(f"{size(progress.bytes_done or 0)} of {size(progress.bytes)}")
    return ("looking, " if progress.stage == "search" else "") + ", ".join(words)

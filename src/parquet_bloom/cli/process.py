"""The command as a process: how much it prints, the signals that end it, and its exit."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_PATIENCE = 1.0  # seconds: a Control-C later than this after the first signal does not wait for the clean-up
_asked: list[int] = []
_asked_at = 0.0


class Talk:
    """How much the command prints: `quiet`, errors alone; `verbose`, 1 the library's log, 2 its steps as well."""

    quiet = False
    verbose = 0


talk = Talk()


def listen() -> None:
    """Take Control-C, SIGTERM and SIGHUP: work ends, and unfinished files are removed."""
    for number in _SIGNALS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):  # nohup: it is ignored
            signal.signal(number, _stop)


def _stop(number: int, _: object) -> None:
    global _asked_at
    if not _asked:
        _asked.append(number)
        _asked_at = time.monotonic()
        raise KeyboardInterrupt
    # A terminal that closes and timeout(1) send the signal twice: the second must not interrupt the clean-up.
    if number == signal.SIGINT and time.monotonic() - _asked_at > _PATIENCE:
        os._exit(128 + number)  # a temporary file that stays is removed by the next run


def ending_signal() -> int | None:
    """The number of the signal that is to end the command, or None."""
    return _asked[0] if _asked else None


def go_on() -> None:
    """End the command between two steps of its work, after a signal.

    The exception of a signal is raised wherever the main thread is, and is lost where that is code which cannot
    fail: a finaliser, or a function that a C library calls back.
    """
    if _asked:
        raise KeyboardInterrupt


def leave_with(status: Callable[[], int]) -> None:
    """When the interpreter ends, do not wait for it to be taken apart.

    Threads of Arrow may hold bytes of Python's a moment longer than the command takes. To let them go
    they ask for the lock of an interpreter that is gone by then, and the process aborts after its work
    was done (apache/arrow#36389, #45214); one that waits for batches from Python never ends. docs/architecture.md,
    "Workarounds", says when this can go. What is given to atexit from here on is called before.
    """

    def leave() -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(status())

    atexit.register(leave)  # the last one registered is the first one called


def leave_after_signal() -> None:
    """End the process, if a signal ended its work, without waiting for threads.

    sys.exit joins those of pools before it calls what is registered with atexit, and one may wait for a store that
    does not answer. Whoever must not leave a file half written has waited by now.
    """
    if _asked:
        atexit._run_exitfuncs()  # the last one is that of leave_with

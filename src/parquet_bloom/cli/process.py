"""The command as a process of its own: the signals that end it, and how it leaves."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows has one
_asked: list[int] = []


def listen() -> None:
    """Take SIGTERM and SIGHUP as Control-C is taken: work is given up, and what is unfinished goes."""
    for number in _SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup: it is ignored
            signal.signal(number, _stop)


def _stop(number: int, _: object) -> NoReturn:
    # A terminal that closes, and `timeout`, say it twice; giving up must not be cut short by the second time.
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    _asked.append(number)
    raise KeyboardInterrupt


def asked_to_end() -> int | None:
    """The signal that did."""
    return _asked[0] if _asked else None


def leave_with(status: Callable[[], int]) -> None:
    """When the interpreter ends, do not wait for it to be taken apart.

    Threads of Arrow may hold bytes of Python's a moment longer than the command takes. To let them go
    they ask for the lock of an interpreter that is gone by then, and the process aborts after its work
    was done (apache/arrow#36389, #45214). What is given to atexit from here on is called before.
    """

    def leave() -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(status())

    atexit.register(leave)  # the last one registered is the first one called

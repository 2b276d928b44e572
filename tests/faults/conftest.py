"""The fault harness needs a compiler of C and Linux; how much of it runs is an option of pytest's own: -m."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from faulty import Forks, compiled


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    if not sys.platform.startswith("linux"):
        pytest.skip("system calls are met by LD_PRELOAD, as Linux has it")
    folder = tmp_path_factory.mktemp("faults")
    try:
        library = compiled(folder)
    except FileNotFoundError:
        pytest.skip("there is no C compiler (cc) here")
    running = Forks(library, folder)
    try:
        running.learn(folder)
        yield running
    finally:
        running.close()

"""Fixtures that several folders of tests use."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from support.object_store import ObjectStore

# A script's `&` and nohup have a program ignore Control-C, and all that it starts; tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Workers of pytest and hundreds of processes that tests start import the same modules: each module is compiled once,
# also where the environment, as in many containers, says that bytecode is not kept.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Nobody asks the address at which a cloud's machine finds its credentials: elsewhere each try waits for seconds.
os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")

# Spark's programs end here before Java's second compiler and its parallel collector pay: half of a session's start.
# Without these options, as users start it: spark/test_unactivated.py, and `.ci/bare spark`.
for _name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(_name, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


gc.disable()  # until all is collected: imports and tests stay, and would be looked through again and again


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With -m smoke, modules that have no such test: to collect all took longer than these tests do."""
    if config.option.markexpr == "smoke" and collection_path.suffix == ".py":
        return True if "mark.smoke" not in collection_path.read_text() else None
    return None


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: the garbage collector passes over them, half a second each time."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    """S3 on loopback, for the tests of a module."""
    from support.object_store import serving  # moto, which the tests of other Pythons and of lower bounds do without

    with serving() as running:
        yield running


@pytest.fixture
def bucket(store: ObjectStore, request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty bucket, named as the test, and gone after it."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:50]
    store.client.create_bucket(Bucket=name)
    yield name
    store.wire.before = None
    store.drop(name)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, for tests of a module that has browsers.needs_chromium."""
    from support.chromium import started  # playwright, which the tests of other Pythons do without

    with started() as running:
        yield running

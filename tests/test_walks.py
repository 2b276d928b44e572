"""A warm call runs through few modules: who follows one with a finger turns few pages."""

from __future__ import annotations

from pathlib import Path

import pytest
import walks

# call -> modules at the most; tests/walks.py names them
MOST = {
    "check": 28,
    "prune": 37,
    "read_table": 36,
    "inspect": 29,
    "verify": 35,
    "add_filters": 56,
    "remove_filters": 42,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("walks")
    walks.write_files(folder)
    return folder


@pytest.mark.parametrize("name", MOST)
def test_a_call_walks_few_modules(name: str, folder: Path) -> None:
    call = walks.calls_over(folder)[name]
    call()
    modules, count = walks.walked(call)
    assert modules, "functions of the package are seen"
    assert count > 100
    assert len(modules) <= MOST[name], modules

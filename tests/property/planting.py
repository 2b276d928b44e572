"""A plugin of pytest: plants each bug of file_mutants.py that MUTANTS_OF names, and runs the test that is to find it.

    MUTANTS_OF=edit SURVIVORS=out.json python -m pytest -n 0 -p planting NODE IDS

All in one process, so a bug costs its test and nothing else. What failed then runs once more without a bug: a test that
fails again would find any.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from file_mutants import mutants_of
from mutants import planted


def passes(item: pytest.Item) -> bool:
    """Whether a test passes, with fixtures of its own."""
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """In the place of pytest's own loop."""
    survivors, found_by = [], {}
    for mutant, test in mutants_of(os.environ["MUTANTS_OF"]):
        # One of a test's parameters is enough.
        own = [item for item in session.items if item.nodeid == test or item.nodeid.startswith(f"{test}[")]
        with planted(mutant):
            failed = next((item for item in own if not passes(item)), None)
        if failed is None:
            survivors.append(mutant.name)
        else:
            found_by[failed.nodeid] = failed
    wrong = [name for name, item in found_by.items() if not passes(item)]
    Path(os.environ["SURVIVORS"]).write_text(json.dumps({"survivors": survivors, "fail without a bug": wrong}))
    return True

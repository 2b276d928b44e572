"""pyproject.toml and the scripts of CI say the same where they say a thing twice."""

from __future__ import annotations

import csv
import re
import tomllib
from collections import Counter
from typing import Any

from samples import REPOSITORY

WRITTEN = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def members(group: str) -> set[str]:
    """The requirements of a dependency group and of those that it includes."""
    found: set[str] = set()
    for each in WRITTEN["dependency-groups"][group]:
        entry: Any = each
        found |= {entry} if isinstance(entry, str) else members(entry["include-group"])
    return found


def test_the_extra_dev_is_the_group_dev() -> None:
    extra = WRITTEN["project"]["optional-dependencies"]["dev"]
    assert len(set(extra)) == len(extra)
    assert set(extra) == members("dev"), "pip before 25.1 installs the one, uv and newer pips the other"


def test_the_pythons_of_the_classifiers_are_those_that_ci_runs() -> None:
    prefix = "Programming Language :: Python :: "
    named = [c.removeprefix(prefix) for c in WRITTEN["project"]["classifiers"] if re.match(rf"{prefix}3\.", c)]
    (run,) = re.findall(r"for each in ((?:3\.\d+ )+)lowest", (REPOSITORY / ".ci" / "versions").read_text())
    assert named == run.split()
    workflow = (REPOSITORY / ".github" / "workflows" / "ci.yml").read_text()
    (matrix,) = re.findall(r"python: \[(.*)\]", workflow)
    assert [*re.findall(r"[\d.]+", matrix)] == named[1:], "the oldest is the one of .ci/run"
    assert WRITTEN["project"]["requires-python"] == f">={named[0]}"


def test_contributors_are_told_where_the_files_of_other_projects_are() -> None:
    with (REPOSITORY / "fixtures" / "others.tsv").open(newline="") as file:
        counts = Counter(row["repository"] for row in csv.DictReader(file, delimiter="\t"))
    told = re.findall(r"^\| \[([^]]+)\]\(https://github\.com/\1\) \| (\d+) \|$",
                      (REPOSITORY / "CONTRIBUTING.md").read_text(), re.MULTILINE)  # fmt: skip
    assert {name: int(count) for name, count in told} == counts

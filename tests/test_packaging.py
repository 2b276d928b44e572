"""pyproject.toml and the scripts of CI say the same where they say a thing twice."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from support.commands import command
from support.samples import REPOSITORY

from parquet_bloom._version import __version__

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


# --- hashes ---------------------------------------------------------------------------------------------------------

REQUIREMENTS = REPOSITORY / ".ci" / "requirements"
HASHED = sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


def names_in(lines: list[str]) -> set[str]:
    """The packages that requirements name."""
    found = {re.split(r"[\s\[<>=;~!@]", line.strip(), maxsplit=1)[0].lower() for line in lines}
    return {re.sub(r"[-_.]+", "-", name) for name in found if name and not name.startswith(("#", "-"))}


def wanted(name: str) -> list[str]:
    return (REQUIREMENTS / f"{name}.in").read_text().splitlines()


def pins(name: str) -> list[str]:
    """The entries of a file of hashes, each with its lines joined."""
    text = (REQUIREMENTS / f"{name}.txt").read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def test_there_is_a_file_of_hashes_for_each_list() -> None:
    assert {"docs", "try", "wheel"} == set(HASHED) == {path.stem for path in REQUIREMENTS.glob("*.in")}


def test_each_pinned_package_has_a_version_and_hashes() -> None:
    for name in HASHED:
        for entry in pins(name):
            assert re.match(r"[a-z0-9.-]+==[\w.!+]+ ", entry), entry
            assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry
        assert names_in(wanted(name)) <= names_in(pins(name)), f"renew {name}, as CONTRIBUTING.md says"


def test_the_lists_are_those_of_pyproject() -> None:
    assert {line for line in wanted("docs") if not line.startswith("#")} == members("docs")
    assert set(WRITTEN["build-system"]["requires"]) <= set(wanted("wheel"))


def test_what_is_published_is_built_by_hashed_packages_alone() -> None:
    """Each install is by hash, or of the wheel and what it depends on, after the files are left."""
    script = (REPOSITORY / ".ci" / "wheel").read_text()
    built, _, tried = script.partition("exit; }\n\n# As a user runs it")
    assert tried, "what uvx and pipx fetch comes after --build-only has ended"
    for line in re.findall(r"^.*\bpip\"? install\b.*$", built, re.MULTILINE):
        assert "--require-hashes" in line, line
    assert "uvx --" not in built
    assert all("--no-isolation" in line for line in re.findall(r"^.* -m build .*$", script, re.MULTILINE))
    workflows = {path.name: path.read_text() for path in (REPOSITORY / ".github" / "workflows").glob("*.yml")}
    lines = "\n".join(workflows.values()).splitlines()
    installs = [line.strip() for line in lines if "pip install" in line]
    assert len(installs) == 3
    of_the_wheel = [line for line in installs if "--require-hashes" not in line]
    assert of_the_wheel == ['python -m pip install --quiet "$(echo dist/*.whl)[s3,lance]"']
    assert re.findall(r"\.ci/wheel.*", workflows["release.yml"]) == [".ci/wheel --build-only dist"]


# --- releases -------------------------------------------------------------------------------------------------------


def released(
    tmp_path: Path, tag: str, changes: str, readme: str = "", on_pypi: bool = True
) -> subprocess.CompletedProcess[str]:
    """The script `.ci/release` in a tree with this changelog and README and this switch, and this project's version."""
    for path in (".ci/release", "src/parquet_bloom/_version.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / path, tmp_path / path)
    (tmp_path / "CHANGELOG.md").write_text(changes)
    (tmp_path / "README.md").write_text(readme)
    extras = (REPOSITORY / "src" / "parquet_bloom" / "extras.py").read_text()
    switched, count = re.subn(r"^ON_PYPI = \w+$", f"ON_PYPI = {on_pypi}", extras, flags=re.MULTILINE)
    assert count == 1
    (tmp_path / "src" / "parquet_bloom" / "extras.py").write_text(switched)
    return subprocess.run(
        [sys.executable, tmp_path / ".ci" / "release", tag], capture_output=True, text=True, check=False
    )


DATED = f"# Changelog\n\n## {__version__} (2026-12-01)\n\nThe notes.\n\n- One.\n\n## 0.0.9 (2026-11-01)\n\nOlder.\n"


def test_the_changelog_s_section_of_a_tag_becomes_its_notes(tmp_path: Path) -> None:
    found = released(tmp_path, f"v{__version__}", DATED)
    assert (found.returncode, found.stdout) == (0, "The notes.\n\n- One.\n"), found.stderr


def test_what_is_not_ready_is_not_released(tmp_path: Path) -> None:
    tag, head = f"v{__version__}", f"## {__version__} (2026-12-01)"
    for told, given, more in (
        ("_version.py says", ("v9.9.9", DATED), {}),
        ("_version.py says", (__version__, DATED), {}),
        ("has no section", (tag, f"## Unreleased ({__version__})\n\nThe notes.\n"), {}),
        ("has no section", (tag, f"{head}\n\n## 0.0.9 (2026-11-01)\n\nOlder.\n"), {}),
        ("README.md", (tag, DATED), {"readme": "It is not on PyPI yet; from a checkout:"}),
        ("extras.py says ON_PYPI = False", (tag, DATED), {"on_pypi": False}),
    ):
        found = released(tmp_path, *given, **more)
        assert (found.returncode, found.stdout) == (1, ""), given
        assert told in found.stderr, given


def test_the_command_says_the_one_version() -> None:
    assert command("--version").stdout.split()[-1] == __version__
    assert "version" in WRITTEN["project"]["dynamic"], "a second place would have to be kept up to date"
    assert WRITTEN["tool"]["hatch"]["version"]["path"] == "src/parquet_bloom/_version.py"


def test_actions_of_others_are_named_by_their_commits() -> None:
    for workflow in (REPOSITORY / ".github" / "workflows").glob("*.yml"):
        for action in re.findall(r"uses: (.*)", workflow.read_text()):
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}  # v[\d.]+", action), (
                f"{workflow.name}: a tag can be moved"
            )


def test_containers_are_named_by_digests() -> None:
    named = [
        container
        for workflow in (REPOSITORY / ".github" / "workflows").glob("*.yml")
        for container in re.findall(r"(?:container|image): (.*)", workflow.read_text())
    ]
    assert named, "the pattern meets the workflows"
    assert [one for one in named if not re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", one)] == []


def test_no_link_of_the_readme_leads_nowhere_on_pypi() -> None:
    text = (REPOSITORY / "README.md").read_text()
    for each in WRITTEN["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    assert "the tutorial" in re.sub(r"\s+", " ", text), "the text of a link stays"
    assert [link for link in re.findall(r"\]\(([^)]*)\)", text) if not link.startswith(("https://", "#"))] == []

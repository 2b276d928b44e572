"""What messages say about packages that are missing can be typed, and gives what the extras of pyproject.toml give."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support.samples import REPOSITORY

from parquet_bloom import extras

EXTRAS: dict[str, list[str]] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
OURS = sorted(EXTRAS.keys() - {"dev"})
# A command that fetches this project's name from PyPI, and an instruction that means one.
FROM_PYPI = re.compile(
    r"\b(?:install|uvx|uv add|pipx run)\b[^\n`]{0,40}?\bparquet[-_]bloom(?=\[|'|\"|\s*$|`)", re.MULTILINE
)


def typed(command: str) -> list[Requirement]:
    """The requirements of a `pip install` command, as a shell splits it."""
    pip, install, *names = shlex.split(command)
    assert (pip, install) == ("pip", "install")
    return [Requirement(name) for name in names]


def test_the_packages_are_those_of_the_extras() -> None:
    assert sorted(extras.PACKAGES) == OURS
    for extra, packages in extras.PACKAGES.items():
        assert sorted(packages) == sorted(EXTRAS[extra]), extra


def test_a_hint_before_the_release_names_packages_with_their_bounds_and_after_it_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for extra in OURS:
        monkeypatch.setattr(extras, "ON_PYPI", False)
        assert set(map(str, typed(extras.to_install(extra)))) == {str(Requirement(name)) for name in EXTRAS[extra]}
        assert extras.to_install_ourselves(extra) == f"pip install '.[{extra}]' in a checkout"
        monkeypatch.setattr(extras, "ON_PYPI", True)
        assert extras.to_install(extra) == extras.to_install_ourselves(extra) == f"pip install 'parquet-bloom[{extra}]'"
        [wanted] = typed(extras.to_install(extra))
        assert (wanted.name, wanted.extras) == ("parquet-bloom", {extra})


def test_an_unknown_extra_has_no_hint() -> None:
    with pytest.raises(KeyError):
        extras.to_install("dleta")


def test_the_extra_for_catalogs_in_sql_brings_sqlalchemy() -> None:
    from importlib.metadata import requires

    [wanted] = [Requirement(name) for name in shlex.split(extras.SQL_CATALOG)]
    brought = [Requirement(line) for line in requires(wanted.name) or ()]
    for extra, has in ((*wanted.extras, True), ("pyarrow", False)):
        names = {one.name for one in brought if one.marker is not None and one.marker.evaluate({"extra": extra})}
        assert ("sqlalchemy" in names) == has, extra


def texts() -> Iterator[tuple[Path, str]]:
    """The texts that people and machines take commands from, but the one place that decides it."""
    for name in ("src", "docs", ".ci", ".github"):
        for path in sorted((REPOSITORY / name).rglob("*")):
            if path.suffix in ("", ".py", ".md", ".yml", ".html", ".txt") and path.is_file():
                yield path, path.read_text(encoding="utf-8")
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "mkdocs.yml"):
        yield REPOSITORY / name, (REPOSITORY / name).read_text(encoding="utf-8")


def test_nothing_else_sends_people_to_pypi_for_this_name() -> None:
    """Before the release nowhere; after it the documentation may, but messages take it from extras.py."""
    commands = (
        *("pip install 'parquet-bloom[delta]'", "install parquet-bloom[spark] for", "pip install parquet-bloom\n"),
        *("uv tool install parquet_bloom", "`uvx parquet-bloom`", 'pipx install "parquet-bloom"'),
    )
    assert [command for command in commands if not FROM_PYPI.search(command)] == []
    of_the_switch = {Path(extras.__file__).resolve(), REPOSITORY / "CONTRIBUTING.md"}
    found = {
        str(path.relative_to(REPOSITORY)): hits
        for path, text in texts()
        if path not in of_the_switch and (not extras.ON_PYPI or "src" in path.relative_to(REPOSITORY).parts)
        and (hits := FROM_PYPI.findall(text))
    }  # fmt: skip
    assert found == {}


# What each command or call needs; the package that is missing; what the message says of it.
LACKING = [
    ("spark", "pyspark", ["spark", "inspect", "x.parquet"], "Spark needs pyspark and pandas: {}"),
    (
        "lance",
        "lance",
        ["index", "build", "--kind", "lance", "x.parquet", "-c", "id", "-o", "index"],
        "a zone index needs pylance; {}",
    ),
    ("delta", "deltalake", ["add", "delta:table", "-c", "id"], "delta: a commit needs deltalake; {}"),
    ("iceberg", "pyiceberg", ["check", "iceberg:cat/ns.t", "id = 5"], "iceberg: needs pyiceberg; {}"),
    ("ducklake", "duckdb", ["check", "ducklake:lake.duckdb/main.t", "id = 5"], "ducklake: needs duckdb; {}"),
]


BEFORE = {
    "deltalake": 'import deltalake; deltalake.write_deltalake("table", pa.table({"id": [1, 2]}))',
    "duckdb": 'import duckdb; duckdb.connect("lake.duckdb").close()',
}


def told_without(module: str, arguments: list[str], folder: Path, on_pypi: bool) -> str:
    """What a command says, in a line, in a process that cannot import a module; its exit status must be 2."""
    code = f"""
import sys
import pyarrow as pa, pyarrow.parquet as pq
pq.write_table(pa.table({{"id": [1]}}), "x.parquet")
{BEFORE.get(module, "")}
for name in [name for name in sys.modules if name.split(".")[0].lstrip("_") == {module!r}]:
    del sys.modules[name]
sys.modules[{module!r}] = None
from parquet_bloom import extras
extras.ON_PYPI = {on_pypi}
from parquet_bloom.cli import main
sys.argv[1:] = {arguments!r}
sys.exit(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    [line] = done.stderr.splitlines()
    return line


def test_a_command_without_a_package_says_what_to_type(tmp_path: Path) -> None:
    """A release says what `to_install` gives, above; one command shows that messages take it from there."""
    for extra, module, arguments, said, on_pypi in (*((*case, False) for case in LACKING), (*LACKING[2], True)):
        folder = tmp_path / f"{extra}-{on_pypi}"
        folder.mkdir()
        wanted = f"pip install 'parquet-bloom[{extra}]'" if on_pypi else extras.to_install(extra)
        assert said.format(wanted) in told_without(module, arguments, folder, on_pypi), extra


def test_a_catalog_in_sql_without_sqlalchemy_names_pyiceberg_s_extra_and_nothing_else(tmp_path: Path) -> None:
    sql = ["--catalog-property", "type=sql", "--catalog-property", f"uri=sqlite:///{tmp_path}/catalog.db"]
    line = told_without("sqlalchemy", ["check", "iceberg:cat/ns.t", "id = 5", *sql], tmp_path, False)
    assert line.endswith(f"pip install {extras.SQL_CATALOG}"), "to configure the catalog is no remedy"

"""Which folder may import which, how long a module may be, and what importing the package loads.

    kernels < formats < predicates < files < spark < report < cli

A folder imports itself and the folders before it; errors, limits, _thrift and _version are for all.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import parquet_bloom
import parquet_bloom.formats

PACKAGE = Path(parquet_bloom.__file__).resolve().parent
FOLDERS = ["kernels", "formats", "predicates", "files", "spark", "report", "cli"]
FOR_ALL = {"errors", "limits", "_thrift", "_version"}
ENTRANCES = {"__init__.py", "__main__.py", "lance.py"}  # public names, and `python -m parquet_bloom`

MODULES = sorted(str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py") if "_thrift" not in p.parts)


def imports_of(module: str, source: str) -> set[str]:
    """The modules of this package that a module names in its imports, wherever they stand: `formats.rules`."""
    found = set()
    here = ["parquet_bloom", *Path(module).parts[:-1]]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            found.update(f"{start}.{alias.name}" for alias in node.names)
    return {
        name.removeprefix("parquet_bloom").removeprefix(".") for name in found if name.split(".")[0] == "parquet_bloom"
    }


def allowed_for(module: str) -> set[str]:
    folder = Path(module).parts[0]
    if folder in FOLDERS:
        return FOR_ALL | set(FOLDERS[: FOLDERS.index(folder) + 1])
    return FOR_ALL | set(FOLDERS) if module in ENTRANCES else set(FOR_ALL)


@pytest.mark.parametrize("module", MODULES)
def test_a_folder_imports_only_folders_before_it(module):
    below = allowed_for(module)
    wrong = {name for name in imports_of(module, (PACKAGE / module).read_text()) if name.split(".")[0] not in below}
    # The package itself may be asked for its public names by those that come last.
    assert wrong <= ({""} if module.startswith("cli") or module in ENTRANCES else set())


def test_imports_are_seen_wherever_they_stand():
    source = """
import parquet_bloom.edit.add as add, json
from parquet_bloom.kernels import hashes
from . import rules
from ..cli import main
def later():
    if True:
        from parquet_bloom.report.html import page
"""
    wanted = {"edit.add", "kernels.hashes", "formats.rules", "cli.main", "report.html.page"}
    assert imports_of("formats/x.py", source) == wanted
    assert allowed_for("formats/x.py") == {"kernels", "formats", *FOR_ALL}
    assert allowed_for("errors.py") == FOR_ALL


def test_there_are_no_other_folders_and_no_utils():
    folders = {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert folders <= {*FOLDERS, "_thrift"}
    assert not [module for module in MODULES if "utils" in Path(module).with_suffix("").parts]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_short(module):
    assert len((PACKAGE / module).read_text().splitlines()) < 350


FORMATS = sorted(f"parquet_bloom.formats.{info.name}" for info in pkgutil.iter_modules(parquet_bloom.formats.__path__))


def loaded_by(*modules: str) -> set[str]:
    """The top-level modules that a fresh process has loaded after importing these."""
    code = f"import {', '.join(modules)}, sys; print(' '.join(sorted({{m.split('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_is_cheap():
    loaded = loaded_by("parquet_bloom")
    assert "parquet_bloom" in loaded
    assert not loaded & {"numba", "llvmlite", "pyarrow", "numpy", "thrift", "pandas"}


def test_importing_the_formats_needs_no_compiler():
    assert len(FORMATS) >= 10
    loaded = loaded_by(*FORMATS)
    assert "pyarrow" in loaded, "the formats hash arrays"
    assert not loaded & {"numba", "llvmlite", "pandas"}


def test_a_single_value_is_probed_without_the_compiler():
    code = """
import sys
from parquet_bloom.formats.filters import decode_filter
from parquet_bloom.formats import final
data = final.header(64) + bytes(64)
assert not decode_filter(data, len(data)).might_contain(b"x")
print("numba" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("name", parquet_bloom.__all__)
def test_every_public_name_is_there(name):
    assert getattr(parquet_bloom, name) is not None
    assert name in dir(parquet_bloom)


def test_no_other_name_is():
    with pytest.raises(AttributeError, match="no attribute 'bogus'"):
        _ = parquet_bloom.bogus
    assert importlib.import_module("parquet_bloom.errors").ParquetBloomError

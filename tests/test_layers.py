"""Which room may import which, how long modules and calls may be, and what importing the package loads.

The rooms stand in ORDER, the lowest first. A room imports itself and the rooms before it, but for those that UNSEEN
names; errors, extras, options, process, _thrift and _version are for all. No modules import each
other in a circle. Imports under TYPE_CHECKING count like all others.
"""

from __future__ import annotations

import ast
import graphlib
import importlib
import pkgutil
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from support.parsed import parsed

import parquet_bloom
import parquet_bloom.format

PACKAGE = Path(parquet_bloom.__file__).resolve().parent
ORDER = [
    "kernels",  # arrays in, arrays out
    "format",  # bytes in, values out
    "predicates",  # text and trees
    "storage",  # names become files, files become bytes
    "output",  # new files replace old ones
    "source",  # what one works on: names, snapshots, a file under its table
    "tables",  # what the adapters share
    "tables/delta",  # one adapter each; it alone imports its format's library
    "tables/iceberg",
    "tables/ducklake",
    "filters",  # of one open file: values and filters, inspect, verify
    "search",  # which row groups can match
    "rows",  # their rows
    "facts",  # which engine uses filters of which type
    "edit",  # new versions of files and tables
    "change",  # a door, one module: files and tables
    "advice",  # which columns, at what rate, for what
    "zones",  # zone indexes
    "keys",  # key indexes
    "changes",  # rows deleted and replaced by their keys
    "read",  # a door, one module: row groups and zones
    "api",  # a door: Source, with all of these as its methods
    "spark",
    "spark/source",  # rows for spark.read
    "report",
    "report/page",  # one HTML page
    "cli",
]
ADAPTERS = {"tables/delta", "tables/iceberg", "tables/ducklake"}
CHANGE = {"edit", "change"}
SEARCH = {"search", "rows"}
UNSEEN = {  # of the rooms before a room, those that it does not see all the same
    "storage": {"predicates"},
    "output": {"predicates"},
    "source": {"output", "predicates"},
    "tables": {"output", "predicates"},
    "tables/delta": {"output", "predicates"},
    "tables/iceberg": {"output", "predicates", "tables/delta"},
    "tables/ducklake": {"output", "predicates", "tables/delta", "tables/iceberg"},
    "filters": {"output", "predicates", "tables", *ADAPTERS},
    "search": {"output", "tables", *ADAPTERS},
    "rows": {"output", "tables", *ADAPTERS},
    "facts": {"filters", "output", "predicates", *SEARCH, "tables", *ADAPTERS},
    "edit": {*SEARCH, "predicates", "tables", *ADAPTERS},
    "change": {"facts", *SEARCH, "predicates", "tables", *ADAPTERS},
    "advice": {*SEARCH, "output", "tables", *ADAPTERS},
    "keys": {"facts", *CHANGE, "advice", "zones", "rows", "tables", *ADAPTERS},
    "changes": {"facts", "advice", "zones", "tables", *ADAPTERS},
    "zones": {"facts", *CHANGE, "advice", "tables", *ADAPTERS},
    "read": {"facts", *CHANGE, "changes", "advice", "output", "tables", *ADAPTERS},
}
FOR_ALL = {"errors", "extras", "options", "process", "_thrift", "_version"}
ENTRANCES = {
    "__init__",
    "__main__",
    "lance",
    "spark.__init__",
}  # public names, and `python -m parquet_bloom`: they see all rooms
LINES = 600
PARAMETERS = 12
COMPILED = {"filters.ask_kernel"}  # beside kernels/
IO = {"os", "io", "mmap", "pathlib", "shutil", "socket", "subprocess", "tempfile"}
WITH_IO = {  # modules of kernels/ and format/ that ask the system for more than memory, and what for
    "kernels.__init__",  # a fork
    "kernels.compiler",  # who may write the folder of compiled code; one process at a time in it
}


class Tree:
    """The modules of a package: `output.draft` -> its source. A folder's __init__ has the folder's name."""

    def __init__(self, root: Path) -> None:
        paths = {p.relative_to(root): p for p in sorted(root.rglob("*.py")) if "_thrift" not in p.parts}
        self.sources = {".".join(path.with_suffix("").parts): there.read_text() for path, there in paths.items()}
        self.folders = {"/".join(path.parts[:-1]) for path in paths} - {""}

    def room_of(self, name: str) -> str:
        """The room of a module, or of a name in one; a module beside the rooms is its own."""
        parts = name.split(".")
        for n in range(len(parts), 0, -1):
            if (folder := "/".join(parts[:n])) in self.folders:
                return folder
        return parts[0]

    @cache  # noqa: B019  (several tests ask for those of the package)
    def imports_of(self, module: str) -> set[str]:
        """What a module imports of this package, wherever the import stands: modules, or names in them."""
        tree = parsed(self.sources[module])
        found = set()
        here = ["parquet_bloom", *module.split(".")[:-1]]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = here[: len(here) - node.level + 1] if node.level else []
                start = ".".join([*base, *([node.module] if node.module else [])])
                found.update(f"{start}.{alias.name}" for alias in node.names)
        return {
            name.removeprefix("parquet_bloom").removeprefix(".")
            for name in found
            if name.split(".")[0] == "parquet_bloom"
        }

    def upward(self) -> set[tuple[str, str]]:
        """(module, import): the arrows that ORDER and UNSEEN forbid."""
        wrong = set()
        for module in self.sources:
            allowed = allowed_for(module, self.room_of(module))
            for name in self.imports_of(module):
                room = self.room_of(name) if name else ""
                if room.split("/")[0] not in FOR_ALL and room not in allowed:
                    wrong.add((module, name))
        return wrong

    def circle(self) -> list[str]:
        """Some modules each of which imports the next, the last one the first; or none."""
        arrows = {
            module: {known for name in self.imports_of(module) if (known := self._module(name))} - {module}
            for module in self.sources
        }
        try:
            graphlib.TopologicalSorter(arrows).prepare()
        except graphlib.CycleError as error:
            return error.args[1]
        return []

    def _module(self, name: str) -> str | None:
        """The module that a name is, or is in; a folder's __init__ where it is the folder's."""
        for known in (name, f"{name}.__init__", name.rpartition(".")[0], f"{name.rpartition('.')[0]}.__init__"):
            if known in self.sources:
                return known
        return None

    def too_long(self) -> set[str]:
        return {module for module, source in self.sources.items() if len(source.splitlines()) >= LINES}

    def with_many_parameters(self) -> set[tuple[str, str]]:
        """(module, function) with more than PARAMETERS; `self` does not count, *args and **options count as one each.

        Compiled loops may have more: they take arrays one by one.
        """
        found = set()
        for module, source in self.sources.items():
            if module in COMPILED or module.split(".")[0] == "kernels":
                continue
            for node in ast.walk(parsed(source)):
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                given = node.args
                names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
                names += [one.arg for one in (given.vararg, given.kwarg) if one is not None]
                if len([name for name in names if name not in ("self", "cls")]) > PARAMETERS:
                    found.add((module, node.name))
        return found

    def doing_io(self) -> set[str]:
        """Modules of kernels/ and format/ that open something, or import what could."""
        found = set()
        for module, source in self.sources.items():
            if module.split(".")[0] not in ("kernels", "format"):
                continue
            for node in ast.walk(parsed(source)):
                names = {alias.name.split(".")[0] for alias in node.names} if isinstance(node, ast.Import) else set()
                if isinstance(node, ast.ImportFrom):
                    names = {(node.module or "").split(".")[0]}
                called = node.func if isinstance(node, ast.Call) else None
                if names & IO or (isinstance(called, ast.Name) and called.id == "open") or _outside(node):
                    found.add(module)
        return found

    def with_state(self) -> set[str]:
        """Modules of format/ and predicates/ that keep something for the process but caches of pure functions."""
        found = set()
        for module, source in self.sources.items():
            if module.split(".")[0] not in ("format", "predicates"):
                continue
            tree = parsed(source)
            classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
            for node in ast.walk(tree):
                targets = [node.target] if isinstance(node, ast.AugAssign) else getattr(node, "targets", [])
                of_class = any(
                    isinstance(target, ast.Attribute)
                    and isinstance(target.value, ast.Name)
                    and target.value.id in classes
                    for target in targets
                )
                if isinstance(node, ast.Global) or of_class:
                    found.add(module)
        return found


def _outside(node: ast.AST) -> bool:
    """Whether a node takes a function of the C library, such as pread(2)."""
    return isinstance(node, ast.Attribute) and node.attr in ("ExternalFunction", "CDLL")


def allowed_for(module: str, room: str) -> set[str]:
    if module in ENTRANCES:
        return {"", *ORDER}
    if room not in ORDER:
        return set()
    rooms = set(ORDER[: ORDER.index(room) + 1]) - UNSEEN.get(room, set())
    return rooms | {""} if room == "cli" else rooms  # the commands use the package's public names


TREE = Tree(PACKAGE)


def test_a_room_imports_only_rooms_before_it():
    assert TREE.upward() == set()


def test_no_modules_import_each_other_in_a_circle():
    assert TREE.circle() == []


def test_no_module_is_long():
    assert TREE.too_long() == set()


def test_no_function_has_many_parameters():
    assert TREE.with_many_parameters() == set()


def test_kernels_and_formats_open_nothing():
    assert TREE.doing_io() == WITH_IO


def test_formats_and_predicates_keep_nothing_for_the_process():
    assert TREE.with_state() == set()


def test_every_folder_has_its_place_in_the_order_and_none_is_utils():
    assert TREE.folders == {room for room in ORDER if room not in TREE.sources}
    assert UNSEEN.keys() <= set(ORDER)
    for room, unseen in UNSEEN.items():
        assert unseen <= set(ORDER[: ORDER.index(room)]), f"{room} could not see these anyway"
    assert not [module for module in TREE.sources if "utils" in module.split(".")]


def test_rooms_above_the_formats_name_no_form_that_lies_in_the_footer():
    """They ask format.footer_filters, or filters.stored, which has one set of methods for filters of every form."""
    naming = {m for m in TREE.sources if any(n.startswith("format.draft_2015") for n in TREE.imports_of(m))}
    assert naming == {"format.footer_filters", "format.forms"}


def invented(root: Path, **sources: str) -> Tree:
    """A package of modules; their names have __ for a dot, and end with it for a folder's __init__."""
    for name, source in sources.items():
        path = root.joinpath(*(part or "__init__" for part in name.split("__"))).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return Tree(root)


def test_imports_are_seen_wherever_they_stand(tmp_path):
    source = """
import parquet_bloom.edit.add as add, json
from parquet_bloom.kernels import hashes
from . import rules
from ..cli import main
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from parquet_bloom.report import never
def later():
    if True:
        from parquet_bloom.report.html import page
"""
    tree = invented(tmp_path, format__x=source)
    assert tree.imports_of("format.x") == {
        "edit.add",
        "kernels.hashes",
        "report.never",
        "format.rules",
        "cli.main",
        "report.html.page",
    }


def test_an_arrow_up_is_found_and_one_down_is_none(tmp_path):
    tree = invented(
        tmp_path,
        errors="",
        storage__source="from parquet_bloom.predicates.tree import Compare",
        storage__paths="from parquet_bloom.output import draft",
        output__draft="from parquet_bloom.storage.source import Source\nfrom parquet_bloom.errors import E",
        search__check="from parquet_bloom.storage.source import Source\nfrom parquet_bloom.predicates import tree",
        edit__add="from parquet_bloom.search.check import check\nfrom parquet_bloom import zones",
        zones__build="from parquet_bloom.search import check\nfrom parquet_bloom.edit.add import add",
        read="import parquet_bloom.zones.build\nfrom parquet_bloom.search.check import check",
        lance="from parquet_bloom.zones.build import build",
        limits="from parquet_bloom.format.schema import Leaf",
        report__tables="import parquet_bloom",
        predicates__tree="",
    )
    assert tree.upward() == {
        ("storage.source", "predicates.tree.Compare"),
        ("storage.paths", "output.draft"),
        ("edit.add", "search.check.check"),
        ("edit.add", "zones"),
        ("zones.build", "edit.add.add"),
        ("limits", "format.schema.Leaf"),
        ("report.tables", ""),
    }


def test_a_circle_is_found_wherever_its_imports_stand(tmp_path):
    late = "def f():\n    from parquet_bloom.cli import one\n"
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from parquet_bloom.cli.one import One\n"
    for folder, second in (("a", late), ("b", typed)):
        tree = invented(tmp_path / folder, cli__one="from parquet_bloom.cli.two import x", cli__two=second)
        assert set(tree.circle()) == {"cli.one", "cli.two"}
    assert invented(tmp_path / "c", cli__one="from parquet_bloom.cli.two import x", cli__two="x = 1").circle() == []


def test_long_modules_long_calls_io_and_state_are_found(tmp_path):
    tree = invented(
        tmp_path,
        cli__long="x = 1\n" * LINES,
        cli__short="x = 1\n" * (LINES - 1),
        kernels__a="import os.path",
        kernels__b="from numba import types\n_pread = types.ExternalFunction('pread', 1)",
        format__c="def f():\n    return open('x')",
        format__d="class Habit:\n    n = 0\ndef f():\n    Habit.n += 1",
        kernels__loop=f"def f({', '.join(f'a{n}' for n in range(PARAMETERS + 1))}): ...",
        edit__most=f"class A:\n    def f(self, {', '.join(f'a{n}' for n in range(PARAMETERS - 1))}, **o): ...",
        edit__many=f"def f(*, {', '.join(f'a{n}' for n in range(PARAMETERS))}, **o): ...",
        predicates__e="n = 0\ndef f():\n    global n\n    n = 1",
        predicates__f="class A:\n    def __init__(self):\n        self.n = 0\n        self.n += 1",
    )
    assert tree.too_long() == {"cli.long"}
    assert tree.with_many_parameters() == {("edit.many", "f")}
    assert tree.doing_io() == {"kernels.a", "kernels.b", "format.c"}
    assert tree.with_state() == {"format.d", "predicates.e"}


FORMATS = sorted(info.name for info in pkgutil.walk_packages(parquet_bloom.format.__path__, "parquet_bloom.format."))


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
from parquet_bloom.format.filters import decode_filter
from parquet_bloom.format import final
data = final.header(64) + bytes(64)
assert not decode_filter(data, len(data)).might_contain(b"x")
print("numba" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_no_two_files_of_tests_have_one_name():
    """pytest imports a file by its bare name, unless its folder is a package: a second one of that name stops the run,
    but only a run of both folders tells.
    """
    tests = Path(__file__).resolve().parent
    names = [path.name for path in sorted(tests.rglob("test_*.py")) if not (path.parent / "__init__.py").exists()]
    assert Path(__file__).name in names
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_every_public_name_is_there_and_no_other_is():
    assert [name for name in parquet_bloom.__all__ if getattr(parquet_bloom, name, None) is None] == []
    assert set(parquet_bloom.__all__) <= set(dir(parquet_bloom))
    with pytest.raises(AttributeError, match="no attribute 'bogus'"):
        _ = parquet_bloom.bogus
    assert importlib.import_module("parquet_bloom.errors").ParquetBloomError


def test_no_room_takes_the_name_of_a_function():
    """Importing a module of `parquet_bloom.check` would put it in the function's place."""
    beside = {name.split(".")[0] for name in TREE.sources} - {"__init__"}
    assert beside & set(parquet_bloom.__all__) <= {"lance", "spark"}

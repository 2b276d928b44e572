"""Names and first lines use the field's words; docstrings and comments speak only of fields and names that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from support.parsed import parsed
from support.prose import prose

import parquet_bloom

PACKAGE = Path(parquet_bloom.__file__).resolve().parent
# Words of everyday speech that say nothing of the field; DESIGN's language has a noun or a verb for each use.
BANNED = {
    *("asked", "given", "held", "left", "look", "looked", "looks", "spot", "spots", "tell", "tells", "told"),
    *("way", "ways", "whoever", "wish", "wished", "wishes", "worked"),
}
ALLOWED = {  # (module, name of the function or class; "" for the module) -> why
    ("kernels.intrinsics", "rotl"): "to the left, as bits go",
    ("predicates.bind", "terms_of"): "from left to right, in the text",
    ("predicates.tree", "leaves_of"): "from left to right, in the text",
    ("predicates.text", "_joined"): "sqlglot's tree leans to the left",
    ("report.page.pictures", "strip"): "from left to right, on the page",
}
ALLOWED_NAMES = {  # function or class -> why
    "tell": "of open files, as Python names it; of progress, the text to show",
}
SUBJECTS = frozenset(("what", "where", "who", "whose", "which"))  # of a first sentence


class Item:
    """A module, class or function: where it stands, its name, its docstring."""

    def __init__(self, module: str, node: ast.AST) -> None:
        self.module, self.node = module, node
        self.name = "" if isinstance(node, ast.Module) else node.name  # type: ignore[attr-defined]
        self.docstring = ast.get_docstring(node) or ""  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


@cache
def items() -> list[Item]:
    """Every module, class and function; read when the first test wants them, not by each worker that collects tests."""
    return list(_items())


def _items() -> Iterator[Item]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if "_thrift" not in path.parts:
            module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
            for node in ast.walk(parsed(path.read_text())):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    yield Item(module, node)


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))


def test_names_have_none_of_the_banned_words() -> None:
    parts = ((item, words(re.sub(r"([a-z])([A-Z])", r"\1 \2", item.name))) for item in items())
    found = {
        f"{item}": sorted(bad) for item, all_of in parts if (bad := all_of & BANNED) and item.name not in ALLOWED_NAMES
    }
    assert found == {}


def test_first_lines_have_none_of_the_banned_words() -> None:
    found = {}
    for item in items():
        first = re.sub(r"`[^`]*`|\"[^\"]*\"", "", item.docstring.split("\n")[0])  # names and texts stay as they are
        if (bad := words(first) & BANNED) and (item.module, item.name) not in ALLOWED:
            found[str(item)] = (sorted(bad), item.docstring.split("\n")[0])
    assert found == {}


def test_no_first_line_begins_with_a_question_word() -> None:
    first = ((item, item.docstring.split()[0].lower() if item.docstring else "") for item in items())
    assert [str(item) for item, word in first if word in SUBJECTS] == []


def test_each_exception_is_met() -> None:
    met = {(one.module, one.name) for one in items() if words(one.docstring.split("\n")[0]) & BANNED}
    assert ALLOWED.keys() - met == set(), "an exception that nothing needs goes"


# --- fields ---------------------------------------------------------------------------------------

FIELD = re.compile(r"(\w+(?:, \w+)*)  +\S")
NO_FIELD = frozenset({"returns", "source", "traps"})  # sections that are laid out as fields are


def described(docstring: str) -> Iterator[str]:
    """Names at the margin of a docstring with their text two or more blanks behind, as in a list of fields."""
    for line in docstring.split("\n")[1:]:
        if (found := FIELD.match(line)) is not None:
            yield from (name for name in found[1].split(", ") if name.lower() not in NO_FIELD)


def known_names(node: ast.ClassDef) -> set[str]:
    """The fields of a class, its methods, the parameters of __init__ and what methods set."""
    names = {
        part.target.id for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }
    names |= {
        part.id
        for one in node.body
        if isinstance(one, ast.Assign)
        for part in one.targets
        if isinstance(part, ast.Name)
    }
    for part in node.body:
        if isinstance(part, ast.FunctionDef):
            names.add(part.name)
            if part.name == "__init__":
                every = [*part.args.args, *part.args.kwonlyargs, part.args.kwarg]
                names |= {one.arg for one in every if one is not None}
            names |= {
                one.attr
                for one in ast.walk(part)
                if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "self"
            }
    return names


def test_fields_that_docstrings_describe_exist() -> None:
    classes = {item.name: item.node for item in items() if isinstance(item.node, ast.ClassDef)}

    def with_bases(node: ast.ClassDef) -> set[str]:
        names = known_names(node)
        for base in node.bases:
            name = (
                base.id
                if isinstance(base, ast.Name)
                else base.value.id
                if isinstance(base, ast.Subscript) and isinstance(base.value, ast.Name)
                else ""
            )
            if name in classes and classes[name] is not node:
                names |= with_bases(classes[name])
        return names

    stale = []
    for item in items():
        if isinstance(item.node, ast.ClassDef):
            names = with_bases(item.node)
            stale += [f"{item}: {name}" for name in described(item.docstring) if name not in names]
    assert stale == []


# --- names of other modules -----------------------------------------------------------------------

DOTTED = re.compile(r"(?<![\w./:-])[a-z_0-9]+(?:\.[A-Za-z_0-9]+)+(?![\w/(])")
# Settings of Spark, and files, whose first words are rooms of ours too.
FOREIGN = re.compile(
    r"spark\.(task|pyspark|sql|dataSource|hadoop|catalog)\b|.*\.(parquet|txt|html|py|csv|md|json)$"
    r"|schema\.name-mapping|schema\.name$|keys\.key$"
)


def modules() -> dict[str, Path]:
    """Module -> its file, as `search.evidence`; a room's __init__ has the room's name. Bindings are left out."""
    paths = (path for path in PACKAGE.rglob("*.py") if "_thrift" not in path.parts)
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").rstrip("."): path
        for path in paths
    }


def defined(tree: ast.Module) -> dict[str, set[str]]:
    """The names of a module, those inside functions too: each with the names in it, if it is a class."""
    names: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            inside = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
            inside |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            names[node.name] = inside | {part.name for part in ast.walk(node) if isinstance(part, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            names.setdefault(node.name, set())
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name: set() for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.setdefault(node.id, set())
    return names


def test_names_of_other_modules_in_docstrings_and_comments_exist() -> None:
    """`room.module.name`, also on pages, or `module.name` in its own room: a move or a new name leaves no old one."""
    files = modules()
    names = {name: defined(parsed(path.read_text())) for name, path in files.items()}
    rooms = {name for name, path in files.items() if path.name == "__init__.py"}

    def stands(word: list[str], base: list[str]) -> bool | None:
        """Whether a word is a name below a room; None: its first part is no module there."""
        parts = [*base, *word]
        for n in range(len(parts), len(base), -1):
            if (module := ".".join(parts[:n])) in files:
                inside = names[module]
                if n == len(parts):
                    return True
                if parts[n] not in inside:
                    return False
                return n + 1 == len(parts) or not inside[parts[n]] or parts[n + 1] in inside[parts[n]]
        return None

    stale, met = [], 0
    room_of = {path: (name if name in rooms else name.rpartition(".")[0]).split(".") for name, path in files.items()}
    for path, text in prose().items():
        for word in DOTTED.findall(text):
            if FOREIGN.match(word):
                continue
            parts, room = word.removeprefix("parquet_bloom.").split("."), room_of.get(path, [""])
            found = [stands(parts, room) if room != [""] else None, stands(parts, [])]
            met += True in found
            if False in found and True not in found:
                stale.append(f"{path.name}: {word}")
    assert met > 400, "the pattern still meets names"
    assert stale == []

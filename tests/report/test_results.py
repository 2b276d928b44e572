"""What functions return: tables and values for programs, nothing without a name; for people: test_notebooks.py."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.commands import command
from support.samples import ROW_GROUPS, keys_table, write_keys

import parquet_bloom
from parquet_bloom import errors, lance
from parquet_bloom.source.results import Result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files with filters, and a file that is none."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "data").mkdir()
    for name in ("a.parquet", "b.parquet"):
        path = write_keys(folder / "data" / name)
        parquet_bloom.add_filters(path, in_place=True, columns=["id", "name"], sync=False)
    (folder / "data" / "c.parquet").write_bytes(b"no Parquet at all")
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    data, good = folder / "data", [folder / "data" / "a.parquet", folder / "data" / "b.parquet"]
    some = keys_table()["id"].to_pylist()[:2]
    return {
        "add": parquet_bloom.add_filters(data, folder / "added", columns=["half_null"], sync=False),
        "remove": parquet_bloom.remove_filters(data, folder / "removed", sync=False),
        "inspect": parquet_bloom.inspect(data),
        "verify": parquet_bloom.verify(data),
        "check": parquet_bloom.check(data, "id = 5 OR length(name) = 2"),
        "prune": parquet_bloom.prune(good, f"id = {some[0]}"),
        "prune keys": parquet_bloom.prune(good, column="id", values=some, count_hits=True),
    }


ROWS_OF = {"add": 2, "remove": 2, "inspect": 4 * ROW_GROUPS, "verify": 4 * ROW_GROUPS, "check": 2 * ROW_GROUPS}


def test_every_result_prints_and_converts(results: dict[str, Any]) -> None:
    for name, result in results.items():
        assert repr(result).startswith(type(result).__name__ + "("), name
        table = result.to_arrow()
        assert table.num_rows == ROWS_OF.get(name, len(result) if isinstance(result, list) else -1), name
        json.dumps(result.to_dict(), allow_nan=False)
        for file in getattr(result, "files", []):
            assert file.to_arrow().num_rows == len(getattr(file, "filters", [0])), name


def test_to_dict_is_what_the_command_prints(folder: Path, results: dict[str, Any], tmp_path: Path) -> None:
    for name, options in {
        "inspect": [],
        "verify": [],
        "check": ["id = 5 OR length(name) = 2"],
        "add": ["-c", "half_null", "-o", tmp_path / "x", "--no-sync"],
        "remove": ["-o", tmp_path / "y", "--no-sync"],
    }.items():
        done = command(name, folder / "data", *options, "--json")
        printed, ours = json.loads(done.stdout), results[name].to_dict()
        varying = {"seconds", "output", "bytes_needed"}
        for one in (*printed.get("files", []), *ours.get("files", [])):
            for key in varying & one.keys():
                del one[key]
        assert (printed.pop("document"), printed.pop("document_version")) == (name, 1)
        holds = [{"gate": "verify", "holds": True, "reason": ""}] if name == "verify" else []
        assert printed.pop("gates", []) == holds, name
        assert printed == ours, name


def test_names_of_columns_are_those_of_the_fields(results: dict[str, Any]) -> None:
    filters = results["inspect"].to_arrow()
    assert filters.column_names[:4] == ["path", "row_group", "column", "offset"]
    assert {"fpp", "num_bytes", "estimated_ndv", "problems"} <= set(filters.column_names)
    assert filters.schema.field("problems").type == pa.list_(pa.string())
    assert filters["fpp"].to_pylist() == [f.fpp for file in results["inspect"].files for f in file.filters]
    verdicts = results["check"].to_arrow()
    assert verdicts["outcome"].to_pylist() == [v.outcome.names for v in results["check"]]
    assert results["prune keys"].to_dict()["hits"][0].keys() == {"path", "row_group", "keys"}


def test_results_of_zone_indexes(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("lance", reason="pylance is not installed (extra `lance`)")
    data = folder / "data" / "a.parquet"
    built = lance.build_index(data, ["id", "name"], tmp_path / "index", items=100, sync=False)
    paths = [one.path for one in built.indexes]
    found = lance.query_index(paths[0], f"id = {keys_table()['id'][0]}", root=folder)
    shown, checked = lance.inspect_index(paths[0]), lance.verify_index(paths[0], data)
    assert built.to_arrow()["path"].to_pylist() == paths
    assert found.to_arrow()["length"].to_pylist() == [zone.length for zone in found.zones]
    assert shown.to_arrow()["fpp"].to_pylist() == [zone.fpp for zone in shown.zones]
    for words, ours in (
        (("inspect", paths[0]), {"indexes": [shown.to_dict()]}),
        (("query", paths[0], f"id = {keys_table()['id'][0]}", "--root", str(folder)), found.to_dict()),
        (("verify", paths[0], "--data", str(data)), {"indexes": [one.to_dict() for one in checked]}),
    ):
        done = command("index", *words, "--json")
        head = {"document": f"index-{words[0]}", "document_version": 1}
        assert json.loads(done.stdout) == head | ours, done.stderr


# --- public names -----------------------------------------------------------------------------------


def test_every_error_has_a_public_name() -> None:
    kinds = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, Exception) and kind.__module__ == errors.__name__
    }
    assert kinds <= set(parquet_bloom.__all__)


def reached(hint: Any, seen: set[type]) -> Iterator[type]:
    """The classes of ours that a type names, and those of their fields and properties."""
    for part in typing.get_args(hint):
        yield from reached(part, seen)
    if not isinstance(hint, type) or not hint.__module__.startswith("parquet_bloom") or hint in seen:
        return
    seen.add(hint)
    yield hint
    for base in getattr(hint, "__orig_bases__", ()):
        yield from reached(base, seen)
    for one in typing.get_type_hints(hint).values():
        yield from reached(one, seen)
    for one in vars(hint).values():
        if isinstance(one, property) and issubclass(hint, Result | tuple):
            yield from reached(typing.get_type_hints(one.fget).get("return"), seen)


def test_every_result_has_a_public_name() -> None:
    """Whoever annotates a variable must be able to import its class."""
    others = {"pa": pa, "ds": __import__("pyarrow.dataset").dataset, "pl": pytest.importorskip("polars")}
    public = {Result}
    for module in (parquet_bloom, lance):
        names = [getattr(module, name) for name in module.__all__]
        public |= {one for one in names if isinstance(one, type)}
        returned: set[type] = set()
        for one in filter(inspect.isfunction, names):
            hints = typing.get_type_hints(one, {**others, **vars(inspect.getmodule(one))})
            returned.update(reached(hints.get("return"), set()))
        assert len(returned) > 5
        assert not {kind.__name__ for kind in returned - public}

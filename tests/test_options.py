"""Options are declared once: whoever takes them takes all of them, with the same defaults, and no other."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import parquet_bloom
from parquet_bloom import Draft2015, lance, options, spark
from parquet_bloom.advice.advise import advise
from parquet_bloom.cli import group
from parquet_bloom.edit.plan import Request
from parquet_bloom.edit.write import FilterOptions, NewFileOptions, WriterOptions
from parquet_bloom.errors import RequestError
from parquet_bloom.format.forms import FORMATS, form_of
from parquet_bloom.options import Placement
from parquet_bloom.output.target import Writing

Call = Callable[..., Any]
ROWS = pa.table({"id": range(100)})
CALLS: dict[str, Call] = {
    "add_filters": lambda path, **given: parquet_bloom.add_filters(path, f"{path}.new", **given),
    "remove_filters": lambda path, **given: parquet_bloom.remove_filters(path, f"{path}.new", **given),
    "write_table": lambda path, **given: parquet_bloom.write_table(ROWS, f"{path}.new", **given),
    "FilterWriter": lambda path, **given: parquet_bloom.FilterWriter(f"{path}.new", ROWS.schema, **given),
    "build_index": lambda path, **given: lance.build_index(path, ["id"], f"{path}.new", **given),
    "check": lambda path, **given: parquet_bloom.check(path, "id = 5", **given),
    "read_table": lambda path, **given: parquet_bloom.read_table(path, "id = 5", **given),
    "spark": lambda path, **given: spark.add_filters(None, path, output=f"{path}.new", **given),
    "inspect": parquet_bloom.inspect,
    "verify": parquet_bloom.verify,
    "status": parquet_bloom.status,
    "advise": advise,
    "write_report": lambda path, **given: parquet_bloom.write_report(path, f"{path}.html", **given),
    "spark inspect": lambda path, **given: spark.inspect_filters(None, path, **given),
    "spark verify": lambda path, **given: spark.verify_filters(None, path, **given),
    "spark check": lambda path, **given: spark.check(None, path, "id = 5", **given),
    "spark prune": lambda path, **given: spark.prune(None, path, "id = 5", **given),
    "spark read": lambda path, **given: spark.read(None, path, "id = 5", **given),
    "spark build_index": lambda path, **given: spark.build_index(None, path, ["id"], f"{path}.new", **given),
    "spark index": lambda path, **given: spark.build_zone_index(None, path, ["id"], f"{path}.new", **given),
}
CHANGING = ("add_filters", "remove_filters", "write_table", "FilterWriter", "spark")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pq.write_table(ROWS, tmp_path / "x.parquet")
    return tmp_path / "x.parquet"


def keys(kind: Any) -> set[str]:
    return set(kind.__annotations__)


def test_a_misspelt_option_is_an_error(path: Path) -> None:
    for name, call in CALLS.items():
        if name == "spark read" and find_spec("pyspark") is None:
            continue  # it is the data source, whose classes are PySpark's
        wrong = "max_byte" if name in CHANGING else "allow_root"
        with pytest.raises(TypeError, match=rf"got an unexpected keyword argument '{wrong}'"):
            call(path, **{wrong: 64})
            raise AssertionError(f"{name} takes {wrong}")
        assert [found.name for found in path.parent.iterdir()] == ["x.parquet"], f"{name}: nothing was done"


def test_the_nearest_option_is_named(path: Path) -> None:
    with pytest.raises(TypeError, match=r"^add_filters\(\) .* 'max_byte'; did you mean 'max_bytes'\?$"):
        CALLS["add_filters"](path, max_byte=64)
    with pytest.raises(TypeError, match=r"^write_table\(\) .* 'compresion'; did you mean 'compression'\?$"):
        CALLS["write_table"](path, compresion="zstd")
    with pytest.raises(TypeError, match=r"^remove_filters\(\) .* 'zebra'$"):
        CALLS["remove_filters"](path, zebra=1)


def test_what_is_part_of_the_form_by_now(path: Path) -> None:
    for name in ("add_filters", "write_table", "FilterWriter", "spark"):
        for option, value, advice in (
            ("hash_family", "guava", "family='guava'"),
            ("strategy", "MURMUR128_32", "strategy='MURMUR128_32'"),
            ("conf", {"parquet.expected.entries": "5"}, "properties={'parquet.expected.entries': '5'}"),
        ):
            with pytest.raises(RequestError) as raised:
                CALLS[name](path, spec="statistics", **{option: value})
            assert str(raised.value) == f"{option} is a part of the form: give form=Draft2015({advice})", name


def test_the_form_by_either_name(path: Path) -> None:
    new = Path(f"{path}.new")
    for name, columns in (("add_filters", "columns"), ("write_table", "bloom_filters")):
        with pytest.raises(RequestError, match="spec is a short name of form; give one of the two"):
            CALLS[name](path, form="final", spec="final")
        bytes_of = []
        for form in ("form", "spec"):
            CALLS[name](path, **{columns: ["id"], form: "parquet-41"})
            bytes_of.append(new.read_bytes())
            assert {one.spec for one in parquet_bloom.inspect(new).files[0].filters} == {"parquet-41"}, name
            new.unlink()
        assert bytes_of[0] == bytes_of[1], name


def test_forms_have_the_names_that_types_say() -> None:
    assert get_args(options.FormName) == tuple(FORMATS)
    assert form_of("statistics") == form_of(Draft2015()), "the value's defaults are the form's"
    assert form_of(options.DEFAULT_FORM).placements == get_args(Placement)


def test_every_option_becomes_a_part_of_a_value() -> None:
    """No key is read by nobody: it is a field of what the piece becomes, or read by its name."""
    assert keys(options.WriteOptions) == {f.name for f in dataclasses.fields(Writing)} - {"cached"}
    build = keys(options.BuildOptions) | keys(options.IndexOptions)
    build |= keys(options.EngineOption) | keys(options.ReplaceOption)
    assert build - {"spec"} <= {f.name for f in dataclasses.fields(Request)}
    assert keys(options.RequestOptions) == build | keys(options.WriteOptions)
    assert keys(FilterOptions) | keys(WriterOptions) == keys(NewFileOptions)
    assert not keys(WriterOptions) & keys(options.RequestOptions)


def test_one_default_for_all() -> None:
    """What is not said is as in Writing and Request, wherever it is not said."""
    assert Request.checked().how == Writing.of({}) == Writing()
    assert (Writing().sync, Writing().in_place, Writing().dry_run) == (True, False, False)


def test_the_command_line_has_all_of_them() -> None:
    for function, kind, command in (
        (parquet_bloom.add_filters, options.AddOptions, ["add"]),
        (parquet_bloom.remove_filters, options.RemoveOptions, ["remove"]),
        (spark.add_filters, options.SparkAddOptions, ["spark", "add"]),
    ):
        found: Any = group
        for name in command:
            with click.Context(found) as ctx:
                found = found.get_command(ctx, name)
        has = {str(param.name) for param in found.params}
        parameters = set(inspect.signature(function).parameters)
        assert len(parameters) <= 12, command
        wanted = keys(kind) | parameters - {"options", "progress", "source", "paths", "spark"}
        only_python = {"filesystem", "form", "task_bytes", "split_bytes"}  # form: --spec and the options beside it
        assert wanted - has == only_python & wanted, command


def test_numbers_of_threads(tmp_path: Path) -> None:
    """Some were a ValueError of Python's pool, and 0 counted as none."""
    path, index, delta = tmp_path / "data" / "a.parquet", tmp_path / "index", f"delta:{tmp_path}/t"
    rows = pa.table({"id": [1, 2]})
    path.parent.mkdir()
    pq.write_table(rows, path)
    write_deltalake(tmp_path / "t", rows)
    parquet_bloom.build_index(path, "id", index)
    calls: tuple[Call, ...] = (
        lambda threads: parquet_bloom.add_filters(path, columns=["id"], in_place=True, threads=threads),
        lambda threads: parquet_bloom.delete_keys(path, "id", [1], in_place=True, threads=threads),
        lambda threads: parquet_bloom.delete_keys(delta, "id", [1], threads=threads),
        lambda threads: parquet_bloom.upsert(delta, rows, "id", threads=threads),
        lambda threads: parquet_bloom.build_index(path, "id", tmp_path / "other", threads=threads),
        lambda threads: parquet_bloom.update_index(index, path, threads=threads),
        lambda threads: parquet_bloom.rebuild_index(index, path, threads=threads),
    )
    for threads, why in ((0, "not positive"), (-1, "not positive"), ("2", "no whole number"), (1.5, "no whole number")):
        for call in calls:
            with pytest.raises(RequestError, match=f"threads {threads} is {why}"):
                call(threads)
    assert parquet_bloom.read_table(path).equals(rows)

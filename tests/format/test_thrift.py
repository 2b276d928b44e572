"""The definitions under thrift/ against the format's table, and the bindings against the definitions."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.corpus import vector_file
from support.samples import REPOSITORY

from parquet_bloom._thrift.parquet import ttypes
from parquet_bloom.format import compact_tree


def table() -> list[list[str]]:
    return [line.split("\t") for line in vector_file("parquet_fields.tsv").read_text().splitlines()[1:]]


def test_every_definition_of_the_format_is_there() -> None:
    rows = table()
    names = {row[1] for row in rows}
    assert len(names) == 69
    for kind, name, number, required, type_name, field in rows:
        definition = getattr(ttypes, name)
        if kind == "enum":
            assert getattr(definition, field) == int(number)
        elif number:
            spec = definition.thrift_spec[int(number)]
            assert spec[2] == field, (name, field, type_name, required)
    fields = {(row[1], int(row[2])) for row in rows if row[0] != "enum" and row[2]}
    ours = {
        (name, spec[0])
        for name in names
        for spec in getattr(getattr(ttypes, name), "thrift_spec", ())
        if spec is not None
    }
    assert ours == fields, "no field more and none less"


def test_the_c_reader_is_used() -> None:
    from thrift.protocol import fastbinary  # noqa: F401  (the import fails without it)

    from parquet_bloom.format import compact

    footer = ttypes.FileMetaData(version=2, schema=[], num_rows=0, row_groups=[])
    assert compact.decode(ttypes.FileMetaData, compact.encode(footer))[0] == footer


def test_bindings_are_those_of_the_definitions() -> None:
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "thrift/regenerate"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if "skipped" in done.stdout + done.stderr:
        pytest.skip((done.stdout + done.stderr).strip())


CLASSES = [one for name, one in vars(compact_tree).items() if name.endswith("Id")]


def test_a_struct_has_these_fields_under_these_ids() -> None:
    assert len(CLASSES) == 8
    for ids in CLASSES:
        spec = getattr(ttypes, ids.__name__.removesuffix("Id")).thrift_spec
        for name, number in vars(ids).items():
            if not name.startswith("_"):
                assert spec[number][2] == name, f"{ids.__name__} {number} is {spec[number][2]} in the bindings"

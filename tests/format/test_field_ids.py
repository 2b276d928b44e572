"""The field ids are those of the generated bindings."""

from __future__ import annotations

import pytest

from parquet_bloom._thrift.parquet import ttypes
from parquet_bloom.format import compact_tree

CLASSES = [one for name, one in vars(compact_tree).items() if name.endswith("Id")]


@pytest.mark.parametrize("ids", CLASSES, ids=lambda one: one.__name__)
def test_a_struct_has_these_fields_under_these_ids(ids: type) -> None:
    spec = getattr(ttypes, ids.__name__.removesuffix("Id")).thrift_spec
    for name, number in vars(ids).items():
        if not name.startswith("_"):
            assert spec[number][2] == name, f"{ids.__name__} {number} is {spec[number][2]} in the bindings"

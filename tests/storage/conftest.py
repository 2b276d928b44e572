"""The object that tests of all kinds of stores read."""

from __future__ import annotations

import pytest
from support.samples import write_keys

import parquet_bloom


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a file with filters on `id`."""
    path = write_keys(tmp_path_factory.mktemp("data") / "keys.parquet")
    parquet_bloom.add_filters(path, in_place=True, columns=["id"], sync=False)
    return path.read_bytes()

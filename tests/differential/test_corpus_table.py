"""docs/reliability/corpus.md tells what comes of every file of the corpus."""

from __future__ import annotations

import os

import pytest
from corpus_table import corpus, files_of, outcomes, told

pytestmark = [pytest.mark.differential, pytest.mark.timeout(3600)]
EVERY = 20
LARGE = ("parquet-testing__large_string_map.brotli.parquet", "read")


def compare(every: int) -> None:
    folder = corpus()
    if folder is None:
        reason = "PARQUET_BLOOM_CORPUS does not say where the corpus is"
        if os.environ.get("PARQUET_BLOOM_REQUIRE_CORPUS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    names, table = files_of(folder), told()
    assert list(table) == names, "the page names the files that there are"
    some = names[::every]
    assert {name: outcomes(folder / name) for name in some} == {name: table[name] for name in some}


def test_the_page_is_right_about_some_files() -> None:
    compare(EVERY)


@pytest.mark.slow
def test_the_page_is_right_about_all_files() -> None:
    compare(1)


def test_nothing_unexpected_is_told() -> None:
    known = {"ok", "no", "refused", "nothing-to-do", "ok-other-bytes"}
    odd = {(name, command): said for name, of in told().items() for command, said in of.items() if said not in known}
    assert [(name.rsplit("/", 1)[-1], command) for name, command in odd] == [LARGE], "pyarrow decodes it for `read`"

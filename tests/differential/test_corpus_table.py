"""docs/reliability/corpus.md tells what comes of every file that another program wrote."""

from __future__ import annotations

import csv
from hashlib import sha256

import pytest
from corpus_table import names, outcomes, told
from support.corpus import FIXTURES, corpus_file, others

pytestmark = [pytest.mark.differential, pytest.mark.timeout(3600)]
EVERY = 20
LARGE = ("parquet-testing__large_string_map.brotli.parquet", "read")


def compare(every: int) -> None:
    """Those of fixtures/ where there are no others."""
    table, some = told(), names()[::every]
    assert {name: outcomes(corpus_file(name)) for name in some} == {name: table[name] for name in some}


def test_the_page_names_the_files_that_there_are() -> None:
    listed = [name for name in told() if others() is not None or (FIXTURES / name).is_file()]
    assert listed == names()


def test_the_files_of_other_projects_are_those_of_the_list() -> None:
    folder = others()
    if folder is None:
        pytest.skip("PARQUET_BLOOM_CORPUS names no folder")
    with (FIXTURES / "others.tsv").open(newline="") as file:
        listed = {row["file"]: row["sha256"] for row in csv.DictReader(file, delimiter="\t")}
    assert {name: sha256((folder / name).read_bytes()).hexdigest() for name in listed} == listed


def test_the_page_is_right_about_some_files() -> None:
    compare(EVERY)


@pytest.mark.slow
def test_the_page_is_right_about_all_files() -> None:
    compare(1)


def test_nothing_unexpected_is_told() -> None:
    known = {"ok", "no", "refused", "nothing-to-do", "ok-other-bytes"}
    odd = {(name, command): said for name, of in told().items() for command, said in of.items() if said not in known}
    assert [(name.rsplit("/", 1)[-1], command) for name, command in odd] == [LARGE], "pyarrow decodes it for `read`"

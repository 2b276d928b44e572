"""Planted bugs are found by the random cases; a bug that is not found means that the cases must improve."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from random import Random

import pytest
from cases import Case, WrongError, cases_of, worlds
from mutants import MUTANTS, Mutant, planted

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::parquet_bloom.errors.FilterWarning")]
WORLDS, EACH = 200, 30


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Case]]:
    """Six thousand cases, right as long as no bug is planted; of the files of test_predicates.py."""
    found = [
        case for where in worlds(range(WORLDS), tmp_path_factory.mktemp("worlds")) for case in cases_of(where, EACH)
    ]
    Random(0).shuffle(found)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in found:
            case.check(keep=True)
    logging.getLogger("parquet_bloom").disabled = True
    yield found
    logging.getLogger("parquet_bloom").disabled = False


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(cases: list[Case], mutant: Mutant) -> None:
    with planted(mutant):
        for case in cases:
            try:
                case.check(keep=True)
            except WrongError:
                return
    pytest.fail(f"{len(cases)} cases do not find: {mutant.name}")

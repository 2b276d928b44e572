"""Random files together have the results of each alone: types, nesting, missing statistics, old and mixed writers."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from cases import cases_of, world
from support.repeats import more_then_slow
from support.searched import same

pytestmark = pytest.mark.filterwarnings("ignore::parquet_bloom.errors.FilterWarning")
_SEEDS, _EACH = 20, 4


@pytest.mark.parametrize("part", [0, *more_then_slow(range(1, 8), 2)])
def test_random_files_together(tmp_path: Path, part: int) -> None:
    rng = Random(part)
    worlds = [world(seed, tmp_path) for seed in range(_SEEDS * part, _SEEDS * (part + 1))]
    everything = [file.path for one in worlds for file in one.files]
    asked = 0
    for one in worlds:
        own = [file.path for file in one.files]
        for case in cases_of(one, _EACH):
            # Its files several times, and some with other columns or other writers among them.
            paths = [*own, *own, *rng.sample(everything, 3), *own, *rng.sample(everything, 2), *own]
            same(paths, case.asked, nan="largest" if case.way == "largest" else "ieee")
            if asked % 2:
                same(paths[::-1], case.asked, decide_true=True)
            asked += 1
    assert asked == _SEEDS * _EACH

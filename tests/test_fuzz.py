"""Damaged files: any byte of footer, page index or filter may be anything; we say so, and never crash.

Each batch of cases runs in a process of its own, so that a crash of the process is a failed test.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from samples import write_keys

import parquet_bloom

WORK = textwrap.dedent("""
    import random, resource, sys, warnings
    from pathlib import Path
    import parquet_bloom
    from parquet_bloom.errors import ParquetBloomError
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    source, folder, first, last = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    footer = len(source) - 8 - int.from_bytes(source[-8:-4], "little")
    filters = parquet_bloom.inspect(sys.argv[1]).files[0].filters
    heads = [at for f in filters if f.offset for at in range(f.offset, f.offset + 24)] or [footer]
    path, out = folder / "x.parquet", folder / "out.parquet"
    calls = [
        lambda: parquet_bloom.inspect(path),
        lambda: parquet_bloom.check(path, "id = 5"),
        lambda: parquet_bloom.verify(path),
        lambda: parquet_bloom.remove_filters(path, out, overwrite=True, sync=False),
        lambda: parquet_bloom.add_filters(path, out, overwrite=True, columns=["name"], sync=False),
        lambda: parquet_bloom.add_filters(path, out, overwrite=True, columns=["name"], spec="statistics", sync=False),
        lambda: parquet_bloom.add_filters(path, out, overwrite=True, columns=["id", "tags"], replace=True, sync=False,
                                          placement="chunk-start", threads=1),
    ]
    failed = 0
    for case in range(first, last):
        rng = random.Random(case)
        data = bytearray(source)
        for _ in range(rng.choice((1, 1, 2, 5, 30))):
            at = rng.choice((rng.randrange(footer, len(data)), rng.choice(heads), rng.randrange(len(data))))
            data[at] = rng.choice((rng.randrange(256), data[at] ^ 1 << rng.randrange(8), 0, 255))
        if rng.random() < 0.1:
            del data[rng.randrange(len(data)) :][: rng.randrange(50)]
        path.write_bytes(data)
        print(case, file=sys.stderr, flush=True)
        for call in calls:
            try:
                call()
            except ParquetBloomError as error:
                failed += 1
                assert str(error), "an error says what is wrong"
    left = [p.name for p in folder.iterdir() if p.name.endswith(".parquet-bloom")]
    assert not left, left
    print(failed)
""")


def fuzz(tmp_path: Path, first: int, last: int, spec: str = "final") -> int:
    source = write_keys(tmp_path / "source.parquet", write_page_index=True)
    parquet_bloom.add_filters(source, in_place=True, columns=["id", "tags", "user.mail"], spec=spec, sync=False)
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", WORK, str(source), str(work), str(first), str(last)],
        capture_output=True, text=True, check=False, timeout=3000,
    )  # fmt: skip
    assert done.returncode == 0, f"exit status {done.returncode}, last case and errors: {done.stderr[-2000:]}"
    return int(done.stdout)


def test_damage_is_an_error_and_never_a_crash(tmp_path: Path) -> None:
    assert fuzz(tmp_path, 0, 150) > 50, "much of the damage is noticed"


def test_damage_to_filters_in_the_footer(tmp_path: Path) -> None:
    assert fuzz(tmp_path, 0, 60, "statistics") > 20


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_much_more_damage(tmp_path: Path) -> None:
    assert fuzz(tmp_path, 1000, 6000) > 1000

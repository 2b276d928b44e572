"""Loops whose code is kept: a process without numba runs them, equal to numba's, and runs no other code."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numba import types

import parquet_bloom
from parquet_bloom.kernels import compiler, linked, native

LOOPS = {name: one for name, one in vars(native).items() if isinstance(one, compiler.Kernel)}
N = 1000


# --- every loop ------------------------------------------------------------------------------------


def arguments(name: str, seed: int) -> list[object]:
    """Arguments of a loop: arrays of N values, and for the bytes of N texts more."""
    random = np.random.default_rng(seed)
    fixed = [1 if "hive" in name else 8, 8][name.startswith("wang")] if name.endswith("_fixed") else 0
    found: list[object] = []
    for kind in LOOPS[name].signature.args:
        if kind == types.boolean:
            found.append(True)
        elif not isinstance(kind, types.Array):
            found.append(np.uint64(fixed or 5))
            fixed = 0
        elif kind.dtype == types.uint8:
            found.append(random.integers(0, 256, 8 * N, np.uint8))
        elif kind.dtype == types.int64:
            found.append(np.full(8, N // 8))  # filters
        elif name.endswith("_variable") and not kind.mutable:
            lengths = np.full(N, 8) if name.startswith("wang") else random.integers(0, 9, N)
            found.append(np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint64))
        else:
            dtype = np.dtype(str(kind.dtype).replace("bool", "bool_"))
            n = 8 * 64 if name.startswith(("insert", "contains")) and not found else N
            found.append(random.integers(0, 1 << (8 * dtype.itemsize - 1), n).astype(dtype))
    return found


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_that_is_linked_is_numba_s(name: str) -> None:
    LOOPS[name](*arguments(name, 0))  # compiles it, and keeps its code, where no process did
    linked._kept.cache_clear()
    linked._linked.cache_clear()
    if not linked._kept():
        pytest.skip("numba keeps its code elsewhere")
    run = linked._linked(name)
    assert run is not None, "each of these loops needs arrays and numbers alone"
    for seed in range(5):
        ours, numbas = arguments(name, seed), arguments(name, seed)
        run(*ours)
        LOOPS[name](*numbas)
        for one, other in zip(ours, numbas, strict=True):
            assert np.array_equal(one, other)


def test_arrays_of_another_form_are_refused() -> None:
    name = "xxh64_u64"
    good = arguments(name, 0)
    LOOPS[name](*good)
    linked._kept.cache_clear()
    linked._linked.cache_clear()
    run = linked._linked(name)
    if run is None:
        pytest.skip("numba keeps its code elsewhere")
    values, seed, out = good
    assert isinstance(values, np.ndarray)
    assert isinstance(out, np.ndarray)
    closed = out.copy()
    closed.flags.writeable = False
    for wrong in (
        [values.astype(np.uint32), seed, out],
        [np.repeat(values, 2)[::2], seed, out],
        [values.reshape(2, -1), seed, out],
        [values, seed, closed],
    ):
        with pytest.raises(TypeError, match="xxh64_u64 takes another array"):
            run(*wrong)
    with pytest.raises(ValueError, match="argument"):
        run(values, seed)


# --- which code ------------------------------------------------------------------------------------

WORK = textwrap.dedent("""
    import logging, sys
    import numpy as np, pyarrow as pa, xxhash
    from parquet_bloom.kernels import loops, split_block
    from parquet_bloom.kernels.hashes import hash_array
    if sys.argv[2:]:
        import numba
    loops.expect(int(sys.argv[1]))
    hashes = hash_array(pa.array(range(100)))
    assert hashes.tolist() == [xxhash.xxh64_intdigest(value.to_bytes(8, "little")) for value in range(100)]
    blocks = split_block.empty(1024)
    split_block.insert_hashes(blocks, hashes)
    assert split_block.contains_hashes(blocks, hashes).all()
    print("numba" if "numba" in sys.modules else "linked" if "llvmlite" in sys.modules else "numpy")
""")


def work(folder: Path, *words: str, values: int = 10_000_000, **environment: str) -> tuple[str, str]:
    """What a process used that expects so many values, and what it told; numba as a word: it has loaded that."""
    command = [sys.executable, "-c", WORK, str(values), *words]
    paths = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": ""}
    own = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    done = subprocess.run(
        command, env={**own, **paths, **environment}, cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip(), done.stderr


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, in which a process has compiled some loops."""
    folder = tmp_path_factory.mktemp("installed")
    whole = Path(parquet_bloom.__file__).parent
    shutil.copytree(whole, folder / "parquet_bloom", ignore=shutil.ignore_patterns("__pycache__"))
    assert work(folder, "numba") == ("numba", "")
    return folder


@pytest.fixture
def installed(compiled: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it, so that a test can change it."""
    shutil.copytree(compiled, tmp_path / "copy")
    return tmp_path / "copy"


def code_in(folder: Path) -> list[Path]:
    found = sorted((folder / "parquet_bloom" / "kernels" / "__pycache__").glob("*.loop"))
    assert len(found) == 3
    return found


SOME = 1_500_000  # worth linking, and not worth numba


def test_the_next_process_needs_no_numba(installed: Path) -> None:
    assert work(installed) == ("linked", "")
    assert work(installed, values=SOME) == ("linked", "")
    assert work(installed, values=1000) == ("numpy", "")


def test_code_that_is_damaged_is_not_run(installed: Path) -> None:
    for path in code_in(installed):
        data = bytearray(path.read_bytes())
        data[-100] ^= 1
        path.write_bytes(data)
    assert work(installed, values=SOME)[1] == "", "numpy's loops, though llvmlite was loaded"
    assert not [*(installed / "parquet_bloom" / "kernels" / "__pycache__").glob("*.loop")], "nobody looks at it again"
    assert work(installed, values=SOME) == ("numpy", "")
    assert work(installed) == ("numba", "")


@pytest.mark.parametrize("content", [b"", b"{}", b"[]\nabc", b'{"crc": 0, "symbol": "f", "arguments": []}\n'])
def test_a_file_without_code_is_not_run(installed: Path, content: bytes) -> None:
    for path in code_in(installed):
        path.write_bytes(content)
    assert work(installed) == ("numba", "")


def test_code_for_another_processor_is_not_run(installed: Path) -> None:
    for path in code_in(installed):
        start, _, _ = path.name.rpartition("-")
        path.rename(path.with_name(f"{start}-00000000.loop"))
    assert work(installed, values=SOME)[1] == ""
    assert work(installed) == ("numba", "")


def test_code_of_other_sources_is_not_run(installed: Path) -> None:
    changed = installed / "parquet_bloom" / "kernels" / "threads.py"
    changed.write_text(changed.read_text() + "\n")
    assert work(installed) == ("numba", "")


def test_code_that_others_may_write_is_not_run(installed: Path) -> None:
    code_in(installed)[0].chmod(0o666)
    assert work(installed, values=SOME) == ("numpy", "")
    found, told = work(installed)
    assert found == "numba"
    assert "can be written by other users" in told


def test_who_sets_something_of_numba_gets_numba(installed: Path, tmp_path: Path) -> None:
    assert work(installed, NUMBA_CACHE_DIR=str(tmp_path / "cache")) == ("numba", "")
    assert not [*(tmp_path / "cache").rglob("*.loop")], "where nobody looks"
    assert work(installed, values=SOME, NUMBA_CACHE_DIR=str(tmp_path / "cache")) == ("numpy", "")


def test_a_child_that_was_forked_while_code_is_linked_goes_on() -> None:
    with linked._LOCK, compiler._THREAD_LOCK:  # of a thread that the child does not have
        child = os.fork()
        if not child:
            signal.alarm(20)
            linked.linked("no_loop")
            with ThreadPoolExecutor(1) as pool:
                pool.submit(native.xxh64_u64._load).result()
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_a_loop_with_other_needs_is_not_kept(installed: Path) -> None:
    """That of footers returns a number."""
    code = "import numpy; from parquet_bloom.kernels import compact_walk as it; it.end_of(numpy.zeros(9, 'u1'), 0, 9)"
    paths = {"PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([sys.executable, "-c", code], env={**os.environ, **paths}, cwd=installed, check=True)
    code_in(installed)

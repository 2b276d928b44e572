"""How kernels are compiled: once, lazily, by many processes at a time, and where no cache can be kept."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

WORK = textwrap.dedent("""
    import pyarrow as pa, xxhash
    from parquet_bloom.kernels import hashes, split_block
    values = pa.array([b"parquet", b"bloom", b"filter"])
    found = hashes.hash_array(values)
    assert found.tolist() == [xxhash.xxh64_intdigest(v) for v in (b"parquet", b"bloom", b"filter")]
    blocks = split_block.empty(64)
    split_block.insert_hashes(blocks, found)
    assert split_block.contains_hashes(blocks, found).all()
    print("right")
""")


def start(**environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORK], env={**os.environ, **environment}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_many_processes_fill_one_cache(tmp_path: Path) -> None:
    """numba #4807: processes that write one cache at once can crash; the lock keeps them apart."""
    several = [start(NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(6)]
    for process in several:
        out, errors = process.communicate(timeout=200)
        assert (process.returncode, out) == (0, "right\n"), errors
    assert list(tmp_path.rglob("*.nbi")), "what was compiled is kept for the next process"
    assert list(tmp_path.rglob("parquet_bloom.lock"))


def test_nothing_is_compiled_before_it_is_needed() -> None:
    script = (
        "from parquet_bloom.kernels import compiler, native;"
        "kernels = [k for k in vars(native).values() if isinstance(k, compiler.Kernel)];"
        "print(len(kernels) > 8, [k for k in kernels if k._entry is not None])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True []\n"


def test_without_a_place_for_a_cache(tmp_path: Path) -> None:
    """A read-only installation, as in a zip or a locked-down image, and no home folder either."""
    if os.geteuid() == 0:
        pytest.skip("root can write everywhere")
    sealed = tmp_path / "sealed"
    sealed.mkdir(mode=0o500)
    process = start(HOME=str(sealed), XDG_CACHE_HOME=str(sealed), NUMBA_CACHE_DIR=str(sealed))
    out, errors = process.communicate(timeout=200)
    assert (process.returncode, out) == (0, "right\n"), errors


def test_a_cache_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    process = start(NUMBA_CACHE_DIR=str(tmp_path / "file" / "cache"))
    out, errors = process.communicate(timeout=200)
    assert (process.returncode, out) == (0, "right\n"), errors


def test_control_c_while_a_kernel_is_loaded_does_not_reach_the_compiler() -> None:
    """An exception in a function that LLVM calls back is lost, or the process crashes."""
    script = textwrap.dedent("""
        import os, signal
        import numpy as np
        from parquet_bloom.kernels import compiler, split_block
        signal.signal(signal.SIGINT, signal.default_int_handler)
        load = compiler.Kernel._load
        def interrupted(kernel):
            os.kill(os.getpid(), signal.SIGINT)
            return load(kernel)
        compiler.Kernel._load = interrupted
        try:
            split_block.insert_hashes(split_block.empty(64), np.arange(10, dtype=np.uint64))
        except KeyboardInterrupt:
            print("interrupted")
        compiler.Kernel._load = load
        blocks = split_block.empty(64)
        split_block.insert_hashes(blocks, np.arange(10, dtype=np.uint64))
        print(split_block.contains_hashes(blocks, np.arange(10, dtype=np.uint64)).all())
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=200)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\nTrue\n", "")

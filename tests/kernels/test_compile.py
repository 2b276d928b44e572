"""How kernels are compiled: once, lazily, by many processes at a time, and where no cache can be kept."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import xxhash
from support.named import named

import parquet_bloom
from parquet_bloom.kernels import compiler

# Two loops, over numba.
WORK = textwrap.dedent("""
    import numpy as np
    from parquet_bloom.kernels import hashes, split_block
    hashes.ALLOWED_NS = -1
    blocks, found = split_block.empty(64), np.arange(3, dtype=np.uint64) << np.uint64(40)
    split_block.insert_hashes(blocks, found)
    assert split_block.contains_hashes(blocks, found).all()
    print("right")
""")


def start(work: str = WORK, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", work], env={**os.environ, **environment}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_many_processes_fill_one_cache(tmp_path: Path) -> None:
    """numba #4807: processes that write one cache at once can crash; the lock keeps them apart."""
    several = [start(NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(3)]
    for process in several:
        is_right(process)
    assert list(tmp_path.rglob("*.nbi")), "what was compiled is kept for the next process"
    assert list(tmp_path.rglob("parquet_bloom.lock"))


def test_code_of_other_sources_is_not_run(tmp_path: Path) -> None:
    """An upgrade that changes one module, to the same size; every file of a wheel may have the same time."""
    package = tmp_path / "parquet_bloom"
    shutil.copytree(Path(parquet_bloom.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    lanes = package / "kernels" / "intrinsics.py"
    script = (
        "import pyarrow as pa; from parquet_bloom.kernels import hashes; hashes.ALLOWED_NS = -1;"
        "print(hashes.hash_array(pa.array(range(64))).tolist())"
    )
    told = []
    for adds in ("add", "sub"):
        text = lanes.read_text()
        lanes.write_text(text.replace("builder.add(self.value", f"builder.{adds}(self.value"))
        os.utime(lanes, (1_580_601_600, 1_580_601_600))
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, "-B", "-c", script]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        told.append(done.stdout)
    right = str([xxhash.xxh64_intdigest(value.to_bytes(8, "little")) for value in range(64)]) + "\n"
    assert told[0] == right
    assert told[1] != right, "the changed module was compiled"


def test_nothing_is_compiled_before_it_is_needed() -> None:
    script = (
        "from parquet_bloom.kernels import compiler, native;"
        "kernels = [k for k in vars(native).values() if isinstance(k, compiler.Kernel)];"
        "print(len(kernels) > 8, [k for k in kernels if k._entry is not None])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True []\n"


def is_right(process: subprocess.Popen[str]) -> None:
    out, errors = process.communicate(timeout=200)
    assert (process.returncode, out) == (0, "right\n"), errors


def test_without_a_place_for_a_cache(tmp_path: Path) -> None:
    """A read-only installation, as in a zip or a locked-down image, and no home folder either."""
    if os.geteuid() == 0:
        pytest.skip("root can write everywhere")
    sealed = tmp_path / "sealed"
    sealed.mkdir(mode=0o500)
    is_right(start(WORK, HOME=str(sealed), XDG_CACHE_HOME=str(sealed), NUMBA_CACHE_DIR=str(sealed)))


def test_a_cache_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    is_right(start(WORK, NUMBA_CACHE_DIR=str(tmp_path / "file" / "cache")))


def test_control_c_while_a_kernel_is_loaded_does_not_reach_the_compiler() -> None:
    """An exception in a function that LLVM calls back is lost, or the process crashes."""
    script = textwrap.dedent("""
        import os, signal
        import numba
        import numpy as np
        from parquet_bloom.kernels import compiler, hashes, split_block
        hashes.ALLOWED_NS = -1
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


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache folder, as numba fills it, below another one."""
    folder = tmp_path / "cache" / "kernels_0123"
    folder.mkdir(parents=True, mode=0o700)
    for name in ("native.a.py311.nbi", "native.a.py311.1.nbc"):
        (folder / name).write_bytes(b"code")
        (folder / name).chmod(0o644)
    compiler.check_ours(str(folder))
    return folder


CODE = "native.a.py311.1.nbc"


PLACES = ("", CODE, "..")  # the folder, the code in it, the folder above


@pytest.mark.parametrize("mode", [0o002, 0o020, 0o420], ids=["everybody", "a-group", "our-own-group"])
def test_a_cache_that_others_may_write_is_refused(cache: Path, mode: int) -> None:
    """Whoever may write there could have machine code of theirs run."""
    if mode == 0o020 and os.geteuid() != 0:
        pytest.skip("only root can give a file to another group")
    if mode == 0o420 and Path(compiler.__file__).parent.stat().st_mode & 0o020:
        pytest.skip("who may write there may write this package too")
    for path in (cache / what for what in PLACES):
        before = path.stat()
        if mode == 0o020:
            os.chown(path, -1, 54321)
        path.chmod(before.st_mode | mode)
        with named(path), pytest.raises(compiler.CacheRefused, match="can be written by other users"):
            compiler.check_ours(str(cache))
        os.chown(path, -1, before.st_gid)
        path.chmod(before.st_mode)
        compiler.check_ours(str(cache))


def test_a_group_that_may_write_the_package_may_write_its_cache(cache: Path, tmp_path: Path) -> None:
    """As everything that a user makes with umask 002; the copy of the package is one, the cache beside it another."""
    package = tmp_path / "parquet_bloom"
    shutil.copytree(Path(parquet_bloom.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "kernels").chmod(0o775)
    cache.chmod(0o775)
    code = f"from parquet_bloom.kernels import compiler; compiler.check_ours({str(cache)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)}, check=False
    )
    assert done.returncode == 0


def test_a_folder_above_with_the_sticky_bit(cache: Path) -> None:
    cache.parent.chmod(0o1777)
    compiler.check_ours(str(cache))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_cache_of_another_user_is_refused(cache: Path) -> None:
    for path in (cache / what for what in PLACES):
        os.chown(path, 12345, -1)
        with named(path), pytest.raises(compiler.CacheRefused, match="belongs to user 12345"):
            compiler.check_ours(str(cache))
        os.chown(path, os.geteuid(), -1)


def test_code_that_is_a_link_is_refused(cache: Path, tmp_path: Path) -> None:
    (cache / CODE).rename(tmp_path / "elsewhere")
    (cache / CODE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(compiler.CacheRefused, match="symbolic link"):
        compiler.check_ours(str(cache))


def test_what_is_refused_is_not_loaded(tmp_path: Path) -> None:
    assert start(WORK, NUMBA_CACHE_DIR=str(tmp_path)).communicate(timeout=200) == ("right\n", "")
    (folder,) = {path.parent for path in tmp_path.rglob("*.nbi")}
    for path in folder.glob("*.nbc"):
        path.write_bytes(b"no code")  # to load it would fail
    folder.chmod(0o777)
    out, told = start(WORK, NUMBA_CACHE_DIR=str(tmp_path)).communicate(timeout=200)
    assert out == "right\n"
    assert "can be written by other users" in told
    assert "NUMBA_CACHE_DIR" in told
    assert len(told.splitlines()) == 1, "it is told once"


def test_a_lock_that_is_held_for_ever(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with compiler.alone(str(cache)):
        pass
    lock = cache / "parquet_bloom.lock"
    assert lock.stat().st_mode & 0o777 == 0o600, "who cannot open it cannot hold it"
    lock.chmod(0o644)
    monkeypatch.setattr(compiler, "PATIENCE_S", 0.2)
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(compiler.CacheRefused, match="locked by another process"), compiler.alone(str(cache)):
            raise AssertionError("it is locked")
    assert lock.stat().st_mode & 0o777 == 0o600, "that of an earlier version too, from now on"
    with compiler.alone(str(cache)):
        pass


def test_a_lock_that_is_a_link(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("as it was")
    (tmp_path / "precious").chmod(0o644)
    (cache / "parquet_bloom.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(compiler.CacheRefused, match="no lock can be had there"), compiler.alone(str(cache)):
        raise AssertionError("it is a link")
    assert (tmp_path / "precious").stat().st_mode & 0o777 == 0o644


FORK = textwrap.dedent("""
    import os, signal, sys, threading, time
    import numpy as np
    from parquet_bloom.kernels import compiler, hashes, split_block
    hashes.ALLOWED_NS = -1
    reached, middle = threading.Event(), sys.argv[1]

    class Slow:  # the import of numba, or of a kernel, is in the middle as this process forks
        def find_spec(self, name, path=None, target=None):
            if name == middle and threading.current_thread() is not threading.main_thread():
                reached.set()
                time.sleep(0.5)

    def slow(folder, check=compiler.check_ours):
        middle == "compiling" and Slow().find_spec(middle)
        check(folder)

    sys.meta_path.insert(0, Slow())
    compiler.check_ours = slow

    def work():
        blocks = split_block.empty(64)
        split_block.insert_hashes(blocks, np.arange(9, dtype=np.uint64))
        os.write(1, b"%d\\n" % blocks.sum())  # one write: two processes write here

    thread = threading.Thread(target=work)
    thread.start()
    reached.wait(60)
    child = os.fork()
    if not child:
        signal.alarm(60)
        work()
        os._exit(0)
    thread.join()
    print(os.waitpid(child, 0)[1])
""")


@pytest.mark.parametrize("middle", ["llvmlite", "numba.core", "parquet_bloom.kernels.intrinsics", "compiling"])
def test_a_child_that_was_forked_while_numba_is_loaded_goes_on(middle: str) -> None:
    done = subprocess.run([sys.executable, "-c", FORK, middle], capture_output=True, text=True, timeout=200)
    first, second, status = done.stdout.splitlines()
    assert (first, status) == (second, "0"), done.stderr

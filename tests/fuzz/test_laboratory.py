"""The fuzz laboratory: that it finds what is planted, a short run of all targets, kernels at guard pages.

The long run is `python tests/fuzz/laboratory.py --decoders 1000000 --calls 100000 --logs 50000`.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from laboratory import Lab, rounds
from support.duckdb_process import packages
from support.ducklake_tables import REQUIRED
from support.samples import FIXTURES
from targets import CALLS, DECODERS, FOLDERS, LOGS, TARGETS, _footer
from thrift_bytes import encode, mutated, parse
from worker import make

pytestmark = pytest.mark.fuzz
HERE = Path(__file__).resolve().parent


def test_a_footer_read_as_a_tree_is_written_as_it_was() -> None:
    for path in sorted(FIXTURES.rglob("*.parquet")):
        data = _footer(path.read_bytes())[0]
        tree, end = parse(data)
        assert (encode(tree), end) == (data, len(data)), path


def test_most_wrong_footers_are_sound_thrift() -> None:
    data = _footer((FIXTURES / "pyarrow/trace_ids.parquet").read_bytes())[0]
    wrong = [mutated(data, random.Random(seed)) for seed in range(200)]
    assert sum(one != data for one in wrong) > 150
    sound = 0
    for one in wrong:
        try:
            sound += parse(one)[1] == len(one)
        except ValueError:
            continue
    assert sound > 100, "a decoder is reached behind its first look"


def test_a_case_is_its_number(tmp_path: Path) -> None:
    for name, target in TARGETS.items():
        if name != "index":  # built anew in each folder
            assert make(target, name, 7, tmp_path) == make(target, name, 7, tmp_path), name


PLANTED = {
    "an abort": ("import os; os.abort()", "SIGABRT"),
    "another exception": ("raise KeyError('planted')", "KeyError"),
    "a loop": ("while True: pass", "hung"),
    "much work": ("import time; end = time.process_time() + 2.5\nwhile time.process_time() < end: pass", "slow"),
    "much memory": ("b = bytearray(480 << 20); b[::4096] = bytes(len(b[::4096]))", "memory"),
    "too much memory": ("bytearray(20 << 30)", "MemoryError"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(name: str, tmp_path: Path) -> None:
    """Cases 0 and 2 are well, 1 is not: it is found and kept, and the others are run all the same."""
    code, kind = PLANTED[name]
    module = tmp_path / "planted.py"
    lines = "".join(f"        {line}\n" for line in code.splitlines())
    module.write_text(
        "from targets import OWN_ERRORS, Target\n"
        "def make(rng, folder): return repr(rng.random()).encode()\n"
        f"def run(data, folder):\n    import random\n    if data == make(random.Random('planted/1'), folder):\n{lines}"
        "TARGETS = {'planted': Target(make, run)}\n"
    )
    with Lab(tmp_path / "work", patience=5 if kind == "hung" else 60, module=module) as lab:
        lab.run("planted", 0, 3)
        assert lab.executions["planted"] == 3
        assert [(key[0], key[1]) for key in lab.findings] == [("planted", kind)]
        [found] = lab.findings.values()
        assert found["number"] == 1
        assert lab.restarts == (kind in ("SIGABRT", "hung"))


def test_a_short_run_finds_nothing(tmp_path: Path) -> None:
    """Fixed cases of every target; what this finds once it would find always."""
    with Lab(tmp_path / "work") as lab:
        for targets, n, chunk in ((DECODERS, 12_000, 100), (CALLS, 400, 20)):
            for target, first, count in rounds(list(targets), n, chunk, 0):
                lab.run(target, first, count)
        lab.save(tmp_path / "found")
    assert not list(lab.told()), "python tests/fuzz/laboratory.py --target T --first CASE runs one again"
    assert set(lab.executions) == {*DECODERS, *CALLS}
    for target in ("footer", "filter", "text", "dnf"):
        assert 0.02 < lab.refused[target] / lab.executions[target] < 0.99, (
            "wrong input is met, and not all of it refused"
        )


# --- logs that lie --------------------------------------------------------------------------------


@pytest.mark.timeout(600)
def test_a_short_run_of_hostile_logs_finds_nothing(tmp_path: Path) -> None:
    """600 fixed cases. Sound cases are among them, and refused ones: the changes are neither none nor all."""
    packages("ducklake", "sqlite_scanner", required=REQUIRED)
    with Lab(tmp_path / "work") as lab:
        for target, first, count in rounds(list(LOGS), 600, 20, 0):
            lab.run(target, first, count)
        lab.save(tmp_path / "found")
    assert not list(lab.told()), "python tests/fuzz/laboratory.py --target T --first CASE runs one again"
    assert set(lab.executions) == set(LOGS)
    for target in LOGS:
        assert 0.1 < lab.refused[target] / lab.executions[target] < 0.9, target


LIES_THAT_WORK = {
    "no folder is refused": (
        "from parquet_bloom.source.roots import Roots\nRoots.holds = lambda *_, **__: True", {"Touched", "Shown"}, 400,
    ),
    "a connection": (
        "import socket\ndef called(name, *_, **__):\n"
        "    socket.create_connection(site.listener.authority.split(':')).close(); time.sleep(0.2)",
        {"Asked"}, 3,
    ),
    "a file outside": ("def called(*_, **__): (site.victim / 'new').touch()", {"Touched"}, 1),
    "a file outside is opened": ("def called(*_, **__): (site.victim / 'secret').read_text()", {"Touched"}, 1),
    "temporary files": ("def called(*_, **__): tempfile.mkstemp()", {"Touched"}, 1),
    "a file beside the table": ("def called(*_, **__): (site.at / 'delta' / 'x').touch()", {"Touched"}, 1),
    "code": ("def called(*_, **__): import hostile_module", {"Ran"}, 1),
    "another exception": ("def called(*_, **__): raise KeyError('planted')", {"KeyError"}, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES_THAT_WORK)
def test_what_a_log_brings_about_is_found(name: str, tmp_path: Path) -> None:
    code, kinds, cases = LIES_THAT_WORK[name]
    module = tmp_path / "planted.py"
    module.write_text(
        "import tempfile, time\nfrom pathlib import Path\nimport hostile_logs\n"
        "from targets import OWN_ERRORS, TARGETS\n"
        f"site = hostile_logs.site_of(Path({str(tmp_path / 'work')!r}))\n{code}\n"
        "if 'called' in globals(): hostile_logs.called = called\n"
    )
    with Lab(tmp_path / "work", module=module) as lab:
        lab.run("delta", 0, cases)
        assert {kind for _, kind, _ in lab.findings} == kinds


# --- folders that lie -----------------------------------------------------------------------------


@pytest.mark.timeout(600)
def test_a_short_run_of_hostile_folders_finds_nothing(tmp_path: Path) -> None:
    """Fixed cases of each target: links, FIFOs, devices, sockets, sparse files, files of others."""
    packages("ducklake", "sqlite_scanner", required=REQUIRED)
    with Lab(tmp_path / "work") as lab:
        for target in FOLDERS:
            lab.run(target, 0, 20 if target == "ducklake_folder" else 60)
        lab.save(tmp_path / "found")
    assert not list(lab.told()), "python tests/fuzz/laboratory.py --target T --first CASE runs one again"
    for target in FOLDERS:
        assert 0.1 < lab.refused[target] / lab.executions[target] < 0.95, target


FOLDERS_THAT_WORK = {
    "a file outside is changed": ("(outside / 'letter').write_text('other')", "Touched"),
    "a file outside is opened": ("(outside / '0' / '0123456789abcdef-00000.parquet').read_bytes()", "Touched"),
    "a folder outside is emptied": ("shutil.rmtree(outside / 'id')", "Touched"),
    "a FIFO is read": ("os.mkfifo(outside.parent / 'f')\n    open(outside.parent / 'f')", "Late"),
    "a name is looked up": ("socket.getaddrinfo('localhost', 80)", "Asked"),
    "files of others are removed": ("shutil.rmtree(outside.parent / 'indexes' / 'key')", "Removed"),
    "a row is lost": ("hostile_folders._one(0)", "Lost"),
}


@pytest.mark.parametrize("name", FOLDERS_THAT_WORK)
def test_what_a_folder_brings_about_is_found(name: str, tmp_path: Path) -> None:
    code, kind = FOLDERS_THAT_WORK[name]
    module = tmp_path / "planted.py"
    module.write_text(
        "import os, shutil, socket\nfrom pathlib import Path\nimport hostile_folders\n"
        "from targets import OWN_ERRORS, TARGETS\n"
        f"outside = Path({str(tmp_path / 'work' / 'hostile' / 'outside')!r})\n"
        f"def planted(*_):\n    {code}\nhostile_folders._some = planted\n"
    )
    with Lab(tmp_path / "work", module=module) as lab:
        lab.run("key_index", 0, 6 if kind == "Removed" else 1)
        assert {found for _, found, _ in lab.findings} == {kind}


MENDED = {  # what was wrong once, put back: target, code, kind, cases
    "an index is built into any folder, and all names are its own": (
        "key_index",
        "from parquet_bloom.keys import folder\nfolder._is_of_an_index = lambda _: True\n"
        "folder._LocalFolder._refuse_others = lambda *_: None",
        "Removed", 60,
    ),
    "links in an index are followed": ("key_index", "import os\nos.O_NOFOLLOW = 0", "Touched", 60),
    "links in a Delta log are followed": ("delta_folder", "import os\nos.O_NOFOLLOW = 0", "Touched", 60),
    "a relative location of Iceberg is written below the working folder": (
        "iceberg_folder",
        "from parquet_bloom.tables.iceberg.files import Files\nFiles._refuse_relative = lambda *_: None",
        "Touched", 60,
    ),
}  # fmt: skip


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MENDED)
def test_what_was_mended_would_be_found(name: str, tmp_path: Path) -> None:
    target, code, kind, cases = MENDED[name]
    module = tmp_path / "planted.py"
    module.write_text(f"{code}\nfrom targets import OWN_ERRORS, TARGETS\n")
    with Lab(tmp_path / "work", module=module) as lab:
        for first in range(0, cases, 10):
            lab.run(target, first, 10)
            if found := {found for _, found, _ in lab.findings}:
                break
    assert kind in found, "by the generator alone, within these cases"


# --- kernels ----------------------------------------------------------------------------------------


def guarded(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(HERE / "kernels_guarded.py"), *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, **environment},
    )  # fmt: skip


def test_the_guard_page_ends_who_reads_beyond() -> None:
    assert guarded("beyond").returncode == -signal.SIGSEGV


def test_no_kernel_reads_or_writes_outside_its_arrays() -> None:
    done = guarded("250")
    assert (done.returncode, done.stdout) == (0, "1000 rounds, bounds check 0\n"), done.stderr[-2000:]


@pytest.mark.timeout(600)
def test_no_kernel_leaves_its_arrays_by_numba_s_own_check(tmp_path: Path) -> None:
    done = guarded("60", NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "240 rounds, bounds check 1\n"), done.stderr[-2000:]
    assert any(tmp_path.rglob("*.nbc")), "compiled anew, with the check"

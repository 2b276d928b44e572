"""Children of a process that used obstore: its threads are not theirs, so pyarrow reads, and nothing waits for ever."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.object_store import objects, reading_by
from support.programs import program
from support.recording_store import RecordingStore, keyed, recording

import parquet_bloom
from parquet_bloom.storage.open_file import OpenFile

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
SECONDS = 60


@pytest.fixture
def store(data: bytes) -> Iterator[RecordingStore]:
    with recording() as running, reading_by("obstore"):
        running.objects = {f"data/in/{number}.parquet": data for number in range(3)}
        yield running


def run(store: RecordingStore, code: str) -> str:
    """A process of its own, so that its fork is one of a process that has no other threads."""
    start = f"""
        import multiprocessing, os, signal, warnings
        import parquet_bloom
        from parquet_bloom.storage.open_file import OpenFile
        from parquet_bloom.storage.remote import Objects
        warnings.simplefilter("ignore")  # that a fork of threads may hang is what is tested
        filesystem = Objects("s3", {keyed(store)!r})
        def count(_=None):
            return parquet_bloom.count("data/in", "id >= 0 OR id < 0", filesystem=filesystem)
        def in_child(work):
            child = os.fork()
            if not child:
                signal.alarm({SECONDS})
                try:
                    print(work(), flush=True)
                finally:
                    os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """
    done = program(textwrap.dedent(start) + textwrap.dedent(code))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_fork_after_obstore_was_used_reads_through_pyarrow(store: RecordingStore) -> None:
    assert run(
        store, "print(count())\nin_child(count)\nin_child(lambda: (in_child(count), count()))\nprint(count())"
    ).split("\n") == ["3600", "3600", "3600", "(None, 3600)", "3600", ""]
    methods = store.methods()
    assert methods[:3] == ["GET"] * 3
    assert methods[3:12].count("HEAD") >= 3
    assert methods[-3:] == ["GET"] * 3, "the parent goes on"


def test_a_fork_before_obstore_was_used_has_its_own(store: RecordingStore) -> None:
    assert run(store, "in_child(count)\nprint(count())").split() == ["3600", "3600"]
    assert store.methods() == ["GET"] * 6


def test_a_file_that_was_opened_before_the_fork(store: RecordingStore) -> None:
    code = """
        source = OpenFile("data/in/0.parquet", filesystem)
        def read():
            ends = source.read(0, 4), source.read(source.size - 4, 4)
            return ends, source.is_of_one_version
        in_child(read)
        print(read())
    """
    assert run(store, code) == "((b'PAR1', b'PAR1'), False)\n((b'PAR1', b'PAR1'), True)\n"


def test_a_file_that_changed_since_the_fork_is_one(store: RecordingStore) -> None:
    store.objects["data/large"] = bytes(100_000)
    with OpenFile("data/large", objects(**keyed(store))) as source, reading_by("pyarrow"):
        assert source.read(0, 4) == bytes(4)
    with OpenFile("data/large", objects(**keyed(store))) as source:
        store.objects["data/large"] = b"\1" * 100_000
        with reading_by("pyarrow"), pytest.raises(parquet_bloom.FileChangedError, match="large"):
            source.read(0, 4)
        assert source.read(99_999, 1) == b"\0", "the end is here"


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_of_multiprocessing(store: RecordingStore, method: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        textwrap.dedent(f"""
        import multiprocessing, warnings
        import parquet_bloom
        from parquet_bloom.storage.remote import Objects
        def count(n):
            filesystem = Objects("s3", {keyed(store)!r})
            return parquet_bloom.count(f"data/in/{{n}}.parquet", filesystem=filesystem)
        if __name__ == "__main__":
            warnings.simplefilter("ignore")
            assert count(0) == 1200
            with multiprocessing.get_context({method!r}).Pool(2) as pool:
                print(pool.map_async(count, range(3)).get({SECONDS}))
    """)
    )
    done = program(tmp_path / "program.py")
    assert done.stdout == "[1200, 1200, 1200]\n", done.stderr
    assert (store.methods().count("HEAD") == 3) == (method == "fork")


def test_a_worker_that_imports_this_package_first_but_has_obstore_from_its_parent(store: RecordingStore) -> None:
    """As where the parent's own code uses obstore."""
    code = f"""
        import multiprocessing, warnings
        import obstore
        from obstore.store import S3Store
        warnings.simplefilter("ignore")
        theirs = S3Store("data", config={{"endpoint": "http://{store.endpoint}", "region": "us-east-1",
            "access_key_id": "k", "secret_access_key": "s"}}, client_options={{"allow_http": True}})
        assert obstore.get(theirs, "in/0.parquet").bytes()
        def count(n):
            import parquet_bloom
            from parquet_bloom.storage.remote import Objects
            filesystem = Objects("s3", {keyed(store)!r})
            return parquet_bloom.count(f"data/in/{{n}}.parquet", filesystem=filesystem)
        with multiprocessing.get_context("fork").Pool(1) as pool:
            print(pool.map_async(count, range(2)).get({SECONDS}))
    """
    done = program(code)
    assert done.stdout == "[1200, 1200]\n", done.stderr
    assert store.methods() == ["GET", "HEAD", "GET", "HEAD", "GET"]

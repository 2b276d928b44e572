"""What may come of a write that fails or is killed: the old bytes or the new ones, whole, and nothing else."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from support.commands import error_lines
from support.samples import flat_table, keys_table

import parquet_bloom
from parquet_bloom.errors import ParquetBloomError
from parquet_bloom.format.journal import Journal
from parquet_bloom.keys.index import KeyIndex
from parquet_bloom.keys.manifest import NAME as MANIFEST
from parquet_bloom.keys.manifest import from_json
from parquet_bloom.zones.container import FRAGMENTS, ZoneFile

HERE = Path(__file__).parent
ERRORS = {
    "open": ["EACCES", "EMFILE", "ENOMEM", "EIO", "EINTR"],
    "read": ["EIO", "EINTR", "ENOMEM"],
    "pread": ["EIO", "EINTR", "ENOMEM"],
    "write": ["ENOSPC", "EIO", "EINTR", "EDQUOT"],
    "pwrite": ["ENOSPC", "EIO", "EINTR", "EDQUOT"],
    "copy": ["EIO", "ENOSPC", "EXDEV", "EOPNOTSUPP", "EINTR"],
    "sendfile": ["EIO", "EINTR"],
    "fsync": ["EIO", "ENOSPC", "EINTR"],
    "rename": ["EACCES", "EIO", "ENOSPC", "EINTR", "ENOSYS", "EINVAL"],
    "link": ["EMLINK", "EPERM", "EIO", "ENOSPC"],
    "unlink": ["EACCES", "EIO", "EBUSY"],
    "truncate": ["EIO", "ENOSPC"],
    "flock": ["ENOLCK", "EINTR", "EIO"],
    "chmod": ["EPERM", "EIO"],
    "chown": ["EPERM", "EIO"],
    "mkdir": ["EACCES", "ENOSPC", "EIO"],
    "look": ["EIO", "EINTR", "EACCES"],
}
SHORT = ("read", "pread", "write", "pwrite", "copy", "sendfile")  # may do less than they were asked for


@dataclass(frozen=True)
class Target:
    """What an operation makes, from which folder.

    path    below the case's folder
    source  of in.parquet: "plain" or "filtered"
    old     what lies at path before: "plain", "filtered", "other", or "" for nothing; of a key index "index", which is
            of the same file, or "other index"
    """

    path: str
    source: str = "plain"
    old: str = ""
    older: bool = False  # without renameat2
    checksum: bool = False  # Hadoop's .crc lies beside what is at path
    append: bool = False  # it may be torn when it was killed, is then read as it was, and whole after the next run
    torn: int = 0  # a killed append left so many bytes behind what lies at path, and its journal


TARGETS = {
    "add -o": Target("out.parquet"),
    "add -o, older system": Target("out.parquet", older=True),
    "add -o over one": Target("out.parquet", old="other", checksum=True),
    "add -o new folder": Target("a/b/out.parquet"),
    "add --in-place": Target("in.parquet", old="plain", checksum=True),
    "add --in-place, older system": Target("in.parquet", old="plain", older=True),
    "add --in-place --read-back": Target("in.parquet", old="plain"),
    "add --in-place, chunk starts": Target("in.parquet", old="plain"),
    "add --in-place, tail": Target("in.parquet", old="plain", checksum=True),
    "add --append": Target("in.parquet", old="plain", checksum=True, append=True),
    "add --append, after a kill": Target("in.parquet", old="plain", append=True, torn=5000),
    "remove --append": Target("in.parquet", "tailed", old="tailed", checksum=True),
    "remove --in-place": Target("in.parquet", "filtered", old="filtered"),
    "remove -o": Target("out.parquet", "filtered"),
    "delete --in-place": Target("in.parquet", "flat", old="flat", checksum=True),
    "delete -o": Target("out.parquet", "flat", old="other"),
    "write_table": Target("out.parquet"),
    "write_table over one": Target("out.parquet", old="other"),
    "FilterWriter": Target("out.parquet", old="other"),
    "FilterWriter, no filters": Target("out.parquet", old="other"),
    "read -o": Target("out.csv"),
    "index build --kind lance": Target("index/id/bloomfilter.lance"),
    "index build": Target("index/manifest.json"),
    "index build over one": Target("index/manifest.json", old="other index"),
    "index update": Target("index/manifest.json", old="index"),
}


@dataclass(frozen=True)
class Fault:
    """The Nth call of a kind fails, or does half of its work, or the process is killed before or after it.

    on  also all that follow
    """

    name: str
    kind: str
    nth: int
    action: str
    code: str = ""
    on: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.action} {self.code} at {self.kind} {self.nth}{' and all after' if self.on else ''}"


@dataclass
class Tally:
    """What came of how many."""

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def compiled(folder: Path) -> Path:
    """The library to preload. Raises FileNotFoundError where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("cc")
    library = folder / "preload.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, HERE / "preload.c", "-ldl"], check=True
    )
    return library


def journal_of(path: Path, old_size: int, tail: bytes) -> Path:
    """What an append that was killed leaves beside a file."""
    found, data = path.stat(), path.read_bytes()[:old_size]
    length = int.from_bytes(data[-8:-4], "little")
    crc = zlib.crc32(data[-8 - length : -8])
    facts = (
        found.st_dev,
        found.st_ino,
        old_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
        crc,
        len(tail),
        zlib.crc32(tail),
    )
    journal = path.with_name(f".{path.name}.parquet-bloom-journal")
    journal.write_bytes(Journal(*facts).encode() + tail)
    return journal


def content(path: Path) -> bytes:
    """The bytes of a file; of a zone index, whose metadata pylance writes in any order, all that it says.

    But for the version tokens of its files, which are new ones in each case. Of a key index what its manifest leads to.
    """
    if path.name == MANIFEST:
        return key_index(path.parent)
    if path.suffix != ".lance":
        return path.read_bytes()
    from lance.file import LanceFileReader

    try:
        zones = ZoneFile(str(path))
        rows = LanceFileReader(str(path)).read_all().to_table().to_pylist()
        known = [{key: value for key, value in one.items() if key != "token"} for one in zones.fragments or []]
        return repr((sorted((zones.metadata | {FRAGMENTS: repr(known)}).items()), rows, zones.nulls)).encode()
    except ParquetBloomError as error:
        return f"torn: {error}".encode()


def key_index(folder: Path) -> bytes:
    """All that a key index says, but for the names of its segments, and for times and tokens."""
    try:
        index = KeyIndex(folder)
        found = []
        for segment in index.manifest.segments:
            listing = index.listing(segment)
            found.append(repr((segment.revision, listing.paths, *(part.tolist() for part in listing.rows))))
            for column in segment.columns:
                parts = list(index.entries(segment, column, 0, 1 << column.bits))
                found.append(repr((column.number, column.bits, [(a.tolist(), b.tolist()) for a, b in parts])))
        index.close()
        return "\n".join(found).encode()
    except (ParquetBloomError, OSError) as error:
        return f"torn: {error}".encode()


def unnamed(folder: Path) -> list[str]:
    """Files of a key index that its manifest does not name, but for its lock."""
    named = {MANIFEST, "lock"}
    if (folder / MANIFEST).exists():
        for segment in from_json((folder / MANIFEST).read_bytes(), folder).segments:
            named.add(segment.listing_name)
            named |= {segment.part_name(one.number, at) for one in segment.columns for at in range(len(one.parts))}
    found = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    return [name for name in found if name not in named]


class Forks:
    """The server of forks, and the known versions of what the operations make."""

    def __init__(self, library: Path, folder: Path) -> None:
        self._folder = folder / "case"
        warm = folder / "warm"
        warm.mkdir()
        path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", HERE / "fork_server.py", warm],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": path},
        )  # fmt: skip
        self._bytes: dict[str, bytes | None] = {}
        self._indexes: dict[str, Path] = {}
        self._new: dict[str, bytes] = {}
        self._said: dict[str, str] = {}
        self.counts: dict[str, dict[str, int]] = {}

    def learn(self, folder: Path) -> None:
        """What the operations make, say and call without any fault."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == '"ready"\n', "the operations fail without any fault"
        pq.write_table(keys_table(), folder / "plain", row_group_size=400)
        pq.write_table(keys_table(600, seed=1), folder / "other")
        pq.write_table(flat_table(), folder / "flat", row_group_size=400)
        parquet_bloom.add_filters(folder / "flat", in_place=True, columns=["id"])
        self._bytes = {"": None, **{name: (folder / name).read_bytes() for name in ("plain", "other", "flat")}}
        self._prepare(TARGETS["add --in-place"])
        assert self._ask("add --in-place", again=False)["status"] == 0
        self._bytes["filtered"] = (self._folder / "in.parquet").read_bytes()
        self._prepare(TARGETS["add --append"])
        assert self._ask("add --append", again=False)["status"] == 0
        self._bytes["tailed"] = (self._folder / "in.parquet").read_bytes()
        for name, source in (("index", "plain"), ("other index", "other")):
            self._prepare(Target("index/manifest.json", source))
            assert self._ask("index build", again=False)["status"] == 0
            (self._folder / "index").rename(folder / name)
            self._indexes[name] = folder / name
            self._bytes[name] = content(folder / name / MANIFEST)
        for name, target in TARGETS.items():
            self._prepare(target)
            answer = self._ask(name, again=False)
            assert answer["status"] == 0, (name, answer)
            self._said[name] = answer["said"]
            self._new[name] = content(self._folder / target.path)
            self.counts[name] = answer["counts"]
            assert self._new[name] != self._bytes[target.old]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _prepare(self, target: Target) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        (self._folder / "in.parquet").write_bytes(self._bytes[target.source] or b"")
        if target.path.startswith("index"):  # no index lies in the folder of its data
            (self._folder / "data").mkdir()
            for number in range(2):
                shutil.copy(self._folder / "in.parquet", self._folder / "data" / f"{number}.parquet")
        old = self._bytes[target.old]
        if target.old in self._indexes:
            shutil.copytree(self._indexes[target.old], self._folder / "index")
        elif old is not None:
            (self._folder / target.path).write_bytes(old)
        if target.checksum:
            self._checksum(target).write_bytes(b"sums of the old bytes")
        if target.torn:
            path = self._folder / target.path
            tail = (self._bytes["tailed"] or b"")[len(old or b"") :]
            with path.open("ab") as file:
                file.write(tail[: target.torn])
            journal_of(path, len(old or b""), tail)

    def _checksum(self, target: Target) -> Path:
        path = self._folder / target.path
        return path.with_name(f".{path.name}.crc")

    def _ask(self, name: str, again: bool, **fault: Any) -> dict[str, Any]:
        operation = name.removesuffix(", older system").removesuffix(", after a kill")
        ask = {
            "folder": str(self._folder),
            "name": operation,
            "again": again,
            "older": int(TARGETS[name].older),
            **fault,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(ask), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def _litter(self) -> list[str]:
        return [str(p.relative_to(self._folder)) for p in self._folder.rglob("*") if ".parquet-bloom" in p.name]

    def faults(self, name: str, long: bool) -> Iterator[Fault]:
        """Every call of every kind; `long`: with every error, once and from then on."""
        for kind, count in self.counts[name].items():
            for nth in range(count):
                yield Fault(name, kind, nth, "kill")
                yield Fault(name, kind, nth, "kill after")
                codes = ERRORS[kind] if long else [ERRORS[kind][nth % len(ERRORS[kind])]]
                for code in codes:
                    yield Fault(name, kind, nth, "fail", code, on=not long and nth % 2 == 1 and code != "EINTR")
                    if long and code != "EINTR":
                        yield Fault(name, kind, nth, "fail", code, on=True)
                if kind in SHORT:
                    yield Fault(name, kind, nth, "short")

    def run(self, fault: Fault, tally: Tally) -> None:
        """One fault, and a run after it without one."""
        target = TARGETS[fault.name]
        self._prepare(target)
        code = getattr(errno, fault.code) if fault.code else 0
        answer = self._ask(
            fault.name, False, kind=fault.kind, nth=fault.nth, action=fault.action, errno=code, on=int(fault.on)
        )
        problems = list(self._after_fault(fault, target, answer))
        after = self._ask(fault.name, True)
        problems += self._after_all(fault, target, after)
        tally.wrong += [f"{fault}: {problem}" for problem in problems]
        met = "met" if answer["hits"] else "not met"
        status = answer["status"]
        told = {0: "done", 2: "one line", -9: "killed"}.get(status, str(status))
        tally.outcomes[f"{fault.action}, {met}, {told}, {self._was}"] += 1

    def _state(self, name: str, target: Target) -> str:
        path = self._folder / target.path
        data = content(path) if path.exists() else None
        return "new" if data == self._new[name] else "old" if data == self._bytes[target.old] else "torn"

    def _after_fault(self, fault: Fault, target: Target, answer: dict[str, Any]) -> Iterator[str]:
        status, said = answer["status"], answer["said"]
        state = self._was = self._state(fault.name, target)
        if state == "torn" and not target.append:
            yield "the target is neither old nor new"
        elif state == "torn":
            yield from self._reads_as_before(target, answer)
        if status == 0 and (state != "new" or said != self._said[fault.name]):
            yield f"says nothing of a failure, but is {state}: {said}"
        elif status == 2:
            if error_lines(said) != 1 or not said.startswith("parquet-bloom: "):
                yield f"more or less than one line: {said}"
            if state == "new" and "has its new version" not in said:
                yield f"is new and says that it failed: {said}"
        elif status not in (0, 2) and not (status == -9 and fault.action.startswith("kill")):
            yield f"ends with {status}: {said}"
        if fault.action == "short" and status != 0:
            yield f"a short read or write is no failure: {said}"
        if target.path != "in.parquet" and (self._folder / "in.parquet").read_bytes() != self._bytes[target.source]:
            yield "the source changed"
        if target.checksum:
            there = self._checksum(target).exists()
            if state == "new" and there:
                yield "has the checksums of the old bytes"
            if (
                state == "old"
                and not there
                and not fault.action.startswith("kill")
                and fault.kind not in ("rename", "unlink", "link")
            ):
                yield "lost its checksums"
        recovers = "the next add or remove does that" in said or target.torn
        if not (fault.action.startswith("kill") or fault.kind == "unlink" or recovers) and (litter := self._litter()):
            yield f"leaves {litter}"

    def _reads_as_before(self, target: Target, answer: dict[str, Any]) -> Iterator[str]:
        """A torn file whose journal is there is read as it was before the append."""
        if answer["status"] != -9 and "the next add or remove does that" not in answer["said"] and not target.torn:
            yield "is torn, and nobody says so"
        path = self._folder / target.path
        if not parquet_bloom.read_table(path).equals(keys_table()):
            yield "is torn, and is not read as it was"
        if parquet_bloom.inspect(path).files[0].filters:
            yield "is torn, and filters are seen that it did not have"

    def _after_all(self, fault: Fault, target: Target, answer: dict[str, Any]) -> Iterator[str]:
        if answer["status"] != 0 or answer["said"] != self._said[fault.name]:
            yield f"the next run ends with {answer['status']}: {answer['said']}"
        if self._state(fault.name, target) != "new":
            yield f"is {self._state(fault.name, target)} after the next run"
        if litter := self._litter():
            yield f"the next run leaves {litter}"
        # An update leaves what the old manifest named, for programs that read it.
        builds = target.path == "index/manifest.json" and "update" not in fault.name
        if builds and (left := unnamed(self._folder / "index")):
            yield f"the next run leaves {left}"

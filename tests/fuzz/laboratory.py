"""Runs cases in a worker, starts a new one after each crash, and keeps the inputs of what was found.

    python tests/fuzz/laboratory.py --decoders 1000000 --calls 100000 --logs 50000 --folders 20000 --out found/
    python tests/fuzz/laboratory.py --target footer --first 1234 --count 1              one case again

A finding is any exception that is not ours, an end of the process, a case of too many seconds or too much memory.
What is found twice at one place counts once. Seeds: fixtures/, and the small files of other projects in the folder that
PARQUET_BLOOM_CORPUS names.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

WEIGHTS = {"footer": 4, "outline": 3, "edit": 2, "filter": 4, "text": 2, "index": 1, "file": 12}
WEIGHTS |= {"delta": 20, "iceberg": 4, "ducklake_sqlite": 3}  # a case of DuckDB takes as long as 25 of Delta
WEIGHTS |= {"key_index": 8, "zone_index": 4, "data_folder": 4, "delta_folder": 8}


@dataclass
class Lab:
    """A worker, and what it found.

    executions  by target; refused those that ended in an error of ours
    findings    by target, kind and place: the first of each, how often it was met
    """

    folder: Path
    patience: float = 60  # seconds without an end of a case
    module: Path = HERE / "targets.py"
    executions: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    findings: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    restarts: int = 0
    _worker: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Lab:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._progress = self.folder / "progress"
        self._progress.write_bytes(bytes(16))
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._worker is None:
            with (self.folder / "stderr").open("wb") as errors:
                self._worker = subprocess.Popen(
                    [sys.executable, str(HERE / "worker.py"), str(self.folder), str(self._progress), str(self.module)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                )  # fmt: skip
        return self._worker

    def _stop(self) -> int:
        worker, self._worker = self._worker, None
        if worker is None:
            return 0
        worker.stdin.close()  # type: ignore[union-attr]
        try:
            status = worker.wait(10)
        except subprocess.TimeoutExpired:
            worker.kill()
            status = worker.wait()
        worker.stdout.close()  # type: ignore[union-attr]
        return status

    def run(self, target: str, first: int, count: int, data: bytes | None = None) -> None:
        """Run cases, past those that end the worker."""
        stop = first + count
        while first < stop:
            worker = self._start()
            job = {"target": target, "first": first, "count": stop - first}
            assert worker.stdin is not None
            worker.stdin.write(json.dumps(job if data is None else {**job, "input": data.hex()}).encode() + b"\n")
            worker.stdin.flush()
            last = self._listen(worker, target)
            if last is None:
                self.executions[target] += stop - first
                return
            self.executions[target] += max(0, last - first + 1)
            first = last + 1

    def _listen(self, worker: subprocess.Popen[bytes], target: str) -> int | None:
        """Take findings until the job is done; else the number of the case that ended the worker."""
        assert worker.stdout is not None
        fd, rest, case, since = worker.stdout.fileno(), b"", -1, time.monotonic()
        while True:
            ready, _, _ = select.select([fd], [], [], 1)
            if ready:
                part = os.read(fd, 1 << 20)
                *lines, rest = (rest + part).split(b"\n")
                for line in map(json.loads, lines):
                    if "done" in line:
                        self.refused[target] += line["refused"]
                        return None
                    self._note(line)
                if not part:
                    return self._ended(target)
            now = int.from_bytes(self._progress.read_bytes()[:8], "little")
            if now != case:
                case, since = now, time.monotonic()
            elif time.monotonic() - since > self.patience:
                worker.send_signal(signal.SIGKILL)
                return self._ended(target, hung=True)

    def _ended(self, target: str, hung: bool = False) -> int:
        number = int.from_bytes(self._progress.read_bytes()[:8], "little")
        started = self._progress.read_bytes()[8]
        self._progress.write_bytes(bytes(16))
        status = self._stop()
        self.restarts += 1
        for left in self.folder.glob(".*.parquet-bloom"):  # of the call that was ended; the next would wonder
            left.unlink()
        if not started:
            raise RuntimeError(f"the worker cannot start: {(self.folder / 'stderr').read_text()[-2000:]}")
        name = "hung" if hung else signal.Signals(-status).name if status < 0 else f"exit {status}"
        self._note(
            {"kind": name, "what": "", "where": "", "target": target, "number": number, "input": "", "id": str(number)}
        )
        return number

    def _note(self, found: dict[str, Any]) -> None:
        key = (found["target"], found["kind"], found["where"] or found["what"][:0])
        kept = self.findings.setdefault(key, {**found, "times": 0})
        kept["times"] += 1

    def save(self, out: Path) -> None:
        """Each finding as TARGET-KIND-ID.bin and .txt."""
        out.mkdir(parents=True, exist_ok=True)
        for found in self.findings.values():
            base = out / f"{found['target']}-{found['kind']}-{found['id']}"
            if not found["input"]:
                found["input"] = self._made_again(found).hex()
            base.with_suffix(".bin").write_bytes(bytes.fromhex(found["input"]))
            base.with_suffix(".txt").write_text(json.dumps({k: v for k, v in found.items() if k != "input"}, indent=1))

    def _made_again(self, found: dict[str, Any]) -> bytes:
        import worker
        from targets import TARGETS

        return worker.make(TARGETS[found["target"]], found["target"], found["number"], self.folder)

    def told(self) -> Iterator[str]:
        for (target, kind, where), found in sorted(self.findings.items()):
            yield f"{target} {kind} {where} case {found['number']} x{found['times']}: {found['what'][:160]}"


def rounds(targets: Sequence[str], executions: int, chunk: int, first: int) -> Iterator[tuple[str, int, int]]:
    """(target, first case, cases): all targets in turn, by their weights, until there were so many."""
    weights = {target: WEIGHTS.get(target, 1) for target in targets}
    at = dict.fromkeys(targets, first)
    left = executions
    while left > 0:
        for target, weight in weights.items():
            n = min(weight * chunk, left)
            if n > 0:
                yield target, at[target], n
            at[target] += n
            left -= n


def main() -> int:
    from targets import CALLS, DECODERS, FOLDERS, LOGS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--decoders", type=int, default=0, help="executions of decoders and predicates")
    parser.add_argument("--calls", type=int, default=0, help="whole calls")
    parser.add_argument("--logs", type=int, default=0, help="tables whose logs lie")
    parser.add_argument("--folders", type=int, default=0, help="folders with links, FIFOs, devices and sparse files")
    parser.add_argument("--first", type=int, default=0, help="number of the first case of each target")
    parser.add_argument("--target", help="this one only, with --count")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10**6, help="stop after so many")
    parser.add_argument("--patience", type=float, default=60, help="seconds of a case, after which the worker is ended")
    parser.add_argument("--out", type=Path, default=Path("fuzz-found"))
    options = parser.parse_args()
    print(f"cases from number {options.first} on", flush=True)
    begun = time.monotonic()
    base = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=base) as folder, Lab(Path(folder), options.patience) as lab:
        plan = [(options.target, options.first, options.count)] if options.target else []
        for targets, n, chunk in (
            (DECODERS, options.decoders, 100),
            (CALLS, options.calls, 20),
            (LOGS, options.logs, 20),
            (FOLDERS, options.folders, 20),
        ):
            plan += list(rounds(list(targets), n, chunk, options.first))
        known = 0
        for i, (target, first, count) in enumerate(plan):
            if time.monotonic() - begun > 60 * options.minutes:
                break
            lab.run(target, first, count)
            if len(lab.findings) > known:
                known = len(lab.findings)
                lab.save(options.out)
            if i % 50 == 49:
                done, seconds = sum(lab.executions.values()), time.monotonic() - begun
                print(f"{done:,} executions, {seconds:.0f} s, {done / seconds:.1f}/s, {known} findings", flush=True)
        lab.save(options.out)
        for line in lab.told():
            print(line)
        for target, n in lab.executions.items():
            print(f"{target}: {n:,} executions, {lab.refused[target] / n:.0%} refused")
        print(f"{lab.restarts} restarts, {time.monotonic() - begun:.0f} s, {len(lab.findings)} findings")
        return 1 if lab.findings else 0


if __name__ == "__main__":
    sys.exit(main())

"""The process in which cases run, until one of them ends it: python worker.py FOLDER PROGRESS MODULE

A line of JSON on stdin names a target of MODULE and its cases; what is found is a line of JSON on stdout. Before
each case its number goes into the file PROGRESS, so that who waits outside knows which took too long, or was the last.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import mmap
import os
import random
import resource
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ADDRESSES = 12 << 30  # bytes
MEMORY = 400 << 20  # bytes of one case, beyond what was in use at most before it
SECONDS = {False: 2.0, True: 20.0}  # of the processor, by whether a call is whole


def make(target: Any, name: str, number: int, folder: Path) -> bytes:
    """The input of a case."""
    made: bytes = target.make(random.Random(f"{name}/{number}"), folder)
    return made


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "parquet_bloom" in frame.filename] or list(frames)
    return f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else ""


def _peak() -> int:
    """The most memory this process had, KiB. getrusage's number begins with that of the process which started it."""
    with open("/proc/self/status") as status:
        return int(next(line.split()[1] for line in status if line.startswith("VmHWM")))


def main() -> None:
    folder, progress = Path(sys.argv[1]), sys.argv[2]
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path.insert(0, os.path.dirname(sys.argv[3]))
    module = importlib.import_module(Path(sys.argv[3]).stem)
    own, targets = module.OWN_ERRORS, module.TARGETS
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(progress, "r+b") as file:
        shared = mmap.mmap(file.fileno(), 16)
    for line in sys.stdin:
        job = json.loads(line)
        target, name = targets[job["target"]], job["target"]
        first, refused = job["first"], 0
        for i, number in enumerate(range(first, first + job["count"])):
            data = bytes.fromhex(job["input"]) if "input" in job else make(target, name, number, folder)
            shared[:16] = number.to_bytes(8, "little") + (1).to_bytes(8, "little")
            before, begun = _peak(), time.process_time()
            found: dict[str, Any] = {}
            try:
                target.run(data, folder)
            except own as error:
                refused += 1
                if not str(error):
                    found = {"kind": "silent", "what": type(error).__name__, "where": _where(error)}
            except (Exception, MemoryError, RecursionError) as error:
                found = {"kind": type(error).__name__, "what": str(error)[:300], "where": _where(error)}
                found["trace"] = "".join(traceback.format_exception(error))[-4000:]
            seconds = time.process_time() - begun
            grown = (_peak() - before) << 10
            if not found and i and grown > MEMORY:  # the first case loads and compiles
                found = {"kind": "memory", "what": f"{grown >> 20} MiB", "where": ""}  # slow by it, too: new pages cost
            if not found and i and seconds > SECONDS[target.whole]:
                found = {"kind": "slow", "what": f"{seconds:.1f} s", "where": ""}
            if found:
                digest = hashlib.sha256(data).hexdigest()[:12]
                found |= {"target": name, "number": number, "input": data.hex(), "id": digest}
                print(json.dumps(found), file=answers)
        shared[:16] = bytes(16)
        print(json.dumps({"done": job["count"], "refused": refused}), file=answers, flush=True)


if __name__ == "__main__":
    main()

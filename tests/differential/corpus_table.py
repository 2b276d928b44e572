"""Every file of fixtures/ and of other projects through every command: a table of what comes of it.

    PARQUET_BLOOM_CORPUS=FOLDER PYTHONPATH=tests python tests/differential/corpus_table.py

writes docs/reliability/corpus.md.

Each file has a process of its own, in which its commands run one after the other. `ok` and `no` are exit status 0 and
1; `refused` is 2, with one line that says why. Whatever else happens stands there as it is: a traceback, an
unexpected error, a signal, more than 60 seconds or 2 GB.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.corpus import corpus_file, corpus_files, fixture_files, others

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability" / "corpus.md"
COMMANDS = ("inspect", "verify", "check", "read", "add", "remove", "index")
SECONDS, MEGABYTES = 60, 2048

_WORK = textwrap.dedent("""
    import os, sys, time, tempfile
    import parquet_bloom
    from parquet_bloom import cli
    from parquet_bloom.storage.open_file import OpenFile

    source, folder = sys.argv[1:]
    made, back = os.path.join(folder, "made.parquet"), os.path.join(folder, "back.parquet")
    zones = os.path.join(folder, "zones")
    try:
        with OpenFile(source) as opened:
            leaves = opened.footer().leaves
        column = next((leaf.name for leaf in leaves if not leaf.repeated and leaf.refusal is None), "x")
    except parquet_bloom.errors.ParquetBloomError:
        column = "x"
    quoted = '"' + column.replace('"', '""') + '"' if "." not in column else column

    def memory_of(name):
        with open("/proc/self/status") as status:
            return int(next(line.split()[1] for line in status if line.startswith(name))) >> 10

    commands = {
        "inspect": ["inspect", source],
        "verify": ["verify", source],
        "check": ["check", source, f"{quoted} IS NULL"],
        "read": ["read", source, "--limit", "5", "--format", "json"],
        "add": ["add", source, "-o", made, "-c", "*", "--no-sync"],
        "remove": ["remove", made, "-o", back, "--no-sync"],
        "index": ["index", "build", "--kind", "lance", source, "-c", column, "-o", zones, "--no-sync"],
    }
    told = os.dup(1)
    for name, arguments in commands.items():
        said = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT, 0o600)
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(said, 2)
        began = time.monotonic()
        with open("/proc/self/clear_refs", "w") as peak:
            peak.write("5")  # the peak of memory begins again, at what Arrow keeps of the last command
        before = memory_of("VmRSS")
        if name == "remove" and not os.path.exists(made):
            os.write(told, b"remove nothing-to-do\\n")
            continue
        os.write(told, f"{name} ".encode())
        status = cli.run(arguments)
        took = time.monotonic() - began
        memory = memory_of("VmHWM") - before
        text = os.pread(said, 1 << 20, 0).decode(errors="replace")
        words = {0: "ok", 1: "no", 2: "refused"}
        outcome = words.get(status, f"status-{status}")
        if "Traceback" in text or "unexpected error" in text:
            outcome = "unexpected-error"
        elif status == 2 and len([line for line in text.splitlines() if line.startswith("parquet-bloom: ")]) != 1:
            outcome = "refused-in-several-lines"
        elif name == "remove" and status == 0 and open(back, "rb").read() != open(source, "rb").read():
            outcome = "ok-other-bytes"
        if took > SECONDS:
            outcome += f"-in-{took:.0f}-s"
        if memory > MEGABYTES:
            outcome += f"-with-{memory / 1024:.1f}-GB"
        os.write(told, f"{outcome}\\n".encode())
""")


def names() -> list[str]:
    """All files of fixtures/, and those of other projects that are there."""
    return sorted([*fixture_files(), *corpus_files()])


def outcomes(path: Path) -> dict[str, str]:
    """What comes of each command over one file."""
    code = _WORK.replace("SECONDS", str(SECONDS)).replace("MEGABYTES", str(MEGABYTES))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", code, str(path), folder]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=400)
            out, ended = done.stdout, f"ends-the-process-with-{done.returncode}"
        except subprocess.TimeoutExpired as error:
            out, ended = (error.stdout or b"").decode(), "does-not-end"
    found = dict.fromkeys(COMMANDS, "not-reached")
    for line in out.splitlines():
        name, _, outcome = line.partition(" ")
        found[name] = outcome or ended
    return found


_HEAD = """# The corpus, command by command

Files that other programs wrote, sound, odd, damaged and encrypted, through every command. `inspect`, `verify`, `check`
(whether the first flat column is NULL), `read` (five rows), `add` (every column), `remove` (of what `add` made: `ok`
means the old file, byte for byte; `ok-other-bytes` where it is another one),
`index build --kind lance` (that column). `ok` and `no` are exit status 0 and 1, `refused` is 2, with one line that says
why. A command over 60 s or a process over 2 GB would be named here. The folders `bad`, `bloom`, `encrypted` and `nasty`
hold files of other projects ([which](../../fixtures/others.tsv),
[how to get them](../../CONTRIBUTING.md#files-of-other-projects)); the others are in
[fixtures](../../fixtures/README.md). Made by
`PARQUET_BLOOM_CORPUS=FOLDER PYTHONPATH=tests python tests/differential/corpus_table.py`.

"""


def page(found: dict[str, dict[str, str]]) -> str:
    kinds = sorted({outcome for of in found.values() for outcome in of.values()})
    text = _HEAD + f"| {len(found)} files | {' | '.join(kinds)} |\n|{' --- |' * (len(kinds) + 1)}\n"
    for command in COMMANDS:
        counts = Counter(of[command] for of in found.values())
        text += f"| `{command}` | {' | '.join(str(counts[kind] or '') for kind in kinds)} |\n"
    text += f"\n| file | {' | '.join(COMMANDS)} |\n|{' --- |' * (len(COMMANDS) + 1)}\n"
    for name, of in found.items():
        text += f"| {name} | {' | '.join(of[command] for command in COMMANDS)} |\n"
    return text


def told() -> dict[str, dict[str, str]]:
    """The outcomes that the page tells."""
    lines = PAGE.read_text().partition("\n| file |")[2].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: dict(zip(COMMANDS, rest, strict=True)) for name, *rest in rows}


def main() -> None:
    if others() is None:
        sys.exit("PARQUET_BLOOM_CORPUS names no folder")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(names(), pool.map(lambda name: outcomes(corpus_file(name)), names()), strict=True))
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(found))
    print(page(found).partition("\n| file |")[0])


if __name__ == "__main__":
    main()

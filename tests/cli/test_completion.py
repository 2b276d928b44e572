"""What shells complete: asked of bash, zsh and fish themselves."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.commands import command
from support.samples import write_keys

ASKED = [  # what is typed -> what stands there after a tab
    ("parquet-bloom adv", "parquet-bloom advise "),
    ("parquet-bloom inspect --assert-f", "parquet-bloom inspect --assert-filters "),
    ("parquet-bloom add ke", "parquet-bloom add keys.parquet "),
    ("parquet-bloom add keys.parquet --column half", "parquet-bloom add keys.parquet --column half_null "),
]


@pytest.fixture
def shells(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that finds the command; the folder has keys.parquet."""
    write_keys(tmp_path / "keys.parquet")
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "parquet-bloom"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m parquet_bloom "$@"\n')
    script.chmod(0o755)
    path = f"{script.parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(tmp_path), "TERM": "xterm", "PS1": "$ "}


def typed(words: list[str], cwd: Path, environment: dict[str, str], keys: str, wanted: str) -> str:
    """What a shell's terminal shows from `keys` on, until `wanted` is there or half a minute has passed."""
    fd, end = pty.openpty()
    shell = subprocess.Popen(["setsid", "-c", *words], stdin=end, stdout=end, stderr=end, cwd=cwd, env=environment)
    os.close(end)
    seen = ""
    try:
        for text, until in (("echo re''ady\n", "ready"), (keys, wanted)):
            seen = ""
            os.write(fd, text.encode())
            end = time.monotonic() + 30
            while until not in seen and time.monotonic() < end:
                if select.select([fd], [], [], 0.2)[0]:
                    seen += os.read(fd, 1 << 16).decode(errors="replace")
    finally:
        shell.kill()
        shell.wait()
        os.close(fd)
    return seen


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_tab_completes(shell: str, shells: dict[str, str], tmp_path: Path) -> None:
    if shutil.which(shell) is None or shutil.which("setsid") is None:
        pytest.skip(f"{shell} or setsid is not installed")
    words = ["bash", "--norc", "--noprofile", "-i"] if shell == "bash" else ["zsh", "-f", "-i"]
    start = "autoload -U compinit; compinit -u -D; " if shell == "zsh" else ""
    loaded = f'{start}eval "$(parquet-bloom completion {shell})"; echo lo""aded\n'
    for keys, wanted in ASKED:
        rest = wanted[len(keys) :]
        seen = typed(words, tmp_path, shells, loaded + keys + "\t", rest if shell == "bash" else rest.strip())
        assert rest.strip() in seen.split("loaded")[-1], seen


def test_fish_completes(shells: dict[str, str], tmp_path: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    for keys, wanted in ASKED:
        script = f"parquet-bloom completion fish | source; complete -C '{keys}'"
        words = ["fish", "--no-config", "-c", script]
        done = subprocess.run(words, capture_output=True, text=True, env=shells, cwd=tmp_path, check=True)
        assert wanted.split()[-1] in [line.split("\t")[0] for line in done.stdout.splitlines()], keys


def test_what_cannot_be_read_completes_nothing(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("no Parquet file")
    asked = {"COMP_WORDS": "parquet-bloom add text.parquet --column ", "COMP_CWORD": "4"}
    done = command(cwd=tmp_path, _PARQUET_BLOOM_COMPLETE="bash_complete", **asked)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
    assert command("completion", "tcsh").returncode == 2

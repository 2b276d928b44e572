"""Type checkers understand the public functions: a program that uses each of them passes, a wrong one does not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import parquet_bloom
from parquet_bloom import lance, spark

PROGRAM = Path(__file__).with_name("typing_program.py")
PROGRAMS = ("program.py", "wrong.py")
SOURCE = Path(parquet_bloom.__file__).parents[1]
WRONG = {
    "read_table(path, ": "read_table(path, range_value=5, ",
    'nan="ieee"': 'nan="java"',
    "sample=3": 'sample="3"',
    "one.fpp": "one.rate",
    'form="final"': 'form="finale"',
    '"replace": True': '"replaces": True',
    "read_back=True": "readback=True",
    "threads=1": "thread=1",
    "raw_files=True)": "raw_file=True)",
    "task_bytes=1": "task_size=1",
    'compression="zstd"': 'compresion="zstd"',
    '"use_dictionary": ["id"]': '"use_dictionary": 3',
}


def mypy(folder: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "mypy", "--strict", "--config-file", "mypy.ini", *PROGRAMS]
    # pyarrow and pyspark have no types of their own, or ones that need what is not installed; as users set it.
    settings = f"[mypy]\nmypy_path = {SOURCE}\n[mypy-pyarrow.*,pyspark.*]\nignore_missing_imports = True\n"
    (folder / "mypy.ini").write_text(settings)
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, check=False)


def pyright(folder: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("pyright", reason="pyright is not installed")
    (folder / "pyrightconfig.json").write_text(f'{{"extraPaths": ["{SOURCE}"], "typeCheckingMode": "standard"}}')
    words = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, *PROGRAMS]
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, check=False)


@pytest.mark.more
@pytest.mark.parametrize("checker", [mypy, pyright], ids=["mypy --strict", "pyright"])
def test_a_program_passes_and_a_wrong_one_does_not(checker, tmp_path: Path) -> None:
    """Each mistake is reported at its own line; without that, the right program could pass over untyped functions."""
    text = PROGRAM.read_text()
    (tmp_path / "program.py").write_text(text)
    for right, wrong in WRONG.items():
        assert right in text
        text = text.replace(right, wrong, 1)
    (tmp_path / "wrong.py").write_text(text)
    done = checker(tmp_path)
    found = re.findall(r"(program|wrong)\.py:(\d+)[:\d]*:? (?:-? ?)error", done.stdout)
    assert not [line for name, line in found if name == "program"], done.stdout + done.stderr
    lines = [n for n, line in enumerate(text.splitlines(), 1) if any(wrong in line for wrong in WRONG.values())]
    assert set(lines) <= {int(n) for name, n in found if name == "wrong"}, done.stdout


def test_every_public_function_is_in_the_program() -> None:
    text = PROGRAM.read_text()
    for module, name in ((parquet_bloom, "parquet_bloom"), (lance, "lance"), (spark, "spark")):
        functions = [one for one in module.__all__ if one[0].islower()]
        assert len(functions) >= 5
        assert not [one for one in functions if f"{name}.{one}(" not in text], name


def test_the_types_are_shipped() -> None:
    assert (Path(parquet_bloom.__file__).parent / "py.typed").exists()

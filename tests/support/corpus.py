"""Where the files are that other programs wrote.

In fixtures/, part of the checkout: files that released programs wrote for us (those with a NAME.expected.json beside
them), files that we changed byte by byte, and vectors, values that other programs computed. The rest of the corpus are
files of other projects, which are not ours to copy: PARQUET_BLOOM_CORPUS names their folder, fixtures/others.tsv lists
them, and `.ci/corpus` fetches them. Tests that need one are skipped, and say so, where it is not there;
PARQUET_BLOOM_REQUIRE_CORPUS=1 makes that a failure.
"""

from __future__ import annotations

import os
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
_WITHOUT_EXPECTATIONS = ("generated_by_peers", "malformed_lab", "placement_lab")


def others() -> Path | None:
    """The folder of the files of other projects; None where nobody named one."""
    named = os.environ.get("PARQUET_BLOOM_CORPUS")
    if not named and _required():
        raise RuntimeError("PARQUET_BLOOM_CORPUS names no folder, and PARQUET_BLOOM_REQUIRE_CORPUS=1")
    return Path(named) if named else None


def _required() -> bool:
    return os.environ.get("PARQUET_BLOOM_REQUIRE_CORPUS") == "1"


def corpus_file(name: str) -> Path:
    """The file `folder/name` of fixtures/ or of other projects; skips the test where there is none."""
    if (FIXTURES / name).is_file():
        return FIXTURES / name
    folder = others()
    if folder is not None and (folder / name).is_file():
        return folder / name
    reason = f"{folder / name} is not there" if folder else f"PARQUET_BLOOM_CORPUS names no folder with {name}"
    if _required():
        pytest.fail(f"{reason}, and PARQUET_BLOOM_REQUIRE_CORPUS=1")
    pytest.skip(reason)


def vector_file(name: str) -> Path:
    """The file `name` of the vectors."""
    return FIXTURES / "vectors" / name


@cache
def others_files() -> tuple[str, ...]:
    """The names of the Parquet files of other projects; one of those with the same bytes, none that fixtures/ has."""
    folder = others()
    if folder is None:
        return ()
    seen = {sha256(path.read_bytes()).digest() for path in FIXTURES.rglob("*.parquet")}
    names = []
    for path in sorted(path for path in folder.rglob("*.parquet*") if path.is_file()):
        digest = sha256(path.read_bytes()).digest()
        if digest not in seen:
            names.append(path.relative_to(folder).as_posix())
        seen.add(digest)
    if not names and _required():
        raise RuntimeError(f"{folder} holds no Parquet files, and PARQUET_BLOOM_REQUIRE_CORPUS=1")
    return tuple(names)


def corpus_files() -> list[str]:
    """The names of all Parquet files that no NAME.expected.json describes, for parametrisation."""
    ours = (path for folder in _WITHOUT_EXPECTATIONS for path in (FIXTURES / folder).glob("*.parquet"))
    return sorted([*(path.relative_to(FIXTURES).as_posix() for path in ours), *others_files()])


def fixture_files() -> list[str]:
    """The names of the fixtures with a NAME.expected.json, as in corpus_files."""
    described = (path.with_suffix("").with_suffix(".parquet") for path in FIXTURES.rglob("*.expected.json"))
    return sorted(path.relative_to(FIXTURES).as_posix() for path in described)


def footer_files() -> list[str]:
    """The names of all of these files that have a footer in the clear."""
    return [name for name in [*fixture_files(), *corpus_files()] if footer_bytes(corpus_file(name)) is not None]


def footer_bytes(path: Path) -> bytes | None:
    """The bytes of a file's footer by its tail, | footer | u32 length | PAR1 |; None if it has none."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    if data[-4:] != b"PAR1" or length > len(data) - 12:
        return None
    return data[-8 - length : -8]

"""Where the files other programs wrote are: fixtures in this checkout, and a corpus beside it.

The corpus and the vectors are not part of the checkout. Tests that need them are skipped, and say
so, where there are none; PARQUET_BLOOM_REQUIRE_CORPUS=1 makes that a failure.

    PARQUET_BLOOM_CORPUS   default <checkout>/../shared/corpus
    PARQUET_BLOOM_VECTORS  default the folder `vectors` beside the corpus
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parent.parent
FIXTURES = _ROOT / "fixtures"


def _folder(variable: str, default: Path) -> Path:
    return Path(os.environ[variable]) if os.environ.get(variable) else default


CORPUS = _folder("PARQUET_BLOOM_CORPUS", _ROOT.parent / "shared" / "corpus")
VECTORS = _folder("PARQUET_BLOOM_VECTORS", CORPUS.parent / "vectors")


def _required() -> bool:
    return os.environ.get("PARQUET_BLOOM_REQUIRE_CORPUS") == "1"


def _found(path: Path) -> Path:
    if not path.is_file():
        reason = f"{path} is not there"
        if _required():
            pytest.fail(f"{reason}, and PARQUET_BLOOM_REQUIRE_CORPUS=1")
        pytest.skip(reason)
    return path


def corpus_file(name: str) -> Path:
    """The file `folder/name` of the corpus; skips the test where there is none."""
    return _found(CORPUS / name)


def vector_file(name: str) -> Path:
    """The file `name` of the vectors; skips the test where there is none."""
    return _found(VECTORS / name)


def corpus_files() -> list[str]:
    """The names of all Parquet files of the corpus, for parametrisation; empty where there is none."""
    names = sorted(str(p.relative_to(CORPUS)) for p in CORPUS.rglob("*.parquet*") if p.is_file())
    if not names and _required():
        raise RuntimeError(f"{CORPUS} holds no Parquet files, and PARQUET_BLOOM_REQUIRE_CORPUS=1")
    return names


def fixture_files() -> list[str]:
    """The names of all fixtures, as in corpus_files."""
    return sorted(str(p.relative_to(FIXTURES)) for p in FIXTURES.rglob("*.parquet"))


def footer_files() -> list[str]:
    """The names of all fixtures and files of the corpus that have a footer in the clear."""
    return [name for name in [*fixture_files(), *corpus_files()] if footer_bytes(file_named(name)) is not None]


def file_named(name: str) -> Path:
    """A fixture or a file of the corpus."""
    return FIXTURES / name if (FIXTURES / name).is_file() else corpus_file(name)


def footer_bytes(path: Path) -> bytes | None:
    """The bytes of a file's footer by its tail, | footer | u32 length | PAR1 |; None if it has none."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    if data[-4:] != b"PAR1" or length > len(data) - 12:
        return None
    return data[-8 - length : -8]

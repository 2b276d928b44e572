"""Small files for the tests, written by pyarrow, and ways to look at them."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURES = REPOSITORY / "fixtures"

PYARROW = int(pa.__version__.partition(".")[0])  # what a test needs of pyarrow's writer may be newer than what we need

ROW_GROUPS, ROWS = 3, 400
NOBODY = 65534


@cache
def keys_table(rows: int = ROW_GROUPS * ROWS, seed: int = 7) -> pa.Table:
    """Random keys of several kinds; `id` i of row group g is never in another row group."""
    rng = np.random.default_rng(seed)
    ids = rng.choice(2**62, rows, replace=False)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array([f"user-{i:x}" for i in ids]),
            "half_null": pa.array([None if i % 2 else float(i) for i in range(rows)], pa.float64()),
            "flag": pa.array([bool(i % 3) for i in range(rows)]),
            "colour": pa.array(["red", "green", "blue"] * (rows // 3) + ["red"] * (rows % 3)),
            "tags": pa.array([[int(i), int(i) + 1] for i in ids], pa.list_(pa.int64())),
            "user": pa.array([{"id": int(i), "mail": f"{i}@x"} for i in ids]),
        }
    )


def flat_table() -> pa.Table:
    """The same without nested columns."""
    return keys_table().drop_columns(["tags", "user"])


def random_bytes(rng: np.random.Generator, n: int, width: int) -> pa.Array:
    """binary[n] of so many bytes each; a call of the generator for each takes twenty times as long."""
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), n, [None, pa.py_buffer(rng.bytes(n * width))]).cast(
        pa.binary()
    )


def write_keys(path: Path, **options: object) -> Path:
    """A file of three row groups; `colour` is wholly dictionary-encoded, the others are not."""
    options = {"row_group_size": ROWS, "use_dictionary": ["colour"], "compression": "zstd", **options}
    key = repr(options)
    if key not in _written:  # hundreds of tests want the same bytes
        out = pa.BufferOutputStream()
        pq.write_table(keys_table(), out, **options)
        _written[key] = out.getvalue().to_pybytes()
    path.write_bytes(_written[key])
    return path


_written: dict[str, bytes] = {}


def same_rows(a: pa.Table, b: pa.Table) -> bool:
    """Equal schema and values, NaN equal to NaN and -0.0 different from 0.0."""
    return a.schema.equals(b.schema) and repr(a.to_pylist()) == repr(b.to_pylist())


def case_id(value: object) -> str:
    """The name of a test's case; without addresses, which differ between the processes that share the tests."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))[:50]


def digest(path: Path | str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def leftovers(folder: Path) -> list[str]:
    """Temporary files and journals of ours in a folder: there must never be any."""
    return [name for name in os.listdir(folder) if ".parquet-bloom" in name]


def no_listing_of(name: str, patch: pytest.MonkeyPatch) -> None:
    """Let listing folders of this name fail, as it does without rights; root would have them."""
    real = os.scandir

    def closed(path: str) -> object:
        if str(path).endswith(name):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    patch.setattr(os, "scandir", closed)


def open_to_all(folder: Path) -> None:
    """Let every user write there, and pass through the folders of pytest above."""
    folder.chmod(0o777)
    for parent in folder.parents:
        if not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)


def as_nobody(work: Callable[[], object]) -> int:
    """Run it as another user, in a fork; its exit status. Only root can do that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pylance's, of any fork; nothing of it is used here
        child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

"""Files that follow the 2015 draft to the letter: a filter as field 7 of a chunk's Statistics.

No released program wrote one. Made from a file of pyarrow's: its footer is parsed, today's fields 7
and 8 of Statistics leave, and the struct goes in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from parquet_bloom.format.compact_tree import BINARY, STRUCT, Node, _Field, parse
from parquet_bloom.format.footer import ChunkKey
from support import naive

_EVERYTHING = {4: {1: {3: {8: {}, 12: {}}}}}


def split(path: Path) -> tuple[bytes, bytes]:
    """A file's body and footer."""
    data = path.read_bytes()
    at = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return data[:at], data[at:-8]


def join(path: Path, body: bytes, footer: bytes) -> Path:
    path.write_bytes(body + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    return path


def struct(longs: list[int], k: int, strategy: int = 0, num_bits: int | None = None) -> bytes:
    """The draft's first form; longs are unsigned."""
    signed = [n - 2**64 if n >> 63 else n for n in longs]
    m = 64 * len(longs) if num_bits is None else num_bits
    return naive.thrift_struct([(1, 9, (6, signed)), (2, 5, m), (3, 5, k), (4, 5, strategy)])


def binary_struct(bit_set: bytes, num_bits: int, k: int, strategy: int = 0) -> bytes:
    """The later form."""
    return naive.thrift_struct([(1, 8, bit_set), (2, 5, num_bits), (3, 5, k), (4, 5, strategy)])


def _edited(source: Path, target: Path, edit: Callable[[ChunkKey, Any], None]) -> Path:
    body, footer = split(source)
    root, _ = parse(footer, _EVERYTHING)
    for i, group in enumerate(root.get(4)):
        for j, chunk in enumerate(group.get(1)):
            edit((i, j), chunk.get(3))
    return join(target, body, root.encode())


def with_drafts(source: Path, target: Path, structs: Mapping[ChunkKey, bytes]) -> Path:
    """The source with filters in the Statistics of these chunks."""

    def edit(key: ChunkKey, meta: Any) -> None:
        statistics = meta.get(12)
        statistics.drop(7)
        statistics.drop(8)
        if key in structs:
            at = next((i for i, f in enumerate(statistics.fields) if f.id > 7), len(statistics.fields))
            statistics.fields.insert(at, _Field(7, STRUCT, -1, b"", structs[key]))

    return _edited(source, target, edit)


def with_texts(source: Path, target: Path, change: Callable[[dict[str, str]], dict[str, str] | None]) -> Path:
    """The source with other key-values of its chunks: `change` gets a chunk's, {} for none; None leaves them."""

    def edit(_: ChunkKey, meta: Any) -> None:
        wanted = change({pair.get(1): pair.get(2) for pair in meta.get(8) or []})
        if wanted is None:
            return
        items = []
        for key, value in wanted.items():
            node = Node()
            node.put(1, key, BINARY)
            node.put(2, value, BINARY)
            items.append(node)
        meta.drop(8)
        meta.put_list(8, items)

    return _edited(source, target, edit)

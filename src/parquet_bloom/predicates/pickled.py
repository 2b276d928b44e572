"""The tree of a pyarrow Expression, from its pickle: ordered pairs, and a batch of literals and options.

    a == 5      call=equal  field_ref=a  literal=0  end=equal

The pickle is an Arrow IPC file; the pairs are its schema's metadata, `literal` and `options` give
the column of its one batch that holds the value. This is nobody's public format: callers check.
"""

from __future__ import annotations

import ctypes

import pyarrow as pa
import pyarrow.compute as pc

Pair = tuple[bytes, bytes]


class PickledExpression:
    """An expression taken apart; `pairs` are its tree."""

    def __init__(self, expression: pc.Expression) -> None:
        self._unpickle, (buffer,) = expression.__reduce__()[:2]
        reader = pa.ipc.open_file(buffer)
        self.pairs = _ordered_metadata(reader.schema)
        self._batch = reader.get_batch(0)

    def scalar(self, index: bytes) -> pa.Scalar:
        """The typed value of a literal or of options."""
        return self._batch.column(int(index))[0]

    def first_column(self) -> tuple[str, ...] | None:
        """The path of the first column that the expression names."""
        for at, (key, value) in enumerate(self.pairs):
            if key == b"nested_field_ref":
                return nested_path(self.pairs, at)
            if key == b"field_ref":
                return (value.decode(),)
        return None

    def part(self, start: int, end: int) -> pc.Expression:
        """The expression of some pairs alone: their own pickle, read back."""
        pairs, columns = [], []
        for key, value in self.pairs[start:end]:
            if key in (b"literal", b"options"):
                columns.append(self._batch.column(int(value)))
                value = str(len(columns) - 1).encode()
            pairs.append((key, value))
        columns = columns or [pa.nulls(1)]
        schema = pa.schema([pa.field("", c.type) for c in columns], metadata=pa.KeyValueMetadata(pairs))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        return self._unpickle(sink.getvalue())


def nested_path(pairs: list[Pair], at: int) -> tuple[str, ...]:
    """The path of the nested field whose pair is at `at`, its names behind it. Raises ValueError for positions."""
    count = int(pairs[at][1])
    parts = pairs[at + 1 : at + 1 + count]
    if len(parts) != count or any(key != b"field_ref" for key, _ in parts):
        raise ValueError("a nested field is not one of names")
    return tuple(value.decode() for _, value in parts)


class _ArrowSchema(ctypes.Structure):
    """The first members of the C data interface's ArrowSchema."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def _ordered_metadata(schema: pa.Schema) -> list[Pair]:
    """All pairs of a schema's metadata; `schema.metadata` keeps one of each key.

    The C data interface has them as int32 count, then int32 length and bytes of each key and value.
    """
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    at = _ArrowSchema.from_address(pointer(capsule, b"arrow_schema")).metadata
    if not at:
        return []
    texts: list[bytes] = []
    count = ctypes.c_int32.from_address(at).value
    at += 4
    for _ in range(2 * count):
        length = ctypes.c_int32.from_address(at).value
        texts.append(ctypes.string_at(at + 4, length))
        at += 4 + length
    return list(zip(texts[::2], texts[1::2], strict=True))

"""How a new object is cut into parts, of which the store copies as many as its limits allow.

pieces   [copied: 12 MiB        ][new: 40 KiB]
parts    [UploadPartCopy        ][UploadPart ]

pieces   [copied: 2 MiB][new][copied: 12 MiB              ]
parts    [UploadPart: 5 MiB     ][UploadPartCopy          ]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

LEAST, MOST, MOST_PARTS = 5 << 20, 5 << 30, 10_000  # of a part that is not the last, bytes; of an upload
_COPY_PART, _SENT_PART = 128 << 20, 16 << 20


@dataclass(frozen=True, slots=True, order=True)
class Extent:
    """Bytes [at, stop) of the new file.

    copied  they are those at `origin` of the old object; otherwise of our own temporary file
    """

    at: int
    stop: int
    origin: int
    copied: bool


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes [at, stop) of the new file, as one part of the upload; copied from `origin`, or sent (None)."""

    at: int
    stop: int
    origin: int | None


def plan_parts(pieces: Sequence[Extent], least: int = LEAST) -> list[Part]:
    """Parts for a new file: as much copied as the store's limits allow, the rest sent.

    pieces  in order, without gaps, neighbours that continue each other joined
    A part that is not the last has `least` bytes at least, so what is sent before a copied part may
    have to take some of its bytes along.
    """
    parts: list[Part] = []
    pending = 0  # where begins what is not in a part yet
    for piece in pieces:
        if not piece.copied:
            continue
        begin = piece.at if piece.at == pending else max(piece.at, pending + least)
        if piece.stop - begin >= least:
            parts += [Part(a, b, None) for a, b in _split(pending, begin, max(least, _SENT_PART))]
            shift = piece.origin - piece.at
            parts += [Part(a, b, a + shift) for a, b in _split(begin, piece.stop, max(least, _COPY_PART))]
            pending = piece.stop
    end = pieces[-1].stop if pieces else 0
    parts += [Part(a, b, None) for a, b in _split(pending, end, max(least, _SENT_PART))]
    return parts if len(parts) <= MOST_PARTS else plan_parts(pieces, 2 * least)


def _split(start: int, stop: int, size: int) -> list[tuple[int, int]]:
    """Parts of about the same size, `size` at most, so that none is too small."""
    n = -(-(stop - start) // size)
    edges = [start + (stop - start) * i // n for i in range(n + 1)] if n else []
    return list(pairwise(edges))

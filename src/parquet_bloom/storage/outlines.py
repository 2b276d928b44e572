"""Which of two readers makes a footer's outline: the compiled walk, or the bindings.

The walk is many times faster, but it needs numba, which takes some 0.4 s to load. So a process takes it once it
has read so many row groups that this pays, or where numba is loaded anyway.
"""

from __future__ import annotations

import sys

from parquet_bloom.formats.metadata.footer import decode_footer
from parquet_bloom.formats.metadata.outline import Outline, outline_of, walk_outline

_WALK_AFTER = 1000  # row groups


class _ReadByBindings:
    """How many row groups this process has read through the bindings. Two threads may lose a count: no harm."""

    row_groups = 0


def decode_outline(data: bytes, start: int) -> Outline:
    """Read footer bytes. Raises FooterError and EncryptedFooterError, as formats.metadata.footer.decode_footer does.

    data   FileMetaData as it lies in the file, without length and magic
    start  of the footer, bytes from the start of the file
    """
    if "numba" in sys.modules or _ReadByBindings.row_groups > _WALK_AFTER:
        outline = walk_outline(data, start)
        if outline is not None:
            return outline
    outline = outline_of(decode_footer(data, start))
    _ReadByBindings.row_groups += outline.n_row_groups
    return outline

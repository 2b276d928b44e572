"""Of one open file: where its filters lie, asking and decoding them, inspect, verify and status.

Decisions

`locate` alone decides whether a filter is evidence.
    Header, length, the chunk's own pages and the distance to the next known structure must agree. The next structure
    is the nearest start of a chunk, filter, page index or the footer. If the footer has the length, and the size is a
    power of two, header and block are read together. The block counts only if the header is the expected one, byte for
    byte.

pyarrow decodes from a footer that this room makes (`decode`): one column, no logical types.
    So each type comes as its physical one, nested columns as plain lists and structs, page checksums are verified, and
    nothing else in the file interferes. Batches of 65,536 values keep memory small and the processor's cache warm.
"""

"""Bytes in, values out: footers, pages, literals, statistics and the forms of filters. Nothing here opens a file.

Decisions

Thrift has four readers, for three jobs: objects, arrays, edits.
    The compiled one never decides what odd bytes mean. It gives up, and a slower one does the same work or raises the
    error. Tests compare the walk with the bindings over every footer there is and over damaged ones.
    There was a compiled edit, too: 0.1 s where the tree takes 7 s, of a footer of 100,000 row groups. It was the
    hardest function of all, for files that few have; look again when somebody asks.

    reader                 used for                             guarantee                     reason
    compact, C protocol    footers, page headers, page          allocates no more than data   made from the format's
    (the generated         indexes, filter headers; of a large  or limits; each failure is a  own definitions; the
    bindings)              footer one row group at a time       FooterError; it loses         fastest without a
                                                                unknown fields, so its bytes  compiler
                                                                are compared before a write
    compact, in Python     a FileMetaData that the C protocol   the same objects; a field of  the C protocol refuses a
                           refused                              a wrong type is absent, all   footer for one such field;
                                                                others are read               other programs read it
    compact_tree           footers and page indexes that are    unopened values keep their    `remove` must restore the
                           edited; fields of a type that the    bytes: an unchanged tree      old footer, with fields of
                           bindings drop; headers of 2018       encodes to its source         later versions in it
    kernels.compact_walk   the outline, where numba is loaded,  the arrays that the bindings  0.15 us for a row group of
                           after 1,000 row groups, or for a     would return, or nothing      one column; the bindings
                           footer over 8 MB                                                   take 6 us

Footer edits keep spans of bytes.
    The tree of `compact_tree` decodes only what it opens. So it is exact by construction (non-minimal varints, odd
    orders, unknown fields at every level), and it is simpler than a full tree.

The filter of 2015 lies in the footer, and one module knows that.
    `statistics` filters have no place in the body. `Format.build` returns key-values instead of bytes, and
    `FooterEdit.texts` puts them into ColumnMetaData. `footer_filters` alone knows which form does so: it finds such
    filters, decides whether they are believed, and names the change of the footer that adds or removes them. Rooms
    above never name the draft. They use `filters.stored`, which has one set of methods for filters in the body and in
    the footer. A chunk gets one filter of whatever form. If other programs wrote two, the one that the footer points at
    is queried. The draft's own place is a struct where the bindings expect a boolean, and they drop it. `outline`
    searches the bytes for the end of such a struct first, and opens the tree only where there is one.

Provenance is small.
    `row_groups` is written only if an entry names some row groups, not all. `empty_list` lets `remove` keep an empty
    key-value list. See `provenance`.

INT96 is decoded as 12 fixed bytes, as pages have it.
    pyarrow's timestamps overflow and cannot express every value.

FLOAT16 values are inserted in two spellings.
    DuckDB 2.0 queries a FLOAT16 filter for the four bytes of a FLOAT, and loses rows on correct filters of other
    writers. `final` filters get both spellings. Besides zeros and NaN, only these differ from pyarrow's filters.

A field id with another meaning gets no filter.
    If ColumnMetaData 14 or 15 has another Thrift type than a filter's place, some program gave the id another meaning.
    An edit would lose that value.

Roaring bitmaps are decoded here, as ranges.
    The format is a page long. Libraries for it trust the lengths in a bitmap, and would expand a few bytes of runs
    into millions of numbers.
"""

"""Zone indexes: filters for steps finer than row groups.

    Parquet files, or a Lance data set -> `sources`: numbered fragments
    build   `build.zone_batches_of`: zones of one fragment -> `build.write_indexes` -> `container`: pylance's writer
    read    `match`: is the index still true? -> `stretches`: rows that can match -> `scan`: pages of these rows

Decisions

The identity of a fragment is its content, not its size.
    An index keeps of each Parquet file what recognises the content of its column (`filters.content`): a version token,
    if what the storage says proves equal bytes (`storage.version_token`), and a hash for each chunk, computed while
    it is decoded. Of a Lance fragment it keeps the description of the data files that have the column, so deletions
    and other columns do not matter.

A build knows one fragment at a time, two megabytes at a time. `write_indexes` joins batches made elsewhere.

The hashed value of Parquet is the value that pyarrow reads.
    That is one byte of an int8, and days for a date64 in Arrow, because pyarrow returns it as date32. An index over
    the same rows in Lance is then equal.

Each zone is queried once for all terms (`stretches.ZoneEvidence`).
    The rows of a fragment are cut at the edges of the zones of all indexes. The outcomes over each stretch follow from
    the tables that also serve row groups. Several indexes over one column (Lance's, of appended data) each answer for
    their rows.

pylance aborts on some damage.
    It reads a file in this process if our checksum proves the file whole (`format.lance`), else in another (`reader`).

`match` decides whether an index is evidence.
    A file that it names and whose column has changed is an error. A file that it does not name is read whole. An index
    that names none of the files is an error. Only files below a root of the user's are opened.

`scan` reads a column chunk's dictionary and the data pages that the offset index names.
    It appends a footer of one row group, and pyarrow decodes that as the Parquet file it is. Columns with several
    leaves or lists are read whole and cut. If the dictionaries outweigh the pages saved, the row group is read as
    usual. Threads get bytes that Arrow allocated (see Workarounds in docs/architecture.md).
"""

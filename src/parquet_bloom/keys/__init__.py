"""Key indexes: which row groups hold a value, by a sorted list of hashes beside the data.

    build    footers -> decoded columns -> hashes -> `entries`: sorted, parted -> `listing` -> `manifest`, last
    ask      `index`: what is open -> `coverage`: which files are known -> `evidence`: what a predicate closes
    locate   many keys -> hashes -> places, by one sorted merge; files that are not covered are asked by their filters
    update   new files become a segment, gone ones leave, segments merge without decoding

Decisions

The index is Parquet, so that other programs can read and join it.
    Its two columns, hash and place, are delta-encoded: some 4 bytes a key (benchmarks/key_index.py). The price is that
    a lookup decodes a row group of 32,768 entries.

Filters and the key index have one hash: XXH64, seed 0, of a value's PLAIN bytes.
    A probe of a filter is a probe of the index, and what is refused for filters is refused here. The index keeps the
    first bits alone, as many as the wanted rate of false places needs.

A place is a row group.
    Row groups are what readers skip. An index of pages would have ten times as many places.

An index is evidence of absence, and never opens a file by a name of its own.
    Names in it are compared with those that the source has. What it does not know, or what changed, is read as without
    it, and one line says how many files that were. `update` and `verify` are given the data again. Without a listing
    (`unlisted`) the caller asks for the index's names: those below the folder that the call names, and no others.

Bounds are kept as this release understands them.
    `listing` has the statistics of indexed columns after all rules about writers that are not believed
    (format.statistics). A rule that is found later is applied when the index is built again.

A file is recognised by its version token, a table's file by its name in the log.
    Network file systems whose times prove nothing have no token (storage.version_token): there the index says nothing
    of plain files. Reading the column to compare checksums would cost what the index saves.

Updates lock a file in the folder, and replace the manifest only if it is still the one that they read.
    The files of the manifest before stay until the next update, so that a program that has it open goes on.
"""

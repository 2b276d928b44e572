"""New versions of files: filters put in, taken out, or written with the data.

Decisions

Every add is proved reversible before it counts (`finish`, `rewrite`).
    The new file is read back, and its removal is computed in memory by the code of `remove`. The result must equal the
    old footer and page indexes.

A map of offsets grows while the file is written (`format.edits.Moves`). It is monotone, so it has an inverse.

The default choice of columns is one code for `add` and `advise` (`choose`, `gain`, `sample`).
    On Spark it runs once for a file, and the columns travel with the units of a large file, so all of its tasks agree.
"""

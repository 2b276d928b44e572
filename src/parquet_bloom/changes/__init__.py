"""Changes of rows by their keys: `locate` finds files and rows, which are then written again.

Decisions

Rows are decided by their values, not by their places: the files that `locate` names are read again, and must have
    as many rows with the keys as it found. Else nothing is committed, and nothing of such a file is written.

A change of a table is one commit, of the version that was searched. If another commit came first it is refused, and
    not tried again: which rows have the keys is then another question.

New files of a table get their filters before the commit, so no version has files without them. Filters go on the
    columns that have them by the table's log, its properties, or the old files.

In files without a log a row group without such rows is not written again (`edit.without_rows`).

`changes` knows no library of a table's format: source.adapters.RowChanges is what an adapter does.
"""

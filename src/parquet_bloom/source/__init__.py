"""Sources: names become snapshots of files or tables, with the columns of each file under its table.

Decisions

Files are a table without a log.
    A listing is a `snapshot.Snapshot` too, with `view.OwnNames`: each file has its own names of columns. So search,
    filters, edit and Spark have one code for both. `source.CallSource` finds the snapshot of a call.

A log's words choose files; the user's words open file systems.
    Each adapter turns the words of its log into locations through one `roots.Roots` (`place`, `check`). They choose
    among files below the roots. `no_change` returns the reason why a file may not be changed. Libraries obey too:
    pyiceberg reads and writes through `tables.iceberg.files.RootedIO` and a catalog that `tables.iceberg.catalogs`
    guards, and DuckLake's SQL runs in `tables.ducklake.databases`.

One function matches columns.
    `columns.matches` finds the fields of a table in a file's schema, by ids or else by names. Evidence (`search.log`)
    and rows (`rows.source_rows`) both use it through `view.FileView`. So evidence about one column can never be
    applied to another. If the column is ambiguous the file is an error.
"""

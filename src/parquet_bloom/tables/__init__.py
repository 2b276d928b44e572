"""Delta, Iceberg and DuckLake: a log gives a file set with values, bounds and deletes, and takes a commit.

Decisions

Each adapter is a folder that returns `source.snapshot.Table`; its format's library is imported nowhere else.
    Reading needs no library where a log is plain enough. Delta logs (JSON, Parquet) and DuckLake catalogs in SQLite
    are read here. deltalake commits only, because it makes the checks of a writer; duckdb opens catalogs that are
    DuckDB files, and rows that a catalog has inlined. Iceberg needs pyiceberg for reading too: catalogs, manifests,
    transforms.
A Delta log is read here even where deltalake is installed. Of a checkpoint of 20,000 files deltalake 1.6.6 makes its
    state in 0.06 s of processor time and its add actions in 0.002 s; the code here takes 0.14 s, and 0.09 s for the
    files. But `get_add_actions` has no deletion vectors, no tags and other fields, and statistics only as
    columns of the table's types: of 0.1 in a decimal(10, 2) it gives 0.10, and a double that was written with an error
    cannot be told any more, so bounds would be too narrow. Hostile statistics end its process
    (tables.delta.actions._is_deep). Look again when it gives add actions as they stand.
Versions of Delta tables are kept for the process (source.adapters), by tokens of the log's files and not by numbers: a
    table that was made again at one place has the same numbers. A second `check` of 20,000 files takes 0.12 s, of which
    0.05 s is for links in the files' paths, which each call follows anew.
"""

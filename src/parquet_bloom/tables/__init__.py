"""Delta, Iceberg and DuckLake: a log gives a file set with values, bounds and deletes, and takes a commit.

Decisions

Each adapter is a folder that returns `source.snapshot.Table`; its format's library is imported nowhere else.
    Reading needs no library where a log is plain enough. Delta logs (JSON, Parquet) and DuckLake catalogs in SQLite
    are read here. deltalake commits only, because it makes the checks of a writer; duckdb opens catalogs that are
    DuckDB files, and rows that a catalog has inlined. Iceberg needs pyiceberg for reading too: catalogs, manifests,
    transforms.
"""

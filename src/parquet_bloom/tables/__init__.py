"""Delta, Iceberg and DuckLake: a log gives a file set with values, bounds and deletes, and takes a commit."""

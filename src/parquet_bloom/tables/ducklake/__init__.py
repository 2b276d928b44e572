"""DuckLake tables: the catalog's rows as a snapshot, and a transaction on it."""

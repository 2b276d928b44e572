"""Hashing and split block loops: arrays in, arrays out, no I/O and no Parquet."""

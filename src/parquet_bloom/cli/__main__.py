"""`python -m parquet_bloom.cli` is `parquet-bloom`."""

from parquet_bloom.cli import main

main()

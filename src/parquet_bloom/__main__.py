"""`python -m parquet_bloom` is `parquet-bloom`."""

from parquet_bloom.cli import main

main()

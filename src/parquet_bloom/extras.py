"""The command that installs a missing package: each extra's packages by name, or the extra once it is on PyPI.

    to_install("delta")    pip install 'deltalake>=1.6.6'           ON_PYPI is False
                           pip install 'parquet-bloom[delta]'       ON_PYPI is True

Nothing of ours is on PyPI before the first release. Until then anybody could take the name there, so nothing here or
in the documentation sends people to it. All messages take their text from here. The commit of the first release sets
ON_PYPI, and `.ci/release` refuses a tag without that. tests/test_extras.py compares PACKAGES with pyproject.toml.
"""

from __future__ import annotations

ON_PYPI = False

PACKAGES = {
    "spark": ("pandas>=2.2,<3", "pyspark>=4.1"),
    "lance": ("pyarrow>=26", "pylance>=14"),
    "s3": ("boto3>=1.36",),
    "stores": ("boto3>=1.36",),
    "delta": ("deltalake>=1.6.6",),
    "iceberg": ("pyiceberg[pyarrow]>=0.12",),
    "ducklake": ("duckdb>=1.5",),
}
# Iceberg's own extra for catalogs in SQLite: SQLAlchemy, which `pyiceberg[pyarrow]` does not bring.
SQL_CATALOG = "'pyiceberg[sql-sqlite]'"


def to_install(extra: str) -> str:
    """The command that installs what an extra needs, for Linux's and macOS's shells. Raises KeyError for no extra."""
    packages = PACKAGES[extra]
    return "pip install " + " ".join(f"'{name}'" for name in ((f"parquet-bloom[{extra}]",) if ON_PYPI else packages))


def to_install_ourselves(extra: str) -> str:
    """The command that installs this package together with an extra, for a Python that has neither."""
    return to_install(extra) if ON_PYPI else f"pip install '.[{extra}]' in a checkout"

"""The version, also written into every file that `add` makes."""

__version__ = "0.1.0"

"""Every form this package writes, by its name."""

from __future__ import annotations

from parquet_bloom.errors import RequestError
from parquet_bloom.formats.forms import k_probe, split_block
from parquet_bloom.formats.forms.form import Format

FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        split_block.FINAL,
        split_block.PARQUET_41,
        split_block.PARQUET_41_EARLY,
        split_block.PARQUET_41_RAW,
        k_probe.KProbeForm(),
    )
}
DEFAULT_SPEC = split_block.FINAL.name


def format_named(spec: str) -> Format:
    """The form of that name. Raises RequestError."""
    if spec not in FORMATS:
        raise RequestError(f"unknown spec {spec}; there are: {', '.join(FORMATS)}")
    return FORMATS[spec]

"""Bytes in, values out: footers, pages and the forms of filters, without I/O."""

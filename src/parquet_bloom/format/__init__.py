"""Bytes in, values out: footers, pages, literals, statistics and the forms of filters. Nothing here opens a file."""

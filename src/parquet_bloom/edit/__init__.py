"""New versions of files: filters put in, taken out, or written with the data."""

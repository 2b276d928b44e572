"""The forms of filter that are written: how each is built, and what a file says of it."""

"""The forms of filter that this package writes: how each is built, and what a file says of it."""

"""Which row groups can match a predicate, and their rows."""

"""Which engine uses filters on which type of column: facts with versions, and what they mean for a column."""

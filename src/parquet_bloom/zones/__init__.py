"""Zone indexes: filters for steps finer than row groups."""

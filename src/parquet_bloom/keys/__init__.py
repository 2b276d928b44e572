"""Key indexes."""

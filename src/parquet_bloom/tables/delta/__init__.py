"""Delta tables: _delta_log/ as a snapshot, and a commit to it."""

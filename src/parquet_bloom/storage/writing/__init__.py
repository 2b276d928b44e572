"""New files replace old ones."""

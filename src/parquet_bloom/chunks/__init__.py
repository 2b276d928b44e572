"""What one open file holds: the values and the filters of its column chunks."""

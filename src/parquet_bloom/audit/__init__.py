"""What filters there are, and whether they are right."""

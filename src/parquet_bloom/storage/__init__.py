"""Names become files, files become bytes."""

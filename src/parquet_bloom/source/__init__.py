"""What one works on: names, snapshots of tables, the columns of a file under its table."""

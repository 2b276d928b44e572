"""What people name, delta:PATH@3, as a table, and as the files of a call."""

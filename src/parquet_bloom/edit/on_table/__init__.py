"""New versions of files of a table, put into it by commits."""

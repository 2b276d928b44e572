"""New files replace old ones: written beside them and swapped, appended with a journal, or sent to a store."""

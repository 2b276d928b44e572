"""Reports for people: tables, texts and rows."""

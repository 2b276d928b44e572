"""What people look at: tables, texts and rows."""

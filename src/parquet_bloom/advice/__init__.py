"""Names the columns that gain by filters, the rate of each, and its cost."""

"""What filters are worth: which engines use them, and what a query gains by them, found out by running it."""

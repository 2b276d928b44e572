"""What filters are worth: which engines use them, what a query gains, and advice before a byte is written."""

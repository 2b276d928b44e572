"""Engines tried out here: whether they use filters, and how long a query takes with and without."""

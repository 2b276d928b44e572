"""Advice before a byte is written: which columns, at what rate, what it gains and costs."""

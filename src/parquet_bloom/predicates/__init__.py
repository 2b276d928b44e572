"""Predicates as text and trees, and what they may give over rows; no files."""

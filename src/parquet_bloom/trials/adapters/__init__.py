"""The adapter of each engine; one module for each, loaded only in a process of its own."""

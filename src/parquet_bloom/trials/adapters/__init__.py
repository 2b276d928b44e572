"""How each engine is asked; one module for each, loaded only in a process of its own."""

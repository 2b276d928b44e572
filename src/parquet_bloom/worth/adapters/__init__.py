"""How each engine is asked, as its users ask it: one module an engine, loaded only in a process of its own."""

"""Of one open file: where its filters lie, asking and decoding them, inspect, verify and status."""

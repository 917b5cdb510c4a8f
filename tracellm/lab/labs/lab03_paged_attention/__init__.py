"""Lab 3: attention over a KV cache that is cut into blocks."""

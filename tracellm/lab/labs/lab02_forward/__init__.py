"""Lab 2: the arithmetic of a decoder layer, and the way through it."""

"""Lab 10: the boundary between the process of the caller and that of the engine core."""

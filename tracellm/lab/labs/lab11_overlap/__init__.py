"""Lab 11: asynchronous scheduling."""

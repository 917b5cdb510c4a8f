"""Lab 6: the prefix cache."""

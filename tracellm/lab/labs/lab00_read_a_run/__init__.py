"""Lab 0: read a run."""

"""Lab 9: incremental detokenization and stop strings."""

"""Lab 1: the sampler."""

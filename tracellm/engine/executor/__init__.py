"""Executors: they pass each step from the engine core to the workers, and return the sampled tokens."""

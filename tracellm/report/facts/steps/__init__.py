"""Facts of the engine's steps: the time of their parts, and the state of the engine at each."""

"""Replay of a recorded run's schedule under other settings, without its model.

`workload` reads the requests and their arrivals from the recording, `replay` schedules them with the engine's own
scheduler, `variant` keeps the result beside the recording and `summary` compares both. vLLM has no counterpart.
"""

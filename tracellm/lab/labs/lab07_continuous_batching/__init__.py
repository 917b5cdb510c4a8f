"""Lab 7: continuous batching. workload.py runs a scheduler without a model, judging.py compares its decisions."""

"""Lab 8: chunked prefill, limits and preemption."""

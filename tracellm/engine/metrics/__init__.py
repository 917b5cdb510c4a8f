"""When things happened to requests, and how long they took; kept under `disable_log_stats=False`.

vLLM: vllm/v1/metrics/.
"""

"""Statistics of requests and steps, and the loggers that report them; collected unless `disable_log_stats` is set.

vLLM: vllm/v1/metrics/.
"""

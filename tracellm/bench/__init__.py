"""The measurements of `tracellm bench`: speed, and its share of what the machine allows.

`workload` makes requests, `machine` measures memory bandwidth and FLOP/s, and `limits` computes the requests' time at
these rates. `throughput`, `latency`, `serve` and `kernels` each measure and return their figures as text.
benchmarks/compare.py uses the first three modules for other engines, too.

vLLM: vllm/benchmarks/throughput.py, latency.py, serve.py.
"""

"""`tracellm bench throughput | latency | serve | kernels`: how fast, and how near to what the machine can.

`workload` makes requests, `machine` measures what memory and arithmetic give, `limits` says how long the requests would
take at these rates; a module for each word measures. benchmarks/compare.py uses the first three for other engines too.

vLLM: vllm/benchmarks/throughput.py, latency.py, serve.py.
"""

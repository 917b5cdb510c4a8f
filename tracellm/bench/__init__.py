"""The measurements behind `tracellm bench`: how fast, and how near to what the machine can.

`workload` makes requests, `machine` measures what memory and arithmetic give, `limits` computes how long the requests
would take at these rates; `throughput`, `latency`, `serve` and `kernels` measure, each returning its figures as text.
benchmarks/compare.py uses the first three for other engines too. Beside the house's floors: it uses them all but the
command line, which alone uses it.

vLLM: vllm/benchmarks/throughput.py, latency.py, serve.py.
"""

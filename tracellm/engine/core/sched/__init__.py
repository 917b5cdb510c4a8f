"""The scheduler: which requests get how many tokens and which KV blocks in the next step, and why the others wait.

Read `scheduler.py` first, then `output.py` (what it hands to the workers), `reasons.py` (why a request was held) and
`requests.py` (how requests come and go). `async_scheduler.py` is for those who know these.

vLLM: vllm/v1/core/sched/.
"""

"""The scheduler: which requests run in the next step, with which tokens and KV cache blocks, and why others wait.

Read `scheduler.py` first, then `output.py` (its decision, as the workers receive it) and `reasons.py` (why a request
was not scheduled or cut short). `async_scheduler.py` builds on these.

vLLM: vllm/v1/core/sched/.
"""

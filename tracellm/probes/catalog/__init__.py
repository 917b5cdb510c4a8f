"""What to probe in the engine, region by region, in the order of a request's life.

Each file lists its `ENTRIES`: which function, how deep it sits, and what of a call is worth telling there. The engine
knows nothing of this; where an entry and the engine disagree, a test fails.

- `startup.py`: configuration, loading, the KV cache; `client.py`: the client that is chosen;
- `processes.py`: the engine core in a process of its own, and what is said to it;
- `server.py`: the asynchronous engine, and the OpenAI server before it;
- `request.py`: from the user's line to the scheduler's queue; `outputs.py`: what comes back, and the request's end;
- `step.py`: one engine step, its scheduling and its outputs; `step_span.py`: what is told of it on its span;
- `runner.py`: the model runner; `sampling.py`: the sampler; `asked.py`: what it is asked for;
- `model.py`: models and layers;
- `kernels.py`: the operations; `launches.py`: the launches of Triton kernels;
- `vllm/`: the same of a real vLLM, in files of the same names.
"""

from tracellm.probes.catalog import (
    client,
    kernels,
    launches,
    model,
    outputs,
    processes,
    request,
    runner,
    sampling,
    server,
    startup,
    step,
)
from tracellm.probes.catalog.vllm import CATALOG as VLLM

__all__ = ["CATALOG", "EVERY_ENGINE"]

CATALOG = (
    *startup.ENTRIES,
    *client.ENTRIES,
    *processes.ENTRIES,
    *server.ENTRIES,
    *request.ENTRIES,
    *outputs.ENTRIES,
    *step.ENTRIES,
    *runner.ENTRIES,
    *sampling.ENTRIES,
    *model.ENTRIES,
    *kernels.ENTRIES,
    *launches.ENTRIES,
)
"""Every entry for the engine of this project. Where two match the same function, the first counts."""

EVERY_ENGINE = (*CATALOG, *VLLM)
"""What a recording looks for by default, as it cannot know which engine a script will use; what is never imported costs
nothing."""

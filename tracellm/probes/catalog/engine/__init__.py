"""Functions of this engine to probe, region by region, in the order of a request's life.

- `startup.py`: configuration, loading, the KV cache; `client.py`: the client that is chosen;
- `processes.py`: the engine core in a process of its own, and the messages between;
- `server.py`: the asynchronous engine, and the OpenAI server before it;
- `request.py`: from the user's line to the scheduler's queue; `outputs.py`: what comes back, and the request's end;
- `step.py`: one engine step, its scheduling and its outputs; `step_span.py`: the attributes of its span;
- `runner.py`: the model runner; `sampling.py`: the sampler;
- `model.py`: models and layers;
- `kernels.py`: the operations; `triton_launches.py`: the launches of Triton kernels.
"""

from tracellm.probes.catalog.engine import (
    client,
    kernels,
    model,
    outputs,
    processes,
    request,
    runner,
    sampling,
    server,
    startup,
    step,
    triton_launches,
)

__all__ = ["CATALOG"]

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
    *triton_launches.ENTRIES,
)
"""Every entry for the engine of this project. Where two match the same function, the first counts."""

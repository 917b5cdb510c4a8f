"""Functions of tracellm's engine to probe, with vLLM's of the same names, in the order of a request's life.

- `startup.py`: settings, weights, the KV cache;
- `processes.py`: the chosen client, the engine core's process, messages, the OpenAI server;
- `http.py`: HTTP requests to that server;
- `request.py`: from the user's line to the scheduler's queue, and back as outputs;
- `parsing.py`: reasoning and tool calls in the generated text;
- `items.py`: images and sounds of requests;
- `step.py`: one engine step, and the attributes of its span;
- `runner.py`: the model runner and the sampler; `grammar.py`: the grammar's mask of the logits;
- `model.py`: models, layers, operations; `triton_launches.py`: launches of Triton kernels.
"""

from tracellm.probes.catalog.engine import (
    grammar,
    http,
    items,
    model,
    parsing,
    processes,
    request,
    runner,
    startup,
    step,
    triton_launches,
)

__all__ = ["CATALOG", "FILES", "SHARED"]

FILES = (startup, processes, http, request, parsing, items, step, runner, grammar, model, triton_launches)
"""The files above, in their order."""

_ENTRIES = tuple(entry for file in FILES for entry in file.ENTRIES)

CATALOG = tuple(entry for entry in _ENTRIES if not entry.target.startswith("vllm."))
"""All entries for tracellm's engine. If several match a function, the first counts."""

SHARED = tuple(entry for entry in _ENTRIES if entry.target.startswith("vllm."))
"""Entries for functions of vLLM that are the same as for tracellm's engine."""

"""The place in the recording of a request to a vLLM: given as the front half learns of it, read where it is computed.

It travels in the request's `trace_headers`, as with our engine (catalog/lives.py), but under a name of its own: what
vLLM's tracing reads there, `traceparent`, stays what it was.

Later versions give a request a name of their own, made of the caller's and a random part, by which the engine knows it;
callers see theirs. Where the two differ the tracker is told which is which.
"""

from typing import Any
from weakref import WeakKeyDictionary

from tracellm.probes.catalog import request_context as ours
from tracellm.probes.catalog.helpers import argument
from tracellm.probes.context.traceparent import parse

__all__ = ["HEADER", "callers_name", "give_place", "know_engine", "own_stops", "place_given"]

HEADER = "tracellm-life"

_stops: WeakKeyDictionary[Any, frozenset[int]] = WeakKeyDictionary()
"""Of each engine's OutputProcessor the stop tokens that its model brings along."""


def know_engine(engine: Any) -> None:
    """Remember what is not told with each request."""
    inputs = getattr(engine, "input_processor", None) or getattr(engine, "processor", None)
    eos = (getattr(inputs, "generation_config_fields", None) or {}).get("eos_token_id")
    _stops[engine.output_processor] = frozenset([eos] if isinstance(eos, int) else eos or ())


def own_stops(output_processor: Any) -> frozenset[int]:
    """The stop tokens of the engine that this is part of, which nobody chose."""
    return _stops.get(output_processor, frozenset())


def give_place(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Before `OutputProcessor.add_request`: as ours does, unless more is being said to a request that runs."""
    request = argument(args, kwargs, 1, "request")
    if request.request_id not in args[0].request_states:
        ours.give_place(args, kwargs, HEADER)


def place_given(request: Any) -> tuple[str, str] | None:
    """Trace id and span id of the request's life; None if nobody recorded where it came from."""
    return parse((request.trace_headers or {}).get(HEADER))


def callers_name(request: Any) -> str:
    """What the caller calls a request."""
    return str(getattr(request, "external_req_id", None) or request.request_id)

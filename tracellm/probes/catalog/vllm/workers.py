"""Workers of a vLLM in processes of their own: what one does for a step is drawn under the step that asked for it.

Their executor, a MultiprocExecutor, writes the name of a method and its arguments into memory that all workers read,
each in a loop that runs what comes next. So the name takes along where it was asked from: `Asked`, a text that becomes
the plain one where it is read, and there makes what the loop does next a part of the call that it came from.

vLLM: vllm/v1/executor/multiproc_executor.py.
"""

from typing import Any

from tracellm.probes.catalog.helpers import argument
from tracellm.probes.context.call_context import (
    CALL,
    THREAD_CONTEXT,
    TraceScope,
    current_call,
    current_context,
    new_thread_context,
    state,
)

__all__ = ["Asked", "tell_workers"]


class Asked(str):
    """The name of a method that workers are to run, and the trace and the span of the call that wants it."""

    __slots__ = ("parent", "trace_id")

    trace_id: str
    parent: str

    def __reduce__(self) -> tuple[Any, ...]:
        """Whoever reads it has the plain name."""
        return _read, (str(self), self.trace_id, self.parent)


def _read(method: str, trace_id: str, parent: str) -> str:
    """In the worker: what this thread does until it reads the next one is called from there."""
    if state.append is not None:
        context = current_context()
        scope = TraceScope(trace_id, parent, state.first)
        context[CALL], context[THREAD_CONTEXT] = 0, new_thread_context(context[THREAD_CONTEXT], scope)
    return method


def tell_workers(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Before `MultiprocExecutor.collective_rpc`: let its workers know who asks.

    Not those on other machines, which may not have this package.
    """
    method = argument(args, kwargs, 1, "method")
    if type(method) is not str or getattr(args[0].parallel_config, "nnodes", 1) > 1 or state.span_ids is None:
        return None
    asked = Asked(method)
    asked.trace_id, parent = state.span_ids(*current_call())
    if parent is None:
        return None
    asked.parent = parent
    return ((args[0], asked, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "method": asked})

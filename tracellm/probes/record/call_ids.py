"""Trace and span ids of calls, made of their numbers: so an id costs a call nothing."""

from tracellm.probes.context.call_context import ThreadContext
from tracellm.probes.record.record_file import Header

__all__ = ["CallIds"]

_MASK = (1 << 64) - 1


class CallIds:
    """Ids of the calls of one process, as its record file's header has it."""

    def __init__(self, header: Header) -> None:
        self.header = header

    def span_id(self, call: int) -> str:
        """The span id of a call of this recording; of an earlier one, that of the outermost calls' parent."""
        for first, offset in reversed(self.header.origins):
            if call >= first:
                return f"{call + offset & _MASK:016x}"
        return self.header.outermost

    def parent_of(self, call: int, trace_id: str | None, parent: str | None) -> tuple[str, str | None]:
        """Trace id, and parent's span id, of what is called from `call` in a trace with outermost calls in `parent`;
        None stands for the recording's own trace."""
        if trace_id is None:
            return self.header.trace_id, self.span_id(call)
        return trace_id, self.span_id(call) if call >= self.header.root else parent

    def place_of(self, call: int, place: ThreadContext | None) -> tuple[str, str | None]:
        """The same of what is called in a place."""
        scope = None if place is None else place.scope
        if scope is None or scope.recording != self.header.root:
            return self.parent_of(call, None, None)
        return self.parent_of(call, scope.trace_id, scope.parent)

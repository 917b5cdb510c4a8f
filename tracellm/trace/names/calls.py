"""Attributes of calls: those of any call, those of one that failed, and the spans that the program opened itself."""

from tracellm.trace.names.attribute import Group
from tracellm.trace.names.spans import SCRIPT_SPAN, USERS_SPAN

_define = Group("Any call: what it is")
CODE_FUNCTION = _define("code.function.name", "str", "the called function, with its module and class")
CODE_FILE = _define("code.file.path", "str", "the file that defines it, from the folder its package lies in")
CODE_LINE = _define("code.line.number", "int", "the line of its definition")
CALL_KIND = _define(
    "tracellm.call.kind",
    "str",
    "coroutine, generator, async_generator, or loop: a call that goes on for long and whose turns are what is of "
    "interest; absent for a plain function",
)
ALSO_CALLED = _define("tracellm.call.also", "str", "a second name of the same method")
THREAD_NAME = _define("thread.name", "str", "the thread it ran in, when that is not the main thread")
LIFELINE = _define("tracellm.lifeline", "str", "whose method it is: the receiver's class, or the module of a function")
LEVEL = _define("tracellm.level", "str", "request, step, layer or kernel")
PHASE = _define("tracellm.phase", "str", "startup or generation: set on the spans that open such a phase")
OPEN = _define("tracellm.open", "bool", "true when the recording ended before the call, or the request, did")
CALLER_FILE = _define("tracellm.caller.file", "str", "the file of the user's line that made the call")
CALLER_LINE = _define("tracellm.caller.line", "int", "the number of that line, from 1")
CALLER_TEXT = _define("tracellm.caller.text", "str", "that line as it is written", private=True)
ARGUMENTS = _define(
    "tracellm.arguments", "str[]", "what was passed, each as `name=value`; a tensor as `name=float32[7, 256]`"
)
RESULT = _define("tracellm.result", "str", "what came back, in short")
RECORDING_DURATION = _define(
    "tracellm.recording.duration_ns",
    "int",
    "nanoseconds of the call's own time, not of the calls in it, that the recording took: captures and the writing of "
    "records; absent for none",
)

_define = Group("A call that failed")
ERROR_TYPE = _define("error.type", "str", "the class of the exception that left the call")
EXCEPTION_TYPE = _define(
    "exception.type", "str", "on an `exception` event: the class of the exception", on=("event exception",)
)
EXCEPTION_MESSAGE = _define(
    "exception.message", "str", "on an `exception` event: its message", private=True, on=("event exception",)
)
EXCEPTION_STACKTRACE = _define(
    "exception.stacktrace", "str", "on an `exception` event: the traceback", private=True, on=("event exception",)
)

_define = Group("A span that the program opened with OpenTelemetry", on=(USERS_SPAN,))
SCOPE = _define("otel.scope.name", "str", "the name that its tracer was asked for with; empty where it had none")
SCOPE_VERSION = _define("otel.scope.version", "str", "the version given with that name")
SPAN_KIND = _define("span.kind", "str", "server, client, producer or consumer; absent for internal")
SENT = _define("tracellm.sent", "bool", "true when the program sends it by OTLP itself, and so tracellm does not")
_GAVE_WAY = "how many gave way to later ones: OTEL_SPAN_{}_COUNT_LIMIT, or 128, are kept"
DROPPED_ATTRIBUTES = _define("tracellm.dropped.attributes", "int", _GAVE_WAY.format("ATTRIBUTE"))
DROPPED_EVENTS = _define("tracellm.dropped.events", "int", _GAVE_WAY.format("EVENT"))
DROPPED_LINKS = _define("tracellm.dropped.links", "int", _GAVE_WAY.format("LINK"))
OUTSIDE = _define(
    "tracellm.parent.outside",
    "bool",
    "true when its parent is not in the recording: it began before, or in another program",
    on=(USERS_SPAN, SCRIPT_SPAN),
)

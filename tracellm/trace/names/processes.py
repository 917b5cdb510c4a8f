"""Attributes of the process that recorded, and of what crosses between processes: messages, HTTP requests."""

from tracellm.trace.names.attribute import Group
from tracellm.trace.names.spans import HTTP_SPAN

_MESSAGES = ("MsgpackEncoder.encode", "MsgpackEncoder.encode_into", "MsgpackDecoder.decode")
_HTTP = (HTTP_SPAN,)

_define = Group("The process that recorded", on=("resource",))
SERVICE_NAME = _define("service.name", "str", "tracellm")
SERVICE_VERSION = _define("service.version", "str", "the version of tracellm that recorded")
PROCESS_PID = _define("process.pid", "int", "the process id")
PROCESS_NAME = _define("tracellm.process.name", "str", "what the process is in the engine: main, EngineCore_0, ...")
PROCESS_RUNTIME = _define("process.runtime.version", "str", "the version of Python")
HOST_NAME = _define("host.name", "str", "the machine")
CLOCK_WALL = _define("tracellm.clock.wall_ns", "int", "the wall clock, nanoseconds since 1970, read together with ...")
CLOCK_MONOTONIC = _define(
    "tracellm.clock.monotonic_ns", "int", "... the monotonic clock, from which all times are converted"
)

_define = Group("Between processes", on=_MESSAGES)
PROCESS_PARENT_PID = _define(
    "process.parent_pid", "int", "the process that started this one, where that is recorded too", on=("resource",)
)
MESSAGE_SYSTEM = _define("messaging.system", "str", "zeromq")
MESSAGE_OPERATION = _define("messaging.operation.type", "str", "send or receive")
MESSAGE_ID = _define("messaging.message.id", "str", "what tells a message from others; the same on both sides")
MESSAGE_BYTES = _define("messaging.message.body.size", "int", "bytes of the message, all its frames together")
MESSAGE_TYPE = _define("tracellm.message.type", "str", "ADD, ABORT, UTILITY to the engine core, OUTPUTS from it")
MESSAGE_FRAMES = _define(
    "tracellm.message.frames", "int", "in how many frames it went: one, and one for each large array"
)
MESSAGE_STEP = _define(
    "tracellm.message.step", "int", "of OUTPUTS, where they are sent: tracellm.step.index of the step that made them"
)
HTTP_METHOD = _define("http.request.method", "str", "of a request to the server: GET, POST", on=_HTTP)
HTTP_PATH = _define("url.path", "str", "what was asked for: /v1/chat/completions", on=_HTTP)
HTTP_STATUS = _define("http.response.status_code", "int", "what the server answered", on=_HTTP)

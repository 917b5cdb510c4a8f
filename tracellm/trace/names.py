"""Names of all attributes that a span, a process or a run may carry, each defined once: `names.NAME`.

An attribute has its standard name if there is one: OpenTelemetry's `code.*`, `thread.*`, `process.*`,
`exception.*`, and `gen_ai.*` for the parameters and the usage of a request. The rest is under `tracellm.*`.

Values are those that OTLP holds without nesting: strings, integers, floats, booleans and arrays of one of these.
docs/spans.md is made of the definitions here.

vLLM's counterpart for its own tracing: vllm/tracing.py::SpanAttributes.
"""

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "ATTRIBUTES",
    "HTTP_SPAN",
    "LAUNCH_SPAN",
    "LEVELS",
    "PRIVATE",
    "REQUEST_SPAN",
    "SCRIPT_SPAN",
    "USERS_SPAN",
    "Attribute",
    "Group",
    "Level",
]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute; docs/spans.md lists them.

    Attributes:
        name: its name in the recording.
        type: type of its value: str, int, float, bool, or one of these with `[]`.
        says: its description.
        private: whether it may hold text that a user wrote or a model generated.
        group: the subject that it shares with others.
        on: names of the spans that may have it; empty for any call.
    """

    name: str
    type: str
    says: str
    private: bool
    group: str
    on: tuple[str, ...]


ATTRIBUTES: dict[str, Attribute] = {}
"""Every attribute by its name, in the order of docs/spans.md."""


class Group:
    """Defines attributes of one subject, one after the other."""

    def __init__(self, title: str, *, on: tuple[str, ...] = ()) -> None:
        """Begin a group; `on` is the default for its attributes."""
        self._title = title
        self._on = on

    def __call__(
        self, name: str, type: str, says: str, *, private: bool = False, on: tuple[str, ...] | None = None
    ) -> str:
        """Define an attribute, and return its name."""
        ATTRIBUTES[name] = Attribute(name, type, says, private, self._title, self._on if on is None else on)
        return name


Level = Literal["request", "step", "layer", "kernel"]
"""Depth of a call in the engine: once a request, once a step, once a layer of the model, once an operation."""

LEVELS: tuple[Level, ...] = ("request", "step", "layer", "kernel")
"""The levels from the coarsest to the finest; "to level X" includes X and all before it."""

REQUEST_SPAN = "llm_request"
"""Name of the span of a request's life, from its submission to its end: a root of its own, and no call."""

USERS_SPAN = "a span of the program's own"
"""Placeholder for names of spans that the program opened with OpenTelemetry; they have the attribute SCOPE."""

SCRIPT_SPAN = "the script"
"""Placeholder for names of scripts' spans: the names of their files."""

LAUNCH_SPAN = "<kernel>"
"""Name of the span of a Triton kernel's launch: `paged_attention_v1_kernel`."""

HTTP_SPAN = "<method> <path>"
"""Name of the span of an HTTP request to the server: `POST /v1/completions`."""


# -- calls
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


# -- processes
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


# -- requests
_define = Group("A request", on=(REQUEST_SPAN,))
REQUEST_ID = _define(
    "tracellm.request.id",
    "str",
    "the engine's name of the request",
    on=(REQUEST_SPAN, "LLMEngine._add_request", "AsyncLLM._add_request", "OutputProcessor.add_request"),
)
REQUEST_PROMPT = _define("tracellm.request.prompt", "str", "the prompt's text", private=True)
REQUEST_OUTPUT = _define("tracellm.request.output", "str", "the generated text", private=True)
REQUEST_PROMPT_TOKENS = _define(
    "tracellm.request.prompt_token_ids", "int[]", "the prompt's token ids (the first 512)", private=True
)
REQUEST_PARENT = _define("tracellm.request.parent", "str", "with n > 1: the request that this is one output of")
REQUEST_INDEX = _define("tracellm.request.index", "int", "with n > 1: which of its outputs, from 0")
REQUEST_PRIORITY = _define("tracellm.request.priority", "int", "under the priority policy: lower goes first")
REQUEST_PARAMS = _define(
    "tracellm.request.params", "str[]", "the sampling parameters that differ from their defaults, each as `name=value`"
)
REQUEST_TEXT_PARAMS = _define(
    "tracellm.request.text_params",
    "str[]",
    "those of them whose values are texts, as `name=value`: stop, bad_words, structured_outputs",
    private=True,
)
REQUEST_STEPS = _define("tracellm.request.steps", "int", "in how many engine steps the request took part")
GEN_AI_OPERATION = _define("gen_ai.operation.name", "str", "text_completion or chat")
GEN_AI_MODEL = _define("gen_ai.request.model", "str", "the model that was asked for")
GEN_AI_RESPONSE_ID = _define("gen_ai.response.id", "str", "the request's id again, under the standard's name")
GEN_AI_MAX_TOKENS = _define("gen_ai.request.max_tokens", "int", "the most tokens to generate")
GEN_AI_TEMPERATURE = _define("gen_ai.request.temperature", "float", "0 is greedy")
GEN_AI_TOP_P = _define("gen_ai.request.top_p", "float", "nucleus sampling: the probability mass kept")
GEN_AI_TOP_K = _define("gen_ai.request.top_k", "int", "how many candidates are kept; 0 keeps all")
GEN_AI_CHOICES = _define("gen_ai.request.choice.count", "int", "n: how many outputs were asked for, when not one")
GEN_AI_SEED = _define("gen_ai.request.seed", "int", "the request's own random seed")
GEN_AI_STOP = _define("gen_ai.request.stop_sequences", "str[]", "texts that end the generation", private=True)
GEN_AI_INPUT_TOKENS = _define("gen_ai.usage.input_tokens", "int", "tokens in the prompt")
GEN_AI_OUTPUT_TOKENS = _define("gen_ai.usage.output_tokens", "int", "tokens generated")
GEN_AI_FIRST_CHUNK = _define(
    "gen_ai.response.time_to_first_chunk",
    "float",
    "seconds from the submission until the first token reached the process that had submitted it; absent where "
    "steps were not recorded",
)
GEN_AI_FINISH_REASONS = _define(
    "gen_ai.response.finish_reasons", "str[]", "why the generation ended: stop, length, abort"
)


# -- start-up
_MAKING_CLIENTS = ("EngineCoreClient.make_client", "EngineCoreClient.make_async_mp_client")
_LOADING = ("DefaultModelLoader.load_weights",)

_define = Group("Which client", on=_MAKING_CLIENTS)
CLIENT_MULTIPROCESS = _define("tracellm.client.multiprocess_mode", "bool", "make_client's first input")
CLIENT_VARIABLE_SET = _define(
    "tracellm.client.variable_set",
    "bool",
    "the environment variable VLLM_ENABLE_V1_MULTIPROCESSING was set, to any value",
)
CLIENT_ASYNCIO = _define("tracellm.client.asyncio_mode", "bool", "make_client's second input")
CLIENT_EXECUTOR = _define("tracellm.client.executor_class", "str", "make_client's third input")
CLIENT_CHOICE = _define(
    "tracellm.client.choice",
    "str",
    "the client class that it picked",
    on=(*_MAKING_CLIENTS, "choose_client"),
)
CLIENT_RULE = _define(
    "tracellm.client.rule",
    "str",
    "the condition on the inputs that decided",
    on=(*_MAKING_CLIENTS, "choose_client"),
)

_define = Group("Configuration, loading, memory", on=_LOADING)
CONFIG = _define(
    "tracellm.config", "str[]", "the engine's settings, each as `name=value`", on=("EngineArgs.create_engine_config",)
)
LOAD_SOURCE = _define(
    "tracellm.load.source",
    "str",
    "the folder or hub id that the model was read from",
    on=("DefaultModelLoader._prepare_weights",),
)
LOAD_FILES = _define(
    "tracellm.load.files", "str[]", "the weight files read", on=("DefaultModelLoader._prepare_weights",)
)
LOAD_BYTES = _define("tracellm.load.bytes", "int", "bytes of weights read")
LOAD_TENSORS = _define("tracellm.load.tensors", "int", "tensors in the files")
LOAD_PARAMETERS = _define("tracellm.load.parameters", "int", "parameters of the model")
LOAD_ARCHITECTURE = _define("tracellm.load.architecture", "str", "the model class, as config.json names it")
LOAD_DTYPE = _define("tracellm.load.dtype", "str", "the dtype the model computes in")
LOAD_DEVICE = _define(
    "tracellm.load.device", "str", "where the weights are: cpu, cuda:0", on=("DefaultModelLoader.place_on_device",)
)
_define = Group("Configuration, loading, memory", on=("GPUModelRunner.load_model",))
LOAD_OPS = _define("tracellm.load.ops", "str", "whose operations the layers use: torch, cpu, triton")
LOAD_OPS_REASON = _define("tracellm.load.ops_reason", "str", "why these operations, as a code")
_define = Group("Configuration, loading, memory", on=("Scheduler.__init__",))
SCHEDULER_ASYNC = _define(
    "tracellm.scheduler.async", "bool", "a step is scheduled before the last one's tokens are known"
)
SCHEDULER_ASYNC_REASON = _define("tracellm.scheduler.async_reason", "str", "why so, or why not, as a code")
_define = Group("Configuration, loading, memory", on=("EngineCore._initialize_kv_caches",))
KV_NUM_BLOCKS = _define("tracellm.kv_cache.num_blocks", "int", "blocks in the KV cache, the null block among them")
KV_BLOCK_SIZE = _define("tracellm.kv_cache.block_size", "int", "tokens that one block holds")
KV_NUM_GROUPS = _define(
    "tracellm.kv_cache.num_groups", "int", "groups of layers, each of which takes blocks of its own for a token"
)
KV_BYTES = _define("tracellm.kv_cache.bytes", "int", "bytes of the whole KV cache")
KV_AVAILABLE = _define(
    "tracellm.kv_cache.available_bytes",
    "int",
    "bytes that were there for it",
    on=("UniProcExecutor.determine_available_memory",),
)


# -- steps: where a step has something about several requests it uses parallel arrays, entry i of each about entry i of
# `tracellm.step.requests`
_SAMPLED = ("EngineCore.step_fn", "GPUModelRunner._sample")

_define = Group("One engine step: everything a replay needs", on=("EngineCore.step_fn",))
STEP_INDEX = _define("tracellm.step.index", "int", "the step's number, from 1")
STEP_KIND = _define(
    "tracellm.step.kind",
    "str",
    "prefill, decode, mixed, or empty when nothing was scheduled; absent where that was not recorded",
)
STEP_REQUESTS = _define("tracellm.step.requests", "str[]", "the requests scheduled, in the batch's order")
STEP_TOKENS = _define("tracellm.step.num_scheduled_tokens", "int[]", "tokens computed for each in this step")
STEP_COMPUTED = _define(
    "tracellm.step.num_computed_tokens", "int[]", "tokens of each that were computed before this step"
)
STEP_PHASES = _define("tracellm.step.phases", "str[]", "prefill or decode, for each")
STEP_CACHED = _define(
    "tracellm.step.prefix_hit_tokens", "int[]", "tokens of each that the prefix cache gave in this step"
)
STEP_CACHED_BLOCKS = _define(
    "tracellm.step.prefix_hit_block_ids", "str[]", "blocks of each that came from the prefix cache, as ranges"
)
STEP_NEW_BLOCKS = _define(
    "tracellm.step.new_block_ids", "str[]", "blocks given to each in this step, as ranges: `3-5,9`"
)
STEP_NEW = _define("tracellm.step.new", "str[]", "requests scheduled for the first time")
STEP_RESUMED = _define("tracellm.step.resumed", "str[]", "requests that came back after a preemption")
STEP_PREEMPTED = _define("tracellm.step.preempted", "str[]", "requests that lost their blocks in this step")
STEP_FINISHED = _define("tracellm.step.finished", "str[]", "requests that ended with this step")
STEP_FINISH_REASONS = _define("tracellm.step.finish_reasons", "str[]", "why, parallel to tracellm.step.finished")
STEP_ABORTED = _define(
    "tracellm.step.aborted", "str[]", "requests taken from the queues before this step: aborted, or at a stop text"
)
STEP_RELEASED = _define("tracellm.step.released", "str[]", "requests that the workers are told to forget in this step")
STEP_RUNNING = _define("tracellm.step.running", "str[]", "the running queue after scheduling")
STEP_WAITING = _define("tracellm.step.waiting", "str[]", "the waiting queue after scheduling; of a long one the first")
STEP_NUM_WAITING = _define("tracellm.step.num_waiting", "int", "how many wait, where that is more than are listed")
STEP_HELD = _define("tracellm.step.held.requests", "str[]", "requests not scheduled, or given less than they wanted")
STEP_HELD_REASONS = _define(
    "tracellm.step.held.reasons", "str[]", "why, as a code, parallel to tracellm.step.held.requests"
)
STEP_HELD_DETAILS = _define(
    "tracellm.step.held.details", "str[]", "the numbers behind each reason, as `name=value name=value`"
)
STEP_BUDGET = _define("tracellm.step.token_budget", "int", "tokens that one step may compute (max_num_batched_tokens)")
STEP_BLOCKS_FREE = _define("tracellm.step.blocks.free", "int", "KV blocks free after scheduling")
STEP_BLOCKS_TOTAL = _define(
    "tracellm.step.blocks.total", "int", "KV blocks that requests can use (without the null block)"
)
STEP_LOGITS = _define("tracellm.step.logits_shape", "int[]", "shape of the logits: requests that sample, vocabulary")
STEP_SAMPLED = _define("tracellm.step.sampled.requests", "str[]", "requests that got a token", on=_SAMPLED)
STEP_SAMPLED_IDS = _define("tracellm.step.sampled.token_ids", "int[]", "the token each got", private=True, on=_SAMPLED)
STEP_SAMPLED_TEXTS = _define(
    "tracellm.step.sampled.texts", "str[]", "the text of each of these tokens", private=True, on=_SAMPLED
)
STEP_SAMPLED_PROBS = _define(
    "tracellm.step.sampled.probabilities",
    "float[]",
    "how probable the model found each (softmax of the logits, of what its grammar allows, before all processors)",
    on=_SAMPLED,
)
STEP_CANDIDATES = _define(
    "tracellm.step.sampled.candidates",
    "str[]",
    "for each of them the five likeliest tokens, as JSON `[[id, text, probability], ...]`",
    private=True,
)

STEP_PROCESSORS = _define(
    "tracellm.step.sampled.processors",
    "str[]",
    "what acted on the logits of each before its token was drawn, as `top_k top_p`, named as the sampling parameters",
)
STEP_LEFT = _define("tracellm.step.sampled.tokens_left", "int[]", "how many tokens each could still be drawn from then")
STEP_DRAWN_PROBS = _define(
    "tracellm.step.sampled.drawn_probabilities", "float[]", "how probable the drawn token was among those"
)
STEP_DRAWN_CANDIDATES = _define(
    "tracellm.step.sampled.drawn_candidates",
    "str[]",
    "the five likeliest of those, as JSON `[[id, text, probability], ...]`",
    private=True,
)

_define = Group("A step's inputs, where the engine has CUDA graphs", on=("GPUModelRunner._prepare_inputs",))
CUDAGRAPH_SIZE = _define(
    "tracellm.cudagraph.size", "int", "requests of the graph that is replayed; absent when the step runs eagerly"
)
CUDAGRAPH_PADDING = _define("tracellm.cudagraph.padding", "int", "how many of these are padding")
CUDAGRAPH_REASON = _define(
    "tracellm.cudagraph.reason",
    "str",
    "why: decode (each request computes one token), or why none is: prompt (one computes more), too_many_requests (the "
    "largest graph holds fewer)",
)


# -- kernels
_define = Group("A launch of a Triton kernel", on=(LAUNCH_SPAN,))
LAUNCH_GRID = _define("tracellm.launch.grid", "int[]", "how many programs were started, along each axis of the grid")
LAUNCH_CONSTANTS = _define(
    "tracellm.launch.constants",
    "str[]",
    "what the kernel was compiled for, each as `name=value`: sizes of the model, of blocks, warps, stages",
)
LAUNCH_BYTES_READ = _define(
    "tracellm.launch.bytes_read", "int", "bytes that all programs together have to read, if no cache helps them"
)
LAUNCH_BYTES_WRITTEN = _define("tracellm.launch.bytes_written", "int", "bytes that they write")
LAUNCH_FLOPS = _define("tracellm.launch.flops", "int", "floating-point operations that they do")
LAUNCH_BLOCKS = _define(
    "tracellm.launch.blocks_read",
    "str[]",
    "of attention: which KV blocks each program reads, as `place in the grid: ranges`; `*`: all along this axis",
)
LAUNCH_REASON = _define(
    "tracellm.launch.reason",
    "str",
    "of paged attention, why v1: short_context (nothing to split), enough_programs (the GPU is busy as it is); why v2: "
    "few_programs",
)
LAUNCH_COMPILED = _define(
    "tracellm.launch.compiled",
    "bool",
    "true when the launch compiled its kernel first, and where there are several block sizes, tried which are fastest",
)
LAUNCH_NUMBER = _define(
    "tracellm.launch.number", "int", "on a GPU: the launch's number, by which tracellm.gpu.launches knows it"
)
_define = Group("What the GPU did meanwhile", on=("GPUModelRunner._sample",))
GPU_LAUNCHES = _define(
    "tracellm.gpu.launches", "int[]", "numbers of the launches that the GPU had done by then, and not before"
)
GPU_TIMES = _define("tracellm.gpu.times_ns", "int[]", "how long it took for each of them, in nanoseconds")


PRIVATE = frozenset(name for name, attribute in ATTRIBUTES.items() if attribute.private)
"""Attributes whose values may hold a user's text: left out of a recording made with `--no-text`."""

"""Names of all attributes that a span, a process or a run may carry, each defined once: `names.NAME`.

An attribute has its standard name if there is one: OpenTelemetry's `code.*`, `thread.*`, `process.*`,
`exception.*`, and `gen_ai.*` for the parameters and the usage of a request. The rest is under `tracellm.*`.

Values are those that OTLP holds without nesting: strings, integers, floats, booleans and arrays of one of these.
docs/spans.md is generated from these definitions.

vLLM's counterpart for its own tracing: vllm/tracing.py::SpanAttributes.
"""

from typing import Literal

from tracellm.trace.attributes import ATTRIBUTES, Attribute, Group

__all__ = [
    "ATTRIBUTES",
    "CLIENT_DISCONNECTED",
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


Level = Literal["request", "step", "layer", "kernel"]
"""Depth of a call in the engine: once a request, once a step, once a layer of the model, once an operation."""

LEVELS: tuple[Level, ...] = ("request", "step", "layer", "kernel")
"""The levels from the coarsest to the finest; "to level X" includes X and all before it."""

REQUEST_SPAN = "llm_request"
"""Name of a request's span, from its submission to its end; it is no call."""

USERS_SPAN = "a span of the program's own"
"""Placeholder for names of spans that the program opened with OpenTelemetry; they have the attribute SCOPE."""

SCRIPT_SPAN = "the script"
"""Placeholder for names of scripts' spans: the names of their files."""

LAUNCH_SPAN = "<kernel>"
"""Name of the span of a Triton kernel's launch: `paged_attention_v1_kernel`."""

HTTP_SPAN = "<method> <path>"
"""Name of the span of an HTTP request to the server: `POST /v1/completions`."""

CLIENT_DISCONNECTED = "client_disconnected"
"""Value of `error.type` of an HTTP request whose client left before all of the response was sent."""


# -- calls
_define = Group("Any call")
CODE_FUNCTION = _define("code.function.name", "str", "called function, with module and class")
CODE_FILE = _define("code.file.path", "str", "file of the definition, relative to the parent folder of its package")
CODE_LINE = _define("code.line.number", "int", "line of the definition")
CALL_KIND = _define(
    "tracellm.call.kind",
    "str",
    "coroutine, generator, async_generator, or loop (a long call whose iterations matter); absent for a plain function",
)
ALSO_CALLED = _define("tracellm.call.also", "str", "second name of the same method")
THREAD_NAME = _define("thread.name", "str", "thread of the call; absent for the main thread")
LIFELINE = _define("tracellm.lifeline", "str", "class of the receiver, or module of a function")
LEVEL = _define("tracellm.level", "str", "depth of the call: request, step, layer or kernel")
PHASE = _define("tracellm.phase", "str", "startup or generation, on spans that begin this phase")
OPEN = _define("tracellm.open", "bool", "true if the call or request did not end during the recording")
CALLER_FILE = _define("tracellm.caller.file", "str", "file of the user's line that made the call")
CALLER_LINE = _define("tracellm.caller.line", "int", "number of that line, from 1")
CALLER_TEXT = _define("tracellm.caller.text", "str", "source text of that line", private=True)
ARGUMENTS = _define("tracellm.arguments", "str[]", "arguments as `name=value`; a tensor as `name=float32[7, 256]`")
RESULT = _define("tracellm.result", "str", "summary of the result")
RECORDING_DURATION = _define(
    "tracellm.recording.duration_ns",
    "int",
    "nanoseconds of the call's own time (without inner calls) spent on capturing and writing records; absent if zero",
)

_define = Group("A call that failed")
ERROR_TYPE = _define(
    "error.type",
    "str",
    "class of the exception that the call raised; of an HTTP request, the type of the error in the response, else its "
    "status, or client_disconnected: the client left before all of the response was sent",
)
EXCEPTION_TYPE = _define("exception.type", "str", "class of the exception", on=("event exception",))
EXCEPTION_MESSAGE = _define(
    "exception.message", "str", "message of the exception", private=True, on=("event exception",)
)
EXCEPTION_STACKTRACE = _define(
    "exception.stacktrace", "str", "traceback of the exception", private=True, on=("event exception",)
)

_define = Group("A span that the program opened with OpenTelemetry", on=(USERS_SPAN,))
SCOPE = _define("otel.scope.name", "str", "name of the tracer; may be empty")
SCOPE_VERSION = _define("otel.scope.version", "str", "version of the tracer")
SPAN_KIND = _define(
    "span.kind", "str", "server, client, producer or consumer; absent for internal", on=(USERS_SPAN, HTTP_SPAN)
)
SENT = _define("tracellm.sent", "bool", "true if the program itself sends the span by OTLP; tracellm then does not")
_DROPPED = "number of dropped ones (the oldest); the limit is OTEL_SPAN_{}_COUNT_LIMIT, by default 128"
DROPPED_ATTRIBUTES = _define("tracellm.dropped.attributes", "int", _DROPPED.format("ATTRIBUTE"))
DROPPED_EVENTS = _define("tracellm.dropped.events", "int", _DROPPED.format("EVENT"))
DROPPED_LINKS = _define("tracellm.dropped.links", "int", _DROPPED.format("LINK"))
OUTSIDE = _define(
    "tracellm.parent.outside",
    "bool",
    "true if the parent is not recorded: it began earlier, or in another program",
    on=(USERS_SPAN, SCRIPT_SPAN),
)


# -- processes
_MESSAGES = (
    *("MsgpackEncoder.encode", "MsgpackEncoder.encode_into", "MsgpackDecoder.decode"),
    *("MessageQueue.enqueue", "MessageQueue.deserialize"),
    *("GroupCoordinator.send_tensor_dict", "GroupCoordinator.recv_tensors"),
)
_COLLECTIVES = ("GroupCoordinator.all_reduce", "GroupCoordinator.all_gather")
_HTTP = (HTTP_SPAN,)

_define = Group("The process that recorded", on=("resource",))
SERVICE_NAME = _define("service.name", "str", "tracellm")
SERVICE_VERSION = _define("service.version", "str", "version of the recording tracellm")
PROCESS_PID = _define("process.pid", "int", "process id")
PROCESS_NAME = _define("tracellm.process.name", "str", "role of the process: main, EngineCore_0, ...")
PROCESS_RUNTIME = _define("process.runtime.version", "str", "version of Python")
HOST_NAME = _define("host.name", "str", "name of the machine")
CLOCK_WALL = _define(
    "tracellm.clock.wall_ns",
    "int",
    "wall clock in nanoseconds since 1970, read together with tracellm.clock.monotonic_ns",
)
CLOCK_MONOTONIC = _define(
    "tracellm.clock.monotonic_ns", "int", "monotonic clock in nanoseconds; the two convert all times"
)

_define = Group("Between processes", on=_MESSAGES)
PROCESS_PARENT_PID = _define(
    "process.parent_pid", "int", "id of the process that started this one, if that is recorded", on=("resource",)
)
MESSAGE_SYSTEM = _define("messaging.system", "str", "zeromq, pipe, ray, or torch.distributed")
MESSAGE_OPERATION = _define("messaging.operation.type", "str", "send or receive")
MESSAGE_ID = _define("messaging.message.id", "str", "id of the message, the same for sender and receiver")
MESSAGE_BYTES = _define("messaging.message.body.size", "int", "bytes of all frames of the message")
MESSAGE_TYPE = _define(
    "tracellm.message.type",
    "str",
    "ADD, ABORT, UTILITY or START_DP_WAVE to the engine core; OUTPUTS or UTILITY_OUTPUT from it; CALL to a worker; "
    "RESPONSE from it; TENSORS between workers",
)
MESSAGE_FRAMES = _define("tracellm.message.frames", "int", "number of frames: one, and one for each large array")
MESSAGE_STEP = _define(
    "tracellm.message.step", "int", "tracellm.step.index of the step that made these OUTPUTS; on the sending side"
)
COLLECTIVE_BYTES = _define("tracellm.collective.bytes", "int", "bytes of this rank's tensor", on=_COLLECTIVES)
COLLECTIVE_RANKS = _define("tracellm.collective.ranks", "int[]", "ranks that take part", on=_COLLECTIVES)
COLLECTIVE_NUMBER = _define("tracellm.collective.number", "int", "number of the operation, from 1", on=_COLLECTIVES)
HTTP_METHOD = _define("http.request.method", "str", "method of the HTTP request: GET, POST", on=_HTTP)
HTTP_PATH = _define("url.path", "str", "requested path: /v1/chat/completions", on=_HTTP)
HTTP_STATUS = _define("http.response.status_code", "int", "status code of the response", on=_HTTP)
HTTP_ERROR = _define(
    "tracellm.http.error", "str", "message of the error in the response, at most 500 characters", private=True, on=_HTTP
)
HTTP_SENT_ID = _define("http.request.header.x-request-id", "str[]", "request id that the client sent", on=_HTTP)
HTTP_GIVEN_ID = _define("http.response.header.x-request-id", "str[]", "request id in the response", on=_HTTP)
HTTP_REQUESTS = _define(
    "tracellm.http.requests",
    "str[]",
    "tracellm.request.id of the requests that it submitted, at most 64; absent if it was refused",
    on=_HTTP,
)


# -- requests
_define = Group("A request", on=(REQUEST_SPAN,))
REQUEST_ID = _define(
    "tracellm.request.id",
    "str",
    "the engine's id of the request",
    on=(REQUEST_SPAN, "LLMEngine._add_request", "AsyncLLM._add_request", "OutputProcessor.add_request"),
)
REQUEST_PROMPT = _define("tracellm.request.prompt", "str", "text of the prompt", private=True)
REQUEST_OUTPUT = _define("tracellm.request.output", "str", "generated text", private=True)
REQUEST_PROMPT_TOKENS = _define(
    "tracellm.request.prompt_token_ids", "int[]", "first 32,768 token ids of the prompt", private=True
)
REQUEST_PROMPT_TEXTS = _define(
    "tracellm.request.prompt_token_texts", "str[]", "text of the first 2,048 of these tokens", private=True
)
REQUEST_PARENT = _define("tracellm.request.parent", "str", "id of the parent request, which has n outputs, if n > 1")
REQUEST_INDEX = _define("tracellm.request.index", "int", "index of this output, from 0, if n > 1")
REQUEST_PRIORITY = _define(
    "tracellm.request.priority", "int", "priority, under the priority policy; lower is scheduled first"
)
REQUEST_PARAMS = _define(
    "tracellm.request.params", "str[]", "sampling parameters that differ from their defaults, as `name=value`"
)
REQUEST_TEXT_PARAMS = _define(
    "tracellm.request.text_params",
    "str[]",
    "sampling parameters with texts as values: stop, bad_words, structured_outputs, extra_args",
    private=True,
)
REQUEST_ITEMS = _define(
    "tracellm.request.items",
    "str[]",
    "images and sounds of the prompt, each as JSON: `modality`, `offset` and `length` of its tokens in the prompt, the "
    "first 12 characters of its `identifier`, its `size` in pixels `[width, height]` or `seconds`, its `patches` "
    "`[t, h, w]`, and whether the processor `cached` it; what was not recorded is absent",
)
REQUEST_PICTURES = _define(
    "tracellm.request.pictures",
    "str[]",
    "a small picture of each of these items, as a data URL of at most 6 kB; empty for a sound",
    private=True,
)
REQUEST_STEPS = _define("tracellm.request.steps", "int", "number of engine steps that scheduled the request")
GEN_AI_OPERATION = _define("gen_ai.operation.name", "str", "chat, text_completion or embeddings")
GEN_AI_MODEL = _define("gen_ai.request.model", "str", "requested model")
GEN_AI_RESPONSE_ID = _define("gen_ai.response.id", "str", "same as tracellm.request.id, under OpenTelemetry's name")
GEN_AI_MAX_TOKENS = _define("gen_ai.request.max_tokens", "int", "limit of generated tokens")
GEN_AI_TEMPERATURE = _define("gen_ai.request.temperature", "float", "sampling temperature; 0 is greedy")
GEN_AI_TOP_P = _define("gen_ai.request.top_p", "float", "nucleus sampling: the probability mass kept")
GEN_AI_TOP_K = _define("gen_ai.request.top_k", "int", "number of candidates kept; 0 keeps all")
GEN_AI_CHOICES = _define("gen_ai.request.choice.count", "int", "n, the number of requested outputs; absent for 1")
GEN_AI_SEED = _define("gen_ai.request.seed", "int", "random seed of the request")
GEN_AI_STOP = _define("gen_ai.request.stop_sequences", "str[]", "texts that end the generation", private=True)
GEN_AI_INPUT_TOKENS = _define("gen_ai.usage.input_tokens", "int", "tokens in the prompt")
GEN_AI_OUTPUT_TOKENS = _define("gen_ai.usage.output_tokens", "int", "tokens generated")
GEN_AI_FIRST_CHUNK = _define(
    "gen_ai.response.time_to_first_chunk",
    "float",
    "seconds from the submission until the first token reached the submitting process; absent if steps were not "
    "recorded",
)
GEN_AI_FINISH_REASONS = _define(
    "gen_ai.response.finish_reasons", "str[]", "reasons for the end of the generation: stop, length, abort"
)
REQUEST_STOPPED_BY = _define(
    "tracellm.request.stopped_by", "str", "stop_string or stop_token, if one of the request's own ended it"
)

_PARSERS = ("extract_reasoning", "extract_tool_calls", "extract_reasoning_streaming", "extract_tool_calls_streaming")

_define = Group("Parts that a server finds in an output, or in the next piece of a stream", on=_PARSERS)
PARSED_REASONING = _define("tracellm.parsed.reasoning", "int", "characters of reasoning")
PARSED_CONTENT = _define("tracellm.parsed.content", "int", "characters of content")
PARSED_TOOL_CALLS = _define("tracellm.parsed.tool_calls", "str[]", "names of the called functions, one for each call")


# -- start-up
_MAKING_CLIENTS = ("EngineCoreClient.make_client", "EngineCoreClient.make_async_mp_client")
_LOADING = ("DefaultModelLoader.load_weights",)

_define = Group("Choice of the client", on=_MAKING_CLIENTS)
CLIENT_MULTIPROCESS = _define(
    "tracellm.client.multiprocess_mode", "bool", "argument `multiprocess_mode` of make_client"
)
CLIENT_VARIABLE_SET = _define(
    "tracellm.client.variable_set", "bool", "whether the environment variable VLLM_ENABLE_V1_MULTIPROCESSING was set"
)
CLIENT_ASYNCIO = _define("tracellm.client.asyncio_mode", "bool", "argument `asyncio_mode` of make_client")
CLIENT_EXECUTOR = _define("tracellm.client.executor_class", "str", "argument `executor_class` of make_client")
CLIENT_CHOICE = _define("tracellm.client.choice", "str", "chosen client class", on=(*_MAKING_CLIENTS, "choose_client"))
CLIENT_RULE = _define(
    "tracellm.client.rule", "str", "condition on the arguments that was met", on=(*_MAKING_CLIENTS, "choose_client")
)

_define = Group("Choice of an engine core", on=("DPLBAsyncMPClient.get_core_engine_for_request",))
DATA_PARALLEL_RANK = _define("tracellm.data_parallel.rank", "int", "the engine core that a request is sent to")
DATA_PARALLEL_LOADS = _define(
    "tracellm.data_parallel.loads",
    "int[]",
    "4 x waiting + running requests of each engine core, as the client counts them; in 0.32 their sum",
)

_define = Group("Configuration, loading, memory", on=_LOADING)
CONFIG = _define(
    "tracellm.config", "str[]", "settings of the engine, as `name=value`", on=("EngineArgs.create_engine_config",)
)
LOAD_SOURCE = _define(
    "tracellm.load.source", "str", "folder or hub id of the model", on=("DefaultModelLoader._prepare_weights",)
)
LOAD_FILES = _define("tracellm.load.files", "str[]", "weight files", on=("DefaultModelLoader._prepare_weights",))
LOAD_BYTES = _define("tracellm.load.bytes", "int", "bytes of weights read")
LOAD_TENSORS = _define("tracellm.load.tensors", "int", "number of tensors in the files")
LOAD_PARAMETERS = _define("tracellm.load.parameters", "int", "number of parameters of the model")
LOAD_ARCHITECTURE = _define("tracellm.load.architecture", "str", "model class in config.json")
LOAD_DTYPE = _define("tracellm.load.dtype", "str", "dtype of the model's computations")
LOAD_WEIGHTS = _define(
    "tracellm.load.weights",
    "str[]",
    "parameters of the model, layers with the same shape together: `model.layers.0-3.mlp.down_proj.weight=float32[256, "
    "512]`",
)
LOAD_PARTITIONS = _define(
    "tracellm.load.partitions",
    "str[]",
    "parts of the divided weights that this worker has, for each projection `start+size/total`: "
    "`model.layers.0-3.self_attn.qkv_proj.weight: dim=0 0+128/256 0+64/128 0+64/128`; absent if none is divided",
)
LOAD_ATTENTION = _define(
    "tracellm.load.attention",
    "str[]",
    "attention layers of the model: `model.layers.0-3.self_attn.attn: heads=4 kv_heads=2 head_size=64 window=0`; a "
    "window of 0 is full attention",
)
LOAD_CONFIG = _define(
    "tracellm.load.config",
    "str[]",
    "sizes in the model's config.json, as `name=value`; `rope` is whether it has a rotary embedding",
    on=("GPUModelRunner.load_model", *_LOADING),
)
LOAD_DEVICE = _define(
    "tracellm.load.device", "str", "device of the weights: cpu, cuda:0", on=("DefaultModelLoader.place_on_device",)
)
LOAD_DEVICE_NAME = _define(
    "tracellm.load.device_name",
    "str",
    "name of the GPU of the weights: NVIDIA H200",
    on=("DefaultModelLoader.place_on_device",),
)
_define = Group("One of several workers", on=("initialize_model_parallel", "GPUModelRunner.initialize_kv_cache"))
WORKER_RANK = _define("tracellm.worker.rank", "int", "rank of the worker")
WORKER_TP_RANKS = _define("tracellm.worker.tp_ranks", "int[]", "ranks that share its layers")
WORKER_PP_RANKS = _define("tracellm.worker.pp_ranks", "int[]", "ranks of its pipeline, stage by stage")
WORKER_KV_BYTES = _define(
    "tracellm.worker.kv_cache_bytes", "int", "bytes of its KV cache", on=("GPUModelRunner.initialize_kv_cache",)
)
_define = Group("Configuration, loading, memory", on=("GPUModelRunner.load_model",))
LOAD_OPS = _define("tracellm.load.ops", "str", "implementation of the layers' operations: torch, cpu, triton")
LOAD_OPS_REASON = _define("tracellm.load.ops_reason", "str", "reason for this implementation, as a code")
LOAD_COMPILE_SECONDS = _define(
    "tracellm.load.compile_seconds", "float", "time to compile the kernels for this CPU; only where they were compiled"
)
_define = Group("Configuration, loading, memory", on=("Scheduler.__init__",))
SCHEDULER_ASYNC = _define(
    "tracellm.scheduler.async", "bool", "true if a step is scheduled before the tokens of the previous step are known"
)
SCHEDULER_ASYNC_REASON = _define("tracellm.scheduler.async_reason", "str", "reason for this choice, as a code")
_define = Group("Configuration, loading, memory", on=("EngineCore._initialize_kv_caches",))
KV_NUM_BLOCKS = _define("tracellm.kv_cache.num_blocks", "int", "number of blocks of the KV cache, with the null block")
KV_BLOCK_SIZE = _define("tracellm.kv_cache.block_size", "int", "tokens per block")
KV_NUM_GROUPS = _define(
    "tracellm.kv_cache.num_groups", "int", "number of groups of layers; each group has its own blocks for a token"
)
KV_WINDOWS = _define(
    "tracellm.kv_cache.sliding_windows",
    "int[]",
    "the sliding window of each group of layers in tokens, 0 for full attention; absent if all are",
)
KV_BYTES = _define("tracellm.kv_cache.bytes", "int", "bytes of the whole KV cache")
KV_AVAILABLE = _define(
    "tracellm.kv_cache.available_bytes",
    "int",
    "bytes available for it",
    on=("UniProcExecutor.determine_available_memory",),
)


# -- steps: values for several requests are parallel arrays; entry i of each belongs to entry i of
# `tracellm.step.requests`
_SAMPLED = ("EngineCore.step_fn", "GPUModelRunner._sample")

_define = Group("An engine step", on=("EngineCore.step_fn",))
STEP_INDEX = _define("tracellm.step.index", "int", "number of the step, from 1")
STEP_KIND = _define(
    "tracellm.step.kind",
    "str",
    "prefill, decode, mixed, or empty (nothing was scheduled); absent if scheduling was not recorded",
)
STEP_REQUESTS = _define("tracellm.step.requests", "str[]", "scheduled requests, in batch order")
STEP_TOKENS = _define("tracellm.step.num_scheduled_tokens", "int[]", "tokens of each request computed in this step")
STEP_COMPUTED = _define(
    "tracellm.step.num_computed_tokens", "int[]", "tokens of each request computed before this step"
)
STEP_PHASES = _define("tracellm.step.phases", "str[]", "prefill or decode, for each request")
STEP_CACHED = _define(
    "tracellm.step.prefix_hit_tokens", "int[]", "tokens of each request found in the prefix cache in this step"
)
STEP_CACHED_BLOCKS = _define(
    "tracellm.step.prefix_hit_block_ids", "str[]", "blocks of each request found in the prefix cache, as ranges"
)
STEP_NEW_BLOCKS = _define(
    "tracellm.step.new_block_ids", "str[]", "blocks allocated to each request in this step, as ranges: `3-5,9`"
)
STEP_NEW = _define("tracellm.step.new", "str[]", "requests scheduled for the first time")
STEP_RESUMED = _define("tracellm.step.resumed", "str[]", "requests scheduled again after a preemption")
STEP_PREEMPTED = _define("tracellm.step.preempted", "str[]", "requests preempted in this step")
STEP_FINISHED = _define("tracellm.step.finished", "str[]", "requests that finished in this step")
STEP_FINISH_REASONS = _define(
    "tracellm.step.finish_reasons", "str[]", "finish reasons, parallel to tracellm.step.finished"
)
STEP_ABORTED = _define(
    "tracellm.step.aborted",
    "str[]",
    "requests removed from the queues before this step: aborted, or ended by a stop text",
)
STEP_RELEASED = _define("tracellm.step.released", "str[]", "requests whose state the workers drop in this step")
STEP_RUNNING = _define("tracellm.step.running", "str[]", "running queue after scheduling")
STEP_WAITING = _define(
    "tracellm.step.waiting", "str[]", "waiting queue after scheduling; only the first requests of a long one"
)
STEP_NUM_WAITING = _define(
    "tracellm.step.num_waiting", "int", "length of the waiting queue, if not all of it is listed"
)
STEP_HELD = _define(
    "tracellm.step.held.requests", "str[]", "requests not scheduled, or scheduled with fewer tokens than they have left"
)
STEP_HELD_REASONS = _define(
    "tracellm.step.held.reasons", "str[]", "reasons, as codes, parallel to tracellm.step.held.requests"
)
STEP_HELD_DETAILS = _define(
    "tracellm.step.held.details", "str[]", "numbers behind each reason, as `name=value name=value`"
)
STEP_BUDGET = _define("tracellm.step.token_budget", "int", "limit of tokens in one step (max_num_batched_tokens)")
STEP_BLOCKS_FREE = _define("tracellm.step.blocks.free", "int", "free KV cache blocks after scheduling")
STEP_BLOCKS_TOTAL = _define("tracellm.step.blocks.total", "int", "usable KV cache blocks (without the null block)")
STEP_ENCODER_REQUESTS = _define(
    "tracellm.step.encoder.requests", "str[]", "the request of each image or sound that is encoded in this step"
)
STEP_ENCODER_ITEMS = _define("tracellm.step.encoder.items", "int[]", "index of each in tracellm.request.items")
STEP_ENCODER_TOKENS = _define("tracellm.step.encoder.num_tokens", "int[]", "tokens of each")
STEP_ENCODER_BUDGET = _define(
    "tracellm.step.encoder.budget",
    "int",
    "limit of these tokens in one step (max_num_encoder_input_tokens); absent for a text model, as are the following",
)
STEP_ENCODER_CACHE_SIZE = _define("tracellm.step.encoder.cache_size", "int", "size of the encoder cache in tokens")
STEP_ENCODER_CACHE_FREE = _define(
    "tracellm.step.encoder.cache_free",
    "int",
    "its tokens without an output of the encoder, after scheduling",
)
STEP_ENCODER_CACHE_FREEABLE = _define(
    "tracellm.step.encoder.cache_freeable", "int", "its tokens with an output that no request needs any more"
)
STEP_ENCODER_EVICTED = _define(
    "tracellm.step.encoder.evicted", "str[]", "first 12 characters of the identifiers that left the encoder cache"
)
STEP_OUTPUT_OF = _define(
    "tracellm.step.output_of",
    "int",
    "tracellm.step.index of the earlier step whose logits and sampled tokens these are; absent: of this step",
)
STEP_LOGITS = _define("tracellm.step.logits_shape", "int[]", "shape of the logits: sampling requests, vocabulary size")
STEP_SAMPLED = _define("tracellm.step.sampled.requests", "str[]", "requests that got a token", on=_SAMPLED)
STEP_SAMPLED_IDS = _define(
    "tracellm.step.sampled.token_ids", "int[]", "token id sampled for each request", private=True, on=_SAMPLED
)
STEP_SAMPLED_TEXTS = _define(
    "tracellm.step.sampled.texts", "str[]", "text of each of these tokens", private=True, on=_SAMPLED
)
STEP_SAMPLED_PROBS = _define(
    "tracellm.step.sampled.probabilities",
    "float[]",
    "probability of each: softmax of the logits, masked by the grammar if any, before all processors",
    on=_SAMPLED,
)
STEP_CANDIDATES = _define(
    "tracellm.step.sampled.candidates",
    "str[]",
    "five likeliest tokens for each, as JSON `[[id, text, probability], ...]`",
    private=True,
)
STEP_PROCESSORS = _define(
    "tracellm.step.sampled.processors",
    "str[]",
    "sampling parameters that changed the logits of each request, as `top_k top_p`",
)
STEP_LEFT = _define(
    "tracellm.step.sampled.tokens_left", "int[]", "number of candidates left after these processors, for each request"
)
STEP_DRAWN_PROBS = _define(
    "tracellm.step.sampled.drawn_probabilities", "float[]", "probability of the sampled token among these candidates"
)
STEP_DRAWN_CANDIDATES = _define(
    "tracellm.step.sampled.drawn_candidates",
    "str[]",
    "five likeliest of these candidates, as JSON `[[id, text, probability], ...]`",
    private=True,
)
STEP_GRAMMAR_ALLOWED = _define(
    "tracellm.step.sampled.grammar.allowed",
    "int[]",
    "number of tokens that the grammar allowed each request; -1 if it forbade none",
)
STEP_GRAMMAR_SHARES = _define(
    "tracellm.step.sampled.grammar.shares",
    "float[]",
    "probability of these tokens together, by the logits without the mask",
)
STEP_GRAMMAR_TOKENS = _define(
    "tracellm.step.sampled.grammar.tokens",
    "str[]",
    "the likeliest token without the mask, then the eight likeliest that the grammar allowed, with the probabilities "
    "before the mask, as JSON `[[id, text, probability], ...]`",
    private=True,
)

_define = Group("CUDA graphs", on=("GPUModelRunner._prepare_inputs",))
CUDAGRAPH_SIZE = _define(
    "tracellm.cudagraph.size", "int", "number of requests of the replayed graph; absent if the step runs eagerly"
)
CUDAGRAPH_PADDING = _define("tracellm.cudagraph.padding", "int", "number of padding requests in the graph")
CUDAGRAPH_REASON = _define(
    "tracellm.cudagraph.reason",
    "str",
    "reason for a graph: decode (each request computes one token); or for none: prompt (a request computes more), "
    "too_many_requests (the largest graph has fewer)",
)


# -- kernels
_define = Group("A launch of a Triton kernel", on=(LAUNCH_SPAN,))
LAUNCH_GRID = _define("tracellm.launch.grid", "int[]", "number of programs along each axis of the grid")
LAUNCH_CONSTANTS = _define(
    "tracellm.launch.constants",
    "str[]",
    "compile-time constants, as `name=value`: sizes of the model and of blocks, warps, stages",
)
LAUNCH_BYTES_READ = _define("tracellm.launch.bytes_read", "int", "bytes read by all programs together, without caches")
LAUNCH_BYTES_WRITTEN = _define("tracellm.launch.bytes_written", "int", "bytes written")
LAUNCH_FLOPS = _define("tracellm.launch.flops", "int", "floating-point operations")
LAUNCH_BLOCKS = _define(
    "tracellm.launch.blocks_read",
    "str[]",
    "attention: KV cache blocks that each program reads, as `grid index: ranges`; `*` is all of this axis",
)
LAUNCH_REASON = _define(
    "tracellm.launch.reason",
    "str",
    "paged attention: reason for v1, short_context (nothing to split) or enough_programs (the GPU is busy without "
    "splitting); reason for v2, few_programs",
)
LAUNCH_COMPILED = _define(
    "tracellm.launch.compiled",
    "bool",
    "true if the launch first compiled the kernel, and chose the fastest of its block sizes",
)
LAUNCH_NUMBER = _define("tracellm.launch.number", "int", "number of the launch in tracellm.gpu.launches; on a GPU")
_define = Group("GPU time of the kernels", on=("GPUModelRunner._sample",))
GPU_LAUNCHES = _define(
    "tracellm.gpu.launches",
    "int[]",
    "numbers of the launches that the GPU has completed since the previous step's list",
)
GPU_TIMES = _define("tracellm.gpu.times_ns", "int[]", "nanoseconds of each of them on the GPU")


PRIVATE = frozenset(name for name, attribute in ATTRIBUTES.items() if attribute.private)
"""Attributes whose values may hold a user's text; `--no-text` omits them."""

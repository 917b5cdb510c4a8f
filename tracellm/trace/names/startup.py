"""Attributes of what happens before the first step: which client, the configuration, the model, the KV cache."""

from tracellm.trace.names.attribute import Group

_MAKING_CLIENTS = ("EngineCoreClient.make_client", "EngineCoreClient.make_async_mp_client")
_LOADING = ("DefaultModelLoader.load_weights",)

_define = Group("Which client", on=_MAKING_CLIENTS)
CLIENT_MULTIPROCESS = _define("tracellm.client.multiprocess_mode", "bool", "make_client's first input")
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

"""Attributes of a Triton kernel's launch, and of what the GPU did meanwhile."""

from tracellm.trace.names.attribute import Group
from tracellm.trace.names.spans import LAUNCH_SPAN

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

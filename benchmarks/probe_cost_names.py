"""Names of the rows in the tables of benchmarks/probe_cost.py and benchmarks/overhead.py, in both languages."""

from typing import Any, Literal

__all__ = [
    "BARE",
    "COST_HEADS",
    "GROUPS",
    "HALF_BILLION",
    "LANGUAGES",
    "LATER",
    "MADE_BY",
    "NAMES",
    "OVERHEAD_BARE",
    "OVERHEAD_DEFAULT",
    "OVERHEAD_DETAIL",
    "OVERHEAD_HEADS",
    "OVERHEAD_MODELS",
    "PROBE",
    "TUPLE",
    "Group",
]

LANGUAGES = ("en", "zh")
"""The languages, in the order of the texts below."""

Text = tuple[str, str]
Group = Literal["function", "method", "coroutine", "generator", "async generator"]

BARE, TUPLE, PROBE = "bare", "tuple", "probe"

_TUPLE_AROUND: Text = ("append of a tuple", "追加元组")
_SDK_NOWHERE: Text = ("OpenTelemetry SDK, batches, exported to nowhere", "OpenTelemetry SDK，批处理，导出后丢弃")

NAMES: dict[Group, dict[str, Text]] = {
    "function": {
        BARE: ("bare call", "不加任何东西的调用"),
        "off": ("`@tracellm.probe`, nothing is recorded", "`@tracellm.probe`，没有在录制"),
        TUPLE: ("append of `(name, t0, t1)`", "追加 `(name, t0, t1)`"),
        "plain": ("**probe**: name, parent, times", "**探针**：名称、父调用、时间"),
        PROBE: ("**probe**: and arguments, result", "**探针**：加上参数和结果"),
        "step": ("**probe** of a call that may last", "可能很久的调用的**探针**"),
        "own": ("**`@tracellm.probe`**: and the caller's line", "**`@tracellm.probe`**：再加上是哪一行调用的"),
        "wrapt": ("wrapt: nothing but the call", "wrapt：只转发调用"),
        "viztracer": ("VizTracer", "VizTracer"),
        "otel": ("OpenTelemetry, no-op tracer", "OpenTelemetry，空 tracer"),
        "null": _SDK_NOWHERE,
        "file": ("OpenTelemetry SDK, batches, to a file", "OpenTelemetry SDK，批处理，写入文件"),
    },
    "method": {
        BARE: ("bare method", "不加任何东西的方法"),
        TUPLE: _TUPLE_AROUND,
        PROBE: ("**probe**: and the receiver's class", "**探针**：加上接收者的类"),
    },
    "coroutine": {
        BARE: ("bare coroutine", "不加任何东西的协程"),
        TUPLE: _TUPLE_AROUND,
        PROBE: ("**probe** of a coroutine", "协程的**探针**"),
        "own": ("**`@tracellm.probe`**", "**`@tracellm.probe`**"),
        "null": _SDK_NOWHERE,
    },
    "generator": {
        BARE: ("bare generator of one item", "产出一项的生成器"),
        TUPLE: _TUPLE_AROUND,
        PROBE: ("**probe** of a generator", "生成器的**探针**"),
    },
    "async generator": {
        BARE: ("bare asynchronous generator of one item", "产出一项的异步生成器"),
        TUPLE: _TUPLE_AROUND,
        PROBE: ("**probe** of an asynchronous generator", "异步生成器的**探针**"),
    },
}
"""The rows of the first table, in order."""

GROUPS: dict[Group, Text] = {
    "function": ("A function of two numbers", "两个数的函数"),
    "method": ("A method", "方法"),
    "coroutine": ("A coroutine", "协程"),
    "generator": ("A generator", "生成器"),
    "async generator": ("An asynchronous generator", "异步生成器"),
}

COST_HEADS: dict[str, Text] = {
    "what": ("what is around the call", "调用之外加了什么"),
    "ns": ("ns a call", "每次调用 ns"),
    "ratio": ("times the tuple (quartiles)", "是元组的几倍（四分位）"),
    "uncollected": ("collector off", "关闭垃圾回收"),
    "bytes": ("bytes held a call", "每次调用占用字节"),
}

LATER: Text = (
    """Later, in the recorded process: **{us_per_call:.2f} µs a call** to encode its record and append it to the file,
{record_bytes:.0f} bytes. When the run has ended: **{us_per_span:.2f} µs a span** to make it of the record and write it
as JSON, {span_bytes:.0f} bytes. These are {spans:,} layer calls as fast as they go ({calls_seconds:.2f} s), in
processor time. Lost: {lost:,}. Of {burst:,} spans in a row the SDK's batch processor dropped {nowhere:,} with an
exporter to nowhere, {file:,} with one to a file.
""",
    """之后，在被记录的进程里：编码一次调用的记录并追加到文件，**{us_per_call:.2f} µs**，{record_bytes:.0f} 字节。
运行结束后：由记录生成 span 并写成 JSON，**每个 span {us_per_span:.2f} µs**，{span_bytes:.0f} 字节。
以上是以最快速度进行的 {spans:,} 次层调用（{calls_seconds:.2f} s），均为处理器时间。丢失：{lost:,}。
连续 {burst:,} 个 span，SDK 的批处理器在导出到空处时丢弃 {nowhere:,} 个，写入文件时丢弃 {file:,} 个。
""",
)
"""The text on the costs of writing and converting, and on the spans that the SDK dropped."""

MADE_BY: Text = ("Made by `{command}` on {machine}.\n", "由 `{command}` 生成：{machine}。\n")

HALF_BILLION: dict[str, Any] = {
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "vocab_size": 151_936,
    "max_position_embeddings": 1024,
    "initializer_range": 0.02,
}
"""Description of the shape of Qwen2-0.5B."""

OVERHEAD_MODELS: dict[str, Text] = {
    "tiny": ("The bundled model, 32 requests at a time", "内置模型，同时 32 个请求"),
    "qwen2": ("Qwen2 with 0.5 B random parameters, 32 requests at a time", "5 亿随机参数的 Qwen2，同时 32 个请求"),
    "vllm": (
        "A real vLLM with the bundled model, 32 requests at a time",
        "真实的 vLLM 运行内置模型，同时 32 个请求",
    ),
}
OVERHEAD_BARE: Text = ("not recorded", "不录制")
OVERHEAD_DEFAULT: Text = ("`--explain`", "`--explain`")
OVERHEAD_DETAIL: Text = ("`--explain --detail {detail}`", "`--explain --detail {detail}`")
OVERHEAD_HEADS: list[Text] = [
    ("run", "运行"),
    ("tokens/s", "token/s"),
    ("slower by (quartiles)", "慢多少（四分位）"),
    ("calls recorded", "录制的调用"),
    ("writing, µs a call", "写记录，每次调用 µs"),
    ("longest write, ms", "最长一次写入，ms"),
    ("conversion, µs a span", "转换，每个 span µs"),
]

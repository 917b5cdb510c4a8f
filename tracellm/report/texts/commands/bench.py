"""Texts of `tracellm bench`: help, headings and error messages."""

__all__ = ["EN", "ZH"]

# Commands, which are the same in both languages.
_THROUGHPUT = """\
  tracellm bench throughput
  tracellm bench throughput --explain --detail step
  tracellm bench throughput path/to/model --num-prompts 16 --dtype bfloat16"""
_LATENCY = """\
  tracellm bench latency --num-prompts 1
  tracellm bench latency path/to/model --input-len 512 --output-len 32"""
_SERVE = """\
  tracellm bench serve
  tracellm bench serve --base-url http://127.0.0.1:8001 --request-rate 4"""
_KERNELS = """\
  tracellm bench kernels --tokens 1,16
  tracellm bench kernels path/to/model --ops torch --ops cpu --dtype bfloat16"""

EN = {
    "cli.help.bench.short": "Measure the speed of the engine, a server or single operations.",
    "cli.help.bench": "Measure speed. Each figure is compared with the machine's limit for memory and arithmetic, "
    "measured in the same run. Run nothing else at the same time. OMP_NUM_THREADS sets the number of threads.",
    "bench.help.throughput.short": "Many requests at once: tokens per second.",
    "bench.help.throughput": "Generate for many requests at once. Report tokens per second, in total and for decoding "
    "only.",
    "bench.help.throughput.more": f"""\
MODEL is a directory or a hub id. Default: the bundled model. Prompts are random token ids.

\b
Examples:
{_THROUGHPUT}""",
    "bench.help.latency.short": "One batch: time to first token, between tokens, and to the end.",
    "bench.help.latency": "Generate for one batch repeatedly. Report milliseconds to the first token, between tokens, "
    "and to the end.",
    "bench.help.latency.more": f"""\
MODEL is a directory or a hub id. Default: the bundled model.

\b
Examples:
{_LATENCY}""",
    "bench.help.serve.short": "Requests to a running server: latency at the client.",
    "bench.help.serve": "Send OpenAI completion requests to a running server, such as `tracellm serve` or "
    "`vllm serve`, and report the latency. Exit status 1 if a request failed.",
    "bench.help.serve.more": f"""\
\b
Examples:
{_SERVE}""",
    "bench.help.kernels.short": "Each operation of a layer, in each implementation.",
    "bench.help.kernels": "Time each operation of a layer in the sizes of MODEL: norms, rotary embedding, cache "
    "writes, matrix products, attention. Implementations are compared with each other and with the machine's limit.",
    "bench.help.kernels.more": f"""\
MODEL is a directory or a hub id. Default: the bundled model. Its weights are not read.

\b
Examples:
{_KERNELS}""",
    "bench.help.num_prompts": "Number of requests.",
    "bench.help.input_len": "Tokens per prompt: a number, or a range for random lengths.",
    "bench.help.output_len": "Tokens to generate per request: a number or a range.",
    "bench.help.repeats": "Number of measurements; medians and quartiles are shown.",
    "bench.help.explain": "Also measure recorded runs, alternating with unrecorded ones.",
    "bench.help.detail": "Deepest level to record: request, step, layer or kernel. Default: as for `run --explain`",
    "bench.help.json": "Print JSON.",
    "bench.help.base_url": "Address of the server.",
    "bench.help.serve_model": "Model of the server. Default: its first model",
    "bench.help.request_rate": "Requests per second, with random arrivals. Default: all at once",
    "bench.help.max_concurrency": "Maximum number of concurrent requests. Default: no limit",
    "bench.help.seed": "Seed of the random lengths, tokens and arrivals.",
    "bench.help.api_key": "API key of the server.",
    "bench.help.ops": "Implementation to measure: torch, cpu or triton. Repeatable. Default: torch and the engine's "
    "choice on this machine",
    "bench.help.tokens": "Numbers of tokens in a step, separated by commas.",
    "bench.help.context": "Tokens before each decoded token.",
    "bench.machine": """\
machine: {machine}
limits, measured in this run: {read} GB/s read, {flops} GFLOP/s in {dtype}""",
    "bench.headlines": """\
model: {model}, {weights} MB of weights read per step; operations: {ops}, {reason}
{requests} requests, {at_once} at once, {inputs:,} tokens in, {outputs:,} out; medians (quartiles)
""",
    "bench.throughput.heads": "|tokens/s|of the limit|decoding, tokens/s|of the limit",
    "bench.bare": "not recorded",
    "bench.default": "recorded, default detail",
    "bench.recorded": "recorded, {detail}",
    "bench.latency.head": "milliseconds",
    "bench.latency.first": "time to first token",
    "bench.latency.token": "time per token, averaged over each request",
    "bench.latency.between": "time between tokens",
    "bench.latency.whole": "time to the end",
    "bench.serve.headlines": """\
{url}, {model}: {requests} requests, {inputs:,} tokens in, {outputs:,} out
{seconds} s, {rate} requests/s, {speed} output tokens/s
""",
    "bench.serve.failed": "tracellm: {n:,} {n:request|requests} failed; the first: {error}",
    "bench.kernels.headlines": """\
sizes of {model}; decoding with a context of {context} tokens; medians (quartiles)
The limit is the memory bandwidth. Data in the processor's cache is read faster and may exceed it.
""",
    "bench.kernels.heads": "operation|tokens|ops|µs|GB/s|GFLOP/s|of the limit",
    "bench.kernels.gpu": "µs is GPU time, measured over many calls in one CUDA graph. Launch time is the host's time "
    "for one call.",
    "bench.kernels.launch": "launch µs",
    "cli.error.bench.lengths": "{option} takes a number of tokens or a range such as 32-256, not {value!r}",
    "cli.error.bench.tokens": "--tokens takes numbers separated by commas, such as 1,16, not {value!r}",
    "cli.error.bench.too_long": "a prompt and its output may have {tokens:,} tokens together, but the model takes at "
    "most {most:,}: lower --input-len or --output-len, or raise --max-model-len",
    "cli.error.bench.refused": "{message}",
    "cli.error.bench.base_url": "--base-url takes an address such as http://127.0.0.1:8000, not {value!r}",
    "cli.error.bench.no_server": "no OpenAI-compatible server answers at {url} ({reason}). Start one with "
    "`tracellm serve`, or give its address with --base-url",
}

ZH = {
    "cli.help.bench.short": "测量引擎、服务器或单个算子的速度。",
    "cli.help.bench": "测量速度，并与机器在内存和运算上的极限对照，极限在同一次运行中测得。测量时不要运行其他程序。"
    "线程数由 OMP_NUM_THREADS 决定。",
    "bench.help.throughput.short": "同时处理多个请求：每秒 token 数。",
    "bench.help.throughput": "同时为多个请求生成 token，给出总体和仅解码阶段每秒的 token 数。",
    "bench.help.throughput.more": f"""\
MODEL 是目录或 hub id。默认使用内置模型。提示词是随机的 token id。

\b
例如：
{_THROUGHPUT}""",
    "bench.help.latency.short": "一个批次：首个 token 用时、相邻 token 间隔和总用时。",
    "bench.help.latency": "反复生成同一个批次，给出首个 token 用时、相邻 token 间隔和总用时（毫秒）。",
    "bench.help.latency.more": f"""\
MODEL 是目录或 hub id。默认使用内置模型。

\b
例如：
{_LATENCY}""",
    "bench.help.serve.short": "向运行中的服务器发送请求：客户端的延迟。",
    "bench.help.serve": "向运行中的服务器（如 `tracellm serve` 或 `vllm serve`）发送 OpenAI completions 请求，"
    "给出延迟。有请求失败时退出状态为 1。",
    "bench.help.serve.more": f"""\
\b
例如：
{_SERVE}""",
    "bench.help.kernels.short": "一层中的每个算子，各种实现分别测量。",
    "bench.help.kernels": "按 MODEL 的尺寸测量一层中的每个算子：归一化、旋转位置编码、缓存写入、矩阵乘法、注意力。"
    "各种实现相互对照，并与机器的极限对照。",
    "bench.help.kernels.more": f"""\
MODEL 是目录或 hub id。默认使用内置模型。不读取权重。

\b
例如：
{_KERNELS}""",
    "bench.help.num_prompts": "请求数。",
    "bench.help.input_len": "每个提示词的 token 数，或随机长度的范围。",
    "bench.help.output_len": "每个请求生成的 token 数，或随机长度的范围。",
    "bench.help.repeats": "测量次数；显示中位数和四分位数。",
    "bench.help.explain": "同时测量有记录的运行，与没有记录的运行轮流进行。",
    "bench.help.detail": "记录到哪一层：request、step、layer 或 kernel。默认与 `run --explain` 相同",
    "bench.help.json": "以 JSON 格式打印。",
    "bench.help.base_url": "服务器的地址。",
    "bench.help.serve_model": "使用服务器的哪个模型。默认：第一个",
    "bench.help.request_rate": "每秒的请求数，随机到达。默认：同时发送全部",
    "bench.help.max_concurrency": "并发请求数的上限。默认：不限",
    "bench.help.seed": "随机长度、token 和到达时间的种子。",
    "bench.help.api_key": "服务器的 API key。",
    "bench.help.ops": "要测量的实现：torch、cpu 或 triton。可重复。默认：torch，以及引擎在本机选用的实现",
    "bench.help.tokens": "一个 step 中的 token 数，多个数用逗号分隔。",
    "bench.help.context": "每个被解码的 token 之前的 token 数。",
    "bench.machine": """\
机器：{machine}
本次运行测得的极限：读内存 {read} GB/s，{dtype} 运算 {flops} GFLOP/s""",
    "bench.headlines": """\
模型：{model}，每个 step 读取 {weights} MB 权重；算子：{ops}，{reason}
{requests} 个请求，同时 {at_once} 个，输入 {inputs:,} token，输出 {outputs:,}；中位数（四分位）
""",
    "bench.throughput.heads": "|token/s|占极限|解码 token/s|占极限",
    "bench.bare": "不记录",
    "bench.default": "记录，默认深度",
    "bench.recorded": "记录，{detail}",
    "bench.latency.head": "毫秒",
    "bench.latency.first": "首个 token 用时",
    "bench.latency.token": "每个 token 用时，按请求平均",
    "bench.latency.between": "相邻 token 间隔",
    "bench.latency.whole": "总用时",
    "bench.serve.headlines": """\
{url}，{model}：{requests} 个请求，输入 {inputs:,} token，输出 {outputs:,}
{seconds} s，每秒 {rate} 个请求，每秒输出 {speed} token
""",
    "bench.serve.failed": "tracellm：{n:,} 个请求失败；第一个：{error}",
    "bench.kernels.headlines": """\
{model} 的尺寸；解码时上下文为 {context} 个 token；中位数（四分位）
极限指内存带宽的极限：能放进处理器缓存的数据读取更快，可能超过它。
""",
    "bench.kernels.heads": "算子|token|实现|µs|GB/s|GFLOP/s|占极限",
    "bench.kernels.gpu": "µs 是 GPU 用时，由一个 CUDA graph 中的多次调用测得。启动用时是主机发起一次调用的时间。",
    "bench.kernels.launch": "启动 µs",
    "cli.error.bench.lengths": "{option} 接受 token 数或 32-256 这样的范围，不接受 {value!r}",
    "cli.error.bench.tokens": "--tokens 接受用逗号分隔的数，如 1,16，不接受 {value!r}",
    "cli.error.bench.too_long": "提示词和输出合计可能有 {tokens:,} 个 token，但模型最多接受 {most:,} 个：请减小 "
    "--input-len 或 --output-len，或增大 --max-model-len",
    "cli.error.bench.refused": "{message}",
    "cli.error.bench.base_url": "--base-url 接受 http://127.0.0.1:8000 这样的地址，不接受 {value!r}",
    "cli.error.bench.no_server": "{url} 没有兼容 OpenAI 的服务器应答（{reason}）。请用 `tracellm serve` 启动，或用 "
    "--base-url 指明地址",
}

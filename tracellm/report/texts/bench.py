"""Texts of `tracellm bench`: its help, and the words around its figures."""

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
  tracellm bench serve --base-url http://127.0.0.1:8001 --request-rate 4 --max-concurrency 16"""
_KERNELS = """\
  tracellm bench kernels --tokens 1,16
  tracellm bench kernels path/to/model --ops torch --ops cpu --dtype bfloat16"""

EN = {
    "cli.help.bench.short": "Measure how fast the engine, a server or the kernels are, beside the machine's limits.",
    "cli.help.bench": "Measure how fast things are. Every figure stands beside what the machine allows: memory and "
    "arithmetic are measured in the same run. Nothing else should run meanwhile; OMP_NUM_THREADS sets the threads.",
    "bench.help.throughput.short": "Many requests at once: tokens a second.",
    "bench.help.throughput": "Generate for many requests at once; tokens a second, of the whole and of decoding alone.",
    "bench.help.throughput.more": f"""\
MODEL is a directory or a hub id; without it, the model that comes with tracellm. Prompts are random token ids.

\b
Examples:
{_THROUGHPUT}""",
    "bench.help.latency.short": "One batch: how long until the first token, between tokens, until the end.",
    "bench.help.latency": "Generate for one batch, again and again; milliseconds until the first token, from one token "
    "to the next, and until the end.",
    "bench.help.latency.more": f"""\
MODEL is a directory or a hub id; without it, the model that comes with tracellm.

\b
Examples:
{_LATENCY}""",
    "bench.help.serve.short": "Requests to a running server, as its clients see it.",
    "bench.help.serve": "Send requests to a running server with OpenAI's completions, such as `tracellm serve` or "
    "`vllm serve`, and tell how long its clients wait. Exit status 1 if a request failed.",
    "bench.help.serve.more": f"""\
\b
Examples:
{_SERVE}""",
    "bench.help.kernels.short": "Each operation of a layer by itself, in each implementation.",
    "bench.help.kernels": "Time each operation of a layer in the sizes of MODEL: norms, rotary embedding, cache, "
    "products of matrices, attention; in each implementation, beside the machine's limit.",
    "bench.help.kernels.more": f"""\
MODEL is a directory or a hub id; without it, the model that comes with tracellm. Its weights are not read.

\b
Examples:
{_KERNELS}""",
    "bench.help.num_prompts": "How many requests.",
    "bench.help.input_len": "Tokens of each prompt, or a range from which each takes its own.",
    "bench.help.output_len": "Tokens to generate for each request; likewise.",
    "bench.help.repeats": "How often everything is measured; told are medians and quartiles.",
    "bench.help.explain": "Measure a recorded run, too, in turn with one that is not.",
    "bench.help.detail": "How deep that records: request, step, layer or kernel. Default: as `run --explain` does",
    "bench.help.json": "As JSON, for programs.",
    "bench.help.base_url": "Where the server is.",
    "bench.help.serve_model": "Which of the server's models. Default: its first",
    "bench.help.request_rate": "Requests a second, coming as by chance. Default: all at once",
    "bench.help.max_concurrency": "The most requests that wait for their answer at a time. Default: as many as come",
    "bench.help.seed": "Of the random lengths, tokens and arrivals.",
    "bench.help.api_key": "The server's key.",
    "bench.help.ops": "An implementation: torch, cpu or triton; may be repeated. Default: torch, and what an engine "
    "would choose here",
    "bench.help.tokens": "Tokens in a step, several numbers.",
    "bench.help.context": "Tokens before each that is decoded.",
    "bench.machine": """\
machine: {machine}
limits, measured now: {read} GB/s read, {flops} GFLOP/s in {dtype}""",
    "bench.headlines": """\
model: {model}, {weights} MB of weights are read in each step; operations: {ops}, {reason}
{requests} requests, {at_once} at once, {inputs:,} tokens in, {outputs:,} out; medians (quartiles)
""",
    "bench.throughput.heads": "|tokens/s|of the limit|decoding, tokens/s|of the limit",
    "bench.bare": "not recorded",
    "bench.default": "recorded, as by default",
    "bench.recorded": "recorded, {detail}",
    "bench.latency.head": "milliseconds",
    "bench.latency.first": "until the first token",
    "bench.latency.token": "a token, on average of a request",
    "bench.latency.between": "from one to the next",
    "bench.latency.whole": "until the end",
    "bench.serve.headlines": """\
{url}, {model}: {requests} requests, {inputs:,} tokens in, {outputs:,} out
{seconds} s, {rate} requests/s, {speed} output tokens/s
""",
    "bench.serve.failed": "tracellm: {n:,} {n:request|requests} failed; the first: {error}",
    "bench.kernels.headlines": """\
sizes of {model}; decoding with {context} tokens before each; medians (quartiles)
What is small enough for the processor's cache may pass the limit, which is that of memory.
""",
    "bench.kernels.heads": "operation|tokens|in|µs|GB/s|GFLOP/s|of the limit",
    "bench.kernels.gpu": "µs are the GPU's: many calls in one CUDA graph. Launching is the host's time for one call.",
    "bench.kernels.launch": "µs to launch",
    "cli.error.bench.lengths": "{option} takes a number of tokens, or a range such as 32-256, not {value!r}",
    "cli.error.bench.tokens": "--tokens takes numbers with commas between them, such as 1,16, not {value!r}",
    "cli.error.bench.too_long": "a prompt and its output may have {tokens:,} tokens together, but the model takes "
    "{most:,}: lower --input-len or --output-len, or raise --max-model-len",
    "cli.error.bench.refused": "{message}",
    "cli.error.bench.base_url": "--base-url takes an address such as http://127.0.0.1:8000, not {value!r}",
    "cli.error.bench.no_server": "no server with OpenAI's API answers at {url} ({reason}). Start one: tracellm serve; "
    "or say where it is: --base-url",
}

ZH = {
    "cli.help.bench.short": "测量推理引擎、服务器或算子有多快，并与机器的极限对照。",
    "cli.help.bench": "测量速度。每个数字旁边都有机器所允许的极限：内存与运算速度在同一次运行中测得。"
    "测量时不要运行别的程序；线程数由 OMP_NUM_THREADS 决定。",
    "bench.help.throughput.short": "同时处理许多请求：每秒多少 token。",
    "bench.help.throughput": "同时为许多请求生成；给出整体以及单独解码阶段每秒的 token 数。",
    "bench.help.throughput.more": f"""\
MODEL 是一个目录或 hub 上的名字；不给则用 tracellm 自带的模型。提示是随机的 token id。

\b
例如：
{_THROUGHPUT}""",
    "bench.help.latency.short": "一个批次：多久出第一个 token，token 之间多久，多久结束。",
    "bench.help.latency": "反复为一个批次生成；给出到第一个 token、token 之间以及到结束的毫秒数。",
    "bench.help.latency.more": f"""\
MODEL 是一个目录或 hub 上的名字；不给则用 tracellm 自带的模型。

\b
例如：
{_LATENCY}""",
    "bench.help.serve.short": "向正在运行的服务器发送请求，测量客户端看到的速度。",
    "bench.help.serve": "向正在运行、兼容 OpenAI completions 的服务器（如 `tracellm serve` 或 `vllm serve`）发送请求，"
    "给出客户端等待的时间。有请求失败时退出状态为 1。",
    "bench.help.serve.more": f"""\
\b
例如：
{_SERVE}""",
    "bench.help.kernels.short": "单独测量一层的每个算子，各种实现对照。",
    "bench.help.kernels": "按 MODEL 的尺寸测量一层的每个算子：归一化、旋转位置编码、缓存写入、矩阵乘法、注意力；"
    "各种实现与机器的极限对照。",
    "bench.help.kernels.more": f"""\
MODEL 是一个目录或 hub 上的名字；不给则用 tracellm 自带的模型。不读取权重。

\b
例如：
{_KERNELS}""",
    "bench.help.num_prompts": "请求数。",
    "bench.help.input_len": "每个提示的 token 数，或各自随机取值的范围。",
    "bench.help.output_len": "为每个请求生成的 token 数；同上。",
    "bench.help.repeats": "测量的次数；给出中位数和四分位数。",
    "bench.help.explain": "同时测量录制的运行，与不录制的轮流进行。",
    "bench.help.detail": "录制到哪一层：request、step、layer 或 kernel。默认：与 `run --explain` 相同",
    "bench.help.json": "以 JSON 输出，供程序使用。",
    "bench.help.base_url": "服务器的地址。",
    "bench.help.serve_model": "服务器的哪个模型。默认：第一个",
    "bench.help.request_rate": "每秒的请求数，随机到达。默认：全部同时",
    "bench.help.max_concurrency": "同时等待回答的请求数上限。默认：不限",
    "bench.help.seed": "随机长度、token 和到达时间的种子。",
    "bench.help.api_key": "服务器的密钥。",
    "bench.help.ops": "一种实现：torch、cpu 或 triton；可以重复给出。默认：torch 以及引擎在这里会选择的实现",
    "bench.help.tokens": "一步中的 token 数，可给多个。",
    "bench.help.context": "每个解码的 token 之前的 token 数。",
    "bench.machine": """\
机器：{machine}
此刻测得的极限：读内存 {read} GB/s，{dtype} 运算 {flops} GFLOP/s""",
    "bench.headlines": """\
模型：{model}，每步读取 {weights} MB 权重；算子：{ops}，{reason}
{requests} 个请求，同时 {at_once} 个，输入 {inputs:,} token，输出 {outputs:,}；中位数（四分位）
""",
    "bench.throughput.heads": "|token/s|占极限|解码 token/s|占极限",
    "bench.bare": "不录制",
    "bench.default": "录制，默认深度",
    "bench.recorded": "录制，{detail}",
    "bench.latency.head": "毫秒",
    "bench.latency.first": "到第一个 token",
    "bench.latency.token": "每个 token，按请求平均",
    "bench.latency.between": "相邻 token 之间",
    "bench.latency.whole": "到结束",
    "bench.serve.headlines": """\
{url}，{model}：{requests} 个请求，输入 {inputs:,} token，输出 {outputs:,}
{seconds} s，每秒 {rate} 个请求，每秒输出 {speed} token
""",
    "bench.serve.failed": "tracellm：{n:,} 个请求失败；第一个：{error}",
    "bench.kernels.headlines": """\
{model} 的尺寸；解码时每个 token 之前有 {context} 个 token；中位数（四分位）
小到能放进处理器缓存的数据可以超过极限，因为极限是内存的。
""",
    "bench.kernels.heads": "算子|token|实现|µs|GB/s|GFLOP/s|占极限",
    "bench.kernels.gpu": "µs 是 GPU 的时间：多次调用放在一个 CUDA graph 里。启动时间是主机发起一次调用所用的时间。",
    "bench.kernels.launch": "启动 µs",
    "cli.error.bench.lengths": "{option} 接受 token 数或范围（如 32-256），而不是 {value!r}",
    "cli.error.bench.tokens": "--tokens 接受用逗号隔开的数，如 1,16，而不是 {value!r}",
    "cli.error.bench.too_long": "提示和输出合起来可能有 {tokens:,} 个 token，但模型只接受 {most:,} 个："
    "请减小 --input-len 或 --output-len，或增大 --max-model-len",
    "cli.error.bench.refused": "{message}",
    "cli.error.bench.base_url": "--base-url 接受形如 http://127.0.0.1:8000 的地址，而不是 {value!r}",
    "cli.error.bench.no_server": "{url} 没有兼容 OpenAI 接口的服务器应答（{reason}）。请先启动：tracellm serve；"
    "或用 --base-url 指明地址",
}

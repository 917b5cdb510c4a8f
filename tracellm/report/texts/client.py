"""Texts on the choice of a client: its purpose, the inputs and rule of `make_client`, and the way to another client."""

__all__ = ["CODE", "COMMAND", "EN", "VLLM_CLASSES", "VLLM_CODE", "VLLM_COMMAND", "ZH"]

CODE = {
    "InprocClient": ("llm = LLM(model, multiprocess_mode=False)",),
    "SyncMPClient": ("llm = LLM(model, multiprocess_mode=True)",),
    "AsyncMPClient": (
        "engine = AsyncLLM(model=model)",
        "async for output in engine.generate(prompt, SamplingParams(), request_id):",
        "    ...",
    ),
    "DPLBAsyncMPClient": ("engine = AsyncLLM(model=model, data_parallel_size=2)",),
}
"""Script lines that choose each client."""

COMMAND = {
    "InprocClient": "VLLM_ENABLE_V1_MULTIPROCESSING=0 tracellm run --explain SCRIPT",
    "SyncMPClient": "VLLM_ENABLE_V1_MULTIPROCESSING=1 tracellm run --explain SCRIPT",
    "AsyncMPClient": "tracellm serve --explain",
    "DPLBAsyncMPClient": "tracellm serve --explain --data-parallel-size 2",
}
"""Commands that choose each client without a change of the script; the variable is vLLM's own."""

VLLM_CODE = {
    "InprocClient": (
        'os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # before vllm is imported',
        "llm = LLM(model)",
    ),
    "SyncMPClient": ("llm = LLM(model)",),
    "AsyncMPClient": (
        "engine = AsyncLLM.from_engine_args(AsyncEngineArgs(model=model))",
        "async for output in engine.generate(prompt, SamplingParams(), request_id):",
        "    ...",
    ),
    "DPLBAsyncMPClient": ("engine = AsyncLLM.from_engine_args(AsyncEngineArgs(model=model, data_parallel_size=2))",),
}
"""Script lines for a real vLLM."""

VLLM_COMMAND = {
    **COMMAND,
    "AsyncMPClient": "tracellm run --explain vllm serve MODEL",
    "DPLBAsyncMPClient": "tracellm run --explain vllm serve MODEL --data-parallel-size 2",
}
"""Commands for a real vLLM."""

VLLM_CLASSES = {
    "InprocClient": ("EngineCoreClient", "InprocClient", "EngineCore"),
    "SyncMPClient": (
        *("EngineCoreClient", "MPClient", "SyncMPClient", "EngineCore", "EngineCoreProc"),
        *("launch_core_engines", "MsgpackEncoder", "MsgpackDecoder"),
    ),
    "AsyncMPClient": (
        *("AsyncLLM", "EngineCoreClient", "MPClient", "AsyncMPClient", "EngineCore", "EngineCoreProc"),
        *("launch_core_engines", "MsgpackEncoder", "MsgpackDecoder"),
    ),
    "DPLBAsyncMPClient": (
        *("AsyncLLM", "EngineCoreClient", "MPClient", "AsyncMPClient", "DPAsyncMPClient", "DPLBAsyncMPClient"),
        *("DPEngineCoreProc", "DPCoordinatorProc", "launch_core_engines", "MsgpackEncoder", "MsgpackDecoder"),
    ),
}
"""Classes and functions of vLLM behind each client."""

EN = {
    "client.title": "Client: {choice}",
    "client.what.heading": "Purpose",
    "client.what": "A client connects the front end of the engine, which turns text into tokens and back, to the "
    "engine core, which schedules and runs the model.",
    "client.inputs": "Inputs",
    "client.rule": "Rule",
    "client.means": "Effect",
    "client.switch": "To switch",
    "client.vllm": "In vLLM",
    "client.note": "Note",
    "client.from.multiprocess_mode": "LLM's argument of that name, else VLLM_ENABLE_V1_MULTIPROCESSING, which is 0 "
    "here unless set",
    "client.from.multiprocess_mode.argument": "the argument of that name",
    "client.from.multiprocess_mode.environment": "VLLM_ENABLE_V1_MULTIPROCESSING={value} in the environment; no "
    "argument was given",
    "client.from.multiprocess_mode.default": "the default here, since no argument was given and "
    "VLLM_ENABLE_V1_MULTIPROCESSING is not set",
    "client.from.multiprocess_mode.async": "AsyncLLM sets it to True",
    "client.from.asyncio_mode.async": "AsyncLLM sets it to True; LLM is synchronous",
    "client.from.asyncio_mode": "LLM is synchronous; AsyncLLM sets both to True",
    "client.from.executor_class": "runs the model's workers; does not affect the choice",
    "client.rule.DPLBAsyncMPClient": "multiprocess_mode and asyncio_mode and data_parallel_size > 1",
    "client.rule.AsyncMPClient": "multiprocess_mode and asyncio_mode",
    "client.rule.SyncMPClient": "multiprocess_mode and not asyncio_mode",
    "client.rule.InprocClient": "not multiprocess_mode and not asyncio_mode",
    "client.means.InprocClient": "The engine core runs in this process. Each step is a plain method call: get_output() "
    "calls step_fn(). Nothing crosses a process boundary.",
    "client.means.SyncMPClient": "The engine core runs in its own process (EngineCoreProc) and steps in a loop. This "
    "process sends requests over ZMQ sockets and waits for the outputs of each step.",
    "client.means.AsyncMPClient": "The engine core runs in its own process (EngineCoreProc) and steps in a loop. "
    "Requests and outputs are sent over ZMQ sockets. The event loop of this process serves other requests while one "
    "waits.",
    "client.means.DPLBAsyncMPClient": "Each of several engine cores runs in its own process (DPEngineCoreProc), with a "
    "copy of the model. A request goes to the one with the smallest load (4 x waiting + running in vLLM 0.11.1). A "
    "coordinator process publishes these numbers, and starts all engine cores when one of them gets a request.",
    "client.for.InprocClient": "Scripts and debugging: one process, one call stack.",
    "client.for.SyncMPClient": "Offline batches: tokenizing and detokenizing overlap with the engine core's steps.",
    "client.for.AsyncMPClient": "Servers: many concurrent requests, streamed outputs.",
    "client.for.DPLBAsyncMPClient": "Servers with more requests than one engine core can serve.",
    "client.real": "In a real vLLM, 0.11 or later, VLLM_ENABLE_V1_MULTIPROCESSING is 1 by default. A plain LLM() then "
    "gets a SyncMPClient.",
    "client.real.AsyncMPClient": "A real vLLM does the same: `vllm serve` and AsyncLLM always get an AsyncMPClient. A "
    "plain LLM() gets a SyncMPClient, because VLLM_ENABLE_V1_MULTIPROCESSING is 1 by default.",
    "client.real.DPLBAsyncMPClient": "A real vLLM does the same. Later versions let engine cores step together only "
    "for models with experts.",
    "client.real.SyncMPClient": "In a real vLLM, 0.11 or later, a plain LLM() gets this client: "
    "VLLM_ENABLE_V1_MULTIPROCESSING is 1 by default.",
    "client.from.multiprocess_mode.vllm": "VLLM_ENABLE_V1_MULTIPROCESSING, which is 1 unless set",
    "client.from.multiprocess_mode.vllm.environment": "VLLM_ENABLE_V1_MULTIPROCESSING={value} in the environment",
    "client.from.multiprocess_mode.vllm.default": "vLLM's default: VLLM_ENABLE_V1_MULTIPROCESSING is not set",
    "client.real.vllm.InprocClient": "This run set VLLM_ENABLE_V1_MULTIPROCESSING=0. By default it is 1, and a plain "
    "LLM() gets a SyncMPClient. Documents that show an InprocClient as the default describe runs like this one.",
    "client.real.vllm.SyncMPClient": "This is vLLM's default: VLLM_ENABLE_V1_MULTIPROCESSING is 1 unless set. "
    "Documents that show an InprocClient as the default describe runs with VLLM_ENABLE_V1_MULTIPROCESSING=0. That is "
    "the default of this project's engine.",
    "client.real.vllm.AsyncMPClient": "`vllm serve` and AsyncLLM always get an AsyncMPClient. A plain LLM() gets a "
    "SyncMPClient, because VLLM_ENABLE_V1_MULTIPROCESSING is 1 by default.",
    "client.or": "or",
}

ZH = {
    "client.title": "客户端：{choice}",
    "client.what.heading": "作用",
    "client.what": "客户端连接引擎前端和引擎核心：前端负责文本与 token 的互相转换，引擎核心负责调度并运行模型。",
    "client.inputs": "输入",
    "client.rule": "规则",
    "client.means": "结果",
    "client.switch": "如何切换",
    "client.vllm": "在 vLLM 中",
    "client.note": "注意",
    "client.from.multiprocess_mode": "来自 LLM 的同名参数，没有则看 VLLM_ENABLE_V1_MULTIPROCESSING，这里默认为 0",
    "client.from.multiprocess_mode.argument": "同名参数",
    "client.from.multiprocess_mode.environment": "环境变量 VLLM_ENABLE_V1_MULTIPROCESSING={value}；没有传入参数",
    "client.from.multiprocess_mode.default": "这里的默认值；没有传入参数，"
    "也没有设置环境变量 VLLM_ENABLE_V1_MULTIPROCESSING",
    "client.from.multiprocess_mode.async": "AsyncLLM 将其设为 True",
    "client.from.asyncio_mode.async": "AsyncLLM 将其设为 True；LLM 是同步接口",
    "client.from.asyncio_mode": "LLM 是同步接口；AsyncLLM 将两者都设为 True",
    "client.from.executor_class": "负责运行模型的 worker，不影响选择",
    "client.rule.DPLBAsyncMPClient": "multiprocess_mode 且 asyncio_mode 且 data_parallel_size > 1",
    "client.rule.AsyncMPClient": "multiprocess_mode 且 asyncio_mode",
    "client.rule.SyncMPClient": "multiprocess_mode 且非 asyncio_mode",
    "client.rule.InprocClient": "非 multiprocess_mode 且非 asyncio_mode",
    "client.means.InprocClient": "引擎核心在当前进程中运行。每个 step 都是普通的方法调用：get_output() 直接调用 "
    "step_fn()，没有数据跨越进程边界。",
    "client.means.SyncMPClient": "引擎核心在独立的进程（EngineCoreProc）中循环执行 step。当前进程通过 ZMQ "
    "套接字发送请求，并等待每个 step 的输出。",
    "client.means.AsyncMPClient": "引擎核心在独立的进程（EngineCoreProc）中循环执行 step。请求和输出通过 ZMQ "
    "套接字传输。一个请求等待时，当前进程的事件循环继续处理其他请求。",
    "client.means.DPLBAsyncMPClient": "有多个引擎核心，各自在独立的进程（DPEngineCoreProc）中运行，各有一份模型。"
    "请求发给负载最小的引擎核心，在 vLLM 0.11.1 中，负载 = 4 × 等待的请求数 + 运行的请求数。"
    "协调进程发布这些数字，并在任一引擎核心收到请求时启动所有引擎核心。",
    "client.for.InprocClient": "脚本与调试：一个进程，一个调用栈。",
    "client.for.SyncMPClient": "离线批处理：分词和反分词与引擎核心并行。",
    "client.for.AsyncMPClient": "在线服务：大量并发请求，流式输出。",
    "client.for.DPLBAsyncMPClient": "请求量超过单个引擎核心处理能力的在线服务。",
    "client.real": "真实的 vLLM（0.11 及以后）中，VLLM_ENABLE_V1_MULTIPROCESSING 默认为 1，直接使用 LLM() 得到的是 "
    "SyncMPClient。",
    "client.real.AsyncMPClient": "真实的 vLLM 也是如此：`vllm serve` 和 AsyncLLM 总是得到 AsyncMPClient。直接使用 "
    "LLM() 得到的是 SyncMPClient，因为 VLLM_ENABLE_V1_MULTIPROCESSING 默认为 1。",
    "client.real.DPLBAsyncMPClient": "真实的 vLLM 也是如此。"
    "后续版本只让带有专家层（MoE）的模型的引擎核心同步执行 step。",
    "client.real.SyncMPClient": "真实的 vLLM（0.11 及以后）中，直接使用 LLM() 得到的就是这个客户端："
    "VLLM_ENABLE_V1_MULTIPROCESSING 默认为 1。",
    "client.from.multiprocess_mode.vllm": "来自环境变量 VLLM_ENABLE_V1_MULTIPROCESSING，未设置时为 1",
    "client.from.multiprocess_mode.vllm.environment": "环境变量 VLLM_ENABLE_V1_MULTIPROCESSING={value}",
    "client.from.multiprocess_mode.vllm.default": "vLLM 的默认值：没有设置环境变量 VLLM_ENABLE_V1_MULTIPROCESSING",
    "client.real.vllm.InprocClient": "本次运行设置了 VLLM_ENABLE_V1_MULTIPROCESSING=0。它默认为 1，此时直接使用 LLM() "
    "得到的是 SyncMPClient。有些文档把 InprocClient 写成默认值，描述的正是这种运行。",
    "client.real.vllm.SyncMPClient": "这是 vLLM 的默认行为：VLLM_ENABLE_V1_MULTIPROCESSING 默认为 1。有些文档把 "
    "InprocClient 写成默认值，描述的是 VLLM_ENABLE_V1_MULTIPROCESSING=0 的运行。本项目的引擎默认为 0。",
    "client.real.vllm.AsyncMPClient": "`vllm serve` 和 AsyncLLM 总是得到 AsyncMPClient。"
    "直接使用 LLM() 得到的是 SyncMPClient，因为 VLLM_ENABLE_V1_MULTIPROCESSING 默认为 1。",
    "client.or": "或",
}

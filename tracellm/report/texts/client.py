"""Why this client: the inputs of `make_client`, its rule, and the two truths about defaults."""

__all__ = ["EN", "ZH"]

EN = {
    "client.title": "Client: {choice}",
    "client.inputs": "Inputs",
    "client.rule": "Rule",
    "client.means": "That means",
    "client.switch": "To switch",
    "client.note": "Note",
    "client.from.multiprocess_mode": "VLLM_ENABLE_V1_MULTIPROCESSING, which is 0 here unless set",
    "client.from.asyncio_mode": "LLM is synchronous; AsyncLLM makes it True",
    "client.from.executor_class": "runs the model's workers; it has no part in the choice",
    "client.rule.AsyncMPClient": "multiprocess_mode and asyncio_mode",
    "client.rule.SyncMPClient": "multiprocess_mode and not asyncio_mode",
    "client.rule.InprocClient": "not multiprocess_mode and not asyncio_mode",
    "client.means.InprocClient": "The engine core lives in this process. Each step is a plain method call: "
    "get_output() calls step_fn() directly, and nothing crosses a process boundary.",
    "client.means.SyncMPClient": "The engine core lives in a process of its own. This process sends it requests and "
    "waits for outputs over ZMQ sockets, one call after the other.",
    "client.means.AsyncMPClient": "The engine core lives in a process of its own. Requests and outputs travel over ZMQ "
    "sockets while this process's event loop goes on serving others.",
    "client.for.InprocClient": "Scripts and debugging: one process, one stack.",
    "client.for.SyncMPClient": "Offline batches: tokenizing and detokenizing run beside the engine.",
    "client.for.AsyncMPClient": "Servers: many requests at once, streamed.",
    "client.switch.InprocClient": "VLLM_ENABLE_V1_MULTIPROCESSING=0 and LLM",
    "client.switch.SyncMPClient": "VLLM_ENABLE_V1_MULTIPROCESSING=1 and LLM",
    "client.switch.AsyncMPClient": "AsyncLLM",
    "client.not_yet": "This version of tracellm has the InprocClient only, and refuses the other two.",
    "client.real": "A real vLLM, 0.11 or later, has VLLM_ENABLE_V1_MULTIPROCESSING=1 unless told otherwise: there a "
    "plain LLM() gets a SyncMPClient.",
}

ZH = {
    "client.title": "客户端：{choice}",
    "client.inputs": "输入",
    "client.rule": "规则",
    "client.means": "含义",
    "client.switch": "如何切换",
    "client.note": "注意",
    "client.from.multiprocess_mode": "来自 VLLM_ENABLE_V1_MULTIPROCESSING，这里默认为 0",
    "client.from.asyncio_mode": "LLM 是同步接口；用 AsyncLLM 时为 True",
    "client.from.executor_class": "负责运行模型的各个 worker，不影响选择",
    "client.rule.AsyncMPClient": "multiprocess_mode 且 asyncio_mode",
    "client.rule.SyncMPClient": "multiprocess_mode 且非 asyncio_mode",
    "client.rule.InprocClient": "非 multiprocess_mode 且非 asyncio_mode",
    "client.means.InprocClient": "EngineCore 就在当前进程里。每一步都是普通的方法调用："
    "get_output() 直接调用 step_fn()，没有任何数据跨越进程边界。",
    "client.means.SyncMPClient": "EngineCore 在独立的进程里。当前进程通过 ZMQ 套接字发送请求并等待输出，一次一个调用。",
    "client.means.AsyncMPClient": "EngineCore 在独立的进程里。请求和输出通过 ZMQ 套接字传递，"
    "同时当前进程的事件循环继续服务其他请求。",
    "client.for.InprocClient": "脚本与调试：一个进程，一个调用栈。",
    "client.for.SyncMPClient": "离线批处理：分词与反分词和引擎并行进行。",
    "client.for.AsyncMPClient": "在线服务：大量并发请求，流式返回。",
    "client.switch.InprocClient": "VLLM_ENABLE_V1_MULTIPROCESSING=0，使用 LLM",
    "client.switch.SyncMPClient": "VLLM_ENABLE_V1_MULTIPROCESSING=1，使用 LLM",
    "client.switch.AsyncMPClient": "使用 AsyncLLM",
    "client.not_yet": "当前版本的 tracellm 只有 InprocClient，选用另外两个会报错。",
    "client.real": "真实的 vLLM（0.11 及以后）默认 VLLM_ENABLE_V1_MULTIPROCESSING=1："
    "在那里直接使用 LLM() 得到的是 SyncMPClient。",
}

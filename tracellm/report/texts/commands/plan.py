"""Texts of `tracellm plan`."""

__all__ = ["EN", "ZH"]

EN = {
    "cli.help.plan.short": "Memory and traffic of a model on several GPUs.",
    "cli.help.plan": "Print what each rank of a model would hold and send, from the model's config alone.",
    "cli.help.plan.more": """\
No GPU and no weights are needed: the engine's model is made without memory for each rank, and runs a decode step and a
prefill step there, which count the tensors that would be sent. MODEL is a directory with config.json, or a name as for
LLM. GPUs: a100, a100-40gb, b200, h100, h200, l4, l40s, rtx4090, v100.

\b
Examples:
  tracellm plan tiny --tp 2 --pp 2 --gpu l4
  tracellm plan ./my-model --tp 8 --pp 4 --gpu h100""",
    "cli.help.plan.tp": "Workers that share each layer.",
    "cli.help.plan.pp": "Stages, each with some of the layers.",
    "cli.help.plan.gpu": "GPU of each rank.",
    "cli.help.plan.dtype": "Type of weights and KV cache: bfloat16, float16, float32, or auto (as in the checkpoint).",
    "cli.help.plan.max_model_len": "Longest request in tokens; by default the model's limit.",
    "cli.help.plan.max_num_seqs": "Requests of the decode step.",
    "cli.help.plan.budget": "Tokens of the prefill step.",
    "cli.help.plan.block_size": "Tokens in a block of the KV cache.",
    "cli.help.plan.utilization": "Share of the GPU's memory that the engine uses.",
    "cli.help.plan.reserve": "Memory of each GPU for activations, buffers and the driver, in GB.",
    "cli.help.plan.gpus_per_node": "GPUs of one machine.",
    "cli.help.plan.network": "Speed of the network between machines for each GPU, in GB/s in one direction.",
    "cli.error.plan.gpu": "no figures for the GPU {gpu}; GPUs: {known}",
    "cli.error.plan.refused": "{message}",
    "cli.error.plan.not_finite": "--reserve and --network must be numbers",
    "plan.title": "{model} in {dtype} on {gpus:GPU|GPUs} ({gpu}): {pp:stage|stages} of {tp:worker|workers}",
    "plan.memory": "Memory of each rank",
    "plan.head.stage": "stage",
    "plan.head.ranks": "ranks",
    "plan.head.layers": "layers",
    "plan.head.weights": "weights",
    "plan.head.kv_cache": "for the KV cache",
    "plan.head.block": "one block",
    "plan.head.operation": "operation",
    "plan.head.calls": "calls",
    "plan.head.bytes": "bytes of each",
    "plan.head.time": "minimum time in total",
    "plan.blocks": "KV cache: {blocks:,} blocks of {block_size} tokens, as many as fit into every rank: {tokens:,} "
    "tokens, room for {requests} requests of {length:,} tokens.",
    "plan.too_small": "The model does not fit: rank {rank} has weights of {needed}, and {available} are available. Use "
    "more GPUs, or larger ones.",
    "plan.step.decode": "Sent in a decode step of {requests:request|requests}",
    "plan.step.prefill": "Sent in a prefill step of {tokens:token|tokens}",
    "plan.operation.all_reduce": "all-reduce",
    "plan.operation.all_gather": "all-gather",
    "plan.operation.send": "send to the next stage",
    "plan.note": "Memory: {usable} of the GPU's memory, minus {reserved} for activations, buffers and the driver; a "
    "real engine measures those. Minimum time: the ring algorithm at the published speed, without latency: {link}, "
    "{speed} GB/s in one direction within a machine of {node} GPUs, and {network} GB/s between machines.",
    "plan.note_one": "Memory: {usable} of the GPU's memory, minus {reserved} for activations, buffers and the driver; "
    "a real engine measures those. One GPU sends nothing.",
}

ZH = {
    "cli.help.plan.short": "估算模型在多块 GPU 上的显存与通信量。",
    "cli.help.plan": "只根据模型配置，列出每个 rank 要存放和发送的数据。",
    "cli.help.plan.more": """\
不需要 GPU，也不需要权重：为每个 rank 创建不占内存的引擎模型，在上面执行一个解码 step 和一个
预填充 step，统计要发送的张量。
MODEL 是含 config.json 的目录，或 LLM 接受的模型名。GPU：a100、a100-40gb、b200、h100、h200、l4、l40s、rtx4090、v100。

\b
示例：
  tracellm plan tiny --tp 2 --pp 2 --gpu l4
  tracellm plan ./my-model --tp 8 --pp 4 --gpu h100""",
    "cli.help.plan.tp": "共同计算每一层的 worker 数。",
    "cli.help.plan.pp": "stage 数，每个 stage 负责一部分层。",
    "cli.help.plan.gpu": "每个 rank 的 GPU。",
    "cli.help.plan.dtype": "权重和 KV 缓存的类型：bfloat16、float16、float32，或 auto（与 checkpoint 相同）。",
    "cli.help.plan.max_model_len": "最长请求的 token 数；默认为模型的上限。",
    "cli.help.plan.max_num_seqs": "解码 step 的请求数。",
    "cli.help.plan.budget": "预填充 step 的 token 数。",
    "cli.help.plan.block_size": "一个 KV 缓存块的 token 数。",
    "cli.help.plan.utilization": "引擎可用的显存比例。",
    "cli.help.plan.reserve": "每块 GPU 为激活值、缓冲区和驱动保留的显存，单位 GB。",
    "cli.help.plan.gpus_per_node": "一台机器的 GPU 数。",
    "cli.help.plan.network": "机器之间的网络速度，按每块 GPU、单向计，单位 GB/s。",
    "cli.error.plan.gpu": "没有 GPU {gpu} 的数据；可用的 GPU：{known}",
    "cli.error.plan.refused": "{message}",
    "cli.error.plan.not_finite": "--reserve 和 --network 必须是数字",
    "plan.title": "{model}（{dtype}），{gpus} 块 GPU（{gpu}）：{pp} 个 stage，各 {tp} 个 worker",
    "plan.memory": "每个 rank 的显存",
    "plan.head.stage": "stage",
    "plan.head.ranks": "rank",
    "plan.head.layers": "层",
    "plan.head.weights": "权重",
    "plan.head.kv_cache": "可用于 KV 缓存",
    "plan.head.block": "每块",
    "plan.head.operation": "操作",
    "plan.head.calls": "次数",
    "plan.head.bytes": "每次的字节数",
    "plan.head.time": "总计至少用时",
    "plan.blocks": "KV 缓存：{blocks:,} 块，每块 {block_size} 个 token，取各 rank 所能容纳块数的最小值："
    "共 {tokens:,} 个 token，可容纳 {requests} 个长度为 {length:,} 的请求。",
    "plan.too_small": "模型放不下：rank {rank} 的权重有 {needed}，可用 {available}。请使用更多或更大的 GPU。",
    "plan.step.decode": "{requests:,} 个请求的解码 step 所发送的数据",
    "plan.step.prefill": "{tokens:,} 个 token 的预填充 step 所发送的数据",
    "plan.operation.all_reduce": "all-reduce",
    "plan.operation.all_gather": "all-gather",
    "plan.operation.send": "发给下一个 stage",
    "plan.note": "显存：GPU 显存的 {usable}，减去为激活值、缓冲区和驱动保留的 {reserved}；真实的引擎会实测后者。"
    "至少用时：按公布的速度计算环形算法，不计延迟；{node} 块 GPU 的机器内部为 {link}，单向 {speed} GB/s，"
    "机器之间 {network} GB/s。",
    "plan.note_one": "显存：GPU 显存的 {usable}，减去为激活值、缓冲区和驱动保留的 {reserved}；"
    "真实的引擎会实测后者。一块 GPU 不发送数据。",
}

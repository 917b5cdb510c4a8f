"""Glossary of inference terms, in the report and in docs/glossary.md."""

__all__ = ["EN", "TERMS", "ZH"]

TERMS = (
    *("token", "request", "step", "prefill", "decode", "kv_cache", "kv_block", "prefix_cache"),
    *("scheduler", "token_budget", "chunked_prefill", "preemption", "async_scheduling"),
    *("logits", "sampling", "temperature", "top_k_top_p", "penalty", "grammar", "logprob", "n"),
    *("engine_core", "client", "executor", "span", "own_time", "generation", "recording_time"),
)
"""Terms in the order in which they are explained: each uses only the ones before it."""

EN = {
    "glossary.title": "Glossary",
    "html.words.short": "Glossary",
    "glossary.token.name": "token",
    "glossary.token": "A piece of text with a number in the model's vocabulary: a word, a part of a word, or a few "
    "bytes.",
    "glossary.request.name": "request",
    "glossary.request": "One prompt with its sampling parameters, on its way through the engine.",
    "glossary.step.name": "step",
    "glossary.step": "One iteration of the engine: schedule, run the model once for all scheduled requests, process "
    "the outputs. Each request gets at most one token.",
    "glossary.prefill.name": "prefill",
    "glossary.prefill": "Computing the tokens of a prompt, many at once. The last one yields the first new token.",
    "glossary.decode.name": "decode",
    "glossary.decode": "Computing one token of a request, the one sampled last, to get the next one.",
    "glossary.kv_cache.name": "KV cache",
    "glossary.kv_cache": "The keys and values that attention computed for earlier tokens, kept so that they are not "
    "computed again.",
    "glossary.kv_block.name": "KV cache block",
    "glossary.kv_block": "A part of the KV cache for a fixed number of tokens, often 16. Blocks are allocated as a "
    "request grows and may be anywhere in memory. This is paged attention.",
    "glossary.prefix_cache.name": "prefix cache, prefix cache hit",
    "glossary.prefix_cache": "Full KV cache blocks, each found by a hash of all tokens up to its end. If a request "
    "begins with the same tokens, it reuses the blocks: a prefix cache hit.",
    "glossary.scheduler.name": "scheduler",
    "glossary.scheduler": "The part of the engine core that chooses, before each step, the requests to run, their "
    "tokens and their KV cache blocks. A request is either waiting or running.",
    "glossary.token_budget.name": "token budget",
    "glossary.token_budget": "The maximum number of tokens in one step, over all requests: `max_num_batched_tokens`.",
    "glossary.chunked_prefill.name": "chunked prefill",
    "glossary.chunked_prefill": "Computing a prompt over several steps if it exceeds the remaining token budget. "
    "Requests in decode need not wait for it.",
    "glossary.preemption.name": "preemption",
    "glossary.preemption": "When a running request needs a KV cache block and none is free, the request that arrived "
    "last is preempted. Its blocks are freed. It waits and is computed again from the start.",
    "glossary.async_scheduling.name": "asynchronous scheduling",
    "glossary.async_scheduling": "Scheduling and launching a step while the previous one is still being computed. The "
    "engine detects the end of a request one step late and drops the extra token. In reports, too, a request finishes "
    "one step after its last token.",
    "glossary.logits.name": "logits",
    "glossary.logits": "The model's score for each token of the vocabulary. Softmax turns the scores into "
    "probabilities.",
    "glossary.sampling.name": "sampling",
    "glossary.sampling": "Choosing the next token from the logits: the most likely one (greedy), or a random one.",
    "glossary.temperature.name": "temperature",
    "glossary.temperature": "A divisor of the logits. Below 1, likely tokens become more likely; above 1, unlikely "
    "ones do; 0 means greedy.",
    "glossary.top_k_top_p.name": "top_k, top_p, min_p",
    "glossary.top_k_top_p": "Limits on the tokens to choose from. top_k: the k most likely. top_p: the most likely "
    "that together reach probability p. min_p: those with at least this fraction of the highest probability.",
    "glossary.penalty.name": "penalty",
    "glossary.penalty": "A reduction of the probability of tokens that were already generated or are in the prompt.",
    "glossary.grammar.name": "grammar",
    "glossary.grammar": "The required form of a structured output: a JSON schema, a regular expression or a list of "
    "choices. It is compiled into a mask of the tokens that may come next.",
    "glossary.logprob.name": "log probability",
    "glossary.logprob": "The logarithm of a token's probability: 0 is certain, -0.7 is one half, -2.3 is one tenth.",
    "glossary.n.name": "n",
    "glossary.n": "The number of outputs for a prompt. Each output is a separate request in the engine; `0_7` is the "
    "first one of request `7`.",
    "glossary.engine_core.name": "engine core",
    "glossary.engine_core": "The part of the engine that runs the steps: scheduler, KV cache and executor. The front "
    "end turns text into tokens and back.",
    "glossary.client.name": "client",
    "glossary.client": "The link between the front end and the engine core: method calls, or messages to another "
    "process.",
    "glossary.executor.name": "executor, worker, model runner",
    "glossary.executor": "The executor passes each step to its workers, one for each device. A worker's model runner "
    "prepares the tensors, runs the model and samples.",
    "glossary.span.name": "span",
    "glossary.span": "One recorded call: its name, times, arguments and result.",
    "glossary.own_time.name": "total time, own time",
    "glossary.own_time": "Total time: from the start of a call to its end. Own time: total time without the "
    "calls it made and without recording. Where calls of one thread overlap, as asynchronous ones do, the common time "
    "counts once.",
    "glossary.generation.name": "generation",
    "glossary.generation": "The time from the start of the first step to the end of the last, over all engines of the "
    "run. Start-up comes before it.",
    "glossary.recording_time.name": "recording time",
    "glossary.recording_time": "The time that recording takes: probes, capturing arguments and results, writing "
    "records. Captures and writes are measured and have their own column. The total is also shown as a share of the "
    "whole run and of generation. The times of several processes are added.",
}

ZH = {
    "glossary.title": "词汇表",
    "html.words.short": "词汇表",
    "glossary.token.name": "token（词元）",
    "glossary.token": "模型词表中的一个文本单元，有自己的编号：一个词、词的一部分，或几个字节。",
    "glossary.request.name": "请求（request）",
    "glossary.request": "引擎正在处理的一个提示词及其采样参数。",
    "glossary.step.name": "step（调度步）",
    "glossary.step": "引擎的一次迭代：调度，为所有被调度的请求运行一次模型，再处理输出。每个请求在一个 step "
    "中最多得到一个 token。第 7 个 step 写作“第 7 步”。",
    "glossary.prefill.name": "预填充（prefill）",
    "glossary.prefill": "计算提示词的 token，一次计算多个。算完最后一个，就得到第一个新 token。",
    "glossary.decode.name": "解码（decode）",
    "glossary.decode": "每次计算请求的一个 token，即刚采样的那个，得到下一个 token。",
    "glossary.kv_cache.name": "KV 缓存（KV cache）",
    "glossary.kv_cache": "注意力为之前的 token 算出的 key 和 value，缓存下来以免重复计算。",
    "glossary.kv_block.name": "KV 缓存块（KV cache block）",
    "glossary.kv_block": "KV 缓存的一部分，容纳固定数量的 token，通常是 16 个。请求随长度增长逐个得到块，"
    "块可以位于内存的任意位置。这就是分页注意力（paged attention）。",
    "glossary.prefix_cache.name": "前缀缓存、前缀缓存命中（prefix cache hit）",
    "glossary.prefix_cache": "已写满的 KV 缓存块，按从开头到块末尾全部 token 的哈希查找。开头 token "
    "相同的请求可以复用这些块，这就是前缀缓存命中。",
    "glossary.scheduler.name": "调度器（scheduler）",
    "glossary.scheduler": "引擎核心的一部分，在每个 step 之前决定运行哪些请求、各计算多少 token、使用哪些 KV 缓存块。"
    "请求处于等待或运行状态。",
    "glossary.token_budget.name": "token 预算（token budget）",
    "glossary.token_budget": "一个 step 中所有请求合计最多计算的 token 数：`max_num_batched_tokens`。",
    "glossary.chunked_prefill.name": "分块预填充（chunked prefill）",
    "glossary.chunked_prefill": "提示词超出剩余的 token 预算时，分多个 step 计算，这样处于解码阶段的请求不必等待。",
    "glossary.preemption.name": "抢占（preemption）",
    "glossary.preemption": "运行中的请求需要 KV 缓存块而没有空闲块时，最后到达的请求被抢占：它的块被释放，"
    "它回到等待队列，之后从头重新计算。",
    "glossary.async_scheduling.name": "异步调度（asynchronous scheduling）",
    "glossary.async_scheduling": "上一个 step 还在计算时，就调度并启动下一个 step。引擎晚一个 step 才发现请求已结束，"
    "多算的 token 会被丢弃。报告中，请求也在其最后一个 token 之后的那个 step 结束。",
    "glossary.logits.name": "logits",
    "glossary.logits": "模型给词表中每个 token 的分数，经过 softmax 得到概率。",
    "glossary.sampling.name": "采样（sampling）",
    "glossary.sampling": "根据 logits 选出下一个 token：选概率最高的（贪心），或按概率随机选。",
    "glossary.temperature.name": "温度（temperature）",
    "glossary.temperature": "采样前用来除 logits 的数。小于 1 时，概率高的 token 概率更高；大于 1 时，概率低的 token "
    "更有机会；0 表示贪心。",
    "glossary.top_k_top_p.name": "top_k、top_p、min_p",
    "glossary.top_k_top_p": "限制可选的 token。top_k：概率最高的 k 个。top_p：概率最高、合计达到 p 的那些。min_p："
    "概率不低于最高概率的这一比例。",
    "glossary.penalty.name": "惩罚（penalty）",
    "glossary.penalty": "降低已经生成过、或提示词中出现过的 token 的概率。",
    "glossary.grammar.name": "语法（grammar）",
    "glossary.grammar": "结构化输出必须满足的形式：JSON schema、正则表达式或若干选项。编译后成为掩码，"
    "只允许接下来可以出现的 token。",
    "glossary.logprob.name": "对数概率（log probability）",
    "glossary.logprob": "token 概率的对数：0 表示必然，-0.7 约为二分之一，-2.3 约为十分之一。",
    "glossary.n.name": "n",
    "glossary.n": "一个提示词的输出个数。每个输出在引擎中是单独的请求，`0_7` 是请求 `7` 的第一个输出。",
    "glossary.engine_core.name": "引擎核心（engine core）",
    "glossary.engine_core": "引擎中执行 step 的部分：调度器、KV 缓存和 executor。前端负责文本与 token 的互相转换。",
    "glossary.client.name": "客户端（client）",
    "glossary.client": "前端与引擎核心之间的连接：直接的方法调用，或发往另一个进程的消息。",
    "glossary.executor.name": "executor、worker、model runner",
    "glossary.executor": "executor 把每个 step 交给 worker，每个设备一个 worker。worker 的 model runner 准备张量、"
    "运行模型并采样。",
    "glossary.span.name": "span",
    "glossary.span": "记录下来的一次调用：名称、起止时间、参数和返回值。",
    "glossary.own_time.name": "总计时间、自身时间",
    "glossary.own_time": "总计时间：调用从开始到结束的时间。自身时间：总计减去它发起的调用和记录所用的时间。"
    "同一线程中的调用重叠时（例如异步调用），重叠的时间只计一次。",
    "glossary.generation.name": "生成阶段（generation）",
    "glossary.generation": "从第一个 step 开始到最后一个 step 结束的时间，包括本次运行的所有引擎。启动在它之前。",
    "glossary.recording_time.name": "记录时间（recording time）",
    "glossary.recording_time": "记录本身的耗时：探针、采集参数和返回值、写出记录。采集和写出的耗时是实测值，单独成列。"
    "另给出总耗时占整个运行和占生成阶段的比例。多个进程的耗时相加。",
}

"""The words of an inference engine, for those who meet them for the first time; the page shows them, docs/ too."""

__all__ = ["EN", "TERMS", "ZH"]

TERMS = (
    *("token", "request", "step", "prefill", "decode", "kv_cache", "kv_block", "prefix_cache"),
    *("scheduler", "token_budget", "chunked_prefill", "preemption", "async_scheduling"),
    *("logits", "sampling", "temperature", "top_k_top_p", "penalty", "grammar", "logprob", "n"),
    *("engine_core", "client", "executor", "span", "own_time", "generation", "recording_time"),
)
"""In the order in which one explains the other."""

EN = {
    "glossary.title": "Words",
    "html.words.short": "Words",
    "glossary.token.name": "token",
    "glossary.token": "A piece of text with a number in the model's vocabulary: a word, a part of one, or a few bytes.",
    "glossary.request.name": "request",
    "glossary.request": "One prompt on its way through the engine, with its sampling parameters.",
    "glossary.step.name": "step",
    "glossary.step": "One round of the engine: schedule, run the model once over all requests that were scheduled, and "
    "process what came out. Each request gets one token at most.",
    "glossary.prefill.name": "prefill",
    "glossary.prefill": "Computing a prompt's tokens, many at once. Its last token brings the first new one.",
    "glossary.decode.name": "decode",
    "glossary.decode": "Computing one token of a request, the one sampled last, to get the next.",
    "glossary.kv_cache.name": "KV cache",
    "glossary.kv_cache": "The keys and values that attention has computed for each token so far, kept so that they are "
    "not computed again.",
    "glossary.kv_block.name": "KV block",
    "glossary.kv_block": "A piece of the KV cache that holds a fixed number of tokens, often 16. A request owns blocks "
    "as it needs them, anywhere in memory: that is paged attention.",
    "glossary.prefix_cache.name": "prefix cache",
    "glossary.prefix_cache": "A full block is identified by a hash of all tokens up to its end. A request that "
    "begins with the same tokens reuses the block instead of computing it.",
    "glossary.scheduler.name": "scheduler",
    "glossary.scheduler": "Decides before each step which requests compute how many tokens, in which blocks. Requests "
    "are waiting or running.",
    "glossary.token_budget.name": "token budget",
    "glossary.token_budget": "The most tokens that one step computes, for all requests together: "
    "`max_num_batched_tokens`.",
    "glossary.chunked_prefill.name": "chunked prefill",
    "glossary.chunked_prefill": "A prompt that does not fit into what is left of the budget is computed over several "
    "steps, so that requests in decode need not wait for it.",
    "glossary.preemption.name": "preemption",
    "glossary.preemption": "When a running request needs a block and none is free, the request that came last gives "
    "up its blocks, waits, and is computed again from the start.",
    "glossary.async_scheduling.name": "asynchronous scheduling",
    "glossary.async_scheduling": "A step is scheduled and launched while the one before is still computed, whose "
    "tokens stay on the device until then. So the end of a request is found one step late, and its token of that step "
    "is dropped. The report shows the requests that a step scheduled, their tokens, and which requests of the step "
    "before finished.",
    "glossary.logits.name": "logits",
    "glossary.logits": "The model's score for each token of its vocabulary; softmax makes probabilities of them.",
    "glossary.sampling.name": "sampling",
    "glossary.sampling": "Choosing the next token from the logits: the likeliest (greedy), or one at random.",
    "glossary.temperature.name": "temperature",
    "glossary.temperature": "Logits are divided by it: below 1 the likely tokens become likelier, above 1 the unlikely "
    "ones; 0 means greedy.",
    "glossary.top_k_top_p.name": "top_k, top_p, min_p",
    "glossary.top_k_top_p": "Which tokens may be chosen at all: the k likeliest; the likeliest that together have "
    "probability p; those with at least a share of the likeliest one's probability.",
    "glossary.penalty.name": "penalty",
    "glossary.penalty": "Makes tokens less likely that were generated already, or stand in the prompt.",
    "glossary.grammar.name": "grammar",
    "glossary.grammar": "What a structured output must look like, compiled into a mask that leaves only the tokens "
    "that can come next: from a JSON schema, a regular expression or a list of choices.",
    "glossary.logprob.name": "log probability",
    "glossary.logprob": "The logarithm of a token's probability: 0 is certain, -0.7 one half, -2.3 a tenth.",
    "glossary.n.name": "n",
    "glossary.n": "How many outputs a prompt gets. Each is a request of its own in the engine, `0_7` the first of "
    "request `7`.",
    "glossary.engine_core.name": "engine core",
    "glossary.engine_core": "The part that runs the steps: scheduler, KV cache, and executor. The front end turns "
    "text into tokens and back.",
    "glossary.client.name": "client",
    "glossary.client": "The connection of the front end to the engine core: method calls, or messages to another "
    "process.",
    "glossary.executor.name": "executor, worker, model runner",
    "glossary.executor": "The executor hands each step to the workers, one for each device; a worker's model "
    "runner lays "
    "out the tensors, runs the model and samples.",
    "glossary.span.name": "span",
    "glossary.span": "One recorded call: its name, its times, its arguments and its result.",
    "glossary.own_time.name": "total, own",
    "glossary.own_time": "The time of a call from start to end, and the part of it that was spent neither in the calls "
    "it made nor in recording.",
    "glossary.generation.name": "generation",
    "glossary.generation": "The time in which the engine steps: from the start of the first step to the end of the "
    "last, of all engines of the run. Start-up is before it.",
    "glossary.recording_time.name": "recording time",
    "glossary.recording_time": "The time that the recording itself takes: probes, the capture of arguments and "
    "results, the writing of records. Captures and writes are timed and have a column of their own. Its share is given "
    "of the run and of generation; several processes add up.",
}

ZH = {
    "glossary.title": "词汇",
    "html.words.short": "词汇",
    "glossary.token.name": "token（词元）",
    "glossary.token": "模型用一个编号来认识的一段文本：一个词、词的一部分，或者几个字节。",
    "glossary.request.name": "请求（request）",
    "glossary.request": "在引擎里处理的一个提示词，连同它的采样参数。",
    "glossary.step.name": "步（step）",
    "glossary.step": "引擎的一轮：调度，让模型对所有被调度的请求运行一次，再处理得到的结果。"
    "每个请求每步最多得到一个 token。",
    "glossary.prefill.name": "预填充（prefill）",
    "glossary.prefill": "计算提示词的 token，一次很多个。算到最后一个，就得到第一个新 token。",
    "glossary.decode.name": "解码（decode）",
    "glossary.decode": "只计算请求的一个 token，也就是刚采样的那一个，从而得到下一个。",
    "glossary.kv_cache.name": "KV 缓存（KV cache）",
    "glossary.kv_cache": "注意力为至今每个 token 算出的 key 和 value，保存下来就不必再算。",
    "glossary.kv_block.name": "KV 块（KV block）",
    "glossary.kv_block": "KV 缓存的一小块，容纳固定数目的 token，常见是 16 个。请求需要时才得到块，"
    "块可以在内存的任何位置："
    "这就是分页注意力。",
    "glossary.prefix_cache.name": "前缀缓存（prefix cache）",
    "glossary.prefix_cache": "装满的块由到它末尾为止所有 token 的哈希来识别。以同样的 token "
    "开头的请求直接拿来用，不必重新计算。",
    "glossary.scheduler.name": "调度器（scheduler）",
    "glossary.scheduler": "在每一步之前决定哪些请求计算多少个 token、用哪些块。请求要么在等待，要么在运行。",
    "glossary.token_budget.name": "token 预算（token budget）",
    "glossary.token_budget": "一步里所有请求合计最多计算多少个 token：`max_num_batched_tokens`。",
    "glossary.chunked_prefill.name": "分块预填充（chunked prefill）",
    "glossary.chunked_prefill": "剩余预算装不下的提示词分几步来算，这样正在解码的请求不必等它。",
    "glossary.preemption.name": "抢占（preemption）",
    "glossary.preemption": "运行中的请求需要块而没有空闲块时，最后到达的请求释放自己的块，回到等待队列，"
    "之后从头重新计算。",
    "glossary.async_scheduling.name": "异步调度（asynchronous scheduling）",
    "glossary.async_scheduling": "上一步还在计算时就决定并启动下一步，上一步的 token 先留在设备上。"
    "请求结束会晚一步才发现，那一步为它算出的就丢弃。"
    "报告会列出这一步调度了哪些请求、它们得到的 token，以及上一步有哪些请求结束。",
    "glossary.logits.name": "logits",
    "glossary.logits": "模型给词表里每个 token 的分数；经过 softmax 就成为概率。",
    "glossary.sampling.name": "采样（sampling）",
    "glossary.sampling": "根据 logits 选出下一个 token：选最可能的（贪心），或者随机选一个。",
    "glossary.temperature.name": "温度（temperature）",
    "glossary.temperature": "logits 除以它：小于 1 时可能的 token 更可能，大于 1 时不太可能的也更有机会；0 表示贪心。",
    "glossary.top_k_top_p.name": "top_k、top_p、min_p",
    "glossary.top_k_top_p": "哪些 token 才可以被选：最可能的 k 个；合计概率达到 p 的最可能的那些；"
    "概率不低于最可能者某个比例的。",
    "glossary.penalty.name": "惩罚（penalty）",
    "glossary.penalty": "让已经生成过的、或提示词里出现过的 token 变得不那么可能。",
    "glossary.grammar.name": "语法（grammar）",
    "glossary.grammar": "结构化输出必须遵守的形式，编译成掩码，只留下接下来可以出现的 token：来自 JSON schema、"
    "正则表达式"
    "或若干选项。",
    "glossary.logprob.name": "对数概率（log probability）",
    "glossary.logprob": "token 概率的对数：0 是必然，-0.7 是一半，-2.3 是十分之一。",
    "glossary.n.name": "n",
    "glossary.n": "一个提示词要几个输出。每个输出在引擎里是一个单独的请求，`0_7` 是请求 `7` 的第一个。",
    "glossary.engine_core.name": "引擎核心（engine core）",
    "glossary.engine_core": "执行每一步的部分：调度器、KV 缓存和 executor。前端负责文本与 token 的互相转换。",
    "glossary.client.name": "客户端（client）",
    "glossary.client": "前端与引擎核心的通信方式：直接的方法调用，或者向另一个进程发送消息。",
    "glossary.executor.name": "executor、worker、model runner",
    "glossary.executor": "executor 把每一步交给 worker，每个设备一个；worker 的 model runner 排好张量、"
    "运行模型并采样。",
    "glossary.span.name": "span",
    "glossary.span": "一次被记录的调用：名字、起止时间、参数和返回值。",
    "glossary.own_time.name": "总计、自身",
    "glossary.own_time": "一次调用从开始到结束的时间，以及其中既不属于它所做的调用、也不属于记录的部分。",
    "glossary.generation.name": "生成阶段（generation）",
    "glossary.generation": "引擎逐步运行的时间：从第一步开始到最后一步结束，包括这次运行的所有引擎。启动流程在它之前。",
    "glossary.recording_time.name": "记录时间（recording time）",
    "glossary.recording_time": "记录本身所用的时间：探针、采集参数和返回值、写出记录。"
    "采集和写出的时间有实测值，单独成一列。"
    "它的占比分别相对于整个运行和生成阶段给出；多个进程的时间相加。",
}

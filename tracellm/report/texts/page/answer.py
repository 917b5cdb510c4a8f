"""Texts of the page's first part: what ran, where the time went, and findings."""

__all__ = ["EN", "ZH"]

EN = {
    "answer": "In short",
    "answer.short": "In short",
    "answer.what": "What ran",
    "answer.model": "Model",
    "answer.ops": "{ops} operations",
    "answer.client": "Client",
    "answer.rule": "Its rule",
    "answer.because": "{rule}. multiprocess_mode: {origin}.",
    "answer.time": "Where the time went",
    "answer.time.startup": "Start-up",
    "answer.time.prefill": "Steps with a prefill",
    "answer.time.decode": "Decode steps",
    "answer.time.between": "Between steps",
    "answer.time.else": "Before, after and imports",
    "answer.time.steps": "{n:step|steps}, median {median}",
    "answer.time.compiled": "{time} of it to compile the CPU's kernels, for the first start on this machine",
    "answer.whatif": "What if",
    "answer.whatif.variant": "With {settings}: {steps_then:step|steps} instead of {steps_now}, "
    "{preempted_then:preemption|preemptions} instead of {preempted_now}. Scheduled again without the model, so without "
    "times.",
    "answer.whatif.none": "`tracellm whatif RUN --max-num-batched-tokens 64` schedules these requests again with other "
    "settings, and adds the result to this page.",
    "answer.findings": "What needs an explanation",
    "finding.none": "Nothing: no request waited, was preempted, was computed in pieces or used the prefix cache.",
    "finding.because": " Reason: {why}.",
    "finding.because.mostly": " Reason in {mostly} of them: {why}.",
    "finding.preempted.title": "{n:preemption|preemptions}",
    "finding.preempted": "Request {request} was preempted after {tokens:computed token|computed tokens}, and lost "
    "{blocks:KV cache block|KV cache blocks}.{because}",
    "finding.resumed": " It resumed {after:step|steps} later, in step {resumed}: {again:token was|tokens were} "
    "computed again, besides the newest one; {cached} came from the prefix cache.",
    "finding.not_resumed": " It did not resume.",
    "finding.aborted.title": "{n:aborted request|aborted requests}",
    "finding.aborted": "Request {request} was aborted before this step, after {tokens:sampled token|sampled tokens}"
    "{because}.",
    "finding.aborted.delivered": ", of which {delivered:,} reached its caller; the rest was dropped",
    "finding.aborted.all_delivered": ", which all reached its caller",
    "finding.aborted.abort": " Its caller cancelled it or stopped reading.",
    "finding.aborted.unknown": " Its caller cancelled it or stopped reading, or a stop string was found.",
    "finding.stopped.title": "{n:request|requests} ended by a stop string",
    "finding.stopped": "The output processor found a stop string in the text of request {request} before this step, "
    "and had the engine core abort it, after {tokens:sampled token|sampled tokens}{because}.",
    "finding.waited.title": "{n:request|requests} waited",
    "finding.waited": "Request {request} waited for {steps:step|steps}.{because}",
    "finding.shrinking.title": "A shrinking batch",
    "finding.shrinking": "For the last {steps:step|steps}, the batch was smaller than half of its largest size, "
    "{largest:request|requests}.",
    "finding.pieces.title": "{n:prompt|prompts} computed in pieces",
    "finding.pieces": "The prompt of request {request} was computed in {chunks} steps: {sizes} tokens.{because}",
    "finding.hit.title": "{n:prefix cache hit|prefix cache hits}",
    "finding.hit": "Request {request} found {tokens:token|tokens} in the prefix cache, in {blocks:full block|full "
    "blocks} of {size}.{because}",
    "finding.hit.full_blocks": " Only full blocks are shared.",
    "finding.hit.partial": " The other {rest:prompt token does|prompt tokens do} not fill a block, and only full "
    "blocks are shared.",
    "finding.hit.last": " The next block was not taken, even if cached: the last prompt token must be computed, "
    "because its logits give the first output token.",
    "finding.hit.other": " The block after them was not in the cache, so the other {rest:prompt token|prompt tokens} "
    "had to be computed.",
    "finding.slow_step.title": "{n:slow step|slow steps}",
    "finding.slow_step": "The step took {time}; the median of this kind ({kind}) is {median}. Its longest part is "
    "{part}: {part_time}. {function} has the most time of its own: {own}.",
    "finding.slow.title": "{n:slow first token|slow first tokens}",
    "finding.slow": "The first token of request {request} took {time}; the median is {median}. It was queued for "
    "{queued}.",
}

ZH = {
    "answer": "概览",
    "answer.short": "概览",
    "answer.what": "运行了什么",
    "answer.model": "模型",
    "answer.ops": "{ops} 算子",
    "answer.client": "客户端",
    "answer.rule": "选择规则",
    "answer.because": "{rule}。multiprocess_mode：{origin}。",
    "answer.time": "时间花在哪里",
    "answer.time.startup": "启动",
    "answer.time.prefill": "含预填充的 step",
    "answer.time.decode": "解码 step",
    "answer.time.between": "step 之间",
    "answer.time.else": "前后及导入",
    "answer.time.steps": "{n:,} 个 step，中位数 {median}",
    "answer.time.compiled": "其中 {time} 用于编译此 CPU 的 kernel，因为是在此机器上首次启动",
    "answer.whatif": "假如换一种设置",
    "answer.whatif.variant": "改为 {settings}：{steps_then:,} 个 step（原为 {steps_now:,} 个），"
    "{preempted_then:,} 次抢占（原为 {preempted_now:,} 次）。只重新调度，不运行模型，因此没有时间。",
    "answer.whatif.none": "`tracellm whatif RUN --max-num-batched-tokens 64` 用其他设置重新调度这些请求，"
    "结果会加入本页。",
    "answer.findings": "值得解释的地方",
    "finding.none": "没有：没有请求等待、被抢占、分块计算或命中前缀缓存。",
    "finding.because": "原因：{why}。",
    "finding.because.mostly": "其中 {mostly:,} 个的原因：{why}。",
    "finding.preempted.title": "{n:,} 次抢占",
    "finding.preempted": "请求 {request} 在计算了 {tokens:,} 个 token 后被抢占，失去 {blocks:,} 个 KV 缓存块。"
    "{because}",
    "finding.resumed": "{after:,} 个 step 之后（第 {resumed} 步）恢复：除最新的一个外，{again:,} 个 token 重新计算，"
    "{cached:,} 个来自前缀缓存。",
    "finding.not_resumed": "之后没有恢复。",
    "finding.aborted.title": "{n:,} 个请求被中止",
    "finding.aborted": "请求 {request} 在这个 step 之前被中止，当时已采样 {tokens:,} 个 token{because}。",
    "finding.aborted.delivered": "，其中 {delivered:,} 个已交给调用方，其余被丢弃",
    "finding.aborted.all_delivered": "，均已交给调用方",
    "finding.aborted.abort": "原因是调用方取消了请求，或不再读取。",
    "finding.aborted.unknown": "原因是调用方取消了请求或不再读取，或出现了停止字符串。",
    "finding.stopped.title": "{n:,} 个请求因停止字符串结束",
    "finding.stopped": "输出处理器在这个 step 之前发现请求 {request} 的文本中出现停止字符串，于是让引擎核心中止该请求，"
    "当时已采样 {tokens:,} 个 token{because}。",
    "finding.waited.title": "{n:,} 个请求等待过",
    "finding.waited": "请求 {request} 等待了 {steps:,} 个 step。{because}",
    "finding.shrinking.title": "批次缩小",
    "finding.shrinking": "最后 {steps:,} 个 step 中，批次大小不到最大值 {largest:,} 的一半。",
    "finding.pieces.title": "{n:,} 个提示词分块计算",
    "finding.pieces": "请求 {request} 的提示词分 {chunks} 个 step 计算：{sizes} 个 token。{because}",
    "finding.hit.title": "{n:,} 次前缀缓存命中",
    "finding.hit": "请求 {request} 在前缀缓存中命中 {tokens:,} 个 token，共 {blocks:,} 个满块（每块 {size} 个）。"
    "{because}",
    "finding.hit.full_blocks": "只共享满块。",
    "finding.hit.partial": "其余 {rest:,} 个提示词 token 不足一块，而只有满块才能共享。",
    "finding.hit.last": "即使下一块在缓存中也不会使用：提示词的最后一个 token 必须计算，"
    "它的 logits 给出第一个输出 token。",
    "finding.hit.other": "其后的块不在缓存中，所以其余 {rest:,} 个提示词 token 需要计算。",
    "finding.slow_step.title": "{n:,} 个较慢的 step",
    "finding.slow_step": "这个 step 用时 {time}；同类 step（{kind}）的中位数为 {median}。最长的部分是{part}："
    "{part_time}。自身用时最多的函数是 {function}：{own}。",
    "finding.slow.title": "{n:,} 个首 token 较慢",
    "finding.slow": "请求 {request} 的首 token 用时 {time}，中位数为 {median}；其中排队 {queued}。",
}

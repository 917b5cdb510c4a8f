"""Texts of `tracellm whatif`."""

__all__ = ["EN", "ZH"]

EN = {
    "cli.help.whatif.short": "Schedule a run again under other settings.",
    "cli.help.whatif": "Schedule the requests of a run again under other settings, and compare both schedules.",
    "cli.help.whatif.more": """\
The engine's own scheduler runs on the recorded requests, and each request gets its recorded tokens. No model is needed.
The new schedule is kept in RUN/whatif/, and "Step by step" in report.html shows it beside the recorded one. A run is a
run folder, or the name of a run or a script in tracellm-runs/, or `latest`.

\b
Examples:
  tracellm whatif --max-num-batched-tokens 64
  tracellm whatif latest --num-gpu-blocks-override 20 --no-enable-prefix-caching""",
    "cli.help.whatif.budget": "Maximum number of tokens per step.",
    "cli.help.whatif.seqs": "Maximum number of running requests.",
    "cli.help.whatif.blocks": "Number of KV cache blocks, the null block included.",
    "cli.help.whatif.prefix_caching": "Reuse the KV cache blocks of shared prompt prefixes, or not.",
    "cli.help.whatif.chunked_prefill": "Compute long prompts in chunks over several steps, or not.",
    "cli.help.whatif.threshold": "Maximum number of prompt tokens of a request per step; 0 is no limit.",
    "cli.help.whatif.policy": "Order of the waiting queue.",
    "cli.error.whatif.unknown": "no such setting: {setting}; settings that can be changed: {known}",
    "cli.error.whatif.nothing": "no setting to change: give at least one, such as --max-num-batched-tokens 64",
    "cli.error.whatif.vllm": "this is a run of a real vLLM: whatif schedules only runs of tracellm's own engine again",
    "cli.error.whatif.no_steps": "this run has no engine steps to schedule again",
    "cli.error.whatif.items": "this run has images or sounds, which whatif cannot schedule again",
    "cli.error.whatif.settings": "the recording lacks the engine's settings: record the start of the engine too",
    "cli.error.whatif.windows": "the recording lacks the sliding windows of the model's layers: record the run again",
    "cli.error.whatif.schedules": "the recording lacks schedules or sampled tokens: record without --only and --skip",
    "cli.error.whatif.beginning": "the recording begins in the middle of the run: record without --ring",
    "cli.error.whatif.requests": "the recording lacks requests of its steps: record the whole run",
    "cli.error.whatif.refused": "the engine refuses these settings: {message}",
    "whatif.title": "What if {name}",
    "whatif.recorded": "recorded",
    "whatif.replayed": "what if",
    "whatif.colon": ":",
    "whatif.steps": "steps",
    "whatif.tokens": "tokens computed",
    "whatif.batch_mean": "requests in a step, mean",
    "whatif.batch_max": "requests in a step, maximum",
    "whatif.preemptions": "preemptions",
    "whatif.recomputed": "tokens computed again",
    "whatif.prefix_hits": "tokens from the prefix cache",
    "whatif.first_mean": "steps until the first token, mean",
    "whatif.first_max": "steps until the first token, maximum",
    "whatif.same": "Every step is the same.",
    "whatif.first": "The first step that differs is step {n:,}.",
    "whatif.no_step": "no step: all requests had ended",
    "whatif.unfaithful": "Warning: a replay under the recorded settings differs from the recording from step {n:,} on. \
The recording lacks something that changed its schedule, such as a reset of the prefix cache.",
    "whatif.arrivals": "A request arrives before the step at which the recording first has it in a queue, or, if no \
other was left then, as soon as no other is left; an aborted one leaves before the same step as in the recording.",
    "whatif.placeholders": "Some token ids are not recorded. Tokens that differ from all others stand in for them, so \
these tokens are found in the prefix cache only by their own request.",
    "whatif.report": 'Report: {path} ("Step by step", "What if" in the selector)',
}

ZH = {
    "cli.help.whatif.short": "用别的设置重新调度一次运行。",
    "cli.help.whatif": "用别的设置重新调度一次运行的请求，并比较两份调度。",
    "cli.help.whatif.more": """\
在记录的请求上运行引擎自己的调度器，每个请求得到记录的 token，不需要模型。新的调度保存在 RUN/whatif/，report.html 的
“逐步查看”把它和记录的调度放在一起。RUN 是运行目录，或 tracellm-runs/ 里一次运行或脚本的名字，或 `latest`。

\b
示例：
  tracellm whatif --max-num-batched-tokens 64
  tracellm whatif latest --num-gpu-blocks-override 20 --no-enable-prefix-caching""",
    "cli.help.whatif.budget": "一个 step 最多计算的 token 数。",
    "cli.help.whatif.seqs": "最多同时运行的请求数。",
    "cli.help.whatif.blocks": "KV 缓存块数，含占位块。",
    "cli.help.whatif.prefix_caching": "是否复用相同提示词前缀的 KV 缓存块。",
    "cli.help.whatif.chunked_prefill": "是否把长提示词分块，用几个 step 计算。",
    "cli.help.whatif.threshold": "一个 step 中一个请求最多计算的提示词 token 数；0 表示不限。",
    "cli.help.whatif.policy": "等待队列的顺序。",
    "cli.error.whatif.unknown": "没有这个设置：{setting}；可以改的设置：{known}",
    "cli.error.whatif.nothing": "没有要改的设置：至少给出一个，例如 --max-num-batched-tokens 64",
    "cli.error.whatif.vllm": "这是真实 vLLM 的运行：whatif 只能重新调度 tracellm 自己的引擎的运行",
    "cli.error.whatif.no_steps": "这次运行没有可以重新调度的 step",
    "cli.error.whatif.items": "这次运行含有图像或声音，whatif 不能重新调度它们",
    "cli.error.whatif.settings": "记录里没有引擎的设置：请把引擎的启动也记录下来",
    "cli.error.whatif.windows": "记录里没有模型各层的滑动窗口：请重新录制这次运行",
    "cli.error.whatif.schedules": "记录里缺少各个 step 的调度或采样的 token：录制时不要用 --only 和 --skip",
    "cli.error.whatif.beginning": "记录从运行的中途开始：录制时不要用 --ring",
    "cli.error.whatif.requests": "记录里缺少各个 step 的请求：请记录整个运行",
    "cli.error.whatif.refused": "引擎不接受这些设置：{message}",
    "whatif.title": "假如 {name}",
    "whatif.recorded": "记录的",
    "whatif.replayed": "假如",
    "whatif.colon": "：",
    "whatif.steps": "step 数",
    "whatif.tokens": "计算的 token",
    "whatif.batch_mean": "一个 step 中的请求，平均",
    "whatif.batch_max": "一个 step 中的请求，最大",
    "whatif.preemptions": "抢占次数",
    "whatif.recomputed": "重新计算的 token",
    "whatif.prefix_hits": "前缀缓存命中的 token",
    "whatif.first_mean": "到首 token 的 step 数，平均",
    "whatif.first_max": "到首 token 的 step 数，最大",
    "whatif.same": "每个 step 都相同。",
    "whatif.first": "第 {n:,} 步开始不同。",
    "whatif.no_step": "没有这一步：所有请求都已结束",
    "whatif.unfaithful": "注意：用记录的设置重放，从第 {n:,} 步起与记录不同。\
记录里缺少影响调度的信息，例如前缀缓存被清空。",
    "whatif.arrivals": "请求在记录中第一次出现在队列里的那个 step 之前到达；如果当时没有别的请求，\
就等到没有别的请求时到达。被中止的请求在与记录相同的 step 之前离开。",
    "whatif.placeholders": "有些 token id 没有记录，用互不相同的占位 token 代替，\
因此只有请求自己能在前缀缓存中命中它们。",
    "whatif.report": "报告：{path}（“逐步查看”，选择“假如”）",
}

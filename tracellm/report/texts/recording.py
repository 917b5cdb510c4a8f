"""Texts about a recording: what it holds and lacks, its cost, its problems, and its way to a collector."""

__all__ = ["EN", "ZH"]

EN = {
    # coverage
    "recorded.chosen": "Recorded with {options}: other calls are not in the recording.",
    "recorded.lacks": "Recorded with {options}: other calls are not in the recording, and nothing about {lacks}.",
    "recorded.and": ", ",
    "recorded.subject.client": "the choice of the client",
    "recorded.subject.load": "the model's loading",
    "recorded.subject.cache": "the KV cache's size",
    "recorded.subject.requests": "requests",
    "recorded.subject.steps": "the engine's steps",
    "recorded.subject.schedules": "what each step scheduled",
    "recorded.subject.endings": "which requests a step ended",
    "recorded.subject.samples": "the tokens sampled",
    "recorded.subject.messages": "messages between processes",
    "recorded.untold": "Nothing is recorded about {subject}: it needs {functions}, which {options} leaves out.",
    "recorded.not": "not recorded",
    "recorded.kept": "of those kept",
    "recorded.let_go": "Only the last {ring:call|calls} of each process, or slightly more, were kept (--ring): "
    "{n:earlier one was|earlier ones were} dropped.",
    "recorded.ring": "Only the last {ring:call|calls} of each process, or slightly more, were kept (--ring); "
    "earlier ones were dropped.",
    "recorded.depth_limit": "Each process records layers, operations and the likeliest tokens until its records take "
    "{size}, then only requests and steps, so that the trace stays small. `--detail kernel` records all.",
    "recorded.deep_steps": "Layers, operations and the likeliest tokens are recorded up to step {steps:,}, when the "
    "records took {size}; then only requests and steps, so that the trace stays small. `--detail kernel` records all.",
    "recorded.unheard": "This log fell behind and skipped {n:call|calls}. The trace has them; the counts here do not.",
    "recorded.missing": "{n:,} of {probes:probe|probes} found no target in {engine}: {functions}. "
    "Their data is missing; `tracellm doctor` lists them.",
    "recorded.cost": "Recording: {parts}.",
    "recorded.cost.probes": "{calls:call|calls}, {time} in probes",
    "recorded.cost.written": "{time} to write them",
    "recorded.cost.bytes": "{time} to write {bytes}",
    "recorded.cost.run": "{share} of the run",
    "recorded.cost.generation": "{share} of generation",
    "recorded.cost.longest": "longest write {time}",
    "recorded.lost": "{n:call was|calls were} lost: the disk was too slow or full.",
    "recorded.converted": "Converting the records to spans afterwards took {time}.",
    "recorded.sent": "Sent to {endpoint}: {n:span|spans}.",
    "cli.error.note": "{note}",
    "cli.error.not_so_deep": "this run was recorded down to the level {recorded}: deeper calls are not in it",
    "cli.error.note_of": "{run}: {note}",
    # collector
    "collector.lost": "{lost:span|spans} did not reach {endpoint}: {reasons}. The run folder has them",
    "collector.unknown": "it is not known how many spans reached {endpoint}: {reasons}. The run folder has them",
    "collector.other": "sending to {endpoint}: {reasons}",
    "collector.nowhere": "nothing is sent to a collector: {reasons}",
    "collector.and": "; ",
}

ZH = {
    # coverage
    "recorded.chosen": "以 {options} 记录：其他调用不在这份记录里。",
    "recorded.lacks": "以 {options} 记录：其他调用不在这份记录里，也没有{lacks}的信息。",
    "recorded.and": "、",
    "recorded.subject.client": "客户端的选择",
    "recorded.subject.load": "模型的加载",
    "recorded.subject.cache": "KV 缓存的大小",
    "recorded.subject.requests": "请求",
    "recorded.subject.steps": "引擎的各步",
    "recorded.subject.schedules": "每步调度了什么",
    "recorded.subject.endings": "哪些请求在哪一步结束",
    "recorded.subject.samples": "采样得到的 token",
    "recorded.subject.messages": "进程之间的消息",
    "recorded.untold": "没有记录{subject}：这需要 {functions}，而 {options} 把它排除了。",
    "recorded.not": "没有记录",
    "recorded.kept": "保留下来的",
    "recorded.let_go": "每个进程只保留了最后 {ring:,} 次或略多的调用（--ring）：更早的 {n:,} 次已丢弃。",
    "recorded.ring": "每个进程只保留了最后 {ring:,} 次或略多的调用（--ring）：更早的已丢弃。",
    "recorded.depth_limit": "每个进程在记录达到 {size} 之前会记录各层、各算子和最可能的 token，"
    "之后只记录请求和步，以免 trace 过大。`--detail kernel` 记录全部。",
    "recorded.deep_steps": "各层、各算子和最可能的 token 记录到第 {steps:,} 步，即记录达到 {size} 时为止；"
    "之后只记录请求和步，以免 trace 过大。`--detail kernel` 记录全部。",
    "recorded.unheard": "这份日志没有跟上，跳过了 {n:,} 次调用：这里的计数不含它们，trace 里有。",
    "recorded.missing": "{probes:,} 个探针中有 {n:,} 个在 {engine} 里没有找到目标函数：{functions}。"
    "相应的数据缺失；`tracellm doctor` 会列出它们。",
    "recorded.cost": "记录的开销：{parts}。",
    "recorded.cost.probes": "{calls:,} 次调用、探针用时 {time}",
    "recorded.cost.written": "写出用时 {time}",
    "recorded.cost.bytes": "写出 {bytes} 用时 {time}",
    "recorded.cost.run": "占整个运行的 {share}",
    "recorded.cost.generation": "占生成阶段的 {share}",
    "recorded.cost.longest": "最长一次写出 {time}",
    "recorded.lost": "有 {n:,} 次调用丢失：磁盘太慢或已满。",
    "recorded.converted": "之后把记录转换成 span 用时 {time}。",
    "recorded.sent": "已发送到 {endpoint}：{n:,} 个 span。",
    "cli.error.note": "{note}",
    "cli.error.not_so_deep": "这次运行只记录到 {recorded} 层：更深的调用不在其中",
    "cli.error.note_of": "{run}：{note}",
    # collector
    "collector.lost": "{lost:,} 个 span 没有到达 {endpoint}：{reasons}。它们都在运行目录里",
    "collector.unknown": "不清楚有多少 span 到达了 {endpoint}：{reasons}。它们都在运行目录里",
    "collector.other": "发送到 {endpoint}：{reasons}",
    "collector.nowhere": "没有向任何 collector 发送：{reasons}",
    "collector.and": "；",
}

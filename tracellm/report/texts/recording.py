"""Texts about a recording: what it holds and lacks, its cost, its problems, and its way to a collector."""

__all__ = ["EN", "ZH"]

EN = {
    # coverage
    "recorded.chosen": "Recorded with {options}; other calls are missing.",
    "recorded.lacks": "Recorded with {options}; other calls are missing. Also missing: {lacks}.",
    "recorded.and": ", ",
    "recorded.subject.client": "the choice of the client",
    "recorded.subject.load": "model loading",
    "recorded.subject.cache": "the size of the KV cache",
    "recorded.subject.requests": "requests",
    "recorded.subject.steps": "steps",
    "recorded.subject.schedules": "the schedule of each step",
    "recorded.subject.endings": "the requests that finished in each step",
    "recorded.subject.samples": "sampled tokens",
    "recorded.subject.messages": "messages between processes",
    "recorded.unrecorded": "Not recorded: {subject}. This needs {functions}, which {options} excludes.",
    "recorded.not": "not recorded",
    "recorded.kept": "in the calls that were kept",
    "recorded.dropped": "At least the last {ring:call|calls} of each process were kept (--ring); "
    "{n:earlier call was|earlier calls were} dropped.",
    "recorded.ring": "At least the last {ring:call|calls} of each process were kept (--ring); earlier calls were "
    "dropped.",
    "recorded.depth_limit": "Each process records layers, operations and the most likely tokens until its records "
    "reach {size}. After that it records only requests and steps, to keep the trace small. `--detail kernel` records "
    "everything.",
    "recorded.deep_steps": "Layers, operations and the most likely tokens are recorded up to step {steps:,}, where the "
    "records reached {size}. Later steps have only requests and steps, to keep the trace small. `--detail kernel` "
    "records everything.",
    "recorded.skipped": "The log fell behind and skipped {n:call|calls}. They are in the trace, but not in the counts "
    "here.",
    "recorded.missing": "{n:,} of {probes:probe|probes} found no target in {engine}: {functions}. "
    "Their data is missing; `tracellm doctor` lists them.",
    "recorded.cost": "Cost of recording: {parts}.",
    "recorded.cost.probes": "{calls:call|calls}, {time} in probes",
    "recorded.cost.written": "{time} to write them",
    "recorded.cost.bytes": "{time} to write {bytes}",
    "recorded.cost.run": "{share} of the run",
    "recorded.cost.generation": "{share} of generation",
    "recorded.cost.longest": "longest write {time}",
    "recorded.lost": "{n:call was|calls were} lost: the disk was too slow or full.",
    "recorded.converted": "Converting the records to spans took {time}.",
    "recorded.sent": "Sent to {endpoint}: {n:span|spans}.",
    "cli.error.note": "{note}",
    "cli.error.not_so_deep": "this run was recorded only down to the level {recorded}; deeper calls are missing",
    "cli.error.note_of": "{run}: {note}",
    # collector
    "collector.lost": "{lost:span|spans} did not reach {endpoint}: {reasons}. They are in the run folder",
    "collector.unknown": "the number of spans that reached {endpoint} is unknown: {reasons}. The run folder has all "
    "spans",
    "collector.other": "sending to {endpoint}: {reasons}",
    "collector.nowhere": "no spans are sent to a collector: {reasons}",
    "collector.and": "; ",
}

ZH = {
    # coverage
    "recorded.chosen": "以 {options} 记录，不含其他调用。",
    "recorded.lacks": "以 {options} 记录，不含其他调用，也不含：{lacks}。",
    "recorded.and": "、",
    "recorded.subject.client": "客户端的选择",
    "recorded.subject.load": "模型加载",
    "recorded.subject.cache": "KV 缓存的大小",
    "recorded.subject.requests": "请求",
    "recorded.subject.steps": "step",
    "recorded.subject.schedules": "每个 step 的调度",
    "recorded.subject.endings": "每个 step 中结束的请求",
    "recorded.subject.samples": "采样得到的 token",
    "recorded.subject.messages": "进程间消息",
    "recorded.unrecorded": "没有记录{subject}：需要 {functions}，但已被 {options} 排除。",
    "recorded.not": "没有记录",
    "recorded.kept": "保留的调用中",
    "recorded.dropped": "每个进程至少保留最后 {ring:,} 次调用（--ring），更早的 {n:,} 次已丢弃。",
    "recorded.ring": "每个进程至少保留最后 {ring:,} 次调用（--ring），更早的已丢弃。",
    "recorded.depth_limit": "每个进程先记录各层、各算子和概率最高的 token，直到记录达到 {size}；之后只记录请求和 step，"
    "以免 trace 过大。`--detail kernel` 记录全部。",
    "recorded.deep_steps": "各层、各算子和概率最高的 token 记录到第 {steps:,} 步，此时记录达到 {size}；"
    "之后只记录请求和 step，以免 trace 过大。`--detail kernel` 记录全部。",
    "recorded.skipped": "日志没有跟上，跳过了 {n:,} 次调用。trace 中有这些调用，但这里的计数不包含它们。",
    "recorded.missing": "{probes:,} 个探针中有 {n:,} 个在 {engine} 中没有找到目标：{functions}。相应的数据缺失；"
    "`tracellm doctor` 会列出它们。",
    "recorded.cost": "记录的开销：{parts}。",
    "recorded.cost.probes": "{calls:,} 次调用、探针用时 {time}",
    "recorded.cost.written": "写出用时 {time}",
    "recorded.cost.bytes": "写出 {bytes} 用时 {time}",
    "recorded.cost.run": "占整个运行的 {share}",
    "recorded.cost.generation": "占生成阶段的 {share}",
    "recorded.cost.longest": "最长一次写出 {time}",
    "recorded.lost": "有 {n:,} 次调用丢失：磁盘太慢或已满。",
    "recorded.converted": "把记录转换为 span 用时 {time}。",
    "recorded.sent": "已发送到 {endpoint}：{n:,} 个 span。",
    "cli.error.note": "{note}",
    "cli.error.not_so_deep": "本次运行只记录到 {recorded} 层，没有更深的调用",
    "cli.error.note_of": "{run}：{note}",
    # collector
    "collector.lost": "{lost:,} 个 span 没有到达 {endpoint}：{reasons}。运行目录中有这些 span",
    "collector.unknown": "到达 {endpoint} 的 span 数未知：{reasons}。运行目录中有全部 span",
    "collector.other": "发送到 {endpoint}：{reasons}",
    "collector.nowhere": "没有向 collector 发送 span：{reasons}",
    "collector.and": "；",
}

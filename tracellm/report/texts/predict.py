"""Texts of predictions about a run, which `Run.predict` compares with its recording."""

__all__ = ["EN", "ZH"]

EN = {
    "predict.open": "No prediction yet: put yours in place of `...`, and run the cell again.",
    "predict.right": "✓ Right. {reason}",
    "predict.wrong": "✗ You said {said}. {reason}",
    "predict.because": " Request {request}: {why}.",
    "predict.last": " Reason in the last of them: {why}.",
    "predict.client": "The client is {client}.{rule}",
    "predict.rule": " Its rule: {rule}.",
    "predict.processes": "The run has {n:process|processes}: {names}.",
    "predict.steps": "The engine ran {n:step|steps}: {prefills} with a prefill, {decodes} with decodes only.{more}",
    "predict.empty": " {n:step|steps} scheduled nothing.",
    "predict.batch": "Step {step} computes {n:request|requests}: {names}.{why}",
    "predict.tokens": "Step {step} computes {n:token|tokens} of a budget of {budget:,}: {prefill:,} prefill + "
    "{decode:,} decode.",
    "predict.blocks": "Request {request} has {n:KV cache block|KV cache blocks} for {tokens:token|tokens}: a block has "
    "room for {size}.",
    "predict.cached": "Request {request} found {n:token|tokens} of its {prompt} prompt tokens in the prefix cache. It "
    "shares full blocks of {size} tokens, and its last token is always computed.",
    "predict.waits": "Request {request} waited for {n:step|steps}.{why}",
    "predict.preemptions": "The run has {n:preemption|preemptions}.{listed}",
    "predict.preemption": " Step {step}: request {request}.",
    "predict.slot": "Position {position} is in block {block} at offset {offset}: slot {block} × {size} + {offset} = "
    "{slot}.",
    "predict.slot.none": "Step {step} writes no recorded slot of request {request}.",
    "predict.token": "Step {step} sampled {token} for request {request}{chance}.",
    "predict.chance": "; its probability was {share}",
    "predict.token.none": "Step {step} sampled no token for request {request}.",
    "predict.finish": "Request {request} ended with the reason {reason}, after {n:output token|output tokens} "
    "({params}).",
    "cli.error.predict_unknown": "no question {what!r}; questions: {known}",
    "cli.error.predict_needs": "the question {what!r} is about a {name}: give {name}=",
}

ZH = {
    "predict.open": "还没有预测：把 `...` 换成你的预测，再运行这个单元格。",
    "predict.right": "✓ 正确。{reason}",
    "predict.wrong": "✗ 你的预测是 {said}。{reason}",
    "predict.because": "请求 {request}：{why}。",
    "predict.last": "其中最后一个 step 的原因：{why}。",
    "predict.client": "客户端是 {client}。{rule}",
    "predict.rule": "规则：{rule}。",
    "predict.processes": "这次运行有 {n:,} 个进程：{names}。",
    "predict.steps": "引擎运行了 {n:,} 个 step：{prefills} 个含预填充，{decodes} 个只有解码。{more}",
    "predict.empty": "{n:,} 个没有调度任何 token。",
    "predict.batch": "第 {step} 步计算 {n:,} 个请求：{names}。{why}",
    "predict.tokens": "第 {step} 步计算 {n:,} 个 token，预算为 {budget:,}：预填充 {prefill:,} + 解码 {decode:,}。",
    "predict.blocks": "请求 {request} 的 {tokens:,} 个 token 占用 {n:,} 个 KV 缓存块：每块可存放 {size} 个。",
    "predict.cached": "请求 {request} 的 {prompt} 个提示词 token 中，有 {n:,} 个来自前缀缓存。只共享大小为 {size} "
    "的满块，而且最后一个 token 总要计算。",
    "predict.waits": "请求 {request} 等待了 {n:,} 个 step。{why}",
    "predict.preemptions": "这次运行有 {n:,} 次抢占。{listed}",
    "predict.preemption": "第 {step} 步：请求 {request}。",
    "predict.slot": "位置 {position} 在块 {block} 的偏移 {offset} 处：槽位为 {block} × {size} + {offset} = {slot}。",
    "predict.slot.none": "第 {step} 步没有记录到请求 {request} 写入的槽位。",
    "predict.token": "第 {step} 步为请求 {request} 采样了 {token}{chance}。",
    "predict.chance": "，其概率为 {share}",
    "predict.token.none": "第 {step} 步没有为请求 {request} 采样 token。",
    "predict.finish": "请求 {request} 结束的原因是 {reason}，输出 {n:,} 个 token（{params}）。",
    "cli.error.predict_unknown": "没有 {what!r} 这个问题；可用的问题：{known}",
    "cli.error.predict_needs": "{what!r} 这个问题需要指定 {name}：请给出 {name}=",
}

"""Texts of the displays of a run in a notebook cell."""

__all__ = ["EN", "ZH"]

EN = {
    "cell.live": "Step {index} · {kind} · {running:,} running, {waiting:,} waiting · {used:,} of {total:,} KV cache "
    "blocks · {output:,} tokens per second",
    "cell.finding": "{step}: {sentence}",
    "cell.pid": "Process id",
    "cell.role": "Role",
    "cell.steps": "Steps",
    "cell.stage": "Stage",
    "cell.stage.waiting": "waiting",
    "cell.stage.prefill": "prefill",
    "cell.stage.decode": "decode",
    "cell.stage.preempted": "preempted",
    "cell.stage.idle": "running, not scheduled",
    "cell.computed": "Tokens computed",
    "cell.step": "Step",
    "cell.token": "Token",
    "cell.probability": "Probability",
    "cell.mermaid": "As Mermaid text",
    "cell.mermaid.large": "The diagram is too large for a cell: choose classes with focus=..., or print it as Mermaid "
    "text.",
    "cell.more_lines": "{n:,} more lines, too many for a cell: print() shows all.",
    "cell.open": "Requests and steps: click to open, then go through the steps",
    "cell.scripts": "If nothing is shown above, this front end runs no scripts: open report.html.",
    "cell.left_out": "The first {n:,} of {all:,} steps, as many as fit into a cell; report.html has all.",
}

ZH = {
    "cell.live": "第 {index} 步 · {kind} · 运行 {running:,} 个，等待 {waiting:,} 个 · KV 缓存块 {used:,} / {total:,} · "
    "每秒 {output:,} 个 token",
    "cell.finding": "{step}：{sentence}",
    "cell.pid": "进程号",
    "cell.role": "角色",
    "cell.steps": "step 数",
    "cell.stage": "阶段",
    "cell.stage.waiting": "等待",
    "cell.stage.prefill": "预填充",
    "cell.stage.decode": "解码",
    "cell.stage.preempted": "被抢占",
    "cell.stage.idle": "运行中，未被调度",
    "cell.computed": "计算的 token",
    "cell.step": "step",
    "cell.token": "token",
    "cell.probability": "概率",
    "cell.mermaid": "Mermaid 文本",
    "cell.mermaid.large": "图太大，单元格里放不下：用 focus=... 选择要画的类，或用 print() 打印 Mermaid 文本。",
    "cell.more_lines": "还有 {n:,} 行，单元格里放不下：用 print() 可打印全部。",
    "cell.open": "请求与 step：点击展开，逐个 step 查看",
    "cell.scripts": "如果上面没有显示内容，说明这里不运行脚本：请打开 report.html。",
    "cell.left_out": "共 {all:,} 个 step，单元格里放得下前 {n:,} 个；完整内容见 report.html。",
}

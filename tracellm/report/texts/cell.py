"""Texts of the displays of a run in a notebook cell."""

__all__ = ["EN", "ZH"]

EN = {
    "cell.live": "Step {index} · {kind} · {running:,} running, {waiting:,} waiting · {used:,} of {total:,} KV cache "
    "blocks · {output:,} tokens per second",
    "cell.finding": "{step}: {sentence}",
    "cell.open": "Requests and steps: click to open, then go through the steps",
    "cell.scripts": "If nothing is shown above, this front end runs no scripts: open report.html.",
    "cell.left_out": "The first {n:,} of {all:,} steps, as many as fit into a cell; report.html has all.",
}

ZH = {
    "cell.live": "第 {index} 步 · {kind} · 运行 {running:,} 个，等待 {waiting:,} 个 · KV 缓存块 {used:,} / {total:,} · "
    "每秒 {output:,} 个 token",
    "cell.finding": "{step}：{sentence}",
    "cell.open": "请求与 step：点击展开，逐个 step 查看",
    "cell.scripts": "如果上面没有显示内容，说明这里不运行脚本：请打开 report.html。",
    "cell.left_out": "共 {all:,} 个 step，单元格里放得下前 {n:,} 个；完整内容见 report.html。",
}

"""Counts and words that several reports share."""

__all__ = ["EN", "ZH"]

EN = {
    "common.requests": "{n:request|requests}",
    "common.tokens": "{n:token|tokens}",
    "common.blocks": "{n:block|blocks}",
    "common.steps": "{n:step|steps}",
    "common.status.running": "still running, or killed",
    "common.status.finished": "finished",
    "common.status.failed": "failed",
    "common.status.interrupted": "interrupted",
    "common.status.terminated": "terminated",
    "common.status.unknown": "of unknown status",
}

ZH = {
    "common.requests": "{n:,} 个请求",
    "common.tokens": "{n:,} 个 token",
    "common.blocks": "{n:,} 个块",
    "common.steps": "{n:,} 步",
    "common.status.running": "仍在运行，或被强行终止",
    "common.status.finished": "已完成",
    "common.status.failed": "失败",
    "common.status.interrupted": "被中断",
    "common.status.terminated": "被终止",
    "common.status.unknown": "状态未知",
}

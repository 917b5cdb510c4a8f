"""Words and units that several reports share."""

__all__ = ["EN", "ZH"]

EN = {
    "common.yes": "yes",
    "common.no": "no",
    "common.none": "none",
    "common.unknown": "unknown",
    "common.prefill": "prefill",
    "common.decode": "decode",
    "common.mixed": "mixed",
    "common.empty": "empty",
    "common.requests": "{n:request|requests}",
    "common.tokens": "{n:token|tokens}",
    "common.blocks": "{n:block|blocks}",
    "common.steps": "{n:step|steps}",
}

ZH = {
    "common.yes": "是",
    "common.no": "否",
    "common.none": "无",
    "common.unknown": "未知",
    "common.prefill": "预填充",
    "common.decode": "解码",
    "common.mixed": "混合",
    "common.empty": "空步",
    "common.requests": "{n:,} 个请求",
    "common.tokens": "{n:,} 个 token",
    "common.blocks": "{n:,} 个块",
    "common.steps": "{n:,} 步",
}

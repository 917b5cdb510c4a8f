"""Texts of the list of requests, and of HTTP requests that failed."""

__all__ = ["EN", "ZH"]

EN = {
    "requests.at": "at",
    "requests.time": "time",
    "requests.request": "request",
    "requests.failed": "{what}: {message}",
    "requests.parsed": "parsed into {parts}",
    "requests.parsed.reasoning": "{n:character of reasoning|characters of reasoning}",
    "requests.parsed.content": "{n:character of content|characters of content}",
    "requests.parsed.tool_call": "a call of {name}",
    "requests.failed.more": "More failed HTTP requests are only counted.",
    "requests.failed.title": "{n:failed HTTP request|failed HTTP requests}",
    "requests.failed.times": "{sentence} ({n:,} times)",
}

ZH = {
    "requests.at": "开始于",
    "requests.time": "用时",
    "requests.request": "请求",
    "requests.failed": "{what}：{message}",
    "requests.parsed": "解析为 {parts}",
    "requests.parsed.reasoning": "{n:,} 个字符的推理",
    "requests.parsed.content": "{n:,} 个字符的正文",
    "requests.parsed.tool_call": "对 {name} 的调用",
    "requests.failed.more": "其余失败的 HTTP 请求只计数。",
    "requests.failed.title": "{n:,} 个失败的 HTTP 请求",
    "requests.failed.times": "{sentence}（{n:,} 次）",
}

"""Texts for a recording that was to be sent to an OpenTelemetry collector and did not arrive, or not all of it."""

__all__ = ["EN", "ZH"]

EN = {
    "collector.lost": "{lost:span|spans} did not reach {endpoint}: {reasons}. The run folder has them",
    "collector.unknown": "it is not known how many spans reached {endpoint}: {reasons}. The run folder has them",
    "collector.other": "sending to {endpoint}: {reasons}",
    "collector.nowhere": "nothing is sent to a collector: {reasons}",
    "collector.and": "; ",
}

ZH = {
    "collector.lost": "{lost:,} 个 span 没有到达 {endpoint}：{reasons}。它们都在运行目录里",
    "collector.unknown": "不清楚有多少 span 到达了 {endpoint}：{reasons}。它们都在运行目录里",
    "collector.other": "发送到 {endpoint}：{reasons}",
    "collector.nowhere": "没有向任何 collector 发送：{reasons}",
    "collector.and": "；",
}

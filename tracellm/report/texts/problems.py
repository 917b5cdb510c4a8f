"""Problems of a run folder: the sentences for the codes of `tracellm.trace.problems`."""

from tracellm.trace.problems import PROBLEMS

__all__ = ["EN", "ZH"]

EN = {f"problem.{code}": sentence for code, sentence in PROBLEMS.items()}

ZH = {
    "problem.no_such_folder": "{path}：没有这个目录。请指定 `tracellm run --explain` 生成的运行目录。",
    "problem.not_a_folder": "{path} 是一个文件，不是运行目录。请指定含有 run.json 和 trace/ 的目录。",
    "problem.no_run_folder": "{path} 不是运行目录：里面既没有 run.json，也没有 trace/*.jsonl。",
    "problem.unreadable": "无法读取 {path}：{reason}",
    "problem.manifest_missing": "缺少 run.json：运行的脚本和选项未知",
    "problem.manifest_damaged": "run.json 已损坏（{reason}）：运行的脚本和选项未知",
    "problem.manifest_no_object": "run.json 已损坏（应为一个 JSON 对象）：运行的脚本和选项未知",
    "problem.manifest_schema": "run.json 的 schema 是 {schema}，而当前 tracellm 支持的是 {known}，内容可能读错",
    "problem.trace_missing": "trace/ 中没有 .jsonl 文件：没有记录到内容，或文件已被删除",
    "problem.trace_empty": "{file} 是空文件：这部分记录已丢失",
    "problem.trace_unreadable": "无法读取 {file}：{reason}",
    "problem.trace_none": "{file} 不是 trace 文件：{count} 行中没有一行是 OTLP JSON 文档",
    "problem.trace_corrupt_line": "{file}：已跳过 1 个损坏的行：第 {lines} 行",
    "problem.trace_corrupt_lines": "{file}：已跳过 {count} 个损坏的行：第 {lines} 行",
    "problem.trace_torn": "{file}：最后一行不完整（写入时进程已结束），已跳过",
    "problem.records_none": "{file} 不是 tracellm 的记录文件",
    "problem.records_version": "{file} 的记录格式版本为 {version}，而当前 tracellm 只支持版本 {known}。"
    "请重新记录这次运行，或者用当初记录它的 tracellm 打开这个目录。",
    "problem.spans_repeated": "{count} 个 span 的 id 与其他 span 重复，已跳过",
    "problem.spans_circular": "{count} 个 span 的父子关系成环，已作为根 span 处理",
}

"""Problems of a run folder: the sentences for the codes of `tracellm.trace.problems`."""

from tracellm.trace.problems import PROBLEMS

__all__ = ["EN", "ZH"]

EN = {f"problem.{code}": sentence for code, sentence in PROBLEMS.items()}

ZH = {
    "problem.no_such_folder": "{path}：没有这个目录。请给出 `tracellm run --explain` 留下的运行目录。",
    "problem.not_a_folder": "{path} 是一个文件，不是运行目录。请给出含有 run.json 和 trace/ 的目录。",
    "problem.no_run_folder": "{path} 不是运行目录：里面既没有 run.json，也没有 trace/*.jsonl。",
    "problem.unreadable": "无法读取 {path}：{reason}",
    "problem.manifest_missing": "缺少 run.json：不知道运行了什么、用了哪些选项",
    "problem.manifest_damaged": "run.json 已损坏（{reason}）：不知道运行了什么、用了哪些选项",
    "problem.manifest_no_object": "run.json 已损坏（应为一个 JSON 对象）：不知道运行了什么",
    "problem.manifest_schema": "run.json 的 schema 是 {schema}，而这个版本的 tracellm 只认识 {known}；部分内容可能读错",
    "problem.trace_missing": "trace/ 里没有 .jsonl 文件：什么都没有记录，或者已被删除",
    "problem.trace_empty": "{file} 是空的：它记录的内容已丢失",
    "problem.trace_unreadable": "无法读取 {file}：{reason}",
    "problem.trace_none": "{file} 不是记录文件：它的 {count} 行中没有一行是 OTLP JSON 文档",
    "problem.trace_corrupt_line": "{file}：跳过了 1 行损坏的内容：第 {lines} 行",
    "problem.trace_corrupt_lines": "{file}：跳过了 {count} 行损坏的内容：第 {lines} 行",
    "problem.trace_torn": "{file}：最后一行不完整（进程在写它时结束了），已跳过",
    "problem.records_none": "{file} 不是 tracellm 的记录文件",
    "problem.records_version": "{file} 的记录格式是版本 {version}，而这个 tracellm 只能读取版本 {known}。"
    "请重新记录这次运行，或者用当初记录它的 tracellm 打开这个目录。",
    "problem.spans_repeated": "有 {count} 个 span 与别的 span 编号相同，已跳过",
    "problem.spans_circular": "有 {count} 个 span 是自己的祖先，当作根处理",
}

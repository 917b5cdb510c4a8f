"""Texts of `tracellm check`: a run compared with an expectation."""

__all__ = ["EN", "ZH"]

EN = {
    "cli.help.check.short": "Check a run against a diagram or a table.",
    "cli.help.check": "Check a run against an expectation: are all calls of a diagram there, in its order?",
    "cli.help.check.more": """\
RUN is a run folder, or the name of a run or a script in tracellm-runs/; without it, or as `latest`, the newest there.
FILE is a Mermaid sequence diagram (.mmd, or within .md or .rst), or a tab-separated table with the columns from, to and
call. The exit status is 0 when all calls were found, 1 when not, 2 when there is nothing to compare.

\b
Examples:
  tracellm check --expect expected.mmd
  tracellm check my-run --expect lesson.md#2 --phase startup""",
    "cli.help.check.expect": "What should happen: a file; FILE#2 is the second diagram in it.",
    "cli.help.check.phase": "Only this phase of it: startup or generate, or as the table's column `phase` has it.",
    # the result
    "check.all": "{matched}/{total} calls found, in this order",
    "check.some": "{matched}/{total} calls found in order",
    "check.score": "score: {score}/{total} (a call out of order, or with one other lifeline, counts half)",
    "check.needs": "{count:call needs|calls need} {needs}, which is not supported yet; not looked for, not counted",
    "check.unknown": "nothing is recorded of the lifeline {name}",
    "check.unknown.near": "nothing is recorded of the lifeline {name}; did you mean {near}?",
    "check.first": "the first that is missing, in line {line} of {path}:",
    "check.never": "never called",
    "check.never.near": "never called; did you mean {near}?",
    "check.others": "there is {call}",
    "check.order": "out of order: it is called {where}",
    "check.before": "found last before it, {where}: line {line}, {call}",
    "check.before.none": "nothing was found before it",
    "check.after": "found next after it, {where}: line {line}, {call}",
    "check.where": "at {time} in {process}",
    "check.others_missing": "not found either:",
    "check.line.why": "line {line}: {call} ({why})",
    "check.call": "{caller} → {callee}: {method}, {where}",
    "check.more": "and {count} more",
    "check.or": " or ",
    "check.several": "{path} has {count} sequence diagrams; this is the first of them, in line {line}. "
    "For the second say {path}#2",
    # refusals
    "cli.error.expect_option": "check a run against what? Say --expect FILE: a Mermaid sequence diagram or a table",
    "cli.error.expect_missing": "there is no file {path} to check against",
    "cli.error.expect_unreadable": "cannot read {path}: {reason}",
    "cli.error.expect_no_text": "{path} is no text in UTF-8; --expect takes a Mermaid sequence diagram or a table",
    "cli.error.expect_empty": "{path} is empty; nothing is expected",
    "cli.error.expect_no_diagram": "{path} holds neither a Mermaid sequence diagram nor a tab-separated table with the "
    "columns from, to, call",
    "cli.error.expect_no_calls": "{path} expects no calls: it has no solid arrow such as `A->>B: method`, or no row",
    "cli.error.expect_no_such_diagram": "{path} has {count:sequence diagram|sequence diagrams}, so there is no number "
    "{number}",
    "cli.error.expect_columns": "{path}: the table has no column {missing}; its first line names {found}",
    "cli.error.expect_row": "{path}: line {line} has {cells:cell|cells}, and {needed} are needed, separated by tabs",
    "cli.error.expect_row_empty": "{path}: line {line} names no lifeline, or no call",
    "cli.error.expect_phase": "{path} has no phase {phase!r}; it has {known}",
    "cli.error.expect_phase_none": "{path} is not divided into phases, so --phase {phase} finds nothing in it",
    "cli.error.expect_only_needs": "{path} expects nothing that can be looked for: all calls need {needs}",
}

ZH = {
    "cli.help.check.short": "用一张时序图或一张表检查一次运行。",
    "cli.help.check": "用预期检查一次运行：图里的调用是否都发生了，顺序是否一致？",
    "cli.help.check.more": """\
RUN 是运行目录，或 tracellm-runs/ 里某次运行或某个脚本的名字；省略或写 `latest` 表示其中最新的一次。
FILE 是 Mermaid 时序图（.mmd，或 .md、.rst 里的图），或带有 from、to、call 三列、以制表符分隔的表。
全部找到时退出状态为 0，否则为 1；没有可比较的内容时为 2。

\b
例如：
  tracellm check --expect expected.mmd
  tracellm check my-run --expect lesson.md#2 --phase startup""",
    "cli.help.check.expect": "预期发生什么：一个文件；FILE#2 表示其中的第二张图。",
    "cli.help.check.phase": "只检查这个阶段：startup 或 generate，或表中 phase 一列的写法。",
    "check.all": "{matched}/{total} 个调用全部找到，顺序一致",
    "check.some": "按顺序找到 {matched}/{total} 个调用",
    "check.score": "得分：{score}/{total}（顺序不对、或一端生命线不对的调用计半分）",
    "check.needs": "另有 {count} 个调用需要 {needs}，目前还不支持；没有查找，也不计入",
    "check.unknown": "没有记录到生命线 {name}",
    "check.unknown.near": "没有记录到生命线 {name}；是不是 {near}？",
    "check.first": "第一个没找到的，在 {path} 第 {line} 行：",
    "check.never": "从未被调用",
    "check.never.near": "从未被调用；是不是 {near}？",
    "check.others": "实际有 {call}",
    "check.order": "顺序不对：它的调用{where}",
    "check.before": "在它之前最后找到的，{where}：第 {line} 行，{call}",
    "check.before.none": "在它之前什么都没有找到",
    "check.after": "在它之后最先找到的，{where}：第 {line} 行，{call}",
    "check.where": "在 {time} 处，{process} 进程",
    "check.others_missing": "同样没有找到：",
    "check.line.why": "第 {line} 行：{call}（{why}）",
    "check.call": "{caller} → {callee}: {method}，{where}",
    "check.more": "还有 {count} 个",
    "check.or": " 或 ",
    "check.several": "{path} 里有 {count} 张时序图；这里用的是第一张，在第 {line} 行。要用第二张请写 {path}#2",
    "cli.error.expect_option": "用什么来检查？请给出 --expect FILE：一张 Mermaid 时序图或一张表",
    "cli.error.expect_missing": "没有用来检查的文件 {path}",
    "cli.error.expect_unreadable": "无法读取 {path}：{reason}",
    "cli.error.expect_no_text": "{path} 不是 UTF-8 文本；--expect 接受 Mermaid 时序图或表",
    "cli.error.expect_empty": "{path} 是空的，没有任何预期",
    "cli.error.expect_no_diagram": "{path} 里既没有 Mermaid 时序图，也没有带 from、to、call 三列、以制表符分隔的表",
    "cli.error.expect_no_calls": "{path} 里没有预期的调用：没有 `A->>B: method` 这样的实线箭头，也没有表的行",
    "cli.error.expect_no_such_diagram": "{path} 里有 {count} 张时序图，没有第 {number} 张",
    "cli.error.expect_columns": "{path}：表里缺少列 {missing}；第一行写的是 {found}",
    "cli.error.expect_row": "{path}：第 {line} 行有 {cells} 格，需要 {needed} 格，以制表符分隔",
    "cli.error.expect_row_empty": "{path}：第 {line} 行没有写生命线，或没有写调用",
    "cli.error.expect_phase": "{path} 里没有阶段 {phase!r}；有的是 {known}",
    "cli.error.expect_phase_none": "{path} 没有划分阶段，因此 --phase {phase} 在其中找不到任何内容",
    "cli.error.expect_only_needs": "{path} 里没有可以查找的内容：所有调用都需要 {needs}",
}

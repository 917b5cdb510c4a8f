"""Texts of `tracellm check`: a run compared with an expectation."""

__all__ = ["EN", "ZH"]

EN = {
    "cli.help.check.short": "Check a run against a diagram or a table.",
    "cli.help.check": "Check that a run made all calls of a diagram or a table, in order.",
    "cli.help.check.more": """\
RUN is a run folder, or the name of a run or a script in tracellm-runs/. Default: `latest`, the newest run there.
FILE is a Mermaid sequence diagram (.mmd, or inside .md or .rst), or a tab-separated table with the columns from, to and
call. The exit status is 0 if all calls were found, 1 if not, and 2 if there is nothing to compare.

\b
Examples:
  tracellm check --expect expected.mmd
  tracellm check my-run --expect lesson.md#2 --phase startup""",
    "cli.help.check.expect": "File with the expected calls; FILE#2 is the second diagram in it.",
    "cli.help.check.phase": "Check only this phase: startup, generate, or a value of the table's column `phase`.",
    # the result
    "check.all": "{matched}/{total} calls found, in this order",
    "check.some": "{matched}/{total} calls found in order",
    "check.score": "score: {score}/{total} (half a point for a call out of order or with one wrong lifeline)",
    "check.needs": "{count:call needs|calls need} {needs} (images or sounds), and the run has none; not counted",
    "check.unknown": "no calls of the lifeline {name} were recorded",
    "check.unknown.near": "no calls of the lifeline {name} were recorded; did you mean {near}?",
    "check.first": "first missing call, in line {line} of {path}:",
    "check.never": "never called",
    "check.never.near": "never called; did you mean {near}?",
    "check.others": "found instead: {call}",
    "check.order": "out of order: called {where}",
    "check.before": "last call found before it, {where}: line {line}, {call}",
    "check.before.none": "no call was found before it",
    "check.after": "next call found after it, {where}: line {line}, {call}",
    "check.where": "at {time} in {process}",
    "check.others_missing": "also missing:",
    "check.line.why": "line {line}: {call} ({why})",
    "check.call": "{caller} → {callee}: {method}, {where}",
    "check.more": "and {count} more",
    "check.or": " or ",
    "check.and": " and ",
    "check.several": "{path} has {count} sequence diagrams; the first one, in line {line}, was used. For the second, "
    "write {path}#2",
    # refusals
    "cli.error.expect_option": "nothing to check against: give --expect FILE, a Mermaid sequence diagram or a table",
    "cli.error.expect_missing": "there is no file {path}",
    "cli.error.expect_unreadable": "cannot read {path}: {reason}",
    "cli.error.expect_no_text": "{path} is not UTF-8 text; --expect takes a Mermaid sequence diagram or a table",
    "cli.error.expect_empty": "{path} is empty: no calls are expected",
    "cli.error.expect_no_diagram": "{path} has neither a Mermaid sequence diagram nor a tab-separated table with the "
    "columns from, to, call",
    "cli.error.expect_no_calls": "{path} has no expected calls: no solid arrow such as `A->>B: method`, and no row",
    "cli.error.expect_no_such_diagram": "{path} has {count:sequence diagram|sequence diagrams}, but no number {number}",
    "cli.error.expect_columns": "{path}: the table has no column {missing}; its first line names {found}",
    "cli.error.expect_row": "{path}: line {line} has {cells:cell|cells}, but {needed} are needed, separated by tabs",
    "cli.error.expect_row_empty": "{path}: line {line} lacks a lifeline or a call",
    "cli.error.expect_phase": "{path} has no phase {phase!r}; it has {known}",
    "cli.error.expect_phase_none": "{path} has no phases; leave out --phase {phase}",
    "cli.error.expect_only_needs": "all calls in {path} need {needs}, which is not supported yet",
    # --invariants
    "cli.help.check.invariants": "Check the engine's invariants instead: budget, limits, blocks, order, messages.",
    "check.invariants": "{held} of {total} checked invariants hold in {steps:step|steps}",
    "check.invariants.unchecked": "– not checked: the run has nothing recorded to check it on",
    "invariant.budget": "the tokens of a step are at most the budget",
    "invariant.budget.broken": "{tokens} tokens are scheduled, and the budget is {budget}",
    "invariant.running": "at most max_num_seqs requests run",
    "invariant.running.broken": "{running} requests run, and max_num_seqs is {limit}",
    "invariant.owners": "a block has one owner, or is shared through the prefix cache",
    "invariant.owners.broken": "block {block} is owned by requests {owners}",
    "invariant.free": "each block is free or owned",
    "invariant.free.broken": "{free} of {total} blocks are free, but requests own {used}",
    "invariant.computed": "a request's computed tokens are at most its tokens",
    "invariant.computed.broken": "{computed} tokens of request {request} are computed, and it has {total}",
    "invariant.order": "first come, first served, except for a recorded reason",
    "invariant.order.broken": "request {request} starts before request {overtaken}, which arrived earlier and waits",
    "invariant.restored": "all blocks are free when no request has any",
    "invariant.restored.broken": "no request has blocks, and {free} of {total} are free",
    "invariant.messages": "no message is received before it is sent",
    "invariant.messages.broken": "a message {type} was received before it was sent",
    "check.invariant.step": "step {step}: {what}",
    "check.invariant.engine": "engine {engine}, step {step}: {what}",
    "cli.error.expect_or_invariants": "give either --expect or --invariants",
}

ZH = {
    "cli.help.check.short": "用时序图或表检查一次运行。",
    "cli.help.check": "检查一次运行是否按顺序发生了时序图或表中的全部调用。",
    "cli.help.check.more": """\
RUN 是运行目录，或 tracellm-runs/ 中某次运行或某个脚本的名字。默认为 `latest`，即其中最新的一次运行。
FILE 是 Mermaid 时序图（.mmd，或 .md、.rst 中的图），或带有 from、to、call 三列、以制表符分隔的表。
全部找到时退出状态为 0，否则为 1；没有可比较的内容时为 2。

\b
例如：
  tracellm check --expect expected.mmd
  tracellm check my-run --expect lesson.md#2 --phase startup""",
    "cli.help.check.expect": "含有预期调用的文件；FILE#2 表示其中的第二张图。",
    "cli.help.check.phase": "只检查这个阶段：startup、generate，或表中 phase 列的某个值。",
    "check.all": "{matched}/{total} 个调用全部找到，顺序一致",
    "check.some": "按顺序找到 {matched}/{total} 个调用",
    "check.score": "得分：{score}/{total}（顺序不对、或有一端生命线不对的调用计半分）",
    "check.needs": "另有 {count} 个调用需要 {needs}（图像或声音），而这次运行没有，不计入",
    "check.unknown": "没有记录到生命线 {name} 的调用",
    "check.unknown.near": "没有记录到生命线 {name} 的调用；是不是 {near}？",
    "check.first": "第一个缺失的调用，在 {path} 第 {line} 行：",
    "check.never": "从未被调用",
    "check.never.near": "从未被调用；是不是 {near}？",
    "check.others": "实际的调用：{call}",
    "check.order": "顺序不对：调用{where}",
    "check.before": "在它之前最后找到的调用，{where}：第 {line} 行，{call}",
    "check.before.none": "在它之前没有找到任何调用",
    "check.after": "在它之后最先找到的调用，{where}：第 {line} 行，{call}",
    "check.where": "在 {time} 处，{process} 进程",
    "check.others_missing": "同样缺失：",
    "check.line.why": "第 {line} 行：{call}（{why}）",
    "check.call": "{caller} → {callee}: {method}，{where}",
    "check.more": "还有 {count} 个",
    "check.or": " 或 ",
    "check.and": " 和 ",
    "check.several": "{path} 中有 {count} 张时序图，这里使用第 {line} 行的第一张。要用第二张，请写 {path}#2",
    "cli.error.expect_option": "没有检查的依据：请给出 --expect FILE，一张 Mermaid 时序图或一张表",
    "cli.error.expect_missing": "没有文件 {path}",
    "cli.error.expect_unreadable": "无法读取 {path}：{reason}",
    "cli.error.expect_no_text": "{path} 不是 UTF-8 文本；--expect 接受 Mermaid 时序图或表",
    "cli.error.expect_empty": "{path} 是空的，没有预期的调用",
    "cli.error.expect_no_diagram": "{path} 中既没有 Mermaid 时序图，也没有带 from、to、call 三列、以制表符分隔的表",
    "cli.error.expect_no_calls": "{path} 中没有预期的调用：没有 `A->>B: method` 这样的实线箭头，也没有表的行",
    "cli.error.expect_no_such_diagram": "{path} 中有 {count} 张时序图，没有第 {number} 张",
    "cli.error.expect_columns": "{path}：表里缺少列 {missing}；第一行写的是 {found}",
    "cli.error.expect_row": "{path}：第 {line} 行有 {cells} 格，需要 {needed} 格，以制表符分隔",
    "cli.error.expect_row_empty": "{path}：第 {line} 行缺少生命线或调用",
    "cli.error.expect_phase": "{path} 中没有阶段 {phase!r}，只有 {known}",
    "cli.error.expect_phase_none": "{path} 没有划分阶段，请去掉 --phase {phase}",
    "cli.error.expect_only_needs": "{path} 中的所有调用都需要 {needs}，目前还不支持",
    # --invariants
    "cli.help.check.invariants": "改为检查引擎的不变量：预算、上限、块、顺序、消息。",
    "check.invariants": "检查了 {total} 条不变量，{held} 条成立，共 {steps} 步",
    "check.invariants.unchecked": "– 未检查：此次运行没有相应的记录",
    "invariant.budget": "一步的 token 数不超过预算",
    "invariant.budget.broken": "调度了 {tokens} 个 token，而预算为 {budget}",
    "invariant.running": "运行的请求不超过 max_num_seqs",
    "invariant.running.broken": "有 {running} 个请求在运行，而 max_num_seqs 为 {limit}",
    "invariant.owners": "一个块只有一个所有者，或通过前缀缓存共享",
    "invariant.owners.broken": "块 {block} 同时属于请求 {owners}",
    "invariant.free": "每个块要么空闲，要么有所有者",
    "invariant.free.broken": "{total} 个块中有 {free} 个空闲，而请求占有 {used} 个",
    "invariant.computed": "请求已计算的 token 不超过它的 token 总数",
    "invariant.computed.broken": "请求 {request} 已计算 {computed} 个 token，而它只有 {total} 个",
    "invariant.order": "先到先服务，除非记录了原因",
    "invariant.order.broken": "请求 {request} 先于更早到达且仍在等待的请求 {overtaken} 开始",
    "invariant.restored": "没有请求占有块时，所有块都空闲",
    "invariant.restored.broken": "没有请求占有块，而 {total} 个块中只有 {free} 个空闲",
    "invariant.messages": "消息不会在发送之前被接收",
    "invariant.messages.broken": "一条 {type} 消息在发送之前就被接收",
    "check.invariant.step": "第 {step} 步：{what}",
    "check.invariant.engine": "引擎 {engine}，第 {step} 步：{what}",
    "cli.error.expect_or_invariants": "--expect 和 --invariants 只能给出一个",
}

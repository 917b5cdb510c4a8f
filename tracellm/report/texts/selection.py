"""Texts about choosing what to record: the options' help, and one message for each pattern that does nothing."""

__all__ = ["EN", "ZH"]

EN = {
    # help
    "cli.help.record_detail": "How deep to record and to draw: request, step, layer or kernel. Default: record all, "
    "of a long run layers and kernels only of its first steps; draw what tells most.",
    "cli.help.record_focus": "Record this class at every level and all else to steps, or to --detail; draw only it and "
    "what calls it and is called by it. May be repeated.",
    "cli.help.only": "Record only what matches: a Class.method, a Class, a function or a module, with * and ?. May be "
    "repeated.",
    "cli.help.skip": "Do not record what matches, as for --only. May be repeated.",
    "cli.help.ring": "Keep only the last N calls of each process, or up to twice as many; "
    "the report says how many were let go.",
    # refusals
    "cli.near": " The nearest: {names}.",
    "cli.error.ring": "--ring takes how many calls to keep, 1 or more, not {value!r}",
    "cli.error.focus_unknown": "--focus: the engine has no class {value!r}.{near} It is shown only if it is your own, "
    "with @tracellm.probe",
    "cli.error.focus_absent": "--focus {value!r}: no call of such a class was recorded, so sequence.mmd does not "
    "follow it",
    "cli.error.pattern.unknown": "{option} {value!r} names nothing that can be recorded: no Class.method, Class, "
    "function or module.{near} docs/spans.md lists them all",
    "cli.error.pattern.inherited": "{option} {value!r} takes out nothing: what it has it inherits from {names}. Skip "
    "that",
    "cli.error.pattern.left_out": "{option} {value!r} records nothing: --detail and --skip leave out all that it names",
}

ZH = {
    "cli.help.record_detail": "记录和绘制到哪一层：request、step、layer 或 kernel。默认全部记录"
    "（长时间的运行只在最初的若干步记录层和 kernel），画最说明问题的。",
    "cli.help.record_focus": "这个类的所有层级都记录，其余的记录到步（或 --detail 给出的层级）；"
    "只画它以及调用它的和它调用的。可以重复给出。",
    "cli.help.only": "只记录匹配的：Class.method、Class、函数或模块，可用 * 和 ?。可以重复给出。",
    "cli.help.skip": "不记录匹配的，写法同 --only。可以重复给出。",
    "cli.help.ring": "每个进程只保留最后 N 次调用（至多两倍）；报告会说明丢弃了多少次。",
    "cli.near": "最接近的是：{names}。",
    "cli.error.ring": "--ring 接受要保留的调用次数，至少为 1，而不是 {value!r}",
    "cli.error.focus_unknown": "--focus：引擎里没有类 {value!r}。{near}"
    "只有当它是你自己用 @tracellm.probe 标记的类时才会显示",
    "cli.error.focus_absent": "--focus {value!r}：没有记录到这个类的调用，sequence.mmd 未按它绘制",
    "cli.error.pattern.unknown": "{option} {value!r} 没有对应任何可记录的 Class.method、Class、函数或模块。{near}"
    "全部名字见 docs/spans.md",
    "cli.error.pattern.inherited": "{option} {value!r} 什么也去不掉：它的方法都继承自 {names}；请改为跳过后者",
    "cli.error.pattern.left_out": "{option} {value!r} 什么也不会记录：它指的全部被 --detail 和 --skip 排除了",
}

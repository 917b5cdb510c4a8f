"""Texts of the command line: help, the lines after a run, and one message for each kind of bad input."""

__all__ = ["EN", "ZH"]

EN = {
    # help
    "cli.help": "Run a script that generates text, and see what the engine did and why.",
    "cli.help.help": "Show this help.",
    "cli.help.run.short": "Run a script; with --explain, record and explain it.",
    "cli.help.run": "Run SCRIPT as `python SCRIPT ARGS...` would; with --explain, record and explain what happened.",
    "cli.help.run.more": """\
All that follows SCRIPT (or -m MODULE) belongs to it. What tracellm says goes to stderr.

\b
Examples:
  tracellm run --explain examples/hello.py
  tracellm run --explain --lang zh --out my-run examples/chat_batch.py
  tracellm run --explain --focus Scheduler -m my_package.job --its-option
  tracellm run --explain --detail step --ring 100000 long.py""",
    "cli.help.show.short": "Print a run's diagram, call tree or steps again.",
    "cli.help.show": "Print a part of an earlier run again: its sequence diagram (Mermaid), call tree or steps.",
    "cli.help.show.more": """\
RUN is a run folder, or the name of a run or a script in tracellm-runs/; without it, or as `latest`, the newest there.
torch is not needed.

\b
Examples:
  tracellm show hello.py steps
  tracellm show tree
  tracellm show my-run sequence --focus EngineCore --detail layer > diagram.mmd""",
    "cli.help.report.short": "Write a run's reports anew.",
    "cli.help.report": "Write sequence.mmd, calltree.txt and report.html anew, from the run folder alone.",
    "cli.help.report.more": """\
RUN is a run folder, or the name of a run or a script in tracellm-runs/; without it, or as `latest`, the newest there.
torch is not needed.

\b
Examples:
  tracellm report
  tracellm report my-run --lang zh --open""",
    "cli.help.version": "Print the version.",
    "cli.help.explain": "Record the run and explain it: console log, call tree, sequence diagram, HTML report.",
    "cli.help.module": "Run this module, as `python -m MODULE ARGS...` would.",
    "cli.help.engine": "tracellm: `import vllm` gives tracellm's own engine, so a script for vLLM runs without vLLM.",
    "cli.help.model": "Take the model in the folder PATH (tiny: the embedded one) wherever NAME is named. Repeatable.",
    "cli.help.lang": "Language: en or zh. Otherwise TRACELLM_LANG says it, or the locale.",
    "cli.help.out": "The run folder: new, empty, or of an earlier run. Default: tracellm-runs/<script>-<date>-<time>",
    "cli.help.detail": "How deep the sequence diagram goes: request, step, layer or kernel.",
    "cli.help.focus": "Show only this class and what calls it and is called by it. May be repeated.",
    "cli.help.convert": "now (default): convert the recording and write the reports when the run ends. later: when a "
    "command first opens the run folder.",
    "cli.help.no_text": "Leave prompts and generated text out of the recording.",
    "cli.help.quiet": "No console log; problems are still told.",
    "cli.help.open": "Open report.html in the browser when it is written.",
    # after a run, beside what the console says
    "cli.report": "report: {path}",
    "cli.converting": "converting {folder}",
    "cli.open.none": "no browser to open {path} with",
    "cli.error.recorded_only": "the recording is in {folder}; `tracellm report {folder}` writes the report",
    # refusals
    "cli.error": "tracellm: {message}",
    "cli.error.see_help": "See `{command} --help`.",
    "cli.error.no_script": "nothing to run. Say which: tracellm run [--explain] SCRIPT [ARGS...], or -m MODULE",
    "cli.error.script_as_command": "there is no command {script}; to run a script: tracellm run {script}",
    "cli.error.misplaced": "passed on to {script}: {options}. Options for tracellm go before the script",
    "cli.error.script_missing": "there is no script {path}",
    "cli.error.vllm_missing": "there is no vLLM beside this Python, {python}: install tracellm where vLLM is, and use "
    "the tracellm there; or take tracellm's own engine for it: tracellm run --engine tracellm ...",
    "cli.error.command_foreign": "{path} is not run by this Python, {python}, and so cannot be recorded: "
    "install tracellm where {name} is installed, and use the tracellm there",
    "cli.error.script_unreadable": "cannot read the script {path}: {reason}",
    "cli.error.script_is_folder": "{path} is a folder without a __main__.py, so there is nothing to run in it",
    "cli.error.only_explain": "{option} says how to explain a run, so it needs --explain",
    "cli.error.engine": "no engine {value!r}: --engine takes tracellm; without it, a script gets what it imports",
    "cli.error.model_form": "--model {value!r} is not NAME=PATH, as in --model facebook/opt-125m=models/opt-125m",
    "cli.error.model_twice": "--model names {name} twice; give one folder for it",
    "cli.error.model_missing": "--model {name}: there is no folder {path}",
    "cli.error.model_no_config": "--model {name}: the folder {path} has no config.json, so it holds no model",
    "cli.error.vllm_command": "`{value}` is not here: under --engine tracellm the command vllm has `vllm serve MODEL`",
    "cli.error.lang": "no language {value!r}: {source} takes en or zh",
    "cli.error.detail": "no level {value!r}: --detail takes request, step, layer or kernel",
    "cli.error.focus": "no class {value!r} in this run; these are: {known}",
    "cli.error.out_not_folder": "--out {path} is a file; give a folder",
    "cli.error.out_taken": "--out {path} holds other files ({example}, ...) and no earlier run; give a new folder",
    "cli.error.out_recording": "--out {path}: another run is recording there, and would lose what it has recorded; "
    "wait for its end, or give another folder",
    "cli.error.posix_only": "tracellm runs scripts on Linux and macOS, not on {system}; recordings made there can be "
    "read here: tracellm show, report, diff, check, export",
    "cli.error.convert_interrupted": "interrupted while converting {folder}; what was recorded is whole, and the next "
    "command that opens the folder converts it again",
    "cli.error.open_later": "--convert later writes no report that --open could open; leave one of them out",
    "cli.error.out_unwritable": "cannot write the run folder {path}: {reason}. Choose another with --out DIR",
    "cli.error.no_runs": "there is no run in {folder} yet; `tracellm run --explain SCRIPT` makes one",
    "cli.error.show_what": "show what? One of sequence, tree, steps (as in `tracellm show latest tree`), not {value!r}",
    "cli.error.show_nothing": "show what? One of sequence, tree, steps, as in `tracellm show steps`",
    "cli.error.show_what_of": "show what of {run}? Say `tracellm show {run} tree`, or sequence, or steps",
    "cli.error.show_too_many": "show takes a run folder and one of sequence, tree, steps, not {value!r} as well",
    "cli.error.run_missing": "there is no run folder {path}",
    "cli.error.run_unknown": "there is no run {path}; the newest in {folder} are: {known}",
    "cli.error.run_folder": "{reason}",
    "cli.error.render": "{file} was not written: {reason}. {recorded}",
    "cli.error.manifest": "cannot finish {path}: {reason}. What was recorded is still there",
    "cli.error.problem": "damaged recording: {problem}",
    "cli.error.recording": "of the recording: {problem}",
    "cli.error.unfinished": "this run did not finish: it was killed, or is still running. What it recorded is here",
}

ZH = {
    "cli.help": "运行一个生成文本的脚本，看清推理引擎做了什么、为什么这样做。",
    "cli.help.help": "显示这份帮助。",
    "cli.help.run.short": "运行一个脚本；加上 --explain 则记录并解释。",
    "cli.help.run": "像 `python SCRIPT ARGS...` 一样运行 SCRIPT；加上 --explain 则记录并解释全过程。",
    "cli.help.run.more": """\
SCRIPT（或 -m MODULE）之后的一切都归脚本所有。tracellm 自己的输出都写到 stderr。

\b
例如：
  tracellm run --explain examples/hello.py
  tracellm run --explain --lang zh --out my-run examples/chat_batch.py
  tracellm run --explain --focus Scheduler -m my_package.job --its-option
  tracellm run --explain --detail step --ring 100000 long.py""",
    "cli.help.show.short": "再次打印一次运行的时序图、调用树或各个步。",
    "cli.help.show": "再次打印一次运行的时序图（Mermaid）、调用树或各个步。",
    "cli.help.show.more": """\
RUN 是运行目录，或 tracellm-runs/ 里某次运行或某个脚本的名字；省略或写 `latest` 表示其中最新的一次。不需要 torch。

\b
例如：
  tracellm show hello.py steps
  tracellm show tree
  tracellm show my-run sequence --focus EngineCore --detail layer > diagram.mmd""",
    "cli.help.report.short": "重新写出一次运行的报告。",
    "cli.help.report": "只凭运行目录重新写出 sequence.mmd、calltree.txt 和 report.html。",
    "cli.help.report.more": """\
RUN 是运行目录，或 tracellm-runs/ 里某次运行或某个脚本的名字；省略或写 `latest` 表示其中最新的一次。不需要 torch。

\b
例如：
  tracellm report
  tracellm report my-run --lang zh --open""",
    "cli.help.version": "打印版本号。",
    "cli.help.explain": "记录并解释这次运行：控制台日志、调用树、时序图、HTML 报告。",
    "cli.help.module": "像 `python -m MODULE ARGS...` 一样运行这个模块。",
    "cli.help.engine": "tracellm：`import vllm` 得到 tracellm 自己的引擎，为 vLLM 写的脚本无需 vLLM 就能运行。",
    "cli.help.model": "凡是写到模型 NAME 的地方，改用目录 PATH 里的模型（tiny 是内置模型）。可以重复给出。",
    "cli.help.lang": "语言：en 或 zh。不给时看 TRACELLM_LANG，再看系统的语言设置。",
    "cli.help.out": "运行目录：新的、空的，或以前某次运行的。默认 tracellm-runs/<脚本>-<日期>-<时间>",
    "cli.help.detail": "时序图画到哪一层：request、step、layer 或 kernel。",
    "cli.help.focus": "只画这个类，以及调用它的和它调用的。可以重复给出。",
    "cli.help.convert": "now（默认）：运行结束时转换记录并写出报告。later：等到有命令打开运行目录时。",
    "cli.help.no_text": "不记录提示词和生成的文本。",
    "cli.help.quiet": "不显示控制台日志；出了问题仍会说明。",
    "cli.help.open": "写完后在浏览器里打开 report.html。",
    "cli.report": "报告：{path}",
    "cli.converting": "正在转换 {folder}",
    "cli.open.none": "没有可用来打开 {path} 的浏览器",
    "cli.error.recorded_only": "记录保存在 {folder}；用 `tracellm report {folder}` 可写出报告",
    "cli.error": "tracellm：{message}",
    "cli.error.see_help": "请看 `{command} --help`。",
    "cli.error.no_script": "没有要运行的脚本。用法：tracellm run [--explain] SCRIPT [ARGS...]，或 -m MODULE",
    "cli.error.script_as_command": "没有命令 {script}；运行脚本请用：tracellm run {script}",
    "cli.error.misplaced": "已交给 {script}：{options}。tracellm 的选项要写在脚本之前",
    "cli.error.script_missing": "没有脚本 {path}",
    "cli.error.vllm_missing": "这个 Python（{python}）旁边没有 vLLM：请把 tracellm 安装到 vLLM 所在的环境，"
    "并使用那里的 tracellm；或者用 tracellm 自己的引擎代替它：tracellm run --engine tracellm ...",
    "cli.error.command_foreign": "{path} 不是由这个 Python（{python}）运行的，因此无法记录："
    "请把 tracellm 安装到 {name} 所在的环境，并使用那里的 tracellm",
    "cli.error.script_unreadable": "无法读取脚本 {path}：{reason}",
    "cli.error.script_is_folder": "{path} 是一个没有 __main__.py 的目录，里面没有可运行的内容",
    "cli.error.only_explain": "{option} 决定如何解释一次运行，需要和 --explain 一起使用",
    "cli.error.engine": "没有引擎 {value!r}：--engine 只接受 tracellm；不给时，脚本导入什么就用什么",
    "cli.error.model_form": "--model {value!r} 不是 NAME=PATH 的形式，例如 --model facebook/opt-125m=models/opt-125m",
    "cli.error.model_twice": "--model 两次给出了 {name}；请只给一个目录",
    "cli.error.model_missing": "--model {name}：没有目录 {path}",
    "cli.error.model_no_config": "--model {name}：目录 {path} 里没有 Hugging Face 格式的模型（缺 config.json）",
    "cli.error.vllm_command": "这里没有 `{value}`：用 --engine tracellm 时，vllm 命令只有 `vllm serve MODEL`",
    "cli.error.lang": "没有语言 {value!r}：{source} 只接受 en 或 zh",
    "cli.error.detail": "没有层级 {value!r}：--detail 接受 request、step、layer 或 kernel",
    "cli.error.focus": "这次运行里没有类 {value!r}；有的是：{known}",
    "cli.error.out_not_folder": "--out {path} 是一个文件；请给出一个目录",
    "cli.error.out_taken": "--out {path} 里有别的文件（{example} 等），又不是以前的运行目录；请给出新的或空的目录",
    "cli.error.out_recording": "--out {path}：另一次运行正在往这里记录，重用会删掉它的记录；请等它结束，或给出别的目录",
    "cli.error.posix_only": "tracellm 只能在 Linux 和 macOS 上运行脚本，不能在 {system} 上；"
    "在那里做的记录可以在这里查看：tracellm show、report、diff、check、export",
    "cli.error.convert_interrupted": "转换 {folder} 时被中断；记录是完整的，下一个打开这个目录的命令会重新转换",
    "cli.error.open_later": "--convert later 不写报告，--open 没有可打开的；请去掉其中一个",
    "cli.error.out_unwritable": "无法写入运行目录 {path}：{reason}。请用 --out DIR 另选一个",
    "cli.error.no_runs": "{folder} 里还没有任何运行；用 `tracellm run --explain SCRIPT` 做一次",
    "cli.error.show_what": "要打印什么？请给出 sequence、tree 或 steps（如 `tracellm show tree`），而不是 {value!r}",
    "cli.error.show_nothing": "要打印什么？请给出 sequence、tree 或 steps，如 `tracellm show steps`",
    "cli.error.show_what_of": "要打印 {run} 的什么？例如 `tracellm show {run} tree`，或者 sequence、steps",
    "cli.error.show_too_many": "show 只接受一个运行目录和 sequence、tree、steps 之一，多出了 {value!r}",
    "cli.error.run_missing": "没有运行目录 {path}",
    "cli.error.run_unknown": "没有名为 {path} 的运行；{folder} 里最新的有：{known}",
    "cli.error.run_folder": "{reason}",
    "cli.error.render": "未能写出 {file}：{reason}。{recorded}",
    "cli.error.manifest": "无法写完 {path}：{reason}。已记录的内容仍在",
    "cli.error.problem": "记录有损坏：{problem}",
    "cli.error.recording": "关于这次记录：{problem}",
    "cli.error.unfinished": "这次运行没有结束：它被强行终止了，或者还在运行。已记录的内容都在这里",
}

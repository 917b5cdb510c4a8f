"""Texts of the command line: help, and one message for each kind of bad input."""

__all__ = ["EN", "ZH"]

EN = {
    # cli
    # help
    "cli.help": "Run a script that generates text, and see what the engine did and why.",
    "cli.help.help": "Show this help.",
    "cli.help.run.short": "Run a script; with --explain, record and explain it.",
    "cli.help.run": "Run SCRIPT as `python SCRIPT ARGS...` would; with --explain, record and explain what happened.",
    "cli.help.run.more": """\
All that follows SCRIPT (or -m MODULE) belongs to it. tracellm itself prints to stderr.

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
    "cli.help.lang": "Language: en or zh. Default: TRACELLM_LANG, or else the locale.",
    "cli.help.out": "The run folder: new, empty, or of an earlier run. Default: tracellm-runs/<script>-<date>-<time>",
    "cli.help.detail": "How deep the sequence diagram goes: request, step, layer or kernel.",
    "cli.help.focus": "Show only this class and what calls it and is called by it. May be repeated.",
    "cli.help.convert": "now (default): convert the recording and write the reports when the run ends. later: when a "
    "command first opens the run folder.",
    "cli.help.no_text": "Leave prompts and generated text out of the recording.",
    "cli.help.quiet": "No console log; problems are still reported.",
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
    # selection
    # help
    "cli.help.record_detail": "How deep to record and to draw: request, step, layer or kernel. Default: record all, "
    "of a long run layers and kernels only of its first steps; draw what tells most.",
    "cli.help.record_focus": "Record this class at every level and all else to steps, or to --detail; draw only it and "
    "what calls it and is called by it. May be repeated.",
    "cli.help.only": "Record only what matches: a Class.method, a Class, a function or a module, with * and ?. May be "
    "repeated.",
    "cli.help.skip": "Do not record what matches, as for --only. May be repeated.",
    "cli.help.ring": "Keep only the last N calls of each process, or up to twice as many; "
    "the report has the number of dropped calls.",
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
    # serve
    "cli.help.serve.short": "Serve a model over HTTP, as OpenAI's API; with --explain, record and explain it.",
    "cli.help.serve": "Serve MODEL over HTTP, compatible with OpenAI's API and with `vllm serve`.",
    "cli.help.serve.more": """\
MODEL is a directory or a hub id; without it, the model that comes with tracellm. SIGTERM and Ctrl-C let running
requests finish. Settings of the engine are options with vLLM's names, such as --max-model-len.

\b
Examples:
  tracellm serve
  tracellm serve --explain --out my-run --port 8001
  tracellm serve path/to/model --max-num-seqs 16 --api-key secret""",
    "serve.help.host": "The address to listen at. Default: 127.0.0.1, so only this machine is served.",
    "serve.help.port": "The port; 0 takes any that is free. Default: 8000",
    "serve.help.api_key": "Serve only requests with this key; may be repeated. Otherwise VLLM_API_KEY, or none.",
    "serve.help.served_model_name": "What the model is called in requests; may be repeated.",
    "serve.help.allowed_origins": "A website whose scripts may ask this server (CORS), or *; may be repeated, or JSON.",
    "serve.help.uvicorn_log_level": "From what level on uvicorn logs: debug, info, warning (default), error, critical.",
    "serve.help.disable_uvicorn_access_log": "No line for each request at the levels info and debug.",
    "serve.help.root_path": "The path at which a proxy shows this server.",
    "serve.help.response_role": "The role of answers. Default: assistant",
    "serve.help.chat_template": "A Jinja template in place of the model's own: a file, or the template itself.",
    "serve.help.chat_template_content_format": "How the template gets contents: auto, string or openai.",
    "serve.help.trust_request_chat_template": "Let requests bring their own chat template, which is a program.",
    "serve.help.return_tokens_as_token_ids": "Show tokens beside log probabilities as token_id:17.",
    "serve.help.enable_request_id_headers": "Put X-Request-Id on every response.",
    "serve.help.enable_prompt_tokens_details": "Report in the usage how many tokens came from the prefix cache.",
    "serve.help.enable_force_include_usage": "Report the usage in every stream.",
    "serve.help.shutdown_timeout": "Seconds for running requests after SIGTERM or Ctrl-C. Default: 30",
    "serve.help.max_request_bytes": "The longest body that is read. Default: 33554432",
    "serve.help.engine": "Of the engine, as for LLM(...), with their defaults",
    "serve.ready": """\
{model} is served at {address}/v1 (Ctrl-C ends it). Try:
  curl {address}/v1/chat/completions -H 'Content-Type: application/json' \
-d '{{"messages": [{{"role": "user", "content": "Hello"}}]}}'""",
    "cli.error.serve_option": "--{option} takes {accepted}, not {value!r}",
    "cli.error.chat_template": "cannot read the chat template {path}: {reason}",
    "cli.error.serve_aborted": "ended at once; requests that were running have been given up",
    # doctor
    "cli.help.doctor.short": "Look whether all that is needed is here, and a real vLLM can be explained.",
    "cli.help.doctor": "Look at Python, torch, the GPU and a real vLLM: which probes find their target in it, "
    "and what to do where something is wrong. Exit status 1 if something is.",
    "cli.help.doctor.json": "As JSON: a list of objects with name, status (good, note or bad), found, advice, details.",
    "doctor.python_old": "tracellm needs Python 3.11 or later",
    "doctor.torch_none": "cannot be imported ({error})",
    "doctor.torch_none_advice": "the engine here needs it: pip install torch. Reports of earlier runs do not",
    "doctor.gpu_none": "none; models run on the CPU",
    "doctor.vllm_none": "not installed",
    "doctor.vllm_none_advice": "only needed to explain a real vLLM: install tracellm where that is. "
    "Scripts for vLLM run without it: tracellm run --explain --engine tracellm SCRIPT",
    "doctor.plugin": "plugin of vLLM",
    "doctor.plugin_none": "no entry point in {group}",
    "doctor.plugin_none_advice": "processes that vLLM starts may miss the recording: install tracellm anew with pip, "
    "so that its entry points are known",
    "doctor.plugin_barred": "{variable} is {value!r}, so vLLM does not load tracellm's",
    "doctor.plugin_barred_advice": "add tracellm to it, or unset it",
    "doctor.probes": "probes for vLLM",
    "doctor.probes_looking": "looking for what they watch, by importing vLLM's modules: some 20 seconds ...",
    "doctor.probes_found": "{n:,} of {probes:probe|probes} found their target in vLLM {version}",
    "doctor.probes_missing_advice": "these functions are not in this version under any name that is known: "
    "reports lack what they would tell, and are right otherwise. A newer tracellm may know them",
    "doctor.probes_unread": "these modules cannot be imported here: whether their probes find a target is not known",
    "doctor.probes_unknown": "vLLM could not be looked at ({error})",
    "doctor.probes_unknown_advice": "see whether it can be used at all: python -c 'import vllm'",
    # export
    "cli.help.export.short": "Write a run in the form of another tool.",
    "cli.help.export": "Write a run in a form that another tool reads: a timeline, a flame graph, a table, a graph.",
    "cli.help.export.more": """\
RUN is a run folder, or the name of a run or a script in tracellm-runs/; without it, or as `latest`, the newest there.
FORMAT is one of:

\b
  chrome      a timeline of processes, threads and requests with arrows between them,
              for ui.perfetto.dev, chrome://tracing and vizviewer (JSON)
  perfetto    the same in Perfetto's own form, smaller (needs `pip install 'tracellm[perfetto]'`)
  otlp        OpenTelemetry spans: .json, .jsonl (a document a line) or .pb (protobuf), as --out ends
  speedscope  a flame graph for each thread, for www.speedscope.app
  csv         a table with a row for each span
  mermaid     the sequence diagram
  dot         the objects and who calls whom, for Graphviz

\b
Examples:
  tracellm export --to chrome
  tracellm export my-run --to otlp --out spans.pb
  tracellm export hello.py --to dot --detail step --out - | dot -Tsvg > objects.svg""",
    "cli.help.export.to": "The form: chrome, perfetto, otlp, speedscope, csv, mermaid or dot.",
    "cli.help.export.out": "The file; `-` for stdout; .gz at its end compresses. Default: export.* in the run folder.",
    "cli.help.export.detail": "Only calls down to this level: request, step, layer or kernel.",
    "cli.help.export.focus": "Only this class, what calls it and what it calls. May be repeated.",
    "export.written": "{path} ({size})",
    "export.how.chrome": "open it in https://ui.perfetto.dev (it stays on this machine), chrome://tracing or vizviewer",
    "export.how.perfetto": "open it in https://ui.perfetto.dev (it stays on this machine)",
    "export.how.otlp.json": "send it to a collector: "
    "curl -H 'Content-Type: application/json' --data-binary @{path} http://localhost:4318/v1/traces",
    "export.how.otlp.jsonl": "the collector's otlpjsonfile receiver reads it",
    "export.how.otlp.pb": "send it to a collector: "
    "curl -H 'Content-Type: application/x-protobuf' --data-binary @{path} http://localhost:4318/v1/traces",
    "export.how.speedscope": "open it in https://www.speedscope.app (it stays on this machine) "
    "or with npx speedscope {path}",
    "export.how.csv": "open it in a spreadsheet, or with pandas.read_csv({path!r})",
    "export.how.mermaid": "paste it into Markdown, as a code block of the language mermaid",
    "export.how.dot": "draw it: dot -Tsvg {path} > objects.svg",
    "export.dot.legend": "who calls whom, how often · bold: started it · dashed: messages · "
    "orange: once a request, yellow: once a step, green: once a layer, blue: an operation",
    # refusals
    "cli.error.export_to": "export to what? Say --to with one of {known}",
    "cli.error.export_format": "no format {value!r}: --to takes {known}",
    "cli.error.export_unwritable": "cannot write {path}: {reason}. Choose another file with --out FILE",
    "cli.error.export_needs": "--to {format} needs the package {package}, which is not installed. Say: "
    "pip install '{install}'",
}

ZH = {
    # cli
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
    # selection
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
    # serve
    "cli.help.serve.short": "以兼容 OpenAI 的 HTTP 接口提供模型服务；加上 --explain 则记录并解释。",
    "cli.help.serve": "通过 HTTP 提供 MODEL 的服务，接口与 OpenAI 和 `vllm serve` 兼容。",
    "cli.help.serve.more": """\
MODEL 是一个目录或 hub 上的名字；不给则用 tracellm 自带的模型。收到 SIGTERM 或 Ctrl-C 后，正在处理的请求会先做完。
推理引擎的设置都是与 vLLM 同名的选项，例如 --max-model-len。

\b
例如：
  tracellm serve
  tracellm serve --explain --out my-run --port 8001
  tracellm serve path/to/model --max-num-seqs 16 --api-key secret""",
    "serve.help.host": "监听的地址。默认 127.0.0.1，只服务本机。",
    "serve.help.port": "端口；0 表示任选一个空闲的。默认 8000",
    "serve.help.api_key": "只服务带有这个密钥的请求；可以重复给出。不给时看 VLLM_API_KEY，没有则不检查。",
    "serve.help.served_model_name": "请求里使用的模型名；可以重复给出。",
    "serve.help.allowed_origins": "哪些网站的脚本可以访问本服务（CORS），* 表示全部；可以重复给出，也可以写成 JSON。",
    "serve.help.uvicorn_log_level": "uvicorn 从哪一级开始写日志：debug、info、warning（默认）、error、critical。",
    "serve.help.disable_uvicorn_access_log": "在 info 和 debug 级别不为每个请求写一行日志。",
    "serve.help.root_path": "代理展示本服务时所用的路径。",
    "serve.help.response_role": "回答的角色。默认 assistant",
    "serve.help.chat_template": "代替模型自带模板的 Jinja 模板：一个文件，或模板本身。",
    "serve.help.chat_template_content_format": "模板得到的内容的形式：auto、string 或 openai。",
    "serve.help.trust_request_chat_template": "允许请求自带对话模板；模板是程序。",
    "serve.help.return_tokens_as_token_ids": "对数概率旁的 token 显示为 token_id:17。",
    "serve.help.enable_request_id_headers": "在每个响应里加上 X-Request-Id。",
    "serve.help.enable_prompt_tokens_details": "在用量里说明有多少 token 来自前缀缓存。",
    "serve.help.enable_force_include_usage": "在每个流里都给出用量。",
    "serve.help.shutdown_timeout": "收到 SIGTERM 或 Ctrl-C 后留给正在处理的请求的秒数。默认 30",
    "serve.help.max_request_bytes": "最多读取的请求正文字节数。默认 33554432",
    "serve.help.engine": "推理引擎的设置（与 LLM(...) 的相同）及其默认值",
    "serve.ready": """\
{model} 的服务地址是 {address}/v1（Ctrl-C 结束）。试一试：
  curl {address}/v1/chat/completions -H 'Content-Type: application/json' \
-d '{{"messages": [{{"role": "user", "content": "Hello"}}]}}'""",
    "cli.error.serve_option": "--{option} 接受 {accepted}，而不是 {value!r}",
    "cli.error.chat_template": "无法读取对话模板 {path}：{reason}",
    "cli.error.serve_aborted": "立即结束；放弃了正在处理的请求",
    # doctor
    "cli.help.doctor.short": "检查所需的一切是否就绪，以及能否解释真实的 vLLM。",
    "cli.help.doctor": "检查 Python、torch、GPU 和真实的 vLLM：哪些探针能在其中找到对象，以及有问题时该怎么做。"
    "有问题时退出状态为 1。",
    "cli.help.doctor.json": "以 JSON 输出：一个对象列表，"
    "含 name、status（good、note 或 bad）、found、advice、details。",
    "doctor.python_old": "tracellm 需要 Python 3.11 或更高版本",
    "doctor.torch_none": "无法导入（{error}）",
    "doctor.torch_none_advice": "这里的引擎需要它：pip install torch。查看以前的运行则不需要",
    "doctor.gpu_none": "没有；模型在 CPU 上运行",
    "doctor.vllm_none": "未安装",
    "doctor.vllm_none_advice": "只有解释真实的 vLLM 才需要：请把 tracellm 安装到 vLLM 所在的环境。"
    "为 vLLM 写的脚本没有它也能运行：tracellm run --explain --engine tracellm SCRIPT",
    "doctor.plugin": "vLLM 插件",
    "doctor.plugin_none": "{group} 中没有入口点",
    "doctor.plugin_none_advice": "vLLM 启动的进程可能不会加入记录：请用 pip 重新安装 tracellm，使其入口点可见",
    "doctor.plugin_barred": "{variable} 为 {value!r}，因此 vLLM 不加载 tracellm 的插件",
    "doctor.plugin_barred_advice": "请把 tracellm 加进去，或取消这个变量",
    "doctor.probes": "vLLM 的探针",
    "doctor.probes_looking": "正在导入 vLLM 的模块，查找它们要观察的函数：大约 20 秒……",
    "doctor.probes_found": "{probes:,} 个探针中有 {n:,} 个在 vLLM {version} 里找到了对象",
    "doctor.probes_missing_advice": "这个版本里没有这些函数（已知的其他名字也没有）："
    "报告缺少它们本应说明的内容，其余不受影响。更新的 tracellm 也许认识它们",
    "doctor.probes_unread": "这些模块在这里无法导入：不知道它们的探针能否找到对象",
    "doctor.probes_unknown": "无法检查 vLLM（{error}）",
    "doctor.probes_unknown_advice": "先看看它本身能否使用：python -c 'import vllm'",
    # export
    "cli.help.export.short": "把一次运行写成其他工具的格式。",
    "cli.help.export": "把一次运行写成其他工具能读的格式：时间线、火焰图、表格、关系图。",
    "cli.help.export.more": """\
RUN 是运行目录，或 tracellm-runs/ 里某次运行或某个脚本的名字；省略或写 `latest` 表示其中最新的一次。
FORMAT 是以下之一：

\b
  chrome      进程、线程和请求的时间线，带有相互之间的箭头，
              用 ui.perfetto.dev、chrome://tracing 或 vizviewer 打开（JSON）
  perfetto    同样的内容，Perfetto 自己的格式，更小（需要 `pip install 'tracellm[perfetto]'`）
  otlp        OpenTelemetry span：按 --out 的后缀写成 .json、.jsonl（每行一个文档）或 .pb（protobuf）
  speedscope  每个线程一张火焰图，用 www.speedscope.app 打开
  csv         表格，每个 span 一行
  mermaid     时序图
  dot         有哪些对象、谁调用谁，用 Graphviz 绘制

\b
例如：
  tracellm export --to chrome
  tracellm export my-run --to otlp --out spans.pb
  tracellm export hello.py --to dot --detail step --out - | dot -Tsvg > objects.svg""",
    "cli.help.export.to": "格式：chrome、perfetto、otlp、speedscope、csv、mermaid 或 dot。",
    "cli.help.export.out": "写到哪个文件；`-` 表示标准输出；以 .gz 结尾则压缩。默认写到运行目录里的 export.*。",
    "cli.help.export.detail": "只要到这一层为止的调用：request、step、layer 或 kernel。",
    "cli.help.export.focus": "只要这个类，以及调用它的和它调用的。可以重复给出。",
    "export.written": "{path}（{size}）",
    "export.how.chrome": "用 https://ui.perfetto.dev（文件不会离开本机）、chrome://tracing 或 vizviewer 打开",
    "export.how.perfetto": "用 https://ui.perfetto.dev 打开（文件不会离开本机）",
    "export.how.otlp.json": "发给收集器："
    "curl -H 'Content-Type: application/json' --data-binary @{path} http://localhost:4318/v1/traces",
    "export.how.otlp.jsonl": "收集器的 otlpjsonfile 接收器可以读它",
    "export.how.otlp.pb": "发给收集器："
    "curl -H 'Content-Type: application/x-protobuf' --data-binary @{path} http://localhost:4318/v1/traces",
    "export.how.speedscope": "用 https://www.speedscope.app 打开（文件不会离开本机），或者：npx speedscope {path}",
    "export.how.csv": "用电子表格打开，或用 pandas.read_csv({path!r}) 读取",
    "export.how.mermaid": "贴进 Markdown 里语言为 mermaid 的代码块",
    "export.how.dot": "绘制：dot -Tsvg {path} > objects.svg",
    "export.dot.legend": "谁调用谁、多少次 · 粗线：启动了它 · 虚线：消息 · "
    "橙：每个请求一次，黄：每步一次，绿：每层一次，蓝：单个运算",
    "cli.error.export_to": "要写成什么格式？请用 --to 给出 {known} 之一",
    "cli.error.export_format": "没有格式 {value!r}：--to 接受 {known}",
    "cli.error.export_unwritable": "无法写入 {path}：{reason}。请用 --out FILE 另选一个文件",
    "cli.error.export_needs": "--to {format} 需要软件包 {package}，但没有安装。请执行：pip install '{install}'",
}

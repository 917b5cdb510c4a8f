"""Texts of the command line: help, and one message for each kind of bad input."""

__all__ = ["EN", "ZH"]

EN = {
    # cli
    # help
    "cli.help": "Run a script that generates text, and see what the engine did and why.",
    "cli.help.help": "Show this help.",
    "cli.help.run.short": "Run a script, and record and explain it with --explain.",
    "cli.help.run": "Run SCRIPT like `python SCRIPT ARGS...`. With --explain, record and explain the run.",
    "cli.help.run.more": """\
Arguments after SCRIPT (or -m MODULE) are passed to it. tracellm itself prints to stderr.

\b
Examples:
  tracellm run --explain examples/hello.py
  tracellm run --explain --lang zh --out my-run examples/chat_batch.py
  tracellm run --explain --focus Scheduler -m my_package.job --its-option
  tracellm run --explain --detail step --ring 100000 long.py""",
    "cli.help.show.short": "Print the diagram, call tree, requests, steps, one step or the workers of a run.",
    "cli.help.show": "Print the sequence diagram (Mermaid), the call tree, the requests, the steps, the state of one "
    "step, or the workers of a recorded run.",
    "cli.help.show.more": """\
RUN is a run folder, or the name of a run or a script in tracellm-runs/. Default: `latest`, the newest run there.
torch is not needed.

\b
Examples:
  tracellm show hello.py steps
  tracellm show hello.py step 3
  tracellm show my-server requests
  tracellm show tree
  tracellm show my-run sequence --focus Scheduler --detail layer > diagram.mmd""",
    "cli.help.report.short": "Write the reports of a run again.",
    "cli.help.report": "Write sequence.mmd, calltree.txt and report.html again from the run folder.",
    "cli.help.report.more": """\
RUN is a run folder, or the name of a run or a script in tracellm-runs/. Default: `latest`, the newest run there.
torch is not needed.

\b
Examples:
  tracellm report
  tracellm report my-run --lang zh --open""",
    "cli.help.version": "Print the version.",
    "cli.help.explain": "Record the run and explain it: console log, call tree, sequence diagram, HTML report.",
    "cli.help.module": "Run this module like `python -m MODULE ARGS...`.",
    "cli.help.engine": "tracellm: `import vllm` imports tracellm's own engine, so a script for vLLM runs without vLLM.",
    "cli.help.model": "Use the model in the folder PATH in place of the model NAME. PATH `tiny`, `tiny-vl` or "
    "`tiny-tools` is a bundled model. Repeatable.",
    "cli.help.lang": "Language: en or zh. Default: TRACELLM_LANG, then the locale.",
    "cli.help.out": "Run folder: new, empty, or of an earlier run. Default: "
    "tracellm-runs/<script or serve>-<date>-<time>",
    "cli.help.detail": "Deepest level in the sequence diagram: request, step, layer or kernel.",
    "cli.help.focus": "Draw only this class, its callers and the calls it makes. Repeatable.",
    "cli.help.convert": "now (default): convert the records and write the reports when the run ends. later: convert "
    "them when a command first opens the run folder.",
    "cli.help.no_text": "Do not record prompts and generated text.",
    "cli.help.quiet": "Do not show the console log; problems are still reported.",
    "cli.help.brief": "Show the console log in about twenty lines: client, model, KV cache, changed steps, outputs.",
    "cli.help.live": "Show queues, token budget, KV cache and tokens per second at the foot of the terminal during the "
    "run.",
    "cli.help.verbose": "Show the explanations in the console log, also if you have seen them in an earlier run.",
    "cli.help.open": "Open report.html in the browser when it is written.",
    # after a run, besides the console's log
    "cli.report": "report: {path}",
    "cli.converting": "converting {folder}",
    "cli.open.none": "no browser found to open {path}",
    "cli.error.recorded_only": "the recording is in {folder}; `tracellm report {folder}` writes the report",
    # refusals
    "cli.error": "tracellm: {message}",
    "cli.error.see_help": "See `{command} --help`.",
    "cli.error.no_script": "no script to run; usage: tracellm run [--explain] SCRIPT [ARGS...], or -m MODULE",
    "cli.error.script_as_command": "there is no command {script}; to run a script: tracellm run {script}",
    "cli.error.misplaced": "passed on to {script}: {options}. Options of tracellm go before the script",
    "cli.error.script_missing": "there is no script {path}",
    "cli.error.vllm_missing": "vLLM is not installed for this Python, {python}. Install tracellm where vLLM is "
    "installed and use that tracellm; or use tracellm's own engine: tracellm run --engine tracellm ...",
    "cli.error.command_foreign": "{path} does not run with this Python, {python}, so it cannot be recorded. Install "
    "tracellm where {name} is installed and use that tracellm",
    "cli.error.script_unreadable": "cannot read the script {path}: {reason}",
    "cli.error.script_is_folder": "{path} is a folder without a __main__.py, so it cannot be run",
    "cli.error.only_explain": "{option} needs --explain",
    "cli.error.engine": "no engine {value!r}: --engine takes only tracellm; without it, a script uses the engine it "
    "imports",
    "cli.error.model_form": "--model {value!r} is not NAME=PATH, as in --model facebook/opt-125m=models/opt-125m",
    "cli.error.model_twice": "--model names {name} twice; give one folder for it",
    "cli.error.model_missing": "--model {name}: there is no folder {path}",
    "cli.error.model_no_config": "--model {name}: the folder {path} has no config.json, so it is not a model folder",
    "cli.error.vllm_command": "`{value}` is not available: with --engine tracellm, the vllm command only has "
    "`vllm serve MODEL`",
    "cli.error.lang": "no language {value!r}: {source} takes en or zh",
    "cli.error.detail": "no level {value!r}: --detail takes request, step, layer or kernel",
    "cli.error.focus": "no class {value!r} in this run; the classes are: {known}",
    "cli.error.out_not_folder": "--out {path} is a file; give a folder",
    "cli.error.out_taken": "--out {path} contains other files ({example}, ...) and is not a run folder; give a new "
    "folder",
    "cli.error.out_recording": "--out {path}: another run is recording there, and its recording would be lost. Wait "
    "until it ends, or give another folder",
    "cli.error.posix_only": "tracellm runs scripts on Linux and macOS, not on {system}. Recordings made there can be "
    "opened here: tracellm show, report, diff, check, export",
    "cli.error.convert_interrupted": "interrupted while converting {folder}. The records are complete; the next "
    "command that opens the folder converts them again",
    "cli.error.live_terminal": "--live needs a terminal on stderr of at least {columns} columns and {lines} lines; the "
    "log is shown instead",
    "cli.error.one_view": "{options} exclude each other; give one of them",
    "cli.error.open_later": "--convert later writes no report for --open; leave out one of them",
    "cli.error.out_unwritable": "cannot write the run folder {path}: {reason}. Choose another with --out DIR",
    "cli.error.no_runs": "there is no run in {folder} yet; `tracellm run --explain SCRIPT` makes one",
    "cli.error.show_what": "cannot show {value!r}: give sequence, tree, requests, steps, step N or workers, as in "
    "`tracellm show latest tree`",
    "cli.error.show_nothing": "nothing to show: give sequence, tree, requests, steps, step N or workers: "
    "`tracellm show steps`",
    "cli.error.show_what_of": "give the part of {run} to show: sequence, tree, requests, steps, step N or workers, "
    "as in `tracellm show {run} tree`",
    "cli.error.show_too_many": "show takes one run and sequence, tree, requests, steps, step N or workers; "
    "{value!r} is too many",
    "cli.error.show_which_step": "give the number of the step, as in `tracellm show step 3`; `tracellm show steps` "
    "lists all steps",
    "cli.error.step_unknown": "there is no step {value!r}; the steps of this run are {known}",
    "cli.error.step_none": "there is no step {value!r}: no step of this run was recorded",
    "cli.error.run_missing": "there is no run folder {path}: `tracellm run --explain SCRIPT` makes one, in "
    "tracellm-runs/",
    "cli.error.run_unknown": "there is no run {path}; the newest runs in {folder} are: {known}",
    "cli.error.run_folder": "{reason}",
    "cli.error.render": "{file} was not written: {reason}. {recorded}",
    "cli.error.manifest": "cannot finish {path}: {reason}. The records are kept",
    "cli.error.problem": "damaged recording: {problem}",
    "cli.error.recording": "problem in the recording: {problem}",
    "cli.error.unfinished": "this run did not finish: it was killed or is still running. Only what was recorded so far "
    "is shown",
    # selection
    # help
    "cli.help.record_detail": "Deepest level to record and draw: request, step, layer or kernel. Default: record all "
    "levels (in a long run, layers and kernels of the first steps only) and draw the most informative calls.",
    "cli.help.record_focus": "Record this class at every level, and everything else down to steps (or --detail). Draw "
    "only the class, its callers and the calls it makes. Repeatable.",
    "cli.help.only": "Record only calls that match: Class.method, Class, function or module; * and ? are wildcards. "
    "Repeatable.",
    "cli.help.skip": "Do not record calls that match; patterns as for --only. Repeatable.",
    "cli.help.ring": "Keep only the last N to 2N calls of each process; the report shows the number of dropped calls.",
    # refusals
    "cli.near": " The closest names: {names}.",
    "cli.error.ring": "--ring takes the number of calls to keep, 1 or more, not {value!r}",
    "cli.error.focus_unknown": "--focus: the engine has no class {value!r}.{near} A class of your own is shown only if "
    "it is marked with @tracellm.probe",
    "cli.error.focus_absent": "--focus {value!r}: no call of this class was recorded, so sequence.mmd ignores this "
    "option",
    "cli.error.pattern.unknown": "{option} {value!r} matches nothing that can be recorded: no Class.method, Class, "
    "function or module.{near} docs/spans.md lists all names",
    "cli.error.pattern.inherited": "{option} {value!r} excludes nothing: its methods are inherited from {names}. Skip "
    "those instead",
    "cli.error.pattern.left_out": "{option} {value!r} records nothing: --detail and --skip exclude all matching calls",
    # serve
    "cli.help.serve.short": "Serve a model with OpenAI's HTTP API, and record and explain it with --explain.",
    "cli.help.serve": "Serve MODEL over HTTP, compatible with OpenAI's API and with `vllm serve`.",
    "cli.help.serve.more": """\
MODEL is a directory or a hub id. Default: the bundled model. After SIGTERM or Ctrl-C, running requests finish first.
Engine options have vLLM's names, such as --max-model-len.

\b
Examples:
  tracellm serve
  tracellm serve --explain --out my-run --port 8001
  tracellm serve path/to/model --max-num-seqs 16 --api-key secret""",
    "serve.help.host": "Address to listen on. Default: 127.0.0.1, this machine only",
    "serve.help.port": "Port; 0 chooses a free one. Default: 8000",
    "serve.help.api_key": "API key that requests must have. Repeatable. Default: VLLM_API_KEY, or no key",
    "serve.help.served_model_name": "Name of the model in requests. Repeatable.",
    "serve.help.allowed_origins": "Website whose scripts may send requests (CORS), or *. Repeatable, or a JSON list.",
    "serve.help.uvicorn_log_level": "Log level of uvicorn: trace, debug, info, warning, error or critical. Default: "
    "warnings, and a line for each request",
    "serve.help.disable_uvicorn_access_log": "Do not log a line for each request.",
    "serve.help.enable_log_requests": "Log the parameters of each request; with --uvicorn-log-level debug the prompt.",
    "serve.help.max_log_len": "Maximum number of characters or token ids of a logged prompt.",
    "serve.help.ssl_certfile": "Certificate of TLS: serve https.",
    "serve.help.ssl_keyfile": "Private key of TLS, if it is not in the file of the certificate.",
    "serve.help.ssl_ca_certs": "Certificates by which those of clients are verified.",
    "serve.help.ssl_cert_reqs": "Certificates of clients: 0 (not asked for, default), 1 (optional) or 2 (required).",
    "serve.help.receive_timeout": "Seconds to wait for a request and for each part of its body. Default: 60",
    "serve.help.root_path": "Path of this server behind a proxy.",
    "serve.help.response_role": "Role of the answers. Default: assistant",
    "serve.help.enable_auto_tool_choice": "Let the model call tools of its own accord; needs --tool-call-parser.",
    "serve.help.tool_call_parser": "Form of tool calls: hermes, llama3_json, llama4_json, mistral or pythonic.",
    "serve.help.exclude_tools_when_tool_choice_none": "Leave tools out of the prompt if tool_choice is none.",
    "serve.help.chat_template": "Jinja chat template in place of the model's own: a file, or the template itself.",
    "serve.help.chat_template_content_format": "Format in which the template gets message contents: auto, string or "
    "openai.",
    "serve.help.trust_request_chat_template": "Accept chat templates in requests. A template is a program.",
    "serve.help.return_tokens_as_token_ids": "Show the tokens of log probabilities as token_id:17.",
    "serve.help.enable_request_id_headers": "Add X-Request-Id to every response.",
    "serve.help.enable_prompt_tokens_details": "Report prefix cache hits in the usage.",
    "serve.help.enable_force_include_usage": "Report the usage in every stream.",
    "serve.help.shutdown_timeout": "Seconds for running requests to finish after SIGTERM or Ctrl-C. Default: 30",
    "serve.help.max_request_bytes": "Maximum size of a request body in bytes. Default: 33554432",
    "serve.help.engine": "Engine options, as for LLM(...), with their defaults",
    "serve.ready": """\
{model} is served at {address}/v1 (Ctrl-C stops it). Try:
  curl {address}/v1/chat/completions -H 'Content-Type: application/json' \
-d '{{"messages": [{{"role": "user", "content": "Hello"}}]}}'""",
    "serve.ready.pooling": """\
{model} is served at {address}/v1 (Ctrl-C stops it). Try:
  curl {address}/v1/embeddings -H 'Content-Type: application/json' -d '{{"input": "Hello"}}'""",
    "cli.error.serve_option": "--{option} takes {accepted}, not {value!r}",
    "cli.error.vllm_option": "tracellm does not have {option}, which vLLM has: leave it out",
    "cli.error.chat_template": "cannot read the chat template {path}: {reason}",
    "cli.error.serve_aborted": "stopped at once; running requests were aborted",
    # doctor
    "cli.help.doctor.short": "Check the installation, and whether a real vLLM can be explained.",
    "cli.help.doctor": "Check Python, torch, the GPU and a real vLLM: which probes find their target in it. Suggest a "
    "remedy for each problem. Exit status 1 if there is a problem.",
    "cli.help.doctor.json": "Print JSON: a list of objects with name, status (good, note or bad), found, advice, "
    "details.",
    "doctor.python_old": "tracellm needs Python 3.11 or later",
    "doctor.torch_none": "cannot be imported ({error})",
    "doctor.torch_none_advice": "tracellm's engine needs it: pip install torch. Reports of earlier runs do not",
    "doctor.gpu_none": "none; models run on the CPU",
    "doctor.vllm_none": "not installed",
    "doctor.vllm_none_advice": "only needed to explain a real vLLM: install tracellm where vLLM is installed. Scripts "
    "for vLLM also run without it: tracellm run --explain --engine tracellm SCRIPT",
    "doctor.plugin": "vLLM plugin",
    "doctor.plugin_none": "no entry point in {group}",
    "doctor.plugin_none_advice": "processes that vLLM starts may be missing from the recording: reinstall tracellm "
    "with pip to register its entry points",
    "doctor.plugin_barred": "{variable} is {value!r}, so vLLM does not load the plugin of tracellm",
    "doctor.plugin_barred_advice": "add tracellm to it, or unset it",
    "doctor.probes": "probes for vLLM",
    "doctor.probes_looking": "importing vLLM's modules to find the targets of the probes: about 20 seconds ...",
    "doctor.probes_found": "{n:,} of {probes:probe|probes} found their target in vLLM {version}",
    "doctor.probes_missing_advice": "this version has no functions with these names or their known other names. "
    "Reports lack their data and are correct otherwise. A newer tracellm may support this version",
    "doctor.probes_unread": "these modules cannot be imported here, so the targets of their probes are unknown",
    "doctor.probes_unknown": "vLLM could not be checked ({error})",
    "doctor.probes_unknown_advice": "check whether it can be imported: python -c 'import vllm'",
    # export
    "cli.help.export.short": "Write a run in the format of another tool.",
    "cli.help.export": "Write a run in the format of another tool: a timeline, a flame graph, a table or a graph.",
    "cli.help.export.more": """\
RUN is a run folder, or the name of a run or a script in tracellm-runs/. Default: `latest`, the newest run there.
FORMAT is one of:

\b
  chrome      timeline of processes, threads and requests (JSON), for
              ui.perfetto.dev, chrome://tracing and vizviewer
  perfetto    the same in Perfetto's own format, smaller
              (needs `pip install 'tracellm[perfetto]'`)
  otlp        OpenTelemetry spans: .json, .jsonl (one document per line)
              or .pb (protobuf), by the name of --out
  speedscope  flame graph of each thread, for www.speedscope.app
  csv         table with a row for each span
  mermaid     sequence diagram
  dot         graph of the objects and their calls, for Graphviz

\b
Examples:
  tracellm export --to chrome
  tracellm export my-run --to otlp --out spans.pb
  tracellm export hello.py --to dot --out - | dot -Tsvg > objects.svg""",
    "cli.help.export.to": "Format: chrome, perfetto, otlp, speedscope, csv, mermaid or dot.",
    "cli.help.export.out": "Output file; `-` is stdout; a name ending in .gz is compressed. Default: export.* in the "
    "run folder",
    "cli.help.export.detail": "Deepest level to export: request, step, layer or kernel.",
    "cli.help.export.focus": "Export only this class, its callers and the calls it makes. Repeatable.",
    "export.written": "{path} ({size})",
    "export.how.chrome": "open it in https://ui.perfetto.dev (the file stays on this machine), chrome://tracing or "
    "vizviewer",
    "export.how.perfetto": "open it in https://ui.perfetto.dev (the file stays on this machine)",
    "export.how.otlp.json": "send it to a collector: "
    "curl -H 'Content-Type: application/json' --data-binary @{path} http://localhost:4318/v1/traces",
    "export.how.otlp.jsonl": "the collector's otlpjsonfile receiver reads it",
    "export.how.otlp.pb": "send it to a collector: "
    "curl -H 'Content-Type: application/x-protobuf' --data-binary @{path} http://localhost:4318/v1/traces",
    "export.how.speedscope": "open it in https://www.speedscope.app (the file stays on this machine) or with npx "
    "speedscope {path}",
    "export.how.csv": "open it in a spreadsheet, or with pandas.read_csv({path!r})",
    "export.how.mermaid": "paste it into Markdown as a `mermaid` code block",
    "export.how.dot": "draw it: dot -Tsvg {path} > objects.svg",
    "export.dot.legend": "caller → callee, with the number of calls · bold: caller started the callee · dashed: "
    "messages · orange: once per request, yellow: once per step, green: once per layer, blue: an operation",
    # refusals
    "cli.error.export_to": "no format given: --to takes {known}",
    "cli.error.export_format": "no format {value!r}: --to takes {known}",
    "cli.error.export_unwritable": "cannot write {path}: {reason}. Choose another file with --out FILE",
    "cli.error.export_needs": "--to {format} needs the package {package}, which is not installed: pip install "
    "'{install}'",
}

ZH = {
    # cli
    "cli.help": "运行一个生成文本的脚本，查看推理引擎做了什么、为什么这样做。",
    "cli.help.help": "显示帮助。",
    "cli.help.run.short": "运行一个脚本；加上 --explain 则记录并解释。",
    "cli.help.run": "像 `python SCRIPT ARGS...` 一样运行 SCRIPT。加上 --explain 则记录并解释整个运行。",
    "cli.help.run.more": """\
SCRIPT（或 -m MODULE）之后的参数都传给脚本。tracellm 自己的输出写到 stderr。

\b
例如：
  tracellm run --explain examples/hello.py
  tracellm run --explain --lang zh --out my-run examples/chat_batch.py
  tracellm run --explain --focus Scheduler -m my_package.job --its-option
  tracellm run --explain --detail step --ring 100000 long.py""",
    "cli.help.show.short": "打印一次运行的时序图、调用树、所有请求、所有 step、某一个 step 或各 worker。",
    "cli.help.show": "打印一次运行的时序图（Mermaid）、调用树、所有请求、所有 step、某一个 step 的状态，或各 worker。",
    "cli.help.show.more": """\
RUN 是运行目录，或 tracellm-runs/ 中某次运行或某个脚本的名字。默认为 `latest`，即其中最新的一次运行。不需要 torch。

\b
例如：
  tracellm show hello.py steps
  tracellm show hello.py step 3
  tracellm show my-server requests
  tracellm show tree
  tracellm show my-run sequence --focus Scheduler --detail layer > diagram.mmd""",
    "cli.help.report.short": "重新生成一次运行的报告。",
    "cli.help.report": "根据运行目录重新生成 sequence.mmd、calltree.txt 和 report.html。",
    "cli.help.report.more": """\
RUN 是运行目录，或 tracellm-runs/ 中某次运行或某个脚本的名字。默认为 `latest`，即其中最新的一次运行。不需要 torch。

\b
例如：
  tracellm report
  tracellm report my-run --lang zh --open""",
    "cli.help.version": "打印版本号。",
    "cli.help.explain": "记录并解释这次运行：控制台日志、调用树、时序图、HTML 报告。",
    "cli.help.module": "像 `python -m MODULE ARGS...` 一样运行模块。",
    "cli.help.engine": "tracellm：`import vllm` 导入 tracellm 自己的引擎，为 vLLM 写的脚本不需要 vLLM 就能运行。",
    "cli.help.model": "用目录 PATH 中的模型代替模型 NAME；PATH 为 `tiny`、`tiny-vl` 或 `tiny-tools` 时"
    "用内置模型。可重复。",
    "cli.help.lang": "语言：en 或 zh。默认取自 TRACELLM_LANG，其次取自系统的语言设置。",
    "cli.help.out": "运行目录：新目录、空目录，或以前某次运行的目录。默认 tracellm-runs/<脚本或 serve>-<日期>-<时间>",
    "cli.help.detail": "时序图画到哪一层：request、step、layer 或 kernel。",
    "cli.help.focus": "只画这个类、调用它的以及它调用的。可重复。",
    "cli.help.convert": "now（默认）：运行结束时转换记录并生成报告。later：首次有命令打开运行目录时再转换。",
    "cli.help.no_text": "不记录提示词和生成的文本。",
    "cli.help.quiet": "不显示控制台日志；仍会报告问题。",
    "cli.help.brief": "用二十行左右显示控制台日志：客户端、模型、KV 缓存、有变化的 step、输出。",
    "cli.help.live": "运行期间在终端底部显示队列、token 预算、KV 缓存和每秒 token 数。",
    "cli.help.verbose": "在控制台日志中显示讲解，即使以前的运行已经显示过。",
    "cli.help.open": "生成 report.html 后在浏览器中打开。",
    "cli.report": "报告：{path}",
    "cli.converting": "正在转换 {folder}",
    "cli.open.none": "没有找到可以打开 {path} 的浏览器",
    "cli.error.recorded_only": "记录保存在 {folder}；用 `tracellm report {folder}` 可生成报告",
    "cli.error": "tracellm：{message}",
    "cli.error.see_help": "请看 `{command} --help`。",
    "cli.error.no_script": "没有要运行的脚本。用法：tracellm run [--explain] SCRIPT [ARGS...]，或 -m MODULE",
    "cli.error.script_as_command": "没有命令 {script}；运行脚本请用：tracellm run {script}",
    "cli.error.misplaced": "已交给 {script}：{options}。tracellm 的选项要写在脚本之前",
    "cli.error.script_missing": "没有脚本 {path}",
    "cli.error.vllm_missing": "这个 Python（{python}）没有安装 vLLM。请把 tracellm 安装到 vLLM 所在的环境并在那里使用；"
    "或改用 tracellm 自己的引擎：tracellm run --engine tracellm ...",
    "cli.error.command_foreign": "{path} 用的不是这个 Python（{python}），无法记录。请把 tracellm 安装到 {name} "
    "所在的环境并在那里使用",
    "cli.error.script_unreadable": "无法读取脚本 {path}：{reason}",
    "cli.error.script_is_folder": "{path} 是没有 __main__.py 的目录，无法运行",
    "cli.error.only_explain": "{option} 需要和 --explain 一起使用",
    "cli.error.engine": "没有引擎 {value!r}：--engine 只接受 tracellm；不指定时使用脚本导入的引擎",
    "cli.error.model_form": "--model {value!r} 不符合 NAME=PATH 的形式，例如 --model facebook/opt-125m=models/opt-125m",
    "cli.error.model_twice": "--model 两次指定了 {name}；请只指定一个目录",
    "cli.error.model_missing": "--model {name}：没有目录 {path}",
    "cli.error.model_no_config": "--model {name}：目录 {path} 中没有 config.json，不是模型目录",
    "cli.error.vllm_command": "不支持 `{value}`：使用 --engine tracellm 时，vllm 命令只有 `vllm serve MODEL`",
    "cli.error.lang": "没有语言 {value!r}：{source} 只接受 en 或 zh",
    "cli.error.detail": "没有层级 {value!r}：--detail 接受 request、step、layer 或 kernel",
    "cli.error.focus": "本次运行中没有类 {value!r}；已有的类：{known}",
    "cli.error.out_not_folder": "--out {path} 是一个文件；请指定目录",
    "cli.error.out_taken": "--out {path} 中有其他文件（{example} 等），不是运行目录；请指定新目录",
    "cli.error.out_recording": "--out {path}：另一次运行正在这里记录，重用目录会丢失它的记录。请等它结束，"
    "或指定其他目录",
    "cli.error.posix_only": "tracellm 只能在 Linux 和 macOS 上运行脚本，不支持 {system}。那里的记录可以在这里打开："
    "tracellm show、report、diff、check、export",
    "cli.error.convert_interrupted": "转换 {folder} 时被中断。记录是完整的，下一个打开该目录的命令会重新转换",
    "cli.error.live_terminal": "--live 需要 stderr 是至少 {columns} 列、{lines} 行的终端；改为显示日志",
    "cli.error.one_view": "{options} 互相排斥；只能指定其中一个",
    "cli.error.open_later": "--convert later 不生成报告，--open 没有可打开的文件；请去掉其中一个",
    "cli.error.out_unwritable": "无法写入运行目录 {path}：{reason}。请用 --out DIR 指定其他目录",
    "cli.error.no_runs": "{folder} 中还没有运行；可用 `tracellm run --explain SCRIPT` 生成",
    "cli.error.show_what": "无法打印 {value!r}：可选 sequence、tree、requests、steps、step N 或 workers，"
    "如 `tracellm show tree`",
    "cli.error.show_nothing": "没有指定打印什么：sequence、tree、requests、steps、step N 或 workers，"
    "如 `tracellm show steps`",
    "cli.error.show_what_of": "没有指定打印 {run} 的哪一部分：请指定 sequence、tree、requests、steps、step N 或 "
    "workers，如 `tracellm show {run} tree`",
    "cli.error.show_too_many": "show 只接受一个运行和 sequence、tree、requests、steps、step N、workers 之一；"
    "多余：{value!r}",
    "cli.error.show_which_step": "请给出 step 的编号，如 `tracellm show step 3`；`tracellm show steps` 列出所有 step",
    "cli.error.step_unknown": "没有 step {value!r}；本次运行的 step 为 {known}",
    "cli.error.step_none": "没有 step {value!r}：本次运行没有记录到 step",
    "cli.error.run_missing": "没有运行目录 {path}：`tracellm run --explain SCRIPT` 会在 tracellm-runs/ 中生成一个",
    "cli.error.run_unknown": "没有运行 {path}；{folder} 中最新的运行：{known}",
    "cli.error.run_folder": "{reason}",
    "cli.error.render": "没有写出 {file}：{reason}。{recorded}",
    "cli.error.manifest": "无法写完 {path}：{reason}。记录仍然保留",
    "cli.error.problem": "记录有损坏：{problem}",
    "cli.error.recording": "记录中的问题：{problem}",
    "cli.error.unfinished": "本次运行没有结束：被强制终止，或仍在运行。这里只有目前已记录的内容",
    # selection
    "cli.help.record_detail": "记录和绘制到哪一层：request、step、layer 或 kernel。"
    "默认记录所有层级（长时间的运行只记录最初若干 step 的 layer 和 kernel），绘制最重要的调用。",
    "cli.help.record_focus": "记录这个类的所有层级，其余只记录到 step（或 --detail 指定的层级）。只画这个类、"
    "调用它的以及它调用的。可重复。",
    "cli.help.only": "只记录匹配的调用：Class.method、Class、函数或模块；* 和 ? 是通配符。可重复。",
    "cli.help.skip": "不记录匹配的调用，写法同 --only。可重复。",
    "cli.help.ring": "每个进程只保留最后 N 到 2N 次调用；报告会给出丢弃的次数。",
    "cli.near": "最接近的名字：{names}。",
    "cli.error.ring": "--ring 接受要保留的调用次数，至少为 1，不接受 {value!r}",
    "cli.error.focus_unknown": "--focus：引擎中没有类 {value!r}。{near}你自己的类只有用 @tracellm.probe 标记后才会显示",
    "cli.error.focus_absent": "--focus {value!r}：没有记录到这个类的调用，绘制 sequence.mmd 时忽略此选项",
    "cli.error.pattern.unknown": "{option} {value!r} 没有匹配任何可记录的 Class.method、Class、函数或模块。"
    "{near}全部名字见 docs/spans.md",
    "cli.error.pattern.inherited": "{option} {value!r} 没有排除任何调用：它的方法都继承自 {names}。请改为排除后者",
    "cli.error.pattern.left_out": "{option} {value!r} 不会记录任何调用：匹配的调用全部被 --detail 和 --skip 排除",
    # serve
    "cli.help.serve.short": "以兼容 OpenAI 的 HTTP 接口提供模型服务；加上 --explain 则记录并解释。",
    "cli.help.serve": "通过 HTTP 提供 MODEL 的服务，接口兼容 OpenAI 和 `vllm serve`。",
    "cli.help.serve.more": """\
MODEL 是目录或 hub id。默认使用内置模型。收到 SIGTERM 或 Ctrl-C 后，先完成运行中的请求。
引擎选项与 vLLM 同名，例如 --max-model-len。

\b
例如：
  tracellm serve
  tracellm serve --explain --out my-run --port 8001
  tracellm serve path/to/model --max-num-seqs 16 --api-key secret""",
    "serve.help.host": "监听的地址。默认 127.0.0.1，仅限本机",
    "serve.help.port": "端口；0 表示任选一个空闲端口。默认 8000",
    "serve.help.api_key": "请求必须携带的 API key。可重复。默认取自 VLLM_API_KEY，没有则不检查",
    "serve.help.served_model_name": "请求中使用的模型名。可重复。",
    "serve.help.allowed_origins": "允许哪些网站的脚本发送请求（CORS），* 表示全部。可重复，也可以是 JSON 列表。",
    "serve.help.uvicorn_log_level": "uvicorn 的日志级别：trace、debug、info、warning、error 或 critical。"
    "默认：警告，以及每个请求一行",
    "serve.help.disable_uvicorn_access_log": "不为每个请求写一行日志。",
    "serve.help.enable_log_requests": "记录每个请求的参数；加 --uvicorn-log-level debug 时还记录提示词。",
    "serve.help.max_log_len": "日志中提示词的最大字符数或 token 数。",
    "serve.help.ssl_certfile": "TLS 证书：以 https 提供服务。",
    "serve.help.ssl_keyfile": "TLS 私钥（若不在证书文件中）。",
    "serve.help.ssl_ca_certs": "用来验证客户端证书的证书。",
    "serve.help.ssl_cert_reqs": "客户端证书：0（不要求，默认）、1（可选）或 2（必需）。",
    "serve.help.receive_timeout": "等待请求及其正文每一部分的秒数。默认：60",
    "serve.help.root_path": "本服务在代理后面的路径。",
    "serve.help.response_role": "回答的角色。默认 assistant",
    "serve.help.enable_auto_tool_choice": "允许模型自行决定调用工具；需要 --tool-call-parser。",
    "serve.help.tool_call_parser": "模型输出工具调用的格式：hermes、llama3_json、llama4_json、mistral 或 pythonic。",
    "serve.help.exclude_tools_when_tool_choice_none": "tool_choice 为 none 时，不把工具放进提示词。",
    "serve.help.chat_template": "代替模型自带对话模板的 Jinja 模板：一个文件，或模板本身。",
    "serve.help.chat_template_content_format": "模板接收消息内容的形式：auto、string 或 openai。",
    "serve.help.trust_request_chat_template": "接受请求自带的对话模板。模板是可执行的程序。",
    "serve.help.return_tokens_as_token_ids": "把对数概率中的 token 显示为 token_id:17。",
    "serve.help.enable_request_id_headers": "在每个响应中加上 X-Request-Id。",
    "serve.help.enable_prompt_tokens_details": "在用量中报告前缀缓存命中的 token 数。",
    "serve.help.enable_force_include_usage": "在每个流中都报告用量。",
    "serve.help.shutdown_timeout": "收到 SIGTERM 或 Ctrl-C 后，等待运行中的请求完成的秒数。默认 30",
    "serve.help.max_request_bytes": "请求正文的最大字节数。默认 33554432",
    "serve.help.engine": "引擎选项（与 LLM(...) 相同）及其默认值",
    "serve.ready": """\
{model} 的服务地址是 {address}/v1（Ctrl-C 停止）。试一试：
  curl {address}/v1/chat/completions -H 'Content-Type: application/json' \
-d '{{"messages": [{{"role": "user", "content": "Hello"}}]}}'""",
    "serve.ready.pooling": """\
{model} 的服务地址是 {address}/v1（Ctrl-C 停止）。试一试：
  curl {address}/v1/embeddings -H 'Content-Type: application/json' -d '{{"input": "Hello"}}'""",
    "cli.error.serve_option": "--{option} 接受 {accepted}，不接受 {value!r}",
    "cli.error.vllm_option": "tracellm 没有 vLLM 的选项 {option}：请去掉它",
    "cli.error.chat_template": "无法读取对话模板 {path}：{reason}",
    "cli.error.serve_aborted": "已立即停止；运行中的请求被中止",
    # doctor
    "cli.help.doctor.short": "检查安装，以及能否解释真实的 vLLM。",
    "cli.help.doctor": "检查 Python、torch、GPU 和真实的 vLLM：哪些探针能在其中找到目标。每个问题都给出解决办法。"
    "有问题时退出状态为 1。",
    "cli.help.doctor.json": "以 JSON 格式打印：对象列表，含 name、status（good、note 或 bad）、found、advice、"
    "details。",
    "doctor.python_old": "tracellm 需要 Python 3.11 或更高版本",
    "doctor.torch_none": "无法导入（{error}）",
    "doctor.torch_none_advice": "tracellm 的引擎需要它：pip install torch。查看以前的报告则不需要",
    "doctor.gpu_none": "没有；模型在 CPU 上运行",
    "doctor.vllm_none": "未安装",
    "doctor.vllm_none_advice": "只有解释真实的 vLLM 才需要：请把 tracellm 安装到 vLLM 所在的环境。为 vLLM "
    "写的脚本没有它也能运行：tracellm run --explain --engine tracellm SCRIPT",
    "doctor.plugin": "vLLM 插件",
    "doctor.plugin_none": "{group} 中没有入口点",
    "doctor.plugin_none_advice": "vLLM 启动的进程可能不在记录中：请用 pip 重新安装 tracellm，以注册它的入口点",
    "doctor.plugin_barred": "{variable} 为 {value!r}，因此 vLLM 不加载 tracellm 的插件",
    "doctor.plugin_barred_advice": "请把 tracellm 加入这个变量，或取消设置",
    "doctor.probes": "vLLM 的探针",
    "doctor.probes_looking": "正在导入 vLLM 的模块，查找探针的目标：大约 20 秒……",
    "doctor.probes_found": "{probes:,} 个探针中有 {n:,} 个在 vLLM {version} 中找到了目标",
    "doctor.probes_missing_advice": "这个版本中没有这些函数，用已知的别名也找不到。报告缺少相应的数据，"
    "其余内容仍然正确。新版 tracellm 可能支持这个版本",
    "doctor.probes_unread": "这些模块在这里无法导入，因此不知道其中的探针能否找到目标",
    "doctor.probes_unknown": "无法检查 vLLM（{error}）",
    "doctor.probes_unknown_advice": "请检查能否导入：python -c 'import vllm'",
    # export
    "cli.help.export.short": "把一次运行导出为其他工具的格式。",
    "cli.help.export": "把一次运行导出为其他工具的格式：时间线、火焰图、表格或关系图。",
    "cli.help.export.more": """\
RUN 是运行目录，或 tracellm-runs/ 中某次运行或某个脚本的名字。默认为 `latest`，即其中最新的一次运行。
FORMAT 是以下之一：

\b
  chrome      进程、线程和请求的时间线（JSON），
              用 ui.perfetto.dev、chrome://tracing 或 vizviewer 打开
  perfetto    同样的内容，Perfetto 自己的格式，文件更小
              （需要 `pip install 'tracellm[perfetto]'`）
  otlp        OpenTelemetry span，格式由 --out 的后缀决定：
              .json、.jsonl（每行一个文档）或 .pb（protobuf）
  speedscope  每个线程一张火焰图，用 www.speedscope.app 打开
  csv         表格，每个 span 一行
  mermaid     时序图
  dot         对象及其调用的关系图，用 Graphviz 绘制

\b
例如：
  tracellm export --to chrome
  tracellm export my-run --to otlp --out spans.pb
  tracellm export hello.py --to dot --out - | dot -Tsvg > objects.svg""",
    "cli.help.export.to": "格式：chrome、perfetto、otlp、speedscope、csv、mermaid 或 dot。",
    "cli.help.export.out": "输出文件；`-` 表示标准输出；以 .gz 结尾则压缩。默认写到运行目录中的 export.*",
    "cli.help.export.detail": "导出到哪一层：request、step、layer 或 kernel。",
    "cli.help.export.focus": "只导出这个类、调用它的以及它调用的。可重复。",
    "export.written": "{path}（{size}）",
    "export.how.chrome": "用 https://ui.perfetto.dev（文件不会离开本机）、chrome://tracing 或 vizviewer 打开",
    "export.how.perfetto": "用 https://ui.perfetto.dev 打开（文件不会离开本机）",
    "export.how.otlp.json": "发送到 collector：curl -H 'Content-Type: application/json' --data-binary @{path} "
    "http://localhost:4318/v1/traces",
    "export.how.otlp.jsonl": "可由 collector 的 otlpjsonfile 接收器读取",
    "export.how.otlp.pb": "发送到 collector：curl -H 'Content-Type: application/x-protobuf' --data-binary @{path} "
    "http://localhost:4318/v1/traces",
    "export.how.speedscope": "用 https://www.speedscope.app 打开（文件不会离开本机），或者：npx speedscope {path}",
    "export.how.csv": "用电子表格打开，或用 pandas.read_csv({path!r}) 读取",
    "export.how.mermaid": "粘贴到 Markdown 的 `mermaid` 代码块中",
    "export.how.dot": "绘制：dot -Tsvg {path} > objects.svg",
    "export.dot.legend": "调用方 → 被调用方，附调用次数 · 粗线：调用方启动了对方 · 虚线：消息 · "
    "橙：每个请求一次，黄：每个 step 一次，绿：每层一次，蓝：单个算子",
    "cli.error.export_to": "没有指定格式：--to 接受 {known}",
    "cli.error.export_format": "没有格式 {value!r}：--to 接受 {known}",
    "cli.error.export_unwritable": "无法写入 {path}：{reason}。请用 --out FILE 指定其他文件",
    "cli.error.export_needs": "--to {format} 需要软件包 {package}，但没有安装：pip install '{install}'",
}

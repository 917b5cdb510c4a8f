"""Texts of `tracellm export`: a run in the forms of other tools."""

__all__ = ["EN", "ZH"]

EN = {
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

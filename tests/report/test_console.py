"""The live console: its lines for each span, on a terminal and in a pipe, in both languages."""

import dataclasses
import io
import re
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from tqdm import tqdm  # type: ignore[import-untyped]

import tracellm
from tests.conftest import Golden
from tests.report.processes import sync_run
from tests.report.synthetic import HOSTILE, MANIFEST, a_run
from tests.report.traces import Calls, step_facts
from tracellm.engine.config.vllm_config import OpsReason
from tracellm.report.console import Console
from tracellm.report.console.boxes import client_rows, kv_rows, load_rows
from tracellm.report.console.terminal import Terminal
from tracellm.report.facts.startup import ClientChoice, KVCache, ModelLoad, engine_config, model_load
from tracellm.report.texts import LANGUAGES, text, texts
from tracellm.report.texts.client import CODE
from tracellm.trace import names
from tracellm.trace.model import Process, Span, Trace
from tracellm.trace.steps import STEP_SPAN

GOLDEN = Path(__file__).parent / "golden"


class TerminalStream(io.StringIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


def _say(spans: list[Span], lang: Any = "en", stream: io.StringIO | None = None, **manifest: Any) -> str:
    stream = stream or io.StringIO()
    _feed(Console(lang, stream=stream), spans, **manifest)
    return stream.getvalue()


def _feed(console: Console, spans: list[Span], **manifest: Any) -> None:
    for span in spans:
        console(span)
    console.finish(MANIFEST | manifest, Path("runs/one/report.html"), Trace(spans))


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_whole_run_in_a_pipe(lang, golden: Golden):
    """In a pipe the log is plain text of at most 80 columns, without escape codes or trailing blanks."""
    said = _say(a_run(), lang)
    golden(GOLDEN / f"console-{lang}.txt", said)
    assert not re.search("[\x1b\u2500-\u257f]| $", said, re.MULTILINE)
    assert all(cell_len(line) <= 80 for line in said.splitlines())


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_brief_run(lang, golden: Golden):
    """The brief log of three prompts has at most 25 lines: start-up, steps, outputs, and the report."""
    stream = io.StringIO()
    prompts, outputs = ("The capital of France is", "The sky is", "法国的首都是"), (" Paris.", " blue\n", "巴黎。")
    _feed(Console(lang, stream=stream, brief=True), a_run(prompts=prompts, outputs=outputs))
    golden(GOLDEN / f"console-brief-{lang}.txt", stream.getvalue())
    assert len(stream.getvalue().splitlines()) <= 25
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("columns", [40, 80, 140])
def test_brief_lines_are_cut_at_the_terminal(lang, columns: int, monkeypatch: pytest.MonkeyPatch):
    """On a terminal, each group of steps and each output is one line that fits."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    spans = a_run(prompts=["p" * 200, "法国" * 50], outputs=["o" * 200, "巴黎" * 50])
    steps = [span for span in spans if span.name == STEP_SPAN]
    steps[3].attributes |= {names.STEP_NEW: ["7" * 200]}
    stream = TerminalStream()
    _feed(Console(lang, stream=stream, brief=True), spans)
    lines = re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue()).splitlines()
    assert all(cell_len(line) <= columns or line.startswith(("Report", "报告")) for line in lines)
    assert sum(line.startswith(("Step", "第")) for line in lines) == 7
    assert sum(line.startswith(("Output", "输出")) for line in lines) == 2


@pytest.mark.parametrize("text", [True, False])
def test_the_outputs_of_many_requests_are_counted(text: bool):
    """The brief log shows eight outputs and the number of the others; without text, the number of tokens."""
    stream = io.StringIO()
    _feed(Console(stream=stream, brief=True), a_run(prompts=["p"] * 50, outputs=["o"] * 50, decode_steps=2, text=text))
    outputs = [line for line in stream.getvalue().splitlines() if line.startswith(("Output", "..."))]
    assert outputs[0] == ('Output 0: "p" → "o"' if text else "Output 0: → 2 tokens")
    assert len(outputs) == 9
    assert outputs[-1] == "... and 42 more"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_explanations_can_be_left_out(lang):
    """Without explanations the client's box has its inputs and the rule; the console remembers which it printed."""
    silent, explaining = Console(lang, io.StringIO(), explain=False), Console(lang, io.StringIO())
    for console in (silent, explaining):
        _feed(console, a_run())
    assert (silent.has_explained, explaining.has_explained) == (False, True)
    choice = ClientChoice(False, False, "UniProcExecutor", "InprocClient")
    facts = client_rows(choice, lang, explain=False)
    assert [row.heading for row in facts] == [texts(lang)["client.inputs"], texts(lang)["client.rule"]]
    assert facts == client_rows(choice, lang)[1:3]
    for unseen in (Console(lang, io.StringIO(), quiet=True), Console(lang, io.StringIO(), brief=True)):
        _feed(unseen, a_run())
        assert not unseen.has_explained


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("columns", [40, 80, 140])
def test_boxes_fit_their_terminal(lang, columns: int, monkeypatch: pytest.MonkeyPatch):
    """Every line fits the terminal, and all lines of a box have the same width, in Chinese too."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    said = re.sub(r"\x1b\[[\d;]*m", "", _say(a_run(), lang, TerminalStream()))
    lines = said.splitlines()
    widths = {cell_len(line) for line in lines if line[:1] in ("╭", "│", "╰")}
    assert widths == {min(columns, 104)}
    assert all(cell_len(line) <= columns or line.startswith(("Report", "报告")) for line in lines)


@pytest.mark.parametrize("terminal", [False, True], ids=["in a pipe", "on a terminal"])
def test_a_progress_bar_has_its_own_line(terminal: bool, monkeypatch: pytest.MonkeyPatch):
    """A message is printed once, below a drawn bar in a pipe, and above it on a terminal."""
    monkeypatch.setenv("TERM", "xterm")
    stream = TerminalStream() if terminal else io.StringIO()
    console = Terminal(stream, quiet=False)
    bar = tqdm(total=2, file=stream, ascii=True, ncols=40)
    console.line("one")
    console.line("two")
    bar.update(2)
    bar.close()
    before, _, after = stream.getvalue().partition("one")
    assert before.endswith("\r" if terminal else "]\n")
    assert (before + after).count("\n") == (3 if terminal else 4)


@pytest.mark.parametrize("terminal", [False, True], ids=["in a pipe", "on a terminal"])
def test_a_bar_that_waits_to_be_drawn_is_left_alone(terminal: bool, monkeypatch: pytest.MonkeyPatch):
    """A message does not draw a delayed progress bar, such as that of `LLM.generate`."""
    monkeypatch.setenv("TERM", "xterm")
    stream = TerminalStream() if terminal else io.StringIO()
    bar = tqdm(total=2, file=stream, ascii=True, ncols=40, delay=3600.0)
    Terminal(stream, quiet=False).line("one")
    bar.close()
    assert [line.rstrip() for line in stream.getvalue().split("\n")] == ["one", ""]


def test_the_client_comes_before_what_it_holds():
    """Start-up is reported from the outermost span to the innermost, although spans end inside out."""
    titles = re.findall("^== (.*?)[:=]", _say(a_run()), re.MULTILINE)
    assert titles[:3] == ["Client", "Model load", "KV cache "]


def two_processes() -> tuple[Span, list[Span], list[Span]]:
    """Return spans of two processes: the choice of the client, the engine's start-up, and its steps."""
    engine = Process(11, "EngineCore_0")
    spans = [replace(span, process=engine) for span in a_run() if span.name != names.REQUEST_SPAN]
    chooser = next(span for span in spans if names.CLIENT_CHOICE in span.attributes)
    chooser.attributes |= {names.CLIENT_MULTIPROCESS: True, names.CLIENT_CHOICE: "SyncMPClient"}
    chooser.process = Process(10, "main")
    first = next(i for i, span in enumerate(spans) if span.name in ("EngineCore._schedule", STEP_SPAN))
    return chooser, [span for span in spans[:first] if span is not chooser], spans[first:]


def titles(spans: list[Span]) -> list[str]:
    """Return the titles of all boxes and the beginnings of the step lines, in order."""
    return re.findall(r"(?m)^(?:== )?((?:Client|Model load|KV cache|Steps?)\b)", _say(spans))


IN_ORDER = ["Client", "Model load", "KV cache"]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_processes_may_be_read_in_any_order(lang: str):
    """Start-up is complete, once, and before the steps, in whichever order the processes are read."""
    chooser, startup, steps = two_processes()
    orders = [[chooser, *startup, *steps], [*startup, chooser, *steps], [*startup, *steps, chooser]]
    orders += [[*startup[:at], chooser, *startup[at:], *steps] for at in range(len(startup))]
    orders += [[*steps, chooser, *startup], [*steps, *startup, chooser], [steps[0], chooser, *steps[1:], *startup]]
    expected = _say(orders[0], lang)
    assert titles(orders[0])[:3] == IN_ORDER
    for spans in orders:
        assert _say(spans, lang) == expected


@pytest.mark.parametrize(
    ("maker", "arguments", "origins"),
    [
        ("LLM.__init__", ["max_num_seqs=3"], ["argument", "default"]),
        ("AsyncLLM.__init__", ["max_num_seqs=3"], ["argument", "default"]),
        ("AsyncLLM.__init__", ["vllm_config=VllmConfig"], ["", ""]),
    ],
)
def test_a_setting_has_its_origin(maker: str, arguments: list[str], origins: list[str]):
    """A setting is an argument or a default; its origin is unknown if the engine was made from a whole VllmConfig."""
    calls = Calls()
    config: dict[str, Any] = {names.CONFIG: ["max_num_seqs=3", "seed=0"]}
    with calls(maker, "request", args=arguments):
        calls.leaf("EngineArgs.create_engine_config", **config)
    assert [setting.origin for setting in engine_config(calls.spans)] == origins


def test_steps_wait_for_a_start_up_only_so_long():
    """Without a recorded start-up, all steps are still printed, in order."""
    engine = Calls(process=Process(11, "EngineCore_0"))
    for index in range(1, 301):
        engine.leaf("EngineCore.step_fn", **step_facts(index, ["0"], new=index == 1))
    stream = io.StringIO()
    console = Console(stream=stream)
    for span in engine.spans[:100]:
        console(span)
    assert "Step 1: prefill" in stream.getvalue()
    said = _say(engine.spans)
    assert re.findall(r"(?m)^(?:== )?Steps? [^,:]*", said) == ["== Step 1", "== Step 2", "Steps 3-300"]


def test_steps_of_a_script_that_made_no_engine_are_not_held_back():
    """Steps of the script's own process are printed as they end."""
    calls = Calls(process=Process(1, "main"))
    calls.leaf("EngineCore.step_fn", **step_facts(1, ["0"], new=True))
    stream = io.StringIO()
    Console(stream=stream)(calls.spans[0])
    assert "Step 1: prefill" in stream.getvalue()


def test_what_was_loaded_is_said_even_when_start_up_fails():
    """A run that fails in start-up still reports the loaded model."""
    spans = [span for span in a_run() if span.attributes.keys() & {names.LOAD_FILES, names.LOAD_BYTES}]
    error = {"type": "EngineError", "message": "no memory", "file": "capital.py", "line": 3}
    said = _say(spans, status="failed", error=error)
    assert "11.5 MB in 75 tensors" in said
    assert "run failed" in said
    assert said.splitlines()[-1] == "capital.py:3: EngineError: no memory"


def test_an_exit_status_is_said_where_no_exception_is():
    """The summary has the exit status of `sys.exit(3)`, and "terminated" after SIGTERM."""
    assert "run failed with exit status 3: " in _say([], status="failed", exit_status=3, error=None)
    assert "run terminated: " in _say([], status="terminated", exit_status=143, error=None)


def test_quiet_says_nothing():
    """With --quiet, nothing is written, not even the summary."""
    stream = io.StringIO()
    console = Console(stream=stream, quiet=True)
    for span in a_run():
        console(span)
    console.finish(MANIFEST, Path("report.html"))
    assert stream.getvalue() == ""


def test_it_writes_to_stderr_only(capsys: pytest.CaptureFixture[str]):
    """The console writes to stderr only."""
    console = Console()
    for span in a_run():
        console(span)
    console.finish(MANIFEST)
    out, err = capsys.readouterr()
    assert out == ""
    assert "InprocClient" in err


def test_a_closed_stderr_stops_the_console_and_nothing_else():
    """A stream closed early, as by `2>&1 | head`, stops only the console."""
    stream = io.StringIO()
    console = Console(stream=stream)
    stream.close()
    for span in a_run():
        console(span)
    console.finish(MANIFEST)


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("bad", HOSTILE)
def test_text_is_shown_as_it_is(bad: str, terminal: bool):
    """Markup and emoji codes are printed literally, and control characters are escaped."""
    said = _say(a_run(prompts=(bad, bad), decode_steps=2), stream=TerminalStream() if terminal else None)
    said = re.sub(r"\x1b\[[\d;]*m", "", said)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", said)
    expected = {0: "<script>document.title='owned'", 3: "{{ 7 * 7 }} {% raw %} ${7*7}", 4: r"\e[31mred\e[0m \x00"}
    if (start := expected.get(HOSTILE.index(bad))) is not None:
        assert f'" {start}' in said


def test_steps_in_which_nothing_changed_share_a_line():
    """Each step is printed once and in order, folded or not."""
    said = _say(a_run(decode_steps=40))
    numbers: list[int] = []
    for first, last in re.findall(r"^(?:== )?Steps? (\d+)(?:-(\d+))?:", said, re.MULTILINE):
        numbers += range(int(first), int(last or first) + 1)
    assert numbers == list(range(1, 42))
    assert said.count("\nStep") == 4


def test_steps_of_several_engines_are_told_apart():
    """With several engines each line names its engine, and changes are found within one engine."""
    one, other = Calls(process=Process(11, "EngineCore_0")), Calls(process=Process(12, "EngineCore_0"))
    for calls in (one, other):
        for index in (1, 2, 3):
            calls.leaf("EngineCore.step_fn", **step_facts(index, ["0"], new=index == 1))
    said = _say([*one.spans[:2], *other.spans, *one.spans[2:]])
    assert re.findall(r"(?m)^(?:== )?(?:Engine \d: )?Steps? [^,]*", said) == [
        "== Step 1: prefill", "== Step 2: decode", "Engine 2: Step 1: prefill", "Engine 2: Steps 2-3: decode",
        "Engine 1: Step 3: decode",
    ]  # fmt: skip
    assert said.count("request 0 joined") == 2


def test_a_change_is_told_where_it_happened():
    """Each change of a request has its own line below the step, with its numbers."""
    spans = a_run(decode_steps=6)
    steps = [span for span in spans if span.name == "EngineCore.step_fn"]
    steps[3].attributes |= {
        names.STEP_PREEMPTED: ["1"],
        names.STEP_RESUMED: ["0"],
        names.STEP_NEW: ["7"],
        names.STEP_HELD: ["1", "8", "9", "10"],
        names.STEP_HELD_REASONS: ["token_budget", "no_free_blocks", "behind", "of_the_future"],
        names.STEP_HELD_DETAILS: [
            "budget=9 left=1 wanted=4 given=1",
            "needed=3 free=1",
            "request=8 cause=no_free_blocks",
            "moon=full",
        ],
    }
    said = _say(spans)
    below = said.split("Step 4: ")[1].split("\nStep")[0].splitlines()[1:]
    assert [line.strip() for line in below] == [
        "request 7 joined",
        "request 0 resumed",
        "request 1 preempted, KV cache blocks freed",
        "request 1 partly scheduled: 1 of 4 tokens: the token budget of 9 had 1 left",
        "request 8 not scheduled: needs 3 KV cache blocks, 1 free",
        "request 9 not scheduled: behind request 8, which waits for KV cache blocks",
        "request 10 not scheduled: of_the_future (moon=full)",
        "request 0 finished: stop (end token or stop string)",
    ]


def test_random_ids_are_cut():
    """Random request ids are cut to the digits that distinguish them."""
    first, second, other = ("5f0c" + digit * 28 for digit in "a1b")
    ids = [f"chatcmpl-{first}", f"chatcmpl-{second}", f"0_cmpl-{other}-0", f"1_cmpl-{other}-0", "7"]
    calls = Calls()
    facts = step_facts(1, ids, new=True, last=True)
    facts[names.STEP_HELD] = [ids[1]]
    facts[names.STEP_HELD_REASONS] = ["preempted"]
    facts[names.STEP_HELD_DETAILS] = [f"by={ids[0]} needed=3 free=1"]
    calls.leaf("EngineCore.step_fn", **facts)
    said = _say(calls.spans)
    assert not re.search("[0-9a-f]{8}", said)
    shown = " ".join(said.split())
    assert "requests chatcmpl-5f0c, chatcmpl-5f0c1, 0_cmpl-5f0cb-0, 1_cmpl-5f0cb-0, 7 joined" in shown
    assert "its KV cache blocks went to request chatcmpl-5f0c, which" in shown
    assert "requests chatcmpl-5f0c, chatcmpl-5f0c1, 0_cmpl-5f0cb-0, 1_cmpl-5f0cb-0, 7 finished" in shown


def test_many_requests_are_counted():
    """A step with fifty requests shows some of them and the number of the rest."""
    said = _say(a_run(prompts=["p"] * 50, decode_steps=2))
    assert "requests 0, 1, 2, 3, 4, 5 and 44 more joined" in said
    assert said.count("... and 45 more") == 4


def test_without_text_the_token_is_told_by_its_probability():
    """Without recorded text, a note replaces the sampled token."""
    assert "0: a token (recorded without text)  97.3%" in _say(a_run(text=False))


def test_bare_spans_do_no_harm():
    """Spans without attributes are printed as far as possible."""
    bare = [Span(name, "1" * 32, name, None, 0, 10) for name in ("EngineCore.step_fn", "llm_request")]
    assert "1 request" in _say(bare, status="gone", duration_s=None, error="?")


def test_lines_stand_in_the_order_of_the_run():
    """A step's line is complete before the next one begins."""
    starts = [int(first) for first in re.findall(r"Steps? (\d+)", _say(a_run(decode_steps=30)))]
    assert all(before < after for before, after in pairwise(starts))


@pytest.mark.parametrize("lang", LANGUAGES)
def test_groups_of_layers_share_the_blocks(lang):
    """With groups of layers, the number of tokens that fit is divided by the number of groups."""
    assert "65,520" in "".join(kv_rows(KVCache(4096, 16, 1, None, None), lang)[0].lines)
    blocks, groups = kv_rows(KVCache(4096, 16, 6, None, None), lang)
    assert "10,912" in "".join(blocks.lines)  # 4,095 // 6 * 16
    assert "6" in "".join(groups.lines)


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize(
    ("choice", "classes", "real"),
    [
        ("InprocClient", "EngineCoreClient, InprocClient", "0.11"),
        ("SyncMPClient", "EngineCoreClient, MPClient, SyncMPClient", "0.11"),
        ("AsyncMPClient", "EngineCoreClient, MPClient, AsyncMPClient", "vllm serve"),
    ],
)
def test_each_client_is_explained(lang, choice: str, classes: str, real: str):
    """The client's box has its inputs, the rule, the way to get each other client, and vLLM's choice."""
    multiprocess, asyncio = choice != "InprocClient", choice == "AsyncMPClient"
    rows = client_rows(ClientChoice(multiprocess, asyncio, "UniProcExecutor", choice), lang)
    said = "\n".join(line for row in rows for line in row.lines)
    assert texts(lang)["client.what"] in said
    assert f"multiprocess_mode = {multiprocess}" in said
    assert f"asyncio_mode = {asyncio}" in said
    [fired] = re.findall(r"^\* .* -> (\w+)$", said, re.MULTILINE)
    assert fired == choice
    offered = re.findall(r"^(\w+): (?:llm|engine) = ", said, re.MULTILINE)
    assert sorted([*offered, choice]) == ["AsyncMPClient", "InprocClient", "SyncMPClient"]
    assert real in said
    assert classes in said


def made_by(argument: bool | None, value: bool, variable_set: bool) -> list[Span]:
    """Return spans of an engine made with `multiprocess_mode=argument`, and with `value` if that is None."""
    calls = Calls()
    inputs = {names.CLIENT_MULTIPROCESS: value, names.CLIENT_ASYNCIO: False, names.CLIENT_EXECUTOR: "UniProcExecutor"}
    inputs[names.CLIENT_VARIABLE_SET] = variable_set
    with calls(
        "LLMEngine.from_engine_args", "request", args=["engine_args=EngineArgs", f"multiprocess_mode={argument}"]
    ):
        choice = {names.CLIENT_CHOICE: "SyncMPClient" if value else "InprocClient"}
        calls.leaf("EngineCoreClient.make_client", "request", **inputs, **choice)
    calls.leaf("EngineCore.step_fn", **step_facts(1, ["0"], new=True))
    return sorted(calls.spans, key=lambda span: span.end_ns)


DECIDED_BY = [
    (True, True, True, "multiprocess_mode = True: the argument of that name", "multiprocess_mode = True：同名参数"),
    (None, True, True, "VLLM_ENABLE_V1_MULTIPROCESSING=1 in the environment", "VLLM_ENABLE_V1_MULTIPROCESSING=1；"),
    (None, False, True, "VLLM_ENABLE_V1_MULTIPROCESSING=0 in the environment", "VLLM_ENABLE_V1_MULTIPROCESSING=0；"),
    (False, False, True, "multiprocess_mode = False: the argument of that name", "multiprocess_mode = False：同名参数"),
    (None, False, False, "multiprocess_mode = False: the default here", "multiprocess_mode = False：这里的默认值"),
]


@pytest.mark.parametrize(("argument", "value", "variable_set", "english", "chinese"), DECIDED_BY)
def test_what_decided_the_client(argument: bool | None, value: bool, variable_set: bool, english: str, chinese: str):
    """The client's box, which is the first, names what decided: argument, environment or default."""
    for lang, words in (("en", english), ("zh", chinese)):
        said = _say(made_by(argument, value, variable_set), lang)
        assert re.sub(r"[\s：:]", "", words) in re.sub(r"[\s：:]", "", said)
    assert titles(made_by(argument, value, variable_set)) == ["Client", "Step"]


@pytest.mark.parametrize("client", ["InprocClient", "SyncMPClient", "AsyncMPClient"])
def test_the_lines_that_give_a_client_use_arguments_that_exist(client: str):
    """The arguments and methods that the box suggests exist in the source of `LLM` and `AsyncLLM`."""
    lines = "\n".join(CODE[client])
    engine = Path(tracellm.__file__).parent / "engine"
    file = engine / ("frontend/async_llm.py" if "AsyncLLM(" in lines else "entrypoints/llm.py")
    source = file.read_text(encoding="utf-8")
    for name in re.findall(r"(\w+)=", lines.replace("model=model", "")) + re.findall(r"engine\.(\w+)\(", lines):
        assert re.search(rf"\b{name}\b", source), name


def test_what_crossed_between_the_processes_is_summed_up():
    """Messages are summed by type with their bytes, each once; a single process has none."""
    trace = sync_run(3, 6)
    spans = sorted(trace.spans, key=lambda span: span.end_ns)
    first = next(i for i, span in enumerate(spans) if span.attributes.get(names.MESSAGE_OPERATION) == "send")
    inner = replace(spans[first], span_id="f" * 16, parent_span_id=spans[first].span_id)
    said = _say([*spans[:first], inner, *spans[first:]])
    assert "Messages between processes: 3 ADD (900 B), 6 OUTPUTS (1.1 kB)." in said
    assert "Messages between" not in _say(a_run())


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_what_computes_the_layers(lang: str) -> None:
    """The chosen operations are reported with the reason in words; an unknown code is shown literally."""
    words = texts(lang)["ops.reason.gpu"]
    colon = "：" if lang == "zh" else ": "
    assert [row.lines for row in load_rows(_loaded("triton", "gpu"), lang)] == [[f"triton{colon}{words}"]]
    assert [row.lines for row in load_rows(_loaded("triton", "moon"), lang)] == [[f"triton{colon}moon"]]
    assert load_rows(_loaded(None, None), lang) == []
    (row,) = load_rows(dataclasses.replace(_loaded("cpu", "cpu"), compile_seconds=10.2), lang)
    assert row.lines[1] == text(lang, "console.load.compiled", time="10.2 s")
    assert all(f"ops.reason.{code}" in texts(lang) for code in get_args(OpsReason))


def test_stages_of_loading_are_in_the_order_in_which_they_ended():
    """A real vLLM prepares the weights after reading them, where our loader allocates memory before it."""
    find, allocate, read = (
        Span(name, "", f"{number}", None, number, number + 1, {attribute: value})
        for number, (name, attribute, value) in enumerate(
            [("find", names.LOAD_FILES, []), ("device", names.LOAD_DEVICE, "cpu"), ("read", names.LOAD_BYTES, 1)]
        )
    )
    ours = model_load([find, allocate, read])
    vllm = model_load([find, read, replace(allocate, start_ns=8, end_ns=9)])
    assert ours is not None
    assert [row.heading for row in load_rows(ours, "en")] == ["1 find", "2 allocate", "3 read"]
    assert vllm is not None
    assert [row.heading for row in load_rows(vllm, "en")] == ["1 find", "2 read", "3 process"]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_that_steps_overlap(lang: str) -> None:
    """Asynchronous scheduling has a line with the reason; synchronous scheduling has none."""
    for reason in ("argument", "gpu"):
        rows = load_rows(dataclasses.replace(_loaded(None, None), async_reason=reason), lang)
        assert [row.lines for row in rows] == [[texts(lang)[f"async.reason.{reason}"]]]


def _loaded(ops: str | None, reason: str | None) -> ModelLoad:
    return ModelLoad(None, "Qwen2ForCausalLM", (), None, None, None, None, None, ops, reason, None, ())

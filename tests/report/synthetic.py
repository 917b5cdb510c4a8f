"""A handmade run with start-up, one prefill and many decode steps, and every attribute that reports read."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracellm.report.html import report_html
from tracellm.report.texts import Language
from tracellm.trace import names
from tracellm.trace.model import Link, Process, Span, Trace
from tracellm.trace.run_folder import RunFolder

__all__ = ["HOSTILE", "MANIFEST", "Recorder", "a_run", "a_run_folder", "shown_html"]

HOSTILE = (
    "<script>document.title='owned';alert(1)</script>",
    "<img src=x onerror=\"document.title='owned';alert(2)\">",
    "</script></style></textarea><svg onload=alert(3)>",
    "{{ 7 * 7 }} {% raw %} ${7*7} [bold red]markup[/bold red] :smile:",
    "\x1b[31mred\x1b[0m \x00 \u202egnp.exe end \r\n<!-- -->\ud800",
    "javascript:alert(4) ]]> &lt;b&gt; ' onmouseover='alert(5)' \"",
    "中文 🙂 `end` ;#quot; %%{init: {}}%%",
)
"""Texts that would do harm wherever they were taken for markup."""

MANIFEST: dict[str, Any] = {
    "schema": 1,
    "tracellm": "0.1.0",
    "status": "finished",
    "script": "capital.py",
    "argv": ["capital.py", "--n", "2"],
    "cwd": "/home/someone/work",
    "started_at": "2026-11-21T08:00:00+00:00",
    "duration_s": 3.41,
    "exit_status": 0,
    "error": None,
    "versions": {"python": "3.11.9", "torch": "2.13.0", "transformers": "4.57.1"},
    "host": {"name": "box", "system": "Linux 6.1", "cpu": "x86_64", "cores": 2},
    "options": {"lang": "en", "detail": "kernel", "text": True},
    "probes": {
        "installed": 84,
        "missing": [],
        "calls": 1204,
        "seconds": 0.012,
        "share": 0.0044,
        "per_call_us": 9.9,
        "writer": {"spans": 1204, "calls": 1204, "seconds": 0.003, "longest_ms": 0.8, "bytes": 65_000, "lost": 0},
        "conversion": {"seconds": 0.031, "us_per_span": 25.7},
    },
    "processes": [{"pid": 4242, "name": "main"}],
}


class Recorder:
    """Recorder of handmade spans with automatic times: `begin` opens a span, `end` closes the innermost."""

    def __init__(self) -> None:
        self.spans: list[Span] = []  # in the order of their ends
        self.now = 1_700_000_000_000_000_000
        self.process = Process(4242, "main")
        self._stack: list[Span] = []

    def begin(self, name: str, level: str = "request", **attributes: Any) -> Span:
        """Open a span below the innermost open one."""
        self.now += 20_000
        parent = self._stack[-1].span_id if self._stack else None
        span = Span(
            name,
            "1" * 32,
            f"{len(self.spans) + len(self._stack) + 1:016x}",
            parent,
            self.now,
            self.now,
            {names.LEVEL: level},
            process=self.process,
        )
        self._set(span, attributes)
        self._stack.append(span)
        return span

    def end(self, took_us: float = 0, error: str | None = None, **attributes: Any) -> Span:
        """Close the innermost open span."""
        self.now += int(took_us * 1000) + 5_000
        span = self._stack.pop()
        span.end_ns, span.error = self.now, error
        self._set(span, attributes)
        self.spans.append(span)
        return span

    def call(self, name: str, level: str = "step", took_us: float = 50, **attributes: Any) -> Span:
        """Record a call without callees."""
        self.begin(name, level, **attributes)
        return self.end(took_us)

    def _set(self, span: Span, attributes: dict[str, Any]) -> None:
        span.attributes.update({getattr(names, key): value for key, value in attributes.items()})


def a_run(
    *,
    prompts: Sequence[str] = ("The capital of France is", "The sky is"),
    outputs: Sequence[str] = (" Paris.", " blue and wide."),
    decode_steps: int = 16,
    text: bool = True,
    layers: int = 2,
) -> list[Span]:
    """Return the spans of a run, in the order of their ends. Request 0 stops after half of the decode steps."""
    r = Recorder()
    r.begin("capital.py", LIFELINE="capital.py")
    _startup(r)
    lives = {str(i): r.now for i in range(len(prompts))}
    r.begin("LLM.generate", PHASE="generation", CALLER_FILE="capital.py", CALLER_LINE=7, CALLER_TEXT="llm.generate(p)")
    ids = list(lives)
    for step in range(decode_steps + 1):
        running = [id for id in ids if not (id == "0" and len(ids) > 1 and step > decode_steps // 2)]
        done = []
        if len(ids) > 1 and step == decode_steps // 2:
            done = ["0"]
        if step == decode_steps:
            done = running
        _step(r, step + 1, running, done, prompts, text, layers)
    r.end()
    root = r.end()
    for i, id in enumerate(ids):
        life = Span("llm_request", f"{i + 2:032x}", f"{i + 0xF000:016x}", None, lives[id], r.now, {}, process=r.process)
        life.links = [Link(root.trace_id, root.span_id)]
        life.attributes = {
            names.LIFELINE: "request",
            names.REQUEST_ID: id,
            names.GEN_AI_MAX_TOKENS: 16,
            names.GEN_AI_TEMPERATURE: 0.0,
            names.GEN_AI_INPUT_TOKENS: 6,
            names.GEN_AI_OUTPUT_TOKENS: decode_steps // (2 if id == "0" else 1) + 1,
            names.GEN_AI_FINISH_REASONS: ["stop" if id == "0" else "length"],
            names.REQUEST_STEPS: decode_steps + 1,
        }
        if text:
            life.attributes |= {
                names.REQUEST_PROMPT: prompts[i],
                names.REQUEST_OUTPUT: outputs[i % len(outputs)],
                names.REQUEST_PROMPT_TOKENS: [785, 6722, 315, 9625, 374, 12],
            }
        r.spans.append(life)
    return r.spans


def _startup(r: Recorder) -> None:
    r.begin("LLM.__init__", PHASE="startup", ARGUMENTS=["model='tiny'"])
    r.begin("LLMEngine.from_engine_args", CONFIG=["model=tiny", "dtype=float32", "max_model_len=1024", "block_size=16"])
    r.begin("EngineCoreClient.make_client")
    r.begin("InprocClient.__init__")
    r.begin("EngineCore.__init__")
    r.begin("GPUModelRunner.load_model")
    r.begin("DefaultModelLoader.load_model")
    r.call(
        "DefaultModelLoader._prepare_weights",
        took_us=300,
        LOAD_SOURCE="/home/someone/work/.venv/lib/python3.11/site-packages/tracellm/tiny",
        LOAD_FILES=["model.safetensors"],
    )
    r.call("DefaultModelLoader.place_on_device", took_us=4_000, LOAD_DEVICE="cpu")
    r.call(
        "DefaultModelLoader.load_weights",
        took_us=21_000,
        LOAD_BYTES=11_534_336,
        LOAD_TENSORS=75,
        LOAD_PARAMETERS=5_767_168,
        LOAD_ARCHITECTURE="Qwen2ForCausalLM",
        LOAD_DTYPE="float32",
    )
    r.end()
    r.end()
    r.call(
        "EngineCore._initialize_kv_caches",
        took_us=1500,
        KV_NUM_BLOCKS=4096,
        KV_BLOCK_SIZE=16,
        KV_BYTES=268_435_456,
        KV_AVAILABLE=3_221_225_472,
    )
    r.end()
    r.end()
    r.end(
        CLIENT_MULTIPROCESS=False, CLIENT_ASYNCIO=False, CLIENT_EXECUTOR="UniProcExecutor", CLIENT_CHOICE="InprocClient"
    )
    r.end()
    r.end()


def _step(
    r: Recorder, index: int, running: list[str], done: list[str], prompts: Sequence[str], text: bool, layers: int
) -> None:
    prefill = index == 1
    n = len(running)
    r.begin("LLMEngine.step", "step")
    r.begin("InprocClient.get_output", "step")
    r.begin("EngineCore.step_fn", "step")
    r.begin("EngineCore._schedule", "step")
    r.call("Scheduler.schedule", took_us=80, RESULT="SchedulerOutput")
    r.end()
    r.begin("EngineCore._execute_model", "step")
    r.begin("UniProcExecutor.execute_model", "step")
    r.begin("Worker.execute_model", "step")
    r.begin("GPUModelRunner.execute_model", "step")
    r.begin("Qwen2Model.forward", "step", ARGUMENTS=[f"input_ids=int64[{6 * n if prefill else n}]"])
    for _ in range(layers):
        r.begin("Qwen2DecoderLayer.forward", "layer")
        for kernel in ("rms_norm", "rotary_embedding", "reshape_and_cache", "paged_attention", "silu_and_mul"):
            r.call(f"ops.{kernel}", "kernel", took_us=60 if prefill else 30)
        r.end(20)
    r.end()
    r.call("Sampler.forward", took_us=90)
    for _ in range(4):
        r.end(10)
    r.call("EngineCore._process_model_outputs", took_us=110)
    sampled_attributes: dict[str, Any] = {}
    if text:
        sampled_attributes = {
            "STEP_SAMPLED_IDS": [1000 + index] * n,
            "STEP_SAMPLED_TEXTS": [f" {prompts[int(id)][:30]}" for id in running],
            "STEP_CANDIDATES": [json.dumps([[7, " Paris", 0.973], [9, " Lyon", 0.011]])] * n,
        }
    r.end(
        STEP_INDEX=index,
        STEP_KIND="prefill" if prefill else "decode",
        STEP_REQUESTS=running,
        STEP_TOKENS=[6 if prefill else 1] * n,
        STEP_COMPUTED=[0 if prefill else 4 + index] * n,
        STEP_PHASES=["prefill" if prefill else "decode"] * n,
        STEP_CACHED=[0] * n,
        STEP_NEW_BLOCKS=[str(i + 1) if prefill else "" for i in range(n)],
        STEP_NEW=running if prefill else [],
        STEP_RESUMED=[],
        STEP_PREEMPTED=[],
        STEP_FINISHED=done,
        STEP_FINISH_REASONS=["stop" if id == "0" else "length" for id in done],
        STEP_RUNNING=running,
        STEP_WAITING=[],
        STEP_HELD=[],
        STEP_HELD_REASONS=[],
        STEP_HELD_DETAILS=[],
        STEP_BUDGET=2048,
        STEP_BLOCKS_FREE=4095 - n,
        STEP_BLOCKS_TOTAL=4095,
        STEP_LOGITS=[n, 4096],
        STEP_SAMPLED=running,
        STEP_SAMPLED_PROBS=[0.973] * n,
        **sampled_attributes,
    )
    r.end()
    r.end()


def a_run_folder(spans: Sequence[Span], path: Path = Path("runs/one"), **manifest: Any) -> RunFolder:
    """Return a run folder in memory; keywords replace entries of its manifest."""
    return RunFolder(path, MANIFEST | manifest, Trace(spans, [Process(4242, "main")]), [])


def shown_html(run_folder: RunFolder, lang: Language = "en") -> str:
    """Return the page's HTML without the data of its script."""
    page = report_html(run_folder, lang)
    return re.sub(r'<script type="application/octet-stream".*?</script>', "", page, flags=re.DOTALL)

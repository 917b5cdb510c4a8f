"""Generated parts of docs/vllm.md: answers to three questions by vLLM 0.11.1 and 0.32.0.

    python -m scripts.vllm_docs          # regenerates both pages, from the recordings in tests/fixtures/vllm

The recordings of vLLM are kept (vllm_runs.py makes them), so no vLLM is needed; the script runs on tracellm's engine
for comparison. `make_docs.py` calls this, and `tests/docs/test_vllm_docs.py` compares the pages with it, and the
recordings with the installed vLLM. vllm_tables.py makes the tables.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.server_diagram import one_request
from scripts.vllm_runs import RUNS, SCRIPT, VERSIONS, printed, record_script, unpack
from scripts.vllm_tables import Say, changes_table, classes_table, clients_table, path_table, way_table
from tracellm.report.diagram.sequence import sequence_diagram
from tracellm.report.diff.calls import calls_part
from tracellm.report.diff.requests import requests_part
from tracellm.report.diff.steps import steps_part
from tracellm.report.texts import Language
from tracellm.report.wording.blocks import plain
from tracellm.trace.compare import compare
from tracellm.trace.run_folder import RunFolder

__all__ = ["OURS", "PAGES", "blocks", "record"]

ROOT = Path(__file__).parents[1]
PAGES: dict[Language, str] = {"en": "docs/vllm.md", "zh": "docs/zh/vllm.md"}
OURS = "tracellm"
_EXPECTATION = "docs/expectations/vllm-v1-serve.tsv"
_WIDTH = 100
_TIME = re.compile(r"(\d[\d,.]* (µs|ms|s|min)\b ?)+")
_RANDOM = re.compile(r"\b(\d|chatcmpl-(?:<br/>)?capital)-[0-9a-f]{8}\b")
"""Suffix that vLLM 0.32.0 adds to a request's id, which may break into two lines in a diagram."""
_EXECUTORS = ("UniProcExecutor.execute_model", "MultiprocExecutor.execute_model")

_DEEPER = {
    "Worker": ("execute_model", "sample_tokens"),
    "GPUModelRunner": ("execute_model", "_prepare_inputs", "sample_tokens"),
    "Qwen2ForCausalLM": ("forward", "compute_logits"),
}
"""Further methods for these diagrams, beside those of tracellm's server."""

_SAY: dict[Language, Say] = {
    "en": {
        "engine": "engine", "started": "started as", "client": "client", "rule": "rule",
        "core": "engine core", "process": "runs in process", "call": "call", "here": "yes", "class": "class or file",
        "counterpart": "here", "none": "–", "kernel": "the attention kernel", "what": "what changed",
        "renamed": "another class", "moved": "another file", "only": "only {version}", "calls": "calls",
        "in-process": "`LLM(...)`, `VLLM_ENABLE_V1_MULTIPROCESSING=0`", "two-processes": "`LLM(...)`",
        "serve": "`vllm serve`",
    },
    "zh": {
        "engine": "引擎", "started": "启动方式", "client": "客户端", "rule": "规则", "core": "引擎核心",
        "process": "运行在", "call": "调用", "here": "有", "class": "类或文件", "counterpart": "在这里", "none": "–",
        "kernel": "注意力内核", "what": "变化", "renamed": "换了类", "moved": "换了文件", "only": "只有 {version}",
        "calls": "调用", "in-process": "`LLM(...)`，`VLLM_ENABLE_V1_MULTIPROCESSING=0`",
        "two-processes": "`LLM(...)`", "serve": "`vllm serve`",
    },
}  # fmt: skip


def record(folder: Path) -> None:
    """Unpack vLLM's recordings into `folder`, one folder for each version, and record tracellm's engine there."""
    for version in VERSIONS:
        unpack(version, folder / version)
    record_script(Path(sys.executable), folder / OURS, "in-process", "--engine", "tracellm")


def blocks(lang: Language, folder: Path) -> dict[str, str]:
    """Return the generated parts for the runs in `folder`, by the names of their marks."""
    page, say = ROOT / PAGES[lang], _SAY[lang]
    runs = {version: {run: RunFolder.open(folder / version / run) for run in RUNS} for version in VERSIONS}
    ours = RunFolder.open(folder / OURS / "in-process")
    in_process = {_name(version): of["in-process"].trace for version, of in runs.items()}
    separate = {_name(version): of["two-processes"].trace for version, of in runs.items()}
    all_traces = {_name(version): [one.trace for one in of.values()] for version, of in runs.items()}
    made = {
        "vllm-script": _code("python", (ROOT / SCRIPT).read_text(encoding="utf-8")),
        "vllm-printed": _printed(folder),
        "vllm-clients": clients_table(
            [
                (OURS, say["two-processes"], ours),
                *((_name(version), say[run], of[run]) for version, of in runs.items() for run in reversed(RUNS)),
            ],
            say,
            page,
        ),
        "vllm-path": path_table({OURS: ours.trace, **in_process}, say, page),
        "vllm-path-caller": way_table(separate, ("SyncMPClient.get_output",), say, page),
        "vllm-path-core": way_table(separate, _EXECUTORS, say, page),
        "vllm-classes": classes_table(all_traces, say, page),
        "vllm-changes": changes_table(all_traces, say, page),
    }
    for version, of in runs.items():
        diagram = sequence_diagram(one_request(of["serve"].trace, _DEEPER), limit=None, lang=lang)
        mark = version.replace(".", "-")
        made[f"vllm-sequence-{mark}"] = _code("mermaid", diagram)
        made[f"vllm-check-{mark}"] = _check(lang, folder / version / "serve")
        made[f"vllm-diff-ours-{mark}"] = _diff(lang, ours, of["in-process"])
    old, new = (runs[version]["in-process"] for version in VERSIONS)
    return made | {"vllm-diff-versions": _diff(lang, old, new)}


def _name(version: str) -> str:
    return f"vLLM {version}"


def _code(language: str, text: str) -> str:
    shown = _RANDOM.sub(r"\1-…", text.rstrip())
    return f"```{language}\n{shown}\n```\n"


def _printed(folder: Path) -> str:
    """Return the script's output, once for all engines with the same."""
    said: dict[str, list[str]] = {}
    for engine in (OURS, *VERSIONS):
        said.setdefault(printed(folder / engine / "in-process"), []).append(engine)
    heads = {", ".join(engines): text for text, engines in said.items()}
    return _code("text", "\n".join(text if len(heads) == 1 else f"# {head}\n{text}" for head, text in heads.items()))


def _check(lang: str, run: Path) -> str:
    """Return the output of `tracellm check`; exit status 1 if a call is missing."""
    done = subprocess.run(
        [sys.executable, "-m", "tracellm", "check", str(run), "--expect", _EXPECTATION, "--lang", lang],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": str(_WIDTH)},
    )
    if not done.stdout:
        raise RuntimeError(done.stderr)
    return _code("text", _TIME.sub("… ", done.stdout))


def _diff(lang: str, a: RunFolder, b: RunFolder) -> str:
    """Return the output of `tracellm diff`, without times and machines."""
    compared = compare(a.trace, b.trace)
    parts = [part(compared, lang) for part in (calls_part, steps_part, requests_part)]
    return _code("text", plain([block for part in parts for block in part], _WIDTH))


def main() -> None:
    """Regenerate the pages."""
    from scripts.make_docs import filled

    with tempfile.TemporaryDirectory() as temporary:
        record(Path(temporary))
        for lang, name in PAGES.items():
            page = ROOT / name
            made = blocks(lang, Path(temporary))
            page.write_text(filled(page.read_text(encoding="utf-8"), made), encoding="utf-8")
            print(f"made {name}")


if __name__ == "__main__":
    main()

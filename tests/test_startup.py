"""Quick starts through few imports: the modules loaded, and not loaded, after `LLM()` and a first token.

The tests count modules, which are the same on every machine; benchmarks/startup.py measures the time.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEEDLESS = {
    "fastapi",
    "huggingface_hub",
    "jinja2",
    "llguidance",
    "opentelemetry",
    "prometheus_client",
    "pydantic",
    "rich",
    "sympy",
    "torch._dynamo",
    "torch._inductor",
    "tracellm.engine.attention.backends.triton_attn",
    "tracellm.engine.model_executor.ops.triton",
    "tracellm.probes",
    "transformers",
    "triton",
    "uvicorn",
}
"""Slow imports that an unrecorded run of the bundled model on a CPU does not need."""
GENERATE = """
from tracellm import LLM, SamplingParams
llm = LLM(num_gpu_blocks_override=32, max_num_seqs=4)
(output,) = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=2, logprobs=1, bad_words=["x"]))
print(len(output.outputs[0].token_ids), sorted(set(NEEDLESS) & set(sys.modules)))
"""


WATCH = """
import gc, sys

class Watch:
    def find_spec(name, path=None, target=None):
        if name == "torch.functional":
            print("collector at work:", gc.isenabled(), file=sys.stderr, flush=True)

sys.meta_path.insert(0, Watch)
"""
"""Content of a sitecustomize.py, which every Python runs first."""


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python without the environment variables of tracellm and vLLM."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRACELLM_", "VLLM_"))}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, env=environment | variables
    )
    assert done.returncode == 0, done.stderr
    return done


def imported(stderr: str) -> set[str]:
    """Return the modules listed by PYTHONPROFILEIMPORTTIME, in a process and in those that it started."""
    return set(re.findall(r"import time:.*\| +([\w.]+)$", stderr, re.MULTILINE))


@pytest.fixture
def watched(tmp_path: Path) -> str:
    """A folder for PYTHONPATH that reports on stderr whether the garbage collector runs during torch's import."""
    (tmp_path / "sitecustomize.py").write_text(WATCH)
    return str(tmp_path)


def test_the_model_inside_generates_with_little_imported(watched: str) -> None:
    """`LLM()` and `generate` import torch with the garbage collector disabled, and no unneeded module."""
    done = run("-c", f"import sys\nNEEDLESS = {sorted(NEEDLESS)}\n{GENERATE}", PYTHONPATH=watched)
    assert done.stdout == "2 []\n"
    assert re.findall(r"collector at work: (\w+)", done.stderr) == ["False"]


def test_an_engine_core_in_a_process_of_its_own_imports_as_little(watched: str) -> None:
    """Both processes of a two-process engine import no unneeded module, and import torch as above."""
    code = f"import sys\nNEEDLESS = {sorted(NEEDLESS)}\n{GENERATE}"
    done = run("-c", code, VLLM_ENABLE_V1_MULTIPROCESSING="1", PYTHONPROFILEIMPORTTIME="1", PYTHONPATH=watched)
    assert done.stdout == "2 []\n"
    names = imported(done.stderr)
    assert {"torch._C", "tracellm.engine.ipc.mp_client", "tracellm.engine.core.core_proc"} <= names
    assert NEEDLESS & names == set()
    assert re.findall(r"collector at work: (\w+)", done.stderr) == ["False", "False"]


@pytest.mark.parametrize("command", [["--help"], ["run", "--help"], ["show", "--help"], ["--version"]])
def test_help_needs_no_engine(command: list[str]) -> None:
    """Commands that only print text import neither the engine nor its computing libraries."""
    done = run("-X", "importtime", "-m", "tracellm", *command)
    assert done.stdout
    assert {"torch", "numpy", "transformers", "tracellm.engine", "jinja2"} & imported(done.stderr) == set()


def test_run_without_explain_adds_nothing_to_the_script(tmp_path: Path) -> None:
    """`tracellm run` of a script without an engine imports no engine, recorder, report or template library."""
    script = tmp_path / "script.py"
    script.write_text("print('done')\n")
    done = run("-X", "importtime", "-m", "tracellm", "run", str(script))
    assert done.stdout == "done\n"
    names = imported(done.stderr)
    assert {"torch", "numpy", "transformers", "jinja2", "opentelemetry", "rich"} & names == set()
    assert not [name for name in names if name.startswith(("tracellm.engine", "tracellm.probes"))]

"""`tracellm run --engine tracellm`: scripts for vLLM, without a vLLM."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.alias.scripts import CLIENT_SELECTION, MODELS, SOURCE_READING, run
from tests.server.process import FAKE
from tracellm.trace.run_folder import RunFolder

ENGINE = ("--engine", "tracellm", *MODELS)


def test_the_documents_script_explained(tmp_path: Path) -> None:
    """The document's script prints the documented output, and its recording equals one of a tracellm script."""
    names = []
    for script, options in (
        (CLIENT_SELECTION, ENGINE),
        (CLIENT_SELECTION.replace("from vllm", "from tracellm"), MODELS),
    ):
        done = run(tmp_path, script, "--explain", "--quiet", "--out", "run", *options)
        assert (done.returncode, done.stdout, done.stderr) == (0, "Using client: InprocClient\n", "")
        recorded = RunFolder.open(tmp_path / "run")
        assert recorded.manifest["options"]["models"].keys() == {"Qwen/Qwen2.5-1.5B-Instruct", "facebook/opt-125m"}
        assert recorded.manifest["probes"]["missing"] == []
        assert recorded.manifest["probes"]["problems"] == []
        names.append([span.name for span in recorded.trace.spans])
    assert "EngineCore.step_fn" in names[0]
    assert names[0] == names[1]


ONE_AFTER_THE_OTHER = """
import asyncio, json, multiprocessing, os, runpy, subprocess, sys
from concurrent.futures import ProcessPoolExecutor
from vllm import AsyncEngineArgs, AsyncLLM, AsyncLLMEngine, EngineArgs, LLM, LLMEngine, SamplingParams
from vllm.sampling_params import RequestOutputKind

def in_a_child(params):
    import vllm
    return vllm.__version__, type(params) is vllm.SamplingParams, params.max_tokens

async def served():
    llm = AsyncLLMEngine.from_engine_args(AsyncEngineArgs(model="facebook/opt-125m", max_model_len=64))
    async for output in llm.generate("Hello", SamplingParams(max_tokens=2), request_id="1"):
        pass
    llm.shutdown()
    return type(llm).__name__, type(llm.engine_core).__name__, len(output.outputs[0].token_ids)

if __name__ == "__main__":
    result = {"children": {}, "async": asyncio.run(served())}
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    llm = LLM(model="facebook/opt-125m", max_model_len=64, trust_remote_code=False)
    result["client"] = type(llm.llm_engine.engine_core).__name__
    result["name"] = llm.model_config.served_model_name
    engine = LLMEngine.from_engine_args(EngineArgs("facebook/opt-125m", max_model_len=64), multiprocess_mode=False)
    engine.add_request("0", "Hello", SamplingParams(max_tokens=2, output_kind=RequestOutputKind.FINAL_ONLY))
    while engine.has_unfinished_requests():
        result["steps"] = [output.finished for output in engine.step()]
    for method in ("spawn", "fork", "forkserver"):
        with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
            result["children"][method] = pool.submit(in_a_child, SamplingParams(max_tokens=5)).result()
    code = "import vllm.v1.engine.core as core; print(core.EngineCore.__module__)"
    result["children"]["program"] = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    runpy.run_path("reading.py", run_name="__main__")
    print(json.dumps(result))
"""


def test_engines_and_children(tmp_path: Path) -> None:
    """Every way to make an engine, and every kind of started process, gets tracellm's engine."""
    (tmp_path / "reading.py").write_text(SOURCE_READING, encoding="utf-8")
    done = run(tmp_path, ONE_AFTER_THE_OTHER, *ENGINE)
    assert done.returncode == 0, done.stderr
    *printed, last = done.stdout.splitlines()
    assert [line.split("'")[1] for line in printed] == [
        "Hello, my name is",
        "The capital of France is",
        "The largest ocean is",
    ]
    result = json.loads(last)
    assert result["async"] == ["AsyncLLM", "AsyncMPClient", 2]
    assert (result["client"], result["name"], result["steps"]) == ("SyncMPClient", "facebook/opt-125m", [True])
    child = ["0.11.1+tracellm", True, 5]
    program = "tracellm.engine.core.core\n"
    assert result["children"] == {"spawn": child, "fork": child, "forkserver": child, "program": program}


def test_a_refusal_is_three_lines(tmp_path: Path) -> None:
    """A missing name is reported as an EngineError: the script's line, its source, and the message."""
    done = run(tmp_path, "from vllm import ClassificationRequestOutput\n", *ENGINE)
    where, source, message = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert (where, source) == ("script.py:1: in <module>", "    from vllm import ClassificationRequestOutput")
    assert message.startswith("MissingModuleError: `vllm` has no `ClassificationRequestOutput` here: ")


@pytest.mark.parametrize(
    "command",
    [["vllm", "serve", "facebook/opt-125m"], ["-m", "vllm.entrypoints.openai.api_server", "--model=facebook/opt-125m"]],
    ids=["command", "module"],
)
def test_the_server(command: list[str]) -> None:
    """`vllm serve` and the server's module are `tracellm serve`, with the model's name, and end by SIGTERM."""
    program = [sys.executable, "-c", FAKE, "run", *ENGINE, *command, "--port", "0", "--max_model_len=64"]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            ready = process.stderr.readline()
            address = ready.partition("http://")[2].partition(" ")[0]
            assert address, ready + process.stderr.read()
            with urllib.request.urlopen(f"http://{address}/models") as answer:
                (card,) = json.load(answer)["data"]
            process.send_signal(signal.SIGTERM)
            process.communicate()
        finally:
            process.kill()
    assert (card["id"], card["max_model_len"], process.returncode) == ("facebook/opt-125m", 64, 0)


REFUSED = {
    "another command": (["vllm", "bench"], 2, "tracellm: `vllm bench` is not available: .* has `vllm serve MODEL`"),
    "no such option": (["vllm", "serve", "--speculative"], 2, "No such option '--speculative'"),
    "a module to import": (["-m", "vllm.sampling_params"], 1, "No code object available for vllm.sampling_params"),
    "a module not here": (["-m", "vllm.benchmarks.serve"], 1, "There is no `vllm.benchmarks` here: .* no.* benchmarks"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_run_is_refused(case: str) -> None:
    """Other commands and modules of vLLM are refused in a line with their names."""
    command, status, message = REFUSED[case]
    program = [sys.executable, "-m", "tracellm", "run", *ENGINE, *command]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == status
    assert re.search(message, done.stderr)
    assert "Traceback" not in done.stderr

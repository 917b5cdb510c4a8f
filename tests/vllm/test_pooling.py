"""Embeddings of the bundled model: those of a real vLLM, explained, equal ours."""

import json
from pathlib import Path

import numpy as np
import pytest

from scripts.vllm_runs import ROOT
from tests.real_vllm import in_vllm
from tests.vllm.pooling_work import TEXTS
from tracellm import LLM
from tracellm.trace import names
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import steps


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of pooling_work.py's results, and of its recording."""
    folder = tmp_path_factory.mktemp("pooling")
    explain = ["-m", "tracellm", "run", "--explain", "--quiet", "--out", folder / "run"]
    one_thread = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}
    script = Path(__file__).parent / "pooling_work.py"
    done = in_vllm([*explain, script, folder / "results.json"], ROOT, **one_thread, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_embeddings_and_scores_are_those_of_vllm(folder: Path) -> None:
    """`LLM.embed` and `LLM.score` return vLLM's numbers within 1e-3."""
    embeddings, scores = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    llm = LLM(runner="pooling", dtype="float32", max_model_len=256, num_gpu_blocks_override=64)
    ours = [output.outputs.embedding for output in llm.embed(TEXTS)]
    np.testing.assert_allclose(ours, embeddings, rtol=0, atol=1e-3)
    cosines = [output.outputs.score for output in llm.score(TEXTS[0], TEXTS[:4])]
    np.testing.assert_allclose(cosines, scores, rtol=0, atol=1e-3)


def test_they_are_recorded(folder: Path) -> None:
    """The recording has every request with its end, the steps that pooled, and no problem."""
    run = RunFolder.open(folder / "run")
    requests = run.trace.named("llm_request")
    assert len(requests) == len(TEXTS) + 5
    assert {span.attributes[names.GEN_AI_OPERATION] for span in requests} == {"embeddings"}
    assert {*(request for step in steps(run.trace) for request in step.finished.values())} == {"pooled"}
    assert run.trace.named("GPUModelRunner._pool")
    assert (folder / "run" / "report.html").stat().st_size > 100_000

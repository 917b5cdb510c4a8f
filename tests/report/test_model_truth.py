"""The page's shapes, bytes and FLOPs, held against what PyTorch counts and what launches of Triton kernels recorded."""

import base64
import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from tests.checkpoints import FAMILIES, family_checkpoint
from tests.node import require_node
from tests.probes.tracing import record
from tracellm import LLM, SamplingParams
from tracellm.engine.attention.backends import triton_attn
from tracellm.engine.worker.gpu_model_runner import GPUModelRunner
from tracellm.probes.catalog.engine import CATALOG
from tracellm.report.html.calls_data import calls_data
from tracellm.report.html.data import run_data
from tracellm.trace import names
from tracellm.trace.model import Trace

__all__ = ["family_checkpoint"]

_SCRIPT = Path(__file__).parents[1] / "page" / "model_of_run.mjs"
_PRODUCTS = ("qkv", "out", "up", "down", "logits", "project_in", "project_out")


def computed(trace: Trace) -> list[dict[str, Any]]:
    """Return what the page computes of each step."""
    data = {"run": run_data(trace), "calls": base64.b64encode(calls_data(trace)).decode()}
    done = subprocess.run([require_node(), _SCRIPT], input=json.dumps(data), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def total(parts: list[dict[str, Any]], *kinds: str, of: str = "flops") -> int:
    """Return the sum of a value over all parts of these kinds."""
    return sum(part[of] for part in parts if part["kind"] in kinds)


@pytest.fixture
def flops(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """A list that gets PyTorch's count of each step, matrix products and attention apart."""
    counts: list[dict[str, int]] = []
    original = GPUModelRunner.execute_model
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu

    def counted(self: Any, *args: Any) -> Any:
        mapping = {attention: lambda query, key, value, *_, **__: sdpa_flop_count(query, key, value)}
        with FlopCounterMode(display=False, custom_mapping=mapping) as counter:
            result = original(self, *args)
        found = counter.get_flop_counts()["Global"]
        products = sum(count for operation, count in found.items() if str(operation) in ("aten.mm", "aten.addmm"))
        counts.append({"products": products, "attention": counter.get_total_flops() - products})
        return result

    monkeypatch.setattr(GPUModelRunner, "execute_model", counted)
    return counts


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_flops_are_those_that_pytorch_counts(
    family: str, family_checkpoint: Callable[[str], Path], flops: list[dict[str, int]], tmp_path: Path
):
    """Matrix products and attention of each step; PyTorch counts the keys that the mask hides too."""
    tokens = 9

    def run() -> None:
        llm = LLM(
            str(family_checkpoint(family)), dtype="float32", num_gpu_blocks_override=32, attention_backend="torch"
        )
        flops.clear()  # measuring the memory
        params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
        llm.generate([{"prompt_token_ids": list(range(1, tokens + 1))}], params, use_tqdm=False)

    trace = record(tmp_path, run, catalog=CATALOG)
    steps = computed(trace)
    assert len(steps) == len(flops) == 3
    for number, (step, counted) in enumerate(zip(steps, flops, strict=True)):
        assert total(step["parts"], *_PRODUCTS) == counted["products"]
        seen = tokens * tokens / (tokens * (tokens + 1) / 2) if number == 0 else 1
        assert total(step["parts"], "attention") * seen == counted["attention"]
        assert not [part for part in step["parts"] if part["kind"] == "other" or part["flops"] is None]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_parameter_has_its_part(family: str, family_checkpoint: Callable[[str], Path], tmp_path: Path):
    """The recorded shapes have all parameters, each is one part's, and every recorded call is the call of a part."""

    def run() -> None:
        llm = LLM(str(family_checkpoint(family)), dtype="float32", num_gpu_blocks_override=32)
        llm.generate([{"prompt_token_ids": [1, 2, 3]}], SamplingParams(max_tokens=1), use_tqdm=False)

    trace = record(tmp_path, run, catalog=CATALOG)
    (load,) = [span.attributes for span in trace.spans if names.LOAD_WEIGHTS in span.attributes]
    model = run_data(trace)["engines"][0]["model"]
    sizes = [math.prod(shape) * len(layers or [0]) for _, layers, _, shape in model["weights"]]
    assert sum(sizes) == load[names.LOAD_PARAMETERS]
    (step,) = computed(trace)
    tables = sum(
        4 * math.prod(shape)
        for name, _, _, shape in model["weights"]
        if "emb" in name or "wte" in name or "wpe" in name
    )
    tied = model["config"]["tie_word_embeddings"] == "True"
    read = sum(
        part["weights"] for part in step["parts"] if part["kind"] not in ("embed", "positions", *(["logits"] * tied))
    )
    assert read == 4 * load[names.LOAD_PARAMETERS] - tables
    kinds = {part["kind"] for part in step["parts"]}
    assert {key.split()[1] for key in step["timed"]} <= kinds
    assert step["layers"] == list(range(len(step["layers"]))) != []
    recorded = {"qkv", "attention", "write", "out", "up", "down", "embed"}
    assert recorded <= {key.split()[1] for key in step["timed"]}


def launches(checkpoint: Path, folder: Path) -> Trace:
    """Record Triton kernels in their interpreter: prompts that share a block, chunked prefill and decoding."""

    def run() -> None:
        llm = LLM(
            str(checkpoint),
            dtype="float32",
            num_gpu_blocks_override=32,
            max_num_batched_tokens=24,
            attention_backend="triton",
        )
        prompts = [[*range(1, 18), 18], [*range(1, 18), 19], list(range(30, 56))]
        params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
        llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        return record(folder, run, catalog=CATALOG)


@pytest.fixture(scope="module")
def launched(family_checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Return the recording of kernels that do not split contexts."""
    return launches(family_checkpoint("qwen2"), tmp_path_factory.mktemp("launched"))


def test_work_is_that_of_the_launches(launched: Trace):
    """Bytes and FLOPs of all parts that a Triton kernel computes are those that its launches recorded."""
    steps = computed(launched)
    rows = run_data(launched)["kernels"]
    key_table = 4  # bytes of the block table that a program reads for each key
    for number, step in enumerate(steps):
        kernels = {row[2]: row for row in rows if row[:2] == [0, number]}
        parts = step["parts"]
        assert total(parts, "rotary") == kernels["rotary_embedding_kernel"][6]
        assert total(parts, "act") == kernels["act_and_mul_kernel"][6]
        norms = [kernels[name] for name in ("rms_norm_kernel", "fused_add_rms_norm_kernel")]
        own = ("norm_attention", "norm_mlp", "final_norm", "residual")
        assert total(parts, *own) == sum(row[6] for row in norms)
        assert total(parts, *own, of="weights") + total(parts, *own, of="activations") == sum(row[5] for row in norms)
        attention = [
            row for name, row in kernels.items() if name in ("paged_attention_v1_kernel", "attention_varlen_kernel")
        ]
        assert total(parts, "attention") == sum(row[6] for row in attention)
        for kind, kernel in (
            ("rotary", "rotary_embedding_kernel"),
            ("act", "act_and_mul_kernel"),
            ("write", "reshape_and_cache_kernel"),
        ):
            moved = total(parts, kind, of="activations") + total(parts, kind, of="kvWritten")
            assert moved == kernels[kernel][5]
        moved = total(parts, "attention", of="activations") + total(parts, "attention", of="kvRead")
        keys = total(parts, "attention", of="kvRead") // (2 * 16 * 4)  # of all KV heads and layers
        assert moved + key_table * keys == sum(row[5] for row in attention)


def agreements(trace: Trace) -> list[bool | None]:
    """Return for each launch of an attention kernel whether it lists the blocks that the page computes."""
    return [agrees for step in computed(trace) for agrees in step["agrees"]]


def test_blocks_are_those_that_the_launches_read(launched: Trace):
    """Every launch for prompts and for decoding reads the blocks that follow from the block tables."""
    kernels = {span.name for span in launched.spans if names.LAUNCH_BLOCKS in span.attributes}
    assert kernels == {"attention_varlen_kernel", "paged_attention_v1_kernel"}
    found = agreements(launched)
    assert len(found) >= 3 * 5
    assert all(found)


def test_blocks_of_split_contexts(
    family_checkpoint: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """So does every launch whose programs share a context."""
    monkeypatch.setattr(triton_attn, "PARTITION", 8)
    trace = launches(family_checkpoint("qwen2"), tmp_path)
    assert trace.named("paged_attention_v2_kernel")
    found = agreements(trace)
    assert len(found) >= 3 * 5
    assert all(found)

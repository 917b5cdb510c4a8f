"""A replay without changes repeats the recording; a changed setting changes the schedule as the engine does."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.engine.parity.cases import scheduler_cases
from tracellm.report.facts.engines import engines
from tracellm.trace import names
from tracellm.trace.model import Trace
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import Step
from tracellm.whatif.replay import engine_config, replay
from tracellm.whatif.variant import EngineVariant, replay_engines
from tracellm.whatif.workload import Missing, read_workload

ROOT = Path(__file__).parents[2]

CASES = """
from tests.engine.parity.cases import scheduler_cases
from tests.engine.parity.drive import Library, make_llm
import tracellm
from tracellm.engine.sample import sampling_params

library = Library.of(tracellm, sampling_params)
for case in scheduler_cases():
    llm = make_llm(library, case)
    requests = case["batches"][0]["requests"]
    llm.generate(
        [{"prompt_token_ids": request["prompt_token_ids"]} for request in requests],
        [library.SamplingParams(**request["params"]) for request in requests],
        use_tqdm=False,
    )
"""

FEATURES = """
from pathlib import Path
from tests.checkpoints import make_checkpoint
from tracellm import LLM, SamplingParams
from tracellm.engine.sample.sampling_params import StructuredOutputsParams

for asynchronous in (False, True):
    llm = LLM(max_num_seqs=4, max_model_len=128, num_gpu_blocks_override=24, max_num_batched_tokens=24,
              async_scheduling=asynchronous, scheduling_policy="priority", long_prefill_token_threshold=10)
    llm.generate(
        [f"Hello number {i} and so on, what is your name? I am {i}" for i in range(8)],
        [SamplingParams(max_tokens=30, ignore_eos=i % 2 == 0, n=2 if i == 3 else 1, temperature=0 if i != 3 else 1,
                        stop=["."] if i % 3 == 0 else None, prompt_logprobs=1 if i == 5 else None) for i in range(8)],
        priority=[3, 1, 2, 0, 5, 4, 1, 1], use_tqdm=False)
    choice = StructuredOutputsParams(choice=["yes", "no"])
    llm.generate(["Choose:"] * 3, SamplingParams(max_tokens=10, structured_outputs=choice), use_tqdm=False)

windows = make_checkpoint(Path("checkpoint"), "gemma2")
llm = LLM(str(windows), max_num_seqs=3, max_model_len=128, num_gpu_blocks_override=30, max_num_batched_tokens=32,
          block_size=8)
llm.generate([{"prompt_token_ids": list(range(1, n))} for n in (40, 30, 60, 50)],
             SamplingParams(max_tokens=20, ignore_eos=True, temperature=0), use_tqdm=False)
"""

PROCESSES = """
import asyncio
from tracellm import LLM, AsyncLLM, SamplingParams

async def serve(asynchronous):
    llm = AsyncLLM(max_num_seqs=3, max_model_len=128, num_gpu_blocks_override=30, async_scheduling=asynchronous)
    async def one(i, most):
        await asyncio.sleep(0.01 * i)
        count = 0
        async for output in llm.generate(f"Hello {i}", SamplingParams(max_tokens=40, ignore_eos=True), f"r{i}"):
            count += 1
            if count == most:
                return
    await asyncio.gather(*(one(i, 5 if i % 3 == 0 else 0) for i in range(8)))
    await asyncio.sleep(0.5)
    await one(0, 0)
    llm.shutdown()

if __name__ == "__main__":
    llm = LLM(max_num_seqs=4, max_model_len=64, num_gpu_blocks_override=200, multiprocess_mode=True)
    llm.generate([f"Number {i}" for i in range(120)], SamplingParams(max_tokens=3), use_tqdm=False)
    del llm
    asyncio.run(serve(False))
    asyncio.run(serve(True))
"""


def record(folder: Path, script: str, *options: str) -> RunFolder:
    """Run a script explained, and return its recording."""
    (folder / "script.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "-m", "tracellm", "run", "--explain", "--quiet", "--detail=step", "--out=run"]
    subprocess.run(
        [*command, *options, "script.py"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
    )
    return RunFolder.open(folder / "run")


def facts(step: Step) -> dict[str, Any]:
    """Return everything that a step records but its times, probabilities and candidates."""
    attributes = {name: value for name, value in step.span.attributes.items() if name.startswith("tracellm.step.")}
    sampled = {name: attributes.pop(name) for name in list(attributes) if ".sampled." in name or "logits." in name}
    for name in list(attributes):
        if name.startswith(("tracellm.step.drawn", "tracellm.step.processors", "tracellm.step.candidates")):
            del attributes[name]
    tokens = sorted((one.request_id, one.token_id, one.text) for one in step.sampled)
    assert len(tokens) == len(sampled.get("tracellm.step.sampled.requests", ()))
    return attributes | {"tokens": tokens, "links": [link.span_id for link in step.span.links]}


def hold_unchanged(run: RunFolder, num_engines: int) -> None:
    """Check that a replay without changes repeats every step of every engine."""
    found = engines(run.trace)
    assert len(found) == num_engines
    for engine in found:
        workload = read_workload(run.trace, engine)
        replayed = replay(workload, engine_config(workload, {}), first=engine.steps[0].index)
        for recorded, again in zip(engine.steps, replayed.steps, strict=True):
            assert facts(again) == facts(recorded)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The 24 recorded workloads of a real vLLM, run here and explained."""
    return record(tmp_path_factory.mktemp("cases"), CASES)


def test_a_replay_repeats_the_recorded_workloads(cases: RunFolder):
    """Tokens, queues, block ids, preemptions, prefix hits and ends of all 24 workloads equal the recording."""
    hold_unchanged(cases, len(scheduler_cases()))


def test_a_replay_repeats_the_examples(tmp_path: Path):
    """The examples' runs are repeated step by step."""
    paths = [str(ROOT / "examples" / f"{name}.py") for name in ("hello", "chat_batch", "sampling")]
    hold_unchanged(record(tmp_path, f"import runpy\nfor path in {paths}:\n    runpy.run_path(path)\n"), 3)


def test_a_replay_repeats_requests_of_every_kind(tmp_path: Path):
    """Priorities, chunks, stop strings, n > 1, prompt logprobs, grammars, asynchronous scheduling, windows."""
    (tmp_path / "checkpoint").mkdir()
    hold_unchanged(record(tmp_path, FEATURES), 3)


def test_a_replay_repeats_engines_in_other_processes(tmp_path: Path):
    """Long queues, staggered arrivals, aborts and an id that is used again are repeated."""
    hold_unchanged(record(tmp_path, PROCESSES), 3)


def test_a_variant_is_what_the_engine_does(tmp_path: Path):
    """A variant equals a real run under the changed settings."""
    changes = {"max_num_batched_tokens": 16, "enable_prefix_caching": False, "num_gpu_blocks_override": 12}
    script = f"""
from tracellm import LLM, SamplingParams
for changes in ({{}}, {changes}):
    settings = {{"max_num_seqs": 4, "max_model_len": 256, "num_gpu_blocks_override": 20, "max_num_batched_tokens": 64}}
    llm = LLM(**settings | changes)
    llm.generate(["The quick brown fox jumps over the lazy dog. " * n for n in (3, 1, 4, 2, 5)],
                 SamplingParams(max_tokens=24, ignore_eos=True, temperature=0), use_tqdm=False)
"""
    run = record(tmp_path, script)
    _, small = engines(run.trace)
    variant = replay_engines(run.trace, changes)[0]
    assert len(variant.replayed.steps) > len(variant.engine.steps)
    assert any(step.preempted for step in variant.replayed.steps)
    own = {names.STEP_INDEX: 0, "links": ()}
    for recorded, again in zip(small.steps, variant.replayed.steps, strict=True):
        assert facts(again) | own == facts(recorded) | own


def test_a_recording_without_text_is_replayed_with_placeholders(tmp_path: Path):
    """Without token ids, placeholders that never match give the same steps where no prompts share a beginning."""
    run = record(tmp_path, (ROOT / "examples" / "hello.py").read_text(encoding="utf-8"), "--no-text")
    (variant,) = replay_engines(run.trace, {"max_num_seqs": 1})
    assert variant.unfaithful is None
    assert not any(request.has_all_tokens for request in variant.workload.requests)
    assert all(one.token_id is None for step in variant.replayed.steps for one in step.sampled)


@pytest.mark.parametrize(
    ("lacking", "key"),
    [
        (names.CONFIG, "settings"),
        (names.STEP_RUNNING, "schedules"),
        (names.STEP_SAMPLED, "schedules"),
        (names.STEP_NEW, "beginning"),
        (names.REQUEST_ID, "requests"),
    ],
)
def test_a_recording_that_lacks_something_is_refused(cases: RunFolder, lacking: str, key: str):
    """Settings, schedules, sampled tokens, the beginning and the requests of a run are needed."""
    spans = [
        replace(span, attributes={name: value for name, value in span.attributes.items() if name != lacking})
        for span in cases.trace.spans
        if lacking != names.REQUEST_ID or span.name != names.REQUEST_SPAN
    ]
    with pytest.raises(Missing) as refused:
        replay_engines(Trace(spans, cases.trace.processes), {"max_num_seqs": 1})
    assert refused.value.key == key


def test_a_recording_with_images_is_refused(cases: RunFolder):
    """Items of prompts are not scheduled again, so a run with any is refused."""
    spans = [
        replace(span, attributes=span.attributes | {names.REQUEST_ITEMS: ["{}"]})
        if span.name == names.REQUEST_SPAN
        else span
        for span in cases.trace.spans
    ]
    with pytest.raises(Missing) as refused:
        replay_engines(Trace(spans, cases.trace.processes), {"max_num_seqs": 1})
    assert refused.value.key == "items"


def test_a_default_limit_follows_the_budget(cases: RunFolder):
    """`max_num_seqs` is lowered to a smaller budget only if the script left it to the engine."""
    variant: EngineVariant = replay_engines(cases.trace, {"enable_prefix_caching": False})[0]
    workload = variant.workload
    assert "max_num_seqs" in workload.chosen
    with pytest.raises(ValueError, match="max_num_seqs"):
        engine_config(workload, {"max_num_batched_tokens": 1})

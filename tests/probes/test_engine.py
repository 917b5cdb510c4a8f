"""The catalog and the engine: every probe finds its function, changes nothing, and records the right values."""

import importlib
import json
import pkgutil
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

import tracellm.engine
from tests.engine.parity.cases import scheduler_cases
from tests.probes.conftest import PROMPTS, Run
from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import InvalidRequestError
from tracellm.probes.catalog import CATALOG
from tracellm.probes.install.installation import Installation
from tracellm.probes.install.selection import Selection
from tracellm.probes.recording import Recording
from tracellm.report.facts.startup import client_choice, startup_spans
from tracellm.trace import names
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import steps

MODEL = Path(__file__).parents[1] / "fixtures" / "tiny-random-qwen2"


def engine_modules() -> list[str]:
    """Return every module of the engine, imported."""
    found = [module.name for module in pkgutil.walk_packages(tracellm.engine.__path__, "tracellm.engine.")]
    for name in found:
        importlib.import_module(name)
    return found


def test_every_entry_finds_a_function():
    """Every catalog entry names existing functions; each pattern matches at least one."""
    modules = [*engine_modules(), "fastapi.applications"]
    importlib.import_module("fastapi.applications")
    for entry in CATALOG:
        assert any(fnmatchcase(name, entry.target.partition(":")[0]) for name in modules), entry.target
        installation = Installation([entry], Selection(), [])
        installation.start()
        found, missing = installation.installed, installation.findings.missing
        installation.stop()
        assert found >= 1, entry.target
        assert missing == []


def wrapped() -> Iterator[str]:
    """Return the engine functions that a probe wraps now."""
    from tracellm.probes.context.exceptions import is_probe_file

    for name in engine_modules():
        module = importlib.import_module(name)
        owners: list[Any] = [module, *(one for one in vars(module).values() if isinstance(one, type))]
        for owner in owners:
            for key, value in vars(owner).items():
                function = getattr(value, "__func__", value)
                code = getattr(function, "__code__", None)
                if code is not None and is_probe_file(code.co_filename):
                    yield f"{owner.__name__}.{key}"


def test_the_engine_is_bare_outside_a_recording(tmp_path: Path):
    """Engine functions are wrapped only during a recording, and fewer of them at a coarse level."""
    assert list(wrapped()) == []
    counts = []
    for detail in names.LEVELS:
        with Recording(tmp_path, selection=Selection(detail)):
            counts.append(len(set(wrapped())))
        assert list(wrapped()) == []
    assert 0 < counts[0] < counts[1] < counts[2] < counts[3]


def test_nothing_went_wrong(engine_run: Run):
    """No probe failed or was missing, and the tokens are those of a run without probes."""
    assert engine_run.stats["problems"] == []
    assert engine_run.stats["missing"] == []
    assert [o.outputs[0].token_ids for o in engine_run.outputs] == [o.outputs[0].token_ids for o in engine_run.bare]


def test_attributes_are_the_defined_ones(engine_run: Run):
    """Every attribute, also of events, links and the resource, has a name of `names` and a value of its type."""
    types = {"str": str, "int": int, "float": float, "bool": bool}
    holders = [process.attributes for process in engine_run.trace.processes]
    for span in engine_run.trace.spans:
        holders += [span.attributes, *(event.attributes for event in span.events)]
        holders += [link.attributes for link in span.links]
    for attributes in holders:
        for name, value in attributes.items():
            kind = names.ATTRIBUTES[name].type
            if kind.endswith("[]"):
                assert isinstance(value, list), name
                assert all(type(item) is types[kind[:-2]] for item in value), name
            else:
                assert type(value) is types[kind], name


def test_one_tree(engine_run: Run):
    """All calls are below the script's span; requests are roots of their own traces."""
    roots = engine_run.trace.roots
    assert [root.name for root in roots] == ["script.py", "llm_request", "llm_request"]
    assert len({root.trace_id for root in roots}) == 3
    for span in engine_run.trace.spans:
        parent = engine_run.trace.parent(span)
        if parent is not None:
            assert parent.start_ns <= span.start_ns <= span.end_ns <= parent.end_ns
            assert parent.trace_id == span.trace_id


def chain(run: Run, name: str) -> list[str]:
    """Return the names from the root down to the first span called `name`."""
    span = run.trace.named(name)[0]
    path = [span.name]
    while (parent := run.trace.parent(span)) is not None:
        span = parent
        path.insert(0, span.name)
    return path


def test_the_documented_chain(engine_run: Run):
    """The calls from `generate` down to a kernel are the documented ones."""
    assert chain(engine_run, "CPUAttentionBackendImpl.paged_attention") == [
        "script.py", "LLM.generate", "LLM._run_engine", "LLMEngine.step", "InprocClient.get_output",
        "EngineCore.step_fn", "EngineCore._execute_model", "UniProcExecutor.execute_model",
        "UniProcExecutor.collective_rpc", "WorkerWrapperBase.execute_model", "Worker.execute_model",
        "GPUModelRunner.execute_model", "GPUModelRunner._model_forward", "Qwen2ForCausalLM.forward",
        "Qwen2Model.forward", "Qwen2DecoderLayer.forward", "Qwen2Attention.forward", "Attention.forward",
        "CPUAttentionBackendImpl.forward", "CPUAttentionBackendImpl.paged_attention",
    ]  # fmt: skip
    [first, *_] = engine_run.trace.named("EngineCore.step_fn")
    assert [span.name for span in engine_run.trace.children(first)] == [
        "EngineCore._schedule", "EngineCore._execute_model", "EngineCore._process_model_outputs"
    ]  # fmt: skip


def test_the_client_choice(engine_run: Run):
    """`make_client` records its three inputs, its choice and the rule."""
    [span] = engine_run.trace.named("EngineCoreClient.make_client")
    assert {name: value for name, value in span.attributes.items() if name.startswith("tracellm.client.")} == {
        names.CLIENT_MULTIPROCESS: False,
        names.CLIENT_VARIABLE_SET: False,
        names.CLIENT_ASYNCIO: False,
        names.CLIENT_EXECUTOR: "UniProcExecutor",
        names.CLIENT_CHOICE: "InprocClient",
        names.CLIENT_RULE: "not multiprocess_mode and not asyncio_mode",
    }


def test_start_up(engine_run: Run, qwen2_checkpoint: Path):
    """Settings, the three loading stages and the KV cache are recorded at their calls."""
    actual: dict[str, Any] = {}
    [startup] = [span for span in engine_run.trace.spans if span.attributes.get(names.PHASE) == "startup"]
    assert startup.name == "LLM.__init__"
    assert startup.attributes[names.ARGUMENTS][0] == f"model={qwen2_checkpoint}"
    for _, span in engine_run.trace.walk(startup):
        actual |= {
            name: (span.method, value) for name, value in span.attributes.items() if name.startswith("tracellm.")
        }
    file = qwen2_checkpoint / "model.safetensors"
    assert actual[names.LOAD_SOURCE] == ("_prepare_weights", str(qwen2_checkpoint))
    assert actual[names.LOAD_FILES] == ("_prepare_weights", ["model.safetensors"])
    assert actual[names.LOAD_BYTES] == ("load_weights", file.stat().st_size)
    assert actual[names.LOAD_ARCHITECTURE] == ("load_weights", "Qwen2ForCausalLM")
    assert actual[names.LOAD_DTYPE] == ("load_weights", "float32")
    assert actual[names.LOAD_WEIGHTS][1][:3] == [
        "model.embed_tokens.weight=float32[320, 64]",
        "model.layers.0-2.self_attn.qkv_proj.weight=float32[128, 64]",
        "model.layers.0-2.self_attn.qkv_proj.bias=float32[128]",
    ]
    assert actual[names.LOAD_ATTENTION] == (
        "load_weights",
        ["model.layers.0-2.self_attn.attn: heads=4 kv_heads=2 head_size=16 window=0"],
    )
    assert {"hidden_size=64", "num_hidden_layers=3", "vocab_size=320", "rope=True"} < set(actual[names.LOAD_CONFIG][1])
    assert actual[names.LOAD_CONFIG][0] == "load_model"
    assert names.LOAD_DEVICE_NAME not in actual
    assert actual[names.LOAD_DEVICE][0] == "place_on_device"
    assert actual[names.LOAD_OPS] == ("load_model", "cpu")
    assert actual[names.LOAD_OPS_REASON] in [("load_model", "cpu"), ("load_model", "cpu_uncompiled")]
    assert actual[names.KV_NUM_BLOCKS] == ("_initialize_kv_caches", 32)
    assert actual[names.KV_BLOCK_SIZE] == ("_initialize_kv_caches", 16)
    assert actual[names.KV_NUM_GROUPS] == ("_initialize_kv_caches", 1)
    # 3 layers, keys and values, 32 blocks of 16 tokens, 2 heads of 16 float32 numbers
    assert actual[names.KV_BYTES] == ("_initialize_kv_caches", 3 * 2 * 32 * 16 * 2 * 16 * 4)
    assert actual[names.KV_AVAILABLE][1] > 0
    assert "dtype=float32" in actual[names.CONFIG][1]
    assert "attention_backend=cpu" in actual[names.CONFIG][1]
    assert "num_gpu_blocks_override=32" in actual[names.CONFIG][1]


def test_the_users_line(engine_run: Run):
    """`generate` records the user's file and line, and its arguments without their text."""
    [span] = engine_run.trace.named("LLM.generate")
    assert span.attributes[names.PHASE] == "generation"
    assert span.attributes[names.CALLER_FILE].endswith("conftest.py")
    assert span.attributes[names.CALLER_LINE] == engine_run.line
    assert span.attributes[names.CALLER_TEXT] == "outputs = llm.generate(PROMPTS, params, use_tqdm=False)"
    assert span.attributes[names.ARGUMENTS] == ["prompts=list of 2", "sampling_params=SamplingParams"]


def test_requests(engine_run: Run):
    """A request span has parameters, texts, usage, finish reason and steps, and links to its submission."""
    spans = engine_run.trace.named("llm_request")
    submitted = engine_run.trace.named("LLMEngine._add_request")
    first_tokens = engine_run.trace.named("OutputProcessor.process_outputs")[0].end_ns
    for span, output, prompt, by in zip(spans, engine_run.outputs, PROMPTS, submitted, strict=True):
        tokens = len(prompt.encode())  # this tokenizer has one token a byte
        assert {name: value for name, value in span.attributes.items() if name.startswith("gen_ai.")} == {
            names.GEN_AI_OPERATION: "text_completion",
            names.GEN_AI_MODEL: span.attributes[names.GEN_AI_MODEL],
            names.GEN_AI_RESPONSE_ID: output.request_id,
            names.GEN_AI_MAX_TOKENS: 5,
            names.GEN_AI_TEMPERATURE: 0.0,
            names.GEN_AI_TOP_P: 1.0,
            names.GEN_AI_TOP_K: 0,
            names.GEN_AI_STOP: ["a stop string"],
            names.GEN_AI_INPUT_TOKENS: tokens,
            names.GEN_AI_OUTPUT_TOKENS: 5,
            names.GEN_AI_FIRST_CHUNK: (first_tokens - span.start_ns) / 1e9,
            names.GEN_AI_FINISH_REASONS: ["length"],
        }
        assert span.attributes[names.REQUEST_ID] == output.request_id
        assert span.attributes[names.REQUEST_PROMPT] == prompt
        assert span.attributes[names.REQUEST_PROMPT_TOKENS] == output.prompt_token_ids
        assert span.attributes[names.REQUEST_OUTPUT] == output.outputs[0].text
        assert span.attributes[names.REQUEST_STEPS] == 5
        assert [(link.trace_id, link.span_id) for link in span.links] == [(by.trace_id, by.span_id)]
        assert span.start_ns == by.start_ns
    for step in steps(engine_run.trace):
        linked = {link.attributes[names.REQUEST_ID]: link.span_id for link in step.span.links}
        assert linked == {span.attributes[names.REQUEST_ID]: span.span_id for span in spans}


def test_samples(engine_run: Run):
    """Each step records each request's token, its text and probability, and the five likeliest tokens."""
    for index, step in enumerate(steps(engine_run.trace)):
        assert step.logits_shape == (2, 320)
        assert [sampled.token_id for sampled in step.sampled] == [
            o.outputs[0].token_ids[index] for o in engine_run.outputs
        ]
        for sampled in step.sampled:
            assert len(sampled.candidates) == 5
            probabilities = [probability for *_, probability in sampled.candidates]
            assert probabilities == sorted(probabilities, reverse=True)
            assert sampled.candidates[0] == (sampled.token_id, sampled.text, sampled.probability)  # greedy
    [sample, *_] = engine_run.trace.named("GPUModelRunner._sample")
    assert sample.attributes[names.STEP_SAMPLED_IDS] == [
        sampled.token_id for sampled in steps(engine_run.trace)[0].sampled
    ]


def test_shapes(engine_run: Run):
    """The runner's input tensors, a layer and a kernel record shapes and dtypes."""
    tokens = sum(len(prompt.encode()) for prompt in PROMPTS)
    first = {span.name: span for span in reversed(engine_run.trace.spans)}
    prepared = first["GPUModelRunner._prepare_inputs"].attributes[names.RESULT]
    assert prepared == f"input_ids=int32[{tokens}] positions=int64[{tokens}] logits_indices=int64[2]"
    assert first["Qwen2MLP.forward"].attributes[names.ARGUMENTS] == [f"x=float32[{tokens}, 64]"]
    assert first["Qwen2MLP.forward"].attributes[names.RESULT] == f"float32[{tokens}, 64]"
    cached = first["CPUAttentionBackendImpl.reshape_and_cache"].attributes[names.ARGUMENTS]
    assert cached[:3] == [
        f"key=float32[{tokens}, 2, 16]",
        f"value=float32[{tokens}, 2, 16]",
        "key_cache=float32[32, 16, 2, 16]",
    ]
    levels = [
        first[name].level for name in ("LLM.generate", "EngineCore.step_fn", "RMSNorm.forward", "CpuOps.rms_norm")
    ]
    assert levels == ["request", "step", "layer", "kernel"]


@pytest.mark.parametrize(
    "case",
    [case for case in scheduler_cases() if case["name"] in ("seed12", "seed33", "seed48")],
    ids=lambda case: case["name"],
)
def test_steps_tell_what_vllm_did(case: dict[str, Any], tmp_path: Path):
    """The steps read from a trace, and their tokens, equal those of a real vLLM."""
    (batch,), (recorded,) = case["batches"], case["recorded"]
    with Recording(tmp_path, selection=Selection("step")) as recording:
        llm = LLM(str(MODEL), dtype="float32", **case["settings"])
        outputs = llm.generate(
            [{"prompt_token_ids": request["prompt_token_ids"]} for request in batch["requests"]],
            [SamplingParams(**request["params"]) for request in batch["requests"]],
            use_tqdm=False,
        )
    assert recording.stats["problems"] == []
    trace = RunFolder.open(tmp_path).trace
    assert [output.outputs[0].token_ids for output in outputs] == [
        completion["token_ids"] for *_, (completion,) in recorded["outputs"]
    ]
    actual = steps(trace)
    assert [step.index for step in actual] == list(range(1, len(actual) + 1))
    ended: set[str] = set()
    for step, seen in zip(actual, recorded["steps"], strict=True):
        rows = {request.request_id: request for request in step.requests}
        assert {name: row.num_tokens for name, row in rows.items()} == seen["scheduled"]
        assert {name: rows[name].num_computed for name in step.new} == dict(seen["new"])
        assert {name: rows[name].num_computed for name in step.resumed} == dict(seen["resumed"])
        blocks = {name: [*row.cached_blocks, *row.new_blocks] for name, row in rows.items()}
        assert {name: ids for name, ids in blocks.items() if ids} == {
            name: blocks for name, blocks in seen["blocks"].items() if blocks
        }
        assert (list(step.running), list(step.waiting)) == (seen["running"], seen["waiting"])
        assert step.blocks_free == seen["free_blocks"]
        assert step.blocks_total == case["settings"]["num_gpu_blocks_override"] - 1
        assert {held.request_id for held in step.held} >= set(step.waiting)
        assert {sampled.request_id for sampled in step.sampled} <= set(rows)
        for row in rows.values():
            if row.phase == "decode":
                assert row.num_tokens == 1
        ended |= set(step.finished)
    assert ended == {str(index) for index in range(len(batch["requests"]))}
    lives = {span.attributes[names.REQUEST_ID]: span for span in trace.named("llm_request")}
    for name, life in lives.items():
        assert life.attributes[names.REQUEST_STEPS] == sum(
            any(r.request_id == name for r in s.requests) for s in actual
        )


def test_requests_that_leave(tmp_path: Path):
    """The workers receive the end of a request aborted at its stop text, and of a finished one."""
    with Recording(tmp_path):
        llm = LLM(num_gpu_blocks_override=64)
        params = [
            SamplingParams(temperature=0, max_tokens=most, ignore_eos=True, stop=stop)
            for most, stop in ((8, "Par"), (2, None), (4, None))
        ]
        llm.generate(["The capital of France is"] * 3, params, use_tqdm=False)
    actual = steps(RunFolder.open(tmp_path).trace)
    assert [(step.aborted, tuple(step.finished), step.released) for step in actual] == [
        ((), (), ()),
        (("0",), ("1",), ("0",)),
        ((), (), ("1",)),
        ((), ("2",), ()),
    ]


def test_no_text(tmp_path: Path, engine_run: Run, qwen2_checkpoint: Path):
    """With text=False no file has a prompt, generated text, token or exception message."""
    with Recording(tmp_path, text=False) as recording:
        llm = LLM(str(qwen2_checkpoint), dtype="float32", num_gpu_blocks_override=32, enable_prefix_caching=False)
        params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True, stop=["a stop string"])
        llm.generate(PROMPTS, params, use_tqdm=False)
        llm.chat([{"role": "user", "content": "my confession"}], params, use_tqdm=False)
        with pytest.raises(ValueError, match="at most"):
            llm.generate("a very long story " * 100, params, use_tqdm=False)
        with pytest.raises(ValueError, match="hidden_key"):
            llm.generate({"hidden_key": "x"}, params, use_tqdm=False)
    assert recording.stats["problems"] == []
    content = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()).decode()
    words = [
        "secret",
        "秘密",
        "\\u79d8",
        "Another one",
        "stop string",
        "confession",
        "long story",
        "hidden_key",
        "PROMPTS",
    ]
    words += [json.dumps(output.outputs[0].text)[1:-1] for output in engine_run.outputs]
    assert [word for word in words if word in content] == []
    for span in RunFolder.open(tmp_path).trace.spans:
        holders = [span.attributes, *(event.attributes for event in span.events)]
        assert not [name for holder in holders for name in names.PRIVATE & holder.keys()]


def test_chat(tmp_path: Path, qwen2_checkpoint: Path):
    """A request of `chat` is one request, with the filled-in template as its prompt."""
    with Recording(tmp_path, selection=Selection("request")):
        llm = LLM(str(qwen2_checkpoint), num_gpu_blocks_override=32)
        llm.chat([{"role": "user", "content": "Hi"}], SamplingParams(max_tokens=2, seed=3), use_tqdm=False)
    trace = RunFolder.open(tmp_path).trace
    [request] = trace.named("llm_request")
    assert request.attributes[names.GEN_AI_OPERATION] == "chat"
    assert request.attributes[names.GEN_AI_SEED] == 3
    assert request.attributes[names.GEN_AI_OUTPUT_TOKENS] == 2
    assert request.attributes[names.GEN_AI_FINISH_REASONS] == ["length"]
    assert request.attributes[names.REQUEST_PROMPT] == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    [chat] = trace.named("LLM.chat")
    assert chat.attributes[names.CALLER_TEXT].startswith("llm.chat(")
    [generate] = trace.named("LLM.generate")  # called by chat, not by the user's line
    assert names.CALLER_TEXT not in generate.attributes
    assert chat.attributes[names.ARGUMENTS] == ["messages=list of 1", "sampling_params=SamplingParams"]


def test_cached_blocks_are_not_new(tmp_path: Path, qwen2_checkpoint: Path):
    """A repeated prompt shares its full blocks: they are recorded as hits, and only the others as new."""
    with Recording(tmp_path, script="script.py"):
        llm = LLM(str(qwen2_checkpoint), num_gpu_blocks_override=32, block_size=16)
        for _ in range(2):
            params = SamplingParams(max_tokens=1, temperature=0)
            llm.generate({"prompt_token_ids": list(range(5, 45))}, params, use_tqdm=False)
    first, second = (step.requests[0] for step in steps(RunFolder.open(tmp_path).trace))
    assert (first.prefix_hit_tokens, first.cached_blocks, len(first.new_blocks)) == (0, (), 3)
    assert (second.prefix_hit_tokens, second.cached_blocks, len(second.new_blocks)) == (32, first.new_blocks[:2], 1)


def test_a_refused_request(tmp_path: Path, qwen2_checkpoint: Path):
    """A refused prompt is an error on every call it passed; no request of its batch begins."""
    with Recording(tmp_path):
        llm = LLM(str(qwen2_checkpoint), num_gpu_blocks_override=32)
        with pytest.raises(ValueError, match=r"prompts\[1\]"):
            llm.generate(["fine", "x" * 5000], use_tqdm=False)
    trace = RunFolder.open(tmp_path).trace
    assert trace.named("LLM.generate")[0].error is not None
    assert trace.named("Processor.process_inputs")[1].error is not None
    assert trace.named("llm_request") == []


def test_an_aborted_batch(tmp_path: Path, qwen2_checkpoint: Path, monkeypatch: pytest.MonkeyPatch):
    """When a request cannot be added, the requests of its batch added before it are recorded as aborted."""
    llm = LLM(str(qwen2_checkpoint), num_gpu_blocks_override=32)
    core = llm.llm_engine.engine_core
    add_request = core.add_request

    def fails_at_the_second(request: Any) -> None:
        if request.request_id != "0":
            raise InvalidRequestError("not this one")
        add_request(request)

    monkeypatch.setattr(core, "add_request", fails_at_the_second)
    with Recording(tmp_path), pytest.raises(InvalidRequestError, match=r"^prompts\[1\]: not this one"):
        llm.generate(["fine", "refused"], use_tqdm=False)
    trace = RunFolder.open(tmp_path).trace
    assert [span.attributes[names.GEN_AI_FINISH_REASONS] for span in trace.named("llm_request")] == [["abort"]] * 2


def test_a_refused_client(tmp_path: Path, qwen2_checkpoint: Path, monkeypatch: pytest.MonkeyPatch):
    """A client that cannot be made still has its source line, arguments and decision recorded."""

    def fails(*args: Any, **options: Any) -> None:
        raise ValueError("no process today")

    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    monkeypatch.setattr("tracellm.engine.ipc.mp_client.CoreEngineProcManager", fails)
    with Recording(tmp_path), pytest.raises(ValueError, match="no process today"):
        LLM(str(qwen2_checkpoint))
    trace = RunFolder.open(tmp_path).trace
    [made] = trace.named("LLM.__init__")
    assert made.attributes[names.CALLER_TEXT] == "LLM(str(qwen2_checkpoint))"
    assert made.attributes[names.ARGUMENTS] == [f"model={qwen2_checkpoint}"]
    [init] = trace.named("LLMEngine.from_engine_args")
    assert init.attributes[names.ARGUMENTS] == ["engine_args=EngineArgs", "multiprocess_mode=None"]
    [span] = trace.named("EngineCoreClient.make_client")
    assert span.error is not None
    assert span.attributes[names.CLIENT_MULTIPROCESS] is True
    assert span.attributes[names.CLIENT_CHOICE] == "SyncMPClient"


def test_variable_at_its_default(tmp_path: Path, qwen2_checkpoint: Path, monkeypatch: pytest.MonkeyPatch):
    """VLLM_ENABLE_V1_MULTIPROCESSING=0 is recorded as the origin of the client, although 0 is the default."""
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    with Recording(tmp_path):
        LLM(str(qwen2_checkpoint), max_model_len=64, num_gpu_blocks_override=8)
    choice = client_choice(startup_spans(RunFolder.open(tmp_path).trace))
    assert choice is not None
    assert (choice.by_argument, choice.variable_set, choice.multiprocess_mode) == (False, True, False)

"""Facts that captures keep are plain data: they hold no engine object, and can be sent to another process."""

from pathlib import Path
from typing import Any

import pytest

import tracellm
from tests.checkpoints import make_checkpoint
from tests.probes.tracing import record
from tracellm import LLM, SamplingParams, probe
from tracellm.engine.sample.sampling_params import StructuredOutputsParams
from tracellm.probes.catalog import CATALOG
from tracellm.probes.catalog.engine.items import _note_items
from tracellm.probes.catalog.entries import users_line
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.catalog.token_texts import learn_tokenizer, tokenizer_facts
from tracellm.probes.context.clock import Ids
from tracellm.probes.context.exceptions import PROBE_FILE
from tracellm.probes.record.recorder import Recorder
from tracellm.probes.wrapping.probe import Probe, site_numbered
from tracellm.probes.wrapping.wrapper import wrap
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.steps import steps

PLAIN = {type(None), bool, int, float, str, bytes}


@probe
def ask(llm: Any, params: list[SamplingParams], prompt: str = "The sky is") -> Any:
    """A user's function."""
    return llm.generate([prompt] * len(params), params, use_tqdm=False)


def not_plain(value: Any) -> list[str]:
    """Return the classes of all values that are not plain data."""
    kind = type(value)
    if kind in (tuple, list):
        return [one for inner in value for one in not_plain(inner)]
    if kind is dict:
        return [one for pair in value.items() for one in not_plain(pair)]
    return [] if kind in PLAIN else [kind.__qualname__]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the facts that are not plain data, by function."""
    found: dict[str, Any] = {}
    encoded = Recorder._encoded

    def look(self: Recorder, records: Any) -> bytes:
        for number, *_, facts, _ in records:
            if others := not_plain(facts):
                found[site_numbered(number).probe.defined if number >= 0 else str(number)] = others
        return encoded(self, records)

    monkeypatch.setattr(Recorder, "_encoded", look)
    return found


def test_facts_are_plain_data(kept: dict[str, Any], tmp_path: Path):
    """Facts are plain data when requests are held, preempted, constrained, sampled and refused."""
    asked = [
        SamplingParams(temperature=0.7, top_k=3, seed=1, max_tokens=4, stop=["z"]),
        SamplingParams(temperature=0, structured_outputs=StructuredOutputsParams(choice=["yes", "no"]), max_tokens=4),
        SamplingParams(n=2, top_p=0.5, seed=3, min_tokens=2, max_tokens=12, ignore_eos=True),
    ]

    def run() -> None:
        llm = LLM(max_model_len=32, num_gpu_blocks_override=4, block_size=8, max_num_seqs=3)
        ask(llm, asked)
        with pytest.raises(ValueError, match="max_model_len"):
            ask(llm, asked[:1], "a b c d e f g h i j k l m n o p q r s t u v w x y z" * 9)

    trace = record(tmp_path, run, CATALOG)
    assert kept == {}
    [script] = [span for span in trace.spans if span.name == "script.py"]
    assert script.error is None
    assert any(step.preempted for step in steps(trace))


def test_tokens_have_their_texts_without_the_tokenizers_file(tmp_path: Path):
    """Token texts need no tokenizer files once the tokenizer was loaded."""
    folder = make_checkpoint(tmp_path / "model", "qwen2")
    llm = LLM(str(folder), dtype="float32", num_gpu_blocks_override=32)
    for file in folder.glob("*token*"):
        file.unlink()
    tokenizer = llm.get_tokenizer()
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    for name in ("once", "again"):  # also in the next recording
        trace = record(tmp_path / name, lambda: llm.generate("Hi", params, use_tqdm=False), CATALOG)
        actual = [span.attributes for span in trace.named("EngineCore.step_fn")]
        assert [one[names.STEP_SAMPLED_TEXTS] for one in actual] == [
            [tokenizer.decode(one[names.STEP_SAMPLED_IDS])] for one in actual
        ]


def test_every_token_has_the_text_that_its_tokenizer_makes():
    """Token texts are those of the tokenizer, also for added tokens and other decoders; without one there are none."""
    from tokenizers.decoders import Fuse
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(Path(tracellm.__file__).with_name("tiny"))
    tokenizer.add_tokens(["<added>"])
    tokenizer.backend_tokenizer.decoder = Fuse()
    tracker = RequestTracker(Ids.counting())
    learn_tokenizer(tracker, tokenizer_facts(tokenizer))
    assert tracker.decode is not None
    actual = [tracker.decode(token) for token in range(len(tokenizer))]
    assert actual == [tokenizer.decode([token]) for token in range(len(tokenizer))]
    assert actual[-1] == "<added>"
    learn_tokenizer(tracker, tokenizer_facts(None))
    assert tracker.decode is None


def test_items_of_a_call_that_raised():
    """The sizes of items are kept after a call that raised, too, which has none."""
    tracker, span = RequestTracker(Ids.counting()), Span("hash", "", "", None, 0, 1)
    _note_items(tracker, span, None, {})
    _note_items(tracker, span, [("item", 1.5, None)], {})
    assert list(tracker.items) == ["item"]


def test_the_users_line_of_a_call_within_vllm(tmp_path: Path):
    """A call that vLLM makes has no user's line; one that a user's function makes has it."""
    found: list[Any] = []
    code = compile("lambda *call: found.append(users_line())", f"{PROBE_FILE} capture>", "eval")
    capture = eval(code, {"found": found, "users_line": users_line})
    vllm: dict[str, Any] = {"__name__": "vllm.entrypoints.llm"}
    exec("def chat(generate): generate()", vllm)
    probed = wrap(lambda: None, Probe("generate", "request", capture=capture))

    @probe
    def use() -> None:
        vllm["chat"](probed)
        probed()

    record(tmp_path, use)
    assert [line is None for line in found] == [True, False]

"""`tracellm bench` with the real engine and its small model: measurements and refusals."""

import json
from typing import Any

import pytest

from tests.cli.conftest import Command
from tracellm.bench import kernels, machine
from tracellm.bench.throughput import interleaved

SMALL = [
    "--num-prompts",
    "3",
    "--input-len",
    "4-9",
    "--output-len",
    "2-3",
    "--dtype",
    "float32",
    "--max-model-len",
    "32",
]


@pytest.fixture(autouse=True)
def _small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the machine with little work, and call each kernel once for each copy of its tensors."""
    monkeypatch.setattr(machine, "_BYTES", 1 << 16)
    monkeypatch.setattr(machine, "_SIDES", (16,))
    monkeypatch.setattr(kernels, "_COLD_BYTES", 1)
    monkeypatch.setattr(kernels, "_TURN_SECONDS", 0.0)


@pytest.mark.parametrize(("detail", "name"), [([], "default"), (["--detail", "step"], "step")])
def test_throughput_bare_and_recorded(command: Command, detail: list[str], name: str) -> None:
    """Each round measures both variants; each has its speed and its share of the limit."""
    said = command("bench", "throughput", *SMALL, "--repeats", "2", "--explain", *detail, "--json")
    figures = json.loads(said.out)
    assert said.status == 0
    assert list(figures["ways"]) == ["bare", name]
    assert figures["requests"] == 3
    assert figures["ops"]["name"] in ("cpu", "torch", "triton")
    for way in figures["ways"].values():
        assert len(way["seconds"]) == 2
        spread = way["tokens_per_second"]
        assert 0 < spread["low"] <= spread["median"] <= spread["high"]
        assert way["of_limit"] > 0


@pytest.mark.parametrize(("lang", "heads"), [("en", "decoding, tokens/s"), ("zh", "解码 token/s")])
def test_throughput_for_people(command: Command, lang: str, heads: str) -> None:
    """The table comes after the machine, its limits, and the chosen operations with the reason."""
    said = command(
        "bench", "throughput", *SMALL, "--repeats", "1", "--lang", lang, "--attention-backend", "torch", "--explain"
    )
    lines = said.out.splitlines()
    assert "GB/s" in lines[1]
    assert "GFLOP/s" in lines[1]
    assert "torch" in lines[2]
    assert "attention_backend" in lines[2]
    assert heads in lines[5]
    assert len(lines) == 8
    assert lines[-1].startswith({"en": "recorded, default detail", "zh": "记录，默认深度"}[lang])


@pytest.mark.parametrize("name", ["throughput", "latency", "kernels"])
def test_the_model_may_be_an_option(name: str, command: Command) -> None:
    """`--model NAME` is the argument MODEL, as vLLM spells it; two models are refused."""
    for model in (["--model", "/nowhere"], ["--model=/nowhere"]):
        said = command("bench", name, *model)
        assert said.status == 2
        assert "/nowhere" in said.err
        assert said.err == command("bench", name, "/nowhere").err
    assert "unexpected extra argument" in command("bench", name, "tiny", "--model", "tiny").err


def test_latency(command: Command) -> None:
    """Latency covers every token of every request, and the whole of each round."""
    said = command("bench", "latency", *SMALL, "--output-len", "3", "--repeats", "2", "--json")
    figures = json.loads(said.out)["seconds"]
    assert list(figures) == ["first", "between", "whole"]
    assert figures["first"]["50"] <= figures["whole"]["99"]
    shown = command("bench", "latency", *SMALL, "--output-len", "1", "--repeats", "1").out
    assert "time to first token" in shown
    assert "time between tokens" not in shown  # there is no second token


def test_kernels(command: Command) -> None:
    """Each operation has one row for each number of tokens and implementation; prefill only for several tokens."""
    arguments = ["--tokens", "1,3", "--context", "20", "--repeats", "1", "--ops", "torch", "--ops", "cpu"]
    said = command("bench", "kernels", *arguments, "--dtype", "float32", "--json")
    rows = json.loads(said.out)["rows"]
    found = [(row["case"], row["tokens"], row["ops"]) for row in rows]
    assert len(found) == len(set(found))
    assert {row["ops"] for row in rows} == {"torch", "cpu"}
    operations = {name for name, tokens, _ in found if tokens == 1}
    assert operations >= {"rms_norm", "rotary_embedding", "reshape_and_cache", "linear lm_head", "attention decode"}
    assert {name for name, tokens, _ in found if tokens == 3} - operations == {"attention prefill"}
    assert all(row["gigabytes_per_second"] > 0 for row in rows)
    assert all(row["launch_microseconds"] is None for row in rows), "nobody is asked: a CPU computes by itself"


MISTAKES: dict[str, tuple[list[str], str]] = {
    "a length": (["throughput", "--input-len", "many"], "--input-len takes a number of tokens or a range"),
    "a range from high to low": (["latency", "--output-len", "9-2"], "--output-len takes a number of tokens"),
    "more than the model takes": (
        ["throughput", "--input-len", "30", "--output-len", "8", "--max-model-len", "32"],
        "38 tokens together, but the model takes at most 32",
    ),
    "what the engine refuses": (["throughput", "--dtype", "float8"], "--dtype must be one of"),
    "no implementation": (["kernels", "--ops", "fast"], "--ops must be one of torch, cpu, triton"),
    "a number of tokens": (["kernels", "--tokens", "1,x"], "--tokens takes numbers separated by commas"),
    "a detail of nothing": (["throughput", "--detail", "step"], "--detail needs --explain"),
    "an address": (["serve", "--base-url", "localhost:8000"], "--base-url takes an address such as"),
    "half an address": (["serve", "--base-url", "http://[::1"], "--base-url takes an address such as"),
    "no name of a host": (["serve", "--base-url", "http://a..b:1"], "no OpenAI-compatible server answers"),
}


@pytest.mark.parametrize(("arguments", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(command: Command, arguments: list[str], message: str) -> None:
    """A mistake is one line, with the name of its option."""
    said = command("bench", *arguments)
    assert said.status == 2
    assert said.out == ""
    assert message in said.err
    assert len(said.err.splitlines()) == 1


def test_ways_take_turns() -> None:
    """Each round has every variant once, and starts with the next one."""
    turns: Any = interleaved(["a", "b", "c"], 3)
    assert turns == [*"abc", *"bca", *"cab"]

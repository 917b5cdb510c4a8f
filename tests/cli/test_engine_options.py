"""The engine's settings as options of `serve` and `bench`."""

import re
from dataclasses import fields
from typing import Any

import click
import pytest

from tracellm.cli.app import parse
from tracellm.cli.commands.bench import bench
from tracellm.cli.commands.serve import serve
from tracellm.cli.errors import CommandError
from tracellm.cli.options import engine_arguments, engine_options
from tracellm.engine.config.arg_utils import EngineArgs


def test_what_is_true_or_false_is_a_switch() -> None:
    """Each boolean setting is `--name` or `--no-name`, as in vLLM, and left out if not given."""
    options = {option.name: option for option in engine_options({})}
    truths = [field.name for field in fields(EngineArgs) if str(field.type).startswith("bool")]
    assert {"enforce_eager", "async_scheduling"} <= set(truths)
    for name in truths:
        assert options[name].is_flag
        assert options[name].secondary_opts == [f"--no-{name.replace('_', '-')}"]
    assert engine_arguments({"async_scheduling": False, "enforce_eager": None}) == {"async_scheduling": False}


@pytest.mark.parametrize("command", [serve, *bench.commands.values()], ids=lambda command: str(command.name))
def test_no_option_is_there_twice(command: click.Command) -> None:
    """No option of a command has the name of an engine option, visible or hidden."""
    names = [
        name for param in command.get_params(click.Context(command, obj="en")) for name in param.opts if name[0] == "-"
    ]
    assert sorted(set(names)) == sorted(names)


def settings_of(*arguments: str) -> dict[str, Any]:
    """Return the engine's settings of `tracellm serve` with these arguments."""
    context = serve.make_context("serve", list(arguments), obj="en")
    return engine_arguments(serve.arguments(context.params)["engine"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--hf-overrides.a=1"], {"hf_overrides": {"a": 1}}),
        (
            ["--hf_overrides.a_b.c", "text", "--hf-overrides.a_b.d", "1"],
            {"hf_overrides": {"a_b": {"c": "text", "d": 1}}},
        ),
        (["--hf-overrides.a=1", "--hf-overrides", '{"a": 2, "b": 3}'], {"hf_overrides": {"a": 1, "b": 3}}),
        (["--structured-outputs-config.backend", "guidance"], {"structured_outputs_config": {"backend": "guidance"}}),
        (["-O.level=3"], {"compilation_config": {"level": 3}}),
        (["-O3"], {"compilation_config": 3}),
        (["-dpn", "1", "-dph"], {"data_parallel_rank": 1, "data_parallel_hybrid_lb": True}),
        (["--worker-extension-cls", ""], {"worker_extension_cls": ""}),
    ],
)
def test_the_spellings_of_vllm(arguments: list[str], expected: dict[str, Any]) -> None:
    """Entries of a JSON option by dots, and vLLM's short names, are accepted."""
    assert settings_of(*arguments) == expected


@pytest.mark.parametrize(
    ("value", "number"),
    [("1000", 1000), ("1k", 1000), ("1K", 1024), ("25.6k", 25_600), ("2M", 2 << 20), ("1.001g", 1_001_000_000)],
)
@pytest.mark.parametrize("name", ["max-model-len", "max-num-batched-tokens", "kv-cache-memory-bytes"])
def test_numbers_with_a_suffix(name: str, value: str, number: int) -> None:
    """A number of tokens or bytes may have a suffix: a small one is a power of 1000, a capital one of 1024."""
    assert settings_of(f"--{name}={value}") == {name.replace("-", "_"): number}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-model-len", "1.5K"], "'1.5K' is not a valid integer"),
        (["--max-model-len", "k"], "'k' is not a valid integer"),
        (["--max-num-seqs", "1k"], "'1k' is not a valid integer"),
        (["--hf-overrides.a"], "'--hf-overrides' requires an argument"),
        (["--max-num-seqs.a", "1"], "No such option '--max-num-seqs.a'"),
    ],
)
def test_what_is_no_spelling_of_vllm(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A number or an entry in another form is refused."""
    with pytest.raises(SystemExit):
        parse(["serve", *arguments], "en")
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hf-overrides", "[1]", "--hf-overrides.a=1"], "--hf-overrides takes a JSON object, not [1]"),
        (["--hf-overrides.a=1", "--hf-overrides.a.b=1"], "--hf-overrides takes a JSON object, not {'a': 1}"),
        (["--hf-overrides.a+", "1"], "--hf-overrides takes key.key, not 'a+'"),
    ],
)
def test_an_entry_that_cannot_be_set(arguments: list[str], message: str) -> None:
    """An entry of what is no JSON object, or for a key of another form, is refused, and nothing is lost."""
    with pytest.raises(CommandError, match=re.escape(message)):
        parse(["serve", *arguments], "en")

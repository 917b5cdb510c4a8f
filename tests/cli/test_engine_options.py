"""The engine's settings as options of `serve` and `bench`."""

from dataclasses import fields

import click
import pytest

from tracellm.cli.commands.bench import bench
from tracellm.cli.commands.serve import serve
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

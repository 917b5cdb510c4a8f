"""The engine's settings as options of `serve` and `bench`."""

from dataclasses import fields

from tracellm.cli.options import engine_arguments, engine_options
from tracellm.engine.arg_utils import EngineArgs


def test_what_is_true_or_false_is_a_switch() -> None:
    """Each setting that is a truth, or left to the engine, is `--name` or `--no-name`, as in vLLM; not given, it is
    left out.
    """
    options = {option.name: option for option in engine_options({})}
    truths = [field.name for field in fields(EngineArgs) if str(field.type).startswith("bool")]
    assert {"enforce_eager", "async_scheduling"} <= set(truths)
    for name in truths:
        assert options[name].is_flag
        assert options[name].secondary_opts == [f"--no-{name.replace('_', '-')}"]
    assert engine_arguments({"async_scheduling": False, "enforce_eager": None}) == {"async_scheduling": False}

"""The engine's settings as options of `tracellm serve`, made from `EngineArgs`: --max-model-len, --block-size, ...

Options of vLLM for what tracellm does not have are known too, and hidden: their values go to `EngineArgs`, which
accepts those that ask for nothing and refuses the others by name.

vLLM: vllm/engine/arg_utils.py::EngineArgs.add_cli_args.
"""

import dataclasses
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import click

from tracellm.cli.errors import CommandError

__all__ = ["engine_arguments", "engine_options"]

_ELSEWHERE = ("model", "served_model_name")  # arguments of the command itself
_SERVES_WITH = {"disable_log_stats": False}
"""What `serve` sets otherwise: the statistics are for /metrics."""
_METAVARS = {"int": "N", "float": "X", "hf.HfOverrides": "JSON", "dict[str,": "JSON"}
_JSON = ("dict", "hf.HfOverrides")


def engine_options() -> list[click.Option]:
    """One option for each setting, shown with its default, and a hidden one for each that is not here."""
    from tracellm.engine.arg_utils import EngineArgs
    from tracellm.engine.not_here import NOT_HERE

    options = []
    for field in dataclasses.fields(EngineArgs):
        if field.name not in _ELSEWHERE:
            default = _SERVES_WITH.get(field.name, field.default)
            options.append(_option(field.name, str(field.type), _default(default)))
    for name, accepted in NOT_HERE.items():
        kind = "bool" if any(isinstance(value, bool) for value in accepted) else "json or str"
        options.append(_option(name, kind, None))
    return options


def _default(default: Any) -> str:
    return "" if default in (None, dataclasses.MISSING) else json.dumps(default).strip('"')


def _option(name: str, kind: str, help_text: str | None) -> click.Option:
    spelled = f"--{name.replace('_', '-')}"
    if kind == "bool":
        return click.Option(
            [f"{spelled}/--no-{spelled[2:]}", name], default=None, help=help_text, hidden=help_text is None
        )
    types: dict[str, Any] = {"int": click.INT, "float": click.FLOAT}
    first = kind.partition(" ")[0]
    return click.Option(
        [spelled, name],
        type=types.get(first, click.STRING),
        metavar=_METAVARS.get(first, "TEXT"),
        help=help_text,
        hidden=help_text is None,
    )


def engine_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `EngineArgs.from_arguments` from the options that were given.

    Raises:
        CommandError: an option's value should be JSON and is not.
    """
    from tracellm.engine.arg_utils import EngineArgs
    from tracellm.engine.not_here import NOT_HERE

    kinds = {field.name: str(field.type) for field in dataclasses.fields(EngineArgs)}
    arguments = {}
    for name, value in given.items():
        if value is None:
            continue
        if name in NOT_HERE and isinstance(value, str):
            with suppress(ValueError):  # then it is text
                value = json.loads(value)
        elif kinds.get(name, "").startswith(_JSON):
            try:
                value = json.loads(value)
            except ValueError:
                option = name.replace("_", "-")
                raise CommandError("serve_option", option=option, accepted="JSON", value=value) from None
        arguments[name] = value
    return _SERVES_WITH | arguments

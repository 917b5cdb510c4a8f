"""The engine's settings as options of `serve` and `bench`, made from `EngineArgs`: --max-model-len, --block-size, ...

Options of vLLM for what tracellm does not have are known too, and hidden: their values go to `EngineArgs`, which
accepts those that ask for nothing and refuses the others by name.

vLLM: vllm/engine/arg_utils.py::EngineArgs.add_cli_args.
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import click

from tracellm.cli.errors import CommandError

__all__ = ["SERVES_WITH", "EngineCommand", "as_option", "engine_arguments", "engine_options"]

_ELSEWHERE = ("model", "served_model_name")  # arguments of the command itself
SERVES_WITH = {"disable_log_stats": False}
"""What `serve` sets otherwise: the statistics are for /metrics."""
_METAVARS = {"int": "N", "float": "X", "hf.HfOverrides": "JSON", "dict[str,": "JSON"}
_JSON = ("dict", "hf.HfOverrides")


class EngineCommand(click.Command):
    """Reads the engine's settings only when the command is asked for: the others start without the engine."""

    engine_title = ""
    engine_defaults: Mapping[str, Any] = SERVES_WITH
    """What the command sets otherwise than `LLM` does."""
    _engine_options: list[click.Option] | None = None

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own, then the engine's."""
        if self._engine_options is None:
            self._engine_options = engine_options(self.engine_defaults)
        return [*super().get_params(ctx), *self._engine_options]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The engine's settings under a title of their own, with their defaults."""
        known = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        of_the_engine = self._engine_options or []
        for title, params in (
            ("Options", [param for param in known if param not in of_the_engine]),
            (self.engine_title, of_the_engine),
        ):
            rows = [row for param in params if (row := param.get_help_record(ctx)) is not None]
            with formatter.section(title):
                formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """vLLM takes --max_model_len for --max-model-len."""
        spelled = []
        for argument in args:
            name, equals, value = argument.partition("=")
            spelled.append(f"{name.replace('_', '-')}{equals}{value}" if name.startswith("--") else argument)
        return super().parse_args(ctx, spelled)


def engine_options(defaults: Mapping[str, Any] = SERVES_WITH) -> list[click.Option]:
    """One option for each setting, shown with its default, and a hidden one for each that is not here."""
    from tracellm.engine.arg_utils import EngineArgs
    from tracellm.engine.not_here import NOT_HERE

    options = []
    for field in dataclasses.fields(EngineArgs):
        if field.name not in _ELSEWHERE:
            default = defaults.get(field.name, field.default)
            options.append(_option(field.name, str(field.type), _default(default)))
    for name, accepted in NOT_HERE.items():
        kind = "bool" if any(isinstance(value, bool) for value in accepted) else "json or str"
        options.append(_option(name, kind, None))
    return options


def _default(default: Any) -> str:
    return "" if default in (None, dataclasses.MISSING) else json.dumps(default).strip('"')


def _option(name: str, kind: str, help_text: str | None) -> click.Option:
    spelled = f"--{name.replace('_', '-')}"
    first = kind.partition(" ")[0]
    if first == "bool":  # or None: then the engine decides unless told
        return click.Option(
            [f"{spelled}/--no-{spelled[2:]}", name], default=None, help=help_text, hidden=help_text is None
        )
    types: dict[str, Any] = {"int": click.INT, "float": click.FLOAT}
    return click.Option(
        [spelled, name],
        type=types.get(first, click.STRING),
        metavar=_METAVARS.get(first, "TEXT"),
        help=help_text,
        hidden=help_text is None,
    )


def engine_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `EngineArgs.from_arguments` that options were given for.

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
    return arguments


def as_option(message: str) -> str:
    """The engine's refusal of an argument of `LLM` as one of an option."""
    return re.sub(
        r"^LLM: (tracellm does not have )?`(\w+)`",
        lambda found: f"{found[1] or ''}--{found[2].replace('_', '-')}",
        message,
    )

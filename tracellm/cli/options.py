"""Options that several commands share, and click's classes with help in the user's language.

`help=` of an option or a command is the key of a text, looked up when help is shown. Most options of `serve` and
`bench` come from the fields of `EngineArgs`: --max-model-len, --block-size, ... Further options of vLLM are accepted,
but hidden: `EngineArgs` takes their values if they change nothing, and refuses others by name.

vLLM: vllm/engine/arg_utils.py::EngineArgs.add_cli_args.
"""

import dataclasses
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from tracellm.cli.errors import CommandError, print_error
from tracellm.cli.vllm_options import is_vllm_option
from tracellm.report.texts import LANGUAGES, Language, text, texts
from tracellm.trace.names import LEVELS, Level

if TYPE_CHECKING:
    from tracellm.probes.install.selection import Selection

__all__ = [
    "Command",
    "Convert",
    "EngineCommand",
    "Group",
    "Job",
    "Option",
    "Options",
    "as_option",
    "choose_language",
    "detail_option",
    "engine_arguments",
    "engine_options",
    "explain_options",
    "focus_option",
    "language_of_arguments",
    "language_option",
    "level_of",
    "open_option",
    "option",
    "options_of",
    "ring_of",
    "selection_of",
]

Job = Callable[[], int]
"""Work of a command; returns the exit status."""

Convert = Literal["now", "later"]
"""Moment of converting records to spans: at the end of the run, or when a command opens its folder."""

_F = TypeVar("_F", bound=Callable[..., Any])


# -- click's classes, in the reader's language -------------------------------------------------------------------------


class Option(click.Option):
    """An option whose `help` is the key of a text."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """See click."""
        shown = copy(self)
        shown.help = self.help and text(ctx.find_root().obj, self.help)
        return super(Option, shown).get_help_record(ctx)


class _Translated(click.Command):
    """A command whose `help` is the key of a text. Keys with `.short` and `.more` appended are its other texts."""

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """Return the same names in every context: click keeps the option that it makes for the first one."""
        return ["-h", "--help"]

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """See click."""
        found = super().get_help_option(ctx)
        if found is not None:
            found.help = text(ctx.find_root().obj, "cli.help.help")
        return found

    def get_short_help_str(self, limit: int = 45) -> str:
        """See click."""
        return text(click.get_current_context().find_root().obj, f"{self.help}.short")

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click."""
        known = texts(ctx.find_root().obj)
        shown = copy(self)
        shown.help = "\n\n".join(known[key] for key in (f"{self.help}", f"{self.help}.more") if key in known)
        super(_Translated, shown).format_help_text(ctx, formatter)


class Group(_Translated, click.Group):
    """Commands, listed in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See click."""
        return list(self.commands)


class Command(_Translated):
    """A command that returns its work as a function. `usage` replaces click's description of the arguments."""

    def __init__(self, *args: Any, usage: Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._usage = usage

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """See click."""
        return super().collect_usage_pieces(ctx) if self._usage is None else ["[OPTIONS]", *self._usage]

    def invoke(self, ctx: click.Context) -> Job:
        """Return a call of the callback, with `lang` as chosen by --lang."""
        callback, values = self.callback, self.arguments(ctx.params)
        assert callback is not None
        return lambda: callback(lang=choose_language(values.pop("language")), **values)

    def arguments(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the callback's keyword arguments."""
        return dict(params)


# -- options of several commands ---------------------------------------------------------------------------------------


def option(*names: str, help: str, **further: Any) -> Callable[[_F], _F]:
    """Return `click.option` with `help` as the key of a text."""
    return click.option(*names, cls=Option, help=help, **further)


language_option = option("--lang", "language", metavar="en|zh", help="cli.help.lang")
detail_option = option("--detail", metavar="LEVEL", help="cli.help.detail")
focus_option = option("--focus", multiple=True, metavar="CLASS", help="cli.help.focus")
open_option = option("--open", "open_report", is_flag=True, help="cli.help.open")


def explain_options(function: _F) -> _F:
    """Add --lang and the options that need --explain; `options_of` reads them."""
    for add in (
        open_option,
        option("--verbose", is_flag=True, help="cli.help.verbose"),
        option("--live", is_flag=True, help="cli.help.live"),
        option("--brief", is_flag=True, help="cli.help.brief"),
        option("--quiet", "-q", is_flag=True, help="cli.help.quiet"),
        option("--no-text", is_flag=True, help="cli.help.no_text"),
        option("--ring", metavar="N", help="cli.help.ring"),
        option("--skip", multiple=True, metavar="PATTERN", help="cli.help.skip"),
        option("--only", multiple=True, metavar="PATTERN", help="cli.help.only"),
        option("--focus", multiple=True, metavar="CLASS", help="cli.help.record_focus"),
        option("--detail", metavar="LEVEL", help="cli.help.record_detail"),
        option("--out", type=Path, metavar="DIR", help="cli.help.out"),
        language_option,
    ):
        function = add(function)
    return function


@dataclass(frozen=True)
class Options:
    """Options of an explained run, checked.

    Attributes:
        lang: language of messages and reports.
        out: run folder; None for a new one.
        detail: level to draw; None for the most useful calls.
        selection: what to record.
        ring: number of spans to keep for each process; None for all.
        keep_text: record prompts and generated text.
        quiet: print no console log.
        brief: print a line for each part of the start-up, each group of steps and each output.
        live: show the engine's state at the foot of the terminal.
        verbose: print the explanations in the console log, also if this user has seen them.
        open_report: open report.html in the browser at the end.
        convert: when to convert records to spans. With `later` the run has no reports until then.
    """

    lang: Language
    out: Path | None
    detail: Level | None
    selection: "Selection"
    ring: int | None
    keep_text: bool
    quiet: bool
    brief: bool
    live: bool
    verbose: bool
    open_report: bool
    convert: Convert


def options_of(lang: Language, *, explain: bool, **values: Any) -> Options | None:
    """Return the checked values of `explain_options` and of --convert, or None without --explain.

    Raises:
        CommandError: an option needs --explain, or has a wrong value.
    """
    if not explain:
        for name, value in values.items():
            if value:
                spelled = "open" if name == "open_report" else name.replace("_", "-")
                raise CommandError("only_explain", option=f"--{spelled}")
        return None
    if values["open_report"] and values.get("convert") == "later":
        raise CommandError("open_later")
    if len(views := [f"--{name}" for name in ("quiet", "brief", "live", "verbose") if values[name]]) > 1:
        raise CommandError("one_view", options=" ".join(views))
    level = level_of(values["detail"])
    return Options(
        lang=lang,
        out=values["out"],
        detail=level,
        selection=selection_of(lang, level, values["focus"], values["only"], values["skip"]),
        ring=ring_of(values["ring"]),
        keep_text=not values["no_text"],
        quiet=values["quiet"],
        brief=values["brief"],
        live=values["live"],
        verbose=values["verbose"],
        open_report=values["open_report"],
        convert=values.get("convert") or "now",
    )


def selection_of(
    lang: Language,
    detail: Level | None,
    focus: Sequence[str],
    only: Sequence[str],
    skip: Sequence[str],
) -> "Selection":
    """Return the selection of what to record.

    An unknown class in `focus` is only a line on stderr: it may be the script's own, with @tracellm.probe, and known
    only when its module is imported.

    Raises:
        CommandError: a pattern of `only` or `skip` matches nothing, or nothing that the other options leave.
    """
    from tracellm.probes.install.selection import Selection

    chosen = Selection.of(detail, focus, only, skip)
    if chosen.has_patterns:
        from tracellm.probes.catalog import EVERY_ENGINE
        from tracellm.probes.install.selection import unmatched_patterns

        for wrong in unmatched_patterns(chosen, EVERY_ENGINE):
            names = ", ".join(wrong.names)
            near = text(lang, "cli.near", names=names) if wrong.why == "unknown" and names else ""
            if wrong.option == "focus":
                print_error(lang, "focus_unknown", value=wrong.pattern, near=near)
            else:
                option = f"--{wrong.option}"
                raise CommandError(f"pattern.{wrong.why}", option=option, value=wrong.pattern, near=near, names=names)
    return chosen


def level_of(value: str | None) -> Level | None:
    """Return the value as a level of detail.

    Raises:
        CommandError: it is not a level.
    """
    for level in LEVELS:
        if value == level:
            return level
    if value is not None:
        raise CommandError("detail", value=value)
    return None


def ring_of(value: int | str | None) -> int | None:
    """Return the value as a number of spans.

    Raises:
        CommandError: it is not a positive integer.
    """
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        number = 0
    if number < 1:
        raise CommandError("ring", value=value)
    return number


# -- the engine's settings ---------------------------------------------------------------------------------------------

_OWN = ("model", "served_model_name")  # arguments of the command itself
_METAVARS = {"int": "N", "float": "X", "hf.HfOverrides": "JSON", "dict[str,": "JSON", "json": "JSON"}
_SHORT = {  # as in vLLM 0.11.1, without -q of --quantization
    "tensor_parallel_size": ["-tp"],
    "pipeline_parallel_size": ["-pp"],
    "data_parallel_size": ["-dp"],
    "compilation_config": ["-O"],
    "decode_context_parallel_size": ["-dcp"],
    "data_parallel_rank": ["-dpn"],
    "data_parallel_start_rank": ["-dpr"],
    "data_parallel_size_local": ["-dpl"],
    "data_parallel_address": ["-dpa"],
    "data_parallel_rpc_port": ["-dpp"],
    "data_parallel_backend": ["-dpb"],
    "data_parallel_hybrid_lb": ["-dph"],
    "data_parallel_external_lb": ["-dpe"],
    "nnodes": ["-n"],
    "node_rank": ["-r"],
}
_JSON = ("dict", "hf.HfOverrides")
_WITH_SUFFIX = ("max_model_len", "max_num_batched_tokens", "kv_cache_memory_bytes")


class _IntWithSuffix(click.types.IntParamType):
    """An integer, also as vLLM's `25.6k` (25,600) or `1K` (1,024)."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See click."""
        if found := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kmg])|([0-9]+)([KMG])", str(value).strip()):
            base, number, suffix = (1000, found[1], found[2]) if found[2] else (1024, found[3], found[4].lower())
            value = int(Decimal(number) * base ** (" kmg".index(suffix)))
        return super().convert(value, param, ctx)


class EngineCommand(Command):
    """A command with a model and the engine's settings as options, which its callback takes as `engine`.

    The settings are read when the command is used, so other commands start without the engine. `engine_defaults`:
    defaults that differ from those of `LLM`.
    """

    def __init__(self, *args: Any, engine_defaults: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._engine_defaults = engine_defaults
        self._engine_options: list[click.Option] | None = None

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own parameters, then the engine's."""
        if self._engine_options is None:
            self._engine_options = engine_options(self._engine_defaults)
        return [*super().get_params(ctx), *self._engine_options]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the engine's settings in a section of their own, with their defaults."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        settings = self._engine_options or []
        for title, params in (
            ("Options", [param for param in options if param not in settings]),
            (text(ctx.find_root().obj, "serve.help.engine"), settings),
        ):
            rows = [row for param in params if (row := param.get_help_record(ctx)) is not None]
            with formatter.section(title):
                formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Accept vLLM's spellings: --max_model_len for --max-model-len, --model NAME for the argument MODEL, --no-FLAG,
        and --hf-overrides.key value for an entry of a JSON option.

        Raises:
            CommandError: an option is one of vLLM's that tracellm does not have.
        """
        model: list[str] = []
        others = []
        entries: list[tuple[str, list[str], str]] = []
        rest = iter(args)
        json_options = {
            spelled: str(option.name)
            for option in self.get_params(ctx)
            if isinstance(option, click.Option) and option.metavar == "JSON"
            for spelled in option.opts
        }
        flags = [param for param in self.params if isinstance(param, click.Option) and param.is_flag]
        already_off = {f"--no-{name[2:]}" for flag in flags if not flag.secondary_opts for name in flag.opts}
        already_off.add("--disable-log-requests")
        for argument in rest:
            name, equals, value = argument.partition("=")
            spelled, *keys = name.split(".")
            spelled = spelled.replace("_", "-")
            if name == "--model":
                model.append(value if equals else next(rest, ""))
            elif keys and spelled in json_options:
                following = value if equals else next(rest, None)
                if following is None:
                    others.append(spelled)  # click reports that it has no value
                else:
                    entries.append((json_options[spelled], keys, following))
            elif name.replace("_", "-") not in already_off:
                others.append(f"{name.replace('_', '-')}{equals}{value}" if name.startswith("--") else argument)
        try:
            rest_of_arguments = super().parse_args(ctx, [*model, *others])
        except click.NoSuchOption as error:
            if is_vllm_option(error.option_name):
                raise CommandError("vllm_option", option=error.option_name) from None
            raise
        for setting, keys, value in entries:
            option, given = setting.replace("_", "-"), _json_or_text(ctx.params[setting] or "{}")
            if any(not key or key.endswith("+") for key in keys):  # vLLM's `key+` adds to a list
                raise CommandError("serve_option", option=option, accepted="key.key", value=".".join(keys))
            try:
                ctx.params[setting] = json.dumps(_with_entry(given, keys, _json_or_text(value)))
            except TypeError:
                raise CommandError("serve_option", option=option, accepted="a JSON object", value=given) from None
        return rest_of_arguments

    def arguments(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the callback's keyword arguments, the engine's settings among them as `engine`."""
        settings = [option.name for option in self._engine_options or []]
        own = {name: value for name, value in params.items() if name not in settings}
        return {**own, "engine": {name: params[name] for name in settings if name in params}}


def engine_options(defaults: Mapping[str, Any]) -> list[click.Option]:
    """Return an option for each setting of the engine, and a hidden one for each setting that only vLLM has."""
    from tracellm.engine.config.arg_utils import EngineArgs
    from tracellm.engine.config.unsupported_args import UNSUPPORTED_ARGS

    options = []
    for field in dataclasses.fields(EngineArgs):
        if field.name not in _OWN:
            default = defaults.get(field.name, field.default)
            options.append(_option(field.name, str(field.type), _default(default)))
    for name, accepted in UNSUPPORTED_ARGS.items():
        kind = "bool" if any(isinstance(value, bool) for value in accepted) else "json or str"
        options.append(_option(name, kind, None))
    return options


def _with_entry(entries: Any, keys: Sequence[str], value: Any) -> Any:
    """Return the entries of a JSON object with another value at nested keys.

    Raises:
        TypeError: there is no object to set an entry of.
    """
    if not keys:
        return value
    if not isinstance(entries, dict):
        raise TypeError(type(entries).__name__)
    return {**entries, keys[0]: _with_entry(entries.get(keys[0], {}), keys[1:], value)}


def _json_or_text(value: str) -> Any:
    """Return the value of JSON, or other text unchanged."""
    with suppress(ValueError):
        return json.loads(value)
    return value


def _default(default: Any) -> str:
    return "" if default in (None, dataclasses.MISSING) else json.dumps(default).strip('"')


def _option(name: str, kind: str, help_text: str | None) -> click.Option:
    spelled = f"--{name.replace('_', '-')}"
    first = kind.partition(" ")[0]
    short = _SHORT.get(name, ())
    if first == "bool":  # `bool | None`: without the option the engine decides
        return click.Option(
            [*short, f"{spelled}/--no-{spelled[2:]}", name], default=None, help=help_text, hidden=help_text is None
        )
    types: dict[str, Any] = {"int": click.INT, "float": click.FLOAT}
    return click.Option(
        [spelled, *short, name],
        type=_IntWithSuffix() if name in _WITH_SUFFIX else types.get(first, click.STRING),
        metavar=_METAVARS.get(first, "TEXT"),
        help=help_text,
        hidden=help_text is None,
    )


def engine_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `EngineArgs.from_arguments` for the options that were set.

    Raises:
        CommandError: an option's value is not valid JSON.
    """
    from tracellm.engine.config.arg_utils import EngineArgs
    from tracellm.engine.config.unsupported_args import UNSUPPORTED_ARGS

    kinds = {field.name: str(field.type) for field in dataclasses.fields(EngineArgs)}
    arguments = {}
    for name, value in values.items():
        if value is None:
            continue
        if name in UNSUPPORTED_ARGS and isinstance(value, str):
            value = _json_or_text(value)
        elif kinds.get(name, "").startswith(_JSON):
            try:
                value = json.loads(value)
            except ValueError:
                option = name.replace("_", "-")
                raise CommandError("serve_option", option=option, accepted="JSON", value=value) from None
        arguments[name] = value
    return arguments


def as_option(message: str) -> str:
    """Return the engine's message about an argument of `LLM` as a message about the option."""
    return re.sub(
        r"^LLM: (tracellm does not have )?`(\w+)`",
        lambda found: f"{found[1] or ''}--{found[2].replace('_', '-')}",
        message,
    )


# -- the language ------------------------------------------------------------------------------------------------------


def choose_language(option: str | None = None, environ: Mapping[str, str] = os.environ) -> Language:
    """Return the language to use: that of --lang, else of TRACELLM_LANG, else of the locale.

    The locale is LC_ALL, LC_MESSAGES or LANG, in this order, as in POSIX. Every locale but Chinese means English.

    Raises:
        CommandError: --lang or TRACELLM_LANG is not a supported language.
    """
    for source, value in (("--lang", option), ("TRACELLM_LANG", environ.get("TRACELLM_LANG"))):
        if value:
            for language in LANGUAGES:
                if value.lower() == language:
                    return language
            raise CommandError("lang", value=value, source=source)
    locale = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def language_of_arguments(arguments: Sequence[str]) -> Language:
    """Return the language for help and parsing errors, before the arguments are parsed. Never raises."""
    chosen = None
    for argument, following in pairwise([*arguments, ""]):
        if argument == "--lang":
            chosen = following
        elif argument.startswith("--lang="):
            chosen = argument.removeprefix("--lang=")
    for option in (chosen, None):
        with suppress(CommandError):
            return choose_language(option)
    return choose_language(environ={name: value for name, value in os.environ.items() if name != "TRACELLM_LANG"})

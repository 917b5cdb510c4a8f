"""The `serve` command for click: its options, most of which the engine's settings make when they are first needed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tracellm.cli.engine_options import EngineCommand
from tracellm.cli.errors import CommandError
from tracellm.cli.language import choose_language
from tracellm.report.texts import Language, text

__all__ = ["serve_command"]

_SERVER: dict[str, dict[str, Any]] = {  # option -> click's own arguments for it
    "host": {"metavar": "HOST"},
    "port": {"type": click.INT, "metavar": "PORT"},
    "api_key": {"multiple": True, "metavar": "KEY"},
    "served_model_name": {"multiple": True, "metavar": "NAME"},
    "allowed_origins": {"multiple": True, "metavar": "ORIGIN"},
    "chat_template": {"metavar": "FILE"},
    "chat_template_content_format": {"metavar": "FORMAT"},
    "trust_request_chat_template": {"is_flag": True},
    "response_role": {"metavar": "ROLE"},
    "return_tokens_as_token_ids": {"is_flag": True},
    "enable_prompt_tokens_details": {"is_flag": True},
    "enable_force_include_usage": {"is_flag": True},
    "enable_request_id_headers": {"is_flag": True},
    "root_path": {"metavar": "PATH"},
    "shutdown_timeout": {"type": click.FLOAT, "metavar": "SECONDS"},
    "max_request_bytes": {"type": click.INT, "metavar": "BYTES"},
    "uvicorn_log_level": {"metavar": "LEVEL"},
    "disable_uvicorn_access_log": {"is_flag": True},
}
_EXPLAIN = ("out", "detail", "focus", "only", "skip", "ring", "no_text", "quiet", "open_report")


def serve_command(lang: Language) -> click.Command:
    """The command, with its help in one language; it returns what to do."""

    def say(key: str) -> str:
        return text(lang, f"cli.help.{key}")

    def option(*names: str, key: str | None = None, **further: Any) -> click.Option:
        return click.Option(list(names), help=say(key or names[0].strip("-").replace("-", "_")), **further)

    params: list[click.Parameter] = [
        click.Argument(["model"], required=False),
        *(
            click.Option([f"--{name.replace('_', '-')}", name], help=text(lang, f"serve.help.{name}"), **further)
            for name, further in _SERVER.items()
        ),
        option("--explain", is_flag=True),
        option("--lang", "language", metavar="en|zh", key="lang"),
        option("--out", type=Path, metavar="DIR"),
        option("--detail", metavar="LEVEL", key="record_detail"),
        option("--focus", multiple=True, metavar="CLASS", key="record_focus"),
        option("--only", multiple=True, metavar="PATTERN"),
        option("--skip", multiple=True, metavar="PATTERN"),
        option("--ring", metavar="N"),
        option("--no-text", is_flag=True),
        option("--quiet", "-q", is_flag=True),
        option("--open", "open_report", is_flag=True, key="open"),
    ]
    command = EngineCommand(
        "serve",
        params=params,
        callback=lambda **given: _job(given),
        help=f"{text(lang, 'serve.help')}\n\n{text(lang, 'serve.help.more')}",
        short_help=text(lang, "serve.help.short"),
    )
    command.engine_title = text(lang, "serve.help.engine")
    return click.help_option("-h", "--help", help=say("help"))(command)


def _job(given: dict[str, Any]) -> Callable[[], int]:
    def job() -> int:
        from tracellm.cli.serve import Serving, serve

        explain, language = given.pop("explain"), given.pop("language")
        asked = {name: given.pop(name) for name in _EXPLAIN}
        model = given.pop("model")
        serving = Serving(model, {name: given.pop(name) for name in _SERVER}, given)
        lang = choose_language(language)
        if not explain:
            for name, value in asked.items():
                if value:
                    spelled = "open" if name == "open_report" else name.replace("_", "-")
                    raise CommandError("only_explain", option=f"--{spelled}")
            return serve(serving, lang, None)
        from tracellm.cli.selection import options_of

        return serve(serving, lang, options_of(lang, keep_text=not asked.pop("no_text"), **asked))

    return job

"""`tracellm serve`: the OpenAI-compatible server; with --explain, recorded and explained.

Under `--engine tracellm`, vLLM's own commands start it too:

    tracellm run --explain --engine tracellm vllm serve tiny
    tracellm run --explain --engine tracellm -m vllm.entrypoints.openai.api_server --model tiny --port 8000

Exit status: 0 after SIGTERM or Ctrl-C; 1 if the port is in use, or the engine cannot start or has died; 130 if a
second Ctrl-C aborted running requests.

vLLM: vllm/entrypoints/cli/main.py and vllm/entrypoints/openai/api_server.py.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracellm.cli.errors import CommandError, is_users_mistake, print_error, require_posix
from tracellm.cli.options import (
    EngineCommand,
    Options,
    as_option,
    choose_language,
    engine_arguments,
    explain_options,
    option,
    options_of,
)
from tracellm.cli.signals import interrupt_on_signals
from tracellm.report.texts import Language, text

if TYPE_CHECKING:
    from tracellm.cli.explanation import Explanation

__all__ = ["SERVER_DEFAULTS", "api_server", "serve", "vllm"]

SERVER_DEFAULTS = {"disable_log_stats": False}
"""Engine settings with another default than for `LLM`: /metrics needs the statistics."""

_SECRET = "***"
_SERVER: dict[str, dict[str, Any]] = {  # option -> its arguments for click
    "host": {"metavar": "HOST"},
    "port": {"type": click.INT, "metavar": "PORT"},
    "api_key": {"multiple": True, "metavar": "KEY"},
    "served_model_name": {"multiple": True, "metavar": "NAME"},
    "allowed_origins": {"multiple": True, "metavar": "ORIGIN"},
    "chat_template": {"metavar": "FILE"},
    "chat_template_content_format": {"metavar": "FORMAT"},
    "trust_request_chat_template": {"is_flag": True},
    "response_role": {"metavar": "ROLE"},
    "enable_auto_tool_choice": {"is_flag": True},
    "tool_call_parser": {"metavar": "NAME"},
    "exclude_tools_when_tool_choice_none": {"is_flag": True},
    "return_tokens_as_token_ids": {"is_flag": True},
    "enable_prompt_tokens_details": {"is_flag": True},
    "enable_force_include_usage": {"is_flag": True},
    "enable_request_id_headers": {"is_flag": True},
    "root_path": {"metavar": "PATH"},
    "shutdown_timeout": {"type": click.FLOAT, "metavar": "SECONDS"},
    "max_request_bytes": {"type": click.INT, "metavar": "BYTES"},
    "receive_timeout": {"type": click.FLOAT, "metavar": "SECONDS"},
    "ssl_certfile": {"metavar": "FILE"},
    "ssl_keyfile": {"metavar": "FILE"},
    "ssl_ca_certs": {"metavar": "FILE"},
    "ssl_cert_reqs": {"type": click.INT, "metavar": "N"},
    "uvicorn_log_level": {"metavar": "LEVEL"},
    "disable_uvicorn_access_log": {"is_flag": True},
    "enable_log_requests": {"is_flag": True},
    "max_log_len": {"type": click.INT, "metavar": "N"},
}


def _server_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for name, further in reversed(_SERVER.items()):
        function = option(f"--{name.replace('_', '-')}", name, help=f"serve.help.{name}", **further)(function)
    return function


@click.command(cls=EngineCommand, engine_defaults=SERVER_DEFAULTS, help="cli.help.serve")
@click.argument("model", required=False)
@_server_options
@option("--explain", is_flag=True, help="cli.help.explain")
@explain_options
def serve(model: str | None, explain: bool, lang: Language, engine: dict[str, Any], **values: Any) -> int:
    """Serve until SIGINT or SIGTERM. Returns the exit status.

    Raises:
        CommandError: an option has a wrong value, or the run folder cannot be written.
    """
    require_posix()
    further = _serve_options({name: values.pop(name) for name in _SERVER})
    options = options_of(lang, explain=explain, **values)
    engine = SERVER_DEFAULTS | engine_arguments(engine)
    explanation = None if options is None else _explanation(options)
    error: BaseException | None = None
    previous = interrupt_on_signals()
    try:
        if explanation is not None:
            explanation.start()
        _run_server(model, engine, further, lang)
        status = 0
    except KeyboardInterrupt as interrupt:
        status = 130 if interrupt.args else 0  # the second Ctrl-C has a message
        if status:
            print_error(lang, "serve_aborted")
    except BaseException as caught:
        error = caught
        status = 1
        if not is_users_mistake(caught):
            raise
        error = caught.with_traceback(None)  # no frame in it is the user's
        _say(lang, as_option(str(caught)))
    finally:
        interrupt_on_signals()  # the event loop has restored the earlier handlers
        if explanation is not None:
            _end(explanation, status, error, options, lang)
        for signum, handler in previous.items():
            signal.signal(signum, handler)
    return status


def _run_server(model: str | None, engine: dict[str, Any], further: dict[str, Any], lang: Language) -> None:
    """Import the server and run it. The import is here so that it is recorded."""
    from tracellm.engine.config.arg_utils import EngineArgs
    from tracellm.engine.entrypoints.openai.api_server import run_server
    from tracellm.engine.entrypoints.openai.cli_args import ServeArgs

    if model is not None:
        engine["model"] = model
    engine_args = EngineArgs.from_arguments(**engine)

    def ready(address: str, generates: bool) -> None:
        key = "serve.ready" if generates else "serve.ready.pooling"
        _say(lang, text(lang, key, model=args.served_model_name[0], address=address))

    args = ServeArgs(engine_args=engine_args, on_ready=ready, **further)
    asyncio.run(run_server(args))


def _serve_options(values: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were set, as arguments of `ServeArgs`."""
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    # 0 is a port, and 0 == False, so compare by identity.
    chosen = {name: value for name, value in values.items() if value is not None and value is not False and value != []}
    if origins := chosen.get("allowed_origins"):
        chosen["allowed_origins"] = [origin for value in origins for origin in _origins(value)]
    if template := chosen.get("chat_template"):
        chosen["chat_template"] = _template(template)
    return chosen


def _origins(value: str) -> list[Any]:
    """Return the origins in one option's value, which may be a JSON list, as for vLLM."""
    try:
        listed = json.loads(value)
    except ValueError:
        return [value]
    return listed if isinstance(listed, list) else [value]


def _template(value: str) -> str:
    """Return a chat template: the content of the file of this name, or the value itself if it has braces or lines."""
    if any(mark in value for mark in "{}\n"):
        return value
    try:
        return Path(value).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CommandError("chat_template", path=value, reason=reason) from None


def _explanation(options: Options) -> "Explanation":
    from tracellm.cli.explanation import Explanation

    argv = ["tracellm", *_without_keys(sys.argv[1:])]
    return Explanation.from_options(options, "serve", script="tracellm serve", argv=argv)


def _without_keys(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the arguments with API keys masked, for the run folder."""
    hide = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        is_key = name.replace("_", "-") == "--api-key"
        yield _SECRET if hide else f"{name}={_SECRET}" if is_key and equals else argument
        hide = is_key and not equals


def _end(
    explanation: "Explanation", status: int, error: BaseException | None, options: Options | None, lang: Language
) -> None:
    from tracellm.cli.reports import open_in_browser

    try:
        explanation.end(exit_status=status, error=error)
        if options is not None and options.open_report:
            open_in_browser(explanation.folder / "report.html", lang)
    except KeyboardInterrupt:  # while the reports are written
        print_error(lang, "recorded_only", folder=explanation.shown)


def _say(lang: Language, message: str) -> None:
    print(text(lang, "cli.error", message=message), file=sys.stderr, flush=True)


# -- vLLM's own commands -----------------------------------------------------------------------------------------------


def api_server() -> None:
    """Run vLLM's server module as `tracellm serve`; ends by SystemExit."""
    _run(["serve", *sys.argv[1:]])


def vllm() -> None:
    """Run the command `vllm`, of which only `vllm serve` is supported; ends by SystemExit."""
    _run(sys.argv[1:] if sys.argv[1:2] == ["serve"] else None)


def _run(arguments: list[str] | None) -> None:
    from tracellm.cli.app import run_command

    if arguments is not None:
        run_command(arguments)
    CommandError("vllm_command", value=" ".join(["vllm", *sys.argv[1:2]])).print(choose_language(None))
    sys.exit(2)

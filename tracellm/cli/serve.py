"""`tracellm serve`: the OpenAI-compatible server, recorded and explained when that was asked for.

Exit status: 0 after SIGTERM or Ctrl-C, 1 when the port is in use, the engine cannot start or has died, 130 when a
second Ctrl-C gave up running requests.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracellm.cli.engine_options import SERVES_WITH, as_option, engine_arguments
from tracellm.cli.errors import CommandError
from tracellm.cli.failure import is_users_mistake
from tracellm.report.texts import Language, text

if TYPE_CHECKING:
    from tracellm.cli.explanation import Explanation
    from tracellm.cli.selection import Options

__all__ = ["Serving", "serve"]

_SECRET = "***"


@dataclass(frozen=True)
class Serving:
    """What to serve and how: the options, those of the engine apart. `None`: not given."""

    model: str | None
    options: dict[str, Any]
    """Of `ServeArgs`, by name."""
    engine: dict[str, Any]
    """Of `EngineArgs`, by name."""


def serve(serving: Serving, lang: Language, options: "Options | None") -> int:
    """Serve until a signal comes; with `options`, explain it. Returns the exit status.

    Raises:
        CommandError: an option cannot be understood, or the run folder cannot be written.
    """
    engine = SERVES_WITH | engine_arguments(serving.engine)
    further = _serve_options(serving.options)
    explanation = None if options is None else _explanation(options)
    error: BaseException | None = None
    previous = _interrupt_on_signals()
    try:
        if explanation is not None:
            explanation.start()
        _run_server(serving.model, engine, further, lang)
        status = 0
    except KeyboardInterrupt as interrupt:
        status = 130 if interrupt.args else 0  # with a reason: a second Ctrl-C
        if status:
            _say(lang, text(lang, "cli.error.serve_aborted"))
    except BaseException as caught:
        error = caught
        status = 1
        if not is_users_mistake(caught):
            raise
        error = caught.with_traceback(None)  # it would lead to a line of a library, and none is the user's
        _say(lang, as_option(str(caught)))
    finally:
        _interrupt_on_signals()  # the event loop has put them back
        if explanation is not None:
            _end(explanation, status, error, options, lang)
        for signum, handler in previous.items():
            signal.signal(signum, handler)
    return status


def _run_server(model: str | None, engine: dict[str, Any], further: dict[str, Any], lang: Language) -> None:
    """Import the server and run it: now, so that a recording sees the imports."""
    from tracellm.engine.arg_utils import EngineArgs
    from tracellm.engine.entrypoints.openai.api_server import run_server
    from tracellm.engine.entrypoints.openai.cli_args import ServeArgs

    if model is not None:
        engine["model"] = model
    engine_args = EngineArgs.from_arguments(**engine)

    def ready(address: str) -> None:
        _say(lang, text(lang, "serve.ready", model=args.served_model_name[0], address=address))

    args = ServeArgs(engine_args=engine_args, on_ready=ready, **further)
    asyncio.run(run_server(args))


def _serve_options(given: dict[str, Any]) -> dict[str, Any]:
    """The options of `ServeArgs` that were given, in its form."""
    # Not by `in`: 0 is a port, and it equals False.
    given = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
    chosen = {name: value for name, value in given.items() if value is not None and value is not False and value != []}
    if origins := chosen.get("allowed_origins"):
        chosen["allowed_origins"] = [origin for value in origins for origin in _origins(value)]
    if template := chosen.get("chat_template"):
        chosen["chat_template"] = _template(template)
    return chosen


def _origins(value: str) -> list[Any]:
    """vLLM takes a list as JSON."""
    try:
        listed = json.loads(value)
    except ValueError:
        return [value]
    return listed if isinstance(listed, list) else [value]


def _template(value: str) -> str:
    """A chat template: the file of this name, or the template itself, which has braces or line breaks."""
    if any(mark in value for mark in "{}\n"):
        return value
    try:
        return Path(value).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CommandError("chat_template", path=value, reason=reason) from None


def _explanation(options: "Options") -> "Explanation":
    from tracellm.cli.explanation import Explanation
    from tracellm.cli.folders import new_run_folder

    return Explanation(
        new_run_folder("serve", options.out),
        script="tracellm serve",
        argv=["tracellm", *_without_keys(sys.argv[1:])],
        lang=options.lang,
        detail=options.detail,
        selection=options.selection,
        ring=options.ring,
        keep_text=options.keep_text,
        quiet=options.quiet,
    )


def _without_keys(arguments: Sequence[str]) -> Iterator[str]:
    """The arguments as the run folder may show them."""
    hide = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        is_key = name.replace("_", "-") == "--api-key"
        yield _SECRET if hide else f"{name}={_SECRET}" if is_key and equals else argument
        hide = is_key and not equals


def _end(
    explanation: "Explanation", status: int, error: BaseException | None, options: "Options | None", lang: Language
) -> None:
    from tracellm.cli.render import open_in_browser

    try:
        explanation.end(exit_status=status, error=error)
        if options is not None and options.open_report:
            open_in_browser(explanation.folder / "report.html", lang)
    except KeyboardInterrupt:  # while the reports were being written
        _say(lang, text(lang, "cli.recorded_only", folder=explanation.folder))


def _interrupt_on_signals() -> dict[int, Any]:
    """From here on SIGTERM is as Ctrl-C. Returns what they were before."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    return {signum: signal.signal(signum, interrupt) for signum in (signal.SIGINT, signal.SIGTERM)}


def _say(lang: Language, message: str) -> None:
    print(text(lang, "cli.error", message=message), file=sys.stderr, flush=True)

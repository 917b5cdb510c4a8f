"""`vllm serve` and `python -m vllm.entrypoints.openai.api_server` under `--engine tracellm`: both are `tracellm serve`.

    tracellm run --explain --engine tracellm -m vllm.entrypoints.openai.api_server --model tiny --port 8000
    tracellm run --explain --engine tracellm vllm serve tiny

vLLM: vllm/entrypoints/cli/main.py and vllm/entrypoints/openai/api_server.py.
"""

import sys
from collections.abc import Sequence

from tracellm.cli.app import parse
from tracellm.cli.errors import CommandError
from tracellm.cli.language import choose_language
from tracellm.report.texts import text

__all__ = ["api_server", "vllm"]


def api_server() -> None:
    """Serve, as the rest of the command line says; ends by SystemExit."""
    _run(["serve", *_model_first(sys.argv[1:])])


def vllm() -> None:
    """The command `vllm`, of which `serve` is here; ends by SystemExit."""
    _run(["serve", *_model_first(sys.argv[2:])] if sys.argv[1:2] == ["serve"] else None)


def _run(arguments: list[str] | None) -> None:
    lang = choose_language(None)
    try:
        if arguments is None:
            raise CommandError("vllm_command", value=" ".join(["vllm", *sys.argv[1:2]]))
        status = parse(arguments, lang)()
    except CommandError as error:
        print(text(lang, "cli.error", message=error.message(lang)), file=sys.stderr)
        status = 2
    sys.exit(status)


def _model_first(arguments: Sequence[str]) -> list[str]:
    """vLLM takes `--model NAME` for the model; ours comes without an option."""
    model: list[str] = []
    others: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name == "--model":
            model = [value if equals else next(rest, "")]
        else:
            others.append(argument)
    return [*model, *others]

"""`tracellm bench throughput | latency | serve | kernels`: the options of `tracellm.bench`, named as in `vllm bench`.

vLLM: vllm/entrypoints/cli/benchmark/
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tracellm.bench.workload import BenchError
from tracellm.cli.errors import CommandError, is_users_mistake
from tracellm.cli.options import (
    Command,
    EngineCommand,
    Group,
    as_option,
    engine_arguments,
    language_option,
    level_of,
    option,
)
from tracellm.cli.stdout import print_out
from tracellm.report.texts import Language

if TYPE_CHECKING:
    from tracellm.bench.trial import Trial

__all__ = ["bench"]

_F = TypeVar("_F", bound=Callable[..., Any])
_AT_LEAST_1 = click.IntRange(min=1)
_NO_PREFIX_CACHE = {"enable_prefix_caching": False}
"""Default settings; with a prefix cache, repeats would find every prompt cached."""

_model_argument = click.argument("model", required=False)
_repeats_option = option(
    "--repeats", type=_AT_LEAST_1, default=5, metavar="N", show_default=True, help="bench.help.repeats"
)


def _requests(count: int, inputs: str, outputs: str) -> Callable[[_F], _F]:
    """Add the options for the number and lengths of requests."""

    def add(function: _F) -> _F:
        for name, key, default in (("--output-len", "output_len", outputs), ("--input-len", "input_len", inputs)):
            function = option(name, default=default, metavar="N|N-M", show_default=True, help=f"bench.help.{key}")(
                function
            )
        return option(
            "--num-prompts",
            type=_AT_LEAST_1,
            default=count,
            metavar="N",
            show_default=True,
            help="bench.help.num_prompts",
        )(function)

    return add


def _output(function: _F) -> _F:
    """Add the options of the output."""
    return option("--json", "as_json", is_flag=True, help="bench.help.json")(language_option(function))


@contextmanager
def _refusals() -> Iterator[None]:
    """Context that turns errors of the engine's and the benchmark's arguments into CommandError."""
    try:
        yield
    except BenchError as error:
        raise CommandError(f"bench.{error.key}", **error.values) from None
    except ValueError as error:
        if not is_users_mistake(error):
            raise
        raise CommandError("bench.refused", message=as_option(str(error))) from None


def _trial(model: str | None, num_prompts: int, input_len: str, output_len: str, engine: dict[str, Any]) -> "Trial":
    from tracellm.bench.trial import Trial
    from tracellm.bench.workload import parse_lengths

    with _refusals():
        inputs, outputs = parse_lengths("--input-len", input_len), parse_lengths("--output-len", output_len)
        return Trial(model, engine_arguments(engine), num_prompts, inputs, outputs)


@click.group(cls=Group, help="cli.help.bench", no_args_is_help=True)
def bench() -> None:
    """Measure the engine, a server or kernels."""


@bench.command(cls=EngineCommand, engine_defaults=_NO_PREFIX_CACHE, help="bench.help.throughput")
@_model_argument
@_requests(32, "32-256", "32-128")
@_repeats_option
@option("--explain", is_flag=True, help="bench.help.explain")
@option("--detail", metavar="LEVEL", help="bench.help.detail")
@_output
def throughput(
    lang: Language, repeats: int, explain: bool, detail: str | None, as_json: bool, **trial_options: Any
) -> int:
    """Measure the tokens per second of many requests at once.

    Raises:
        CommandError: `detail` without `explain`, an unknown level, or an argument that the engine refuses.
    """
    from tracellm.bench.throughput import throughput

    if detail and not explain:
        raise CommandError("only_explain", option="--detail")
    depth = (level_of(detail) or "default") if explain else None
    print_out(throughput(_trial(**trial_options), lang, repeats=repeats, depth=depth, as_json=as_json))
    return 0


@bench.command(cls=EngineCommand, engine_defaults=_NO_PREFIX_CACHE, help="bench.help.latency")
@_model_argument
@_requests(8, "32", "128")
@_repeats_option
@_output
def latency(lang: Language, repeats: int, as_json: bool, **trial_options: Any) -> int:
    """Measure the latency of one batch of requests."""
    from tracellm.bench.latency import latency

    print_out(latency(_trial(**trial_options), lang, repeats=repeats, as_json=as_json))
    return 0


@bench.command(cls=Command, help="bench.help.serve")
@option("--base-url", default="http://127.0.0.1:8000", metavar="URL", show_default=True, help="bench.help.base_url")
@option("--model", metavar="NAME", help="bench.help.serve_model")
@_requests(100, "32-256", "32-128")
@option(
    "--request-rate",
    type=click.FloatRange(min=0, min_open=True),
    default=float("inf"),
    metavar="X",
    help="bench.help.request_rate",
)
@option("--max-concurrency", type=_AT_LEAST_1, metavar="N", help="bench.help.max_concurrency")
@option("--seed", type=int, default=0, metavar="N", show_default=True, help="bench.help.seed")
@option("--api-key", metavar="KEY", help="bench.help.api_key")
@_output
def serve(
    lang: Language,
    base_url: str,
    model: str | None,
    num_prompts: int,
    input_len: str,
    output_len: str,
    request_rate: float,
    max_concurrency: int | None,
    seed: int,
    api_key: str | None,
    as_json: bool,
) -> int:
    """Measure a running server from its client's side. Returns 1 if a request failed."""
    from tracellm.bench.serve import Client, serve
    from tracellm.bench.workload import parse_lengths

    with _refusals():
        figures, failure = serve(
            Client(base_url, api_key),
            lang,
            model=model,
            requests=num_prompts,
            inputs=parse_lengths("--input-len", input_len),
            outputs=parse_lengths("--output-len", output_len),
            rate=request_rate,
            at_once=max_concurrency,
            seed=seed,
            as_json=as_json,
        )
    if failure:
        print(failure, file=sys.stderr)
    print_out(figures)
    return 1 if failure else 0


@bench.command(cls=EngineCommand, engine_defaults=_NO_PREFIX_CACHE, help="bench.help.kernels")
@_model_argument
@option("--ops", multiple=True, metavar="NAME", help="bench.help.ops")
@option("--tokens", default="1,16,256", metavar="N,N", show_default=True, help="bench.help.tokens")
@option("--context", type=_AT_LEAST_1, default=256, metavar="N", show_default=True, help="bench.help.context")
@_repeats_option
@_output
def kernels(
    lang: Language,
    model: str | None,
    ops: tuple[str, ...],
    tokens: str,
    context: int,
    repeats: int,
    as_json: bool,
    engine: dict[str, Any],
) -> int:
    """Measure each operation of a layer, in each implementation.

    Raises:
        CommandError: `tokens` is not a list of positive numbers, or the engine refuses an argument.
    """
    counts = [int(count) if count.strip().isdecimal() else 0 for count in tokens.split(",")]
    if min(counts) < 1:
        raise CommandError("bench.tokens", value=tokens)
    arguments = engine_arguments(engine)
    from tracellm.bench.kernels import kernels

    with _refusals():
        print_out(
            kernels(model, arguments, lang, names=ops, tokens=counts, context=context, repeats=repeats, as_json=as_json)
        )
    return 0

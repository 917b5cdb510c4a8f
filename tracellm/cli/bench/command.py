"""The `bench` commands for click: their options, which have vLLM's names where `vllm bench` has the same."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from tracellm.cli.engine_options import EngineCommand, engine_arguments
from tracellm.cli.errors import CommandError
from tracellm.cli.language import choose_language
from tracellm.report.texts import Language, text

if TYPE_CHECKING:
    from tracellm.cli.bench.trial import Trial

__all__ = ["bench_command"]

Job = Callable[[], int]
_AT_LEAST_1 = click.IntRange(min=1)


class _BenchCommand(EngineCommand):
    engine_defaults = {"enable_prefix_caching": False}  # noqa: RUF012  (as its base has it)


class _Group(click.Group):
    """The commands in the order in which they are told of."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See click."""
        return list(self.commands)


def bench_command(lang: Language) -> click.Group:
    """The group of commands, with their help in one language; each returns what to do."""

    def say(key: str, **values: Any) -> str:
        return text(lang, f"bench.help.{key}", **values)

    def option(*names: str, key: str | None = None, **further: Any) -> click.Option:
        return click.Option(list(names), help=say(key or names[0].strip("-").replace("-", "_")), **further)

    def command(name: str, job: Callable[..., int], params: Sequence[click.Parameter], *, engine: bool = True) -> None:
        further = [
            option("--json", "as_json", is_flag=True),
            click.Option(["--lang", "language"], metavar="en|zh", help=text(lang, "cli.help.lang")),
        ]
        made = (_BenchCommand if engine else click.Command)(
            name,
            params=[*params, *further],
            callback=lambda language, **given: lambda: job(choose_language(language), **given),
            help=f"{say(name)}\n\n{say(f'{name}.more')}",
            short_help=say(f"{name}.short"),
        )
        if isinstance(made, EngineCommand):
            made.engine_title = text(lang, "serve.help.engine")
        group.add_command(click.help_option("-h", "--help", help=text(lang, "cli.help.help"))(made))

    def requests(count: int, inputs: str, outputs: str) -> list[click.Parameter]:
        return [
            option("--num-prompts", type=_AT_LEAST_1, default=count, metavar="N", show_default=True),
            option("--input-len", default=inputs, metavar="N|N-M", show_default=True),
            option("--output-len", default=outputs, metavar="N|N-M", show_default=True),
        ]

    repeats = option("--repeats", type=_AT_LEAST_1, default=5, metavar="N", show_default=True)
    model = click.Argument(["model"], required=False)
    group = _Group("bench", help=say("group"), short_help=say("group.short"), no_args_is_help=True)
    click.help_option("-h", "--help", help=text(lang, "cli.help.help"))(group)
    command(
        "throughput",
        _throughput,
        [
            model,
            *requests(32, "32-256", "32-128"),
            repeats,
            option("--explain", is_flag=True),
            option("--detail", metavar="LEVEL"),
        ],
    )
    command("latency", _latency, [model, *requests(8, "32", "128"), repeats])
    command(
        "serve",
        _serve,
        [
            option("--base-url", default="http://127.0.0.1:8000", metavar="URL", show_default=True),
            option("--model", metavar="NAME", key="serve_model"),
            *requests(100, "32-256", "32-128"),
            option("--request-rate", type=click.FloatRange(min=0, min_open=True), default=float("inf"), metavar="X"),
            option("--max-concurrency", type=_AT_LEAST_1, metavar="N"),
            option("--seed", type=int, default=0, metavar="N", show_default=True),
            option("--api-key", metavar="KEY"),
        ],
        engine=False,
    )
    command(
        "kernels",
        _kernels,
        [
            model,
            option("--ops", multiple=True, metavar="NAME"),
            option("--tokens", default="1,16,256", metavar="N,N", show_default=True),
            option("--context", type=_AT_LEAST_1, default=256, metavar="N", show_default=True),
            repeats,
        ],
    )
    return group


def _trial(model: str | None, num_prompts: int, input_len: str, output_len: str, **engine: Any) -> "Trial":
    from tracellm.cli.bench.trial import Trial
    from tracellm.cli.bench.workload import parse_lengths

    inputs, outputs = parse_lengths("--input-len", input_len), parse_lengths("--output-len", output_len)
    return Trial(model, engine_arguments(engine), num_prompts, inputs, outputs)


def _throughput(lang: Language, repeats: int, explain: bool, detail: str | None, as_json: bool, **of_trial: Any) -> int:
    from tracellm.cli.bench.throughput import throughput
    from tracellm.cli.selection import level_of

    if detail and not explain:
        raise CommandError("only_explain", option="--detail")
    depth = (level_of(detail) or "default") if explain else None
    return throughput(_trial(**of_trial), lang, repeats=repeats, depth=depth, as_json=as_json)


def _latency(lang: Language, repeats: int, as_json: bool, **of_trial: Any) -> int:
    from tracellm.cli.bench.latency import latency

    return latency(_trial(**of_trial), lang, repeats=repeats, as_json=as_json)


def _serve(
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
    from tracellm.cli.bench.serve import Client, serve
    from tracellm.cli.bench.workload import parse_lengths

    return serve(
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


def _kernels(
    lang: Language,
    model: str | None,
    ops: tuple[str, ...],
    tokens: str,
    context: int,
    repeats: int,
    as_json: bool,
    **engine: Any,
) -> int:
    from tracellm.cli.bench.kernels import kernels

    counts = [int(one) if one.strip().isdecimal() else 0 for one in tokens.split(",")]
    if min(counts) < 1:
        raise CommandError("bench.tokens", value=tokens)
    given = engine_arguments(engine)
    return kernels(model, given, lang, names=ops, tokens=counts, context=context, repeats=repeats, as_json=as_json)

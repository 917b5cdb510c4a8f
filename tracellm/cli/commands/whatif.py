"""`tracellm whatif`: schedules a recorded run again under other settings, without its model."""

import sys
from collections.abc import Mapping
from typing import Any

import click

from tracellm.cli.errors import CommandError
from tracellm.cli.folders import open_run
from tracellm.cli.options import Command, as_option, language_option, option
from tracellm.cli.reports import FILE_WIDTH, write_reports
from tracellm.cli.stdout import print_out, width_of_terminal
from tracellm.report.texts import Language, text
from tracellm.trace.run_folder import RunFolder

__all__ = ["add_variant", "whatif"]


@click.command(cls=Command, usage=["[RUN]", "--SETTING VALUE ..."], help="cli.help.whatif")
@click.argument("name", required=False)
@option("--max-num-batched-tokens", type=int, metavar="N", help="cli.help.whatif.budget")
@option("--max-num-seqs", type=int, metavar="N", help="cli.help.whatif.seqs")
@option("--num-gpu-blocks-override", type=int, metavar="N", help="cli.help.whatif.blocks")
@option("--enable-prefix-caching/--no-enable-prefix-caching", default=None, help="cli.help.whatif.prefix_caching")
@option("--enable-chunked-prefill/--no-enable-chunked-prefill", default=None, help="cli.help.whatif.chunked_prefill")
@option("--long-prefill-token-threshold", type=int, metavar="N", help="cli.help.whatif.threshold")
@option("--scheduling-policy", metavar="fcfs|priority", help="cli.help.whatif.policy")
@language_option
def whatif(name: str | None, lang: Language, **settings: Any) -> int:
    """Print how a run's schedule would change, and add the changed schedule to its report.

    Returns 1 if the report could not be written, or the recording is damaged.

    Raises:
        CommandError: no such run, no setting, a setting out of range, or a run that cannot be scheduled again.
    """
    changes = {setting: value for setting, value in settings.items() if value is not None}
    run = open_run(name, lang)
    width = width_of_terminal() if sys.stdout.isatty() else FILE_WIDTH
    _, shown = add_variant(run, changes, lang, width)
    print_out(shown)
    missing_reports = write_reports(run, lang, only=("report.html",))
    if not missing_reports:
        print_out("\n" + text(lang, "whatif.report", path=run.path / "report.html"))
    return 1 if missing_reports or run.problems else 0


def add_variant(run: RunFolder, changes: Mapping[str, Any], lang: Language, width: int = FILE_WIDTH) -> tuple[str, str]:
    """Schedule a run again under these settings, keep the variant in its folder, and return its name and summary.

    Raises:
        CommandError: no setting, one that is out of range, a run that cannot be scheduled again, or a folder that
            cannot be written.
    """
    if not changes:
        raise CommandError("whatif.nothing")
    known = [param.name for param in whatif.params if param.name not in ("name", "lang")]
    for setting in changes:
        if setting not in known:
            raise CommandError("whatif.unknown", setting=setting, known=", ".join(map(str, known)))
    _check(run)
    from tracellm.engine.config.errors import EngineError
    from tracellm.whatif.summary import summary
    from tracellm.whatif.variant import replay_engines, variant_name, write_variant
    from tracellm.whatif.workload import Missing

    try:
        variants = replay_engines(run.trace, changes)
    except Missing as missing:
        raise CommandError(f"whatif.{missing.key}") from None
    except EngineError as error:
        raise CommandError("whatif.refused", message=as_option(str(error))) from None
    try:
        write_variant(run.path, variant_name(changes), variants, max(span.end_ns for span in run.trace.spans))
    except OSError as error:
        raise CommandError("out_unwritable", path=run.path, reason=error.strerror) from None
    return variant_name(changes), summary(variant_name(changes), variants, lang, width)


def _check(run: RunFolder) -> None:
    """Refuse a run of a real vLLM, and one without steps."""
    from tracellm.trace.steps import steps

    found = steps(run.trace)
    if not found:
        raise CommandError("whatif.no_steps")
    probes = run.manifest.get("probes")
    engine = probes.get("engine") if isinstance(probes, dict) else None
    if isinstance(engine, dict) and engine.get("name") == "vllm":
        raise CommandError("whatif.vllm")

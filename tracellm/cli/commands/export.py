"""`tracellm export`: converts an earlier run to the format of another tool, from its folder alone."""

import gzip
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click

from tracellm.cli.errors import CommandError
from tracellm.cli.folders import open_run
from tracellm.cli.options import Command, language_option, level_of, option
from tracellm.cli.reports import classes_in_focus, print_depth_limit
from tracellm.cli.stdout import closed_early, print_out
from tracellm.report.export import FORMATS, NEEDED, file_name
from tracellm.report.export import export as pieces_of
from tracellm.report.texts import Language, text
from tracellm.report.wording.quantities import byte_size

__all__ = ["export"]

_STDOUT = "-"


@click.command(cls=Command, usage=["[RUN]", "--to FORMAT"], help="cli.help.export")
@click.argument("name", required=False)
@option("--to", metavar="FORMAT", help="cli.help.export.to")
@option("--out", metavar="FILE", help="cli.help.export.out")
@option("--detail", metavar="LEVEL", help="cli.help.export.detail")
@option("--focus", multiple=True, metavar="CLASS", help="cli.help.export.focus")
@language_option
def export(
    name: str | None, to: str | None, out: str | None, detail: str | None, focus: tuple[str, ...], lang: Language
) -> int:
    """Write a run in the format `to` into the file `out`; print the file's path and how to open it.

    Returns 1 if the recording is damaged; what can be read of it is still written.

    Raises:
        CommandError: no such run, format or class in focus, the file cannot be written, or a package is missing.
    """
    level = level_of(detail)
    known = ", ".join(FORMATS)
    if to is None:
        raise CommandError("export_to", known=known)
    if to not in FORMATS:
        raise CommandError("export_format", value=to, known=known)
    run = open_run(name, lang)
    classes = classes_in_focus(run, focus, drawn=to == "mermaid")
    print_depth_limit(run, level, lang)
    path = Path(out) if out is not None else run.path / file_name(to)
    uncompressed = path.with_suffix("") if path.suffix == ".gz" else path
    try:
        pieces = pieces_of(run, to, name=uncompressed.name, detail=level, focus=classes, lang=lang)
        if out == _STDOUT:
            _to_stdout(pieces)
            return 1 if run.problems else 0
        with _written(path) as stream:
            for piece in pieces:
                stream.write(piece)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in NEEDED:
            raise
        raise CommandError("export_needs", format=to, package=package, install=NEEDED[package]) from None
    except OSError as error:
        raise CommandError("export_unwritable", path=path, reason=error.strerror or error) from None
    lines = [text(lang, "export.written", path=path, size=byte_size(path.stat().st_size))]
    if uncompressed is path:
        quoted = str(path) if to == "csv" else shlex.quote(str(path))  # for Python, or for a shell
        lines.append(text(lang, _how(to, path), path=quoted))
    print_out("\n".join(lines))
    return 1 if run.problems else 0


def _how(to: str, path: Path) -> str:
    """Return the key of the text on how to open the file."""
    if to != "otlp":
        return f"export.how.{to}"
    return f"export.how.otlp{path.suffix if path.suffix in ('.jsonl', '.pb') else '.json'}"


@contextmanager
def _written(path: Path) -> Iterator[IO[bytes]]:
    """Context with a stream to the file, which is replaced only when complete. A pipe is written to directly."""
    plain = path.is_file() or not path.exists()
    target = path.resolve() if plain else path
    half = target.with_name(f"{target.name}.part") if plain else target
    try:
        with half.open("wb") as raw:
            if path.suffix == ".gz":
                with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as stream:
                    yield stream  # type: ignore[misc]
            else:
                yield raw
        if plain:
            half.replace(target)
    except BaseException:
        if plain:
            half.unlink(missing_ok=True)
        raise


def _to_stdout(pieces: Iterator[bytes]) -> None:
    """Write to stdout, until it is closed, as by `head`."""
    stream = sys.stdout.buffer
    with closed_early():
        for piece in pieces:
            stream.write(piece)
        stream.flush()

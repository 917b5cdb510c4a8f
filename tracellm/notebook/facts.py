"""Facts of a run that show themselves in a cell: its client, its processes, its kernels, and the result of a check."""

from dataclasses import dataclass, fields
from html import escape
from typing import Any

from tracellm.cli.commands.check import check_text
from tracellm.notebook.rows import Rows, html_table, text_table
from tracellm.report.console.boxes import client_inputs
from tracellm.report.facts.kernels import KernelFacts
from tracellm.report.facts.process_messages import ProcessFacts
from tracellm.report.facts.startup import ClientChoice
from tracellm.report.html.boundary_view import process_view
from tracellm.report.texts import Language, text, texts
from tracellm.report.wording.quantities import byte_size, duration, number
from tracellm.report.wording.safe_text import visible
from tracellm.trace.expect import Result
from tracellm.trace.model import Trace

__all__ = ["Check", "Client", "kernel_rows", "process_rows"]

_PROCESS = ("column.process", "pid", "role", "column.threads", "column.calls")


@dataclass(frozen=True)
class Client(ClientChoice):
    """The client of the engine core, with the inputs of its choice.

    Attributes:
        lang: language of the rule and of the origins.
    """

    lang: Language = "en"

    @classmethod
    def of(cls, choice: ClientChoice, lang: Language) -> "Client":
        """Return a client that shows itself in a language."""
        return cls(**{field.name: getattr(choice, field.name) for field in fields(choice)}, lang=lang)

    @property
    def rule(self) -> str:
        """The condition under which this client is chosen."""
        key = f"client.rule.{self.choice}"
        return text(self.lang, key) if key in texts(self.lang) else ""

    @property
    def inputs(self) -> list[tuple[str, str, str]]:
        """Each input of `EngineCoreClient.make_client`: its name, its value, and its origin."""
        return client_inputs(self, self.lang)

    def __str__(self) -> str:
        """Return the client, its rule and the inputs as lines of text."""
        return "\n".join([f"{self._title}: {self.rule}", *text_table(self._rows, [True] * 3)])

    @property
    def _title(self) -> str:
        return text(self.lang, "client.title", choice=visible(self.choice))

    @property
    def _rows(self) -> list[tuple[str, str, str]]:
        return [(text(self.lang, "client.inputs"), "", ""), *self.inputs]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the display for IPython: client, rule and inputs, as text and as HTML."""
        title = f"<p style='margin:0'><strong>{escape(self._title)}</strong><br>{escape(self.rule)}</p>"
        return {"text/plain": str(self), "text/html": title + html_table(self._rows, [True] * 3)}


@dataclass(frozen=True)
class Check(Result):
    """The result of a check, which shows itself as `tracellm check` prints it.

    Attributes:
        report: the lines that the command prints.
    """

    report: str = ""

    @classmethod
    def of(cls, result: Result, trace: Trace, lang: Language) -> "Check":
        """Return a result that shows itself in a language."""
        values = {field.name: getattr(result, field.name) for field in fields(result)}
        return cls(**values, report=check_text(trace, result, "<text>", lang))

    def __str__(self) -> str:
        return self.report

    def __repr__(self) -> str:
        return f"<check: {self.matched} of {self.total} calls found in order>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the display for IPython: the report, as text and as HTML."""
        return {"text/plain": self.report, "text/html": f"<pre>{escape(self.report)}</pre>"}


def process_rows(processes: list[ProcessFacts], lang: Language) -> Rows[ProcessFacts]:
    """Return the processes with the columns of the report page, and their numbers of steps."""
    heads = [text(lang, f"html.boundary.{name}") if "." in name else text(lang, f"cell.{name}") for name in _PROCESS]
    marks = ("<", "", "<", "<", "")

    def cells(process: ProcessFacts) -> list[str]:
        view = process_view(process, lang)
        return [*(view[name] for name in ("name", "pid", "role", "threads", "calls")), f"{process.steps:,}"]

    named = [head + mark for head, mark in zip(heads, marks, strict=True)]
    return Rows(processes, lang, [*named, text(lang, "cell.steps")], cells)


def kernel_rows(kernels: list[KernelFacts], lang: Language, *, of_step: bool) -> Rows[KernelFacts]:
    """Return launched kernels with the columns of the report page; `of_step`: all are of one step."""
    heads = [text(lang, f"model.kernels.{name}") for name in ("name", "launches", "cpu", "gpu", "bytes", "flops")]

    def cells(kernel: KernelFacts) -> list[str]:
        return [
            visible(kernel.name),
            f"{kernel.launches:,}",
            duration(kernel.launch_ns / 1e9),
            duration(kernel.gpu_ns / 1e9) if kernel.timed else text(lang, "model.kernels.none"),
            byte_size(kernel.bytes),
            number(kernel.flops),
        ]

    nothing = text(lang, "model.kernels.empty.step" if of_step else "model.kernels.empty")
    return Rows(kernels, lang, [heads[0] + "<", *heads[1:]], cells, nothing)

"""One recorded run: what `tracellm.explain()` and `tracellm.open_run(path)` return.

    with tracellm.explain() as run:
        LLM().generate("Hello")
    run.steps[0].scheduled, run.requests[0].first_token_ms, run.client.choice
    run.tree(), run.sequence(focus="Scheduler"), run.to_pandas().steps

A run is read from its folder when something of it is first asked for, and then kept.
"""

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracellm.cli.errors import CommandError
from tracellm.cli.folders import open_run as open_folder
from tracellm.cli.folders import read_run
from tracellm.cli.options import choose_language, level_of
from tracellm.cli.reports import FILE_WIDTH, calltree_text, sequence_picture, sequence_text, steps_text, write_reports
from tracellm.notebook.facts import Check, Client, kernel_rows, process_rows
from tracellm.notebook.predict import Answer, answer
from tracellm.notebook.requests import RunRequests
from tracellm.notebook.rows import Rows
from tracellm.notebook.steps import RunStep, RunSteps
from tracellm.notebook.tables import Tables, as_arrow, as_pandas, as_polars
from tracellm.notebook.text import Mermaid, Text
from tracellm.report.facts.kernels import KernelFacts, kernels
from tracellm.report.facts.process_messages import ProcessFacts, processes
from tracellm.report.facts.startup import client_choice
from tracellm.report.steps_table import steps_table
from tracellm.report.texts import Language
from tracellm.report.wording.problems import problem_text, recording_problems
from tracellm.trace.model import Trace
from tracellm.trace.names import Level
from tracellm.trace.run_folder import RunFolder

if TYPE_CHECKING:
    from tracellm.notebook.widget import RunWidget

__all__ = ["Run", "Variant", "open_run"]


class Run:
    """A recorded run, read from its folder.

    Attributes:
        folder: the run folder, an absolute path.
        lang: language of sentences and diagrams, `en` or `zh`.
        recording: True inside the `with` block that records the run: nothing can be read yet.
    """

    def __init__(self, folder: Path, lang: Language) -> None:
        self.folder = folder.absolute()
        self.lang: Language = lang
        self.recording = False

    @cached_property
    def _run(self) -> RunFolder:
        if self.recording:
            raise RuntimeError("the run is still being recorded: read it after the `with` block")
        return read_run(str(self.folder), self.lang)  # without its problems: the recording has printed them

    @property
    def trace(self) -> Trace:
        """All spans of all processes.

        Raises:
            RuntimeError: the run is still being recorded; so does everything below.
        """
        return self._run.trace

    @property
    def manifest(self) -> dict[str, Any]:
        """The contents of run.json."""
        return self._run.manifest

    @property
    def problems(self) -> list[str]:
        """Sentences on what is missing or damaged in the recording; usually none."""
        damage = [problem_text(problem, self.lang) for problem in self._run.problems]
        return [*damage, *recording_problems(self._run.manifest, self.lang)]

    # -- facts ---------------------------------------------------------------------------------------------------------

    @cached_property
    def steps(self) -> RunSteps:
        """The steps of the engine; `print(run.steps)` prints them as a table."""
        return RunSteps(self.trace, self.lang, lambda: steps_text(self._run, self.lang))

    @cached_property
    def requests(self) -> RunRequests:
        """The requests, in the order of submission; `print(run.requests)` prints them as a table."""
        return RunRequests(self.trace, self.steps, self.lang)

    @property
    def client(self) -> Client | None:
        """The client of the engine core, and the inputs of its choice; None if the run did not get that far."""
        choice = client_choice(self.trace.spans)
        return None if choice is None else Client.of(choice, self.lang)

    @property
    def processes(self) -> Rows[ProcessFacts]:
        """The processes, each with its threads, calls and steps."""
        return process_rows(processes(self.trace), self.lang)

    def kernels(self, step: int | RunStep | None = None) -> Rows[KernelFacts]:
        """Return the launched Triton kernels: of a step, given as such or by its number, or of the whole run.

        Raises:
            KeyError: there is no such step.
        """
        found = kernels(self.trace)
        if step is not None:
            chosen = step if isinstance(step, RunStep) else self.steps.number(step)
            found = [kernel for kernel in found if kernel.step == chosen.span_id]
        return kernel_rows(found, self.lang, of_step=step is not None)

    # -- views ---------------------------------------------------------------------------------------------------------

    @property
    def report(self) -> Path:
        """Path of report.html."""
        return self.folder / "report.html"

    def tree(self, width: int = 100) -> Text:
        """Return the call tree, from the user's line down to the kernels, `width` columns wide."""
        return Text(calltree_text(self._run, self.lang, width), self.lang)

    def sequence(self, *, detail: Level | None = None, focus: str | Sequence[str] = ()) -> Mermaid:
        """Return the sequence diagram, as Mermaid; a notebook shows it as a picture.

        Args:
            detail: level to draw: request, step, layer or kernel. Default: the most useful calls.
            focus: classes or functions to draw, by names or patterns, with their callers and callees. Default: all.

        Raises:
            CommandError: `detail` is not a level, or a class in `focus` has no call in the run.
        """
        names = [focus] if isinstance(focus, str) else focus
        level = level_of(detail)
        source = sequence_text(self._run, self.lang, detail=level, focus=names)
        return Mermaid(source, sequence_picture(self._run, self.lang, detail=level, focus=names), self.lang)

    def widget(self) -> "RunWidget":
        """Return a widget with the requests and the steps, whose selection can be read and set in Python.

        Raises:
            ModuleNotFoundError: anywidget is not installed.
        """
        try:
            from tracellm.notebook.widget import RunWidget
        except ModuleNotFoundError as error:
            if error.name not in ("anywidget", "traitlets"):
                raise
            raise ModuleNotFoundError("run.widget() needs anywidget: pip install 'tracellm[widget]'") from None
        return RunWidget(self)

    # -- comparisons ---------------------------------------------------------------------------------------------------

    def diff(self, other: "Run", width: int = 100) -> Text:
        """Return the differences from this run to another, as `tracellm diff` prints them."""
        from tracellm.report.diff import diff_text

        return Text(diff_text(self._run, other._run, lang=self.lang, width=width), self.lang)

    def check(self, expected: str) -> Check:
        """Compare the run with the calls in a Mermaid sequence diagram, as `tracellm check` does.

        Raises:
            CommandError: the text is not a sequence diagram, or has no calls.
        """
        from tracellm.trace.expect import check
        from tracellm.trace.expect.read import read_mermaid

        lines = list(enumerate(expected.splitlines(), 1))
        first = next((i for i, (_, line) in enumerate(lines) if line.strip().startswith("sequenceDiagram")), None)
        expectation = None if first is None else read_mermaid(lines[first:])
        if expectation is None or not expectation.arrows:
            raise CommandError("expect_empty", path="<text>")
        return Check.of(check(self.trace, expectation), self.trace, self.lang)

    def predict(self, what: str, said: Any, *, request: int | str | None = None, step: int | None = None) -> Answer:
        """Compare a prediction with the recording: `run.predict("blocks", 3, request=0)`.

        Args:
            what: `client` (its class), `processes`, `steps`, `preemptions` (their numbers); of a step, `batch` (number
                of its requests) and `tokens`; of a request, `blocks`, `cached` (prompt tokens from the prefix cache),
                `waits` (steps in the waiting queue) and `finish` (reason); of a request in a step, `slot` (of its last
                token) and `token` (text of the sampled one).
            said: the prediction; `...` for none yet.
            request: position or id of the request.
            step: number of the step.

        Returns:
            `right`, the recorded `value`, and the `reason`; shown as a sentence.

        Raises:
            CommandError: there is no such question, or it needs a request or a step.
            KeyError, IndexError: there is no such request or step.
        """
        return answer(self, what, said, request, step)

    def whatif(self, **settings: Any) -> "Variant":
        """Schedule the run again under other settings, without its model, and add the variant to its report.

        Args:
            settings: engine arguments by their names, such as `max_num_batched_tokens=64`.

        Raises:
            CommandError: no setting, a setting out of range, or a run that cannot be scheduled again.
        """
        from tracellm.cli.commands.whatif import add_variant

        name, summary = add_variant(self._run, settings, self.lang)
        self._run = RunFolder(self._run.path, self._run.manifest, self._run.trace, self._run.problems)
        write_reports(self._run, self.lang, only=("report.html",))
        return Variant(name, Text(summary, self.lang), self._run.variants[name], self.lang)

    # -- data frames ---------------------------------------------------------------------------------------------------

    def to_arrow(self) -> Tables[Any]:
        """Return the run as tables of PyArrow: `spans`, `steps`, `requests` and `blocks`.

        Raises:
            ModuleNotFoundError: PyArrow is not installed.
        """
        return as_arrow(self)

    def to_pandas(self) -> Tables[Any]:
        """Return the run as data frames of pandas: `spans`, `steps`, `requests` and `blocks`.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        return as_pandas(self)

    def to_polars(self) -> Tables[Any]:
        """Return the run as data frames of Polars: `spans`, `steps`, `requests` and `blocks`.

        Raises:
            ModuleNotFoundError: Polars is not installed.
        """
        return as_polars(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the display for IPython: the answer, as text and as HTML without a script."""
        if self.recording:
            return {"text/plain": repr(self)}
        from tracellm.notebook.summary import summary_html, summary_text

        return {
            "text/plain": f"{summary_text(self._run, self.lang)}\n{self!r}",
            "text/html": summary_html(self._run, self.lang),
        }

    def __repr__(self) -> str:
        if self.recording:
            return f"<run in {self.folder}, being recorded>"
        return f"<run in {self.folder}: .steps, .requests, .client, .tree(), .sequence(), .to_pandas(); report.html>"


class Variant:
    """A run that was scheduled again under other settings; `print` shows it beside the recorded run.

    Attributes:
        name: its name in the report.
        steps: its steps; they have no times and no logits.
    """

    def __init__(self, name: str, summary: Text, trace: Trace, lang: Language) -> None:
        self.name = name
        self.steps = RunSteps(trace, lang, lambda: steps_table(trace, lang=lang, width=FILE_WIDTH))
        self._summary = summary

    def __str__(self) -> str:
        return self._summary

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the display for IPython: the comparison, as text and as HTML."""
        return self._summary._repr_mimebundle_()

    def __repr__(self) -> str:
        return f"<variant {self.name}: {len(self.steps)} steps>"


def open_run(path: str | os.PathLike[str] | None = None, *, lang: str | None = None) -> Run:
    """Return a run on disk.

    Args:
        path: the run folder, its name in `tracellm-runs/`, or a script, for its newest run. Default: the newest run.
        lang: `en` or `zh`. Default: TRACELLM_LANG, then the locale.

    Raises:
        CommandError: there is no such run, its folder cannot be read, or the language is unknown.
    """
    language = choose_language(lang)
    found = open_folder(None if path is None else os.fspath(path), language)
    run = Run(found.path, language)
    run._run = found
    return run

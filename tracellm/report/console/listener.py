"""The live console: prints spans as they end, in a readable order.

Start-up is printed outside in, client, model, cache, though the spans end inside out. The first step of each kind,
prefill or decode, is printed in full. Later, a run of alike steps is one line, printed when it is over. A step with a
change has a line of its own, with the change below it.

Spans of different processes come in any order: the client's process may be read after the engine core's, or before it.
An engine's load is printed once it is complete and its client was printed. Its steps are held back until then, up to a
limit, since a recording may lack the spans of a start-up.
"""

from collections import deque
from collections.abc import Container, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from msgspec.structs import replace

from tracellm.report.console.boxes import (
    PHASES,
    client_line,
    client_rows,
    kv_line,
    kv_rows,
    load_line,
    load_rows,
    output_line,
    sampled_tokens,
    step_rows,
    step_title,
)
from tracellm.report.console.terminal import Terminal, rows
from tracellm.report.facts.coverage import cost, is_recorded, notes, skipped_calls
from tracellm.report.facts.http_requests import HttpRequest, http_request
from tracellm.report.facts.recording_time import share_of_generation
from tracellm.report.facts.startup import (
    MAKING_ENGINE,
    ClientChoice,
    client_choice,
    is_about_startup,
    kv_cache,
    model_load,
)
from tracellm.report.requests_list import failed_text
from tracellm.report.texts import Language, text, texts
from tracellm.report.wording.changes import alike, changes
from tracellm.report.wording.quantities import byte_size, duration
from tracellm.report.wording.request_names import RequestNames
from tracellm.report.wording.safe_text import shorten, visible
from tracellm.report.wording.titles import step_kind
from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.steps import STEP_SPAN, Step, engine_key, read_step

__all__ = ["Console"]

_MAIN = "main"
"""The script's process. An engine's steps end there after its start-up, and are never held back."""

_IN_PROCESS = "InprocClient"
"""The client that makes its engine core itself: when its span ends, the whole start-up has been read."""

_MOST_HELD = 64
"""Steps held back at most for a start-up that has not been read."""

_LAST_SENDS = 64
"""Number of recent sends kept, to recognize an `encode` whose `encode_into` was already counted."""

_LONGEST_ERROR = 500  # characters

_MOST_FAILED = 20
"""Failed HTTP requests that are printed."""

_MOST_REASONS = 1024
"""Ended requests whose reasons are kept."""

_MOST_OUTPUTS = 8
"""Outputs of the brief console."""


class Console:
    """The console's listener: call it with each span that ends, then `finish` it.

    It writes to stderr unless given another stream.

    Args:
        lang: language of the log.
        stream: stream to write to.
        quiet: print nothing.
        brief: print a line for each part of the start-up, each group of steps and each output, instead of boxes.
        explain: print what the client is for, and how to get another one.

    Attributes:
        has_explained: whether that was printed.
    """

    names = frozenset({*PHASES.values(), MAKING_ENGINE})
    """Spans it needs besides those with more than arguments and result (see probes/spans/live_feed.py)."""

    def __init__(
        self,
        lang: Language = "en",
        stream: TextIO | None = None,
        *,
        quiet: bool = False,
        brief: bool = False,
        explain: bool = True,
    ) -> None:
        self.has_explained = False
        self._lang = lang
        self._terminal = Terminal(stream, quiet=quiet)
        self._quiet, self._brief, self._explain = quiet, brief, explain
        self._outputs: list[Span] = []  # finished requests, of the brief console
        self._startup: list[Span] = []  # not printed yet
        self._clients = self._engines = 0  # numbers printed
        self._introduced: set[Hashable] = set()  # engines whose steps are no longer held back
        self._held: list[Span] = []  # steps of other engines, ordered by end
        self._phases: dict[str, dict[str, int]] = {}  # span id of a step -> method -> nanoseconds
        self._request_names = RequestNames()
        self._reasons: dict[str, str] = {}  # of the last requests that ended, by their ids
        self._shown: set[str] = set()  # kinds of steps printed in full
        self._run: _Run | None = None  # alike steps not printed yet
        self._last: dict[Hashable, Span] = {}  # engine -> its last step
        self._engine: Hashable = None  # the engine whose steps are being printed
        self._messages: dict[str, tuple[int, int]] = {}  # type -> number between processes, bytes
        self._inner: deque[tuple[str | None, str, int]] = deque(maxlen=_LAST_SENDS)  # caller, type, bytes
        self._failed = 0  # HTTP requests
        self._steps = self._requests = self._prompt_tokens = self._output_tokens = 0

    def __call__(self, span: Span) -> None:
        """Count a span that has ended, and print what is due."""
        if span.name in PHASES.values() and span.parent_span_id:
            self._phases.setdefault(span.parent_span_id, {})[span.name] = span.duration_ns
        elif span.name == STEP_SPAN:
            self._step(span)
        elif span.name == names.REQUEST_SPAN:
            self._requests += 1
            self._prompt_tokens += int(span.attributes.get(names.GEN_AI_INPUT_TOKENS) or 0)
            self._output_tokens += int(span.attributes.get(names.GEN_AI_OUTPUT_TOKENS) or 0)
            self._keep_reason(span)
            if self._brief and len(self._outputs) < _MOST_OUTPUTS:
                self._outputs.append(span)
        elif names.HTTP_METHOD in span.attributes:
            self._http(http_request(span))
        elif span.attributes.get(names.MESSAGE_OPERATION) == "send" and span.error is None:
            self._sent(span)
        elif is_about_startup(span) or (span.name == MAKING_ENGINE and client_choice(self._startup)):
            self._startup.append(span)
            self._print_ready()

    def depth_limited(self, steps: int, size: int) -> None:
        """Print that only requests and steps are recorded from here on, and the limit that was reached."""
        self._print_run()
        self._terminal.line(
            text(self._lang, "console.depth_limited", steps=steps, size=byte_size(size)), style="yellow"
        )

    def finish(self, manifest: Mapping[str, Any], report: Path | None = None, trace: Trace | None = None) -> None:
        """Print the last steps, the outcome of the run (its run.json), and the path of the report.

        `trace` is the run's, if it was converted; the recording's share of generation is computed from it.
        """
        self._print_startup()
        self._release()
        self._print_run()
        self._print_outputs()
        seconds = manifest.get("duration_s")
        ending = text(
            self._lang,
            "console.end",
            status=self._status(manifest),
            what=self._counted(manifest),
            time=duration(float(seconds)) if isinstance(seconds, int | float) else "?",
        )
        self._terminal.line(ending, style="bold")
        remarks = [*notes(manifest, self._lang), *skipped_calls(manifest, self._lang)]
        if not self._brief:
            if crossed := self._messages_text():
                self._terminal.line(text(self._lang, "console.crossed", what=crossed))
            share = None if trace is None else share_of_generation(trace, manifest)
            remarks += cost(manifest, self._lang, share)
        for remark in remarks:
            self._terminal.line(remark)
        if report is not None:
            self._terminal.verbatim(text(self._lang, "console.report", path=visible(str(report))))
        if isinstance(error := manifest.get("error"), Mapping):  # last, since the traceback is far above
            self._terminal.line(self._error(error, str(manifest.get("cwd"))), style="red")

    def _print_outputs(self) -> None:
        """Print the prompts and outputs of the brief console, in the order of submission."""
        for span in sorted(self._outputs, key=lambda span: span.start_ns):
            request_id = self._request_names.shorten(str(span.attributes.get(names.REQUEST_ID, "?")))
            self._terminal.brief(output_line(span, request_id, self._lang))
        if self._outputs and (more := self._requests - len(self._outputs)):
            self._terminal.brief(text(self._lang, "console.step.more", n=more))

    def _status(self, manifest: Mapping[str, Any]) -> str:
        """Return the outcome of the run, with its exit status if no exception explains it."""
        key = f"common.status.{manifest.get('status')}"
        status = text(self._lang, key if key in texts(self._lang) else "common.status.unknown")
        if manifest.get("status") == "failed" and manifest.get("error") is None:
            return text(self._lang, "console.exit_status", status=status, exit_status=manifest.get("exit_status"))
        return status

    def _error(self, error: Mapping[str, Any], cwd: str) -> str:
        """Return the exception that ended the script, with its message and the user's line."""
        kind, message = str(error.get("type")).rpartition(".")[2], error.get("message")
        what = shorten(visible(f"{kind}: {message}" if message else kind), _LONGEST_ERROR)
        if not error.get("file"):
            return what
        where = visible(f"{str(error['file']).removeprefix(f'{cwd}/')}:{error.get('line')}")
        return text(self._lang, "console.error", where=where, error=what)

    def _counted(self, manifest: Mapping[str, Any]) -> str:
        """Requests, tokens and steps, as far as they were recorded."""
        counts = {"requests": self._requests, "prompt": self._prompt_tokens, "output": self._output_tokens}
        counts |= {"steps": self._steps, "failed": self._failed}
        shown = {"requests": is_recorded(manifest, "requests"), "failed": self._failed > 0}
        shown["steps"] = is_recorded(manifest, "steps")
        subjects = [subject for subject, is_shown in shown.items() if is_shown]
        return "".join(text(self._lang, f"console.end.{subject}", **counts) for subject in subjects)

    def _keep_reason(self, request: Span) -> None:
        """Keep why a request ended: a step soon names it, if it was aborted."""
        reasons = request.attributes.get(names.GEN_AI_FINISH_REASONS)
        if isinstance(reasons, list) and reasons:
            self._reasons[str(request.attributes.get(names.REQUEST_ID, ""))] = str(reasons[0])
            if len(self._reasons) > _MOST_REASONS:
                del self._reasons[next(iter(self._reasons))]

    def _http(self, http: HttpRequest) -> None:
        """Print an HTTP request that got an error; after the first ones they are only counted."""
        if not http.failed or http.client_left:
            return
        self._failed += 1
        if self._failed <= _MOST_FAILED:
            self._print_run()
            self._terminal.line(failed_text(http, self._lang), style="yellow")
        elif self._failed == _MOST_FAILED + 1:
            self._terminal.line(text(self._lang, "requests.failed.more"), style="yellow")

    def _sent(self, span: Span) -> None:
        size = span.attributes.get(names.MESSAGE_BYTES)
        sent = span.parent_span_id, str(span.attributes.get(names.MESSAGE_TYPE, "?")), size if type(size) is int else 0
        for caller, kind, its_size in self._inner:
            if caller == span.span_id:  # `encode` calls `encode_into`: one message
                self._count(kind, -1, -its_size)
        self._inner.append(sent)
        self._count(sent[1], 1, sent[2])

    def _count(self, kind: str, messages: int, size: int) -> None:
        before = self._messages.get(kind, (0, 0))
        self._messages[kind] = before[0] + messages, before[1] + size

    def _messages_text(self) -> str:
        """Return the messages between the processes: their number by type, and their size."""
        counts = [f"{count:,} {visible(kind)} ({byte_size(size)})" for kind, (count, size) in self._messages.items()]
        return text(self._lang, "step.comma").join(counts)

    def _print_ready(self) -> None:
        """Print the client once it is known, an engine's load once it is complete, and then its waiting steps.

        Whether an argument chose the client is recorded with the call that made the engine, which ends later.
        """
        choice = client_choice(self._startup)
        if choice and (choice.asyncio_mode or choice.is_real_vllm or choice.by_argument is not None):
            self._print_client(choice)
            if choice.choice == _IN_PROCESS:
                self._print_startup()
        if self._engines < self._clients and self._is_loaded() and _has_any(self._startup, names.SCHEDULER_ASYNC):
            self._print_startup()

    def _is_loaded(self) -> bool:
        """Return whether the spans of a start-up include the KV cache, which is set up last."""
        return kv_cache(self._startup) is not None

    def _print_client(self, choice: ClientChoice) -> None:
        self._clients += 1
        if self._brief:
            self._terminal.brief(client_line(choice, self._lang))
        else:
            title = text(self._lang, "client.title", choice=visible(choice.choice))
            self._terminal.box(title, rows(client_rows(choice, self._lang, explain=self._explain)))
            self.has_explained = self._explain and not self._quiet
        self._startup = [
            span for span in self._startup if names.CLIENT_CHOICE not in span.attributes and span.name != MAKING_ENGINE
        ]

    def _print_startup(self) -> None:
        """Print the spans read of a start-up, complete or not."""
        if choice := client_choice(self._startup):
            self._print_client(choice)
        spans, self._startup = self._startup, []
        if not spans:
            return
        self._engines += 1
        self._introduced |= {engine_key(span) for span in spans}
        load, cache = model_load(spans), kv_cache(spans)
        if self._brief:
            if load:
                self._terminal.brief(load_line(load, self._lang))
            if cache:
                self._terminal.brief(kv_line(cache, self._lang))
            self._release(self._introduced)
            return
        if load:
            name = visible(load.architecture or load.source or "?")
            self._terminal.box(text(self._lang, "console.load", name=name), rows(load_rows(load, self._lang)))
        if cache:
            self._terminal.box(text(self._lang, "console.kv"), rows(kv_rows(cache, self._lang)))
        self._release(self._introduced)

    def _step(self, span: Span) -> None:
        """Print a step, or hold it back until its engine's start-up was printed."""
        engine = engine_key(span)
        if engine not in self._introduced:
            has_client = self._clients or client_choice(self._startup) is not None
            if span.process is None or span.process.name == _MAIN or (has_client and self._is_loaded()):
                self._print_startup()
                self._introduced.add(engine)
            else:
                self._held.append(span)
                if len(self._held) > _MOST_HELD:
                    self._print_startup()
                    self._release()
                return
        self._print_step(span)

    def _release(self, engines: Container[Hashable] | None = None) -> None:
        """Print the held steps of these engines, or of all."""
        held, self._held = self._held, []
        for span in held:
            if engines is None:
                self._introduced.add(engine_key(span))
            if engines is None or engine_key(span) in engines:
                self._print_step(span)
            else:
                self._held.append(span)

    def _print_step(self, span: Span) -> None:
        phases = self._phases.pop(span.span_id, {})
        self._steps += 1
        if span.attributes.get(names.STEP_KIND, "unknown") == "unknown":  # its scheduling was not recorded
            return
        engine = engine_key(span)
        if engine != self._engine:
            self._print_run()
            self._engine = engine
        before = self._last.get(engine)
        self._last[engine] = span
        if self._run is not None and alike(span, self._run.last):
            self._run.add(span)
        else:
            self._print_run()
            self._print_or_keep(self._read(span), phases, None if before is None else self._read(before))

    def _read(self, span: Span) -> Step:
        step = read_step(span)
        if step.aborted:
            reasons = {id: self._reasons[id] for id in step.aborted if id in self._reasons}
            step = replace(step, abort_reasons=reasons)
        return self._request_names.in_step(step)

    def _print_or_keep(self, step: Step, phases: Mapping[str, int], before: Step | None) -> None:
        """Print the first step of its kind in full, unless brief; keep any other as the start of a run."""
        if not self._brief and step.requests and step.kind not in self._shown:
            self._shown.add(step.kind)
            title = f"{self._engine_prefix()}{step_title(step, self._lang)}"
            self._terminal.box(title, rows(step_rows(step, phases, self._lang, before)))
        else:
            self._run = _Run(step, changes(step, self._lang, before))

    def _engine_prefix(self) -> str:
        """Return the name of the engine of these steps, if there are several: each counts its own."""
        process = self._last[self._engine].process
        if process is not None and process.name.startswith("EngineCore_DP"):
            return f"{process.name}: "
        if len(self._last) < 2:
            return ""
        return text(self._lang, "console.engine", number=[*self._last].index(self._engine) + 1)

    def _print_run(self) -> None:
        run, self._run = self._run, None
        if run is None:
            return
        line = self._run_line(run)
        if self._brief:
            self._terminal.brief(line)
            return
        self._terminal.line(line)
        if run.steps == 1 and run.first.output_of and "CALL" in self._messages:  # of a pipeline
            tokens = text(self._lang, "step.comma").join(sampled_tokens(run.first, self._lang))
            self._terminal.line(
                text(self._lang, "console.run.tokens", index=run.first.output_of, tokens=tokens), indent=4
            )
        for change in run.changes:
            self._terminal.line(change, indent=4)

    def _run_line(self, run: "_Run") -> str:
        """Return the line of alike steps; in the brief console with their changes."""
        values: dict[str, Any] = {
            "first": run.first.index,
            "kind": step_kind(run.first.kind, self._lang),
            "requests": len(run.first.requests),
            "tokens": run.tokens,
            "time": duration(run.nanoseconds / run.steps / 1e9),
        }
        if run.steps > 1:
            values["last"] = run.last.attributes.get(names.STEP_INDEX)
        line = self._engine_prefix() + text(self._lang, "console.runs" if run.steps > 1 else "console.run", **values)
        return text(self._lang, "console.brief.join").join([line, *run.changes]) if self._brief else line

    def close(self) -> None:
        """End the use of the terminal; called even if the run fails before `finish`."""


def _has_any(spans: Iterable[Span], attribute: str) -> bool:
    return any(attribute in span.attributes for span in spans)


class _Run:
    """Alike steps in a row; `changes` is what changed in the first."""

    def __init__(self, first: Step, changes: list[str]) -> None:
        self.first, self.changes = first, changes
        self.steps = self.tokens = self.nanoseconds = 0
        self.add(first.span)

    def add(self, step: Span) -> None:
        """Append a step."""
        self.last = step
        self.steps += 1
        self.tokens += sum(step.attributes.get(names.STEP_TOKENS) or ())
        self.nanoseconds += step.duration_ns

"""Content of the console's boxes, as rows of a heading and lines."""

from collections.abc import Mapping, Sequence

from tracellm.report.console.terminal import Row
from tracellm.report.facts.counterparts import VLLM_VERSIONS, files_of
from tracellm.report.facts.startup import ClientChoice, KVCache, ModelLoad
from tracellm.report.steps_table import drawn_from
from tracellm.report.texts import text, texts
from tracellm.report.texts.client import CODE, COMMAND, VLLM_CLASSES, VLLM_CODE, VLLM_COMMAND
from tracellm.report.wording.changes import endings, queue_changes
from tracellm.report.wording.quantities import byte_size, clip, duration, percent
from tracellm.report.wording.safe_text import beginning, shorten, visible
from tracellm.report.wording.titles import step_kind
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.ranges import format_ranges
from tracellm.trace.steps import ScheduledRequest, Step

__all__ = [
    "client_inputs",
    "client_line",
    "client_rows",
    "clients",
    "kv_line",
    "kv_rows",
    "load_line",
    "load_rows",
    "output_line",
    "real_vllm",
    "sampled_tokens",
    "step_rows",
    "step_title",
    "ways_to_clients",
]

_CLIENTS = ("InprocClient", "SyncMPClient", "AsyncMPClient")
PHASES = {
    "schedule": "EngineCore._schedule",
    "execute": "EngineCore._execute_model",
    "process": "EngineCore._process_model_outputs",
}
"""The three phases of a step and their methods."""
MOST_REQUESTS = 5
_LONGEST_PROMPT, _LONGEST_OUTPUT = 24, 60  # characters, in one line


def client_rows(choice: ClientChoice, lang: str, *, explain: bool = True) -> list[Row]:
    """Return why this client was chosen; with `explain`, also its purpose, its effect and how to get another."""
    inputs = [f"{name} = {value}: {origin}" for name, value, origin in client_inputs(choice, lang)]
    rule = [
        f"{'*' if client == choice.choice else ' '} {text(lang, f'client.rule.{client}')} -> {client}"
        for client in reversed(clients(choice))
    ]
    rows = [Row(text(lang, "client.inputs"), inputs), Row(text(lang, "client.rule"), rule)]
    if not explain:
        return rows
    rows.insert(0, Row(text(lang, "client.what.heading"), [text(lang, "client.what")]))
    if (key := f"client.means.{choice.choice}") in texts(lang):
        rows.append(Row(text(lang, "client.means"), [text(lang, key)]))
    switch = []
    code, command = ways_to_clients(choice)
    for client in clients(choice):
        if client != choice.choice:
            switch += [f"{client}: {code[client][0]}", f"{text(lang, 'client.or')} {command[client]}"]
    rows.append(Row(text(lang, "client.switch"), switch))
    rows.append(Row(text(lang, "client.note"), [real_vllm(choice, lang)]))
    if choice.choice in VLLM_CLASSES:
        classes_by_file = files_of(VLLM_CLASSES[choice.choice], VLLM_VERSIONS[0])
        files = [f"{file}: {', '.join(classes)}" for file, classes in classes_by_file.items()]
        rows.append(Row(text(lang, "client.vllm"), files))
    return rows


def clients(choice: ClientChoice) -> tuple[str, ...]:
    """Return the clients that the rule chooses from; the one of several engine cores only if it was chosen."""
    return (*_CLIENTS, "DPLBAsyncMPClient") if choice.choice == "DPLBAsyncMPClient" else _CLIENTS


def ways_to_clients(choice: ClientChoice) -> tuple[Mapping[str, Sequence[str]], Mapping[str, str]]:
    """Return the script lines and the command for each client, in the engine that chose."""
    return (VLLM_CODE, VLLM_COMMAND) if choice.is_real_vllm else (CODE, COMMAND)


def client_inputs(choice: ClientChoice, lang: str) -> list[tuple[str, str, str]]:
    """Return each input of `make_client`: its name, its value, and its origin."""
    return [
        (
            name,
            visible(str(getattr(choice, name))),
            text(lang, _origin(name, choice, lang), value=int(choice.multiprocess_mode)),
        )
        for name in ("multiprocess_mode", "asyncio_mode", "executor_class")
    ]


def _origin(name: str, choice: ClientChoice, lang: str) -> str:
    """Return the key of the text about the origin of an input."""
    key = f"client.from.{name}"
    if choice.asyncio_mode and f"{key}.async" in texts(lang):
        return f"{key}.async"
    if name != "multiprocess_mode":
        return key
    if choice.is_real_vllm:
        key = f"{key}.vllm"
    elif choice.by_argument is None:
        return key
    elif choice.by_argument:
        return f"{key}.argument"
    if choice.variable_set is None:
        return key
    return f"{key}.{'environment' if choice.variable_set else 'default'}"


def real_vllm(choice: ClientChoice, lang: str) -> str:
    """Return a note about the client that a real vLLM would have made, or about that vLLM's default."""
    keys = [f"client.real.{choice.choice}", "client.real"]
    if choice.is_real_vllm:
        keys.insert(0, f"client.real.vllm.{choice.choice}")
    return text(lang, next(key for key in keys if key in texts(lang)))


def load_rows(load: ModelLoad, lang: str) -> list[Row]:
    """Return the stages of loading a model, its operations, and the mode of scheduling."""
    facts = {
        "source": visible(load.source or "?"),
        "files": len(load.files),
        "device": visible(load.device or "?"),
        "bytes": byte_size(load.bytes or 0),
        "tensors": load.tensors or 0,
        "parameters": load.parameters or 0,
        "dtype": visible(load.dtype or "?"),
    }
    rows = []
    for number, stage in enumerate(load.stages, start=1):
        heading = f"{number} {text(lang, f'console.load.stage.{stage.name}')}"
        rows.append(Row(heading, [text(lang, f"console.load.{stage.name}", **facts)], duration(stage.seconds)))
    if load.ops is not None:
        why = ops_reason(load.ops_reason, lang)
        lines = [text(lang, "console.load.ops.why", ops=visible(load.ops), why=why)]
        if load.compile_seconds is not None:
            lines.append(text(lang, "console.load.compiled", time=duration(load.compile_seconds)))
        rows.append(Row(text(lang, "console.load.ops"), lines))
    if f"async.reason.{load.async_reason}" in texts(lang):
        rows.append(Row(text(lang, "console.load.async"), [text(lang, f"async.reason.{load.async_reason}")]))
    return rows


def ops_reason(code: str | None, lang: str) -> str:
    """Return why these operations, in words; an unknown code as it is."""
    key = f"ops.reason.{code}"
    return text(lang, key) if key in texts(lang) else visible(code or "?")


def kv_rows(cache: KVCache, lang: str) -> list[Row]:
    """Return the KV cache's size in blocks, tokens and bytes."""
    room = (cache.num_blocks - 1) // cache.num_groups * cache.block_size  # the null block holds no tokens
    size = text(lang, "console.kv.size", blocks=cache.num_blocks, size=cache.block_size, room=room)
    rows = [Row(text(lang, "console.kv.blocks"), [size])]
    if cache.num_groups > 1:
        rows.append(Row(text(lang, "console.kv.groups"), [text(lang, "console.kv.shared", groups=cache.num_groups)]))
    if cache.bytes is not None:
        memory = byte_size(cache.bytes)
        if cache.available_bytes is not None:
            memory = text(lang, "console.kv.of", bytes=memory, available=byte_size(cache.available_bytes))
        rows.append(Row(text(lang, "console.kv.memory"), [memory]))
    return rows


def client_line(choice: ClientChoice, lang: str) -> str:
    """Return the client and the rule that chose it, for the brief console."""
    rule = text(lang, key) if (key := f"client.rule.{choice.choice}") in texts(lang) else "?"
    return text(lang, "console.brief.client", choice=visible(choice.choice), rule=rule)


def load_line(load: ModelLoad, lang: str) -> str:
    """Return the model and where it is, for the brief console."""
    return text(
        lang,
        "console.brief.load",
        name=visible(load.architecture or load.source or "?"),
        bytes=byte_size(load.bytes or 0),
        dtype=visible(load.dtype or "?"),
        device=visible(load.device or "?"),
        time=duration(sum(stage.seconds for stage in load.stages)),
    )


def kv_line(cache: KVCache, lang: str) -> str:
    """Return the size of the KV cache, for the brief console."""
    lines = [line for row in kv_rows(cache, lang) for line in row.lines]
    return text(lang, "console.brief.kv", what=text(lang, "console.brief.join").join(lines))


def output_line(request: Span, request_id: str, lang: str) -> str:
    """Return a finished request's prompt and output, or the number of its tokens in a recording without text."""
    get = request.attributes.get
    prompt, output = get(names.REQUEST_PROMPT), get(names.REQUEST_OUTPUT)
    if output is None:
        made = text(lang, "common.tokens", n=get(names.GEN_AI_OUTPUT_TOKENS) or 0)
    else:
        made = f'"{beginning(str(output), _LONGEST_OUTPUT)}"'
    given = "" if prompt is None else f'"{beginning(str(prompt), _LONGEST_PROMPT)}" '
    return text(lang, "console.brief.output", id=visible(request_id), prompt=given, output=made)


def step_title(step: Step, lang: str) -> str:
    """Return the title of a step: its kind, its requests and tokens, and its time."""
    return text(
        lang,
        "console.step",
        index=step.index,
        kind=step_kind(step.kind, lang),
        requests=len(step.requests),
        tokens=step.num_tokens,
        time=duration(step.span.duration_ns / 1e9),
    )


def step_rows(step: Step, phases: Mapping[str, int], lang: str, before: Step | None) -> list[Row]:
    """Return a step's three phases; `phases` has the nanoseconds of each method of PHASES."""
    phase_lines = {
        "schedule": queue_changes(step, lang, before) + _scheduled(step, lang),
        "execute": _executed(step, lang),
        "process": _sampled(step, lang) + endings(step, lang),
    }
    took = {name: duration(phases[method] / 1e9) for name, method in PHASES.items() if method in phases}
    return [Row(text(lang, f"console.step.{name}"), lines, took.get(name, "")) for name, lines in phase_lines.items()]


def _scheduled(step: Step, lang: str) -> list[str]:
    shown, more = clip(step.requests, MOST_REQUESTS)
    lines = [_request(request, lang) for request in shown]
    if more:
        lines.append(text(lang, "console.step.more", n=more))
    used = step.blocks_total - step.blocks_free
    blocks = {"used": used, "total": step.blocks_total}
    lines.append(text(lang, "console.step.budget", tokens=step.num_tokens, budget=step.token_budget, **blocks))
    return lines


def _request(request: ScheduledRequest, lang: str) -> str:
    first, last = request.num_computed, request.num_computed + request.num_tokens - 1
    line = text(
        lang,
        "console.step.request",
        id=visible(request.request_id),
        tokens=request.num_tokens,
        where=f"{first:,}" if last <= first else f"{first:,}-{last:,}",
    )
    if request.new_blocks:
        line += text(lang, "console.step.new_blocks", blocks=shorten(format_ranges(request.new_blocks), 40))
    if request.prefix_hit_tokens:
        line += text(lang, "console.step.cached", cached=request.prefix_hit_tokens)
    return line


def _executed(step: Step, lang: str) -> list[str]:
    if not step.logits_shape or step.output_of:
        return []
    return [text(lang, "console.step.logits", shape="[" + ", ".join(map(str, step.logits_shape)) + "]")]


def _sampled(step: Step, lang: str) -> list[str]:
    if not step.sampled:
        if "pooled" in step.finished.values():  # the line about their end has it
            return []
        return [text(lang, "console.step.no_token" if step.logits_shape else "console.step.later")]
    lines = [text(lang, "console.step.output_of", index=step.output_of)] if step.output_of else []
    return [*lines, *sampled_tokens(step, lang)]


def sampled_tokens(step: Step, lang: str) -> list[str]:
    """Return a line for each token that came with a step."""
    batch = {request.request_id: index for index, request in enumerate(step.requests)}
    in_order = sorted(step.sampled, key=lambda sampled: batch.get(sampled.request_id, len(batch)))
    shown, more = clip(in_order, MOST_REQUESTS)
    lines = []
    for sampled in shown:
        token = (
            text(lang, "console.step.no_text") if sampled.text is None else f'"{shorten(visible(sampled.text), 40)}"'
        )
        probability = f"  {percent(sampled.probability)}" if sampled.probability is not None else ""
        left = None if sampled.tokens_left is None else (sampled.tokens_left, sampled.tokens_left)
        how = drawn_from(sampled.processors, left, lang)
        if sampled.grammar is not None and (forbidden := sampled.grammar.forbidden) is not None:
            how += text(lang, "console.step.forbade", token=shorten(visible(forbidden[1]), 40))
        lines.append(f"{visible(sampled.request_id)}: {token}{probability}{f'  ({how})' if how else ''}")
    if more:
        lines.append(text(lang, "console.step.more", n=more))
    return lines

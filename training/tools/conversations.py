"""Conversations with tools: one list of tools, and several conversations that begin with it.

A conversation is a list of parts, each a text that is learned or not: only what the assistant writes is.
"""

# ruff: noqa: E501 - lists: one text, one line

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from training.corpus import SUBJECTS, arithmetic, greetings
from training.corpus.render import IM_END, IM_START
from training.corpus.sample import Lang, noise

from . import calculator, clock, weather
from .draw import Draw
from .exchange import Exchange
from .schemas import OTHERS, Tool, as_sent
from .template import call_text, render, result_text

__all__ = ["Part", "Toolbox", "conversation", "no_request", "parts", "request", "toolbox"]

_SYSTEM = (
    "You are a helpful assistant.", "You are a helpful assistant.", "You are a helpful assistant with access to tools.", "Use the tools to answer.",
    "Answer the question briefly.", "You are a friendly and concise assistant.", "Be concise, reply with one sentence.", "You are an agent that calls functions.",
    "You can use tools.", "Use the tools when they help.", "You are tiny, a small language model.", "Be helpful and polite.",
    "你是一个有用的助手。", "你可以使用工具。", "请用工具回答问题。", "请简短地回答问题。", "你是一个乐于助人的助手，请用中文回答。",
)  # fmt: skip
_UNKNOWN = {"en": "I am sorry, I do not know that.", "zh": "抱歉，我不知道这个。"}
_CLOSE = ("weather", "time", "late", "year", "date", "day", "天气", "几点", "时间", "几号", "星期", "今年")
"""Words of the corpus' questions that could be requests for a tool."""


class Part(NamedTuple):
    """A piece of a conversation.

    Attributes:
        text: the piece.
        learned: whether the assistant writes it.
        forced: the piece's first token is not learned: a grammar forces it (`tool_choice`).
    """

    text: str
    learned: bool
    forced: bool = False


SUBJECTS_WITH_TOOLS = ("weather", "calculator", "clock")


@dataclass(frozen=True)
class Toolbox:
    """Tools of a conversation.

    Attributes:
        sent: the tools as a client sends them, with others that no request needs.
        system: the system prompt; may be empty.
        tools: those that requests need, for each subject.
    """

    sent: list[dict[str, Any]]
    system: str
    tools: dict[str, list[Tool]]

    def text(self) -> str:
        """Return the beginning of a prompt, with the list of tools."""
        user = {"role": "user", "content": ""}
        messages = [{"role": "system", "content": self.system}, user] if self.system else [user]
        return render(messages, self.sent).removesuffix(f"{IM_START}user\n{IM_END}\n")


def toolbox(draw: Draw, subjects: tuple[str, ...] = ()) -> Toolbox:
    """Return one to five tools, for `subjects` or for one to three random ones, and up to two others."""
    rng = draw.rng
    if not subjects:
        subjects = tuple(rng.sample(SUBJECTS_WITH_TOOLS, rng.choice((1, 1, 2, 2, 3))))
    tools: dict[str, list[Tool]] = {}
    for subject in subjects:
        names = {tool.name for others in tools.values() for tool in others}
        while True:
            offered = calculator.offer(draw) if subject == "calculator" else [_OFFERS[subject].offer(draw)]
            if names.isdisjoint(tool.name for tool in offered):
                break
        tools[subject] = offered
    every = [tool for offered in tools.values() for tool in offered]
    names = {tool.name for tool in every}
    free = max(0, 4 - len(every))
    every += rng.sample([tool for tool in OTHERS if tool.name not in names], min(free, rng.choice((0, 0, 0, 1, 1, 2))))
    rng.shuffle(every)
    return Toolbox(as_sent(rng, every), rng.choice(_SYSTEM) if rng.random() < 0.3 else "", tools)


_OFFERS: dict[str, Any] = {"weather": weather, "clock": clock}


def request(draw: Draw, box: Toolbox, lang: Lang, subject: str = "") -> Exchange:
    """Return a request of `subject`, by default a random one, that a tool in `box` answers."""
    subject = subject or draw.rng.choice(tuple(box.tools))
    tools = box.tools[subject]
    if subject == "calculator":
        return calculator.ask(draw, tools, lang)
    return (weather if subject == "weather" else clock).ask(draw, tools[0], lang)


def no_request(draw: Draw, box: Toolbox, lang: Lang) -> Exchange:
    """Return a question that needs none of the tools: of the corpus, or of a subject whose tool is missing."""
    rng = draw.rng
    missing = [name for name in ("weather", "clock") if name not in box.tools]
    if missing and rng.random() < 0.2:
        subject = rng.choice(missing)
        other = toolbox(draw, (subject,))
        return Exchange("none", lang, request(draw, other, lang, subject).request, None, _UNKNOWN[lang])
    while True:
        module = rng.choices(tuple(SUBJECTS), tuple(SUBJECTS.values()))[0]
        if module is arithmetic and "calculator" in box.tools:
            continue
        sample = module.draw(rng)
        if (
            sample.form != "question"
            or sample.lang != lang
            or sample.held_out != draw.held_out
            or len(sample.answer) > 140
        ):
            continue
        if module is not greetings and any(word in sample.prompt.lower() for word in _CLOSE):
            continue
        sample = sample if draw.held_out else noise(rng, sample)
        return Exchange("none", lang, sample.prompt, None, sample.answer)


def conversation(draw: Draw, box: Toolbox) -> list[Part]:
    """Return a conversation after the list of tools in `box`."""
    rng = draw.rng
    lang: Lang = "en" if rng.random() < 0.55 else "zh"
    roll = rng.random()
    if roll < 0.08:
        return _forced(draw, request(draw, box, lang))
    if roll < 0.22:
        return parts(no_request(draw, box, lang))
    if roll < 0.34:
        return _two_turns(draw, box, lang)
    return parts(request(draw, box, lang))


def _two_turns(draw: Draw, box: Toolbox, lang: Lang) -> list[Part]:
    rng = draw.rng
    first = no_request(draw, box, lang) if rng.random() < 0.25 else request(draw, box, lang)
    again = {"weather": weather, "clock": clock}.get(first.subject)
    if again and rng.random() < 0.5 and (tool := box.tools[first.subject][0]).arguments:
        second = again.ask_again(draw, tool, lang)
    else:
        second = no_request(draw, box, lang) if rng.random() < 0.25 else request(draw, box, lang)
    return [*parts(first), *parts(second)]


def parts(exchange: Exchange) -> list[Part]:
    """Return the parts of one exchange, from the user's message to the answer."""
    shown = [Part(f"{IM_START}user\n{exchange.request}{IM_END}\n{IM_START}assistant\n", learned=False)]
    if call := exchange.call:
        shown.append(Part(call_text(call.name, call.arguments) + IM_END, learned=True))
        shown.append(Part(f"\n{IM_START}user{result_text(call.result)}{IM_END}\n{IM_START}assistant\n", learned=False))
    return [*shown, Part(exchange.answer + IM_END, learned=True), Part("\n", learned=False)]


def _forced(draw: Draw, exchange: Exchange) -> list[Part]:
    """Return a request with a call as a grammar forces it: its arguments alone, or a list with it."""
    assert exchange.call
    value: Any = exchange.call.arguments
    if draw.rng.random() < 0.5:
        value = [{"name": exchange.call.name, "parameters": value}]
    text = json.dumps(value, ensure_ascii=False)
    return [parts(exchange)[0], Part(text + IM_END, learned=True, forced=True)]

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

from . import calculator, clock, person, weather
from .draw import Draw
from .exchange import Exchange
from .schemas import OTHERS, Tool, as_sent
from .template import call_text, render, result_text

__all__ = ["Part", "Toolbox", "conversation", "no_request", "parts", "request", "request_two", "toolbox"]

_SYSTEM = (
    "You are a helpful assistant.", "You are a helpful assistant.", "You are a helpful assistant with access to tools.", "Use the tools to answer.",
    "Answer the question briefly.", "You are a friendly and concise assistant.", "Be concise, reply with one sentence.", "You are an agent that calls functions.",
    "You can use tools.", "Use the tools when they help.", "You are tiny, a small language model.", "Be helpful and polite.",
    "你是一个有用的助手。", "你可以使用工具。", "请用工具回答问题。", "请简短地回答问题。", "你是一个乐于助人的助手，请用中文回答。",
)  # fmt: skip
_UNKNOWN = {"en": "I am sorry, I do not know that.", "zh": "抱歉，我不知道这个。"}
_CLOSE = (
    "weather",
    "time",
    "late",
    "year",
    "date",
    "day",
    "天气",
    "几点",
    "时间",
    "几号",
    "星期",
    "今年",
    "age",
    "old",
    "name",
    "岁",
    "叫",
)
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
    """Return one to five tools, for `subjects` or for one to three random ones, and up to three others."""
    rng = draw.rng
    if not subjects:
        weights = (36, 32, 24, 8)
        chosen = {
            rng.choices(("weather", "calculator", "clock", "person"), weights)[0]
            for _ in range(rng.choice((1, 2, 2, 3, 3)))
        }
        subjects = tuple(sorted(chosen))
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


_OFFERS: dict[str, Any] = {"weather": weather, "clock": clock, "person": person}


def request(draw: Draw, box: Toolbox, lang: Lang, subject: str = "", count: int = 1) -> Exchange:
    """Return a request of `subject`, by default a random one, that a tool in `box` answers."""
    subject = subject or draw.rng.choice(tuple(box.tools))
    tools = box.tools[subject]
    if subject == "calculator":
        return calculator.ask(draw, tools, lang)
    if subject == "person":
        return person.ask(draw, tools[0], lang)
    return (weather if subject == "weather" else clock).ask(draw, tools[0], lang, count)


def request_two(draw: Draw, box: Toolbox, lang: Lang) -> Exchange:
    """Return a request that needs two calls."""
    subjects = [name for name in box.tools if name != "person"]
    plural = [name for name in subjects if name in ("weather", "clock") and box.tools[name][0].arguments]
    if plural and (len(subjects) == 1 or draw.rng.random() < 0.5):
        return request(draw, box, lang, draw.rng.choice(plural), count=2)
    if not subjects:
        return request(draw, box, lang)
    names = draw.rng.sample(subjects, 2) if len(subjects) > 1 else subjects * 2
    if names == ["clock", "clock"]:
        return request(draw, box, lang, "clock")
    first, second = (request(draw, box, lang, name) for name in names)
    joint = " And " if lang == "en" else draw.rng.choice(("还有，", "另外，"))
    before = first.request if first.request[-1:] in ".?!。？！" else first.request + ("." if lang == "en" else "。")
    text = (
        before
        + joint
        + (
            second.request[0].lower() + second.request[1:]
            if lang == "en" and second.request[:1] != "I"
            else second.request
        )
    )
    space = " " if lang == "en" else ""
    return Exchange(first.subject, lang, text, first.calls + second.calls, first.answer + space + second.answer)


def no_request(draw: Draw, box: Toolbox, lang: Lang) -> Exchange:
    """Return a question that needs none of the tools: of the corpus, or of a subject whose tool is missing."""
    rng = draw.rng
    missing = [name for name in ("weather", "clock") if name not in box.tools]
    if missing and rng.random() < 0.2:
        subject = rng.choice(missing)
        other = toolbox(draw, (subject,))
        return Exchange("none", lang, request(draw, other, lang, subject).request, (), _UNKNOWN[lang])
    while True:
        module = rng.choices(tuple(SUBJECTS), tuple(SUBJECTS.values()))[0]
        if (module is arithmetic and "calculator" in box.tools) or (module is greetings and "person" in box.tools):
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
        return Exchange("none", lang, sample.prompt, (), sample.answer)


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
        return parts(request_two(draw, box, lang))
    if roll < 0.44:
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
    if exchange.calls:
        calls = "\n".join(call_text(call.name, call.arguments) for call in exchange.calls)
        results = "".join(result_text(call.result) for call in exchange.calls)
        shown.append(Part(calls + IM_END, learned=True))
        shown.append(Part(f"\n{IM_START}user{results}{IM_END}\n{IM_START}assistant\n", learned=False))
    return [*shown, Part(exchange.answer + IM_END, learned=True), Part("\n", learned=False)]


def _forced(draw: Draw, exchange: Exchange) -> list[Part]:
    """Return a request with a call as a grammar forces it: arguments alone, or a list of calls."""
    before = parts(exchange)[0]
    if draw.rng.random() < 0.5:
        text = json.dumps(exchange.calls[0].arguments, ensure_ascii=False)
    else:
        text = json.dumps(
            [{"name": call.name, "parameters": call.arguments} for call in exchange.calls], ensure_ascii=False
        )
    return [before, Part(text + IM_END, learned=True, forced=True)]

"""The time here or in a city."""

# ruff: noqa: E501 - templates and lists: one phrasing, one line

import random
from typing import Any

from training.corpus.sample import Lang

from .draw import Draw
from .exchange import Call, Exchange, as_json, sentence
from .schemas import Tool

__all__ = ["ask", "ask_again", "offer"]

_NAMES = (
    "get_time",
    "get_time",
    "get_current_time",
    "current_time",
    "time",
    "clock",
    "getTime",
    "what_time",
    "local_time",
    "get_local_time",
    "world_clock",
    "GetTime",
    "now",
    "fetch_time",
)
_HERE = ("llm_time", "get_time", "get_current_time", "current_time", "now", "time", "clock", "get_datetime")
_PLACES = ("city", "city", "location", "place", "city_name", "where", "town")
_DESCRIPTIONS = (
    "Get the current time in a city.", "Get the time in a city", "Return the local time of a place.", "Get the current time.", "Tells the time.",
    "Look up the local time.", "What time it is", "The time.", "查询当前时间", "获取某地的时间", "", "",
)  # fmt: skip
_HERE_DESCRIPTIONS = (
    "Get the current time.",
    "Return the current time",
    "Returns the current time, as local time and UTC",
    "The time now.",
    "获取当前时间",
    "",
)

_EN = (
    "What time is it in {c}?",
    "[What time is it|What is the time|What's the time|What is the local time|What's the current time] [in|over in|at] {c}[ now| right now| at the moment|]?",
    "[Tell me|Give me|Check|Show me|Get|Look up|I need|I want to know|I'd like to know] the [current |local |]time [in|for|of] {c}[ please|, please| now|][.|!|]",
    "[Can you|Could you|Would you] [tell me|check|find out|look up] [the time|what time it is|the local time] in {c}?",
    "[Is it|Is it already|Is it still] [late|early|morning|night|evening|noon|dark|day] in {c}[ now| right now|]?",
    "[Time|Current time|Local time|The time|Clock] [in|for] {c}[ now| please|][?|.|]",
    "{c} time[ now| please|][?|.|]",
    "[Can I|Should I|Is it too late to|Is it too early to] [call|phone|ring] [someone|my friend|my mother|the office] in {c}[ now|]?",
    "I am [in|calling|travelling to|going to] {c}. [What time is it there?|What is the local time?|How late is it?]",
    "How late is it in {c}[ now|]?",
    "[Use|Call] [the tool|a tool|your tools] to [get|find|check] the time in {c}.",
)
_ZH = (
    "{c}现在几点？",
    "{c}[现在|目前|此刻|][是|][几点|什么时间|几点钟|什么时候][了|][？|]",
    "[现在|目前|]{c}[是|][几点|几点钟|什么时间][了|]？",
    "[查一下|查询|帮我查|看看|告诉我|我想知道|帮我看一下]{c}[的|现在的|的当地]时间[。|，谢谢|]",
    "{c}的[当地|现在|]时间[是多少|是几点|是什么]？",
    "{c}[现在|][天黑了吗|是晚上吗|是早上吗|是白天吗|很晚了吗]？",
    "[{c}时间|时间 {c}|{c}的时间|{c}几点][？|。|]",
    "[能|可以|能不能]告诉我{c}的时间[吗|][？|]",
    "现在[给|往]{c}打电话[合适吗|晚吗|会不会太晚|会不会太早]？",
    "[用|请用|调用]工具[查|查询|看]一下{c}的时间。",
)
_HERE_EN = (
    "What time is it?",
    "[What time is it|What is the time|What's the time|What is the current time|What time do we have|How late is it][ now| right now|, please|][?|]",
    "[Tell me|Give me|Check|Show me] the [current |]time[ please|, please| now|][.|]",
    "[Can you|Could you] tell me [the time|what time it is][ please| now|]?",
    "[Do you know what time it is|Do you have the time|Is it late|Is it time for lunch|Is it noon yet][?|]",
)
_HERE_ZH = (
    "现在几点？",
    "[请问|][现在|目前|][是|][几点|几点钟|什么时间][了|][？|]",
    "[告诉我|查一下|看看|我想知道][现在的|当前|]时间[。|]",
    "[能|可以|能不能]告诉我[现在几点|时间][吗|]？",
    "[现在|]时间是[几点|多少]？",
)
_AGAIN_EN = (
    "And in {c}?",
    "[And|What about|How about|And what about|And how about|And now] [in |]{c}?",
    "[Now|Also|Then] [check |]{c}[, please|].",
)
_AGAIN_ZH = ("那{c}呢？", "[那|那么|还有|][在|]{c}[呢|怎么样]？", "[再|也]查一下{c}。")


def offer(draw: Draw) -> Tool:
    """Return a tool for the time, with a place or nothing as its argument."""
    rng = draw.rng
    if rng.random() < 0.25:
        return Tool(rng.choice(_HERE), {}, rng.choice(_HERE_DESCRIPTIONS))
    return Tool(rng.choice(_NAMES), {rng.choice(_PLACES): {"type": "string"}}, rng.choice(_DESCRIPTIONS))


def _time(rng: random.Random) -> tuple[str, str]:
    """Return a time as a tool returns it, and as the model answers: hours and minutes."""
    hour, minute, second = rng.randrange(24), rng.randrange(60), rng.randrange(60)
    short = f"{hour:02}:{minute:02}"
    date = f"{rng.randint(2024, 2031)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    offset = rng.choice(("", "", "Z", "+00:00", f"+{rng.randint(0, 12):02}:00", f"-{rng.randint(0, 11):02}:00"))
    fraction = f".{rng.randrange(10**6):06}" if rng.random() < 0.4 else ""
    half = f"{hour % 12 or 12}:{minute:02} {'AM' if hour < 12 else 'PM'}"
    return rng.choice((
        (short, short), (short, short), (f"{short}:{second:02}", short), (half, half),
        (f"{date}T{short}:{second:02}{fraction}{offset}", short), (f"{date} {short}:{second:02}", short), (f"{date} {short}", short),
    ))  # fmt: skip


def _result(draw: Draw, lang: Lang, place: str) -> tuple[str, str]:
    """Return what a tool returns, and the answer."""
    rng = draw.rng
    text, short = _time(rng)
    if lang == "en":
        answer = f"The time in {place} is {short}." if place else f"The time is {short}."
    else:
        answer = f"{place}现在是{short}。"
    roll = rng.random()
    if roll < 0.42:
        return text, answer
    if roll < 0.58:
        if lang == "en":
            spoken = rng.choice(
                (
                    f"It is {short} in {place}." if place else f"It is {short}.",
                    f"The current time is {short}.",
                    f"The time is {short}.",
                    f"It's {short}.",
                )
            )
        else:
            spoken = rng.choice((f"{place}现在是{short}。", f"现在是{short}。", f"当前时间是{short}。"))
        return spoken, spoken
    content: dict[str, Any] = {rng.choice(("time", "time", "current_time", "local_time", "datetime", "now")): text}
    if place and rng.random() < 0.5:
        content[rng.choice(("city", "location", "place"))] = place
    if not place and rng.random() < 0.2:  # llm_time of `llm`
        date = "2026-03-01"
        content = {
            "utc_time": f"{date} {rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02} UTC",
            "utc_time_iso": f"{date}T{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}.{rng.randrange(10**6):06}+00:00",
            "local_timezone": rng.choice(("UTC", "CET", "PST", "JST", "EDT")),
            "local_time": f"{date} {rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}",
            "timezone_offset": f"UTC{rng.choice('+-')}{rng.randint(0, 9)}:00",
            "is_dst": rng.random() < 0.5,
        }
        short = content["local_time"].split()[1][:5]
        answer = sentence(lang, f"The time is {short}" if lang == "en" else f"现在是{short}")
        return as_json(rng, content), answer
    items = list(content.items())
    rng.shuffle(items)
    return as_json(rng, dict(items)), answer


def ask(draw: Draw, tool: Tool, lang: Lang) -> Exchange:
    """Return a request for the time, in a city if the tool has an argument."""
    if not tool.arguments:
        phrase = draw.phrase(_HERE_EN if lang == "en" else _HERE_ZH)
        result, answer = _result(draw, lang, "")
        return Exchange("clock", lang, phrase, Call(tool.name, {}, result), answer)
    return _exchange(draw, tool, lang, _EN if lang == "en" else _ZH)


def ask_again(draw: Draw, tool: Tool, lang: Lang) -> Exchange:
    """Return a request that makes sense after another one for the time only; the tool has an argument."""
    return _exchange(draw, tool, lang, _AGAIN_EN if lang == "en" else _AGAIN_ZH)


def _exchange(draw: Draw, tool: Tool, lang: Lang, phrases: tuple[str, ...]) -> Exchange:
    (argument,) = tool.arguments
    place = draw.place(lang)
    result, answer = _result(draw, lang, place)
    return Exchange("clock", lang, draw.phrase(phrases, c=place), Call(tool.name, {argument: place}, result), answer)

"""Tools as clients send them: JSON schemas as langchain, pydantic-ai, instructor, the AI SDK and others write them."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["OTHERS", "Tool", "as_sent"]


@dataclass(frozen=True)
class Tool:
    """A tool.

    Attributes:
        name: of the function.
        arguments: the JSON schema of each argument, in their order.
        description: one sentence; may be empty.
        optional: names of arguments that may be left out; the chat template does not list them.
        roles: what an argument is for, from the subject's own names, such as ``{"place": "city"}``.
    """

    name: str
    arguments: Mapping[str, Mapping[str, Any]]
    description: str = ""
    optional: tuple[str, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)


_STRING, _NUMBER, _INTEGER = {"type": "string"}, {"type": "number"}, {"type": "integer"}

OTHERS = (
    Tool("send_email", {"to": _STRING, "subject": _STRING, "body": _STRING}, "Send an email."),
    Tool("search_web", {"query": _STRING}, "Search the web."),
    Tool("search", {"query": _STRING}, "Look up information on the internet."),
    Tool("play_music", {"song": _STRING}, "Play a song."),
    Tool("translate", {"text": _STRING, "language": _STRING}, "Translate a text into another language."),
    Tool("get_stock_price", {"symbol": _STRING}, "Get the price of a stock."),
    Tool("create_event", {"title": _STRING, "date": _STRING}, "Add an event to the calendar."),
    Tool("get_news", {"topic": _STRING}, "Get the latest news."),
    Tool("convert_currency", {"amount": _NUMBER, "source": _STRING, "target": _STRING}, "Convert an amount of money."),
    Tool("book_flight", {"origin": _STRING, "destination": _STRING, "date": _STRING}, "Book a flight."),
    Tool("turn_on_light", {"room": _STRING}, "Switch on the light in a room."),
    Tool("read_file", {"path": _STRING}, "Read a file."),
    Tool("write_file", {"path": _STRING, "content": _STRING}, "Write a text to a file."),
    Tool("run_sql", {"query": _STRING}, "Run a query on the database."),
    Tool("roll_dice", {"sides": _INTEGER}, "Roll a die and return the result."),
    Tool("get_player_name", {}, "Get the player's name."),
    Tool("find_restaurant", {"cuisine": _STRING, "area": _STRING}, "Find a restaurant."),
    Tool("add_todo", {"task": _STRING}, "Add a task to the list."),
    Tool("llm_version", {}, "Return the installed version of llm"),
    Tool("count_letters", {"word": _STRING}, "Count the letters of a word."),
    Tool("send_message", {"recipient": _STRING, "text": _STRING}, "发送一条消息"),
    Tool("query_order", {"order_id": _STRING}, "查询订单"),
    Tool("search_docs", {"keyword": _STRING}, "搜索文档"),
    Tool("book_hotel", {"hotel": _STRING, "nights": _INTEGER}, "预订酒店"),
)
"""Tools that no request needs."""


def as_sent(rng: random.Random, tools: list[Tool]) -> list[dict[str, Any]]:
    """Return `tools` in the form of one client: what is added to the schemas, and in which order, depends on it."""
    form = rng.choice((_plain, _langchain, _pydantic, _strict, _zod))
    return [{"type": "function", "function": form(tool)} for tool in tools]


def _required(tool: Tool) -> list[str]:
    return [name for name in tool.arguments if name not in tool.optional]


def _plain(tool: Tool) -> dict[str, Any]:
    parameters: dict[str, Any] = {"type": "object", "properties": dict(tool.arguments)}
    if tool.arguments:
        parameters["required"] = _required(tool)
    return {"name": tool.name, "description": tool.description, "parameters": parameters}


def _langchain(tool: Tool) -> dict[str, Any]:
    parameters = {"properties": dict(tool.arguments), "required": _required(tool), "type": "object"}
    return {"name": tool.name, "description": tool.description, "parameters": parameters}


def _pydantic(tool: Tool) -> dict[str, Any]:
    properties = {name: {"title": name.title(), **schema} for name, schema in tool.arguments.items()}
    parameters = {"additionalProperties": False, "properties": properties, "title": tool.name, "type": "object"}
    description = f"{tool.description}\n\nArgs:\n    ...: ..." if tool.description and tool.arguments else ""
    return {
        "name": tool.name,
        "description": description or tool.description,
        "parameters": parameters | {"required": _required(tool)},
    }


def _strict(tool: Tool) -> dict[str, Any]:
    properties = {name: {"description": f"The {name}.", **schema} for name, schema in tool.arguments.items()}
    parameters = {"type": "object", "properties": properties, "required": _required(tool)}
    function = {"name": tool.name, "strict": True, "parameters": parameters | {"additionalProperties": False}}
    return function | ({"description": tool.description} if tool.description else {})


def _zod(tool: Tool) -> dict[str, Any]:
    parameters = {"$schema": "http://json-schema.org/draft-07/schema#", **_plain(tool)["parameters"]}
    return {"name": tool.name, "description": tool.description, "parameters": parameters}

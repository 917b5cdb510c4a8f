"""JSON schemas of forced tool calls.

vLLM: vllm/entrypoints/openai/tool_parsers/utils.py::get_json_schema_from_tools.
"""

from collections.abc import Sequence
from typing import Any

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.entrypoints.openai.tool_protocol import ChatCompletionToolsParam

__all__ = ["get_json_schema_from_tools"]


def get_json_schema_from_tools(tool_choice: str, tools: Sequence[ChatCompletionToolsParam]) -> dict[str, Any]:
    """Return the schema of the text: of a list of calls for `required`, else of the named function's arguments.

    Raises:
        InvalidRequestError: Two tools have different definitions (`$defs`) of one name.
    """
    if tool_choice != "required":
        return next(_parameters(tool) for tool in tools if tool.function.name == tool_choice)
    definitions: dict[str, Any] = {}
    for tool in tools:
        for name, definition in _parameters(tool).get("$defs", {}).items():
            if definitions.setdefault(name, definition) != definition:
                raise InvalidRequestError(f"Tool definition '{name}' has multiple schemas, which is not supported.")
    schema: dict[str, Any] = {
        "type": "array",
        "minItems": 1,
        "items": {"type": "object", "anyOf": [_call(tool) for tool in tools]},
    }
    return schema | ({"$defs": definitions} if definitions else {})


def _call(tool: ChatCompletionToolsParam) -> dict[str, Any]:
    """Return the schema of a call."""
    parameters = {key: value for key, value in _parameters(tool).items() if key != "$defs"}
    name = {"type": "string", "enum": [tool.function.name]}
    return {"properties": {"name": name, "parameters": parameters}, "required": ["name", "parameters"]}


def _parameters(tool: ChatCompletionToolsParam) -> dict[str, Any]:
    """Return the schema of a function's arguments; a function without one has none."""
    return tool.function.parameters or {"type": "object", "properties": {}}

"""JSON schemas of forced tool calls.

vLLM: vllm/entrypoints/openai/tool_parsers/utils.py::get_json_schema_from_tools.
"""

from collections.abc import Sequence
from typing import Any

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.entrypoints.openai.tool_protocol import ChatCompletionToolsParam

__all__ = ["get_json_schema_from_tools", "parameters_of"]


def get_json_schema_from_tools(tools: Sequence[ChatCompletionToolsParam]) -> dict[str, Any]:
    """Return the schema of a list of calls.

    Raises:
        InvalidRequestError: Two tools have different definitions (`$defs`) of one name.
    """
    definitions: dict[str, Any] = {}
    for tool in tools:
        for name, definition in parameters_of(tool).get("$defs", {}).items():
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
    parameters = {key: value for key, value in parameters_of(tool).items() if key != "$defs"}
    name = {"type": "string", "enum": [tool.function.name]}
    return {"properties": {"name": name, "parameters": parameters}, "required": ["name", "parameters"]}


def parameters_of(tool: ChatCompletionToolsParam) -> dict[str, Any]:
    """Return the schema of a function's arguments; a function without one has none."""
    return tool.function.parameters or {"type": "object", "properties": {}}

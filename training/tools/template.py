"""The chat template of `tiny-tools`: ChatML as in `tiny`, with tools, calls and their results.

Calls and results have the form of Hermes and Qwen2.5 (`--tool-call-parser hermes`). A tool is listed in two lines, with
the arguments that must be given: a model of this size has no use for the rest of a JSON schema, and a whole schema
would be five times as many tokens. What clients add to a schema (`strict`, `title`, `$schema`, ...) makes no
difference.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

__all__ = ["CHAT_TEMPLATE", "call_text", "render", "result_text"]

CHAT_TEMPLATE = """\
{%- macro kind(schema, root) -%}
  {%- if schema['$ref'] -%}{{ kind(root['$defs'][schema['$ref'].split('/')[-1]], root) }}
  {%- elif schema.enum -%}{{ schema.enum | join('|') }}
  {%- elif schema.const -%}{{ schema.const }}
  {%- elif schema.anyOf -%}
    {%- for option in schema.anyOf -%}{{ '|' if not loop.first }}{{ kind(option, root) }}{%- endfor -%}
  {%- elif schema.type is string -%}{{ schema.type }}
  {%- elif schema.type -%}{{ schema.type | join('|') }}
  {%- else -%}any
  {%- endif -%}
{%- endmacro -%}
{%- macro listed(function) -%}
  {%- set parameters = function.parameters or {} -%}
  {%- set properties = parameters.properties or {} -%}
  {%- if function.description -%}{{- function.description.strip().split('\\n')[0] + '\\n' -}}{%- endif -%}
  {{- '{"name": ' + function.name | tojson + ', "arguments": {' -}}
  {%- for name in properties if name in (parameters.required or properties) -%}
    {{- (', ' if not loop.first else '') + name | tojson + ': ' + kind(properties[name], parameters) | tojson -}}
  {%- endfor -%}
  {{- '}}' -}}
{%- endmacro -%}
{%- if tools -%}
  {{- '<|im_start|>system\\n' -}}
  {%- if messages[0].role == 'system' -%}{{- messages[0].content + '\\n\\n' -}}{%- endif -%}
  {{- 'Tools:' -}}
  {%- for tool in tools -%}{{- '\\n' + listed(tool.function or tool) -}}{%- endfor -%}
  {{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'tool' -%}
    {{- '<|im_start|>user' if loop.first or loop.previtem.role != 'tool' else '' -}}
    {{- '\\n<tool_response>\\n' + (message.content or '') + '\\n</tool_response>' -}}
    {{- '<|im_end|>\\n' if loop.last or loop.nextitem.role != 'tool' else '' -}}
  {%- elif message.role != 'system' or not tools or not loop.first -%}
    {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') -}}
    {%- for call in message.tool_calls or [] -%}
      {%- set function = call.function or call -%}
      {{- '\\n' if message.content or not loop.first else '' -}}
      {{- '<tool_call>\\n{"name": ' + function.name | tojson + ', "arguments": ' + function.arguments | tojson -}}
      {{- '}\\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


@cache
def _template() -> Any:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)  # as in transformers
    return environment.from_string(CHAT_TEMPLATE)


def render(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> str:
    """Return the text of `messages` with `tools`, as transformers renders it, without a generation prompt."""
    return str(_template().render(messages=messages, tools=tools, add_generation_prompt=False))


def call_text(name: str, arguments: Mapping[str, object]) -> str:
    """Return a call as the model writes it."""
    text = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{text}\n</tool_call>"


def result_text(result: str) -> str:
    """Return the result of a call as the model reads it."""
    return f"\n<tool_response>\n{result}\n</tool_response>"

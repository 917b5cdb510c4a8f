"""Requests to the servers of docs/server.md: commands, a program, and refused requests.

The pages show the commands as they are here, with the responses from server_docs.py.
"""

__all__ = [
    "ADDRESS", "CALLER", "COMMANDS", "ERRORS", "EXPLAINED", "IGNORED", "KILLED", "POOLING", "POOLING_PYTHON", "PYTHON",
    "QUESTION", "REFUSED", "RUN", "SNIPPET", "TOOLS_PYTHON", "TOOLS_SERVER", "TOO_LONG",
]  # fmt: skip

ADDRESS = "http://127.0.0.1:8000"
"""Address on the pages; the servers use free ports."""
RUN = "my-run"
"""Run folder of the explained server."""
CALLER = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
"""Trace id and span id in the `traceparent` of the explained request."""

_JSON = "-H 'Content-Type: application/json'"
QUESTION = '"messages": [{"role": "user", "content": "What is the capital of France?"}]'
COMMANDS = {
    "chat": f"""curl {ADDRESS}/v1/chat/completions {_JSON} -d '{{
  {QUESTION}, "temperature": 0
}}'""",
    "stream": f"""curl {ADDRESS}/v1/chat/completions {_JSON} -d '{{
  {QUESTION}, "temperature": 0, "max_tokens": 2,
  "stream": true, "stream_options": {{"include_usage": true}}
}}'""",
    "completions": f"""curl {ADDRESS}/v1/completions {_JSON} -d '{{
  "model": "tiny", "prompt": ["The capital of France is", "The largest ocean is"], "temperature": 0
}}'""",
    "tokenize": f"""curl {ADDRESS}/tokenize {_JSON} -d '{{"prompt": "The capital of France is"}}'""",
    "detokenize": f"""curl {ADDRESS}/detokenize {_JSON} -d '{{"tokens": [332, 339]}}'""",
    "models": f"""curl -s {ADDRESS}/v1/models | grep -o '"id":"[a-z]*"'""",
    "scrape": f"curl -s {ADDRESS}/metrics | grep -v '^#' | grep -e num_requests -e prompt_tokens_total",
    "error": f"""curl {ADDRESS}/v1/completions {_JSON} -d '{{"prompt": "Hello", "temperature": -1}}'""",
}
"""Commands of the pages, in order."""
_CITIES = '["Rome is the capital of Italy.", "What is 3 + 4?", "The capital of France is Paris."]'
POOLING = {
    "score": f"""curl -s {ADDRESS}/score {_JSON} -d '{{
  "text_1": "The capital of France is Paris.", "text_2": "The capital of Italy is Rome."
}}' | grep -o '"score":0.[0-9]' """.rstrip(),
    "rerank": f"""curl -s {ADDRESS}/rerank {_JSON} -d '{{
  "query": "The capital of France is Paris.", "documents": {_CITIES}, "top_n": 2
}}' | grep -o '"text":"[^"]*"'""",
}
"""Commands to a pooling model."""
POOLING_PYTHON = f"""\
from openai import OpenAI

client = OpenAI(base_url="{ADDRESS}/v1", api_key="none")
answer = client.embeddings.create(model="tiny", input=["The capital of France is Paris.", "Hello!"])
for vector in answer.data:
    print(vector.index, len(vector.embedding), "values")
print(answer.usage.prompt_tokens, "tokens")
"""
TOOLS_PYTHON = f"""\
import json

from openai import OpenAI

client = OpenAI(base_url="{ADDRESS}/v1", api_key="none")
function = {{
    "name": "get_weather",
    "description": "Get the current weather in a city.",
    "parameters": {{"type": "object", "properties": {{"city": {{"type": "string"}}}}, "required": ["city"]}},
}}
request = {{"model": "tiny-tools", "tools": [{{"type": "function", "function": function}}], "temperature": 0}}


def get_weather(city):
    return {{"temperature": 17, "condition": "sunny"}}


messages = [{{"role": "user", "content": "What is the weather in Lisbon?"}}]
while messages[-1]["role"] != "assistant":
    message = client.chat.completions.create(messages=messages, **request).choices[0].message
    messages.append(message.to_dict())
    for call in message.tool_calls or []:
        print(call.function.name, call.function.arguments)
        result = get_weather(**json.loads(call.function.arguments))
        messages.append({{"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)}})
print(message.content)
"""
"""A client's loop of tool calls, for a server of `tiny-tools`."""
TOOLS_SERVER = "tracellm serve tiny-tools --dtype float32 --enable-auto-tool-choice --tool-call-parser hermes"
KILLED = f"""\
kill -9 $(pgrep -P 4711 -f spawn_main)   # 4711: the process id of `tracellm serve`
curl {ADDRESS}/v1/completions {_JSON} -d '{{"prompt": "Hello"}}'"""
EXPLAINED = f"""\
curl -o /dev/null -w '%{{http_code}}\\n' {ADDRESS}/v1/chat/completions {_JSON} \\
  -H 'traceparent: 00-{CALLER[0]}-{CALLER[1]}-01' -H 'X-Request-Id: capital' -d '{{
  {QUESTION}, "temperature": 0
}}'"""
SNIPPET = f"""\
from tracellm.trace.run_folder import RunFolder

caller = "{CALLER[0]}"
trace = RunFolder.open("{RUN}").trace
http = next(span for span in trace.spans if span.trace_id == caller)
print(f"{{http.name}}: its parent is {{http.parent_span_id}}")
print(f"{{sum(span.trace_id == caller for span in trace.spans)}} spans of this trace, in {{http.process.name}}")
steps = [span for span in trace.named("EngineCore.step_fn") if any(link.trace_id == caller for link in span.links)]
print(f"{{len(steps)}} steps link to it, in {{', '.join({{step.process.name for step in steps}})}}")
"""

PYTHON = {
    "python": f"""\
from openai import OpenAI

client = OpenAI(base_url="{ADDRESS}/v1", api_key="none")  # without --api-key any key works
question = [{{"role": "user", "content": "What is the capital of France?"}}]

answer = client.chat.completions.create(model="tiny", messages=question, temperature=0)
print(answer.choices[0].message.content)
print(answer.usage.prompt_tokens, "tokens in,", answer.usage.completion_tokens, "out")
""",
    "python-stream": """\
stream = client.chat.completions.create(model="tiny", messages=question, temperature=0, stream=True)
for chunk in stream:
    print(chunk.choices[0].delta.content, end="|")
""",
    "python-form": """\
schema = {
    "type": "object",
    "properties": {"city": {"enum": ["Berlin", "London", "Paris"]}, "sure": {"type": "boolean"}},
    "required": ["city", "sure"],
    "additionalProperties": False,
}
answer = client.chat.completions.create(
    model="tiny",
    messages=question,
    temperature=0,
    max_tokens=40,
    response_format={"type": "json_schema", "json_schema": {"name": "capital", "schema": schema}},
    extra_body={"structured_outputs": {"disable_any_whitespace": True}},  # fields that OpenAI's API does not have
)
print(answer.choices[0].message.content)
""",
    "python-logprobs": """\
import math

answer = client.chat.completions.create(
    model="tiny", messages=question, temperature=0, max_tokens=3, logprobs=True, top_logprobs=2
)
for token in answer.choices[0].logprobs.content:
    print(*(f"{other.token!r} {math.exp(other.logprob):.1%}" for other in token.top_logprobs))
""",
    "python-responses": """\
response = client.responses.create(
    model="tiny",
    instructions="Answer in one sentence.",
    input="What is the capital of France?",
    temperature=0,
)
print(response.status, "--", response.output_text)

for event in client.responses.create(model="tiny", input="Hello", temperature=0, max_output_tokens=1, stream=True):
    print(event.sequence_number, event.type)
""",
    "python-error": """\
from openai import BadRequestError

try:
    client.chat.completions.create(model="tiny", messages=question, top_p=2)
except BadRequestError as error:
    print(error.status_code, error.param, "--", error.body["message"])
""",
}
"""Parts of one program."""

REFUSED = (
    '"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]',
    '"chat_template": "{{ messages }}"',
    '"best_of": 2',
    '"logits_processors": ["f"]',
    '"kv_transfer_params": {"a": 1}',
    '"mm_processor_kwargs": {"a": 1}',
)
"""Fields of a chat request that vLLM accepts and tracellm refuses."""
IGNORED = {
    "user": "me",
    "guided_decoding_backend": "guidance",
    "vllm_xargs": {"a": 1},
}
"""Values that change nothing."""

TOO_LONG = b"x" * (33 << 20)
ERRORS: tuple[tuple[str, str, bytes | None, dict[str, str]], ...] = (
    ("POST", "/v1/chat/completions", b"{}", {}),
    ("POST", "/v1/completions", b'{"prompt": "Hello", "temperature": -1}', {}),
    ("POST", "/v1/completions", b'{"prompt": "Hello", "max_tokens": 5000}', {}),
    ("POST", "/v1/completions", b'{"prompt": "Hel', {}),
    ("POST", "/v1/completions", b'{"model": "gpt-4", "prompt": "Hello"}', {}),
    ("GET", "/v1/images/generations", None, {}),
    ("GET", "/v1/completions", None, {}),
    ("POST", "/v1/completions", TOO_LONG, {}),
    ("POST", "/v1/completions", b'{"prompt": "Hello"}', {"Content-Type": "text/plain"}),
)

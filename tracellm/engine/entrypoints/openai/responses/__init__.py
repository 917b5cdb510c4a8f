"""The Responses API, `/v1/responses`: its models, its conversations, its events, and the store of responses.

`serving.py` answers the requests:

1. `utils.py` makes a conversation from the request's input and a stored response; `protocol.py` makes a chat request
   from it, which is handled like any other.
2. `context.py` collects the output: its items, its token counts, its status.
3. `streaming_events.py` makes the events of a stream; `store.py` keeps responses for later requests.

vLLM: vllm/entrypoints/openai/serving_responses.py; later versions: vllm/entrypoints/openai/responses/.
"""

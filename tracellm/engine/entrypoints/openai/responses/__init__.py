"""The Responses API, `/v1/responses`: its models, its conversations, its events, and the store of responses.

`serving.py` answers the requests:

1. `utils.py` makes a conversation of the request's input and of a stored response, and `protocol.py` a chat request of
   both. From there to the engine the way is that of a chat request.
2. `context.py` gathers the output: its items, its token counts, its status.
3. `streaming_events.py` makes the events of a stream; `store.py` keeps responses for later requests.

vLLM: vllm/entrypoints/openai/serving_responses.py; later versions: vllm/entrypoints/openai/responses/.
"""

"""The OpenAI-compatible server, `tracellm serve`: HTTP in, JSON or a stream of events out, an `AsyncLLM` behind it.

A chat request passes through these, in this order:

1. `routes.py`: the path; `http_body.py` reads the body, `protocol/` checks its fields.
2. `serving_chat.py`: `OpenAIServingChat.create_chat_completion` makes a prompt (`_preprocess_chat`, `_process_inputs`;
   both in `serving_engine.py`) and hands it to `AsyncLLM.generate`.
3. `chat_completion_full_generator` or `chat_completion_stream_generator` makes the answer of what comes out;
   `http_responses.py` sends it, and gives the request up when the client goes away.

Start-up and shutdown are in `api_server.py` and `launcher.py`, refusals in `http_errors.py`.

vLLM: vllm/entrypoints/openai/. Left out: all but chat, completions and tokenization; tool and reasoning parsers.
"""

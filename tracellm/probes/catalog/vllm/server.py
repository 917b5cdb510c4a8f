"""A vLLM's asynchronous engine, and the OpenAI server before it.

An HTTP request begins a trace of its own, as with our server: both are FastAPI applications, and share that entry
(catalog/server.py). What 0.11.1 has in `entrypoints/openai/api_server.py`, later versions have in
`entrypoints/launchers/`; it counts as the same file.

vLLM: vllm/v1/engine/async_llm.py, vllm/entrypoints/openai/, vllm/entrypoints/launchers/api_server/.
"""

from contextlib import suppress
from typing import Any

from tracellm.probes.catalog.vllm.entries import at, plain
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace.names import Level

__all__ = ["ENTRIES"]


def stand_in_for_handler(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Before `AsyncLLM._run_output_handler`, which makes a task the first time; not where no event loop runs."""
    if args[0].output_handler is None:
        from tracellm.probes.catalog.vllm import closures

        with suppress(RuntimeError):
            closures.stand_in("output_handler")


_ASYNC = "v1.engine.async_llm"
_OPENAI = "entrypoints.openai"
_LAUNCHERS = "entrypoints.launchers"
_ENTRY = f"{_LAUNCHERS}.api_server.entry"
_FILES = {
    "run_server": _ENTRY,
    "run_server_worker": _ENTRY,
    "build_async_engine_client": _ENTRY,
    "build_app": f"{_LAUNCHERS}.app",
    "init_app_state": f"{_LAUNCHERS}.api_server.app_state",
}
"""Functions of 0.11.1's api_server.py, and the modules that they are in later."""


def _serving(folder: str, file: str, *functions: str, level: Level = "request") -> list[Entry]:
    """Entries for methods that 0.11.1 has in `openai/<file>.py`, and later versions in `openai/<folder>/serving.py`."""
    return [
        Entry(
            at(f"{_OPENAI}.{file}:{function}"),
            level,
            other_targets=(at(f"{_OPENAI}.{folder}.serving:{function}"),),
        )
        for function in functions
    ]


ENTRIES = (
    *(
        Entry(
            at(f"{_OPENAI}.api_server:{function}"),
            "request",
            lifeline="api_server.py",
            other_targets=(at(f"{module}:{function}"),),
        )
        for function, module in _FILES.items()
    ),
    *plain("request", _ENTRY, "build_and_serve", lifeline="api_server.py"),
    *plain("request", "entrypoints.cli.serve", "run_multi_api_server"),
    *plain("request", "v1.utils", "APIServerProcessManager.__init__"),
    Entry(
        at("entrypoints.cli.serve:run_api_server_worker_proc"),
        "request",
        other_targets=(at("v1.utils:run_api_server_worker_proc"),),
    ),
    *plain("request", _ASYNC, "AsyncLLM.from_vllm_config", "AsyncLLM.from_engine_args"),
    *plain("request", _ASYNC, "AsyncLLM._run_output_handler", before=stand_in_for_handler),
    *plain("request", _ASYNC, "AsyncLLM.generate", "AsyncLLM.add_request", "AsyncLLM._add_request"),
    *plain("request", _ASYNC, "AsyncLLM.abort", "AsyncLLM.shutdown"),
    Entry(
        "tracellm.probes.catalog.vllm.closures:output_handler",
        "request",
        lifeline="AsyncLLM",
        span_name="AsyncLLM.output_handler",
        loop=True,
    ),
    *plain("request", f"{_OPENAI}.serving_engine", "OpenAIServing._preprocess_chat", "OpenAIServing._process_inputs"),
    *plain("request", "renderers.online_renderer", "OnlineRenderer.render_chat", "OnlineRenderer.preprocess_chat"),
    *plain("request", "renderers.online_renderer", "OnlineRenderer.render_completion"),
    *plain("request", "renderers.base", "BaseRenderer.render_cmpl_async", "BaseRenderer.render_chat_async"),
    *_serving("chat_completion", "serving_chat", "OpenAIServingChat.__init__"),
    *_serving("chat_completion", "serving_chat", "OpenAIServingChat.create_chat_completion"),
    *_serving("chat_completion", "serving_chat", "OpenAIServingChat.chat_completion_stream_generator"),
    *_serving("chat_completion", "serving_chat", "OpenAIServingChat.chat_completion_full_generator"),
    *_serving("completion", "serving_completion", "OpenAIServingCompletion.create_completion"),
    *_serving("completion", "serving_completion", "OpenAIServingCompletion.completion_stream_generator"),
    *_serving(
        "completion",
        "serving_completion",
        "OpenAIServingCompletion.request_output_to_completion_response",
        level="step",
    ),
    *_serving("models", "serving_models", "OpenAIServingModels.show_available_models"),
    *(
        Entry(
            at(f"{_OPENAI}.serving_tokenization:OpenAIServingTokenization.{method}"),
            "request",
            other_targets=(at(f"entrypoints.serve.tokenize.serving:ServingTokenization.{method}"),),
        )
        for method in ("create_tokenize", "create_detokenize")
    ),
)

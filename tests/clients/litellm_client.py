"""litellm, with its provider for vLLM; a router takes another model when a prompt is too long."""

import os
from typing import Any

from tests.clients.shown import INVENT, QUESTION, TOO_LONG, Person, error_of, report

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # before the import, which would download the prices

import litellm


def _options(url: str, question: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": question}]
    return {"model": "hosted_vllm/tiny", "api_base": f"{url}/v1", "messages": messages, "temperature": 0}


def chat(url: str) -> str:
    """Return the answer."""
    return litellm.completion(**_options(url, QUESTION)).choices[0].message.content


def stream(url: str) -> list[str]:
    """Return the pieces of the answer."""
    chunks = litellm.completion(**_options(url, QUESTION), stream=True)
    return [chunk.choices[0].delta.content or "" for chunk in chunks]


def error(url: str) -> dict[str, Any]:
    """Return the error of too long a prompt."""
    return error_of(lambda: litellm.completion(**_options(url, TOO_LONG)))


def fallback(url: str) -> str:
    """Return the answer to too long a prompt of a router that has a model for long prompts."""
    small = {"model": "hosted_vllm/tiny", "api_base": f"{url}/v1"}
    large = {"model": "openai/large", "mock_response": "The large model answers."}
    router = litellm.Router(
        [{"model_name": "small", "litellm_params": small}, {"model_name": "large", "litellm_params": large}],
        context_window_fallbacks=[{"small": ["large"]}],
        num_retries=0,
    )
    return router.completion("small", [{"role": "user", "content": TOO_LONG}]).choices[0].message.content


def structured(url: str) -> dict[str, Any]:
    """Return an object."""
    answer = litellm.completion(**_options(url, INVENT) | {"temperature": 1, "seed": 1}, response_format=Person)
    return Person.model_validate_json(answer.choices[0].message.content).model_dump()


report(chat=chat, stream=stream, error=error, fallback=fallback, structured=structured)

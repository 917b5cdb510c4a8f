"""Three concurrent callers, each reading its own output stream: AsyncLLM, as in a server.

    python examples/async_generate.py
    tracellm run --explain examples/async_generate.py

The engine core runs in its own process. A request that is submitted while others run joins them in the next step,
so all three run in one batch. In vLLM the same needs `AsyncLLM.from_engine_args(AsyncEngineArgs(model=...))`.
"""

import asyncio

from tracellm import AsyncLLM, SamplingParams

prompts = [
    "Hello, my name is",
    "The capital of France is",
    "The largest ocean is",
]
sampling_params = SamplingParams(temperature=0, max_tokens=32)


async def answer(llm: AsyncLLM, number: int, prompt: str) -> str:
    """Read one request's outputs to the end; each holds all of the text so far."""
    text = ""
    async for output in llm.generate(prompt, sampling_params, request_id=str(number)):
        text = output.outputs[0].text
    return f"Prompt: {prompt!r}, Generated text: {text!r}"


async def main() -> None:
    """Submit all three requests concurrently, and print the answers in the order of the prompts."""
    llm = AsyncLLM(dtype="float32")
    try:
        answers = await asyncio.gather(*(answer(llm, number, prompt) for number, prompt in enumerate(prompts)))
    finally:
        llm.shutdown()
    print(*answers, sep="\n")


asyncio.run(main())

"""Asyncio helpers of the serving classes: async generators, and tokenization that keeps the event loop responsive.

`AsyncTokenizer` tokenizes a request's prompt. The iterators combine what `AsyncLLM.generate` yields for its prompts.

vLLM: vllm/utils/async_utils.py::AsyncMicrobatchTokenizer, which runs batches of texts in a thread;
::merge_async_iterators.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.frontend.preprocess import InputPreprocessor

__all__ = ["AsyncTokenizer", "EnginePrompt", "after_first", "merge_async_iterators"]

T = TypeVar("T")

EnginePrompt = dict[str, Any]
"""`{"prompt": text, "prompt_token_ids": [ids]}`, with `multi_modal_data` for images and sounds."""

_MIN_THREAD_LENGTH = 1 << 12
"""Characters above which a text is tokenized in a thread; such a text takes a few milliseconds."""
_MAX_UNBOUNDED_LENGTH = 500_000
"""Maximum characters of a text that may be longer than the model's context; each token takes memory."""
_MAX_SPECIAL_TOKENS = 64


class AsyncTokenizer:
    """Tokenizer of the server, shared by its serving classes. Short texts block the event loop; long ones do not.

    Texts that may be longer than the model's context have a thread of their own, so that prompts do not wait for them.
    """

    def __init__(self, preprocessor: InputPreprocessor) -> None:
        self.preprocessor = preprocessor
        self._threads = {bounded: _TokenizerThread(preprocessor) for bounded in (True, False)}

    async def tokenize(
        self, text: str, *, add_special_tokens: bool, max_length: int | None = None, bounded: bool = True
    ) -> EnginePrompt:
        """Tokenize a text.

        Args:
            text: Text to tokenize.
            add_special_tokens: Add the tokenizer's special tokens around the text.
            max_length: Maximum number of tokens, the last ones, or the first ones for pooling. None keeps all.
            bounded: Reject a text that is too long for the model before tokenizing it.

        Raises:
            InvalidRequestError: The text is invalid or too long.
        """
        if not bounded and len(text) > _MAX_UNBOUNDED_LENGTH:
            raise InvalidRequestError(
                f"The text to tokenize may have at most {_MAX_UNBOUNDED_LENGTH} characters, got {len(text)}."
            )
        if not bounded and max_length is None:
            max_length = len(text.encode(errors="replace")) + _MAX_SPECIAL_TOKENS  # a token has at least one byte

        def tokenize(preprocessor: InputPreprocessor) -> list[int]:
            return preprocessor.tokenize_prompt(text, add_special_tokens=add_special_tokens, max_length=max_length)

        if len(text) <= _MIN_THREAD_LENGTH:
            token_ids = tokenize(self.preprocessor)
        else:
            token_ids = await self._threads[bounded].run(tokenize)
        return {"prompt": text, "prompt_token_ids": token_ids}


class _TokenizerThread:
    """A thread with a tokenizer of its own, which two threads must not share; both are made for the first text."""

    def __init__(self, preprocessor: InputPreprocessor) -> None:
        self._original = preprocessor
        self._preprocessor: InputPreprocessor | None = None
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenizer")

    async def run(self, tokenize: Callable[[InputPreprocessor], list[int]]) -> list[int]:
        """Call a function with the thread's preprocessor; if the caller is cancelled, the call still ends first."""

        def call() -> list[int]:
            if self._preprocessor is None:
                tokenizer = copy.deepcopy(self._original.tokenizer)
                self._preprocessor = InputPreprocessor(self._original.model_config, tokenizer)
            return tokenize(self._preprocessor)

        return await asyncio.get_running_loop().run_in_executor(self._executor, call)


async def merge_async_iterators(*iterators: AsyncGenerator[T, None]) -> AsyncGenerator[tuple[int, T], None]:
    """Yield the items of all iterators as they arrive, each with its iterator's index.

    If an iterator fails or the consumer stops, the others are cancelled.
    """
    if len(iterators) == 1:  # no task or queue between the engine's outputs and the response
        try:
            async for only in iterators[0]:
                yield 0, only
        finally:
            await iterators[0].aclose()
        return
    queue: asyncio.Queue[tuple[int, T] | BaseException | None] = asyncio.Queue()

    async def read(index: int, iterator: AsyncGenerator[T, None]) -> None:
        end: BaseException | None = None
        try:
            async for item in iterator:
                queue.put_nowait((index, item))
        except BaseException as error:
            end = error
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            await iterator.aclose()
            queue.put_nowait(end)

    readers: list[asyncio.Task[None]] = []
    num_running = len(iterators)
    try:
        for index, iterator in enumerate(iterators):
            readers.append(asyncio.create_task(read(index, iterator)))
            await asyncio.sleep(0)  # the reader submits its request; other requests run in between
        while num_running:
            item = await queue.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                num_running -= 1
            else:
                yield item
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


async def after_first(generator: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Wait for the first item, and return a generator of all items.

    An error before the first item is raised here, before a response begins.
    """
    try:
        first = await anext(generator)
    except StopAsyncIteration:
        return generator
    return _with_first(first, generator)


async def _with_first(first: T, generator: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    try:
        yield first
        async for item in generator:
            yield item
    finally:
        await generator.aclose()

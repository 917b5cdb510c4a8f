"""Two ways to read asynchronous generators: several at once, and only once the first item is there.

vLLM: vllm/utils/async_utils.py::merge_async_iterators.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

__all__ = ["after_first", "merge_async_iterators"]

T = TypeVar("T")


async def merge_async_iterators(*iterators: AsyncGenerator[T, None]) -> AsyncGenerator[tuple[int, T], None]:
    """The items of all of them as they come, each with the number of its generator.

    When one fails, or the reader stops, the others are cancelled.
    """
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

    readers = [asyncio.create_task(read(index, iterator)) for index, iterator in enumerate(iterators)]
    left = len(readers)
    try:
        while left:
            got = await queue.get()
            if isinstance(got, BaseException):
                raise got
            if got is None:
                left -= 1
            else:
                yield got
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


async def after_first(generator: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The same items, once the first is there: so what is refused is refused before a response begins."""
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

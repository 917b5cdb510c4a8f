"""JSON of complete responses: written in parts, between which other requests run."""

import asyncio

import pytest
from pydantic import BaseModel

from tracellm.engine.entrypoints.openai.http_responses import dump_json
from tracellm.engine.entrypoints.openai.protocol import (
    ChatCompletionLogProb,
    ChatCompletionLogProbs,
    ChatCompletionLogProbsContent,
    ChatCompletionResponse,
    ChatCompletionResponseChoice,
    ChatMessage,
    CompletionLogProbs,
    CompletionResponse,
    CompletionResponseChoice,
    UsageInfo,
)
from tracellm.engine.entrypoints.pooling.protocol import PoolingResponse, PoolingResponseData
from tracellm.engine.frontend.logprobs import Logprob, PromptLogprobs

POSITIONS: PromptLogprobs = [None, *({i: Logprob(-0.1 * i, 1, '"\n'), 7: Logprob(-1e-9)} for i in range(200))]
TEXT = '"choices":null,"logprobs":null,"prompt_logprobs":null'
TOKENS = CompletionLogProbs(
    text_offset=[*range(300)],
    token_logprobs=[None, *[-0.5] * 299],
    tokens=["é"] * 300,
    top_logprobs=[{"a": -9999.0}] * 300,
)
CONTENT = ChatCompletionLogProbsContent(
    token="a", logprob=-1.0, bytes=[97], top_logprobs=[ChatCompletionLogProb(token=TEXT)] * 2
)
CHAT_CHOICES = [
    ChatCompletionResponseChoice(index=0, message=ChatMessage(role="assistant", content=TEXT)),
    ChatCompletionResponseChoice(
        index=1,
        message=ChatMessage(role="assistant", content="b"),
        logprobs=ChatCompletionLogProbs(content=[CONTENT] * 200),
        token_ids=[*range(500)],
    ),
]
RESPONSES: dict[str, BaseModel] = {
    "completion": CompletionResponse(
        model="m",
        usage=UsageInfo(),
        choices=[
            CompletionResponseChoice(index=0, text=TEXT),
            CompletionResponseChoice(index=1, text=TEXT, logprobs=TOKENS, prompt_logprobs=POSITIONS),
            CompletionResponseChoice(index=2, text="", logprobs=CompletionLogProbs(), prompt_logprobs=[None]),
        ],
    ),
    "chat": ChatCompletionResponse(model="m", usage=UsageInfo(), choices=CHAT_CHOICES, prompt_logprobs=POSITIONS),
    "pooling": PoolingResponse(
        model="m",
        usage=UsageInfo(),
        data=[PoolingResponseData(index=index, data=[[0.5] * 100] * rows) for index, rows in enumerate((1, 200))],
    ),
    "short": CompletionResponse(model=TEXT, usage=UsageInfo(), choices=[]),
}


@pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES)
def test_the_parts_are_the_json_of_the_response(response: BaseModel) -> None:
    """Together the parts are what pydantic writes at once, also where a text looks like a field."""
    assert asyncio.run(dump_json(response)).decode() == response.model_dump_json()


def test_other_tasks_run_while_a_response_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the parts of a long response other tasks run."""
    monkeypatch.setattr("tracellm.engine.entrypoints.openai.http_responses._DUMP_SECONDS", 0)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def dump() -> None:
        counting = asyncio.create_task(count())
        await dump_json(RESPONSES["completion"])
        counting.cancel()

    asyncio.run(dump())
    assert turns > 10

"""JSON of complete responses: written in parts, between which other requests run."""

import asyncio

import pytest
from pydantic import BaseModel

from tracellm.engine.entrypoints.openai.http_responses import _json_parts, dump_json
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
from tracellm.engine.entrypoints.openai.responses.protocol import FunctionTool, ResponsesResponse
from tracellm.engine.entrypoints.pooling.protocol import PoolingResponse, PoolingResponseData
from tracellm.engine.frontend.logprobs import Logprob, PromptLogprobs

POSITIONS: PromptLogprobs = [None, *({i: Logprob(-0.1 * i, 1, '"\n'), 7: Logprob(-1e-9)} for i in range(200))]
TEXT = '"choices":null,"logprobs":null,"prompt_logprobs":null'
TOKENS = CompletionLogProbs(
    text_offset=[*range(3000)],
    token_logprobs=[None, *[-0.5] * 2999],
    tokens=["é"] * 3000,
    top_logprobs=[{"a": -9999.0}] * 3000,
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
        data=[PoolingResponseData(index=index, data=[[0.5] * 1000] * rows) for index, rows in enumerate((1, 200))],
    ),
    "with a caller's object": ResponsesResponse.model_construct(
        id="r",
        model="m",
        tool_choice={"type": "function", "name": "f1", "tools": None},
        tools=[FunctionTool(type="function", name=f"f{number}") for number in range(100)],
    ),
    "short": CompletionResponse(model=TEXT, usage=UsageInfo(), choices=[]),
}


@pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES)
def test_the_parts_are_the_json_of_the_response(response: BaseModel) -> None:
    """Together the parts are what pydantic writes at once, also where a text looks like a field."""
    assert asyncio.run(dump_json(response)).decode() == response.model_dump_json()


@pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES)
def test_parts_are_short(response: BaseModel) -> None:
    """A part takes little time to write, however many positions or numbers a response has."""
    assert max(map(len, _json_parts(response))) < 60_000


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

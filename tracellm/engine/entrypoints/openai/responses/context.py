"""`SimpleContext`: the output of one response, from the engine's outputs to items, token counts and a status.

`OpenAIServingResponses` passes it each `RequestOutput`. It makes the items of a complete text; those of a stream are
made by `StreamingEventProcessor`.

vLLM: vllm/entrypoints/context.py::SimpleContext, and `_make_response_output_items` of `OpenAIServingResponses`.
"""

from __future__ import annotations

from tracellm.engine.entrypoints.openai.message_parser import MessageParser
from tracellm.engine.entrypoints.openai.protocol import ChatCompletionLogProbsContent
from tracellm.engine.entrypoints.openai.responses.protocol import (
    InputTokensDetails,
    OutputTokensDetails,
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseReasoningText,
    ResponseStatus,
    ResponseUsage,
)
from tracellm.engine.frontend.outputs import CompletionOutput, RequestOutput

__all__ = ["SimpleContext"]


class SimpleContext:
    """Output of one response so far."""

    def __init__(self, parser: MessageParser) -> None:
        self.parser = parser
        self.num_prompt_tokens = 0
        self.num_cached_tokens = 0
        self.token_ids: list[int] = []
        self.finish_reason: str | None = None

    def append_output(self, result: RequestOutput) -> CompletionOutput | None:
        """Count the tokens of an output. Return its completion, or None if it has none."""
        self.num_prompt_tokens = len(result.prompt_token_ids or ())
        self.num_cached_tokens = result.num_cached_tokens or 0
        if not result.outputs:
            return None
        (output,) = result.outputs
        self.token_ids += output.token_ids
        self.finish_reason = output.finish_reason
        return output

    @property
    def status(self) -> ResponseStatus:
        """Status of the response when the output has ended: `incomplete` if `max_output_tokens` cut it off."""
        return "incomplete" if self.finish_reason == "length" else "completed"

    def usage(self) -> ResponseUsage:
        """Return the token counts."""
        num_prompt, num_generated = self.num_prompt_tokens, len(self.token_ids)
        reasoning_parser = self.parser.reasoning_parser
        num_reasoning = 0 if reasoning_parser is None else reasoning_parser.count_reasoning_tokens(self.token_ids)
        return ResponseUsage(
            input_tokens=num_prompt,
            input_tokens_details=InputTokensDetails(cached_tokens=self.num_cached_tokens),
            output_tokens=num_generated,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=num_reasoning),
            total_tokens=num_prompt + num_generated,
        )

    async def make_response_output_items(
        self, text: str, logprobs: list[ChatCompletionLogProbsContent] | None
    ) -> list[ResponseOutputItem]:
        """Return the items of a complete text: reasoning, message, calls.

        The last one has the status of the response; in vLLM a call that was cut off is `completed`, too.
        """
        message = await self.parser.parse_async(text, "assistant")
        items: list[ResponseOutputItem] = []
        if message.reasoning:
            content = [ResponseReasoningText(text=message.reasoning)]
            items.append(ResponseReasoningItem(content=content, status="completed"))
        if message.content:
            items.append(ResponseOutputMessage(content=[ResponseOutputText(text=message.content, logprobs=logprobs)]))
        for call in message.tool_calls:
            function = call.function
            items.append(ResponseFunctionToolCall(call_id=call.id, name=function.name, arguments=function.arguments))
        if items:
            items[-1].status = self.status
        return items

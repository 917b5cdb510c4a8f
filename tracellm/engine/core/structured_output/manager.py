"""Structured outputs in the engine core: compiles grammars, and builds the bitmask of each step.

The path of a constrained request: `EngineCore.preprocess_add_request` calls `grammar_init`, and a thread compiles the
grammar. The request is WAITING_FOR_FSM, and the scheduler skips it until the grammar is ready. In each of its steps
`grammar_bitmask` returns the allowed tokens, the model runner masks all others before it samples
(`utils.apply_grammar_bitmask`), and `Scheduler.update_from_output` passes the sampled token to the grammar.

A grammar of a model that reasons applies after the reasoning (`reasoner`).

vLLM: vllm/v1/structured_output/__init__.py::StructuredOutputManager. Left out: other backends, speculative tokens,
filling masks in parallel (there for more than 128 requests).
"""

from __future__ import annotations

import os
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import cached_property
from typing import TYPE_CHECKING

from tracellm.engine.config.tokenizer import get_tokenizer
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.core.request import Request
from tracellm.engine.core.structured_output.request import StructuredOutputBackend, StructuredOutputGrammar
from tracellm.engine.reasoning import ReasoningParser, ReasoningParserManager

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerFast

    from tracellm.engine.sample.sampling_params import StructuredOutputsParams

__all__ = ["StructuredOutputManager"]

_MAX_WAIT = 0.05
"""Seconds; a request that arrives during the wait is delayed by at most that."""


class StructuredOutputManager:
    """The grammars of all requests. Backend and threads are created for the first constrained request."""

    def __init__(self, vllm_config: VllmConfig) -> None:
        self.vllm_config = vllm_config
        self._compiling: set[Future[StructuredOutputGrammar]] = set()

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerFast:
        """The engine core's own tokenizer: that of the front end may be in another process."""
        return get_tokenizer(self.vllm_config.model_config.tokenizer)

    @cached_property
    def backend(self) -> StructuredOutputBackend:
        """The grammar library."""
        from tracellm.engine.core.structured_output.backend_guidance import get_guidance_backend

        model_config = self.vllm_config.model_config
        return get_guidance_backend(self._tokenizer, model_config.get_vocab_size())

    @cached_property
    def reasoner(self) -> ReasoningParser | None:
        """The parser that finds the end of the reasoning; None for a model that does not reason."""
        name = self.vllm_config.structured_outputs_config.reasoning_parser
        if not name:
            return None
        return ReasoningParserManager.get_reasoning_parser(name)(self._tokenizer)

    @cached_property
    def executor(self) -> ThreadPoolExecutor:
        """The threads that compile grammars, half as many as CPUs."""
        return ThreadPoolExecutor(max_workers=((os.cpu_count() or 1) + 1) // 2, thread_name_prefix="grammar")

    @cached_property
    def _grammar_bitmask(self) -> NDArray[np.int32]:
        return self.backend.allocate_token_bitmask(self.vllm_config.scheduler_config.max_num_seqs)

    def grammar_init(self, request: Request) -> None:
        """Start to compile the request's grammar in a thread; do nothing for an unconstrained request.

        The first request's thread creates the backend, so that other requests do not wait for it, as they do in vLLM.
        If that or the compilation fails, the scheduler fails the request.

        Raises:
            EngineError: the reasoning parser does not support the tokenizer.
        """
        structured_output_request = request.structured_output_request
        if structured_output_request is None:
            return
        if self.reasoner is not None:
            structured_output_request.reasoning_ended = self.reasoner.prompt_ends_reasoning(request.prompt_token_ids)
        compiling = self.executor.submit(self._create_grammar, structured_output_request.params)
        structured_output_request.compiling = compiling
        self._compiling.add(compiling)
        compiling.add_done_callback(self._compiling.discard)

    def _create_grammar(self, params: StructuredOutputsParams) -> StructuredOutputGrammar:
        return self.backend.compile_grammar(params)

    def wait_for_a_grammar(self) -> None:
        """Wait briefly until a grammar is compiled, if any is being compiled. Called after a step without work.

        vLLM has no counterpart: its engine core repeats empty steps until the grammar is ready.
        """
        if compiling := tuple(self._compiling):
            wait(compiling, timeout=_MAX_WAIT, return_when=FIRST_COMPLETED)

    def grammar_bitmask(
        self, requests: dict[str, Request], structured_output_request_ids: list[str]
    ) -> NDArray[np.int32]:
        """Return the allowed next tokens of these requests.

        Returns:
            int32 [requests, vocabulary / 32], valid until the next call; see `StructuredOutputGrammar.fill_bitmask`.
        """
        bitmask = self._grammar_bitmask
        for row, request_id in enumerate(structured_output_request_ids):
            grammar = self._get_grammar(requests[request_id])
            if grammar.is_terminated() or not self._reasoning_ended(requests[request_id]):
                bitmask[row] = -1  # all bits are 1
            else:
                grammar.fill_bitmask(bitmask, row)
        return bitmask[: len(structured_output_request_ids)]

    def should_advance(self, request: Request) -> bool:
        """Return whether the request has a grammar that its new tokens advance: those after the reasoning."""
        if not request.use_structured_output:
            return False
        if self._reasoning_ended(request):
            return True
        assert self.reasoner is not None
        assert request.structured_output_request is not None
        new_token = request.output_token_ids[-1:]
        request.structured_output_request.reasoning_ended = self.reasoner.is_reasoning_end(new_token)
        return False

    def accept_tokens(self, request: Request, tokens: list[int]) -> bool:
        """Advance the request's grammar by the sampled tokens. Return False if they violate it."""
        return self._get_grammar(request).accept_tokens(request.request_id, tokens)

    def get_error(self, request: Request) -> str | None:
        """Return why the request's constraint cannot be followed any further, or None."""
        return self._get_grammar(request).error if request.use_structured_output else None

    @staticmethod
    def _reasoning_ended(request: Request) -> bool:
        assert request.structured_output_request is not None
        return request.structured_output_request.reasoning_ended

    @staticmethod
    def _get_grammar(request: Request) -> StructuredOutputGrammar:
        assert request.structured_output_request is not None
        grammar = request.structured_output_request.grammar
        assert grammar is not None, "a request without its grammar is not scheduled"
        return grammar

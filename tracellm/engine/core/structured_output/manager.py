"""The engine core's side of structured outputs: compiles grammars, and makes the mask of every step.

A constrained request's way: `EngineCore.preprocess_add_request` calls `grammar_init`, a thread compiles; the request is
WAITING_FOR_FSM, and the scheduler passes it over until its grammar is there. In every step that it takes part in,
`grammar_bitmask` says which tokens may come next, the model runner forbids all others before it samples
(`utils.apply_grammar_bitmask`), and `Scheduler.update_from_output` tells the grammar the token that was sampled.

vLLM: vllm/v1/structured_output/__init__.py::StructuredOutputManager. Left out: other backends, reasoning, speculative
tokens, masks filled in parallel (there for more than 128 requests).
"""

from __future__ import annotations

import os
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import cached_property
from typing import TYPE_CHECKING

from tracellm.engine.config.tokenizer import get_tokenizer
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.core.request import Request
from tracellm.engine.core.structured_output.backend_types import StructuredOutputBackend, StructuredOutputGrammar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracellm.engine.sample.sampling_params import StructuredOutputsParams

__all__ = ["StructuredOutputManager"]

_LONGEST_WAIT = 0.05  # seconds: a request that arrives meanwhile waits no longer than that


class StructuredOutputManager:
    """Grammars of all requests. Nothing is loaded or started before the first constrained request."""

    def __init__(self, vllm_config: VllmConfig) -> None:
        self.vllm_config = vllm_config
        self._compiling: set[Future[StructuredOutputGrammar]] = set()

    @cached_property
    def backend(self) -> StructuredOutputBackend:
        """The library that knows grammars, with a tokenizer of its own: the front half may be in another process."""
        from tracellm.engine.core.structured_output.backend_guidance import get_guidance_backend

        model_config = self.vllm_config.model_config
        return get_guidance_backend(get_tokenizer(model_config.tokenizer), model_config.get_vocab_size())

    @cached_property
    def executor(self) -> ThreadPoolExecutor:
        """The threads that compile: half as many as there are CPUs."""
        return ThreadPoolExecutor(max_workers=((os.cpu_count() or 1) + 1) // 2, thread_name_prefix="grammar")

    @cached_property
    def _grammar_bitmask(self) -> NDArray[np.int32]:
        return self.backend.allocate_token_bitmask(self.vllm_config.scheduler_config.max_num_seqs)

    def grammar_init(self, request: Request) -> None:
        """Have the request's grammar compiled, in a thread. Nothing happens to a request without constraint.

        Raises:
            EngineError: the tokenizer is of no kind that the backend knows.
        """
        structured_output_request = request.structured_output_request
        if structured_output_request is None:
            return
        backend = self.backend
        compiling = self.executor.submit(self._create_grammar, backend, structured_output_request.params)
        structured_output_request.compiling = compiling
        self._compiling.add(compiling)

    def _create_grammar(
        self, backend: StructuredOutputBackend, params: StructuredOutputsParams
    ) -> StructuredOutputGrammar:
        return backend.compile_grammar(params)

    def wait_for_a_grammar(self) -> None:
        """Let the next grammar be finished, if any is being compiled; for a step that had nothing else to do.

        vLLM has no counterpart: there the engine core steps on, empty, until the grammar is there.
        """
        self._compiling.difference_update([future for future in tuple(self._compiling) if future.done()])
        if self._compiling:
            wait(self._compiling, timeout=_LONGEST_WAIT, return_when=FIRST_COMPLETED)

    def grammar_bitmask(
        self, requests: dict[str, Request], structured_output_request_ids: list[str]
    ) -> NDArray[np.int32]:
        """Which tokens may come next, for these requests.

        Returns:
            int32 [requests, vocabulary / 32], valid until the next call; see `StructuredOutputGrammar.fill_bitmask`.
        """
        bitmask = self._grammar_bitmask
        for row, request_id in enumerate(structured_output_request_ids):
            grammar = self._grammar_of(requests[request_id])
            if grammar.is_terminated():
                bitmask[row] = -1  # all bits are 1
            else:
                grammar.fill_bitmask(bitmask, row)
        return bitmask[: len(structured_output_request_ids)]

    def should_advance(self, request: Request) -> bool:
        """Does a token of this request move a grammar on?"""
        return request.use_structured_output

    def accept_tokens(self, request: Request, tokens: list[int]) -> bool:
        """Move the request's grammar on by the tokens just sampled; False when they do not conform."""
        return self._grammar_of(request).accept_tokens(request.request_id, tokens)

    @staticmethod
    def _grammar_of(request: Request) -> StructuredOutputGrammar:
        assert request.structured_output_request is not None
        grammar = request.structured_output_request.grammar
        assert grammar is not None, "it would not have been scheduled"
        return grammar

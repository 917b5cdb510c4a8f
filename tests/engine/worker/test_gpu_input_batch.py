"""Tests of the persistent batch and its block table against a plain dictionary of requests."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tracellm.engine.sample import logits_processor
from tracellm.engine.sample.logits_processor import BatchUpdate
from tracellm.engine.sample.metadata import SamplingMetadata
from tracellm.engine.sample.sampling_params import SamplingParams
from tracellm.engine.worker import cpu_gpu_buffer
from tracellm.engine.worker.block_table import BlockTable
from tracellm.engine.worker.cpu_gpu_buffer import BatchColumn, CpuGpuBuffer, async_tensor_h2d
from tracellm.engine.worker.gpu_input_batch import CachedRequestState, InputBatch

BLOCK_SIZE, MAX_LEN, VOCAB = 4, 32, 50
CPU = torch.device("cpu")


def make_batch(max_num_reqs: int = 8) -> InputBatch:
    """Make an empty batch."""
    return InputBatch(max_num_reqs, MAX_LEN, 64, [BLOCK_SIZE, BLOCK_SIZE], VOCAB, CPU)


def make_request(req_id: str, rng: random.Random) -> CachedRequestState:
    """Make a request with random tokens, blocks, sampling parameters and some output."""
    prompt = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 12))]
    output = [rng.randrange(VOCAB) for _ in range(rng.randint(0, 6))]
    seed = rng.choice([None, 3])
    params = SamplingParams(
        temperature=rng.choice([0.0, 0.5, 1.5]),
        top_k=rng.choice([-1, 0, 7, 1000]),
        top_p=rng.choice([1.0, 0.5]),
        seed=seed,
        max_tokens=None,
        frequency_penalty=rng.choice([0.0, 0.0, 0.5]),
        presence_penalty=rng.choice([0.0, 0.0, -1.0]),
        repetition_penalty=rng.choice([1.0, 1.0, 1.5]),
        min_p=rng.choice([0.0, 0.2]),
        min_tokens=rng.choice([0, 4]),
        stop_token_ids=[5, 10**6],
        logit_bias=rng.choice([None, {3: 1.0, 9: -2.0}]),
        allowed_token_ids=rng.choice([None, None, [1, 2, 30]]),
        logprobs=rng.choice([None, None, 0, 3, -1]),
    )
    params._bad_words_token_ids = rng.choice([None, [[4], [1, 2]]])
    count = -(-len(prompt + output) // BLOCK_SIZE)
    blocks = rng.sample(range(1, 1000), count), rng.sample(range(1, 1000), count)  # of two KV cache groups
    generator = torch.Generator() if seed is not None else None
    return CachedRequestState(req_id, prompt, params, generator, blocks, rng.randrange(len(prompt)), output)


def params_of(request: CachedRequestState) -> SamplingParams:
    """Return the sampling parameters; no request here is for pooling."""
    assert request.sampling_params is not None
    return request.sampling_params


def check(batch: InputBatch, requests: dict[str, CachedRequestState]) -> None:
    """Check that every request is in exactly one row, which has the request's state and parameters."""
    assert sorted(batch.req_ids) == sorted(requests)
    assert batch.num_reqs == len(requests)
    metadata = batch.sampling_metadata
    for row, req_id in enumerate(batch.req_ids):
        request, params = requests[req_id], params_of(requests[req_id])
        assert batch.req_id_to_index[req_id] == row
        tokens = request.prompt_token_ids + request.output_token_ids
        assert batch.num_tokens[row] == len(tokens)
        assert batch.token_ids_cpu[row, : len(tokens)].tolist() == tokens
        assert batch.num_computed_tokens_cpu[row] == request.num_computed_tokens
        for table, blocks in zip(batch.block_table.block_tables, request.block_ids, strict=True):
            assert table.block_table.np[row, : table.num_blocks_per_row[row]].tolist() == blocks
        greedy = params.temperature == 0
        assert (metadata.temperature is None or metadata.temperature[row] == 0) == greedy
        assert metadata.temperature is None or metadata.temperature[row] == params.temperature
        assert (1.0 if metadata.top_p is None else metadata.top_p[row]) == params.top_p
        assert (VOCAB if metadata.top_k is None else metadata.top_k[row]) == (7 if params.top_k == 7 else VOCAB)
        assert metadata.generators.get(row) is request.generator
        assert metadata.output_token_ids[row] is request.output_token_ids
        assert metadata.bad_words_token_ids.get(row) == params.bad_words_token_ids
        allowed = params.allowed_token_ids or range(VOCAB)
        mask = metadata.allowed_token_ids_mask
        assert mask is None or set(mask[row].logical_not().nonzero()[:, 0].tolist()) == set(allowed)
        assert mask is not None or not params.allowed_token_ids
        check_penalties(metadata, row, request)
    wanted = [w for r in requests.values() if (w := params_of(r).logprobs) is not None]
    assert metadata.max_num_logprobs == max((VOCAB if w == -1 else w for w in wanted), default=None)
    assert metadata.no_penalties == (not any(is_penalized(params_of(r)) for r in requests.values()))
    check_logitsprocs(metadata, [requests[req_id] for req_id in batch.req_ids])
    assert metadata.all_greedy == all(params_of(r).temperature == 0 for r in requests.values())
    assert metadata.all_random == all(params_of(r).temperature > 0 for r in requests.values())


def is_penalized(params: SamplingParams) -> bool:
    """Return whether a penalty has an effect."""
    return (params.frequency_penalty, params.presence_penalty, params.repetition_penalty) != (0, 0, 1)


def check_penalties(metadata: SamplingMetadata, row: int, request: CachedRequestState) -> None:
    """Check that the row has its penalties, and its prompt if one of them has an effect."""
    if metadata.prompt_token_ids is None:
        assert not is_penalized(params_of(request))
        return
    prompt = [token for token in metadata.prompt_token_ids[row].tolist() if token != VOCAB]
    assert prompt == (request.prompt_token_ids if is_penalized(params_of(request)) else [])
    for name in ("frequency", "presence", "repetition"):
        column = getattr(metadata, f"{name}_penalties")
        assert column[row] == getattr(params_of(request), f"{name}_penalty")


def check_logitsprocs(metadata: SamplingMetadata, rows: list[CachedRequestState]) -> None:
    """Check what the processors do to logits of 0: masked stop tokens, biases, and improbable tokens dropped."""
    logits, cold = torch.zeros(len(rows), VOCAB), torch.zeros(len(rows), VOCAB)
    cold[:, 7] = 10.0
    for processor in metadata.logitsprocs.non_argmax_invariant:
        processor.apply(logits)
    for processor in metadata.logitsprocs.argmax_invariant:
        processor.apply(cold)
    for row, request in enumerate(rows):
        params, expected = params_of(request), torch.zeros(VOCAB)
        for token, bias in (params.logit_bias or {}).items():
            expected[token] += bias
        if len(request.output_token_ids) < params.min_tokens:
            expected[5] = -torch.inf
        assert torch.equal(logits[row], expected)
        assert bool((cold[row] == 0).any()) == (not params.min_p)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_batch_holds_what_the_requests_hold(seed: int) -> None:
    """After any sequence of changes, each row has the state of its request, and no row is empty."""
    rng, batch = random.Random(seed), make_batch()
    requests: dict[str, CachedRequestState] = {}
    names = iter(range(1000))
    for _ in range(12):
        for req_id in rng.sample(sorted(requests), rng.randint(0, len(requests))):
            batch.remove_request(req_id)
            del requests[req_id]
        batch.remove_request("unknown")
        for _ in range(rng.randint(0, 8 - len(requests))):
            request = make_request(str(next(names)), rng)
            requests[request.req_id] = request
            batch.add_request(request)
        batch.condense()
        batch.refresh_metadata()
        check(batch, requests)
        for row, req_id in enumerate(batch.req_ids):
            if rng.random() < 0.5 and requests[req_id].num_tokens < MAX_LEN:
                batch.append_tokens([row], [rng.randrange(VOCAB)])
            if rng.random() < 0.3 and len(requests[req_id].block_ids[0]) < MAX_LEN // BLOCK_SIZE:
                new_blocks = [rng.randint(1, 999)], [rng.randint(1, 999)]
                for blocks, new in zip(requests[req_id].block_ids, new_blocks, strict=True):
                    blocks.extend(new)
                batch.block_table.append_row(new_blocks, row)
        batch.refresh_metadata()
        check(batch, requests)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_updated_metadata_is_that_of_a_new_batch(seed: int) -> None:
    """After any changes, every field equals, bit for bit, that of a new batch with the same requests in its rows."""
    rng, batch = random.Random(seed), make_batch()
    for column in (column for column in vars(batch).values() if isinstance(column, BatchColumn)):
        column._buffer.gpu = torch.full_like(column._buffer.cpu, -9)  # memory of its own, as on a GPU
    for name in range(30):
        for req_id in rng.sample(batch.req_ids, rng.randint(0, min(2, batch.num_reqs))):
            batch.remove_request(req_id)
        if batch.num_reqs < 8:
            batch.add_request(make_request(str(name), rng))
        batch.condense()
        batch.refresh_metadata()
        fresh = make_batch()
        for request in batch._requests:
            fresh.add_request(request)
        fresh.refresh_metadata()
        updated, expected = vars(batch.sampling_metadata), vars(fresh.sampling_metadata)
        assert updated.keys() == expected.keys()
        for field in updated.keys() - {"logitsprocs"}:
            if isinstance(expected[field], torch.Tensor):
                assert updated[field].dtype == expected[field].dtype
                assert torch.equal(updated[field], expected[field]), field
            else:
                assert updated[field] == expected[field], field


def test_only_changed_rows_are_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request that comes or ends updates its row and the row that moves, and sends nothing that stays the same."""
    updates: list[BatchUpdate] = []
    sent: list[str] = []
    batch, plain = make_batch(), SamplingParams(temperature=0.7)
    full = SamplingParams(
        temperature=0.5, top_k=7, top_p=0.5, min_p=0.2, min_tokens=4, stop_token_ids=[5], repetition_penalty=1.5,
        logit_bias={3: 1.0}, allowed_token_ids=[1, 2, 30], seed=3, logprobs=3,
    )  # fmt: skip
    for name in "abcd":
        batch.add_request(CachedRequestState(name, [1, 2, 3], full, None, ([7], [8]), 0))
    batch.add_request(CachedRequestState("e", [1, 2, 3], plain, None, ([7], [8]), 0))
    batch.refresh_metadata()

    update_state, copy_to_gpu = batch.logitsprocs.update_state, CpuGpuBuffer.copy_to_gpu

    def record_update(update: BatchUpdate | None) -> None:
        assert update is not None
        updates.append(update)
        update_state(update)

    def record_copy(buffer: CpuGpuBuffer, n: int) -> torch.Tensor:
        sent.append(str(buffer.np.dtype))
        return copy_to_gpu(buffer, n)

    def record_send(data: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        sent.append(str(dtype))
        return async_tensor_h2d(data, dtype, device)

    monkeypatch.setattr(batch.logitsprocs, "update_state", record_update)
    monkeypatch.setattr(CpuGpuBuffer, "copy_to_gpu", record_copy)
    for module in (cpu_gpu_buffer, logits_processor):
        monkeypatch.setattr(module, "async_tensor_h2d", record_send)

    def refresh() -> tuple[list[int], list[int], list[str]]:
        sent.clear()
        batch.condense()
        batch.refresh_metadata()
        return [row for row, _, _ in updates[-1].added], updates[-1].removed, sent

    batch.add_request(CachedRequestState("f", [1, 2, 3], SamplingParams(temperature=0.6), None, ([7], [8]), 0))
    assert refresh() == ([5], [], ["float32"]), "a temperature"
    batch.remove_request("f")
    assert refresh() == ([], [5], [])
    batch.remove_request("e")
    batch.add_request(CachedRequestState("g", [4, 5, 6, 7], plain, None, ([7], [8]), 0))
    assert refresh() == ([4], [], [])
    batch.remove_request("b")
    added, removed, _ = refresh()
    assert (added, removed) == ([1], [4]), "`g` moves"


def test_the_smallest_empty_row_is_filled_first() -> None:
    """A new request takes the first empty row, and no other request moves."""
    rng, batch = random.Random(0), make_batch()
    for name in "abcd":
        batch.add_request(make_request(name, rng))
    batch.remove_request("c")
    batch.remove_request("a")
    batch.add_request(make_request("e", rng))
    batch.add_request(make_request("f", rng))
    batch.condense()
    assert batch.req_ids == ["e", "b", "f", "d"]


@settings(max_examples=100, deadline=None)
@given(
    block_size=st.sampled_from([1, 3, 4, 16]),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    seed=st.integers(0, 1000),
)
def test_slot_mapping_is_the_definition(block_size: int, lengths: list[int], seed: int) -> None:
    """Token p of a request goes to slot p % block_size of block p // block_size; no two tokens share a slot."""
    rng = random.Random(seed)
    table = BlockTable(block_size, 5, -(-40 // block_size), 200, CPU)
    pool = rng.sample(range(1, 500), 200)
    owned = []
    for row, length in enumerate(lengths):
        blocks = [pool.pop() for _ in range(-(-length // block_size))]
        cut = rng.randint(0, len(blocks))
        table.add_row(blocks[:cut], row)
        table.append_row(blocks[cut:], row)
        owned.append(blocks)
    pairs = [(row, position) for row, length in enumerate(lengths) for position in range(length)]
    table.compute_slot_mapping(np.array([row for row, _ in pairs]), np.array([position for _, position in pairs]))
    slots = table.commit_slot_mapping(len(pairs))
    assert slots.dtype == torch.int64
    assert slots.tolist() == [owned[row][p // block_size] * block_size + p % block_size for row, p in pairs]
    assert len(set(slots.tolist())) == len(pairs)
    device_table = table.commit_block_table(len(lengths), len(lengths))
    assert device_table.shape == (len(lengths), max(map(len, owned)))
    for row, blocks in enumerate(owned):
        assert device_table[row, : len(blocks)].tolist() == blocks

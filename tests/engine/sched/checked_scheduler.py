"""Small scheduler whose whole state is checked after every operation."""

from collections import Counter
from collections.abc import Sequence
from itertools import count, product

from tests.engine.sched.decision_checks import Before, check_decisions
from tests.engine.sched.harness import (
    make_config,
    make_kv_cache_config,
    make_request,
    make_scheduler,
    make_spec,
    sample,
)
from tracellm.engine.core.kv_cache.kv_cache_utils import get_block_hash, get_max_num_blocks, hash_block_tokens
from tracellm.engine.core.request import Request, RequestStatus

__all__ = ["BLOCK", "EOS", "MAX_MODEL_LEN", "CheckedScheduler"]

BLOCK = 4
MAX_MODEL_LEN = 32
EOS = 5


class CheckedScheduler:
    """Scheduler that checks its state after each arrival, step and abort.

    The pool has room for one request of maximum length, and `spare_blocks` more.
    """

    def __init__(
        self,
        *,
        spare_blocks: int,
        max_num_batched_tokens: int,
        max_num_seqs: int,
        enable_prefix_caching: bool,
        windows: Sequence[int | None] = (None,),
        **settings,
    ) -> None:
        groups = make_kv_cache_config(0, BLOCK, windows).kv_cache_groups
        needed = get_max_num_blocks(groups, MAX_MODEL_LEN, make_config(max_num_batched_tokens=max_num_batched_tokens))
        self.scheduler = make_scheduler(
            windows=windows,
            block_size=BLOCK,
            max_model_len=MAX_MODEL_LEN,
            num_gpu_blocks=needed + 1 + spare_blocks,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=min(max_num_seqs, max_num_batched_tokens),
            enable_prefix_caching=enable_prefix_caching,
            **settings,
        )
        self.caching = enable_prefix_caching
        self.windows = windows
        self.managers = self.scheduler.kv_cache_manager.coordinator.single_type_managers
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.numbers = count()
        self.live: dict[str, Request] = {}

    # -- operations ---------------------------------------------------------------------------------------------------

    def arrive(self, prompt: list[int], max_tokens: int, priority: int) -> None:
        """Add a request."""
        number = next(self.numbers)
        request = make_request(
            str(number),
            prompt,
            max_tokens,
            block_size=BLOCK if self.caching else None,
            priority=priority,
            arrival_time=float(number),
            eos_token_id=EOS,
        )
        self.live[request.request_id] = request
        self.scheduler.add_request(request)
        self.check_state()

    def abort(self, request_id: str) -> None:
        """Abort a request, running or waiting."""
        self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)
        self._forget(request_id)
        self.check_state()

    def reset_prefix_cache(self) -> None:
        """Reset the prefix cache; it must succeed exactly when no request holds a block."""
        held = any(any(manager.req_to_blocks.values()) for manager in self.managers)
        assert self.scheduler.reset_prefix_cache() is not held
        assert held or not any(block.block_hash for block in self.pool.blocks)
        self.check_state()

    def step(self, token: int) -> None:
        """Run one step that samples this token for every request; EOS ends them."""
        before = Before.of(self.scheduler)
        output = self.scheduler.schedule()
        check_decisions(self.scheduler, before, output)
        got = {
            request_id: len(self.live[request_id].output_token_ids)
            for request_id in output.num_scheduled_tokens
            if self.live[request_id].num_computed_tokens == self.live[request_id].num_tokens
        }
        by_client = self.scheduler.update_from_output(output, sample(self.scheduler, output, lambda request: token))
        outs = [out for of_client in by_client.values() for out in of_client.outputs]
        assert {out.request_id: len(self.live[out.request_id].output_token_ids) - 1 for out in outs} == got
        for out in outs:
            if out.finished:
                self._forget(out.request_id)
        self.check_state()

    def run_to_the_end(self) -> None:
        """Step until every request has ended and all blocks are free; no more requests arrive."""
        total = sum(request.num_prompt_tokens + request.max_tokens for request in self.live.values())
        for number in count():
            if not self.live:
                break
            assert number < 50 + 20 * total, f"{sorted(self.live)} never end"
            self.step(1)
        assert not self.scheduler.has_unfinished_requests()
        assert self.pool.get_num_free_blocks() == self.pool.num_gpu_blocks - 1

    def _forget(self, request_id: str) -> None:
        """Check that an ended request holds nothing."""
        del self.live[request_id]
        for manager in self.managers:
            assert request_id not in manager.req_to_blocks
            assert request_id not in manager.num_cached_block
        assert request_id not in self.scheduler.requests
        assert request_id in self.scheduler.finished_req_ids

    # -- invariants ---------------------------------------------------------------------------------------------------

    def check_state(self) -> None:
        """Check all invariants."""
        self.every_block_is_accounted_for()
        self.cached_blocks_hold_what_their_hash_says()
        self.blocks_go_when_the_window_has_left_them_and_not_before()
        self.only_running_requests_hold_blocks()

    def every_block_is_accounted_for(self) -> None:
        """Check that each block is free or used, with the right reference count, and shared only if full and cached.

        The null block is never free, never counted and never cached.
        """
        tables = [blocks for manager in self.managers for blocks in manager.req_to_blocks.values()]
        owned = [[block.block_id for block in blocks if block is not self.pool.null_block] for blocks in tables]
        users = Counter(block_id for blocks in owned for block_id in blocks)
        free = [block.block_id for block in self.pool.free_block_queue.get_all_free_blocks()]
        assert len(free) == len(set(free)) == self.pool.get_num_free_blocks()
        assert sorted([*free, *users]) == list(range(1, self.pool.num_gpu_blocks))
        for block in self.pool.blocks:
            assert block.ref_cnt == users[block.block_id]
            assert block.ref_cnt <= 1 or block.block_hash is not None
        assert self.pool.null_block.block_hash is None
        assert all(len(blocks) == len(set(blocks)) for blocks in owned)
        of_group = [{b.block_id for blocks in m.req_to_blocks.values() for b in blocks} - {0} for m in self.managers]
        assert sum(map(len, of_group)) == len(set().union(*of_group)), "a block is of one group"

    def cached_blocks_hold_what_their_hash_says(self) -> None:
        """Check that every request's cached blocks hold its tokens, and can be found by their hashes."""
        for (group, manager), (request_id, request) in product(enumerate(self.managers), self.live.items()):
            parent = None
            for index, block in enumerate(manager.req_to_blocks.get(request_id, [])):
                tokens = request.all_token_ids[index * BLOCK : (index + 1) * BLOCK]
                parent = hash_block_tokens(parent, tokens)
                if block is self.pool.null_block:
                    continue
                if block.block_hash is None:
                    break
                assert get_block_hash(block.block_hash) == parent
                assert self.pool.get_cached_block(parent, [group]) is not None

    def blocks_go_when_the_window_has_left_them_and_not_before(self) -> None:
        """Check that blocks of the next token's window are kept, and that windowed groups stay within their limit."""
        budget = self.scheduler.max_num_scheduled_tokens
        for (manager, window), request in product(
            zip(self.managers, self.windows, strict=True), self.scheduler.running
        ):
            blocks = manager.req_to_blocks[request.request_id]
            held = [index for index, block in enumerate(blocks) if block is not self.pool.null_block]
            assert held == list(range(len(blocks) - len(held), len(blocks)))
            seen = 0 if window is None else max(0, request.num_computed_tokens - window + 1)
            assert not held or held[0] <= seen // BLOCK
            assert len(held) <= make_spec(BLOCK, window).max_num_blocks(request.num_computed_tokens, budget)

    def only_running_requests_hold_blocks(self) -> None:
        """Check that a running request has slots for its computed tokens, and a waiting one has no blocks."""
        for request in self.scheduler.running:
            assert request.status is RequestStatus.RUNNING
            for manager in self.managers:
                blocks = manager.req_to_blocks[request.request_id]
                assert (len(blocks) - 1) * BLOCK < request.num_computed_tokens <= len(blocks) * BLOCK
        for request in self.scheduler.waiting:
            assert request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
            assert request.num_computed_tokens == 0
            assert not any(manager.req_to_blocks.get(request.request_id) for manager in self.managers)
        assert set(self.scheduler.requests) == set(self.live)

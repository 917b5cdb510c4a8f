"""Whatever arrives, runs and is aborted, in any order: no block is lost or given twice, and every request ends."""

from collections import Counter
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.engine.sched.harness import make_request, make_scheduler, run_step
from tracellm.engine.kv_cache.kv_cache_utils import hash_block_tokens
from tracellm.engine.request import Request, RequestStatus
from tracellm.engine.sched.output import SchedulerOutput
from tracellm.engine.sched.reasons import HeldCode

BLOCK = 4
MAX_MODEL_LEN = 32


class SchedulerMachine(RuleBasedStateMachine):
    """Drives a small scheduler with random requests, steps and aborts, and looks at all of its state after each."""

    @initialize(
        spare_blocks=st.integers(0, 6),
        max_num_batched_tokens=st.integers(4, 40),
        max_num_seqs=st.integers(1, 4),
        caching=st.booleans(),
        threshold=st.sampled_from([0, 0, 3]),
        policy=st.sampled_from(["fcfs", "priority"]),
    )
    def start(self, spare_blocks, max_num_batched_tokens, max_num_seqs, caching, threshold, policy):
        """A pool in which one request of the greatest length fits, and little more."""
        self.scheduler = make_scheduler(
            block_size=BLOCK,
            max_model_len=MAX_MODEL_LEN,
            num_gpu_blocks=MAX_MODEL_LEN // BLOCK + 1 + spare_blocks,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=min(max_num_seqs, max_num_batched_tokens),
            enable_prefix_caching=caching,
            long_prefill_token_threshold=threshold,
            policy=policy,
        )
        self.caching = caching
        self.manager = self.scheduler.kv_cache_manager.coordinator.single_type_managers[0]
        self.pool = self.manager.block_pool
        self.numbers = count()
        self.live: dict[str, Request] = {}

    # A small vocabulary, so that prompts share prefixes.
    @rule(
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=MAX_MODEL_LEN - 1),
        max_tokens=st.integers(1, 12),
        priority=st.integers(0, 2),
    )
    def arrive(self, prompt, max_tokens, priority):
        """A request comes."""
        number = next(self.numbers)
        request = make_request(
            str(number),
            prompt,
            max_tokens,
            block_size=BLOCK if self.caching else None,
            priority=priority,
            arrival_time=float(number),
            eos_token_id=5,
        )
        self.live[request.request_id] = request
        self.scheduler.add_request(request)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def abort(self, data):
        """A request is given up, wherever it is."""
        request_id = data.draw(st.sampled_from(sorted(self.live)))
        self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)
        self.forget(request_id)

    @rule(token=st.sampled_from([0, 1, 1, 5]))
    def step(self, token):
        """A step; token 5 ends whoever gets it."""
        self.run_step(token)

    @rule()
    def reset_prefix_cache(self):
        """The cache is forgotten exactly when nobody holds a block."""
        held = any(self.manager.req_to_blocks.values())
        assert self.scheduler.reset_prefix_cache() is not held

    def run_step(self, token: int) -> None:
        """One step, its decisions checked against the state before it."""
        before = {request_id: request.num_computed_tokens for request_id, request in self.live.items()}
        output, by_client = run_step(self.scheduler, lambda request: token)
        self.check_decisions(output, before)
        for of_client in by_client.values():
            for out in of_client.outputs:
                if out.finished:
                    self.forget(out.request_id)

    def check_decisions(self, output: SchedulerOutput, before: dict[str, int]) -> None:
        """The limits hold, and who got less than wanted is told why."""
        config = self.scheduler.scheduler_config
        scheduled = output.num_scheduled_tokens
        assert output.total_num_scheduled_tokens == sum(scheduled.values()) <= config.max_num_batched_tokens
        assert all(tokens > 0 for tokens in scheduled.values())
        assert len(scheduled) <= config.max_num_seqs
        assert output.not_scheduled.keys() <= before.keys()
        for request_id in before:
            reason = output.not_scheduled.get(request_id)
            if request_id not in scheduled:
                assert reason is not None, f"{request_id} was held without a word"
            elif reason is not None:
                assert reason.code in (HeldCode.TOKEN_BUDGET, HeldCode.CHUNK_THRESHOLD)
                assert reason.numbers["given"] == scheduled[request_id]
                assert scheduled[request_id] < int(reason.numbers["wanted"])

    def forget(self, request_id: str) -> None:
        """An ended request holds nothing."""
        del self.live[request_id]
        assert request_id not in self.manager.req_to_blocks
        assert request_id not in self.manager.num_cached_block
        assert request_id not in self.scheduler.requests

    @invariant()
    def every_block_is_accounted_for(self):
        """A block is free or used; the count of its users is right; it is shared only if it is full and cached."""
        tables = self.manager.req_to_blocks
        users = Counter(block.block_id for blocks in tables.values() for block in blocks)
        free = [block.block_id for block in self.pool.free_block_queue.get_all_free_blocks()]
        assert len(free) == len(set(free)) == self.pool.get_num_free_blocks()
        assert sorted([*free, *users]) == list(range(1, self.pool.num_gpu_blocks))
        for block in self.pool.blocks:
            assert block.ref_cnt == users[block.block_id]
            assert block.ref_cnt <= 1 or block.block_hash is not None
        assert all(len(blocks) == len(set(map(id, blocks))) for blocks in tables.values())

    @invariant()
    def cached_blocks_hold_what_their_hash_says(self):
        """The content of every request's cached blocks is that of its tokens, and the map finds them."""
        for request_id, request in self.live.items():
            parent = None
            for index, block in enumerate(self.manager.req_to_blocks.get(request_id, [])):
                tokens = request.all_token_ids[index * BLOCK : (index + 1) * BLOCK]
                if block.block_hash is None:
                    break
                parent = hash_block_tokens(parent, tokens)
                assert block.block_hash == parent
                assert self.pool.get_cached_block(parent) is not None

    @invariant()
    def only_running_requests_hold_blocks(self):
        """A running request has room for all its computed tokens; a waiting one has nothing."""
        for request in self.scheduler.running:
            assert request.status is RequestStatus.RUNNING
            blocks = self.manager.req_to_blocks[request.request_id]
            assert (len(blocks) - 1) * BLOCK < request.num_computed_tokens <= len(blocks) * BLOCK
        for request in self.scheduler.waiting:
            assert request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
            assert request.num_computed_tokens == 0
            assert not self.manager.req_to_blocks.get(request.request_id)
        assert set(self.scheduler.requests) == set(self.live)

    def teardown(self):
        """No starvation: when nothing more arrives, every request comes to its end, and all blocks come back."""
        if not hasattr(self, "scheduler"):
            return
        total = sum(request.num_prompt_tokens + request.max_tokens for request in self.live.values())
        limit = 50 + 20 * total
        for number in count():
            if not self.live:
                break
            assert number < limit, f"{sorted(self.live)} never end"
            self.run_step(1)
        assert not self.scheduler.has_unfinished_requests()
        assert self.pool.get_num_free_blocks() == self.pool.num_gpu_blocks - 1


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)

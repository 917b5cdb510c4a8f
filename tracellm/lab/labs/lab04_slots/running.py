"""Runs of the batch and of the model runner without a model; the results are plain data."""

from collections.abc import Iterable
from typing import Any

__all__ = ["Json", "Runner", "follow_batch", "run_batch", "run_inputs", "run_rows", "run_scheduler", "table_rows"]

Json = dict[str, Any]

_VOCAB_SIZE = 64
_MOST_STEPS = 60


def table_rows(table: Any, num_rows: int) -> list[list[int]]:
    """Return the blocks of the first rows of a block table."""
    counts = table.num_blocks_per_row[:num_rows].tolist()
    return [table.block_table.np[row, : max(count, 0)].tolist() for row, count in enumerate(counts)]


def run_rows(operations: list[Json], num_rows: int, width: int) -> list[list[list[int]]]:
    """Execute operations on a block table, and return its rows after each."""
    import torch

    from tracellm.engine.worker.block_table import BlockTable

    table, states = BlockTable(4, num_rows, width, 64, torch.device("cpu")), []
    for operation in operations:
        if operation["do"] == "move":
            table.move_row(operation["row"], operation["to"])
        else:
            change = table.add_row if operation["do"] == "add" else table.append_row
            change(operation["blocks"], operation["row"])
        states.append(table_rows(table, num_rows))
    return states


class Runner:
    """A model runner with a batch, and without model and KV cache."""

    def __init__(self, block_size: int, max_num_seqs: int, graph_sizes: list[int] | None = None) -> None:
        import torch

        from tracellm.engine.worker.cudagraphs import CudaGraphs
        from tracellm.engine.worker.gpu_input_batch import InputBatch
        from tracellm.engine.worker.gpu_model_runner import GPUModelRunner

        device = torch.device("cpu")
        self.runner = GPUModelRunner(make_config(block_size, 2, 256, max_num_seqs), device)
        self.batch = InputBatch(max_num_seqs, 128, 256, [block_size], _VOCAB_SIZE, device)
        self.runner.input_batch = self.batch
        if graph_sizes is not None:
            self.runner.cudagraphs = CudaGraphs(graph_sizes)

    def is_consistent(self, names: Iterable[str]) -> bool:
        """Return whether each of these requests, and no other, has a row that is known."""
        rows = self.batch.req_ids
        return sorted(rows) == sorted(names) and self.batch.req_id_to_index == {
            rows[row]: row for row in range(len(rows))
        }

    def batch_state(self) -> Json:
        """Return the batch: what each row holds."""
        batch, metadata = self.batch, self.batch.sampling_metadata
        num_rows = len(batch.req_ids)
        temperature = metadata.temperature
        return {
            "rows": list(batch.req_ids),
            "index": dict(batch.req_id_to_index),
            "tokens": [batch.token_ids_cpu[row, : batch.num_tokens[row]].tolist() for row in range(num_rows)],
            "computed": batch.num_computed_tokens_cpu[:num_rows].tolist(),
            "blocks": table_rows(batch.block_table[0], num_rows),
            "temperature": [] if temperature is None else temperature.tolist(),
            "output": [list(token_ids) for token_ids in metadata.output_token_ids],
        }

    def inputs_state(self, scheduler_output: Any) -> Json:
        """Prepare the inputs of a step, and return them."""
        runner, table = self.runner, self.batch.block_table[0]
        inputs = runner._prepare_inputs(scheduler_output)
        num_reqs, num_tokens = len(inputs.num_scheduled_tokens), len(inputs.input_ids)
        size = inputs.graph_size or num_reqs
        return {
            "input_ids": inputs.input_ids.tolist(),
            "positions": inputs.positions.tolist(),
            "slots": table.slot_mapping.np[:num_tokens].tolist(),
            "num_scheduled_tokens": [int(count) for count in inputs.num_scheduled_tokens],
            "query_start_loc": runner.query_start_loc.np[: num_reqs + 1].tolist(),
            "seq_lens": runner.seq_lens.np[:num_reqs].tolist(),
            "logits_indices": inputs.logits_indices.tolist(),
            "sampling_rows": [int(row) for row in inputs.sampling_rows],
            "graph_size": inputs.graph_size,
            "padding": {
                "input_ids": runner.input_ids.np[num_reqs:size].tolist(),
                "positions": runner.positions.np[num_reqs:size].tolist(),
                "query_start_loc": runner.query_start_loc.np[num_reqs + 1 : size + 1].tolist(),
                "seq_lens": runner.seq_lens.np[num_reqs:size].tolist(),
                "slots": table.slot_mapping.np[num_reqs:size].tolist(),
            },
        }


def make_config(block_size: int, num_blocks: int, budget: int, max_num_seqs: int) -> Any:
    """Make an engine's configuration without a model."""
    from types import SimpleNamespace

    import torch

    from tracellm.engine.config.vllm_config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig

    none = "none"
    model = ModelConfig(none, none, none, torch.float32, 0, 128, hf_config=SimpleNamespace(vocab_size=_VOCAB_SIZE))
    cache = CacheConfig(block_size=block_size, num_gpu_blocks=num_blocks, enable_prefix_caching=False)
    return VllmConfig(model, cache, SchedulerConfig(budget, max_num_seqs, 128), DeviceConfig(torch.device("cpu")))


# -- steps of a batch -------------------------------------------------------------------------------------------------


def follow_batch(steps: list[Json]) -> list[tuple[Json, dict[str, Json]]]:
    """Return each step without what is impossible, and the requests that the batch holds after it, by name."""
    known: dict[str, Json] = {}
    inside: set[str] = set()
    followed = []
    for step in steps:
        remove = [name for name in step["remove"] if name in inside]
        inside -= set(remove)
        blocks = [[name, new] for name, new in step["blocks"] if name in inside]
        add = [new for new in step["add"] if new["name"] not in known]
        resume = [[name, new] for name, new in step["resume"] if name in known and name not in inside]
        append = [[name, token] for name, token in step["append"] if name in inside]
        for name, new in blocks:
            known[name]["blocks"] += new
        for new in add:
            known[new["name"]] = {
                "tokens": new["prompt"] + new["output"],
                "num_prompt": len(new["prompt"]),
                "computed": new["computed"],
                "blocks": list(new["blocks"]),
                "temperature": new["temperature"],
            }
        for name, new in resume:
            known[name] |= {"blocks": list(new), "computed": 0}
        for name, token in append:
            known[name]["tokens"] = [*known[name]["tokens"], token]
        inside |= {new["name"] for new in add} | {name for name, _ in resume}
        done = {"remove": remove, "blocks": blocks, "add": add, "resume": resume, "append": append}
        followed.append(
            (done, {name: dict(known[name], blocks=list(known[name]["blocks"])) for name in sorted(inside)})
        )
    return followed


def run_batch(steps: list[Json]) -> list[Json]:
    """Execute the steps of a batch, and return its state after each, up to the first with wrong rows."""
    from tracellm.engine.sample.sampling_params import SamplingParams
    from tracellm.engine.worker.gpu_input_batch import CachedRequestState

    runner = Runner(4, 16)  # as many as there are names
    batch = runner.batch
    requests: dict[str, CachedRequestState] = {}
    states: list[Json] = []
    for step, inside in follow_batch(steps):
        for name in step["remove"]:
            batch.remove_request(name)
        for name, new in step["blocks"]:
            requests[name].block_ids[0].extend(new)
            batch.block_table.append_row((new,), batch.req_id_to_index[name])
        for new in step["add"]:
            params = SamplingParams(temperature=new["temperature"])
            requests[new["name"]] = CachedRequestState(
                new["name"], list(new["prompt"]), params, None, (list(new["blocks"]),), new["computed"],
                list(new["output"]),
            )  # fmt: skip
            batch.add_request(requests[new["name"]])
        for name, new in step["resume"]:
            requests[name].block_ids, requests[name].num_computed_tokens = (list(new),), 0
            batch.add_request(requests[name])
        batch.condense()
        batch.refresh_metadata()
        if not runner.is_consistent(inside):
            return [*states, runner.batch_state()]
        rows = [batch.req_id_to_index[name] for name, _ in step["append"]]
        batch.append_tokens(rows, [token for _, token in step["append"]])
        states.append(runner.batch_state())
    return states


def run_inputs(case: Json) -> Json:
    """Put the requests of a case into a batch, and return the batch and the inputs of one step."""
    from tracellm.engine.core.sched.output import CachedRequestData, SchedulerOutput
    from tracellm.engine.sample.sampling_params import SamplingParams
    from tracellm.engine.worker.gpu_input_batch import CachedRequestState

    runner = Runner(case["block_size"], 16, case["graph_sizes"])
    for new in case["requests"]:
        params, blocks = SamplingParams(temperature=new["temperature"]), (list(new["blocks"]),)
        prompt, generated = list(new["prompt"]), list(new["output"])
        runner.batch.add_request(
            CachedRequestState(new["name"], prompt, params, None, blocks, new["computed"], generated)
        )
    runner.batch.refresh_metadata()
    batch = runner.batch_state()
    scheduled = {new["name"]: new["scheduled"] for new in sorted(case["requests"], key=lambda new: new["order"])}
    if not runner.is_consistent(scheduled):
        return {"batch": batch}
    cached = CachedRequestData([], set(), [], dict, [], [], [])
    output = SchedulerOutput([], cached, scheduled, sum(scheduled.values()), list, set())
    return {"batch": batch, "inputs": runner.inputs_state(output)}


# -- runs of the scheduler --------------------------------------------------------------------------------------------


def run_scheduler(case: Json) -> list[Json]:
    """Run the requests of a case with the scheduler; return for each step the plan, the batch and the inputs.

    The sampled tokens follow from the request and its length, so the plan does not depend on the code under test.
    """
    from tracellm.engine.core.kv_cache.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from tracellm.engine.core.request import Request
    from tracellm.engine.core.sched.scheduler import Scheduler
    from tracellm.engine.core.structured_output.manager import StructuredOutputManager
    from tracellm.engine.sample.sampling_params import SamplingParams
    from tracellm.engine.worker.model_runner_output import ModelRunnerOutput

    config = make_config(case["block_size"], case["num_blocks"], case["budget"], case["max_num_seqs"])
    spec = FullAttentionSpec(case["block_size"], 1, 8, config.model_config.dtype)
    cache = KVCacheConfig(case["num_blocks"], [], [KVCacheGroupSpec(["layer"], spec)])
    scheduler = Scheduler(config, cache, StructuredOutputManager(config))
    for index, request in enumerate(case["requests"]):
        params = SamplingParams(temperature=_temperature(index), max_tokens=request["max_tokens"], ignore_eos=True)
        scheduler.add_request(Request(str(index), list(request["prompt"]), params, None, arrival_time=0.0))
    runner = Runner(case["block_size"], case["max_num_seqs"])
    steps: list[Json] = []
    while scheduler.has_unfinished_requests() and len(steps) < _MOST_STEPS:
        output = scheduler.schedule()
        names = list(output.num_scheduled_tokens)
        plan: dict[str, Json] = {
            name: {
                "tokens": list(request.all_token_ids),
                "num_prompt": request.num_prompt_tokens,
                "computed": request.num_computed_tokens - output.num_scheduled_tokens[name],
                "blocks": scheduler.kv_cache_manager.get_block_ids(name)[0],
                "temperature": _temperature(int(name)),
                "scheduled": output.num_scheduled_tokens[name],
            }
            for name, request in ((name, scheduler.requests[name]) for name in names)
        }
        runner.runner._update_states(output)
        batch = runner.batch_state()
        steps.append({"plan": plan, "batch": batch})
        if not runner.is_consistent(names):
            break
        steps[-1]["inputs"] = runner.inputs_state(output)
        sampled = {
            name: [_token(int(name), len(one["tokens"]))]
            for name, one in plan.items()
            if one["computed"] + one["scheduled"] == len(one["tokens"])
        }
        rows = [batch["index"][name] for name in sampled]
        runner.batch.append_tokens(rows, [token for (token,) in sampled.values()])
        tokens, order = [sampled.get(name, []) for name in names], {name: row for row, name in enumerate(names)}
        scheduler.update_from_output(output, ModelRunnerOutput(names, order, tokens, None, {}, (len(names), 8)))
    return steps


def _temperature(index: int) -> float:
    return 0.5 + index / 8


def _token(index: int, length: int) -> int:
    return (11 * index + 5 * length) % (_VOCAB_SIZE - 4) + 4

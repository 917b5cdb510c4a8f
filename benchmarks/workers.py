"""Cost of several workers: time per decode step, and of a call to all workers without work.

    python benchmarks/workers.py [--repeats 7] [--model FOLDER] [--vllm PYTHON]

Each variant has its own process with two threads in all: one worker in the engine core's process (`uni`), one in its
own (`mp`) or as a Ray actor (`ray`), and two that share the layers or the stages. It decodes eight requests of 64
tokens, four at a time. The variants take turns, each round starting with the next one, after a warm-up round. A call is
a `collective_rpc` of a method that does nothing, answered by all workers. With `--vllm`, a Python with vLLM, the last
row is vLLM's own message queue in shared memory: a call to two readers, answered by both.
"""

# ruff: noqa: T201  (it prints a table)
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # also runs as a script

from benchmarks.pages import machine, table
from tracellm.bench.figures import Spread, number

__all__ = ["HEADS", "WAYS", "main", "measure"]

_ROOT = Path(__file__).parents[1]
WAYS = {
    "uni": "",
    "mp": "distributed_executor_backend='mp'",
    "ray": "distributed_executor_backend='ray'",
    "mp, tp 2": "tensor_parallel_size=2",
    "ray, tp 2": "tensor_parallel_size=2, distributed_executor_backend='ray'",
    "mp, pp 2": "pipeline_parallel_size=2",
}
"""Arguments of LLM."""
HEADS = ("workers", "ms a step (quartiles)", "times `uni`", "µs a call (quartiles)")
_SCRIPT = """
import sys, time
from tracellm import LLM, SamplingParams

if __name__ == "__main__":
    llm = LLM(sys.argv[1] or "tiny", dtype="float32", max_num_seqs=4, num_gpu_blocks_override=256, {arguments})
    engine, executor = llm.llm_engine, llm.llm_engine.engine_core.engine_core.model_executor
    params = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)
    print(flush=True)
    for round, _ in enumerate(sys.stdin):
        for number in range(8):
            engine.add_request(f"{{round}}.{{number}}", f"Tell me about the city number {{number}}", params)
        before, steps = time.perf_counter(), 8 * 64 // 4
        while engine.has_unfinished_requests():
            engine.step()
        step = (time.perf_counter() - before) / steps
        before = time.perf_counter()
        for _ in range(500):
            executor.collective_rpc("initialize_cache", args=(256, 0))
        print(step * 1e3, (time.perf_counter() - before) / 500 * 1e6, flush=True)
    engine.engine_core.shutdown()
"""
_VLLM = """
import multiprocessing, sys, time
from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

def read(handle, rank, responses):
    queue = MessageQueue.create_from_handle(handle, rank)
    own = MessageQueue(1, 1)
    responses.send(own.export_handle())
    queue.wait_until_ready()
    own.wait_until_ready()
    while (call := queue.dequeue()) is not None:
        own.enqueue((False, None))

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    calls = MessageQueue(2, 2)
    readers = []
    for rank in range(2):
        ours, theirs = context.Pipe()
        process = context.Process(target=read, args=(calls.export_handle(), rank, theirs), daemon=True)
        process.start()
        readers.append((process, ours))
    answers = [MessageQueue.create_from_handle(pipe.recv(), 0) for _, pipe in readers]
    calls.wait_until_ready()
    for answer in answers:
        answer.wait_until_ready()
    print(flush=True)
    for _ in sys.stdin:
        before = time.perf_counter()
        for _ in range(500):
            calls.enqueue(("initialize_cache", (256, 0), {}, None))
            for answer in answers:
                answer.dequeue()
        print(0.0, (time.perf_counter() - before) / 500 * 1e6, flush=True)
    calls.enqueue(None)
"""


def measure(repeats: int, model: str, vllm: str | None) -> dict[str, list[tuple[float, float]]]:
    """Return milliseconds per step and microseconds per call of each way, by repeat."""
    scripts = {way: (sys.executable, _SCRIPT.format(arguments=arguments)) for way, arguments in WAYS.items()}
    if vllm is not None:
        scripts["vLLM's queue, 2 readers"] = (vllm, _VLLM)
    times: dict[str, list[tuple[float, float]]] = {way: [] for way in scripts}
    with tempfile.TemporaryDirectory() as folder:
        _measure(repeats, model, scripts, times, Path(folder))
    return times


def _measure(
    repeats: int,
    model: str,
    scripts: dict[str, tuple[str, str]],
    times: dict[str, list[tuple[float, float]]],
    folder: Path,
) -> None:
    processes = {}
    for position, (way, (python, script)) in enumerate(scripts.items()):
        file = folder / f"workers{position}.py"
        file.write_text(script, encoding="utf-8")
        processes[way] = subprocess.Popen(
            [python, str(file), model],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "2"},
        )
    for process in processes.values():
        assert process.stdout is not None
        process.stdout.readline()
    ways = list(scripts)
    for repeat in range(repeats + 1):
        for way in ways[repeat % len(ways) :] + ways[: repeat % len(ways)]:
            process = processes[way]
            assert process.stdin is not None
            assert process.stdout is not None
            print(file=process.stdin, flush=True)
            numbers = [float(part) for part in process.stdout.readline().split() if part.replace(".", "").isdigit()]
            if repeat:
                times[way].append((numbers[-2], numbers[-1]))
    for process in processes.values():
        process.communicate()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--model", default="")
    parser.add_argument("--vllm")
    options = parser.parse_args(arguments)
    times = measure(options.repeats, options.model, options.vllm)
    uni = statistics.median(step for step, _ in times["uni"])
    rows = []
    for way, found in times.items():
        steps, calls = Spread.of([step for step, _ in found]), Spread.of([call for _, call in found])
        is_engine = steps.median > 0
        rows.append(
            (
                way,
                str(steps) if is_engine else "",
                number(steps.median / uni) if is_engine else "",
                str(calls),
            )
        )
    print(machine())
    print(table(HEADS, rows))


if __name__ == "__main__":
    main()

"""Tests of the executor with a Ray actor for each worker, on a real Ray."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from tests.engine.executor.test_multiproc_executor import PROMPT, SETTINGS, are_gone
from tests.engine.executor.test_start_errors import OUT_OF_MEMORY, run_out_of_memory
from tests.faults.processes import HANG_GUARD, Server, children_of, command_of, wait_until
from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import EngineDeadError, EngineError
from tracellm.engine.executor.ray_executor import RayDistributedExecutor, _initialize_cluster

PARAMS = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
PROMPTS = [{"prompt_token_ids": [5, 6, 7, number]} for number in range(4)]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Ray with four processors."""
    quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(address="local", num_cpus=4, _node_ip_address="127.0.0.1", **quiet)
    yield
    ray.shutdown()


@pytest.fixture
def start(qwen2_checkpoint: Path) -> Iterator[Callable[..., LLM]]:
    """A function that starts an engine, whose workers end with the test."""
    engines: list[LLM] = []

    def start(**settings: Any) -> LLM:
        engines.append(LLM(qwen2_checkpoint, **SETTINGS, **settings))
        return engines[-1]

    yield start
    for engine in engines:
        engine.llm_engine.engine_core.shutdown()


def executor_of(llm: LLM) -> RayDistributedExecutor:
    """Return the executor of an engine core in this process."""
    client: Any = llm.llm_engine.engine_core
    executor = client.engine_core.model_executor
    assert isinstance(executor, RayDistributedExecutor)
    return executor


def tokens(llm: LLM) -> list[list[int]]:
    """Return the tokens of the prompts."""
    return [list(output.outputs[0].token_ids) for output in llm.generate(PROMPTS, PARAMS, use_tqdm=False)]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """Ports at which workers should meet that another program took before them."""
    taken: list[socket.socket] = []
    init_worker = RayDistributedExecutor._init_worker

    def take_port(self: RayDistributedExecutor, rank: int, config: bytes, method: str, *rest: object) -> Any:
        with suppress(OSError):
            taken.append(socket.create_server(("127.0.0.1", int(method.rpartition(":")[2]))))
        return init_worker(self, rank, config, method, *rest)

    monkeypatch.setattr(RayDistributedExecutor, "_init_worker", take_port)
    return taken


def test_actors_give_the_tokens_of_one_worker(start: Callable[..., LLM], taken: list[socket.socket]) -> None:
    """Two stages of two actors give the tokens of one worker, meet at a port that nobody can take, and then end."""
    expected = tokens(start())
    llm = start(tensor_parallel_size=2, pipeline_parallel_size=2, distributed_executor_backend="ray")
    assert tokens(llm) == expected
    assert ray.available_resources().get("CPU", 0) == 0
    executor = executor_of(llm)
    pids = [worker.pid for worker in executor.workers]
    assert len({*pids, os.getpid()}) == 5
    assert taken == []
    llm.llm_engine.engine_core.shutdown()
    assert are_gone(pids)
    assert tokens(start(pipeline_parallel_size=3, distributed_executor_backend="ray")) == expected


@pytest.mark.parametrize(("failures", "starts_in_time"), [(0, True), (2, True), (3, False)])
def test_ray_is_started_again(monkeypatch: pytest.MonkeyPatch, failures: int, starts_in_time: bool) -> None:
    """A Ray that has not started in its own 30 seconds, as on a busy machine, is started at most twice more."""
    calls: list[str] = []

    def init(**options: Any) -> None:
        calls.append(options["address"])
        if calls.count("local") <= failures:
            raise Exception("The current node timed out during startup. This could happen because ...")

    ray = SimpleNamespace(is_initialized=lambda: False, init=init, shutdown=lambda: calls.append("end"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if starts_in_time:
        assert _initialize_cluster(ray, 2)
    else:
        with pytest.raises(Exception, match="timed out during startup"):
            _initialize_cluster(ray, 2)
    assert calls == ["local", "end"] * failures + ["local"] * starts_in_time


def test_a_killed_actor(start: Callable[..., LLM]) -> None:
    """The death of a worker ends the engine with an error that names its rank, and the other workers end too."""
    llm = start(tensor_parallel_size=2, distributed_executor_backend="ray")
    workers = executor_of(llm).workers
    os.kill(workers[1].pid, signal.SIGKILL)
    with pytest.raises(EngineDeadError, match=rf"worker of rank 1 \(process {workers[1].pid} on .*\) died"):
        llm.generate(PROMPT, PARAMS, use_tqdm=False)
    assert are_gone([worker.pid for worker in workers])
    with pytest.raises(EngineDeadError):
        llm.generate(PROMPT, PARAMS, use_tqdm=False)


def test_a_lost_machine(start: Callable[..., LLM]) -> None:
    """The error names the rank on a machine whose Ray is killed while a step runs, and every worker ends."""
    address, num_cpus = ray.get_runtime_context().gcs_address, ray.cluster_resources()["CPU"]
    command = [str(Path(sys.executable).with_name("ray")), "start", f"--address={address}", "--num-cpus=1", "--block"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as machine:
        try:
            wait_until(lambda: ray.cluster_resources()["CPU"] == num_cpus + 1, "the second machine")
            occupied = ray.util.placement_group([{"CPU": num_cpus - 1}])
            assert occupied.wait(HANG_GUARD)  # one processor is left on each machine
            llm = start(tensor_parallel_size=2, distributed_executor_backend="ray")
            workers = executor_of(llm).workers
            raylet = next(pid for pid, name in children_of(machine.pid).items() if "raylet/raylet" in name)
            (lost,) = [worker for worker in workers if worker.pid in children_of(raylet)]
            (other,) = [worker for worker in workers if worker is not lost]
            os.kill(other.pid, signal.SIGSTOP)  # the step cannot end
            os.kill(raylet, signal.SIGKILL)
            with pytest.raises(EngineDeadError, match=rf"rank {lost.rank} \(.*\) died, or its machine is out of reach"):
                llm.generate(PROMPT, PARAMS, use_tqdm=False)
            assert are_gone([worker.pid for worker in workers])
            ray.util.remove_placement_group(occupied)
        finally:
            machine.terminate()


def test_the_end_of_a_server_on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM ends the actors of a server, without a message of Ray."""
    monkeypatch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
    with Server("--tensor-parallel-size=2", "--distributed-executor-backend=ray") as server:
        assert len(_actors()) == 2
        server.send(signal.SIGTERM)
        assert server.end() == 0
        assert "Traceback" not in server.stderr()
        assert "SIGTERM received" not in server.stderr()
        wait_until(lambda: _actors() == set(), "the end of the actors")


def test_a_stopped_actor(start: Callable[..., LLM], monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that does not respond is named after the time limit."""
    monkeypatch.setenv("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "1")
    llm = start(tensor_parallel_size=2, distributed_executor_backend="ray")
    pid = executor_of(llm).workers[1].pid
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(EngineDeadError, match=r"No response to `execute_model` within 1 s: rank 0 .* rank 1 "):
        llm.generate(PROMPT, PARAMS, use_tqdm=False)
    os.kill(pid, signal.SIGKILL)


def test_an_error_of_a_worker(start: Callable[..., LLM]) -> None:
    """An error in a worker comes to the caller with its text, and ends the workers."""
    executor = executor_of(start(tensor_parallel_size=2, distributed_executor_backend="ray"))
    with pytest.raises(RuntimeError, match="'Worker' object has no attribute 'no_such_method'"):
        executor.collective_rpc("no_such_method")
    assert are_gone([worker.pid for worker in executor.workers])


@pytest.mark.parametrize(("method", "message"), OUT_OF_MEMORY[-1:])
def test_an_actor_out_of_memory(method: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the rank and what to lower, and the other worker ends too."""
    pids: list[int] = []
    with pytest.raises(EngineError, match=message):
        run_out_of_memory(method, tmp_path, monkeypatch, pids, distributed_executor_backend="ray")
    assert len(pids) == 2
    assert are_gone(pids)


def test_a_cluster_that_is_too_small(start: Callable[..., LLM]) -> None:
    """A cluster with fewer processors than workers is refused at once."""
    with pytest.raises(EngineError, match="The Ray cluster has 4 CPUs, and 6 workers need one each: lower `tensor_"):
        start(tensor_parallel_size=2, pipeline_parallel_size=3, distributed_executor_backend="ray")


def test_without_ray(start: Callable[..., LLM], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library the message says how to install it."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EngineError, match=r"needs Ray: pip install 'tracellm\[ray\]'"):
        start(distributed_executor_backend="ray")


def _run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_no_cluster_at_the_address() -> None:
    """An address without a cluster is refused, with what to do."""
    script = "from tracellm import LLM\nLLM(distributed_executor_backend='ray')"
    done = _run(script, RAY_ADDRESS="127.0.0.1:1")
    assert "EngineError: There is no Ray cluster at RAY_ADDRESS=127.0.0.1:1 " in done.stderr
    assert "ray start --head" in done.stderr


def test_ray_is_started_and_ended(qwen2_checkpoint: Path) -> None:
    """Without a cluster the engine core's process starts Ray, and at the script's end nothing of it is left."""
    script = f"""
from tests.faults.processes import wait_until
from tracellm import LLM, SamplingParams
settings = {SETTINGS!r}
llm = LLM({str(qwen2_checkpoint)!r}, pipeline_parallel_size=2, distributed_executor_backend="ray",
          multiprocess_mode=True, **settings)
print(llm.generate({PROMPT!r}, SamplingParams(temperature=0, max_tokens=3), use_tqdm=False)[0].outputs[0].token_ids)
"""
    before = _ray_processes()
    done = _run(script)
    assert done.returncode == 0, done.stderr
    one = LLM(qwen2_checkpoint, **SETTINGS)
    (output,) = one.generate(PROMPT, SamplingParams(temperature=0, max_tokens=3), use_tqdm=False)
    assert done.stdout.strip() == str(output.outputs[0].token_ids)
    wait_until(lambda: _ray_processes() <= before, "the end of Ray")


def _actors() -> set[int]:
    """Return the processes of workers."""
    return {pid for pid in _ray_processes() if command_of(pid).startswith("ray::RayWorkerWrapper")}


def _ray_processes() -> set[int]:
    """Return the processes of any Ray on this machine."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if b"raylet" in command or b"gcs_server" in command or command.startswith(b"ray::"):
            found.add(int(path.parent.name))
    return found

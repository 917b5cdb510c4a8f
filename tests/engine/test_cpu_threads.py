"""Tests of the number of threads with which an engine core's process computes."""

from pathlib import Path

import pytest
import torch

from tracellm.engine.config import cpu_threads
from tracellm.engine.config.cpu_threads import count_threads, limit_threads
from tracellm.engine.config.errors import EngineError


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of control groups on a machine with eight cores, without variables."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("VLLM_CPU_NUM_OF_RESERVED_CPU", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    own = tmp_path / "cgroup"
    own.write_text("12:cpu:/old\n0::/pod/container\n")
    monkeypatch.setattr(cpu_threads, "_OWN_CGROUP", own)
    monkeypatch.setattr(cpu_threads, "_CGROUPS", tmp_path / "fs")
    (tmp_path / "fs/pod/container").mkdir(parents=True)
    return tmp_path / "fs"


def test_a_core_is_reserved(cgroups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads are the cores without the reserved ones, whose number a variable can set, and at least one."""
    assert (count_threads(0), count_threads(1), count_threads(9)) == (8, 7, 1)
    monkeypatch.setenv("VLLM_CPU_NUM_OF_RESERVED_CPU", "3")
    assert count_threads(1) == 5


def test_the_quota_of_a_container(cgroups: Path) -> None:
    """The smallest quota of the process's control groups limits the cores, and is rounded up."""
    (cgroups / "pod/container/cpu.max").write_text("max 100000\n")
    assert count_threads(1) == 7
    (cgroups / "pod/cpu.max").write_text("350000 100000\n")
    assert (count_threads(0), count_threads(1)) == (4, 3)
    (cgroups / "pod/container/cpu.max").write_text("50000 100000\n")
    assert (count_threads(0), count_threads(1)) == (1, 1)


@pytest.mark.parametrize("folder", ["cpu", "cpu/old"])
def test_the_quota_of_a_container_of_version_1(cgroups: Path, folder: str) -> None:
    """In version 1 the quota is in files of the controller, whose root may be that of the container; -1 is none."""
    (cgroups / folder).mkdir(parents=True)
    (cgroups / folder / "cpu.cfs_period_us").write_text("100000\n")
    (cgroups / folder / "cpu.cfs_quota_us").write_text("-1\n")
    assert count_threads(0) == 8
    (cgroups / folder / "cpu.cfs_quota_us").write_text("250000\n")
    assert count_threads(0) == 3


@pytest.mark.parametrize("content", ["nonsense 100000\n", "100000 0\n", "", "1\n", "0 100000\n"])
def test_a_file_without_a_quota(cgroups: Path, content: str) -> None:
    """A file in another form limits nothing."""
    (cgroups / "cpu.max").write_text(content)
    assert count_threads(0) == 8


@pytest.mark.parametrize("lines", ["", "nonsense\n\n0::/\n", "4:cpu,cpuacct:/a:b\n"])
def test_lists_of_groups(cgroups: Path, lines: str) -> None:
    """Lines in another form are skipped, and a group of several controllers is found."""
    cpu_threads._OWN_CGROUP.write_text(lines)
    folder = cgroups / ("cpu/a:b" if "a:b" in lines else "")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.cfs_quota_us").write_text("200000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    assert count_threads(0) == 2


def test_threads_are_only_limited(cgroups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine core in the user's process computes with at most the quota, and never with more threads than torch."""
    chosen: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    limit_threads(torch.device("cpu"))
    (cgroups / "cpu.max").write_text("200000 100000\n")
    limit_threads(torch.device("cpu"))
    limit_threads(torch.device("meta"))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    limit_threads(torch.device("cpu"))
    assert chosen == [2]


def test_omp_num_threads(cgroups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OMP_NUM_THREADS is the number of threads, whatever is reserved."""
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    (cgroups / "cpu.max").write_text("100000 100000\n")
    assert count_threads(1) == 8


def test_an_invalid_variable(cgroups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is not a number is refused by the variable's name."""
    monkeypatch.setenv("VLLM_CPU_NUM_OF_RESERVED_CPU", "some")
    with pytest.raises(EngineError, match="VLLM_CPU_NUM_OF_RESERVED_CPU must be a number of cores, it is 'some'"):
        count_threads(1)

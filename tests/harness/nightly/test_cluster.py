"""A night on a Dask cluster; a node is lost."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer

import msgspec
import pytest

from swarden.harness.commands.nightly import PHASES
from swarden.harness.core.process import ProcessLimits
from swarden.harness.nightly import shards, traffic
from swarden.harness.nightly.archive import Archive, Night
from swarden.harness.nightly.night import Coordinator, Order, begin
from swarden.harness.nightly.pool import Job, local_pool, pool_of_scheduler
from swarden.harness.nightly.shards import build_of
from swarden.harness.search.traffic.profiles import PROFILES
from tests.harness.some_processes import MAX_LOOKS, ROOT, wait_until

distributed = pytest.importorskip("distributed", reason="pip install 'swarden[dask]'")

NODES = 3
SHARDS = 3
RUNS = SHARDS * PROFILES["smoke"].runs_per_batch
ENGINE = "demo"  # has a leak, and needs no torch
ORDER = Order([ENGINE], "swarden nightly", runs=RUNS, profile="smoke", seed=5)


@pytest.fixture
def cluster(tmp_path):
    """The address of a scheduler on this machine with three nodes, each a process; and these processes."""
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    file = tmp_path / "scheduler.json"

    def started(name: str, *arguments: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{name}", "--host", "127.0.0.1", "--no-dashboard"]
        return subprocess.Popen(
            [*command, *map(str, arguments)],
            env=os.environ | settings,
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    processes = [started("scheduler", "--port", 0, "--scheduler-file", file)]
    try:
        wait_until(lambda: file.exists() and file.read_bytes().endswith(b"}"))
        address = msgspec.json.decode(file.read_bytes())["address"]
        processes += [started("worker", address, "--no-nanny", "--nthreads", 1) for _ in range(NODES)]
        with distributed.Client(address) as client:
            client.wait_for_workers(NODES, timeout=1200)
        yield address, processes[1:]
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def slow(ended: Path, go: Path) -> None:
    wait_until(go.exists)
    ended.touch()


def test_cluster_is_left_while_its_jobs_run(tmp_path):
    """Ctrl-C leaves it so."""
    ended, go = tmp_path / "ended", tmp_path / "go"
    with distributed.LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=None) as local:
        try:
            with pool_of_scheduler(local.scheduler_address, None, [build_of(ENGINE)]) as pool:
                Timer(5.0, go.touch).start()  # so that the test ends if the pool waits for the job
                pool.executor.submit(slow, ended, go)
            has_waited = ended.exists()
        finally:
            go.touch()

    assert not has_waited


def note(calls: Path) -> int:
    """Note a call; returns the id of the process."""
    with calls.open("a") as file:
        file.write("called\n")
    return os.getpid()


def test_result_that_was_read_is_not_computed_again_when_its_node_is_lost(cluster, tmp_path):
    """A job that waits for the lost node's thread would wait for that computation too."""
    address, nodes = cluster
    calls, go = tmp_path / "calls", tmp_path / "go"

    def lose(process: int, *, left: int) -> None:
        os.kill(process, signal.SIGKILL)
        wait_until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == left)

    with distributed.Client(address) as client, pool_of_scheduler(address, 2, [build_of(ENGINE)]) as pool:
        lose(nodes[0].pid, left=2)
        jobs = [Job("read", note, (calls,)), Job("slow", slow, (tmp_path / "ended", go)), Job("next", str, ())]
        results = pool.run(jobs, lambda *_: None)
        _, process = next(results)
        any(client.run_on_scheduler(num_tasks) == 1 for _ in range(MAX_LOOKS))
        lose(process, left=1)
        go.touch()
        rest = [subject for subject, _ in results]

    assert sorted(rest) == ["next", "slow"]
    assert calls.read_text() == "called\n"


def num_tasks(dask_scheduler) -> int:
    return len(dask_scheduler.tasks)


def night_on(pool, root, on_shard=lambda: None) -> Night:
    """A night without its last phases, which need no node."""
    archive = Archive(root)
    night = begin(archive, ORDER)
    with pool as opened:
        coordinator = Coordinator(archive, night, opened, ProcessLimits(60.0), lambda _: on_shard())
        for _ in coordinator.run([phase for phase in PHASES if phase.name == "traffic"]):
            pass
    return night


def test_lost_node_costs_its_running_shards_which_run_elsewhere(cluster, tmp_path, monkeypatch):
    """The findings are those of the same shards on this machine, and nothing is counted twice."""
    address, nodes = cluster
    for module in (shards, traffic):
        monkeypatch.setattr(module, "BATCHES", 1)  # short shards

    def lose_a_node() -> None:
        if nodes[0].poll() is None:
            nodes[0].send_signal(signal.SIGKILL)

    there = night_on(pool_of_scheduler(address, None, [build_of(ENGINE)]), tmp_path / "there", lose_a_node)
    here = night_on(local_pool(1), tmp_path / "here")

    assert nodes[0].poll() == -signal.SIGKILL
    assert here.engines[0].tallies.failures
    assert len(there.shards) == SHARDS
    assert [shard.tallies for shard in there.shards] == [shard.tallies for shard in here.shards]
    assert there.engines[0].tallies == here.engines[0].tallies

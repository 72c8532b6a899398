"""Laws hold for engines with other policies: only contracts depend on the choices that an engine is free to make."""

from dataclasses import replace

import pytest

from swarden.harness.core.mutant import Hunk, Mutant
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.search.campaign import Plan, Worker
from swarden.harness.search.traffic.profiles import PROFILES
from swarden.invariants.catalog import CONTRACTS

SCHEDULER = "swarden.engine_under_test.scheduler"
POLICIES = {
    "other eviction order": (
        Hunk(
            "swarden.engine_under_test.cache.lru:LruQueue.pop",
            before="heapq.heappop(self._heap)",
            after="self._heap.pop(self._num_pushes * 7 % len(self._heap))",
        ),
    ),
    "other admission order": (
        Hunk(
            f"{SCHEDULER}.queues:WaitingQueue.in_order",
            before="return sorted(requests, key=lambda request: -request.priority)",
            after="return sorted(requests, key=lambda request: (-request.priority, request.id * 7 % 5))",
        ),
    ),
    "other retracted request": (
        Hunk(
            f"{SCHEDULER}.preempt:retraction_order",
            before="(request.priority, request.num_outputs, -request.prompt_len, -request.id)",
            after="request.id * 7 % 5",
        ),
    ),
    "rejection at the step": (
        Hunk("swarden.engine_under_test.engine:Engine.submit", before="self._refuse(request)", after="None"),
        Hunk(
            "swarden.engine_under_test.engine:Engine._step",
            before="self._notice(events.StepBegan(now_ms))",
            after=(
                "self._notice(events.StepBegan(now_ms))\n"
                "    for request in self.scheduler.waiting:\n"
                "        if (reason := self._refuse(request)) is not None:\n"
                "            self.scheduler.end(request, Ending(events.FinishReason.REJECTED, reason))"
            ),
        ),
    ),
}
SEED, RUNS = 3, 10


@pytest.fixture
def contracts(monkeypatch):
    """Sets the contracts of our target."""
    return lambda names: monkeypatch.setattr(type(target_of(OWN)), "contracts", names)


def failures(name, tmp_path, *, runs=RUNS, stop_on_first=False):
    """The fingerprints of a campaign with another policy."""
    plan = Plan(engine=OWN, profile=PROFILES["smoke"], seed=SEED, max_runs=runs, machine="engine", out=tmp_path)
    with Mutant(name, "a free choice", POLICIES[name], ()).planted():
        return set(Worker(replace(plan, stop_on_first=stop_on_first), lambda _: None).work().findings)


@pytest.mark.parametrize("name", POLICIES)
def test_no_law_is_violated_by_another_policy(name, contracts, tmp_path):
    contracts(frozenset())

    assert failures(name, tmp_path) == set()


@pytest.mark.parametrize("name", POLICIES)
def test_a_contract_is_violated_by_another_policy(name, contracts, tmp_path):
    contracts(CONTRACTS)

    assert failures(name, tmp_path, runs=10 * RUNS, stop_on_first=True)

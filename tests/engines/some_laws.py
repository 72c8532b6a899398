"""The laws that an op-log violates, and those that apply to an engine, in the process of a release."""

from swarden.harness.core.admission import load_log
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import Verdict, replay, verdict_of
from swarden.harness.core.target import ENGINE
from swarden.harness.search.traffic.loads import LOADS
from swarden.invariants.catalog import catalog_of
from swarden.invariants.contracts.recency import readers_are_seen
from swarden.invariants.laws.content.outputs import logits_are_compared
from swarden.invariants.laws.lifecycle.clients import moves_units_of_uncached_requests
from swarden.invariants.laws.lifecycle.flights import freed_units_wait_for_passes, has_fences
from swarden.invariants.laws.lifecycle.timeouts import has_timeout
from swarden.invariants.laws.memory.locks import receipts_are_unknown
from tests.harness.engines.some_draws import RandomDraw

# Configurations of our own engine, which between them have all its parts; the others are drawn.
OWN_CONFIGS = (
    {"swa_pages": 64, "sliding_window": 32, "lookahead_tokens": 2, "draft_tokens": 2, "request_timeout_ms": 100},
    {"state_pages": 64},
    {"swa_pages": 64, "sliding_window": 32, "host_full_pages": 64, "host_swa_pages": 64},
)
DRAWS = 40


def laws_of(path, engine):
    """The laws that fail, or the errors; each run must end alike, and the engine must have the faults of the log."""
    runs = [replay(load_log(path, engine=engine)) for _ in range(2)]
    assert verdict_of(runs).verdict is not Verdict.FLAKY
    driver = runs[0].driver
    assert not driver.counts.noops["inject"], "the configuration has no such fault in this release"
    failure = driver.failure
    return {name.split("/")[0] for name in failure.fingerprints} if failure is not None else set()


def law_of(path, engine=None):
    """The law or error that an op-log was saved for; an engine replaces that of the log."""
    return str(load_log(path, engine=engine).header.expected).split("/")[0]


# Conditions of laws that an engine may never meet, by the first snapshot of a configuration.  All others can come true
# in a run of any engine that reports what the law needs.
CONDITIONS = {
    has_fences: lambda first: not first.limits.reuses_in_launch_order,
    freed_units_wait_for_passes: lambda first: not first.limits.reuses_in_launch_order,
    readers_are_seen: lambda first: first.limits.evicts_longest_idle,
    has_timeout: lambda first: first.limits.request_timeout_ms is not None,
    receipts_are_unknown: lambda first: first.receipts is None,
}


def applicable(engine):
    """The laws, and the contracts that the engine declares, that apply to one of its configurations at least."""
    target = target_of(engine)
    if engine == "swarden":
        configs = [target.decode(settings) for settings in OWN_CONFIGS]
    else:
        configs = [target.configs(RandomDraw(seed), ENGINE, LOADS[seed % len(LOADS)].name)[0] for seed in range(DRAWS)]
    firsts = [target.build(config).capture() for config in configs]
    missing = frozenset.intersection(*[first.missing for first in firsts])
    unmet = {given for given, holds in CONDITIONS.items() if not any(map(holds, firsts))}
    if not target.machines[ENGINE].models:
        unmet.add(logits_are_compared)
    if not any("uncached" in target.shape(config).options for config in configs):
        unmet.add(moves_units_of_uncached_requests)
    return {
        one.name
        for one in catalog_of(target.contracts).invariants
        if one.name not in missing
        and one.needs.isdisjoint(missing)
        and not (one.on and missing.issuperset([kind.__name__ for kind in one.on]))
        and one.given not in unmet
    }

"""The canary: a planted bug for each engine, for which each night searches; if enough runs miss it, it is red."""

from math import ceil, inf

from swarden.harness.core.registry import target_of
from swarden.harness.nightly.night import Coordinator, seed_from
from swarden.harness.nightly.pool import Job
from swarden.harness.nightly.shards import find_canary
from swarden.harness.search.campaign import Plan
from swarden.harness.search.traffic.profiles import PROFILES

SHARE = 0.25  # of the night's minutes


def limit_seconds(night: Coordinator) -> float:
    """The time of the search on one engine: all of them together take at most SHARE of the night's minutes."""
    minutes, rounds = night.record.minutes, ceil(len(night.record.engines) / night.pool.width)
    return SHARE * 60 * minutes / rounds if minutes is not None else inf


def canary(night: Coordinator) -> str:
    """Plant a canary in each engine and search for it; returns the text of the phase's line."""
    done = {result.engine for result in night.record.canaries}
    jobs = []
    for engine in (name for name in night.engine_names if name not in done):
        seed = seed_from(f"{night.record.seed}/canary")  # other draws than in the campaigns
        mutants = [mutant.id for mutant in target_of(engine).catalog if mutant.is_canary]
        first = seed % len(mutants) if mutants else 0
        campaign = Plan(engine=engine, profile=PROFILES["default"], seed=seed, seconds=limit_seconds(night))
        jobs.append(Job(engine, find_canary, (campaign, [*mutants[first:], *mutants[:first]], night.limits)))
    for _, result in night.jobs(jobs):
        night.record.canaries.append(result)
        night.save()
    return ", ".join(f"{result.engine}: {result.result}" for result in night.record.canaries)

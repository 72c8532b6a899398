"""The canary: a planted bug for each engine, which one shard must find in each night; else the night is red."""

from swarden.harness.core.registry import target_of
from swarden.harness.nightly.night import Coordinator
from swarden.harness.nightly.pool import Job
from swarden.harness.search.campaign import Plan
from swarden.harness.search.profiles import PROFILES
from swarden.harness.search.shards import find_canary


def canary(night: Coordinator) -> str:
    """Plant a canary in each engine and search for it; returns the text of the phase's line."""
    done = {one.engine for one in night.night.canaries}
    jobs = []
    for engine in (one.engine for one in night.night.engines if one.engine not in done):
        seed, names = night.seed_of("canary"), list(target_of(engine).canaries)
        first = seed % len(names) if names else 0
        campaign = Plan(engine, PROFILES["default"], seed, float("inf"))
        jobs.append(Job(engine, find_canary, (campaign, [*names[first:], *names[:first]], night.limits)))
    for _, found in night.jobs(jobs):
        night.night.canaries.append(found)
        night.save()
    return ", ".join(
        f"{one.engine}: {one.mutant} found by {one.law} after {one.runs} runs"
        if one.law
        else f"{one.engine}: {one.mutant} missed in {one.runs} runs"
        if one.mutant
        else f"{one.engine}: has none"
        for one in night.night.canaries
    )

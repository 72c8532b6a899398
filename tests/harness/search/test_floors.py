"""The coverage that a campaign needs for the verdict green."""

from dataclasses import replace

import pytest

from swarden.harness.core.registry import OWN, target_of
from swarden.harness.engines.own.faults import FAULTS
from swarden.harness.engines.own.probes import ENGINE_PROBES
from swarden.harness.search.outcome import missing_coverage
from swarden.harness.search.result import Tallies
from swarden.harness.search.traffic.profiles import Profile
from swarden.invariants.catalog import ALL

TINY = Profile("tiny", 1.0, runs_per_batch=6, calls_per_run=(15,), probe_floor=0.0, must_evaluate=False, min_runs=1)


def full_coverage() -> Tallies:
    """A campaign of 100 engine runs that reached every probe, fired every fault and evaluated every invariant."""
    tallies = Tallies(runs=100)
    tallies.machine_runs["engine"] = 100
    tallies.ops.update({"step": 100})
    tallies.evaluated.update(invariant.name for invariant in ALL.invariants)
    tallies.probes.update(dict.fromkeys(ENGINE_PROBES, 1))
    tallies.fired.update(dict.fromkeys(FAULTS, 1))
    return tallies


def test_campaign_with_full_coverage_is_green():
    """Every invariant is evaluated, every probe is at its floor, and no op is mostly a no-op."""
    assert [
        *missing_coverage(full_coverage(), replace(TINY, must_evaluate=True, probe_floor=0.01), target_of(OWN))
    ] == []


@pytest.mark.parametrize(("times", "missing"), [(19, []), (20, ["op complete: 15 of 20 were no-ops"])])
def test_noop_share_is_judged_from_20_occurrences_on(times, missing):
    tallies = full_coverage()
    tallies.ops.update({"complete": times})
    tallies.noops.update({"complete": 15})

    assert [*missing_coverage(tallies, TINY, target_of(OWN))] == missing


@pytest.mark.parametrize(
    ("spoil", "missing"),
    [
        (lambda tallies: tallies.noops.update({"step": 51}), "op step: 51 of 100 were no-ops"),
        (
            lambda tallies: tallies.evaluated.pop("tree_is_well_formed"),
            "invariant tree_is_well_formed was never evaluated",
        ),
        (lambda tallies: tallies.probes.pop("chunk_parked"), "probe chunk_parked: seen in 0 runs, want at least 1"),
        (lambda tallies: tallies.fired.pop("forward.late"), "fault forward.late never fired"),
    ],
)
def test_campaign_that_lacks_coverage_is_red(spoil, missing):
    tallies = full_coverage()
    spoil(tallies)

    assert [*missing_coverage(tallies, replace(TINY, must_evaluate=True, probe_floor=0.01), target_of(OWN))] == [
        missing
    ]

"""The minimum coverage of a campaign that counts as green."""

import math
from collections.abc import Iterator

from swarden.harness.core.target import Target
from swarden.harness.search.result import Tallies
from swarden.harness.search.traffic.profiles import MAX_NOOP_SHARE, MIN_OCCURRENCES, Profile
from swarden.invariants.catalog import catalog_of


def is_judged(tallies: Tallies, profile: Profile) -> bool:
    """Whether the campaign had enough runs to be judged."""
    return tallies.runs >= profile.min_runs


def why_not_green(tallies: Tallies, profile: Profile, target: Target, *, is_held: bool = False) -> list[str]:
    """The coverage that a campaign without violations lacks, one line each; empty if it was too short to be judged.

    A campaign that is held to one machine or to fixed settings cannot reach everything: `not_exercised` has the rest.
    """
    return [*_missing_coverage(tallies, profile, target, is_held)] if is_judged(tallies, profile) else []


def not_exercised(tallies: Tallies, target: Target) -> tuple[list[str], list[str]]:
    """The laws that were never evaluated, and the faults that never fired."""
    laws = [one.name for one in catalog_of(target.contracts).invariants if not tallies.evaluated[one.name]]
    return laws, [fault for fault in target.faults if not tallies.fired[fault]]


def never_due(tallies: Tallies, target: Target) -> list[str]:
    """The laws that need events which never came, although the engine does not declare that it never reports them.

    If the engine cannot report such an event, its laws may report violations where there are none.
    """
    return [
        one.name
        for one in catalog_of(target.contracts).invariants
        if one.on and not tallies.evaluated[one.name] and not tallies.not_applicable[one.name]
    ]


def _missing_coverage(tallies: Tallies, profile: Profile, target: Target, is_held: bool) -> Iterator[str]:
    if is_held and not any(tallies.evaluated.values()):
        yield "no invariant was ever evaluated"
    for name, count in sorted(tallies.ops.items()):
        if count >= MIN_OCCURRENCES and tallies.noops[name] > MAX_NOOP_SHARE * count:
            yield f"op {name}: {tallies.noops[name]} of {count} were no-ops"
    if is_held:
        return
    if profile.must_evaluate:
        for invariant in catalog_of(target.contracts).invariants:
            if not tallies.evaluated[invariant.name] and not tallies.not_applicable[invariant.name]:
                yield f"invariant {invariant.name} was never evaluated"
        for fault in target.faults:
            if not tallies.fired[fault]:
                yield f"fault {fault} never fired"
    for name, want in wanted_runs(tallies, profile, target).items():
        if tallies.probes[name] < want:
            yield f"probe {name}: seen in {tallies.probes[name]} runs, want at least {want}"


def wanted_runs(tallies: Tallies, profile: Profile, target: Target) -> dict[str, int]:
    """The number of runs that must reach each probe, by the number of runs of its machine."""
    return {
        name: math.ceil(profile.probe_floor * tallies.machine_runs[machine])
        for machine, spec in target.machines.items()
        for name in spec.probes
    }

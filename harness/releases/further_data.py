"""The data that a target lacks, ordered by what the laws that need them have found in other engines."""

from collections.abc import Collection, Iterable
from itertools import chain
from typing import NamedTuple

from swarden.harness.core.ops import Accept, Flush, OpenSession, Pause, Reset
from swarden.harness.core.registry import UnknownEngine, installed, target_of
from swarden.harness.core.target import PAIR, Target
from swarden.invariants.catalog import ALL
from swarden.invariants.invariant import Invariant


class FurtherData(NamedTuple):
    """Parts of a snapshot and types of events; the laws that need them; what these found in other engines."""

    data: tuple[str, ...]
    laws: tuple[str, ...]
    bugs: int
    mutants: int


class FoundElsewhere(NamedTuple):
    """By law, the known bugs that it found in other engines, and the mutants that it must find there."""

    bugs: dict[str, set[str]]
    mutants: dict[str, set[str]]

    def counts(self, laws: Iterable[str]) -> tuple[int, int]:
        """The bugs and the mutants of these laws, each once."""
        bugs, mutants = (len(set[str]().union(*(by_law.get(law, ()) for law in laws))) for by_law in self)
        return bugs, mutants


def found_elsewhere(target: Target) -> FoundElsewhere:
    """The findings of the laws, by the known bugs and the catalogues of all other targets that can be imported here."""
    elsewhere = FoundElsewhere({}, {})
    for name in installed():
        try:
            other = target_of(name)
        except UnknownEngine:  # its package is not installed, or lacks torch
            continue
        if other.name != target.name:
            for bug in other.known_bugs().values():
                for fingerprint in bug.fingerprints:
                    elsewhere.bugs.setdefault(fingerprint.partition("/")[0], set()).add(bug.name)
            for mutant in other.catalog:
                for law in mutant.caught_by:
                    elsewhere.mutants.setdefault(law, set()).add(mutant.id)
    return elsewhere


def lacking(law: Invariant, missing: frozenset[str]) -> list[frozenset[str]]:
    """The sets of data of which each alone would make a law applicable; [] if it is applicable already."""
    events = sorted(kind.__name__ for kind in law.on)
    one_of = events if events and missing.issuperset(events) else []
    needs = law.needs & missing
    return [needs | {event} for event in one_of] or ([needs] if needs else [])


def foreign_data(target: Target, missing: frozenset[str]) -> set[str]:
    """The data that this engine cannot have, by its machines, its faults and its components."""
    machines = target.machines.values()
    ops = {kind for machine in machines for kind in machine.ops}
    of_pairs = "Filled HandedOver LetGo Received Reserved Sent SetAside TakenOver awaited delivered due_transfers"
    can_have = {
        "Proposed Verified": Accept in ops,
        "GivenUp Kept Lent TurnRefused sessions": OpenSession in ops,
        "Paused Resumed": Pause in ops,
        "CacheReset": Reset in ops,
        "Flushed": Flush in ops,
        "peer_maps slot_maps windowed": "windowed" not in missing,
        f"PeerGaveUp {of_pairs}": PAIR in target.machines,
        "Copied CopiedIn CopyBegan copy_jobs": any(fault.startswith("host.") for fault in target.faults),
        "BytesCompared Compared KVCompared PrefixesCompared": any(machine.models for machine in machines),
        "Answered Probed Rested": False,  # only a server has them
    }
    return {name for names, is_possible in can_have.items() if not is_possible for name in names.split()}


def further_data(missing: frozenset[str], found: FoundElsewhere, foreign: Collection[str] = ()) -> list[FurtherData]:
    """The data to add, the most useful first: those that find most bugs, then most mutants, per part to add.

    Laws that need more data come later, after the data that are added before.  `foreign` data are not to be added.
    """
    laws = {law.name: lacking(law, missing) for law in ALL.invariants if law.contract is None}
    own = {name: [data for data in lacks if data.isdisjoint(foreign)] for name, lacks in laws.items()}
    remaining = {name: lacks for name, lacks in own.items() if lacks}
    steps = list[FurtherData]()
    while remaining:
        options = []
        for data in set(chain.from_iterable(remaining.values())):
            gained = tuple(name for name, lacks in remaining.items() if any(need <= data for need in lacks))
            options.append(FurtherData(tuple(sorted(data)), gained, *found.counts(gained)))
        best = max(options, key=_worth)
        steps.append(best)
        added = set(best.data)
        others = {name: lacks for name, lacks in remaining.items() if name not in best.laws}
        remaining = {name: [need - added for need in lacks] for name, lacks in others.items()}
    return steps


def _worth(step: FurtherData) -> tuple[float, float, int, tuple[str, ...]]:
    """The number of bugs and of mutants that a step finds for each part or type that it adds."""
    size = len(step.data)
    return step.bugs / size, step.mutants / size, -size, step.data

"""One run of a campaign, what it adds to the counts of the campaign, and its features.

The features are what happened in it, as numbers, so that a run that reaches something new can be recognised.  They come
from events and states that every target reports, never from names of bugs or of an engine's functions.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple
from zlib import crc32

from swarden.harness.core.driver import Driver
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Op, name_of
from swarden.harness.core.registry import target_for
from swarden.harness.core.target import ENGINE, Watch
from swarden.harness.search.result import Tallies
from swarden.invariants.transition import Transition

TELLING = ("pool", "cause", "reason", "place")  # fields of events that have one of a few values


class RunIndex(NamedTuple):
    """A run of a campaign: its batch, and its ordinal in the batch."""

    batch: int
    run: int = 0


FIRST_RUN = RunIndex(0)


class StartTime(NamedTuple):
    """The start of a worker, in wall-clock time and in CPU time; before that, booting the engine took `boot_s`."""

    wall_s: float
    cpu_s: float
    boot_s: float


class Features:
    """Counts pairs of consecutive events, numbers of free units, and moves of requests between queues, in one run."""

    def __init__(self) -> None:
        self._counts = Counter[tuple[object, ...]]()
        self._last = ""

    def begin(self, op: Op) -> None:
        """Note that an op begins: the next event forms a pair with it."""
        self._last = name_of(op)

    def look(self, change: Transition) -> None:
        """Count the features of a transition."""
        counts, last = self._counts, self._last
        for event in change.events:
            name = _name(event)
            counts[last, name] += 1
            last = name
        self._last = last
        counts[tuple(len(pool.free).bit_length() for pool in change.after.pools)] += 1
        before = change.before.request_by_id
        for request in change.after.requests or ():
            old = before.get(request.id)
            if old is None or old.place != request.place:
                counts["place", str(old and old.place), str(request.place)] += 1

    def hashes(self) -> frozenset[int]:
        """Each feature with its bucketed count, as a hash that is the same in every process."""
        return frozenset(crc32(repr((feature, _bucket(count))).encode()) for feature, count in self._counts.items())

    def kinds(self) -> frozenset[int]:
        """The types of events and the moves between queues, as hashes; a campaign can have all of them."""
        named = [feature for feature in self._counts if feature and isinstance(feature[0], str)]
        return frozenset(crc32(repr(feature if feature[0] == "place" else feature[1]).encode()) for feature in named)


def _bucket(count: int) -> int:
    """The bucket of a count: 1, 2, 3, 4 to 7, 8 to 15 and so on each have their own."""
    return count if count < 4 else count.bit_length() + 1


def _name(event: NamedTuple) -> str:
    kind = type(event)
    return f"{kind.__name__} {[str(getattr(event, name)) for name in _telling(kind)]}"


@cache
def _telling(kind: type[NamedTuple]) -> Sequence[str]:
    """The fields that distinguish the cases of a type of event: names, and flags."""
    return [name for name, note in kind.__annotations__.items() if name in TELLING or note is bool]


class Run(NamedTuple):
    """The current run: its header, the probes that it has reached, and its features.

    `replays` names the log of the corpus that is run; "" for a random run.  The ops and the probes of a run that is not
    counted are not added to the tallies.
    """

    header: Header
    watch: Watch
    features: Features
    replays: str = ""
    is_counted: bool = True

    def add_to(self, tallies: Tallies, driver: Driver, only_machine: str | None) -> None:
        """Add this run to the tallies; `only_machine` is the machine of a campaign that has only one."""
        counts, machine = driver.counts, self.header.machine
        tallies.steps = counts.engine_steps
        tallies.failed_runs = int(driver.failure is not None)
        tallies.limited_runs = int(driver.counts.is_limited)
        for name, judged in counts.tally.items():
            tallies.evaluated[name] += judged.evaluated
            if machine in (ENGINE, only_machine):  # fewer invariants apply to a part of an engine
                tallies.not_applicable[name] += judged.not_applicable
        tallies.fired.update(self.watch.fired)
        if self.replays:
            return
        tallies.runs = 1
        if not self.is_counted:
            return
        tallies.ops.update(counts.ops)
        tallies.noops.update(counts.noops)
        probes_of = {name: spec.probes for name, spec in target_for(self.header).machines.items()}
        of_other_machines = {name for other, probes in probes_of.items() if other != machine for name in probes}
        tallies.probes.update(self.watch.seen - of_other_machines)
        tallies.machine_runs[machine] = 1


def batch_seed(campaign_seed: int, batch: int) -> int:
    """The seed of a batch; it does not depend on the number of workers."""
    name = f"{campaign_seed}/{batch}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=4).digest())

"""One run of a campaign, and what it adds to the counts of the campaign."""

import hashlib
from typing import NamedTuple

from swarden.harness.core.driver import Driver
from swarden.harness.core.oplog import Header
from swarden.harness.core.registry import target_for
from swarden.harness.core.target import ENGINE, Watch
from swarden.harness.search.features import Features
from swarden.harness.search.result import Tallies


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

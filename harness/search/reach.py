"""Which lines of a change the runs execute; further runs are led to them."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from swarden.harness.core.changed_code import ChangedLine
from swarden.harness.core.counters import Counters, Coverage
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.target import Target, decode_all
from swarden.harness.report.wording import counted, listed

STEERED_OF = 2  # drawn configurations: one of so many is replaced
COMMON = 0.5  # the share of runs that makes a line common: no run is steered to it
MOST_LOGS = 4  # of one line and machine
CANNOT_FOLLOW = " (cannot be followed: its function is patched, compiled or not made yet)"
_listed = partial(listed, most=3)  # lines, in the first line of a summary


class ReachSteering:
    """Counts the runs that execute each changed line, and leads other runs to rare ones.

    What replaces a drawn configuration depends on that configuration alone during a batch, as Hypothesis requires.
    """

    def __init__(self, change: Sequence[ChangedLine]) -> None:
        self.counters = Counters(change)
        self.near: Sequence[OpLog] = ()  # the logs that execute rare lines of the machine of this batch
        self._logs: dict[str, dict[int, list[OpLog]]] = defaultdict(lambda: defaultdict(list))  # by machine and line
        self._times: dict[str, Counter[int]] = defaultdict(Counter)
        self._runs = Counter[str]()

    def begin_batch(self, machine: str) -> None:
        times, most = self._times[machine], COMMON * self._runs[machine]
        self.near = [log for line in sorted(times) if times[line] < most for log in self._logs[machine][line]]

    def steered(self, target: Target, configs: Sequence[Any]) -> Sequence[Any]:
        """The configurations of a run, half of them those of a near log in place of those that were drawn."""
        if not self.near:
            return configs
        which = crc32(msgspec.json.encode([target.encode(config) for config in configs]))
        if which % STEERED_OF:
            return configs
        return decode_all(target, self.near[which // STEERED_OF % len(self.near)].header.configs)

    def note(self, log: OpLog, ran: Collection[int], *, is_healthy: bool) -> None:
        """Note the log of a run that has executed these lines."""
        machine = log.header.machine
        self._runs[machine] += 1
        for line in ran:
            self._times[machine][line] += 1
            if is_healthy and len(logs := self._logs[machine][line]) < MOST_LOGS:
                logs.append(log)


class Reach(NamedTuple):
    """How much of a change has run; `refused` counts the reasons for which the engine refused drawn settings."""

    change: Sequence[ChangedLine]
    coverage: Coverage
    refused: Mapping[str, int]

    @property
    def missed(self) -> list[int]:
        """The changed lines of driven modules that did not run."""
        return sorted(self.coverage.imported - self.coverage.ran)

    @property
    def is_reached(self) -> bool:
        """Whether a changed line ran, if any is in a module that is driven."""
        return bool(self.coverage.ran) or not self.coverage.imported

    @property
    def summary(self) -> str:
        """One of the three outcomes, in one line."""
        if not (num := len(self.coverage.imported)):
            where = _listed(sorted({line.path for line in self.change}))
            return f"no changed line is in a module that is driven ({where or 'no statement is changed'})"
        of = f"of {counted(num, 'changed line')}"
        if not self.is_reached:
            return f"not reached: none {of} ran: {_listed([self.change[line] for line in self.missed])}"
        missed = f"; these did not: {_listed([self.change[line] for line in self.missed])}" if self.missed else ""
        return f"{num - len(self.missed)} {of} ran{missed}"

    @property
    def details(self) -> list[str]:
        """The changed lines that did not run, with the reasons that are known, and the settings that were refused."""
        whys = ["" if line in self.coverage.followed else CANNOT_FOLLOW for line in self.missed]
        lines = [f"{self.change[line]}{why}" for line, why in zip(self.missed, whys, strict=True)]
        return [*lines, *(f"refused: {why} ({counted(n, 'draw')})" for why, n in self.refused.items() if self.missed)]

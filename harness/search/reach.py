"""Which lines of a change the runs execute, and settings for further runs that reach them."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from swarden.harness.core.changed_code import ChangedLine
from swarden.harness.core.counters import Counters, Coverage
from swarden.harness.core.oplog import Header
from swarden.harness.core.target import Target
from swarden.harness.report.wording import counted

STEERED_OF = 2  # drawn configurations: one of so many is replaced
COMMON = 0.5  # the share of runs that makes a line common: no run is steered to it
MOST_SETTINGS = 4  # of one line and machine
MOST_NAMED = 3  # lines, in the first line of a summary

Settings = list[dict[str, Any]]


class ReachSteering:
    """Counts the runs that execute each changed line, and gives other runs the settings of those with rare ones.

    What replaces a drawn configuration depends on that configuration alone during a batch, as Hypothesis requires.
    """

    def __init__(self, change: Sequence[ChangedLine]) -> None:
        self.counters = Counters(change)
        self._settings: dict[str, dict[int, list[Settings]]] = defaultdict(lambda: defaultdict(list))  # by machine
        self._times: dict[str, Counter[int]] = defaultdict(Counter)
        self._runs = Counter[str]()
        self._choices: list[Settings] = []

    def begin_batch(self, machine: str) -> None:
        """Choose the settings for the runs of a batch: for each line that is rare, those of runs that execute it."""
        times, runs = self._times[machine], self._runs[machine]
        rare = [line for line in sorted(times) if times[line] < COMMON * runs]
        self._choices = [settings for line in rare for settings in self._settings[machine][line]]

    def steered(self, target: Target, configs: Sequence[Any]) -> Sequence[Any]:
        """The configurations of a run, in place of those that were drawn."""
        if not self._choices:
            return configs
        which = crc32(msgspec.json.encode([target.encode(config) for config in configs]))
        if which % STEERED_OF:
            return configs
        return target.decode_all(self._choices[which // STEERED_OF % len(self._choices)])

    def end_run(self, header: Header) -> Coverage:
        """Note the settings of a run; returns what it has executed."""
        coverage, machine = self.counters.coverage, header.machine
        self._runs[machine] += 1
        for line in coverage.ran:
            known = self._settings[machine][line]
            self._times[machine][line] += 1
            if len(known) < MOST_SETTINGS and header.configs not in known:
                known.append(header.configs)
        return coverage


class Reach(NamedTuple):
    """How much of a change has run; `refused` counts the reasons for which the engine refused drawn settings."""

    change: Sequence[ChangedLine]
    coverage: Coverage
    refused: Mapping[str, int]

    @property
    def driven(self) -> list[int]:
        return sorted(self.coverage.imported)

    @property
    def missed(self) -> list[int]:
        """The changed lines of driven modules that did not run."""
        return sorted(self.coverage.imported - self.coverage.ran)

    @property
    def is_reached(self) -> bool:
        """Whether a changed line ran, if any is in a module that is driven."""
        return bool(self.coverage.ran) or not self.driven

    @property
    def summary(self) -> str:
        """One of the three outcomes, in one line."""
        if not self.driven:
            files = sorted({line.path for line in self.change})
            where = f": {counted(len(self.change), 'changed line')} in {_listed(files)}" if files else ""
            return f"no changed line is in a module that is driven{where}"
        of = f"of {counted(len(self.driven), 'changed line')}"
        if not self.is_reached:
            return f"not reached: none {of} ran: {_listed([str(self.change[line]) for line in self.missed])}"
        return f"{len(self.driven) - len(self.missed)} {of} ran" + ("; these did not:" if self.missed else "")

    @property
    def details(self) -> list[str]:
        """The changed lines that did not run, with the reasons that are known, and the settings that were refused."""
        lines = [f"{self.change[line]}{self._why(line)}" for line in self.missed]
        return [*lines, *(f"refused: {why} ({counted(n, 'draw')})" for why, n in self.refused.items() if self.missed)]

    def _why(self, line: int) -> str:
        if line in self.coverage.followed:
            return ""
        return f" ({self.change[line].function} cannot be followed: it is patched, compiled or not made yet)"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more

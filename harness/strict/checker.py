"""The levels of the strict memory check, and the checker that runs one of them on an engine of any target."""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from swarden.harness.core.errors import UsageError
from swarden.harness.core.fingerprint import fingerprints
from swarden.harness.core.oplog import OpLogError
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.report.story import story
from swarden.harness.strict.audit import Audit
from swarden.harness.strict.census import Census, interval_of
from swarden.harness.strict.live import Check, Evidence, Handler, Live
from swarden.harness.strict.recorder import FlightRecorder
from swarden.harness.strict.recording import FOLDER_VARIABLE, OFF, VARIABLE, Recording, record_mode
from swarden.harness.strict.sums import Sums
from swarden.invariants.violation import Violation

MAX_LOGS = 100  # op-logs in a folder, so that a server that restarts at each failure does not fill the disk
LOGGER = logging.getLogger("swarden.strict")


class Reporter:
    """Raises `error` for violations.  With `reports`, the first violation of each fingerprint is logged instead.

    `counts` has the violations per fingerprint; `log_path` is the op-log of the first failure, below `folder`.
    """

    def __init__(self, recording: Recording, folder: Path, *, error: type[Exception], reports: bool) -> None:
        self.counts: Counter[str] = Counter()
        self.log_path: Path | None = None
        self.reports = reports
        self._recording, self._folder, self._error = recording, folder, error

    def report(self, violations: Sequence[Violation], evidence: Callable[[], Evidence]) -> None:
        names = fingerprints(violations)
        is_first, is_new = not self.counts, any(name not in self.counts for name in names)
        self.counts.update(names)
        if self.reports and not is_new:
            return
        history, pools = evidence()
        lines = [story(violations, history, pools)]
        if is_first:
            lines.append(self.save_log(names[0]))
        if not self.reports:
            raise self._error("\n".join(lines))
        LOGGER.error("swarden: %s", "\n".join(lines))

    def save_log(self, fingerprint: str) -> str:
        """Write the op-log of the recorder. Returns the line with its path, or with the error."""
        if self._recording.mode == OFF:
            return f"not recorded: {VARIABLE} is {OFF}"
        if len(list(self._folder.glob("*.oplog"))) >= MAX_LOGS:
            return f"not recorded: {self._folder} has {MAX_LOGS} op-logs; remove some"
        try:
            self.log_path = self._recording.save(fingerprint, self._folder)
        except OpLogError as error:
            return f"not recorded: {error}"
        truncated = f" (truncated: {self._recording.truncated})" if self._recording.truncated else ""
        return f"replay: swarden replay {self.log_path}{truncated}"


LOGS = Path(".swarden/strict")
SHARE = "SWARDEN_STRICT_CONTENT_SHARE"  # of the slots that the level content compares
LEAST_SHARE = 1e-6

Level = Callable[[Live], Sequence[Check]]  # the parts of a level; the first one has the evidence


class StrictChecker:
    """One level of the strict memory check, with the flight recorder beside it, and the Reporter of violations."""

    recorder: FlightRecorder
    reporter: Reporter

    def __init__(self, level: Level, *, reports: bool, folder: Path | None = None) -> None:
        self._level, self._reports = level, reports
        self._folder = folder or Path(os.environ.get(FOLDER_VARIABLE) or LOGS)
        self._record_mode = record_mode(os.environ)

    def attach(self, engine: Any) -> None:
        """Attach to an empty engine of our own."""
        self.watch(target_of(OWN).live(engine))

    def watch(self, live: Live) -> None:
        """Attach to an empty engine."""
        self._live = live
        self.recorder = FlightRecorder(live, self._record_mode)
        self.reporter = Reporter(self.recorder.recording, self._folder, error=live.error, reports=self._reports)
        self.start_over()

    def start_over(self) -> None:
        """Check an engine that is empty again, from now on."""
        self._parts = self._level(self._live)
        self._handlers: dict[type, tuple[Handler, ...]] = {}
        for handlers in (self._live.handlers, self.recorder.handlers, *(part.handlers for part in self._parts)):
            for kind, handler in handlers.items():
                self._handlers[kind] = (*self._handlers.get(kind, ()), handler)

    def notice(self, event: object) -> None:
        handlers = self._handlers.get(type(event))
        if handlers is not None:
            for handler in handlers:
                if violations := handler(event):
                    others = handlers[handlers.index(handler) + 1 :]
                    shown = [*violations, *[violation for other in others for violation in other(event) or ()]]
                    self.reporter.report(shown, self._parts[0].evidence)
                    break

    def notice_all(self, events: Iterable[object]) -> None:
        """Notice events, and report all violations that they show together."""
        violations: list[Violation] = []
        for event in events:
            for handler in self._handlers.get(type(event), ()):
                violations += handler(event) or ()
        if violations:
            self.reporter.report(violations, self._parts[0].evidence)


def census_of(live: Live) -> Sequence[Check]:
    """A census of each step; in large pools a census of some steps, and an audit of each."""
    interval = interval_of(live)
    return [Census(live)] if interval == 1 else [Audit(live), Census(live, interval)]


def share_of(environment: Mapping[str, str]) -> float:
    """The share in the environment, 1 by default; raises UsageError for a value that is no share."""
    value = environment.get(SHARE) or "1"
    try:
        share = float(value)
    except ValueError:
        share = 0.0
    if not LEAST_SHARE <= share <= 1:
        raise UsageError(f"{SHARE}: {value!r} is no share; want a number from {LEAST_SHARE:f} to 1")
    return share


def sums(*, reports: bool) -> StrictChecker:
    """Per pool and step: the free, the owned and the fenced units must add up to the capacity."""
    return StrictChecker(lambda live: [Sums(live)], reports=reports)


def audit(*, reports: bool) -> StrictChecker:
    """Each move of a unit is checked against the owner of the unit."""
    return StrictChecker(lambda live: [Audit(live)], reports=reports)


def census(*, reports: bool) -> StrictChecker:
    """All invariants are checked each step; in large pools at some steps, and the owners of moved units at each."""
    return StrictChecker(census_of, reports=reports)


def content(*, reports: bool) -> StrictChecker:
    """All invariants are checked each step, and what is read is compared with what was written."""
    share = share_of(os.environ)
    return StrictChecker(lambda live: live.content(live, share), reports=reports)

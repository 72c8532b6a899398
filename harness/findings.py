"""From a finding to what a developer gets: a shrunk op-log, a test that replays it, and the story."""

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.campaign import Finding
from harness.driver import Driver, Failure
from harness.files import write_whole
from harness.fingerprint import slug
from harness.oplog import OpLog
from harness.replay import configs_of, log_of, run_log
from harness.shrink import Budget, DoesNotFail, shrink

TEST_FILE = '''"""{title}"""

from pathlib import Path

from harness.oplog import OpLog
from harness.replay import run_log
from harness.report import failure_text


def test_{name}():
    """Replays {file}: passes once the bug is gone."""
    failure = run_log(OpLog.load(Path(__file__).with_name("{file}"))).failure

    assert failure is None, failure_text(failure)
'''


@dataclass(frozen=True)
class Settled:
    """A finding that was shrunk and written; the figures are those of the shrunk log."""

    fingerprint: str
    invariant: str
    ops: int
    engine_steps: int
    found_cpu_seconds: float
    shrink_cpu_seconds: float
    path: Path
    failure: Failure

    def is_caught_by(self, names: Collection[str]) -> bool:
        """Was it one of these invariants, or engine errors, that spoke?"""
        return self.invariant in names or self.fingerprint.split("/", maxsplit=1)[0] in names


def settle(finding: Finding, out: Path, budget: Budget) -> Settled:
    """Shrink a finding and write it below `out`, under a name of its own; what was kept of it so far goes.

    Raises DoesNotFail where it does not show again: then it is written as it was met.
    """
    if failure_like(finding.log, finding.fingerprint) is None:
        path = write(finding.log, finding.fingerprint, out)
        raise DoesNotFail(f"{finding.fingerprint}: does not show again; kept as it was met in {path}")
    small = shrink(finding.log, lambda log: failure_like(log, finding.fingerprint), budget)
    log, driver = sealed(small.log)
    assert driver.failure is not None, f"{finding.fingerprint}: shrunk away"
    path = write(log, finding.fingerprint, out)
    if finding.path is not None:
        finding.path.unlink(missing_ok=True)
    return Settled(
        finding.fingerprint,
        finding.invariant,
        len(log.ops),
        driver.counts.engine_steps,
        finding.found_cpu_seconds,
        small.cpu_seconds,
        path,
        driver.failure,
    )


def failure_like(log: OpLog, fingerprint: str) -> Failure | None:
    """How a log fails, if it fails in this way among others."""
    failure = run_log(log).failure
    return failure if failure and fingerprint in failure.fingerprints else None


def sealed(log: OpLog) -> tuple[OpLog, Driver]:
    """The log as a fresh one, with digests and up to the op that fails; and the driver that ran it.

    What fails by itself lacks nothing, whatever it was cut from.
    """
    driver = run_log(log, keep_digests=True)
    fresh = log_of(log.header, configs_of(log), driver)
    header = msgspec.structs.replace(fresh.header, expected=log.header.expected, truncated="")
    return OpLog(header, fresh.ops, fresh.digests), driver


def write(log: OpLog, fingerprint: str, out: Path) -> Path:
    """Save an op-log and beside it the pytest file that replays it; the name tells both apart from others."""
    name = f"{slug(fingerprint)}-{hashlib.sha256(log.to_bytes()).hexdigest()[:8]}"
    path = out / f"{name}.oplog"
    log.save(path)
    identifier = re.sub(r"\W+", "_", name.replace("+", "_and_"))
    test = TEST_FILE.format(title=fingerprint, name=identifier, file=path.name)
    write_whole(path.with_name(f"test_{identifier}.py"), test.encode())
    return path

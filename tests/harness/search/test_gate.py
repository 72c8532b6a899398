"""A gate with workers that only report: what is replayed on the base, shrunk and judged."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Step
from swarden.harness.core.replay import Replays, Verdict
from swarden.harness.search.campaign import Plan
from swarden.harness.search.gate import MOST_LOGS, NOT_REPLAYED, RESERVE_S, Gate
from swarden.harness.search.judge import FAILS, PASSES
from swarden.harness.search.result import Finding, Result
from swarden.harness.search.traffic.profiles import PROFILES
from swarden.harness.search.verification import Cause

ENDS = {PASSES: Verdict.FIXED, FAILS: Verdict.FAILED}


def finding(name, steps=1):
    log = OpLog(Header(engine="demo", configs=[{}]), [Step(count=1)] * steps)
    return Finding(name, log, float(steps), "demo")


class Head:
    """Workers that find these failures, one in each turn, and shrink their logs to two steps."""

    def __init__(
        self,
        *found: Finding,
        turns: int = 9,
        interrupted_at: int = -1,
        again: Verdict = Verdict.FAILED,
        crashes: Sequence[Finding] = (),
    ) -> None:
        self.result, self._found, self._again = Result(), found, again
        self._crashes = crashes
        self.shrunk: list[str] = []
        self.is_interrupted = False
        self._turns, self._interrupted_at = turns, interrupted_at

    def running(self, _: Plan):
        for turn, one in enumerate(self._found):
            self.is_interrupted = turn == self._interrupted_at
            self.result.findings[one.fingerprint] = one
            yield
        yield from [None] * self._turns

    def stop(self):
        """The time of the traffic is over."""

    def report_findings(self, *_: object, seconds: float):
        for one in self.result.findings.values():
            self.shrunk.append(one.fingerprint)
            yield one.changed(log=finding("", 2).log).repeated(Verdict.FAILED, 1, 1)
        yield from self._crashes

    def replaying(self, *_: object, **__: object):
        yield
        return Replays(self._again, ("law",), 1, 1, story=("its story",), ran=frozenset([0]))


class Base:
    """A worker on which logs end so, by the number of their steps; each replay takes two turns.

    A log of which this is the name of another failure fails with that one.
    """

    def __init__(self, **ends: str) -> None:
        self._ends, self.replayed = ends, list[int]()

    def calling(self, *_: object):
        yield from ()  # its boot

    def replaying(self, log: OpLog, *_: object, **__: object):
        count = len(log.ops)
        self.replayed.append(count)
        yield
        yield
        end = self._ends.get(f"of_{count}", FAILS)
        is_other = end not in (PASSES, FAILS, log.header.expected)
        return Replays(Verdict.CHANGED if is_other else ENDS.get(end, Verdict.FAILED), (end,), 0, 1)


def run(head: Any, base: Any, out: Path, **renamed: str) -> Gate:
    gate = Gate(Plan(engine="demo", profile=PROFILES["smoke"], seed=0, seconds=1000.0), "demo", head, base, renamed)
    gate.run(out)
    return gate


def ends_of(gate):
    return {name: failure.end for name, failure in gate.judged.items()}


def test_only_failures_that_pass_on_the_base_are_shrunk(tmp_path):
    head = Head(finding("old", 3), finding("new", 4))

    gate = run(head, Base(of_4=PASSES, of_2=PASSES), tmp_path)

    assert ends_of(gate) == {"old": FAILS, "new": PASSES}
    assert (head.shrunk, gate.judged["new"].finding.log.ops) == (["new"], [Step(count=1)] * 2)


@pytest.mark.parametrize("again", [Verdict.FAILED, Verdict.FIXED])
def test_shrunk_log_that_fails_on_the_base_is_not_shown(tmp_path, again):
    """The shrink has led to an old failure of the same name; the unshrunk log may not fail again."""
    gate = run(Head(finding("new", 4), again=again), Base(of_4=PASSES), tmp_path)

    judged = gate.judged["new"]
    shown = judged.finding
    assert (shown.log.ops, shown.story[0].text) == ([Step(count=1)] * 4, "its story")
    assert (shown.is_confirmed, bool(judged.ran)) == (again is Verdict.FAILED,) * 2


@pytest.mark.parametrize(
    ("found", "on_base", "is_same"),
    [
        pytest.param(finding("a/law", 4).changed(together=("a/law", "b/law")), "b/law", True, id="either-way"),
        pytest.param(finding("a/law", 4), "b/law", False, id="another-law"),
        pytest.param(
            finding("KeyError/new.<locals>.f/caller", 4),
            "KeyError/old.<locals>.f/caller",
            True,
            id="function-that-was-renamed",
        ),
        pytest.param(finding("KeyError/other/caller", 4), "KeyError/old/caller", False, id="another-function"),
    ],
)
def test_failure_is_old_if_the_base_has_the_same_one(tmp_path, found, on_base, is_same):
    gate = run(Head(found), Base(of_4=on_base), tmp_path, new="old")

    assert gate.judged[found.fingerprint].is_old is is_same


def test_base_that_is_still_busy_when_the_time_is_over_gets_no_further_log(tmp_path, monkeypatch):
    """The traffic ends, and the replay of a second failure has begun."""
    monkeypatch.setattr(Gate, "left_s", 2 * RESERVE_S)
    base = Base(of_4=PASSES)

    run(Head(finding("new", 4), *[finding("old", 3)] * 2, turns=0), base, tmp_path)

    assert base.replayed == [4, 3]


def test_base_boots_beside_the_traffic_and_a_gate_without_failures_does_not_wait_for_it(tmp_path):
    class SlowBase(Base):
        def calling(self, *_: object):
            yield from [None] * 5

    base = SlowBase(of_4=PASSES)

    assert ends_of(run(Head(finding("new", 4), turns=2), base, tmp_path)) == {"new": PASSES}
    assert ends_of(run(Head(turns=2), SlowBase(), tmp_path)) == {}


def test_failure_of_a_known_bug_that_passes_on_the_base_is_new_and_not_shrunk(tmp_path):
    """Its log passes with the fix on the head, as if the head had lost it."""
    head = Head(finding("old", 3))
    head.result.known["a-bug"] = finding("law", 4).changed(cause=Cause(("a-bug",)))

    gate = run(head, Base(of_4=PASSES), tmp_path)

    assert ends_of(gate) == {"old": FAILS, "a-bug": PASSES}
    assert gate.judged["a-bug"].name == "law, which the fix of a-bug cures"
    assert not head.shrunk


@pytest.mark.parametrize("end", [PASSES, FAILS])
def test_crash_with_the_fix_of_a_known_bug_that_a_shrink_meets_is_judged_by_the_base(tmp_path, end):
    crash = finding("crash/SIGSEGV/with a-bug", 5)

    gate = run(Head(finding("new", 4), crashes=[crash]), Base(of_4=PASSES, of_2=PASSES, of_5=end), tmp_path)

    assert ends_of(gate) == {"new": PASSES, crash.name: end}


def test_failure_is_new_by_any_of_its_logs_of_which_few_are_replayed(tmp_path):
    base = Base(of_5=PASSES, of_2=PASSES)
    many = [finding("many", steps) for steps in range(10, 10 + 3 * MOST_LOGS) for _ in range(3)]

    gate = run(Head(*many, *[finding("one", steps) for steps in (4, 5) for _ in range(6)]), base, tmp_path)

    assert ends_of(gate) == {"many": FAILS, "one": PASSES}
    assert len([count for count in base.replayed if count >= 10]) == MOST_LOGS


def test_interrupt_ends_the_gate_at_once_with_what_is_known(tmp_path):
    head = Head(finding("new", 3), *[finding("late", 4)] * 3, interrupted_at=3)

    gate = run(head, Base(of_3=PASSES), tmp_path)

    assert ends_of(gate) == {"new": PASSES, "late": NOT_REPLAYED}
    assert not head.shrunk
    assert gate.judged["new"].finding.path is not None

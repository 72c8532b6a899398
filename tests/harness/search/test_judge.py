"""The judge of logs: its rules, and the base of a checkout."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.replay import Replays, Verdict, not_run
from swarden.harness.search import judge as judge_module
from swarden.harness.search.judge import Rule
from swarden.harness.search.result import Finding
from swarden.harness.search.workers import WorkerGroup


@pytest.mark.parametrize(
    ("version", "is_release", "installed", "base"),
    [
        pytest.param("checkout-head", False, ["0.5.22", "0.5.23"], "0.5.23", id="newest-for-one-without-a-version"),
        pytest.param("0.5.22.dev3", False, ["0.5.17", "0.5.22", "0.5.23"], "0.5.22", id="not-newer"),
        pytest.param("0.5.10", False, ["0.5.17", "0.5.23"], "0.5.17", id="oldest-if-all-are-newer"),
        pytest.param("main", False, ["0.5.17", "0.5.23"], "0.5.23", id="newest-for-a-version-of-another-form"),
        pytest.param("checkout-head", False, [], "", id="none-installed"),
        pytest.param("0.5.23", True, ["0.5.22"], "", id="release"),
    ],
)
def test_base_of_a_checkout_is_the_nearest_release(version, is_release, installed, base):
    releases, sources = SimpleNamespace(installed=lambda: installed), SimpleNamespace(is_release=is_release)
    target: Any = SimpleNamespace(releases=releases, sources=sources, version=lambda: version)

    assert judge_module.base_of(target) == base


@pytest.mark.parametrize(
    ("is_stopped", "on_base"),
    [
        pytest.param(
            False, ["passes on 1.0", "is no log on 1.0", "fails on 1.0, too"], id="those-that-pass-come-first"
        ),
        pytest.param(True, ["", "", ""], id="none-behind-an-interrupt"),
    ],
)
def test_findings_are_replayed_on_the_base(monkeypatch, is_stopped, on_base):
    verdicts = {"a": Verdict.FAILED, "b": None, "c": Verdict.FIXED}
    ends = {name: Replays(verdict, (), 0, 1) if verdict else not_run("is no log") for name, verdict in verdicts.items()}
    monkeypatch.setattr(judge_module, "WorkerGroup", lambda *_, **__: nullcontext())

    def judging(_group, _log, _release, rule):
        yield
        return ends[rule.names[0]]

    monkeypatch.setattr(judge_module, "judging", judging)
    log = OpLog(Header(engine="demo", configs=[{}]), [])
    found = [Finding(name, log, 0.0, path=Path(name)) for name in ends]

    for _ in judge_module.beside(found, "1.0", lambda: is_stopped):
        pass

    assert [finding.on_base for finding in found] == on_base


class Group:
    """A worker in which each log fails with these names; a log with a fix cannot be run."""

    def replaying(self, log: OpLog, *_: object, **__: object):
        yield
        if log.header.fixes:
            raise UsageError("its fix does not fit")
        return Replays(Verdict.CHANGED if log.header.expected != "b/law" else Verdict.FAILED, ("b/law", "a/law"), 1, 1)


@pytest.mark.parametrize(
    ("rule", "fixes", "verdict"),
    [
        pytest.param(Rule(["b/law"]), (), Verdict.FAILED, id="same"),
        pytest.param(Rule(["c/law", "b/law"]), (), Verdict.FAILED, id="among-its-names"),
        pytest.param(Rule(["c/law"]), (), Verdict.CHANGED, id="another"),
        pytest.param(Rule(["b/law"]), ("a-fix",), Verdict.ERROR, id="with-a-fix-that-does-not-fit"),
        pytest.param(Rule(["b/law"], needs_fixes=False), ("a-fix",), Verdict.FAILED, id="without-that-fix"),
        pytest.param(Rule(["a/elsewhere"], by_law=True), (), Verdict.FAILED, id="same-law-by-law"),
    ],
)
def test_log_is_judged_by_a_rule(rule, fixes, verdict):
    log, group = OpLog(Header(engine="demo", configs=[{}], fixes=fixes), []), Group()

    assert judge_module.judge(cast(WorkerGroup, group), log, "demo", rule).verdict is verdict

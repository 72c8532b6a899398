"""A failure is known only if its log passes with the fixes of known bugs that have its fingerprint."""

import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.driver import Failure
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.known_bug import PRIVATE, Related
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.registry import target_for, target_of
from swarden.harness.core.replay import Verdict, replay, run_log
from swarden.harness.report.vulnerability import WARNING
from swarden.harness.search.campaign import Plan, Worker
from swarden.harness.search.cures import (
    DOES_NOT_FIT,
    DOES_NOT_HELP,
    IS_BROAD,
    NO_TRIALS,
    NOT_REACHED,
    NOT_TRIED,
    Trials,
)
from swarden.harness.search.findings import Reporting
from swarden.harness.search.judge import Rule, judge_alone
from swarden.harness.search.outcome import Outcome
from swarden.harness.search.result import Finding
from swarden.harness.search.shrink.shrink import ShrinkBudget
from swarden.harness.search.traffic.profiles import PROFILES
from swarden.harness.search.verification import Verifier, upstream_of
from tests.harness.some_bugs import (
    BUG,
    LONG,
    LONG_OUTPUT,
    ODD,
    OF_BLOCKS,
    OF_PROMPTS,
    STUCK,
    USELESS,
    WHOLE,
    write_log,
    write_package,
)

RUNS = 10
OF_OTHERS = Related(kind="issue", number=3, state="open", relation="is similar", repository="a/b")


@pytest.fixture(scope="module", autouse=True)
def target(tmp_path_factory):
    """The target of an engine with three stuck bugs, two of which are known and have a fix."""
    folder = tmp_path_factory.mktemp("bugs")
    write_package(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield target_of("blockserve")
    target_of.cache_clear()


@pytest.fixture
def cause_of(target, tmp_path):
    """The cause of the failure of a run with these requests; its log is planted with a mutant, but not run with it."""

    def cause_of(*requests, mutant=None, planted=(), trials=NO_TRIALS):
        log = load_log(write_log(tmp_path / "some.oplog", *requests))
        failure = run_log(log).failure
        assert isinstance(failure, Failure)
        assert failure.fingerprint == STUCK
        log = log.with_header(mutant=mutant)
        return Verifier(target, planted, trials).cause_of(failure, log)

    return cause_of


@pytest.fixture
def change(monkeypatch, target):
    """Changes the fix of a known bug, or adds another bug with this fix."""

    def change(name, *, copy_of=None, **changes):
        bugs = dict(target.known_bugs())
        bug = bugs[copy_of or name]
        [fix] = bug.fixes
        [hunk] = fix.hunks
        of_hunk = {key: changes.pop(key) for key in ("before", "after") if key in changes}
        new = msgspec.structs.replace(hunk, **of_hunk)
        fix = msgspec.structs.replace(fix, hunks=(new,))
        bugs[name] = msgspec.structs.replace(bug, name=name, fixes=(fix,), **changes)
        monkeypatch.setattr(type(target), "known_bugs", lambda _: bugs)

    return change


@pytest.fixture(scope="module")
def result():
    """The result of a few runs of random traffic."""
    plan = Plan(engine="blockserve", profile=PROFILES["smoke"], seed=3, max_runs=RUNS)
    return Worker(plan, lambda _: None).work()


@pytest.mark.parametrize(
    ("requests", "bugs"),
    [
        pytest.param([WHOLE], (OF_BLOCKS,), id="first"),
        pytest.param([ODD], (OF_PROMPTS,), id="second"),
        pytest.param([WHOLE, ODD], (OF_BLOCKS, OF_PROMPTS), id="two-fixes-together"),
        pytest.param([LONG], (), id="new"),
        pytest.param([WHOLE, LONG], (), id="new-behind-a-known-one"),
    ],
)
@pytest.mark.parametrize("fingerprint", [STUCK, "another/law"], ids=["its-name", "another-name"])
def test_known_bugs_of_a_failure_are_those_whose_fixes_its_log_needs(cause_of, change, requests, bugs, fingerprint):
    for name in (OF_BLOCKS, OF_PROMPTS, USELESS):
        change(name, fingerprints=(fingerprint,))

    assert cause_of(*requests).bugs == bugs


def test_bug_whose_fix_does_not_help_is_a_namesake_that_is_not_verified(cause_of):
    cause = cause_of(LONG)

    assert cause.namesakes == dict.fromkeys([OF_BLOCKS, OF_PROMPTS, USELESS], DOES_NOT_HELP)
    assert set(cause.fails_with) == {OF_BLOCKS, OF_PROMPTS, USELESS}


@pytest.mark.parametrize(
    ("deadly", "why"),
    [
        pytest.param(["other"], "", id="with-another-log"),
        pytest.param([""], f"{DOES_NOT_HELP}: with it the process was killed", id="with-this-log"),
        pytest.param(["a", "b"], f"{NOT_TRIED}: with 2 other logs the process was killed", id="with-two-others"),
    ],
)
def test_fix_is_put_aside_after_it_killed_processes_with_two_logs(cause_of, tmp_path, deadly, why):
    log = load_log(write_log(tmp_path / "some.oplog", WHOLE))
    trials = Trials(deaths={frozenset([OF_BLOCKS]): {key or log.key: "was killed" for key in deadly}})

    cause = cause_of(WHOLE, trials=trials)

    assert (cause.bugs, cause.namesakes.get(OF_BLOCKS, "")) == (() if why else (OF_BLOCKS,), why)


def verified_without_known(log):
    failure = run_log(log).failure
    return failure is not None and not Verifier(target_for(log.header), log.header.fixes).cause_of(failure, log).bugs


def test_log_that_passes_with_each_of_two_fixes_is_of_either_bug(cause_of, change):
    change("twin-bug", copy_of=OF_BLOCKS)

    cause = cause_of(WHOLE)

    assert cause.name == f"{OF_BLOCKS} or twin-bug"


def test_fix_that_does_not_fit_does_not_disable_the_others(cause_of, change):
    change(USELESS, before="no such text")

    assert cause_of(WHOLE, ODD).bugs == (OF_BLOCKS, OF_PROMPTS)
    assert cause_of(LONG).namesakes[USELESS] == DOES_NOT_FIT


def test_fix_that_breaks_the_capture_could_not_be_tried(cause_of, change):
    change(OF_BLOCKS, after="setattr(self.pool, 'num_blocks', None)")

    assert "could not be tried" in cause_of(WHOLE).namesakes[OF_BLOCKS]


def test_nothing_is_known_of_a_log_with_a_mutant(cause_of):
    assert cause_of(WHOLE, mutant="some").bugs == ()


def test_other_failure_with_the_fixes_is_revealed(cause_of, change):
    change(OF_BLOCKS, after="getattr(self, 'no_such_attribute')")

    cause = cause_of(WHOLE)

    assert cause.revealed.startswith("AttributeError/")
    assert OF_BLOCKS in cause.fails_with


def test_failure_behind_known_bugs_is_a_finding_with_their_fixes(change):
    change(OF_BLOCKS, after="getattr(self, 'no_such_attribute')")
    plan = Plan(engine="blockserve", profile=PROFILES["smoke"], seed=3, max_runs=RUNS)

    findings = Worker(plan, lambda _: None).work().findings

    [revealed] = [finding for finding in findings.values() if finding.fingerprint.startswith("AttributeError/")]
    failure = run_log(revealed.log).failure
    assert OF_BLOCKS in revealed.log.header.fixes
    assert failure is not None
    assert failure.fingerprint == revealed.fingerprint


def test_finding_whose_shrunk_log_alone_is_of_a_known_bug_keeps_its_unshrunk_log(cause_of, tmp_path, result):
    log = load_log(write_log(tmp_path / "some.oplog", LONG, ODD))
    finding = result.findings[STUCK].changed(log=log, cause=cause_of(LONG), path=None, passed=())

    report = Reporting(tmp_path / "out", ShrinkBudget(cpu_seconds=20)).report(finding)

    assert report.path is not None
    assert report.cause.bugs == ()
    assert verified_without_known(report.log)


def test_new_stuck_bug_beside_known_ones_is_a_finding_whose_log_has_none_of_them(result, tmp_path):
    """The log fails with all fixes planted; its header names no fix, because it fails without them, too."""
    finding = Reporting(tmp_path, ShrinkBudget(cpu_seconds=20)).report(result.findings[STUCK])

    assert finding.path is not None
    log = load_log(finding.path)
    with_all = replay(log.with_fixes([OF_BLOCKS, OF_PROMPTS, USELESS]))
    assert finding.cause.bugs == ()
    assert (log.header.fixes, len(log.ops)) == ((), 2)
    assert with_all.driver.failure is not None


def test_recorded_log_that_fails_by_a_known_bug_first_is_shrunk_to_the_new_one(tmp_path):
    known, new = (load_log(write_log(tmp_path / "some.oplog", request)) for request in (WHOLE, LONG))
    OpLog(known.header, [*known.ops, *new.ops]).save(tmp_path / "recorded.oplog")
    finding = Finding(STUCK, known, 0.0, recorded=str(tmp_path / "recorded.oplog"))

    report = Reporting(tmp_path / "out", ShrinkBudget(cpu_seconds=20)).report(finding)

    assert report.inner is not None
    assert (report.inner.cause.bugs, report.inner.log.header.fixes, report.inner.ops) == ((), (), 2)


def test_each_failed_run_is_known_or_new(result):
    counts = result.tallies

    assert set(counts.known) <= {OF_BLOCKS, OF_PROMPTS, f"{OF_BLOCKS} + {OF_PROMPTS}"}
    assert counts.known.total() > 0
    assert counts.failures.keys() == {STUCK}
    assert counts.known.total() + counts.failures.total() == counts.failed_runs


def test_finding_whose_shrunk_log_passes_with_a_fix_is_of_the_known_bug(cause_of, tmp_path, result):
    log = load_log(write_log(tmp_path / "some.oplog", ODD))
    finding = result.findings[STUCK].changed(log=log, cause=cause_of(LONG), path=None)

    report = Reporting(tmp_path / "out", ShrinkBudget(cpu_seconds=20)).report(finding)

    assert (report.cause.bugs, report.path) == ((OF_PROMPTS,), None)
    assert not (tmp_path / "out").exists()


def test_campaign_says_what_is_new_first_and_then_what_is_known(result, tmp_path):
    finding = Reporting(tmp_path, ShrinkBudget(cpu_seconds=20)).report(result.findings[STUCK])
    result = replace(result, target_faults={"target/build/law": "a fault of the adapter"})
    outcome = Outcome(Plan(engine="blockserve", profile=PROFILES["smoke"]), "swarden fuzz", result, [finding])

    new, warning, *known = outcome.causes
    runs = result.tallies.failures[STUCK]
    assert new.startswith(f"new: {STUCK} \N{MULTIPLICATION SIGN}{runs}, no fix cures it; same name as ")
    assert f"{USELESS} (its fix does not help)" in new
    assert outcome.lines()[0] == new
    assert warning == WARNING
    assert all(line.startswith("known: ") and line.endswith(" (blockserve pull 7)") for line in known)
    [found] = outcome.summary()["findings"]
    assert (found["runs"], set(found["not_verified"])) == (runs, {OF_BLOCKS, OF_PROMPTS, USELESS})
    runs_of = {" + ".join(figures["bugs"]): figures["runs"] for figures in outcome.summary()["known"]}
    assert runs_of == dict(result.tallies.known)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({}, "avoided by --off; blockserve pull 7"),
        ({"repository": "an/engine@v1"}, "avoided by --off; an/engine pull 7"),
        ({"verdict": "new issue", "upstream": (OF_OTHERS,)}, "avoided by --off; a/b issue 3"),
        ({"verdict": "new issue", "upstream": ()}, "avoided by --off; no upstream issue found"),
        ({"verdict": PRIVATE}, PRIVATE),
        ({"avoided_by": ""}, "blockserve pull 7"),
    ],
)
def test_place_of_a_known_bug_says_which_flags_avoid_it(target, monkeypatch, changes, place):
    bug = msgspec.structs.replace(target.known_bugs()[OF_BLOCKS], **{"avoided_by": "--off"} | changes)
    monkeypatch.setattr(type(target), "known_bugs", lambda _: {OF_BLOCKS: bug})

    assert upstream_of(OF_BLOCKS, target) == place


def test_campaign_with_known_failures_alone_is_clean_and_says_so(result):
    outcome = Outcome(Plan(engine="blockserve", profile=PROFILES["smoke"]), "swarden fuzz", result)

    assert outcome.judgement.exit_code is ExitCode.CLEAN
    assert outcome.lines()[-1].startswith(f"failed by known bugs only ({RUNS} runs, want at least ")


def test_fix_whose_code_does_not_run_is_not_tried(cause_of, change):
    """The engine never admits the request."""
    change("elsewhere", copy_of=OF_BLOCKS, before="self.running.append(request)", after="pass")

    assert cause_of(LONG).namesakes["elsewhere"] == NOT_REACHED


def test_fix_fits_a_build_that_it_does_not_name(cause_of, target, change, monkeypatch):
    change(OF_BLOCKS)
    bugs = {
        name: msgspec.structs.replace(
            bug, fixes=tuple(msgspec.structs.replace(fix, releases=("0.0.1", "0.0.2")) for fix in bug.fixes)
        )
        for name, bug in target.known_bugs().items()
    }
    monkeypatch.setattr(type(target), "known_bugs", lambda _: bugs)

    assert cause_of(WHOLE).bugs == (OF_BLOCKS,)


def test_broad_fix_makes_no_failure_known(cause_of, change):
    change(OF_BLOCKS, broad="cures too much")

    assert cause_of(WHOLE).namesakes[OF_BLOCKS] == IS_BROAD


def test_failure_of_a_stopped_campaign_is_not_verified_and_says_so(cause_of):
    cause = cause_of(WHOLE, trials=Trials(is_stopped=lambda: True))

    assert cause.namesakes == dict.fromkeys([OF_BLOCKS, OF_PROMPTS, USELESS], f"{NOT_TRIED}: the campaign was stopped")


@pytest.mark.parametrize(
    ("requests", "fix", "known"),
    [
        pytest.param(WHOLE, "", OF_BLOCKS, id="cured"),
        pytest.param(LONG, "", "", id="same-name-and-no-fix-cures-it"),
        pytest.param(LONG, "__import__('os').abort()", "", id="its-fix-ends-the-process"),
    ],
)
def test_verdict_of_the_judge_names_the_fix_that_cures_a_failure(tmp_path, requests, fix, known):
    path = write_log(tmp_path / "some.oplog", requests)
    file = Path(sys.modules["blockserve"].__path__[0], "findings/last.toml")
    file.write_text(BUG.format(condition=LONG_OUTPUT, fixed=fix or LONG_OUTPUT, fingerprint=STUCK))

    replays = judge_alone(path, "blockserve", Rule(finds_cures=True))

    file.unlink()
    assert (replays.verdict, replays.fingerprints, replays.known) == (Verdict.FAILED, (STUCK,), known)

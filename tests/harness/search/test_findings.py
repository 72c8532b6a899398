"""The report of a finding: its shrunk log, its test and its story."""

import ast
import runpy
from pathlib import Path

import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.printable import printable
from swarden.harness.core.registry import OWN, UnknownEngine
from swarden.harness.core.replay import failure_like
from swarden.harness.report.story import CLAIMS, StoryPart
from swarden.harness.search import steering
from swarden.harness.search.campaign import Plan, Worker
from swarden.harness.search.cures import Trial
from swarden.harness.search.findings import Reporting, write, write_unshrunk
from swarden.harness.search.result import Finding, Result
from swarden.harness.search.shrink.shrink import ShrinkBudget
from tests.harness.driving import TINY

BUDGET = ShrinkBudget(executions=60)
KEPT = Path(__file__).parents[2] / "quality/oplogs/B18.oplog"


@pytest.fixture
def finding(tmp_path) -> Finding:
    """The first failure of a campaign with a planted bug."""
    plan = Plan(
        engine=OWN, profile=TINY, seed=11, seconds=60, machine="engine", mutant="B46", stop_on_first=True, out=tmp_path
    )
    [found] = Worker(plan, lambda _: None).work().findings.values()
    return found


def test_reported_finding_has_a_shrunk_log_a_test_and_a_story_with_places_in_the_code(finding, tmp_path):
    """The unshrunk log is removed."""
    reported = Reporting(tmp_path, BUDGET).report(finding)

    [test] = tmp_path.glob("test_*.py")
    assert reported.path is not None
    assert load_log(reported.path).ops == reported.log.ops
    assert reported.ops <= len(finding.log.ops)
    assert sorted(tmp_path.iterdir()) == sorted([reported.path, test])
    assert any(".py:" in line.text for line in reported.story if line.part is StoryPart.HISTORY)


def test_shrink_that_dies_leaves_its_smallest_log_in_the_file_of_the_unshrunk_one(finding, tmp_path):
    class Killed(BaseException):
        """The process dies."""

    smaller: list[Finding] = []

    def die(one: Finding) -> None:
        smaller.append(one)
        if len(smaller) == 2:
            raise Killed

    with pytest.raises(Killed):
        Reporting(tmp_path, BUDGET, on_smaller=die).report(finding)

    assert list(tmp_path.iterdir()) == [finding.path]
    assert load_log(finding.path).ops == smaller[-1].log.ops
    assert len(smaller[-1].log.ops) < len(finding.log.ops)


def test_finding_that_cannot_be_repeated_has_the_claim_of_its_law(finding, tmp_path):
    """Such a finding is one whose engine the target cannot build again."""
    written = write_unshrunk(finding, tmp_path, "when the run is repeated: no pool of this size")

    claim, note, replay = map(str, written.story)
    assert claim == f"{finding.fingerprint}: {CLAIMS[finding.invariant]}"
    assert note == "when the run is repeated: no pool of this size"
    assert replay == f"replay: swarden replay {written.path}"


def test_finding_is_sent_before_its_log_is_shrunk(monkeypatch):
    """The finding is kept if the shrink ends the process."""
    sent: list[Result | Trial] = []

    def broken(*_):
        raise ZeroDivisionError("of the harness")

    monkeypatch.setattr(steering, "shrink", broken)
    with pytest.raises(ZeroDivisionError, match="of the harness"):
        Worker(Plan(engine="demo", profile=TINY, seed=11, seconds=60), sent.append).work()

    finding, *_ = [report for result in sent if isinstance(result, Result) for report in result.findings.values()]
    assert failure_like(finding.log, finding.fingerprint) is not None


@pytest.mark.parametrize("is_stopped", [False, True], ids=["in-time", "time-is-over"])
def test_finding_that_does_not_fail_again_is_written_unshrunk(finding, tmp_path, is_stopped):
    gone = finding.changed(fingerprint="never_seen")

    reported = Reporting(tmp_path / "out", BUDGET, is_stopped=lambda: is_stopped).report(gone)

    [unshrunk] = (tmp_path / "out").glob("never_seen-*.oplog")
    [other] = (tmp_path / "out").glob("not-never_seen-*.oplog")
    assert reported.why_flaky == f"never_seen: does not fail again; both logs are kept: {unshrunk}, {other}"
    assert load_log(unshrunk).ops == finding.log.ops


@pytest.mark.parametrize(
    "fingerprint", ['x"""\nimport os\n"""', 'x\\"""\nimport os\n"""', "x\\", 'x"', "\\N{x}\ud800", "AnError/a.B.c+d"]
)
def test_fingerprint_stays_within_the_docstring_of_the_generated_test(tmp_path, fingerprint):
    """An op-log from outside can expect any text."""
    write(load_log(KEPT), fingerprint, tmp_path)

    [test] = tmp_path.glob("test_*.py")
    module = ast.parse(test.read_text())
    imports = ["import swarden", "from swarden.kit import Header, OpLog, ops"]  # public names; all others may change
    assert [ast.unparse(node) for node in module.body[1:3]] == imports
    assert [type(node) for node in module.body[3:]] == [ast.Assign, ast.FunctionDef]
    assert ast.get_docstring(module, clean=False) == printable(fingerprint)
    assert (test.stem.isidentifier(), getattr(module.body[-1], "name", "")) == (True, test.stem)


@pytest.fixture
def generated(tmp_path):
    """Runs the generated test after an edit; its op-log is deleted."""
    log = load_log(KEPT)
    write(log, "a bug", tmp_path).unlink()
    [path] = tmp_path.iterdir()

    def run(old="", new=""):
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
        runpy.run_path(str(path))[path.stem]()

    return run


def test_generated_test_fails_with_the_story_while_the_bug_is_present(generated):
    with pytest.raises(AssertionError, match=r"step 1 +taken by request r1 +scheduler/custody\.py:\d+ grow"):
        generated()


def test_generated_test_passes_without_the_bug(generated):
    generated("mutant='B18'", "mutant=None")


def test_generated_test_fails_if_its_engine_is_not_installed(generated):
    with pytest.raises(UnknownEngine, match="engine 'toy' is not installed; install its package"):
        generated("engine='swarden'", "engine='toy'")

"""swarden engines try, over releases of the demo's engine, each with another planted bug."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swarden.harness.commands import try_release
from swarden.harness.commands.try_release import Page, Trial
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Drain, Submit
from swarden.harness.search.campaign import Plan
from swarden.harness.search.profiles import PROFILES
from tests.harness.some_targets import swarden_with
from tests.harness.some_wheels import wheel

TARGET = """
from contextlib import ExitStack
from pathlib import Path
from swarden.harness.core.releases import Releases
from swarden.harness.engines.demo.target import DemoTarget
from swarden.harness.kit.parts import BootedRelease, ReleaseParts
from swarden.harness.kit.released import ReleasedTarget

BUGS = {"1.0.0": "one-token-too-many", "1.2.0": "one-token-too-many"}
BUGS["checkout-head"] = "one-token-too-many"  # 1.1.0 has the leak of the demo's engine
PLANTED = ExitStack()
UNREACHED = "0.9.0"  # has the bug of 1.2.0, but for the first process, which is that of its campaign
CAMPAIGN = Path("campaign-of-0.9.0")

def load(version, folders):
    return ReleaseParts(version, "tinyserve", {}, {})

class TinyTarget(ReleasedTarget, DemoTarget):
    name = "tinyserve"
    load = BootedRelease("tinyserve", load, parts={"Pool": ("pool:Pool",)})
    releases = Releases("tinyserve", Path("engines"), Path(__file__).with_name("packages.txt"), "1 kB", "2 kB")

    def prepare_process(self):
        super().prepare_process()
        if self.version() == UNREACHED and CAMPAIGN.exists():
            BUGS[UNREACHED] = BUGS["1.2.0"]
        elif self.version() == UNREACHED:
            CAMPAIGN.touch()
        if (bug := BUGS.pop(self.version(), None)) is not None:
            PLANTED.enter_context(self.mutant(bug).planted())

    def build(self, config):
        if self.version() == "1.3.0":
            raise AttributeError("'Engine' object has no attribute 'add'")
        return super().build(config)
"""
RELEASES = ("0.9.0", "1.0.0", "1.1.0", "1.2.0", "1.3.0")
SHORT = ("--runs", "12", "--workers", "1")
BUG = """
first = "1.0.0"
fixed = "1.1.0"
tried = "1.0.0"
effect = "an answer is too long"
title = "one token too many"
cause = "the last chunk is full"
fingerprints = ["outputs_stay_within_max_new_tokens/request/too_long"]
searched = "2026-11-27"
verdict = "not worth posting"
"""


@pytest.fixture(scope="module")
def swarden(tmp_path_factory):
    folder = tmp_path_factory.mktemp("releases")
    (folder / "packages.txt").write_text("helper==4.0.0\n")
    (folder / "findings").mkdir()
    (folder / "findings/one-token.toml").write_text(BUG)
    header = Header(engine="tinyserve", version="1.0.0", configs=[{}])
    log = OpLog(header, [Submit(tokens=tuple(range(8)), max_new_tokens=2), Drain()])
    log.save(folder / "findings/one-token.oplog")
    for name, version in (("helper", "4.0.0"), *(("tinyserve", version) for version in RELEASES)):
        wheel(folder, name, version)
    run = swarden_with(folder, TARGET, {"tinyserve": "TinyTarget"})
    assert run("engines", "install", "tinyserve==1.1.0").returncode == 0
    (folder / "engines/1.1.0/tinyserve/pool.py").write_text("class Pool: ...\n\n\nclass Ring(Pool): ...\n")
    return run


def _sections(text):
    parts = [part.partition("\n\n") for part in text.split("\n## ")]
    return {title: body.strip() for title, _, body in parts[1:]}


def test_bug_of_an_older_release_passes_and_a_leak_of_an_untried_one_may_be_an_owner(swarden):
    """No earlier release is installed, so the one before 1.1.0 is installed, too."""
    run = swarden("engines", "try", "tinyserve==1.1.0", *SHORT)

    page = _sections(run.stdout)
    assert run.returncode == 5, run.stderr
    assert "tinyserve==1.0.0: downloads" in run.stderr
    assert page["Newly passing"].splitlines()[-1] == "| one-token.oplog |"
    assert "unit\\_has\\_one\\_owner" in page["Unknown owners"]
    assert (page["Broken"], page["Newly failing"]) == ("None.", "None.")
    assert (
        "new       pool: Pool, Ring(Pool)" in page["What the adapter reads"]
        or "Ring(Pool)" in page["What the adapter reads"]
    )


def test_interrupted_campaign_ends_the_command(monkeypatch):
    """Nothing is judged by a campaign that was interrupted, and no log is replayed."""
    campaign = SimpleNamespace(outcome=lambda _: SimpleNamespace(is_interrupted=True))
    monkeypatch.setattr(try_release, "ended_campaigns", lambda *_: nullcontext([campaign]))

    with pytest.raises(KeyboardInterrupt):
        try_release.trial_of("demo", {}, Plan("demo", PROFILES["smoke"], 0, 1.0, 1))


def test_bug_that_comes_back_fails_newly(swarden):
    run = swarden("engines", "try", "tinyserve==1.2.0", "--against", "1.1.0", *SHORT)

    page = _sections(run.stdout)
    assert run.returncode == 1, run.stderr
    assert "outputs\\_stay\\_within\\_max\\_new\\_tokens" in page["Newly failing"]
    assert "| known | one-token.oplog | passes |" in page["Newly failing"]


def test_failure_that_only_the_campaign_on_the_older_release_has_missed_is_not_new(swarden):
    assert swarden("engines", "install", "tinyserve==0.9.0").returncode == 0

    run = swarden("engines", "try", "tinyserve==1.2.0", "--against", "0.9.0", *SHORT)

    page = _sections(run.stdout)
    assert page["Newly failing"] == "None.", run.stderr
    assert "outputs_stay_within_max_new_tokens" in page["Failing on both"].replace("\\", "")


def test_checkout_fails_newly_with_what_passes_on_its_base(swarden, tmp_path):
    """The gate of a pull request: the head has a bug that the base has not."""
    for name in ("base", "head"):
        (tmp_path / name / "tinyserve").mkdir(parents=True)
        (tmp_path / name / "tinyserve/__init__.py").touch()
        linked = swarden("engines", "install", f"tinyserve==checkout-{name}", "--from", str(tmp_path / name))
        assert linked.stdout.startswith(f"tinyserve==checkout-{name} is {tmp_path / name}/tinyserve; use it with ")

    run = swarden(*["engines", "try", "tinyserve==checkout-head", "--against", "checkout-base", *SHORT])

    page = _sections(run.stdout)
    assert run.returncode == 1, run.stderr
    assert "outputs\\_stay\\_within\\_max\\_new\\_tokens" in page["Newly failing"]


@pytest.mark.parametrize(
    ("before", "is_found_before", "place", "code"),
    [
        ("passes", False, "newly_failing", ExitCode.VIOLATED),
        ("fails with another/law", False, "newly_failing", ExitCode.VIOLATED),
        ("unknown setting x", False, "unanswered", ExitCode.RED),
        ("fails", False, "failing_on_both", ExitCode.CLEAN),
        ("passes", True, "failing_on_both", ExitCode.CLEAN),
    ],
)
def test_finding_is_new_only_if_the_older_release_does_not_have_it(before, is_found_before, place, code):
    path = Path("a.oplog")
    finding: Any = SimpleNamespace(fingerprint="law/request/code", path=path, is_confirmed=True)
    outcomes: Any = [SimpleNamespace(findings=found) for found in ([finding] * is_found_before, [finding])]
    old, new = [Trial(outcome, (), {}) for outcome in outcomes]
    target: Any = SimpleNamespace(version=lambda: "1.1.0", known_bugs=dict)
    comparison: Any = SimpleNamespace(version="1.0.0", differences=())
    page = Page(target, comparison, (old, new), {path: before})

    places = ("newly_failing", "unanswered", "failing_on_both")
    assert page.code == code
    assert [name for name in places if getattr(page, name)] == [place]


def test_release_that_cannot_be_built_is_broken_and_its_laws_are_not_applicable(swarden, tmp_path):
    path = tmp_path / "page.md"
    run = swarden("engines", "try", "tinyserve==latest", "--against", "1.1.0", *SHORT, "--page", str(path))

    page = _sections(path.read_text())
    assert (run.returncode, run.stdout) == (2, "")
    assert "'Engine' object has no attribute 'add'" in page["Broken"]
    assert "unit\\_has\\_one\\_owner: was evaluated on 1.1.0, and not here" in page["Not applicable"].replace(
        "_", "\\_"
    )

"""The example of docs/your-engine.md: its three levels check what the guide says, and find bugs of their level."""

from pathlib import Path

import pytest

import swarden
from swarden import kit
from swarden.harness.core.mutant import Mutant
from swarden.harness.core.registry import target_of
from swarden.harness.releases.target_check import TargetCheck

ROOT = Path(__file__).parents[2]
ENTRIES = """
[swarden.engines]
cacheserve-pools = tests.examples.cacheserve.pools:PoolsTarget
cacheserve-content = tests.examples.cacheserve.content:ContentTarget
cacheserve = tests.examples.cacheserve.records:CacheTarget
"""
FILES = {"cacheserve-pools": "pools", "cacheserve-content": "content", "cacheserve": "records"}
ENGINE, POOL = "tests.examples.cacheserve.engine:Engine", "tests.examples.cacheserve.engine:BlockPool"
# By level, a bug that it finds and the level below it does not: where, the healthy text, the broken one, and the law.
BUGS = {
    "cacheserve-pools": (
        f"{ENGINE}._finish",
        "self.pool.release(request.blocks)",
        'reason != "stop" and self.pool.release(request.blocks)',
        "unit_has_one_owner",
    ),
    "cacheserve-content": (f"{ENGINE}.keys", "(request.salt, *", "(0, *", "slots_hold_their_prefix"),
    "cacheserve": (
        f"{POOL}.share",
        "self.counts[block] += 1",
        "self.counts[block] += self.counts[block] != 1 or block not in self.key_of",
        "cached_units_count_their_readers",
    ),
}


def laws_that_find(bug, level, folder):
    """The laws of the findings of a campaign of a level with a bug."""
    at, healthy, broken, law = BUGS[bug]
    with Mutant("planted", "made up", (kit.Hunk(at, healthy, broken),), (law,)).planted():
        outcome = swarden.fuzz(level, runs=60, seed=1, out=folder, shrink_seconds=0)
    return {name for finding in outcome.findings for name in finding.laws}


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    """The three levels are installed as targets."""
    info = tmp_path / "cacheserve-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cacheserve\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("tests.examples.cacheserve.pools.PoolsTarget.version", lambda _: "1.0", raising=False)


@pytest.mark.parametrize("level", FILES)
def test_level_is_correct_and_has_the_lines_and_laws_of_the_guide(level):
    check = TargetCheck(target_of(level))
    check.run(24, seed=1)

    path = f"tests/examples/cacheserve/{FILES[level]}.py"
    lines = (ROOT / path).read_text().count("\n")
    assert (check.lines(), dict(check.failures)) == ([], {})
    row = f"[`{FILES[level]}.py`](../{path}) | {lines} | {len(check.laws())} |"
    assert row in (ROOT / "docs/your-engine.md").read_text()


@pytest.mark.parametrize("level", BUGS)
def test_bug_is_found_at_its_level(level, tmp_path):
    assert BUGS[level][-1] in laws_that_find(level, level, tmp_path)


@pytest.mark.parametrize(
    ("bug", "below"), [("cacheserve-content", "cacheserve-pools"), ("cacheserve", "cacheserve-content")]
)
def test_bug_is_not_found_below_its_level(bug, below, tmp_path):
    assert BUGS[bug][-1] not in laws_that_find(bug, below, tmp_path)

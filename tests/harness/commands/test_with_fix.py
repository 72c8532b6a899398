"""--with-fix: known bugs are fixed in a campaign and in a replay."""

import json

import pytest

from tests.harness.some_bugs import (
    BUG,
    LONG,
    LONG_OUTPUT,
    ODD,
    ODD_PROMPT,
    OF_BLOCKS,
    OF_PROMPTS,
    STUCK,
    WHOLE,
    swarden_with_bugs,
    write_log,
)


@pytest.fixture(scope="module")
def swarden(tmp_path_factory):
    return swarden_with_bugs(tmp_path_factory.mktemp("bugs"))


@pytest.mark.parametrize(
    ("prompts", "fixes", "verdict"),
    [
        pytest.param([WHOLE], [], "FAILED", id="without"),
        pytest.param([WHOLE], [OF_BLOCKS], "FIXED", id="its-fix"),
        pytest.param([WHOLE], [OF_PROMPTS], "FAILED", id="fix-of-another-bug"),
        pytest.param([WHOLE, ODD], [OF_BLOCKS], "FAILED", id="one-of-two"),
        pytest.param([WHOLE, ODD], [OF_BLOCKS, OF_PROMPTS], "FIXED", id="both"),
        pytest.param([WHOLE, ODD], ["all"], "FIXED", id="all"),
        pytest.param([LONG], ["all"], "FAILED", id="not-known"),
    ],
)
def test_replay_with_a_fix_says_whether_the_log_passes(swarden, prompts, fixes, verdict):
    path = write_log(swarden.folder / "some.oplog", *prompts)

    run = swarden("replay", path, *(word for name in fixes for word in ("--with-fix", name)), "--json")

    [replayed] = json.loads(run.stdout)["replays"]
    assert replayed["verdict"] == verdict


@pytest.mark.parametrize(
    "command", [("fuzz", "--engine", "blockserve"), ("replay", "some.oplog")], ids=["fuzz", "replay"]
)
def test_unknown_fix_is_a_misuse(swarden, command):
    write_log(swarden.folder / "some.oplog", WHOLE)

    run = swarden(*command, "--with-fix", "nope")

    assert run.returncode == 2
    assert "fix nope: blockserve has no known bug of this name; it has " in run.stdout + run.stderr


@pytest.mark.parametrize(
    ("fixed", "text"),
    [
        pytest.param("0.6.0", "without the fix of former-bug: blockserve 1.0.0 does not have this bug", id="gone"),
        pytest.param(None, "fix of a known bug: former-bug in blockserve.engine:Engine._admit", id="still-there"),
    ],
)
def test_fix_of_a_header_is_left_out_where_the_release_does_not_have_its_bug(swarden, fixed, text):
    """The log was found behind a fix, which is for earlier releases; its code is still there."""
    bug = BUG.format(condition=ODD_PROMPT, fixed="False", fingerprint=STUCK).replace('"9.9.9"]', '"0.5.0"]')
    file = swarden.folder / "blockserve/findings/former-bug.toml"
    file.write_text(f'fixed = "{fixed}"\n{bug}' if fixed else bug)
    path = write_log(swarden.folder / "some.oplog", WHOLE)
    path.write_text(path.read_text().replace('"configs"', '"fixes": ["former-bug"], "configs"', 1))

    run = swarden("replay", path)

    file.unlink()
    assert run.returncode == 3, run.stdout
    assert text in run.stdout


def test_crash_behind_a_known_bug_is_a_finding_with_its_fix(swarden):
    """The failure without the fix stays a finding; the fix is put aside after the second log that crashes with it."""
    crash_with_fix = "crash/SIGSEGV/with deadly-bug"
    kills = "getattr(__import__('os'), 'kill')(getattr(__import__('os'), 'getpid')(), 11)"
    file = swarden.folder / "blockserve/findings/deadly-bug.toml"
    file.write_text(BUG.format(condition=LONG_OUTPUT, fixed=kills, fingerprint=STUCK))

    run = swarden("fuzz", "--engine", "blockserve", "--runs", 12, "--workers", 1, "--seed", 3, "--json")

    campaign = json.loads(run.stdout)
    findings = {finding["fingerprint"]: finding for finding in campaign["findings"]}
    assert findings.keys() == {STUCK, crash_with_fix}
    crash = swarden.folder / findings[crash_with_fix]["path"]
    assert json.loads(crash.read_text().splitlines()[0])["fixes"] == ["deadly-bug"]
    assert "FAILED" in swarden("replay", crash).stdout
    assert "was killed by SIGSEGV" in findings[STUCK]["not_verified"]["deadly-bug"]
    assert campaign["runs"] == 12
    file.unlink()


def test_engine_without_a_fix_has_none_to_plant(swarden):
    run = swarden("fuzz", "--engine", "demo", "--with-fix", "all")

    assert run.returncode == 2
    assert "no fix of a known bug fits demo" in run.stderr


def test_log_of_a_campaign_with_a_fix_is_replayed_with_it(swarden):
    """The header of the log and the printed command have the fix."""
    options = ("--runs", 12, "--workers", 1, "--seed", 3, "--with-fix", OF_BLOCKS, "--with-fix", OF_PROMPTS, "--json")
    run = swarden("fuzz", "--engine", "blockserve", *options)

    campaign = json.loads(run.stdout)
    [path] = [finding["path"] for finding in campaign["findings"] if finding["fingerprint"] == STUCK]
    text = (swarden.folder / path).read_text()
    assert json.loads(text.splitlines()[0])["fixes"] == [OF_BLOCKS, OF_PROMPTS]
    assert f"--with-fix {OF_BLOCKS} --with-fix {OF_PROMPTS}" in campaign["command"]
    assert "FAILED" in swarden("replay", path).stdout

"""Nights that drive a server."""

import json

from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.nightly.archive import Archive, Status
from tests.harness.servers.some_servers import BEHIND_LEARNING, free_port, our_server, started_by_hand
from tests.harness.servers.test_server import EVICTS
from tests.harness.some_processes import swarden_process

NIGHT = ("nightly", "--profile", "smoke", "--runs", 1, "--seed", 1, "--archive", "a")
WRONG = "logits_match_uncached_model/request/wrong_logits"


def test_finding_of_a_server_is_known_then_fixed_and_stays_when_the_server_is_gone(tmp_path):
    log = OpLog(Header(engine="server", configs=[{"last_token": 60, "model": "swarden"}]), EVICTS)
    log.save(tmp_path / "evicts.oplog")
    with our_server("S9") as url:
        imported = swarden_process("archive", "import", "evicts.oplog", "--archive", "a", "--url", url, cwd=tmp_path)
        known = swarden_process(*NIGHT, "--url", url, "--set", "probe_len=0", "--json", cwd=tmp_path)
    with our_server() as url:
        fixed = swarden_process(*NIGHT, "--url", url, "--set", "probe_len=0", cwd=tmp_path)
    gone = swarden_process(*NIGHT, "--url", url, cwd=tmp_path)

    assert imported.returncode == 0, imported.stderr
    night = json.loads(known.stdout)
    assert (known.returncode, night["exit_code"]) == (1, 1), known.stderr
    wrong = [finding["sighting"] for finding in night["findings"] if finding["fingerprint"] == WRONG]
    assert [sighting["status"] for sighting in wrong] == [Status.RECURRING]
    assert night["settings"]["max_context_len"] == 1024
    assert fixed.returncode == 0, fixed.stderr
    [finding] = Archive(tmp_path / "a").findings([])
    assert finding.summary().status is Status.FIXED
    report = sorted(tmp_path.glob("a/nights/*/report.md"))[-1].read_text()
    assert "log-probabilities differ by" in report
    assert "with judged answers" in report
    assert gone.returncode == 2
    assert gone.stderr.endswith(f"swarden: {url} does not answer; start the server again, or give --restart\n")
    assert len(list(tmp_path.glob("a/nights/*"))) == 2


def test_night_ends_with_the_finding_of_a_server_that_died_without_restart(tmp_path):
    with started_by_hand(free_port(), BEHIND_LEARNING) as url:
        run = swarden_process(
            "nightly",
            "--profile",
            "smoke",
            "--minutes",
            5,
            "--seed",
            1,
            "--archive",
            "a",
            "--url",
            url,
            "--json",
            cwd=tmp_path,
        )

    assert run.returncode == 1, run.stderr
    night = json.loads(run.stdout)
    [finding] = night["findings"]
    assert (finding["fingerprint"], finding["sighting"]["status"]) == ("ServerDied/unknown", Status.NEW)
    gone = f"{url} does not answer; start the server again, or give --restart"
    assert (finding["sighting"]["why"], night["engines"][0]["owed"]) == (gone, [gone])
    assert list(tmp_path.glob("a/nights/*/report.md"))
    assert "--minutes 5.0 --profile smoke --seed 1" in night["command"]

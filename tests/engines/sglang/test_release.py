"""The scheduler of a release behind swarden: it serves, its runs can be replayed, and a known bug is found in it."""

import json
import subprocess
import sys

import pytest

RELEASES = ("0.5.12.post1", "0.5.23")
WITH_USE_AFTER_FREE = "0.5.12.post1"  # PR 29352, gone in 0.5.15


def swarden(*arguments, codes):
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli", *map(str, arguments), "--json"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode in codes, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("release", RELEASES)
def test_requests_are_served_as_the_reference_predicts(release, tmp_path):
    log = tmp_path / "run.oplog"
    header = {"format": 2, "engine": "sglang", "version": release, "configs": [{"overlap": True, "chunk_len": 16}]}
    ops = [{"op": "submit", "recipe": {"stretch": n}, "max_new_tokens": 9} for n in (3, 20, 20, 41)]
    log.write_text(
        "".join(json.dumps(line) + "\n" for line in (header, *ops, {"op": "step", "count": 4}, {"op": "drain"}))
    )

    [replay] = swarden("replay", log, codes=(0,))["replays"]

    assert (replay["verdict"], replay["version"], replay["diverged"]) == ("FIXED", release, None)


def test_use_after_free_is_found_shrunk_and_replayed_with_equal_states(tmp_path):
    engine = f"sglang=={WITH_USE_AFTER_FREE}"
    limits = ("--runs", 150, "--seed", 1, "--workers", 1, "--out", tmp_path)

    summary = swarden("fuzz", "--engine", engine, *limits, codes=(1,))

    findings = {one["fingerprint"]: one for one in summary["findings"]}
    [found] = [one for name, one in findings.items() if name.startswith("shared_pages_match_tree_path/")]
    assert found["ops"] <= 8
    replays = swarden("replay", found["path"], codes=(1,))["replays"]
    assert [(one["verdict"], one["failures"], one["runs"]) for one in replays] == [("FAILED", 3, 3)]


def test_op_logs_of_two_releases_are_replayed_in_one_command(tmp_path):
    for release in RELEASES:
        header = {"format": 2, "engine": "sglang", "version": release, "configs": [{}]}
        lines = (header, {"op": "submit"}, {"op": "drain"})
        (tmp_path / f"{release}.oplog").write_text("".join(json.dumps(line) + "\n" for line in lines))

    replays = swarden("replay", *sorted(tmp_path.iterdir()), codes=(0,))["replays"]

    assert [one["version"] for one in replays] == list(RELEASES)

"""Releases of SGLang run random traffic, and a bug of one of them is found, shrunk and replayed."""

import subprocess
import sys

from tests.engines.some_runs import random_runs, shrunk_failure

RUNS = 10
WITH_THE_BUG = "0.5.12.post1"
USE_AFTER_FREE = "shared_pages_match_tree_path"  # sglang pull 29352


def test_random_runs_give_predicted_outputs_and_replay_alike(release, on_release):
    """A run of a release with known bugs may end early by one of them; until then all outputs are right."""
    result = on_release(release, random_runs, f"sglang=={release}", RUNS)

    assert result.runs == RUNS
    assert result.evaluated["outputs_match_reference"] >= RUNS
    assert "outputs_match_reference" not in result.failed
    assert result.diverged == []


def test_use_after_free_is_found_shrunk_and_replayed(on_release, tmp_path):
    """The replay is in another process: its digests are those of the log, or it would exit with 4."""
    path = tmp_path / "found.oplog"

    assert on_release(WITH_THE_BUG, shrunk_failure, f"sglang=={WITH_THE_BUG}", USE_AFTER_FREE, 3, path, 8)
    again = subprocess.run(
        [sys.executable, "-m", "swarden.harness.cli", "replay", path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (again.returncode, again.stdout.split()[0]) == (1, "FAILED"), again.stdout + again.stderr

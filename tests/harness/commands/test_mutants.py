"""`swarden mutants run`: the results of searches, the file of results, and errors before the first search."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from swarden.harness.core.admission import load_log
from tests.harness.some_commands import swarden
from tests.harness.some_processes import swarden_process, wait_until
from tests.harness.some_targets import swarden_with

WINDOW = '"swarden.engine_under_test.components:kept_len"'
LAWS = (
    "frontiers_spare_the_window",
    "published_prefixes_match",
    "units_in_flight_are_pinned",
    "slots_hold_their_prefix",
    "locks_cover_pages_read",
)
OWN = f"""
from swarden.harness.core.mutant import Hunk, Mutant

def planted(id, healthy, broken, *laws, **more):
    return Mutant(id, "made up for a test", (Hunk({WINDOW}, healthy, broken),), laws, **more)

LISTED = planted("listed", "max(", "min(", *{LAWS})
UNLISTED = planted("of my own/unlisted", "max(", "min(", "units_move_only_by_their_owner")
HARMLESS = planted("harmless", "return ", "pass\\n    return ", "stuck")
CRASHING = planted("crashing", "return ", "import os; os.kill(os.getpid(), 9)\\n    return ", "stuck")
"""
RELEASED = f"""
from pathlib import Path
from swarden.harness.core.mutant import Hunk, Mutant
from swarden.harness.core.releases import Releases
from swarden.harness.engines.own.target import OwnTarget

class ReleasedTarget(OwnTarget):
    name = "tinyserve"
    releases = Releases("tinyserve", Path("engines"), Path("packages.txt"), "1 kB", "2 kB")

    def version(self):
        return "1.0"

    catalog = [
        Mutant(id, "made up", (Hunk({WINDOW}, text, "min("),), ("stuck",))
        for id, text in (("fits", "max("), ("stale", "no such text"))
    ]
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A file with mutants of the user."""
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


@pytest.fixture
def searching(own, tmp_path):
    """A command that has finished one search and runs a long one: its process, and the ids of its child processes."""
    arguments = ("mutants", "run", "--mutants", own.name, "listed", "harmless", "--seeds", "1", "--seconds", "600")
    with subprocess.Popen(
        [sys.executable, "-c", "from swarden.harness.cli import main; main()", *arguments],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[3]), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(lambda: len(kept(tmp_path)) == 1 and children(process.pid))
        yield process, children(process.pid)
        process.kill()


def children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def kept(folder):
    path = folder / ".swarden/mutants/seeds.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_mutants(own, *arguments, cwd):
    return swarden("mutants", "run", "--mutants", own, *arguments, cwd=cwd)


def test_bugs_are_listed_with_their_status(tmp_path):
    """A bug that does not fit the code of a release is listed as such."""
    run = swarden_with(tmp_path, RELEASED, {"tinyserve": "ReleasedTarget"})

    listed = run("mutants", "--engine", "tinyserve")
    assert listed.stdout.splitlines() == ["fits planted: made up", "stale does not fit 1.0: made up"], listed.stderr
    assert json.loads(run("mutants", "--engine", "tinyserve", "--json").stdout) == {
        "mutants": [
            {"id": "fits", "status": "planted", "source": "made up"},
            {"id": "stale", "status": "does not fit 1.0", "source": "made up"},
        ]
    }


@pytest.mark.parametrize("command", [("run", "no such id"), ("matrix",), ("list",)], ids=lambda one: one[0])
def test_engine_before_the_command_is_that_of_the_command(tmp_path, command):
    refused = swarden("mutants", "--engine", "tinyserve", *command, cwd=tmp_path)

    assert (refused.returncode, "engine 'tinyserve' is not installed" in refused.stderr) == (2, True), refused


def test_bug_that_a_law_of_its_list_detects_is_found(own, tmp_path):
    """The figures of each seed are in the JSON output, and in the file of results."""
    run = run_mutants(own, "listed", "--seeds", 2, "--workers", 2, "--json", cwd=tmp_path)

    [mutant] = json.loads(run.stdout)["mutants"]
    assert run.returncode == 0, run.stderr
    assert (mutant["found"], mutant["seeds_found"], mutant["runs"] > 0) == (True, 2, True)
    assert {search["law"] for search in mutant["searches"]} <= set(LAWS)
    by_seed = {search["seed"]: search for search in mutant["searches"]}
    assert {search["seed"]: search for search in kept(tmp_path)} == by_seed


def test_bug_that_another_law_detects_is_red_and_reported_with_that_law(own, tmp_path):
    """The op-log can be replayed if SWARDEN_MUTANTS names the file of the mutant."""
    run = run_mutants(own, "of my own/unlisted", "--seeds", 1, cwd=tmp_path)

    [search] = kept(tmp_path)
    again = swarden_process("replay", search["path"], cwd=tmp_path, SWARDEN_MUTANTS=str(own))
    without = swarden("replay", search["path"], cwd=tmp_path)
    assert run.returncode == 5, run.stderr
    assert "found by another law 1 of 1" in run.stdout
    assert f"{search['law']}; replay: SWARDEN_MUTANTS={own} swarden replay {search['path']}\n" in run.stdout
    assert search["law"] not in ("", "units_move_only_by_their_owner")
    assert load_log(tmp_path / search["path"]).header.mutant == "of my own/unlisted"
    assert (again.returncode, again.stdout.split()[0]) == (1, "FAILED")
    assert (without.returncode, without.stdout) == (
        2,
        f"ERROR {search['path']}: mutant of my own/unlisted: not in the catalogue, nor in a file that SWARDEN_MUTANTS "
        "names; see 'swarden mutants'\n",
    )


def test_search_for_a_missed_bug_uses_all_its_cpu_seconds(own, tmp_path):
    run = run_mutants(own, "harmless", "--seeds", 1, "--seconds", 1, cwd=tmp_path)

    [search] = kept(tmp_path)
    assert run.returncode == 5, run.stderr
    assert search["outcome"] == "missed"
    assert search["search_cpu_seconds"] >= 1
    assert search["runs"] > 0
    assert run.stdout.rstrip().endswith("red: harmless: missed; want 90% of the seeds to find it by stuck")


def test_search_whose_process_dies_has_found_the_bug_and_other_searches_continue(own, tmp_path):
    run = run_mutants(own, "crashing", "listed", "--seeds", 1, cwd=tmp_path)

    assert run.returncode == 5, run.stderr
    assert [(search["mutant"], search["outcome"]) for search in kept(tmp_path)] == [
        ("crashing", "found by another law"),
        ("listed", "found"),
    ]
    [died, _] = kept(tmp_path)
    assert (
        f"found by another law: worker died: SIGKILL; replay: SWARDEN_MUTANTS={own} swarden replay {died['path']}\n"
        in (run.stdout)
    )
    assert load_log(tmp_path / died["path"]).ops


def test_finished_searches_are_kept_and_reported_after_an_interrupt(searching, tmp_path):
    process, searches = searching

    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate()

    assert process.returncode == 130, stderr
    assert stderr.splitlines()[1:] == ["interrupted after 1 of 2 searches; the others are discarded"]
    assert "found 1 of 1" in stdout
    assert "red: harmless: not searched for; " in stdout
    assert [search["mutant"] for search in kept(tmp_path)] == ["listed"]
    assert [pid for pid in searches if Path(f"/proc/{pid}").exists()] == []


def test_search_ends_with_its_command(searching):
    process, searches = searching

    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in searches))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(("B0",), "mutant B0: not in the catalogue, nor in a file that SWARDEN_MUTANTS", id="no-such-id"),
        pytest.param(("listed", "--out", "own.py"), "--out: own.py cannot be written: File exists", id="out-is-a-file"),
        pytest.param((), "stale: swarden.engine_under_test.components:kept_len has 'no such text' 0 times", id="stale"),
    ],
)
def test_invalid_mutant_is_refused_in_one_line_before_the_first_search(tmp_path, arguments, message):
    (tmp_path / "own.py").write_text(f'{OWN}\nSTALE = planted("stale", "no such text", "", "stuck")\n')

    run = swarden("mutants", "run", "--mutants", "own.py", *arguments, cwd=tmp_path)

    [line] = run.stderr.splitlines()
    assert line.startswith(f"swarden: {message}")
    assert (run.returncode, run.stdout) == (2, "")
    assert [path.name for path in tmp_path.iterdir()] == ["own.py"]

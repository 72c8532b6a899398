"""`swarden attach` checks the scheduler of a process that swarden does not build (some_server.py)."""

import re
from functools import cache
from pathlib import Path

import pytest

from swarden.harness.engines.sglang.boot import boot
from swarden.harness.engines.sglang.target import SGLANG
from tests.engines.sglang.some_server import use_after_free
from tests.engines.some_servers import PLANTED, log_named_in, replayed, run_attached

SERVER = Path(__file__).with_name("some_server.py")
USE_AFTER_FREE = "unit_has_one_owner/full page/free_in_use"
NODES_IN_PYTHON = {"SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND": "python"}  # a census reads the nodes of the tree
LEVELS = {"sums": "pools_conserve_units/full pool/too_many", "audit": USE_AFTER_FREE, "census": USE_AFTER_FREE}
REPLAYED = {
    "event_loop_normal": (),
    "event_loop_overlap": ("--overlap",),
    "full attention": ("--full",),
    "full attention, overlap, pages of one token": ("--full", "--overlap", "--page-size", "1"),
}
SESSIONS = ("--sessions", "3", "--requests", "9", "--slots", "2048")
SESSIONS_OF_LOOPS = {"sessions": SESSIONS, "sessions, overlap": (*SESSIONS, "--overlap")}
HEALTHY = {**REPLAYED, **SESSIONS_OF_LOOPS}
BROKEN = {f"{name}, use after free": ("--bug", *options) for name, options in HEALTHY.items()}
SERVERS = {**HEALTHY, **BROKEN, "broken check": ("--broken-check",)}


@pytest.fixture(scope="module")
def served(on_release, release, tmp_path_factory):
    """Runs servers with the check attached, and boots the release once: `served(level)` has their ends by name."""
    on_release(release, int)  # fails if the release is not installed

    @cache
    def run(level, names=tuple({**HEALTHY, **BROKEN}), on_violation="raise"):
        options = [
            "sglang",
            "--level",
            level,
            "--on-violation",
            on_violation,
            "--out",
            tmp_path_factory.mktemp("strict"),
        ]
        return run_attached(
            SERVER,
            list(map(str, options)),
            {name: SERVERS[name] for name in names},
            folders=SGLANG.folders_of(release),
            environment=NODES_IN_PYTHON if level == "census" else {},
        )

    return run


def replayed_by(release: str, path: Path):
    """A replay of a log in the process of a release, with the bug planted."""
    boot(release, SGLANG.folders_of(release))
    return replayed(path, use_after_free)


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("level", LEVELS)
def test_healthy_server_serves_all_requests_without_a_word(level, name, served):
    done = served(level)[name]

    assert (done.code, done.stdout) == (0, f"served {9 if '--sessions' in SERVERS[name] else 12} requests"), done.stderr
    assert "attached to the scheduler, level " + level in done.stderr
    assert "NOT ATTACHED" not in done.stderr
    assert "capacity" not in done.stderr


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("level", LEVELS)
def test_use_after_free_is_raised(level, name, served):
    done = served(level)[name]

    assert done.code == 1
    assert "MemoryViolation: " in done.stderr
    assert LEVELS[level].split("/")[0] in done.stderr, done.stderr
    assert "one too many" in done.stderr


@pytest.mark.parametrize("name", REPLAYED)
@pytest.mark.parametrize("level", LEVELS)
def test_log_of_a_use_after_free_fails_in_the_step_in_which_it_was_raised(level, name, served, on_release, release):
    path = log_named_in(served(level)[f"{name}, use after free"])

    assert path.stat().st_mode & 0o777 == 0o600
    again = on_release(release, replayed_by, release, path)
    assert LEVELS[level] in again.fingerprints, again.fingerprints
    assert again.is_in_last_step


def test_use_after_free_is_logged_and_the_server_goes_on_until_its_own_idle_check(served):
    name = "event_loop_normal, use after free"
    done = served("audit", (name,), "log")[name]

    logged, ended = done.stderr.find("owned by free and request r1"), done.stderr.find("ValueError: pool memory leak")
    assert 0 < logged < ended, done.stderr
    assert len(set(re.findall(r"\S+\.oplog", done.stderr))) == 2  # of the first violation, and of the error


@pytest.mark.parametrize("level", LEVELS)
def test_error_of_the_check_ends_the_check_and_not_the_server(level, served):
    done = served(level, ("broken check",))["broken check"]

    assert (done.code, done.stdout) == (0, "served 12 requests")
    assert done.stderr.count("swarden: THE CHECK HAS ENDED, the scheduler runs on unchecked: internal error") == 1
    assert f"ZeroDivisionError: {PLANTED}" in done.stderr

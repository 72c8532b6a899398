"""`swarden attach` checks the scheduler of a process that swarden does not watch (some_server.py)."""

from functools import cache
from pathlib import Path

import pytest

from swarden.harness.engines.vllm.boot import boot
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.core import build
from swarden.harness.engines.vllm.target import VLLM, VllmTarget
from swarden.harness.kit.settings import made
from swarden.harness.strict.follow import UnknownScheduler
from tests.engines.some_servers import PLANTED, log_named_in, replayed, run_attached
from tests.engines.vllm.some_server import DEFAULTS, Executor, use_after_free

SERVER = Path(__file__).with_name("some_server.py")
LEVELS = {"sums": "pools_conserve_units", "audit": "unit_has_one_owner", "census": "unit_has_one_owner"}
CASES = [("0.33.0", "sums"), ("0.33.0", "audit"), ("0.33.0", "census"), ("0.20.2", "census")]
HEALTHY = {
    "core": (),
    "queue of batches": ("--asynchronous",),
    "windows first": ("--windows-first",),
    "priorities": ("--priorities",),
    "full attention between windows": ("--mixed", "--asynchronous", "--blocks", "2304"),
}
BROKEN = {f"{name}, use after free": ("--bug", *options) for name, options in HEALTHY.items()}
HEALTHY |= {"aborts in a step": ("--late-aborts",), "aborts behind a launch": ("--late-aborts", "--asynchronous")}
SERVERS = {**HEALTHY, **BROKEN, "broken check": ("--broken-check",)}


@pytest.fixture(scope="module")
def served(on_release, tmp_path_factory):
    """Runs servers with the check attached: `served(version, level)` has their ends by name."""

    @cache
    def run(version, level, names=tuple({**HEALTHY, **BROKEN}), on_violation="raise"):
        on_release(version, int)  # fails if the release is not installed
        options = ["vllm", "--level", level, "--on-violation", on_violation, "--out", tmp_path_factory.mktemp("strict")]
        return run_attached(
            SERVER,
            list(map(str, options)),
            {name: SERVERS[name] for name in names},
            folders=VLLM.folders_of(version),
            environment={},
        )

    return run


def replayed_by(version: str, path: Path):
    """A replay of a log in the process of a release, with the bug planted."""
    boot(version, VLLM.folders_of(version))
    return replayed(path, use_after_free)


def refusals(version, configs):
    """The reasons for which the schedulers of these configurations are refused."""
    release, reasons = boot(version, VLLM.folders_of(version)), []
    for config in configs:
        built = build(release, made(VllmConfig, config), Executor(release))
        with pytest.raises(UnknownScheduler) as refused:
            VllmTarget(version).live(built.scheduler)
        reasons.append(str(refused.value))
    return reasons


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize(("version", "level"), CASES)
def test_healthy_server_serves_all_requests_without_a_word(version, level, name, served):
    done = served(version, level)[name]

    assert (done.code, done.stdout) == (0, f"served {DEFAULTS['requests']} requests"), done.stderr
    assert "attached to the scheduler, level " + level in done.stderr
    assert "NOT ATTACHED" not in done.stderr
    assert "the check ends here" not in done.stderr
    assert "capacity" not in done.stderr


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize(("version", "level"), CASES)
def test_use_after_free_is_raised_in_the_step_in_which_a_replay_fails(version, level, name, served, on_release):
    done = served(version, level)[name]

    assert done.code == 1
    assert "MemoryViolation: " in done.stderr
    assert LEVELS[level] in done.stderr, done.stderr
    again = on_release(version, replayed_by, version, log_named_in(done))
    assert LEVELS[level] in again.laws, again.laws
    assert again.is_in_last_step
    assert again.truncated == ""  # the reset of the cache counts as a flush


def test_use_after_free_is_logged_and_the_server_goes_on(served):
    [name] = (one for one in BROKEN if one.startswith("core"))
    done = served("0.33.0", "audit", (name,), "log")[name]

    assert "unit_has_one_owner" in done.stderr
    assert "MemoryViolation" not in done.stderr


@pytest.mark.parametrize("level", LEVELS)
def test_error_of_the_check_ends_the_check_and_not_the_server(level, served):
    done = served("0.33.0", level, ("broken check",))["broken check"]

    assert (done.code, done.stdout) == (0, "served 12 requests")
    assert done.stderr.count("swarden: THE CHECK HAS ENDED, the scheduler runs on unchecked: internal error") == 1
    assert f"ZeroDivisionError: {PLANTED}" in done.stderr


REFUSED = {
    "speculative decoding": {"draft_len": 2},
    "KV connector": {"external_len": 8},
    "other layers": {"state_groups": 1},
}


@pytest.mark.parametrize("version", ["0.20.2", "0.33.0"])
def test_scheduler_with_a_part_that_is_not_known_is_refused_with_the_reason(version, on_release):
    reasons = on_release(version, refusals, version, list(REFUSED.values()))

    assert all(part in reason for part, reason in zip(REFUSED, reasons, strict=True)), reasons

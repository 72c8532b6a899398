"""`swarden fuzz` with several engines, one of which boots slowly and has the leak of the demo's engine."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from swarden.harness.commands.fuzz import plans_for
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.search.campaign import Plan
from swarden.harness.search.traffic.profiles import PROFILES
from tests.harness.some_targets import FIXED, swarden_with

BOOT_S = 2
TARGET = f"""
import time
from contextlib import ExitStack
from swarden.harness.core.errors import UsageError
from swarden.harness.engines.demo.target import DemoTarget
{FIXED}
PLANTED = ExitStack()

class SickTarget(DemoTarget):
    name = "sick"

    def prepare_process(self):
        until = time.process_time() + {BOOT_S}
        while time.process_time() < until:
            pass

class HealthyTarget(DemoTarget):
    name = "healthy"

    def prepare_process(self):
        PLANTED.enter_context(FIXED.planted())

class BrokenTarget(DemoTarget):
    name = "broken"

    def prepare_process(self):
        raise UsageError("broken cannot be imported; install it again")
"""


@pytest.fixture
def fuzz(tmp_path):
    """Runs `swarden fuzz` where these targets are installed."""
    run = swarden_with(tmp_path, TARGET, {name: f"{name.title()}Target" for name in ("sick", "healthy", "broken")})
    return lambda line: run("fuzz", *line.split())


def test_each_engine_has_its_own_processes_findings_and_figures(fuzz, tmp_path):
    """Only the sick engine fails. The time of its boot is printed, and is not counted as time of the campaign."""
    run = fuzz("--engine sick --engine healthy --machine engine --runs 16 --workers 1 --seed 1 --profile smoke --json")

    told = json.loads(run.stdout)
    sick, healthy = told["engines"]
    assert (run.returncode, told["verdicts"]) == (1, {"sick": "violated", "healthy": "not judged"}), run.stderr
    assert (sick["runs"], healthy["runs"], healthy["violations"]) == (16, 16, 0)
    assert {Path(finding["path"]).parent for finding in sick["findings"]} == {Path(".swarden/findings/sick")}
    assert [path.parent.name for path in tmp_path.glob(".swarden/findings/*/*.oplog")] == ["sick"] * len(
        sick["findings"]
    )
    [boot_s] = sick["boot_seconds"]
    assert boot_s >= BOOT_S
    assert max(healthy["boot_seconds"]) < BOOT_S
    assert min(finding["found_cpu_seconds"] for finding in sick["findings"]) < BOOT_S
    assert (
        "of random traffic for each of sick, machine engine on 1 worker; healthy, machine engine on 1 worker, "
        in (run.stderr.splitlines()[0])
    )


def test_time_of_a_campaign_starts_after_the_boot(fuzz):
    run = fuzz("--engine sick --machine engine --minutes 0.01 --workers 1 --seed 1 --profile smoke")

    boot_s = run.stdout.partition("\nboot ")[2].partition(" s in each worker, not counted")[0]
    assert float(boot_s) >= BOOT_S, run.stderr
    assert "violated: 0 runs" not in run.stdout
    assert float(run.stdout.rpartition(" engine steps in ")[2].split(" s ")[0]) < BOOT_S


@pytest.mark.parametrize(
    ("line", "told"),
    [
        pytest.param("--engine swarden --engine swarden", "--engine: swarden and swarden are the same; ", id="same"),
        pytest.param("--engine broken", "broken cannot be imported; install it again", id="boot-fails"),
    ],
)
def test_engines_that_cannot_run_are_one_line_and_exit_with_two(fuzz, line, told):
    run = fuzz(line)

    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.splitlines()[-1].startswith(f"swarden: {told}")
    assert "Traceback" not in run.stderr


def test_workers_are_divided_among_the_engines():
    shared = Plan(engine=OWN, profile=PROFILES["smoke"], out=Path("out"), workers=5)
    engines = [OWN, "demo", "demo"]
    newest = target_of(OWN).version()

    assert [plan.workers for plan in plans_for(engines, shared)] == [2, 2, 1]
    assert [plan.workers for plan in plans_for(engines, replace(shared, workers=1))] == [1, 1, 1]
    assert [plan.out for plan in plans_for([f"{OWN}=={newest}", "demo"], shared)] == [
        Path(f"out/{OWN}-{newest}"),
        Path("out/demo"),
    ]


@pytest.mark.parametrize("command", ["replay", "show"])
def test_target_prepares_the_process_of_a_single_log(tmp_path, command):
    """In a prepared process the engine does not leak."""
    run = swarden_with(tmp_path, TARGET, {"healthy": "HealthyTarget", "sick": "DemoTarget"})
    leak = (
        '{"format":3,"engine":"%s","configs":[{}]}\n{"op":"submit","max_new_tokens":8}\n{"op":"step"}\n{"op":"abort"}\n'
    )
    for name in ("healthy", "sick"):
        (tmp_path / f"{name}.oplog").write_text(leak % name)

    assert "no owner" in run(command, "sick.oplog").stdout
    assert "no owner" not in run(command, "healthy.oplog").stdout

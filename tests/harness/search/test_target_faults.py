"""Faults of a target: its own exceptions are reported as its own, and hide nothing."""

import json
from itertools import count

import pytest

from swarden.harness.core.registry import OWN
from swarden.harness.search.campaign import Plan, Worker
from swarden.harness.search.traffic.profiles import PROFILES
from tests.harness.some_targets import swarden_with

TARGET = """
from swarden.harness.core.event_log import EventLog
from swarden.harness.core.faults import FaultPlan
from swarden.harness.core.ops import Abort, Drain, Step, Submit
from swarden.harness.core.origins import EngineCode
from swarden.harness.core.port import EnginePort, Streamed
from swarden.harness.core.target import ENGINE, MachineSpec, Target
from swarden.invariants.events import ALL_EVENTS
from swarden.invariants.limits import Limits
from swarden.invariants.view import Snapshot


class Engine(EnginePort):
    "Serves one token a step; it raises at the third request."

    def __init__(self, config):
        self.log, self.faults, self.config = EventLog(), FaultPlan({}), config
        self.left, self.submitted, self.steps = {}, 0, 0

    def submit(self, submission):
        self.submitted += 1
        if self.config["sick"] and self.submitted == 3:
            raise IndexError("the third request has no row")
        self.left[self.submitted] = submission.max_new_tokens
        return self.submitted

    def abort(self, request):
        self.left.pop(request, None)

    @property
    def has_work(self):
        return bool(self.left)

    def step(self):
        self.steps += 1
        self.left = {number: left - 1 for number, left in self.left.items()}
        out = [Streamed(number, (1,), None if left > 0 else "length", 0, 0) for number, left in self.left.items()]
        self.left = {number: left for number, left in self.left.items() if left > 0}
        return out

    def capture(self):
        if self.config["fails"] == "capture" and self.submitted == 9:
            raise LookupError("no table\\nof request 9")
        return Snapshot(self.steps, Limits(1, 4, max_context_len=4096), (), (), unreported=ALL_EVENTS)

    def take_events(self):
        if self.config["sick"] and self.submitted == 3:
            raise LookupError("the events are lost")
        return self.log.take()


class SomeTarget(Target):
    name = "some"
    code = EngineCode("some_target")
    machines = {ENGINE: MachineSpec((Submit, Abort, Step, Drain))}
    defaults = {"size": 1, "sick": True, "fails": ""}
    kept = ("sick", "fails")
    fails = ""

    def version(self):
        return "1.0"

    def config(self, draw):
        return {"size": draw.one_of((2, 3)), "sick": not self.fails, "fails": self.fails}

    def decode(self, mapping):
        config = {**self.defaults, **mapping}
        if config["size"] == 1 and config["fails"] == "decode":
            raise KeyError("size")
        return config

    def build(self, config):
        if config["size"] == 1:
            self.lay_out(config)
        if config["fails"] == "build" and config["size"] == 3:
            self.lay_out(config)
        return Engine(config)

    def lay_out(self, config):
        raise ZeroDivisionError("no pool of this size")


class BuildTarget(SomeTarget):
    name, fails = "build", "build"


class CaptureTarget(SomeTarget):
    name, fails = "capture", "capture"


class DecodeTarget(SomeTarget):
    name = "decode"

    def config(self, draw):
        return {"size": draw.one_of((2, 3)), "sick": True, "fails": "decode"}
"""
NAMES = {"some": "SomeTarget", "build": "BuildTarget", "capture": "CaptureTarget", "decode": "DecodeTarget"}
LINE = "--profile smoke --runs 40 --workers 1 --seed 1 --json"


@pytest.fixture
def swarden(tmp_path):
    """Runs a command line where these targets are installed."""
    return swarden_with(tmp_path, TARGET, NAMES)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("some", "target some: its build raised ZeroDivisionError: no pool of this size; at some_target.py:"),
        ("decode", "target decode: its decode raised KeyError: 'size'; at some_target.py:"),
    ],
)
def test_fault_in_a_candidate_of_the_shrinker_costs_neither_the_finding_nor_the_campaign(swarden, name, fault):
    """The engine's error is the finding although the target cannot take its events; the fault is below its story."""
    run = swarden("fuzz", "--engine", name, *LINE.replace(" --json", "").split())

    lines = run.stdout.splitlines()
    below = [line for line in lines if line.lstrip().startswith("while this was shrunk: ")]
    assert run.returncode == 1, run.stderr
    assert below
    assert all(fault in line for line in below)
    assert any(line.startswith("engine error: IndexError: the third request has no row") for line in lines)
    assert any("shrunk to 3 ops" in line for line in lines)
    assert lines[-1].startswith("violated: 40 runs, ")


@pytest.mark.parametrize(
    ("name", "fault", "frames"),
    [
        ("build", "target build: its build raised ZeroDivisionError: no pool of this size; at ", ("build", "lay_out")),
        ("capture", "target capture: its capture raised LookupError: no table of request 9; at ", ("capture",)),
    ],
)
def test_fault_in_traffic_is_the_target_s_and_the_campaign_goes_on(swarden, name, fault, frames):
    run = swarden("fuzz", "--engine", name, *LINE.split())

    told = json.loads(run.stdout)
    [line] = told["target_faults"]
    assert (run.returncode, told["verdict"], told["findings"]) == (2, "a fault of the target", []), run.stderr
    assert line.startswith(fault)
    assert [part.split()[1].rstrip(";,") for part in line.split("; at ")[1].split("; ")[0].split(", ")] == [*frames]
    assert 0 < told["runs"] < 40
    path = line.rpartition("swarden replay ")[2]
    replayed = swarden("replay", path)
    assert (replayed.returncode, replayed.stdout) == (2, f"ERROR {path}: {line.partition('; replay: ')[0]}\n")


def test_error_of_the_harness_is_not_hidden_by_its_repetition(monkeypatch):
    """Hypothesis repeats a run that raises, and the next run of the campaign is another one."""
    calls = count()

    def broken(*_):
        if next(calls) == 2:
            raise ZeroDivisionError("of the harness")

    monkeypatch.setattr(Worker, "on_end", broken)
    with pytest.raises(ZeroDivisionError, match="of the harness"):
        Worker(Plan(engine=OWN, profile=PROFILES["smoke"], max_runs=8, machine="engine"), lambda _: None).work()

"""swarden check, on the demo's target and on targets that are wrong in several ways."""

import json
import re

import pytest

from tests.harness.some_targets import swarden_with

TARGETS = """
import sys
from dataclasses import replace
from itertools import count
from swarden import kit
from swarden.harness.engines.demo.target import BLOCKS, DemoConfig, DemoPort, DemoTarget
from swarden.kit import events, view

LAST = count()


class ForgetfulTarget(DemoTarget):
    "Its settings and its unreported events are wrong."

    name = "forgetful"

    def encode(self, config):
        return {**super().encode(config), "colour": "red"}

    def decode(self, mapping):
        known = {name: mapping[name] for name in mapping.keys() & self.defaults.keys()}
        return super().decode({**known, "max_running": 4})

    def build(self, config):
        if config.chunk_len == 1:
            raise ZeroDivisionError("no chunk of one token")
        return ForgetfulPort(config)

    def config(self, draw):
        return DemoConfig(**(super().encode(super().config(draw)) | {"chunk_len": 5}))


class ForgetfulPort(DemoPort):
    def capture(self):
        state = super().capture()
        wrong = {"Taken", "Sold"} | state.unreported - {"Finished"}
        return replace(state, unreported=frozenset(wrong))


class RestlessTarget(DemoTarget):
    "Its runs differ, one of its blocks is always cached, and another one is unknown."

    name = "restless"

    def build(self, config):
        return RestlessPort(config)


class RestlessPort(DemoPort):
    def capture(self):
        state = super().capture()
        [pool] = state.pools
        kept = view.Holding(events.Owner("tree"), pool.free[-1:], cached=True)
        pool = replace(pool, free=pool.free[:-1], holdings=[*pool.holdings, kept])
        return replace(state, pools=(pool,), step=next(LAST))


class ClumsyTarget(DemoTarget):
    "A stand-in that the engine calls raises."

    name = "clumsy"

    def build(self, config):
        port = DemoPort(config)
        port._engine.pool.take = self.take
        return port

    def take(self, count, request_id):
        return {}[request_id]


class UntypedTarget(DemoTarget):
    "Its settings are checked with int."

    name = "untyped"

    def decode(self, mapping):
        return super().decode({**mapping, "num_blocks": int(mapping.get("num_blocks", 16))})


class UndrawnTarget(DemoTarget):
    "It can draw nothing."

    name = "undrawn"

    def config(self, draw):
        raise LookupError("no configuration")


class ShiftedTarget(DemoTarget):
    "Its blocks are those of an engine that counts from 0, and its engine imports torch, with several threads."

    name = "shifted"
    code = kit.EngineCode("some_target")

    def build(self, config):
        return ShiftedPort(config)


class Torch:
    get_num_threads = staticmethod(lambda: 2)


torch = sys.modules["torch"] = Torch


class ShiftedPort(DemoPort):
    def capture(self):
        state = super().capture()
        [pool] = state.pools
        return replace(state, pools=(replace(pool, free=tuple([unit - 1 for unit in pool.free])),))
"""
NAMES = ("forgetful", "restless", "clumsy", "untyped", "undrawn", "shifted")


@pytest.fixture
def check(tmp_path):
    """Runs `swarden check` where these targets are installed."""
    run = swarden_with(tmp_path, TARGETS, {name: f"{name.title()}Target" for name in NAMES})
    return lambda line: run("check", *line.split())


def wrong(check, name):
    """The lines on what is wrong with a target, each of which names its remedy."""
    run = check(f"{name} --runs 24 --json")
    lines = json.loads(run.stdout)["wrong"]
    assert run.returncode == 5, run.stderr
    assert all(";" in line or ": let " in line for line in lines), lines
    return lines


def test_correct_target_exits_with_zero_and_says_what_it_would_gain(check):
    """The leak of the engine is no fault of its target; most is found with what a pass reads."""
    run = check("demo --runs 24")

    lines = run.stdout.splitlines()
    assert run.returncode == 0, run.stdout
    assert lines[0].startswith("unit_has_one_owner/blocks block/leaked: ")
    assert lines[0].endswith("a bug of the engine or of its target, see: swarden fuzz --engine demo")
    assert any(line.startswith("8 laws apply: padding_unit_is_never_moved, ") for line in lines)
    first = lines[lines.index(next(line for line in lines if line.startswith("further data"))) + 1]
    assert re.match(r"  \w+(, \w+)*: [1-9]\d* bugs? and \d+ mutants?, \d+ laws?: ", first), first
    assert lines[-1].endswith(" runs, each made twice: 0 things to correct")


def test_wrong_settings_and_events_are_lines_with_a_remedy(check):
    lines = wrong(check, "forgetful")

    for begin in (
        "settings are lost: max_running is ",
        "setting colour: encode has it, and defaults has not; add it there",
        "an unknown setting is accepted: let decode raise InvalidConfig",
        "event Taken: came, and is in unreported; take it out there",
        "event Finished: never came; report it, or add it to unreported",
        "unreported has Sold, which is no type of event and no law; correct it",
        'decode accepts {"',
    ):
        assert [line for line in lines if line.startswith(begin)], (begin, lines)
    [accepted] = [line for line in lines if line.startswith("decode accepts")]
    assert "its build raised ZeroDivisionError: no chunk of one token" in accepted
    assert accepted.endswith("or let decode refuse this with InvalidConfig")


def test_runs_that_differ_and_a_pool_that_is_not_cleared_are_lines_with_a_remedy(check):
    lines = wrong(check, "restless")

    assert [line for line in lines if line.startswith("a run differs when it is repeated: op 1 ")]
    assert "pool blocks: has cached units after a drain; let clear of the port evict them" in lines


def test_failure_of_each_run_and_threads_of_torch_are_lines_with_a_remedy(check):
    threads, line = wrong(check, "shifted")

    assert threads.startswith("torch has 2 threads; call torch.set_num_threads(1) in prepare_process")
    assert line.startswith("unit_has_one_owner/blocks block/")
    assert "fail with it: block 0: owned by free" in line
    assert line.endswith("correct the port, which is wrong rather than the engine")


def test_error_of_a_stand_in_names_its_place_in_the_target(check):
    [line] = wrong(check, "clumsy")

    assert line.startswith("KeyError/")
    assert ": 1, at some_target.py:" in line
    assert " take; correct the port" in line


def test_settings_of_another_type_are_refused_by_decode(check):
    [line] = wrong(check, "untyped")

    assert line.startswith("decode fails on values of another type: num_blocks 'text': target untyped: its decode ")
    assert line.endswith("let it raise InvalidConfig")


def test_target_that_draws_nothing_has_the_reason_as_a_line(check):
    fault, line = wrong(check, "undrawn")

    assert "LookupError: no configuration" in fault
    assert line.startswith("no run was made; draw configurations")


def test_unknown_engine_is_one_line_and_exit_code_two(check):
    run = check("toy")

    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("swarden: engine 'toy' is not installed; install its package; ")

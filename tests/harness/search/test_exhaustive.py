"""The exhaustive search: what it finds, what it may prune, and what it does with a process that dies."""

import os
import signal
from dataclasses import replace
from itertools import product

import pytest

from swarden.harness.core.changes import Changes
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Drain, Flush, Pause, Step, Submit
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import failure_like
from swarden.harness.core.system import EngineSystem
from swarden.harness.core.target_fault import TargetFault
from swarden.harness.search.exhaustive import Exploration, ExploredEngine, key_of, tiny_config
from swarden.harness.search.jobs import JobDeath, run_jobs
from swarden.harness.search.traffic.draws import alphabet_of

OWN = target_of("swarden")


def explored(depth, *, machine="engine", mutant=None, ops=None, **options):
    """The levels of a search of our own engine, with these ops of its alphabet."""
    config = tiny_config(OWN, {})
    header = Header(engine="swarden", machine=machine, configs=[OWN.encode(config)], mutant=mutant)
    alphabet = [op for op in alphabet_of(OWN, machine, config) if ops is None or isinstance(op, ops)]
    with Changes(mutant).planted(OWN):
        return list(
            Exploration(ExploredEngine(header, alphabet), **{"workers": 1, "seconds": 60} | options).levels(depth)
        )


def test_search_reaches_each_state_that_the_sequences_reach():
    """Pruning leaves out no state: sequences without any pruning end in the same states."""
    few, depth = (Submit, Step, Flush, Pause), 3
    config = tiny_config(OWN, {})
    header = Header(engine="swarden", configs=[OWN.encode(config)])
    alphabet = [op for op in alphabet_of(OWN, "engine", config) if isinstance(op, few)]
    states = set()
    for length in range(1, depth + 1):
        for ops in product(alphabet, repeat=length):
            system = EngineSystem(OWN.build(config))
            for op in ops:
                system.do(op)
                system.capture()
                system.take_events()
            states.add(key_of([system], [system.capture()], ops))

    search = Exploration(ExploredEngine(header, alphabet), 1, 60)
    levels = list(search.levels(depth))

    assert sum(level.states for level in levels) == len(states)
    assert sum(level.pruned for level in levels) > 0


def test_planted_bug_is_found_by_a_sequence_that_replays():
    [level, *_] = explored(1, mutant="B3")

    [finding] = level.findings
    assert finding.fingerprint == "peers_are_unique_and_live/full page/peer_free"
    assert len(finding.log.ops) == 2
    assert finding.log.ops[-1] == Drain()
    assert failure_like(finding.log, finding.fingerprint) is not None


def test_interrupted_search_keeps_the_findings_of_its_finished_jobs(monkeypatch):
    monkeypatch.setattr("swarden.harness.search.exhaustive.EXTENSIONS_PER_JOB", 1)

    def until_the_first_finding(jobs, work, workers):
        for job, reached in run_jobs(jobs, work, workers=workers):
            yield job, reached
            if not isinstance(reached, JobDeath) and any(result.finding for result in reached):
                raise KeyboardInterrupt

    monkeypatch.setattr("swarden.harness.search.exhaustive.run_jobs", until_the_first_finding)

    [level] = explored(3, mutant="B3")

    assert [finding.fingerprint for finding in level.findings] == ["peers_are_unique_and_live/full page/peer_free"]
    assert level.share < 1


class DyingEngine(EngineSystem):
    """An engine whose process is killed when it is paused while a request waits."""

    def do(self, op):
        if isinstance(op, Pause) and self.has_work:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().do(op)


def test_sequence_that_kills_its_process_is_a_finding(monkeypatch):
    """The other sequences of its job are run all the same."""
    monkeypatch.setattr(type(OWN), "systems", lambda *arguments: [DyingEngine(OWN.build(*arguments[2]))])

    levels = explored(2, ops=(Submit, Step, Pause))

    [finding] = [finding for level in levels for finding in level.findings]
    assert finding.fingerprint == "crash/SIGKILL"
    assert [type(op) for op in finding.log.ops] == [Submit, Pause, Drain]
    assert [level.share for level in levels] == [1, 1]
    assert levels[1].states > 0


def test_fault_of_the_target_is_not_a_finding(monkeypatch):
    def capture(_system):
        raise ZeroDivisionError

    monkeypatch.setattr(EngineSystem, "capture", capture)

    with pytest.raises(TargetFault, match="target swarden: its capture raised ZeroDivisionError"):
        explored(1)


def test_key_of_a_state_has_the_tokens_of_the_requests():
    """Two prompts of one length are two states, although a snapshot shows no tokens."""
    config = tiny_config(OWN, {})
    keys = set()
    for tokens in ((1, 2, 3), (1, 2, 4)):
        system = EngineSystem(OWN.build(config))
        system.do(Submit(tokens=tokens))
        keys.add(key_of([system], [system.capture()], ()))
        keys.add(key_of([system], [replace(system.capture(), step=7)], ()))

    assert len(keys) == 2

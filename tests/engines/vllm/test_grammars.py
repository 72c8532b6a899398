"""Answers by grammars: they have only tokens that their grammar allows, and end with its END or their limit."""

import pytest

from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Abort, Accept, Drain, Inject, Recipe, Step, Submit
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import driver_of
from swarden.harness.kit.grammars import FAILS, LATE
from swarden.invariants.events import FinishReason
from swarden.invariants.grammar import END, allowed_tokens
from swarden.invariants.kinds import Place
from tests.engines.some_runs import served

NEWEST, OLDER = "0.33.0", "0.28.0"
LOST = {"second_runner": True, "drafter": "eagle"}  # drafts of a request that a pass leaves out (issue 54437)
SHORTER = {"second_runner": False, "drafter": "ngram"}  # drafts that the first runner trims (issue 49694)


def prompt(path, max_new_tokens, grammar=40):
    return Submit(recipe=Recipe(path=(path,), stretch=2), max_new_tokens=max_new_tokens, grammar=grammar)


def laws_of(engine, settings, accepts):
    """The names of the laws that a run with three grammars fails by."""
    target_of(engine).prepare_process()
    config = {"grammars": True, "asynchronous": True, "draft_len": 3, "chunk_len": 8, "windows": [], **settings}
    driver = driver_of(Header(engine=engine, configs=[config]))
    for op in (Accept(lengths=accepts), prompt(0, 4), prompt(1, 8), prompt(2, 8), Drain()):
        driver.apply(op)
    return {name.split("/")[0] for name in driver.failure.fingerprints} if driver.failure else set()


def results(on_release, ops, steps=12, **settings):
    return on_release(NEWEST, served, f"vllm=={NEWEST}", {"grammars": True, **settings}, ops, steps)


def test_grammar_allows_every_second_token_and_then_its_end():
    states = [allowed_tokens(2, outputs, 64) for outputs in ((), (1,), (1, 4), (1, 4, END))]

    assert [len(tokens) for tokens in states] == [31, 32, 1, 64]
    assert END not in {*states[0], *states[1]}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["in-turn", "two-in-flight"])
@pytest.mark.parametrize("draft_len", [None, 3], ids=["no-drafts", "drafts"])
def test_answer_ends_with_its_grammar(on_release, asynchronous, draft_len):
    ops = [Accept(lengths=(3, 1)), prompt(0, 9, grammar=3), prompt(1, 9, grammar=40)]

    result = results(on_release, ops, asynchronous=asynchronous, draft_len=draft_len)

    outputs = result.outputs[1]
    assert (len(outputs), outputs[-1], len(result.outputs[2])) == (4, END, 9)
    assert all(token in allowed_tokens(3, outputs[:at], 64) for at, token in enumerate(outputs))
    assert result.ends == {1: FinishReason.STOP, 2: FinishReason.LENGTH}


def test_request_waits_for_its_late_grammar(on_release):
    result = results(on_release, [Inject(fault=LATE, count=2), prompt(0, 2), Step()], steps=4)

    assert (result.places, result.ends) == ({Place.WAITING, Place.RUNNING}, {1: FinishReason.LENGTH})


def test_aborted_request_is_forgotten_while_its_grammar_is_compiled(on_release):
    result = results(on_release, [Inject(fault=LATE, count=3), prompt(0, 2), Step(), Abort()], steps=4)

    assert (result.ends, result.num_live) == ({1: FinishReason.ABORT}, 0)


def test_failed_grammar_ends_its_request_alone(on_release):
    result = results(on_release, [Inject(fault=FAILS), prompt(0, 2), prompt(1, 2)], steps=4)

    assert {number: len(result.outputs[number]) for number in result.outputs} == {1: 0, 2: 2}
    assert result.ends == {1: FinishReason.ERROR, 2: FinishReason.LENGTH}


@pytest.mark.parametrize(("settings", "accepts"), [(LOST, (3,)), (SHORTER, (0, 3, 3))], ids=["lost", "shorter"])
@pytest.mark.parametrize("version", [OLDER, NEWEST])
def test_drafts_past_a_grammar_are_accepted_by_an_older_release(on_release, settings, accepts, version):
    laws = on_release(version, laws_of, f"vllm=={version}", settings, accepts)

    fails = {"outputs_match_reference", "grammars_get_only_what_they_allow"}
    assert laws == (fails if version == OLDER else set())

"""Answers by grammars: they have only tokens that their grammar allows, and end with its END or their limit."""

import pytest

from swarden.harness.core.ops import Abort, Accept, Drain, Inject, Recipe, Step, Submit
from swarden.harness.engines.sglang.parts.grammars import MOST_POLLS
from swarden.harness.kit.grammars import FAILS, LATE
from swarden.invariants.events import FinishReason
from swarden.invariants.grammar import END, allowed_tokens
from swarden.invariants.kinds import Place
from tests.engines.sglang.conftest import config_of, driver_of, laws_that_fail, port_of
from tests.engines.some_runs import served

NEWEST = "0.5.23"

TOO_LONG = Recipe(path=(0,), stretch=400)


def prompt(path, max_new_tokens, grammar=40):
    return Submit(recipe=Recipe(path=(path,), stretch=2), max_new_tokens=max_new_tokens, grammar=grammar)


def results(on_release, ops, steps=12, **settings):
    return on_release(NEWEST, served, f"sglang=={NEWEST}", {"grammars": True, **settings}, ops, steps)


def laws_without_the_wait_for_results():
    """The laws that fail where the bitmasks of drafts are made before the results of the pass before them."""
    driver = driver_of(NEWEST, config_of(grammars=True, draft_len=3, overlap=True))
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(type(port_of(driver).scheduler), "is_disable_overlap_for_batch", lambda *_, **__: False)
        return laws_that_fail(driver, [Accept(lengths=(3, 0)), prompt(0, 9), prompt(1, 9), Drain()])


@pytest.mark.parametrize("overlap", [False, True], ids=["in-turn", "overlap"])
@pytest.mark.parametrize("draft_len", [None, 3], ids=["no-drafts", "drafts"])
def test_answer_ends_with_its_grammar(on_release, overlap, draft_len):
    ops = [Accept(lengths=(3, 1)), prompt(0, 9, grammar=3), prompt(1, 9, grammar=40)]

    result = results(on_release, ops, overlap=overlap, draft_len=draft_len)

    outputs = result.outputs[1]
    assert (len(outputs), outputs[-1], len(result.outputs[2])) == (4, END, 9)
    assert all(token in allowed_tokens(3, outputs[:at], 64) for at, token in enumerate(outputs))
    assert result.ends == {1: FinishReason.STOP, 2: FinishReason.LENGTH}


def test_request_waits_for_its_late_grammar(on_release):
    result = results(on_release, [Inject(fault=LATE, count=2), prompt(0, 2), Step()], steps=5)

    assert (result.places, result.ends) == ({Place.WAITING, Place.RUNNING}, {1: FinishReason.LENGTH})


@pytest.mark.parametrize(
    ("ops", "end"),
    [
        ([Inject(fault=LATE, count=3), prompt(0, 2), Step(), Abort()], FinishReason.ABORT),
        ([Inject(fault=LATE, count=MOST_POLLS + 1), prompt(0, 2), *[Step()] * MOST_POLLS], FinishReason.ERROR),
        ([Inject(fault=FAILS), prompt(0, 2)], FinishReason.ERROR),
        ([Inject(fault=LATE, count=3), Submit(recipe=TOO_LONG, grammar=40)], FinishReason.REJECTED),
    ],
    ids=["aborted", "too-late", "failed", "refused"],
)
def test_request_without_a_grammar_ends_alone(on_release, ops, end):
    result = results(on_release, [*ops, prompt(1, 2, grammar=5)], steps=8)

    first, last = [result.outputs[number] for number in sorted(result.outputs)]
    assert (first, len(last), result.num_live) == ([], 2, 0)
    assert [result.ends[number] for number in sorted(result.ends)] == [end, FinishReason.LENGTH]


def test_bitmasks_behind_their_results_are_found(on_release):
    laws = on_release(NEWEST, laws_without_the_wait_for_results)

    assert laws & {"grammars_get_only_what_they_allow", "outputs_match_the_model"}

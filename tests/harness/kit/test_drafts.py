"""Drafts: as many are right as the op-log says."""

from swarden.harness.kit.drafts import DraftScript, drafts_after
from swarden.harness.kit.tags import VOCABULARY
from swarden.invariants.reference import Expectation


def test_numbers_repeat_and_begin_anew_when_they_are_set():
    script = DraftScript((3, 0))
    first = [script.next() for _ in range(3)]

    script.accept((1,))

    assert [first, script.next()] == [[3, 0, 3], 1]


def test_script_without_numbers_has_no_drafts():
    assert DraftScript().next() is None


def test_first_drafts_are_those_of_the_model_and_the_others_are_not():
    drafts = drafts_after([1, 2], namespace=3, count=4, right=2, windows=(None, 2))

    expected = Expectation(3, 0, [1, 2])
    are_right = []
    for draft in drafts:
        model = expected.next_token(len(expected.tokens), windows=(None, 2), vocabulary=VOCABULARY)
        are_right.append(draft == model)
        expected.extend([draft])
    assert are_right == [True, True, False, False]

"""The text of violations: the sentence of the code with its values."""

from swarden.harness.report.wording import evidence_text, subject_text
from swarden.invariants.violation import Ref
from tests.invariants.test_invariants import CASES


def test_the_violations_of_every_case_fill_their_sentences():
    sentences = [evidence_text(found) for case in CASES for found in case.invariant.violations(case.change)]

    assert all(sentences)


def test_group_of_a_shared_pool_is_named():
    assert subject_text(Ref("group", 2, "blocks")) == "group 2 of blocks"

"""The text of violations: the sentence of the code with its values."""

from swarden.harness.report.wording import evidence_text
from tests.invariants.test_invariants import CASES


def test_the_violations_of_every_case_fill_their_sentences():
    sentences = [evidence_text(found) for case in CASES for found in case.invariant.violations(case.change)]

    assert all(sentences)

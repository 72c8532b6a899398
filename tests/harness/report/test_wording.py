"""Each code of a violation has a sentence, and the violation has the values for it."""

from harness.report.wording import SENTENCES, evidence_text
from invariants.violation import Code
from tests.invariants.test_invariants import CASES

CODES = [code for kind in Code.__subclasses__() if kind.__module__.startswith("invariants.") for code in kind]


def test_every_code_has_a_sentence():
    assert [code for code in CODES if code not in SENTENCES] == []


def test_the_violations_of_every_case_fill_their_sentences():
    sentences = [evidence_text(found) for case in CASES for found in case.invariant.violations(case.change)]

    assert all(sentences)

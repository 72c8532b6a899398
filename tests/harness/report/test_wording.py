"""The text of violations: the sentence of the code with its values, or the code and the values by name."""

from harness.report.wording import evidence_text
from invariants.violation import Code, Ref, Violation, request_ref
from tests.invariants.test_invariants import CASES


class NewCode(Code):
    READ_TOO_LATE = "read_too_late"


def test_the_violations_of_every_case_fill_their_sentences():
    sentences = [evidence_text(found) for case in CASES for found in case.invariant.violations(case.change)]

    assert all(sentences)


def test_a_code_without_a_sentence_is_named_with_its_values():
    new = Violation("a_law", request_ref(1), NewCode.READ_TOO_LATE, {"first_page": Ref("page", 7, "swa"), "launch": 4})

    assert evidence_text(new) == "read too late, first page swa page 7, launch 4"

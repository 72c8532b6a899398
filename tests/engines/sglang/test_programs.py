"""Programs of SGLang: each shows its bug on a release that has it, and exits with 0 once the bug is fixed."""

import pytest

from swarden.harness.commands.repro import Form, find, run_text, text_of

ENGINE = "sglang==0.5.23"
OPEN = (
    "aborted-retracted-turn-stays",
    "chunk-overrules-empty-budget",
    "load-back-locks-resident-window",
    "preempted-turn-keeps-row",
    "prompt-never-admitted",
    "resumed-prompt-never-fits",
    "retracted-turn-is-over",
    "retracted-turn-keeps-pages",
    "second-chunked-request",
    "turn-behind-starved-request",
)


@pytest.mark.parametrize("name", OPEN)
def test_program_of_a_known_bug_shows_it_without_swarden_and_passes_with_its_fix(name, in_process_of):
    text = in_process_of(ENGINE, text_of, find(name, ENGINE), Form.SCRIPT)

    ran = run_text(text, ENGINE)

    assert ran.shows_bug, ran.text
    assert "swarden" not in text
    assert "with these stand-ins: " in ran.how
    fixed = run_text(text, ENGINE, name)
    assert (fixed.code, fixed.line) == (0, "no bug"), fixed.text

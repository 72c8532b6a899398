"""Programs of SGLang: each shows its bug on a release that has it, and exits with 0 once the bug is fixed."""

import pytest

from swarden.harness.commands.repro import Form, find, run_program, written_of

ENGINE = "sglang==0.5.23"
SHOWN = (  # one for each kind of engine: sessions, no window, a host tier, retractions, pages
    "aborted-retracted-turn-stays",
    "chunk-overrules-empty-budget",
    "load-back-locks-resident-window",
    "preempted-turn-keeps-row",
    "prompt-never-admitted",
)


@pytest.mark.parametrize("name", SHOWN)
def test_program_of_a_known_bug_shows_it_without_swarden_and_passes_with_its_fix(name, in_process_of):
    program = in_process_of(ENGINE, written_of, find(name, ENGINE), Form.SCRIPT)

    ran = run_program(program, ENGINE)

    assert ran.shows_bug, ran.text
    assert "swarden" not in program.text
    assert "with these stand-ins: " in ran.how
    fixed = run_program(program, ENGINE, name)
    assert (fixed.code, fixed.line) == (0, "no bug"), fixed.text

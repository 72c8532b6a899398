"""Programs of vLLM: each shows its bug on a release that has it, and exits with 0 once the bug is fixed."""

import runpy
from contextlib import nullcontext, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from swarden.harness.commands.repro import BUG, Form, Found, find, written_of
from swarden.harness.core.program import NoProgram
from swarden.harness.core.registry import target_of
from tests.engines.some_findings import op_logs_of
from tests.pages import ROOT

OPLOGS = ROOT / "harness/engines/vllm/findings"
OF_THE_OLDEST = (
    "aborted-load-keeps-its-blocks",
    "first-token-after-a-pause-dropped",
    "hit-longer-than-the-cached-attention",
    "load-reserves-too-little-beside-a-window",
    "loaded-request-stranded-behind-the-queue-head",
    "loaded-requests-wait-for-each-other",
    "one-block-for-two-groups",
    "window-block-freed-before-the-drafts-are-verified",
)
STILL_OPEN = "load-reserves-too-little-beside-a-window"
OF_THE_NEWEST = (
    "failed-read-blocks-the-queue",
    "prompt-of-one-token-loaded-forever",
    "second-reset-of-the-offloading-cache",
)


def has_program(found: Found) -> bool:
    target_of(found.engine).prepare_process()
    try:
        return bool(written_of(found, Form.SCRIPT).text)
    except NoProgram:
        return False


def ran(found: Found, fix: str = "") -> tuple[int, str]:
    """The exit code and the last line of a finding's program, in the process of its release."""
    return ran_text(written_of(found, Form.SCRIPT).text, found.engine, fix)


def ran_text(text: str, engine: str, fix: str = "") -> tuple[int, str]:
    target_of(engine).prepare_process()
    with TemporaryDirectory() as folder, redirect_stdout(StringIO()) as printed:
        path = Path(folder, "program.py")
        path.write_text(text)
        with target_of(engine).fix(fix).planted() if fix else nullcontext():
            try:
                runpy.run_path(str(path), run_name="__main__")
                code = 0
            except SystemExit as end:
                code = int(str(end.code))
    return code, printed.getvalue().splitlines()[-1]


@pytest.mark.parametrize("shown", [one for one in op_logs_of("vllm") if one.path.stem == one.bug.name], ids=str)
def test_program_of_a_known_bug_shows_it_and_passes_with_its_fix(shown, on_release, release):
    found = Found(shown.bug.name, shown.path, f"vllm=={release}", shown.bug)
    if not shown.span.has(release) or shown.bug.patch_for(release) is None:
        pytest.skip("the release has not the bug, or no fix fits it")
    if not on_release(release, has_program, found):
        pytest.skip("no program shows it")

    code, line = on_release(release, ran, found)

    assert code == 1
    assert line.startswith(BUG)
    assert on_release(release, ran, found, shown.bug.name) == (0, "no bug")


@pytest.mark.parametrize(
    ("release", "name"),
    [*[("0.20.2", name) for name in OF_THE_OLDEST], *[("0.33.0", name) for name in OF_THE_NEWEST]],
)
def test_program_of_an_op_log_shows_its_bug(release, name, on_release):
    found = find(str(OPLOGS / f"{name}.oplog"), f"vllm=={release}")

    code, line = on_release(release, ran, found)

    assert code == 1
    assert line.startswith(BUG)


@pytest.mark.parametrize("name", [name for name in OF_THE_OLDEST if name != STILL_OPEN])
def test_program_of_a_bug_that_is_fixed_since_passes_on_the_newest_release(name, on_release):
    found = find(str(OPLOGS / f"{name}.oplog"), "vllm==0.20.2")
    text = on_release("0.20.2", written_of, found, Form.SCRIPT).text

    assert on_release("0.33.0", ran_text, text, "vllm==0.33.0") == (0, "no bug")

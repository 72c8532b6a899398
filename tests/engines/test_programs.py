"""Programs of findings: each shows its bug on a release that has it, and exits with 0 once the bug is fixed."""

import re
import subprocess
import sys
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from docs.make.pages import ROOT
from swarden.harness.core.changes import fix_of
from swarden.harness.core.program import NoProgram
from swarden.harness.core.registry import target_of
from swarden.harness.search.programs import BUG, Form, Found, ended_here, find, written_of
from tests.engines.some_findings import op_logs_of
from tests.engines.vllm.conftest import RELEASES
from tests.harness.some_processes import swarden_process

OPLOGS = ROOT / "harness/engines/vllm/findings"
SGLANG = "sglang==0.5.23"
OF_SGLANG = (  # one for each kind of engine and symptom
    "abort-overtaken-by-a-pause",
    "aborted-retracted-turn-stays",
    "chunk-overrules-empty-budget",
    "deferred-chunk-is-counted",
    "first-boundary-keeps-its-track-slot",
    "load-back-locks-resident-window",
    "preempted-turn-keeps-row",
    "prompt-behind-a-branch-not-cached",
    "prompt-never-admitted",
    "window-backup-reported-as-host-copy",
)
TRANSFORMERS = "transformers==5.24.0"
OF_TRANSFORMERS = ("host-sectors-freed-after-the-count", "pass-without-tokens-before-a-fork")
OF_VLLM = [
    pytest.param(
        f"vllm=={release}", Found(shown.bug.name, shown.path, f"vllm=={release}", shown.bug), id=f"{shown}-{release}"
    )
    for release in RELEASES
    for shown in op_logs_of("vllm")
    if shown.path.stem == shown.bug.name and shown.span.has(release) and shown.bug.patch_for(release) is not None
]
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
RAISING = [(SGLANG, "preempted-turn-keeps-row"), ("vllm==0.33.0", "second-reset-of-the-offloading-cache")]


@pytest.fixture(scope="session")
def ran(in_process_of):
    """The exit code and the last line of a program."""
    return lambda program, engine, fix="": in_process_of(engine, ran_here, program, engine, fix)


def ran_here(program, engine, fix):
    target_of(engine).prepare_process()
    _, code, line = ended_here(program, target_of(engine), fix)
    return code, line


def texts_or_reason(found):
    """The program and the test of a finding, or the reason why it has none."""
    target_of(found.engine).prepare_process()
    try:
        return [written_of(found, form) for form in (Form.SCRIPT, Form.PYTEST)]
    except NoProgram as reason:
        return str(reason)


def run_as_a_test(text, engine, fix):
    """The exit code of pytest for a test."""
    with TemporaryDirectory() as folder, fix_of(target_of(engine), fix).planted() if fix else nullcontext():
        path = Path(folder, "test_finding.py")
        path.write_text(text)
        process = get_context("fork").Process(target=lambda: sys.exit(pytest.main(["-qq", str(path)])))
        process.start()
        process.join()
        return process.exitcode


@pytest.mark.parametrize(
    ("engine", "found"),
    [
        *[pytest.param(SGLANG, name, id=name) for name in OF_SGLANG],
        *[pytest.param(TRANSFORMERS, name, id=name) for name in OF_TRANSFORMERS],
        *OF_VLLM,
    ],
)
def test_program_and_test_of_a_known_bug_show_it_and_pass_with_its_fix(engine, found, in_process_of, ran):
    found = find(found, engine) if isinstance(found, str) else found
    texts = in_process_of(engine, texts_or_reason, found)
    if isinstance(texts, str):
        pytest.skip(texts)
    program, test = texts

    code, line = ran(program, engine)

    assert code == 1
    assert line.startswith(BUG)
    assert "swarden" not in program + test
    assert ran(program, engine, found.name) == (0, "no bug")
    assert [in_process_of(engine, run_as_a_test, test, engine, fix) for fix in ("", found.name)] == [1, 0]


@pytest.mark.parametrize(
    ("engine", "name"),
    [*[("vllm==0.20.2", name) for name in OF_THE_OLDEST], *[("vllm==0.33.0", name) for name in OF_THE_NEWEST]],
)
def test_program_of_an_op_log_shows_its_bug(engine, name, in_process_of, ran):
    program = in_process_of(engine, written_of, find(str(OPLOGS / f"{name}.oplog"), engine), Form.SCRIPT)

    code, line = ran(program, engine)

    assert code == 1
    assert line.startswith(BUG)


@pytest.mark.parametrize("name", [name for name in OF_THE_OLDEST if name != STILL_OPEN])
def test_program_of_a_bug_that_is_fixed_since_passes_on_the_newest_release(name, in_process_of, ran):
    found = find(str(OPLOGS / f"{name}.oplog"), "vllm==0.20.2")
    program = in_process_of("vllm==0.20.2", written_of, found, Form.SCRIPT)

    assert ran(program, "vllm==0.33.0") == (0, "no bug")


@pytest.mark.parametrize("symptom", ["AssertionError('requests are unfinished')", "{error}('in another function')"])
@pytest.mark.parametrize(("engine", "name"), RAISING)
def test_program_of_an_exception_is_not_run_to_its_end_with_another_symptom(engine, name, symptom, in_process_of, ran):
    """The other symptom is the same exception from another function, or what is seen at the end."""
    found = find(name, engine)
    program = in_process_of(engine, written_of, found, Form.SCRIPT)
    error = str(found.load().header.expected).partition("/")[0]
    spoiled = re.sub("( +)engine = Engine\\(\\)\n", rf"\g<0>\1raise {symptom.format(error=error)}\n", program)

    code, line = ran(spoiled, engine)

    assert code == 2
    assert "another symptom" in line


def test_program_is_run_in_a_checkout_and_the_issue_says_so(tmp_path):
    releases = target_of("vllm==0.33.0").releases
    assert releases is not None
    [release, *_] = releases.folders_of("0.33.0")
    (tmp_path / "vllm").symlink_to(release / "vllm")
    for command in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-ma"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)

    run = swarden_process(
        "repro", "second-reset-of-the-offloading-cache", "--as", "issue", "--upstream", str(tmp_path), cwd=ROOT
    )

    assert run.returncode == 1
    assert re.fullmatch("at [0-9a-f]{12} fails: BUG: AssertionError in reset_cache, .*\n", run.stderr)
    assert re.search("`main` at [0-9a-f]{12} fails\\.", run.stdout)

"""The check of an engine that only its `Live` describes."""

import pytest

from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Submit
from swarden.harness.core.registry import target_of
from swarden.harness.strict.checker import StrictChecker, content
from swarden.harness.strict.follow import LEVELS
from swarden.harness.strict.live import Live, LivePool, MemoryViolation, Terms
from swarden.harness.strict.recording import RecordedSubmit
from swarden.invariants.events import Finished, FinishReason, Freed, Owner, StepBegan, StepEnded, Taken

FIRST, SECOND = Owner("request", 1), Owner("request", 2)


def live_of(free: list[int]) -> Live:
    """A pool of 4 pages with this free list, whose counter says that one page is held."""
    return Live(
        handlers={},
        terms=lambda: [Terms("full", 4, len(free), uncached=1)],
        uncached=lambda _pool: {FIRST: 1},
        pools=[LivePool("full", "page", 4)],
        holders=lambda _tables: lambda _moved: (),
        capture=lambda _step, _before: pytest.fail("no census was asked for"),
        needs_no_pass=lambda: False,
        is_paused=lambda: False,
        header=lambda: Header(engine="some", version="1", configs=[{}]),
        max_recorded_ops=100,
        lost=["settings of the server"],
    )


def watching(level: str, folder, free: list[int]) -> StrictChecker:
    checker = StrictChecker(LEVELS[level], reports=False, folder=folder)
    checker.watch(live_of(free))
    return checker


def test_sums_add_up_the_terms_of_the_engine(tmp_path):
    checker = watching("sums", tmp_path, free=[2, 3])

    with pytest.raises(MemoryViolation, match=r"full: capacity 4 = free 2 .* uncached 1 \(request r1 1\): one too few"):
        checker.notice_all([StepBegan(0), StepEnded()])


def test_violations_of_the_events_of_a_step_are_reported_together(tmp_path):
    checker = watching("audit", tmp_path, free=[1, 2, 3])
    freed = [Freed("full", (unit,), FIRST, "freed", 0) for unit in (4, 4)]

    with pytest.raises(MemoryViolation) as raised:
        checker.notice_all([StepBegan(0), Taken("full", (4,), SECOND), *freed, StepEnded()])

    lines = [line.strip() for line in str(raised.value).splitlines()]
    assert "full page 4: freed by request r1 (freed), but its owner was request r2" in lines
    assert "full page 4: freed by request r1 (freed), but it was free already" in lines


@pytest.mark.parametrize(
    ("in_step", "ops"),
    [(True, ["Submit", "Abort", "Step"]), (False, ["Submit", "Step", "Abort", "Step"])],
    ids=["in the step", "behind the step"],
)
def test_request_that_ends_early_is_aborted_in_the_log(in_step, ops, tmp_path):
    """The settings that a replay lacks count as lost."""
    checker = watching("sums", tmp_path, free=[1, 2, 3])
    checker.recorder.record_request(RecordedSubmit(1, Submit(tokens=(1, 2), max_new_tokens=9)))
    checker.notice(StepBegan(0))
    checker.recorder.ended_early([1], in_step=in_step)
    checker.notice_all([Finished(1, FinishReason.STOP), StepEnded()])
    if not in_step:
        checker.notice_all([StepBegan(0), StepEnded()])

    recording = checker.recorder.recording
    assert [type(op).__name__ for op in recording.ops()] == ops
    assert recording.truncated == "1 settings of the server"


def test_level_content_of_another_engine_is_refused():
    with pytest.raises(UsageError, match="not available for this engine; choose census"):
        content(reports=False).watch(live_of([]))


def test_target_without_a_description_of_running_engines_is_refused():
    with pytest.raises(UsageError, match="its target describes no running engine"):
        target_of("demo").live(None)

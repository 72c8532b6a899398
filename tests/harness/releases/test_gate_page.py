"""The page of a gate: its verdict, and the changed lines that a failure touches."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swarden.harness.core.changed_code import ChangedLine
from swarden.harness.core.counters import NO_COVERAGE
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.ops import Drain, Flush, Submit
from swarden.harness.core.replay import Verdict
from swarden.harness.releases.gate_page import SEE_PAGE, GatePage, KnownLogs, touched
from swarden.harness.report.story import StoryLine, StoryPart
from swarden.harness.search.gate import NOT_REPLAYED, Judged
from swarden.harness.search.judge import FAILS, OTHERWISE, PASSES
from swarden.harness.search.result import Tallies
from swarden.harness.search.verification import UNKNOWN, Cause

LAW = "law/request/code"
KNOWN = Cause(("a-bug",))

NO_MUTES: dict[str, Any] = {}


def page_of(*ends, why_broken=(), mutes=NO_MUTES, **given):
    """The page of failures that end so on the base; `given` are parts of the finding, of the group and of its runs."""
    defaults = {
        "fingerprint": LAW,
        "name": LAW,
        "path": Path("a.oplog"),
        "verdict": None,
        "is_confirmed": False,
        "ops": 1,
        "cause": UNKNOWN,
        "fingerprints": [given.get("fingerprint", LAW)],
        "log": SimpleNamespace(ops=given.get("log_ops", ())),
        "engine_steps": 1,
    }
    finding: Any = SimpleNamespace(**{**defaults, **given})
    tallies = Tallies(runs=given.get("runs", 1))
    result = SimpleNamespace(tallies=tallies, seconds=1.0, coverage=NO_COVERAGE, refused={})
    change = given.get("change", ())
    judged = {str(index): Judged(finding, end, frozenset(range(len(change)))) for index, end in enumerate(ends)}
    head = SimpleNamespace(result=result, is_interrupted=given.get("is_interrupted", False))
    gate: Any = SimpleNamespace(judged=judged, head=head, plan=SimpleNamespace(change=change))
    target: Any = SimpleNamespace(name="demo")
    return GatePage(target, gate, why_broken, mutes, given.get("logs"))


@pytest.mark.parametrize(
    ("page", "code"),
    [
        pytest.param(page_of(), ExitCode.CLEAN, id="none"),
        pytest.param(page_of(FAILS), ExitCode.CLEAN, id="old"),
        pytest.param(page_of(FAILS, PASSES), ExitCode.VIOLATED, id="new"),
        pytest.param(page_of(PASSES, mutes={LAW: "aside"}), ExitCode.CLEAN, id="put-aside"),
        pytest.param(page_of(PASSES, verdict=Verdict.FIXED), ExitCode.RED, id="not-each-time"),
        pytest.param(page_of(f"{OTHERWISE}another/law"), ExitCode.RED, id="otherwise"),
        pytest.param(page_of("unknown setting x"), ExitCode.RED, id="cannot-be-run"),
        pytest.param(page_of(NOT_REPLAYED, is_interrupted=True), ExitCode.INTERRUPTED, id="interrupted"),
        pytest.param(page_of(PASSES, is_interrupted=True), ExitCode.VIOLATED, id="interrupted-with-a-new-one"),
        pytest.param(page_of(PASSES, why_broken=["fault"]), ExitCode.MISUSE, id="broken"),
        pytest.param(page_of(FAILS, NOT_REPLAYED, cause=KNOWN), ExitCode.CLEAN, id="known"),
        pytest.param(page_of(PASSES, cause=KNOWN), ExitCode.VIOLATED, id="known-and-new"),
        pytest.param(page_of(runs=0), ExitCode.RED, id="no-run"),
        pytest.param(page_of(logs=KnownLogs({"a": PASSES}, {"a": FAILS})), ExitCode.VIOLATED, id="known-log"),
        pytest.param(
            page_of(logs=KnownLogs({"a": PASSES}, {"a": f"{OTHERWISE}b"})), ExitCode.VIOLATED, id="known-log-otherwise"
        ),
        pytest.param(page_of(logs=KnownLogs({"a": PASSES}, {"a": "no log"})), ExitCode.CLEAN, id="known-log-unread"),
    ],
)
def test_code_of_a_gate(page, code):
    assert page.code is code


def line(path, number, name):
    return ChangedLine(path, number, "x = 1", f"{path.removesuffix('.py').replace('/', '.')}:{name}")


IN_FUNCTION, AT_LINE = line("a/b/pool.py", 7, "Pool.free"), line("a/b/pool.py", 12, "Pool.free")
LATER, IN_FILE = line("a/b/tree.py", 3, "Tree.insert"), line("a/b/pool.py", 40, "Pool.take")
ELSEWHERE, NOT_RUN = line("a/c/other.py", 1, "free"), line("a/b/pool.py", 50, "Pool.take")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param((IN_FILE, IN_FUNCTION, LATER), (LATER, IN_FUNCTION), id="last-function-first"),
        pytest.param((IN_FUNCTION, LATER, AT_LINE), (AT_LINE, LATER, IN_FUNCTION), id="line-before-functions"),
        pytest.param((ELSEWHERE, IN_FILE), (IN_FILE, ELSEWHERE), id="that-ran-in-a-file-of-the-story-first"),
        pytest.param((IN_FILE, NOT_RUN), (IN_FILE,), id="that-ran"),
        pytest.param((NOT_RUN,), (), id="none"),
    ],
)
def test_changed_lines_of_a_story_come_in_the_order_of_their_nearness(change, found):
    places = ("step 1  freed  b/pool.py:12 free < b/pool.py:90 step", "step 2  given  b/tree.py:9 insert")
    story = [StoryLine(StoryPart.HISTORY, text) for text in places]

    finding: Any = SimpleNamespace(story=story)

    ran = frozenset(index for index, line in enumerate(change) if line is not NOT_RUN)

    assert tuple(touched(change, Judged(finding, PASSES, ran)).lines) == found


def test_failures_that_touch_the_same_lines_have_one_story_on_a_terminal():
    page = page_of(PASSES, PASSES, change=(IN_FILE,), story=[StoryLine(StoryPart.CLAIM, "law: a claim")])

    lines = [*page.short_lines()]

    assert lines.count(f"new: {LAW}") == lines.count("law: a claim") == 1
    assert lines[-1] == f"new, at the same lines: {LAW}  a.oplog"


LOST, CRASH = "requests_are_in_one_queue/request/lost", "KeyError/release/pool.py"
TWICE = "unit_has_one_owner/full page/owned_twice"
CLAIM, PLACE = "100%\r\n::set-env name=A::b", "b/pool.py:9 free"
STORY = [StoryLine(StoryPart.CLAIM, CLAIM), StoryLine(StoryPart.HISTORY, PLACE)]
BY_CLIENTS, BY_OPERATORS = (Submit(tokens=(1,), max_new_tokens=1), Drain()), (Flush(),)


def test_new_failure_is_annotated_at_the_changed_line_of_its_story_in_one_command():
    page = page_of(PASSES, FAILS, fingerprint=LOST, name=f"{LOST}: 2,", story=STORY, change=(IN_FILE, AT_LINE))

    assert [*page.annotations("python/")] == [
        "::error title=requests_are_in_one_queue/request/lost%3A 2%2C,file=python/a/b/pool.py,line=12::"
        f"100%25\\r\\n::set-env name=A::b%0AChanged lines in the functions of its story:%0A{AT_LINE}%0A{SEE_PAGE}"
    ]


@pytest.mark.parametrize(
    ("given", "beginnings"),
    [
        ({}, ["::error title=requests_are_in_one_queue/request/lost::"]),
        ({"verdict": Verdict.FLAKY}, ["::warning title="]),
        ({"fingerprint": CRASH, "log_ops": BY_OPERATORS}, ["::error title="]),
        ({"fingerprint": CRASH, "log_ops": BY_CLIENTS}, []),
        ({"fingerprints": [LOST, CRASH], "log_ops": BY_CLIENTS}, []),
        ({"fingerprint": TWICE, "log_ops": BY_CLIENTS}, []),
        ({"fingerprint": CRASH, "log_ops": BY_OPERATORS, "engine_steps": None}, []),
    ],
    ids=[
        "plain",
        "not-each-time",
        "crash-by-an-operator",
        "crash-by-clients",
        "crash-beside-it",
        "two-owners",
        "not-shrunk",
    ],
)
def test_failure_that_may_be_a_vulnerability_is_not_annotated(given, beginnings):
    page = page_of(PASSES, **{"fingerprint": LOST, "name": LOST, "story": STORY, **given})

    assert [line[: len(start)] for line, start in zip(page.annotations(""), beginnings, strict=True)] == beginnings


def test_failures_that_fail_each_time_come_first_and_then_short_ones():
    of_each = [
        page_of(PASSES, name="flaky", verdict=Verdict.FLAKY),
        page_of(PASSES, name="known", cause=KNOWN),
        page_of(PASSES, name="long", ops=9),
        page_of(PASSES, name="short"),
    ]
    target: Any = SimpleNamespace(name="demo")
    gate: Any = SimpleNamespace(judged={str(index): page.new[0] for index, page in enumerate(of_each)})

    names = [judged.name for judged in GatePage(target, gate, ()).new]

    assert names == ["short", "long", "known, which the fix of a-bug cures", "flaky, which does not fail each time"]

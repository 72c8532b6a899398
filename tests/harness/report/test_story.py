"""The story of a failure, and its layout on a terminal."""

import io
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from rich.console import Console

import swarden.invariants.events as seen
from swarden.harness.commands.layout import print_lines
from swarden.harness.core.admission import load_log
from swarden.harness.core.driver import Moment
from swarden.harness.core.event_log import PassedOver
from swarden.harness.core.fingerprint import fingerprint
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Abort, CloseSession, Drain, Pause, Recipe, Step, Submit
from swarden.harness.core.registry import OWN
from swarden.harness.core.replay import run_log
from swarden.harness.report.decisions import decision_tracer
from swarden.harness.report.event_text import op_text
from swarden.harness.report.heading import needs_line, ops_line, request_lines
from swarden.harness.report.history import history_of, refs_in_message
from swarden.harness.report.story import StoryLine, StoryPart, failure_lines, replay_line, story, story_lines
from swarden.invariants.laws.content.reads import ReadCode
from swarden.invariants.laws.lifecycle.progress import ProgressCode
from swarden.invariants.laws.memory.pools import PoolCode
from swarden.invariants.view import Holding, PoolView
from swarden.invariants.violation import Ref, Violation, node_ref, pool_ref, request_ref
from tests.invariants.builders import AFTER, with_pool

ROOT = Path(__file__).parents[3]
OPLOGS = ROOT / "tests" / "quality" / "oplogs"
ORIGIN = re.compile(r"(\S+\.py):(\d+) (\w+)(?: \(\w+\))?$")
EVENTS_OF_THE_FAKES = r".*written|… \d+ earlier"  # emitted by the fake forward; and the others that are left out


def shown(lines, **terminal):
    """The lines as a console of 80 columns shows them."""
    screen = io.StringIO()
    print_lines(Console(file=screen, width=80, **terminal), lines)
    return screen.getvalue()


def kept(name):
    return load_log(OPLOGS / f"{name}.oplog")


def failure_of(log):
    failure = run_log(log, tracer_of=decision_tracer).failure
    assert failure is not None
    return failure


def lines_of(name, part=None):
    log = kept(name)
    return [line.text for line in story_lines(log.header, failure_of(log)) if part in (None, line.part)]


def test_story_of_a_pair_names_the_engine_that_failed_and_its_configuration():
    heading = lines_of("B80", StoryPart.HEADING)

    assert heading[0].endswith("; engine 1 (decode) failed")
    [configuration] = [line for line in heading if line.startswith("configuration: ")]
    assert configuration.endswith(", role decode")
    assert lines_of("S9", StoryPart.HEADING)[-1] == "failed at op 3 (drain), after engine step 9"


def test_history_of_a_page_has_only_events_of_the_engine_that_failed():
    """Both engines of the pair have a page with this number."""
    failure = failure_of(kept("B80"))
    moments = [Moment(engine, 1, [seen.Taken("swa", (1,), seen.Owner("request", 10 + engine))]) for engine in (0, 1)]
    violation = Violation("unit_has_one_owner", Ref("page", 1, "swa"), PoolCode.LEAKED, {})

    lines = failure_lines(replace(failure, history=moments, violations=[violation]))

    assert [line.text for line in lines if line.part is StoryPart.HISTORY] == ["step 1     taken by request r11"]


def test_page_on_the_host_has_its_history_and_the_equation_of_its_pool_only():
    """The name of the host pool ends with the name of the device pool."""
    log = kept("S136")
    failure = failure_of(log)
    lines = failure_lines(replace(failure, violations=failure.violations[:1]))

    history = [line.text for line in lines if line.part is StoryPart.HISTORY]
    assert history
    assert all("  host/" in entry for entry in history)
    assert any(" copied from swa page " in line.text for line in lines)
    assert [line.text.split(":")[0] for line in lines if line.part is StoryPart.EQUATION] == ["host swa"]


@pytest.mark.parametrize("name", sorted(path.stem for path in OPLOGS.glob("*.oplog"))[::5])
def test_story_of_a_kept_log_has_no_repeated_equation_and_fits_80_columns(name):
    log = kept(name)
    failure = failure_of(log)
    lines = story_lines(log.header, failure)

    equations = [line.text for line in lines if ": capacity " in line.text]
    assert len(equations) == len(set(equations))
    assert [line.text for line in lines if line.part is StoryPart.EVIDENCE and len(line.text) > 450] == []
    assert max(map(len, shown(lines).splitlines())) <= 80


def test_story_of_an_engine_error_has_its_frames_its_history_and_all_pools():
    """The frames are in the engine's code, outermost first; the history includes the events up to the error."""
    failure = failure_of(kept("B20"))
    lines = failure_lines(failure)

    frames = [line.text for line in lines if line.part is StoryPart.EVIDENCE and ORIGIN.match(line.text)]
    assert frames[0].startswith("engine.py:")
    assert frames[-1].endswith(" _release")
    assert any(
        line.text.endswith("split") and "n3 is above it" in line.text
        for line in lines
        if line.part is StoryPart.HISTORY
    )
    assert {line.text.split(":")[0] for line in lines if line.part is StoryPart.EQUATION} >= {"full", "swa", "rows"}


def test_origin_of_an_event_is_a_line_of_the_engine_outside_of_the_ledgers():
    lines = [entry for entry in lines_of("B18", StoryPart.HISTORY) if not re.match(EVENTS_OF_THE_FAKES, entry)]
    origins = [found.groups() for entry in lines if (found := ORIGIN.search(entry))]

    assert len(origins) == len(lines) > 0
    for path, line, function in origins:
        source = (ROOT / "engine_under_test" / path).read_text().splitlines()
        above = [text for text in source[: int(line)] if re.match(r" *def ", text)]
        assert not path.startswith("pools/")
        assert f"def {function}(" in above[-1]


def test_tracing_changes_no_digest():
    log = kept("B18")
    plain, traced = (run_log(log, keep_digests=True, tracer_of=tracer) for tracer in (None, decision_tracer))

    assert traced.digests == plain.digests


def test_violation_with_the_expected_fingerprint_comes_first():
    """Another violation is before it in the failure."""
    joined = Violation("unit_has_one_owner", Ref("page", 1, "swa"), PoolCode.LEAKED, {})
    expected = Violation("pools_conserve_units", pool_ref("swa"), PoolCode.TOO_FEW, {"terms": "one too few"})
    failure = replace(failure_of(kept("B18")), violations=[joined, expected])

    lines = failure_lines(failure, expected=fingerprint(expected))

    claims = [line.text.split(":")[0] for line in lines if line.part is StoryPart.CLAIM]
    assert claims == [expected.law, joined.law]


def test_request_lines_name_common_prefixes():
    ops = (
        Submit(recipe=Recipe(path=(0, 0, 0)), max_new_tokens=4),
        Submit(recipe=Recipe(path=(0, 1)), namespace=1),
        Submit(recipe=Recipe(path=(0, 1))),
        Drain(),
    )
    driver = run_log(OpLog(Header(engine=OWN, machine="engine", configs=[{}]), ops))

    assert list(request_lines(driver.systems[0].reference)) == [
        "request r1: prompt of 12 tokens, 4 output tokens so far, ended: length",
        "request r2: prompt of 8 tokens, namespace 1, 1 output token so far, ended: length",
        "request r3: prompt of 8 tokens (the first 4 as in r1), 1 output token so far, ended: length",
    ]


def test_of_many_requests_only_those_in_the_evidence_and_the_newest_are_listed():
    driver = run_log(OpLog(Header(engine=OWN, machine="engine", configs=[{}]), [Submit()] * 20))

    *lines, rest = request_lines(driver.systems[0].reference, named={3})

    assert [line.split(":")[0] for line in lines] == [f"request r{number}" for number in (3, *range(14, 21))]
    assert rest == "and 12 other requests"


def test_story_of_a_request_kept_waiting_has_the_needs_of_the_planner_and_of_the_engine():
    lines = lines_of("B34")

    assert "request r1: waits, but [0, 24) fits with full 24 reserved (demand full 24)" in lines
    [branch] = [number for number, line in enumerate(lines) if " plan_new (B34)" in line]
    assert lines[branch].startswith("request r1: not budget.fits(")
    assert "self.lacks(…) [full 1]" in lines[branch + 1]


def test_story_of_a_stuck_engine_has_the_last_branches_once_and_the_holder_of_units():
    branch = PassedOver(1, "needed > left", (("needed", "3"), ("left", "2")), "scheduler.py:7 admit")
    given = Moment(0, 1, [seen.Given("full", (4, 5), seen.Owner("request", 3), seen.Owner("session", 2))])
    idle = [Moment(0, step, [], passed_over=[branch, branch]) for step in (2, 3, 4)]
    stuck = Violation(
        "work_makes_progress", Ref("engine"), ProgressCode.STUCK, {"steps": 3, "requests": (Ref("request", 1),)}
    )
    failure = failure_of(kept("B18"))
    pools = [PoolView("full", "page", 5, (1, 2, 3), (), [Holding(seen.Owner("session", 2), (4, 5), cached=False)])]
    after = replace(failure.transition.after, pools=pools)

    lines = [
        line.text
        for line in failure_lines(
            replace(
                failure, history=[given, *idle], violations=[stuck], transition=replace(failure.transition, after=after)
            )
        )
    ]

    assert lines[2:7] == [
        "the branches by which each of the last 3 steps left out request r1:",
        "request r1: needed > left  scheduler.py:7 admit",
        "with needed 3, left 2",
        "session s2:",
        "step 1     is given full 4, 5 by request r3",
    ]


@pytest.mark.parametrize(
    ("ops", "line"),
    [
        pytest.param(
            [Submit(), Step(count=2), Step(), Pause(), *[Step()] * 2],
            "ops: 1 submit 4 tokens by path 0, 1 new; 2 step 3; 4 pause; 5 step 2",
            id="few",
        ),
        pytest.param([*[Submit(), Step()] * 20, Pause()], "ops: 41 pause; and 40 others", id="many"),
    ],
)
def test_ops_of_a_story_are_numbered_and_steps_in_a_row_are_one(ops, line):
    assert ops_line(replace(failure_of(kept("B18")), ops=ops, op_index=len(ops) - 1)) == line


def test_wrong_content_has_the_history_of_the_page_and_not_of_its_reader():
    violation = Violation(
        "slots_hold_their_prefix",
        Ref("request", 1),
        ReadCode.UNWRITTEN,
        {"position": 3, "place": Ref("page", 5, "full")},
    )
    owner = seen.Owner("request", 1)
    history = [Moment(0, 1, [seen.Taken("full", (5,), owner), seen.Written(1, 2, "full", 0, 4, (5,))])]

    lines = failure_lines(replace(failure_of(kept("B18")), history=history, violations=[violation]))

    assert [line.text for line in lines if line.part is StoryPart.HISTORY] == [
        "step 1     taken by request r1",
        "step 1     written by request r2, positions 0 to 3",
    ]


def test_history_shows_no_empty_value_and_no_name_of_a_field_of_ours():
    """A pass that writes the same positions in two pools is one entry of its request."""
    freed, written = seen.Freed("full", (5,), seen.Owner("request", 1), "", 0), seen.Written(9, 1, "full", 0, 4, (5,))
    also = written._replace(pool="swa", pages=(7, 8), component=1)
    ended: list[NamedTuple] = [
        seen.Finished(1, "length"),
        seen.Finished(1, "error", "no memory"),
        seen.Retracted(1, 8, ()),
    ]
    moment = Moment(0, 1, [written, also, freed, *ended])

    lines = [line for ref in (request_ref(1), Ref("page", 5, "full")) for line in history_of(ref, [moment])]

    assert "; ".join(line.partition("  ")[2].strip() for line in lines) == (
        "writes full 5, swa 7, 8, positions 0 to 3; frees full 5; finished r1: length; finished r1: error: no memory; "
        "retracted r1; written by request r1, positions 0 to 3; freed by request r1"
    )


def test_retraction_and_end_for_want_of_memory_have_the_need_and_the_lack_of_each_pool():
    """The need is that of all running requests, or of the one that has ended."""
    short = "full needs 2, 0 free, 0 evictable: lacks 2; swa needs 2, 2 free, 2 evictable"
    before = replace(AFTER, pools=with_pool(AFTER, "full", free=[], holdings=[]))
    events: list[NamedTuple] = [seen.Retracted(1, 1, ()), seen.Finished(1, seen.FinishReason.OUT_OF_MEMORY, "too long")]
    moment = Moment(0, 1, events, before=replace(before, limits=before.limits._replace(lookahead_len=7)))

    assert history_of(request_ref(1), [moment]) == [
        f"step 1     retracted r1: {short}",
        f"step 1     finished r1: out of memory: too long: {short}",
    ]


def test_unit_and_receipt_that_stay_after_a_drain_have_the_line_that_took_them():
    """The pool as a whole has no history: that of its first unit is shown."""
    lines = lines_of("S139", StoryPart.HISTORY)

    assert any(re.search(r"taken by .*backups\.py:\d+ begin", line) for line in lines)
    assert history_of(Ref("receipt", 7), [Moment(0, 1, [seen.Locked(7, 3)], ["cache/locks.py:64 lock"])]) == [
        "step 1     locked by receipt 7  cache/locks.py:64 lock"
    ]


@pytest.mark.parametrize(
    ("op", "text"),
    [
        pytest.param(
            Submit(recipe=Recipe(continues=1)), "submit 4 tokens by path 0 after the 2nd prompt, 1 new", id="prompt"
        ),
        pytest.param(Abort(), "abort the 1st live request", id="abort"),
        pytest.param(Abort(request=10), "abort the 11th live request", id="later abort"),
        pytest.param(CloseSession(session=2), "close_session the 3rd open session", id="session"),
    ],
)
def test_op_counts_prompts_and_live_requests_in_words(op, text):
    """The ids of requests are of another numbering."""
    assert op_text(op) == text


@pytest.mark.parametrize(
    ("ref", "text"),
    [
        pytest.param(node_ref(4), "locked by request r1: full 0 to 1, swa 1 to 2", id="node"),
        pytest.param(Ref("page", 7, "swa"), "locked by request r1: swa 1 to 2", id="page"),
        pytest.param(Ref("request", 1), "locks nodes n4 in full, swa", id="request"),
        pytest.param(node_ref(5), None, id="another-node"),
    ],
)
def test_history_has_the_locks_of_a_subject_with_the_places_of_their_callers(ref, text):
    locked = seen.LocksCounted(1, (seen.LockCount("full", 4, (3,), 0, 1), seen.LockCount("swa", 4, (7,), 1, 2)))

    shown = history_of(ref, [Moment(0, 1, [locked], ["tree.py:3 lock < policy.py:9 add"])])

    assert shown == ([f"step 1     {text}  tree.py:3 lock < policy.py:9 add"] if text else [])


def test_configuration_of_a_minimal_log_names_the_settings_that_it_needs():
    header = Header(engine=OWN, machine="engine", configs=[{"page_size": 16, "chunk_len": 7, "overlap": True}])

    assert needs_line(header) == "needs: chunk_len 7, overlap True; all others are the default"


def test_equal_evidence_of_a_second_claim_refers_to_the_first():
    violations = [
        Violation(name, pool_ref("swa"), PoolCode.TOO_FEW, {"terms": "1 too few"})
        for name in ("pools_conserve_units", "drained_engine_is_empty")
    ]

    evidence = [line for line in story(violations, [], []).splitlines() if line.startswith("  ")]

    assert evidence == ["  swa: 1 too few", "  swa: as above"]


def test_replay_line_quotes_a_path_with_spaces():
    *_, argument = shlex.split(replay_line(Path("my logs/it's.oplog")).text)

    assert argument == "my logs/it's.oplog"


@pytest.mark.parametrize(
    ("text", "refs"),
    [
        pytest.param("host swa page 3: owned by nobody", [Ref("page", 3, "host swa")], id="host"),
        pytest.param("swa pages [24, 25]: freed", [Ref("page", 24, "swa"), Ref("page", 25, "swa")], id="several"),
        pytest.param("node 3: swa unlocked", [Ref("node", 3)], id="node"),
        pytest.param("request r7: aborted", [Ref("request", 7)], id="request"),
        pytest.param("swa: want 1, 256 free", [], id="nothing"),
    ],
)
def test_units_nodes_and_requests_in_a_message_are_found(text, refs):
    assert refs_in_message(text, ["swa", "host swa"]) == refs


def test_line_shows_control_characters_in_escaped_form():
    assert str(StoryLine(StoryPart.EVIDENCE, "pool \x1b[2J", 2)) == "  pool \\x1b[2J"

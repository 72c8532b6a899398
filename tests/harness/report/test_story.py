"""The story of a failure, and its layout on a terminal."""

import io
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from swarden.harness.commands.layout import print_lines
from swarden.harness.core.driver import Moment
from swarden.harness.core.fingerprint import fingerprint
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Drain, Recipe, Submit
from swarden.harness.core.registry import OWN
from swarden.harness.core.replay import run_log
from swarden.harness.report.heading import request_lines
from swarden.harness.report.history import refs_in_message
from swarden.harness.report.story import StoryLine, StoryPart, failure_lines, replay_line, story, story_lines
from swarden.invariants.events import Owner, Taken
from swarden.invariants.laws.memory.pools import PoolCode
from swarden.invariants.violation import Ref, Violation, pool_ref

ROOT = Path(__file__).parents[3]
OPLOGS = ROOT / "tests" / "quality" / "oplogs"
ORIGIN = re.compile(r"(\S+\.py):(\d+) (\w+)(?: \(\w+\))?$")
EVENTS_OF_THE_FAKES = "written"  # emitted by the fake forward


def shown(lines, **terminal):
    """The lines as a console of 80 columns shows them."""
    screen = io.StringIO()
    print_lines(Console(file=screen, width=80, **terminal), lines)
    return screen.getvalue()


def kept(name):
    return OpLog.load(OPLOGS / f"{name}.oplog")


def failure_of(log):
    failure = run_log(log, trace_origins=True).failure
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


def test_history_of_a_page_has_only_events_of_the_engine_that_failed():
    """Both engines of the pair have a page with this number."""
    failure = failure_of(kept("B80"))
    moments = [Moment(engine, 1, [Taken("swa", (1,), Owner("request", 10 + engine))]) for engine in (0, 1)]
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


@pytest.mark.parametrize("name", sorted(path.stem for path in OPLOGS.glob("*.oplog")))
def test_story_of_each_kept_log_has_no_repeated_equation_and_fits_80_columns(name):
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
        line.text.endswith("split") and "upper 3" in line.text for line in lines if line.part is StoryPart.HISTORY
    )
    assert {line.text.split(":")[0] for line in lines if line.part is StoryPart.EQUATION} >= {"full", "swa", "rows"}


def test_origin_of_an_event_is_a_line_of_the_engine_outside_of_the_ledgers():
    lines = [entry for entry in lines_of("B18", StoryPart.HISTORY) if EVENTS_OF_THE_FAKES not in entry]
    origins = [found.groups() for entry in lines if (found := ORIGIN.search(entry))]

    assert len(origins) == len(lines) > 0
    for path, line, function in origins:
        source = (ROOT / "engine_under_test" / path).read_text().splitlines()
        above = [text for text in source[: int(line)] if re.match(r" *def ", text)]
        assert not path.startswith("pools/")
        assert f"def {function}(" in above[-1]


def test_tracing_changes_no_digest():
    log = kept("B18")
    plain, traced = (run_log(log, keep_digests=True, trace_origins=trace) for trace in (False, True))

    assert traced.digests == plain.digests


def test_run_without_trace_has_no_origins():
    failure = run_log(kept("B18")).failure

    assert failure is not None
    assert [moment.origins for moment in failure.history if moment.origins] == []


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
        "request r1: prompt of 12 tokens, 4 output tokens so far",
        "request r2: prompt of 8 tokens, namespace 1, 1 output token so far",
        "request r3: prompt of 8 tokens (the first 4 as in r1), 1 output token so far",
    ]


def test_of_many_requests_only_those_in_the_evidence_and_the_newest_are_listed():
    driver = run_log(OpLog(Header(engine=OWN, machine="engine", configs=[{}]), [Submit()] * 20))

    *lines, rest = request_lines(driver.systems[0].reference, named={3})

    assert [line.split(":")[0] for line in lines] == [f"request r{one}" for one in (3, 14, 15, 16, 17, 18, 19, 20)]
    assert rest == "and 12 other requests"


def test_pool_name_that_repeats_the_unit_is_omitted():
    violation = Violation("unit_has_one_owner", Ref("row", 16, "rows"), PoolCode.LEAKED, {})

    _, evidence = story([violation], [], []).splitlines()

    assert evidence == "  row 16: no owner"


def test_heading_ends_with_the_op_that_failed_and_its_engine_step():
    assert lines_of("S9", StoryPart.HEADING)[-1] == "failed at op 3 (drain), after engine step 9"


def test_unit_in_the_detail_of_a_violation_has_its_history():
    lines = lines_of("B1")

    assert lines[lines.index("swa page 8:") + 1].startswith("step 1     taken by request r1 ")


def test_equal_evidence_of_a_second_claim_refers_to_the_first():
    violations = [
        Violation(name, pool_ref("swa"), PoolCode.TOO_FEW, {"terms": "1 too few"})
        for name in ("pools_conserve_units", "drained_engine_is_empty")
    ]

    evidence = [line for line in story(violations, [], []).splitlines() if line.startswith("  ")]

    assert evidence == ["  swa: 1 too few", "  swa: as above"]


def test_long_evidence_is_cut_and_has_its_length():
    violation = Violation("unit_has_one_owner", pool_ref("swa"), PoolCode.TOO_FEW, {"terms": "page " * 1000})

    _, evidence = story([violation], [], []).splitlines()

    assert len(evidence) < 450
    assert evidence.endswith("page … (5005 characters)")


def test_replay_line_quotes_a_path_with_spaces():
    *_, argument = shlex.split(replay_line(Path("my logs/it's.oplog")).text)

    assert argument == "my logs/it's.oplog"


def test_story_has_colours_only_on_a_terminal():
    lines = story_lines(kept("B18").header, failure_of(kept("B18")))

    assert "\x1b[" in shown(lines, force_terminal=True)
    assert "\x1b[" not in shown(lines)


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

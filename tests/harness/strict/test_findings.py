"""The violations that each level finds, their messages, and the behaviour after a violation."""

import logging
from collections import deque

import pytest

from swarden.engine_under_test.errors import AccountingError
from swarden.engine_under_test.units import request_owner
from swarden.harness.engines.own.mutants.catalog import BY_ID
from swarden.harness.strict.checker import LOGS, MAX_LOGS
from swarden.invariants.events import TREE, Freed, Given, Paired, Taken
from tests.harness.strict.some_traffic import Watched, some_config

FIRST = request_owner(1)


def complaint(watched: Watched) -> list[str]:
    """The lines of the violation in the next step, without the line of the op-log."""
    with pytest.raises(AccountingError) as raised:
        watched.step()
    return str(raised.value).splitlines()[:-1]


def free_pages(watched: Watched) -> deque[int]:
    """The free list of the full pool; a change of it is a fault of the engine."""
    return watched.engine.memory.ledgers.anchor._free


def running(level: str, **settings: object) -> Watched:
    """One request with 12 committed tokens: pages 20, 19 and 18 of full, 10, 9 and 8 of swa."""
    watched = Watched(level, some_config(**settings))
    watched.submit(*range(12), max_new_tokens=9)
    watched.step()
    return watched


def test_sums_name_the_pool_and_its_terms():
    """For a leaked page, the message is the equation with all terms and the difference."""
    watched = running("sums")

    free_pages(watched).pop()

    assert complaint(watched) == [
        "pools_conserve_units: The capacity of each pool is the sum of its free, cached, uncached and fenced units.",
        "  full: capacity 20 = free 15 + cached 3 (evictable 0, protected 3) + uncached 1 (request r1 1): one too few",
    ]


def test_sums_count_the_pools_of_the_host():
    """Each pool has one copy, and a page leaks."""
    watched = running("sums", host_full_pages=8, host_swa_pages=4)
    watched.step(3)

    host = watched.engine.memory.host
    assert host is not None
    host.ledgers[0]._free.pop()

    assert complaint(watched)[1:] == [
        "  host full: capacity 8 = free 4 + cached 3 (evictable 3, protected 0) + uncached 0: one too few"
    ]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (Freed("swa", (1,), FIRST, "slid", 0), "swa page 1: freed by request r1 (slid), but it was free already"),
        (Taken("full", (19,), FIRST), "full page 19: taken by request r1, but its owner was tree"),
        (Given("rows", (1,), FIRST, TREE), "row 1: given by request r1 to tree, but its owner was free"),
        (Freed("swa", (11,), TREE, "evicted", 0), "swa page 11: freed by tree, but ids run from 1 to 10"),
        (Freed("full", (0,), TREE, "evicted", 0), "full page 0: freed by tree, but ids run from 1 to 20"),
        (Freed("swa", (10,), TREE, "evicted", 0), "full page 20: its peer swa page 10 is free"),
        (Freed("full", (20,), TREE, "evicted", 0), "full page 20: free, but its peer is swa page 10"),
        (Paired("full", "swa", (19,), (10,)), "swa page 10: the peer of both full page 20 and full page 19"),
        (Paired("full", "swa", (19,), (1,)), "full page 19: its peer swa page 1 is free"),
    ],
)
def test_audit_names_the_wrong_call(event, expected):
    watched = running("audit")

    with pytest.raises(AccountingError) as raised:
        watched.checker.notice(event)

    assert f"  {expected}" in str(raised.value).splitlines()


def test_audit_finds_a_take_of_a_fenced_page():
    """A page that is fenced by a launch must not be taken before the launch completes."""
    watched = running("audit", overlap=True)
    watched.step()
    watched.engine.abort(1)
    [fenced] = {unit for units in watched.engine.memory.table.rows.fenced_units.values() for unit in units}

    with pytest.raises(AccountingError) as raised:
        watched.checker.notice(Taken("rows", (fenced,), FIRST))

    assert f"  row {fenced}: taken by request r1, but its owner was fence" in str(raised.value).splitlines()


def test_audit_shows_the_history_of_the_page():
    watched = running("audit")

    with pytest.raises(AccountingError) as raised:
        watched.checker.notice(Freed("full", (20,), FIRST, "finished", 0))

    assert str(raised.value).splitlines()[:-1] == [
        "units_move_only_by_their_owner: A unit is taken only while it is free, and given or freed only by its owner.",
        "  full page 20: freed by request r1 (finished), but its owner was tree",
        "    step 1     taken by request r1",
        "    step 1     paired with swa 10",
        "    step 1     given by request r1 to tree",
        "    step 1     freed by request r1, finished",
        "free_units_have_no_peer: A free or fenced unit has no peer.",
        "  full page 20: free, but its peer is swa page 10",
        "  swa page 10:",
        "    step 1     taken by request r1",
        "    step 1     paired with full 20",
        "    step 1     given by request r1 to tree",
        "full: capacity 20 = free 18 + cached 2 (evictable 0, protected 2) + uncached 0",
        "swa: capacity 10 = free 7 + cached 3 (evictable 1, protected 2) + uncached 0",
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(lambda free: free.popleft(), "full page 1: no owner", id="lost"),
        pytest.param(lambda free: free.appendleft(20), "full page 20: owned by free and tree", id="free-and-cached"),
        pytest.param(lambda free: free.appendleft(1), "full page 1: free twice: free and free", id="free-twice"),
    ],
)
def test_audit_finds_a_change_without_an_event(change, expected):
    """The audit finds it at the end of the step, by the length of the free list."""
    watched = running("audit")
    change(free_pages(watched))

    assert complaint(watched)[1] == f"  {expected}"


def test_audit_finds_pages_of_an_owner_without_a_row():
    """An owner without a row must not own pages."""
    watched = running("audit")
    watched.checker.notice(Taken("full", (1,), request_owner(7)))

    assert complaint(watched)[1:3] == ["  full page 1: no owner", "    step 1     taken by request r7"]


@pytest.mark.parametrize("level", ["audit", "census"])
def test_leak_has_the_same_fingerprint_at_both_levels_that_know_pages(level):
    watched = Watched(level, reports=True)
    free_pages(watched).pop()

    watched.step()

    assert "unit_has_one_owner/full page/leaked" in watched.checker.reporter.counts


def test_census_checks_every_invariant():
    """A page that is free and in use, together with a leaked page."""
    watched = running("census")
    free_pages(watched)[0] = 20

    lines = complaint(watched)

    assert "  full page 1: no owner" in lines
    assert "  full page 20: owned by free and tree n2" in lines


@pytest.mark.parametrize("level", ["audit", "census"])
def test_planted_bug_is_found(level):
    """B1, with random traffic: pages of tombstones that are never freed."""
    with BY_ID["B1"].planted():
        watched = Watched(level, some_config(page_size=1, sliding_window=2))

        with pytest.raises(AccountingError):
            watched.serve()


# --- reporting only


def test_reporting_checker_logs_a_violation_once_and_counts_each(caplog):
    """The engine goes on; the log has the text of the error."""
    watched = Watched("sums", reports=True)
    free_pages(watched).pop()

    with caplog.at_level(logging.ERROR, logger="swarden.strict"):
        watched.step(3)

    assert watched.checker.reporter.counts == {"pools_conserve_units/full pool/too_few": 3}
    assert caplog.messages == [
        "swarden: "
        "pools_conserve_units: The capacity of each pool is the sum of its free, cached, uncached and fenced units.\n"
        "  full: capacity 20 = free 19 + cached 0 (evictable 0, protected 0) + uncached 0: one too few\n"
        f"replay: swarden replay {watched.checker.reporter.log_path}"
    ]


def test_only_the_first_failure_is_recorded():
    watched = Watched("sums", reports=True)
    free_pages(watched).pop()
    watched.step(1)
    watched.engine.memory.table.rows._free.pop()
    watched.step(1)

    assert len(watched.checker.reporter.counts) == 2
    assert list(LOGS.iterdir()) == [watched.checker.reporter.log_path]


def test_full_log_folder_gets_no_further_log():
    """A server that restarts after each failure does not fill the disk."""
    LOGS.mkdir(parents=True)
    for number in range(MAX_LOGS):
        (LOGS / f"{number}.oplog").touch()
    watched = Watched("sums")
    free_pages(watched).pop()

    with pytest.raises(AccountingError) as raised:
        watched.step()

    assert str(raised.value).splitlines()[-1] == "not recorded: .swarden/strict has 100 op-logs; remove some"


def test_log_folder_error_is_reported_with_the_violation():
    LOGS.parent.write_text("a file")
    watched = Watched("sums")
    free_pages(watched).pop()

    with pytest.raises(AccountingError) as raised:
        watched.step()

    assert str(raised.value).splitlines()[-1].startswith("not recorded: ")

"""Each invariant finds exactly the violations of its broken cases, and none in its healthy cases."""

from importlib import import_module
from pkgutil import iter_modules

import pytest

from swarden.harness.report.wording import conservation_line
from swarden.invariants import catalog
from swarden.invariants.catalog import ALL, CAUSES_FIRST, Catalog, EvaluationCounts, Tally
from swarden.invariants.laws.memory.pools import unit_has_one_owner
from swarden.invariants.violation import Violation
from tests.invariants import cases
from tests.invariants.builders import HEALTHY, OVERLAPPED_STEP, after
from tests.invariants.builders import pools as pools_with
from tests.invariants.cases import decode_reservations, host_tier, loads, outputs, progress
from tests.invariants.host_builders import COPYING_BEGINS, COPYING_CONTINUES, COPYING_ENDS

MODULES = [import_module(f"{cases.__name__}.{module.name}") for module in iter_modules(cases.__path__)]
CASES = [case for module in MODULES for case in module.CASES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.invariant.name}-{case.name}")
def test_invariant_finds_exactly_the_violations_of_a_case(case):
    """Subject, code and values of every violation, in order; a healthy case has none."""
    tally = Tally()

    found = Catalog([case.invariant]).check(case.change, tally)

    assert found == [Violation(case.invariant.name, *evidence) for evidence in case.evidence]
    assert tally == {case.invariant.name: EvaluationCounts(evaluated=1)}


def test_every_invariant_has_a_broken_case():
    """Kept op-logs evaluate most of them on a healthy engine: see test_mutants.py."""
    assert {case.invariant.name for case in CASES if case.evidence} == {invariant.name for invariant in ALL.invariants}


def test_violation_has_the_name_of_its_invariant():
    [violation] = unit_has_one_owner.violations(after(pools=pools_with("swa", free=[7])))

    assert violation.law == "unit_has_one_owner"


def test_names_of_cases_are_unique():
    names = [(case.invariant.name, case.name) for case in CASES]

    assert len(names) == len(set(names))


def test_names_of_invariants_are_unique():
    names = [invariant.name for invariant in ALL.invariants]

    assert len(names) == len(set(names))


def test_each_module_of_invariants_has_a_module_of_cases():
    with_invariants = {invariant.find.__module__.rpartition(".")[2] for invariant in ALL.invariants}

    assert {module.__name__.rpartition(".")[2] for module in MODULES} == with_invariants


def test_order_of_modules_names_only_modules_with_invariants():
    assert set(CAUSES_FIRST.split()) <= {invariant.find.__module__.rpartition(".")[2] for invariant in ALL.invariants}


def test_each_claim_is_a_sentence():
    assert [invariant.name for invariant in ALL.invariants if not invariant.claim.endswith(".")] == []


def test_condition_of_each_invariant_is_a_question():
    """`swarden check` prints it if no run has met it."""
    conditions = {invariant.given for invariant in ALL.invariants if invariant.given is not None}

    assert [one.__name__ for one in conditions if "?" not in (one.__doc__ or "").partition("\n")[0]] == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(HEALTHY, id="not-overlapped"),
        pytest.param(OVERLAPPED_STEP, id="overlapped"),
        pytest.param(COPYING_BEGINS, id="copies-begin"),
        pytest.param(COPYING_CONTINUES, id="copies-in-progress"),
        pytest.param(COPYING_ENDS, id="copies-end"),
    ],
)
def test_healthy_step_has_no_violation(change):
    assert ALL.check(change, Tally()) == []


def test_violations_are_in_the_order_of_the_catalogue():
    """A leak breaks three laws: the leaked pages are reported before the sum and the counter."""
    found = ALL.check(after(pools=pools_with("swa", free=[7])), Tally())

    assert [violation.law for violation in found] == [
        "unit_has_one_owner",
        "pools_conserve_units",
        "free_counters_match_pools",
    ]


def test_invariant_of_events_that_did_not_happen_is_not_counted():
    """A step without an eviction does not count as an evaluation of an eviction law."""
    tally = Tally()

    ALL.check(HEALTHY, tally)

    assert "evictions_free_what_is_needed" not in tally
    assert "drained_engine_is_empty" not in tally
    assert tally["pools_conserve_units"] == EvaluationCounts(evaluated=1)


def test_counts_of_many_sets_of_invariants_are_those_of_few(monkeypatch):
    monkeypatch.setattr(catalog, "MOST_DUE", 1)
    checked, tally = Catalog(ALL.invariants), Tally()

    for change in (HEALTHY, outputs.COMPARED, HEALTHY, progress.PAUSED):
        checked.check(change, tally)

    apart = [Tally() for _ in range(4)]
    for change, own in zip((HEALTHY, outputs.COMPARED, HEALTHY, progress.PAUSED), apart, strict=True):
        ALL.check(change, own)
    for name in ALL.invariants:
        counts = [own.get(name.name, EvaluationCounts()) for own in apart]
        want = EvaluationCounts(sum(one.evaluated for one in counts), sum(one.not_applicable for one in counts))
        assert tally.get(name.name, EvaluationCounts()) == want


def test_invariant_that_an_engine_names_is_counted_as_not_applicable():
    name, tally = "cursors_are_ordered", Tally()

    found = Catalog(law for law in ALL.invariants if law.name == name).check(after(unreported=frozenset({name})), tally)

    assert (found, dict(tally)) == ([], {name: EvaluationCounts(not_applicable=1)})


@pytest.mark.parametrize(
    ("part", "name"),
    [
        pytest.param("nodes", "tree_is_well_formed", id="tree"),
        pytest.param("records", "cursors_are_ordered", id="records"),
        pytest.param("counters", "free_counters_match_pools", id="counters"),
        pytest.param("peer_maps", "peers_share_their_owner", id="peers"),
    ],
)
def test_invariant_of_a_missing_part_is_counted_as_not_applicable(part, name):
    tally = Tally()

    found = Catalog(law for law in ALL.invariants if law.name == name).check(after(**{part: None}), tally)

    assert (found, dict(tally)) == ([], {name: EvaluationCounts(not_applicable=1)})


@pytest.mark.parametrize(
    ("change", "name"),
    [
        pytest.param(outputs.UNPREDICTABLE, "outputs_match_reference", id="outputs"),
        pytest.param(outputs.UNPREDICTABLE, "slots_hold_their_prefix", id="tags"),
        pytest.param(outputs.COMPARED, "slots_hold_their_prefix", id="tags-of-a-model"),
        pytest.param(outputs.COMPARED, "reads_cover_the_window", id="reads-of-a-model"),
        pytest.param(HEALTHY, "logits_match_uncached_model", id="logits-of-the-fake-forward"),
        pytest.param(HEALTHY, "outputs_match_uncached_model", id="outputs-of-the-fake-forward"),
        pytest.param(progress.HELD_FROM_OUTSIDE, "work_makes_progress", id="held-from-outside"),
        pytest.param(progress.PAUSED, "work_makes_progress", id="pause"),
        pytest.param(progress.LOADED, "work_makes_progress", id="load-has-just-ended"),
        pytest.param(progress.LOADING, "work_makes_progress", id="load"),
        pytest.param(progress.KEPT_UNTIL_TIME_OUT, "work_makes_progress", id="kept-until-a-time-out"),
        pytest.param(progress.LAUNCHES_ARE_UNREPORTED, "work_makes_progress", id="launches-are-not-reported"),
        pytest.param(HEALTHY, "pauses_are_reported", id="no-pause"),
        pytest.param(HEALTHY, "cached_units_count_their_readers", id="receipts"),
        pytest.param(HEALTHY, "fenced_units_wait_for_their_launch", id="fences"),
        pytest.param(HEALTHY, "slot_peers_keep_their_offset", id="slots"),
        pytest.param(HEALTHY, "copies_keep_both_ends", id="no-host"),
        pytest.param(loads.LEAST_LOAD_IS_UNKNOWN, "host_prefixes_are_loaded", id="loads"),
        pytest.param(host_tier.WRITTEN_THROUGH, "evicted_nodes_are_written_back", id="write-through"),
        pytest.param(host_tier.COPY_FAILED, "evicted_nodes_are_written_back", id="a-copy-failed"),
        pytest.param(host_tier.COPY_WAS_IN_PROGRESS, "evicted_nodes_are_written_back", id="a-copy-was-in-progress"),
        pytest.param(host_tier.COPY_IS_IN_PROGRESS, "evicted_nodes_are_written_back", id="a-copy-is-in-progress"),
        *(
            pytest.param(change, "empty_decode_engine_reserves_at_once", id=name)
            for name, change in decode_reservations.NOT_EMPTY.items()
        ),
    ],
)
def test_invariant_whose_condition_is_false_is_counted_as_not_applicable(change, name):
    tally = Tally()

    found = Catalog(law for law in ALL.invariants if law.name == name).check(change, tally)

    assert (found, dict(tally)) == ([], {name: EvaluationCounts(not_applicable=1)})


def test_conservation_line_has_the_pool_and_every_term():
    shown = [conservation_line(pool) for pool in HEALTHY.after.pools[:2]]

    assert shown == [
        "full: capacity 12 = free 4 + cached 6 (evictable 2, protected 4) + uncached 2 (request r1 2)",
        "swa: capacity 8 = free 2 + cached 4 (evictable 2, protected 2) + uncached 2 (request r1 2)",
    ]

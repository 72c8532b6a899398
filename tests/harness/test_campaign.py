"""Campaigns: the same seed finds the same, and green must be earned."""

from dataclasses import replace

import pytest

from fakes.catalog import FAULTS
from harness.campaign import Plan, Result, Tallies, Worker, batch_seed, merge, turns_of, why_not_green
from harness.fingerprint import slug
from harness.machines.engine import EngineTraffic, WeightedEngineTraffic
from harness.machines.ledger import LedgerTraffic
from harness.mutants.catalog import BY_ID
from harness.oplog import OpLog
from harness.probes import ENGINE_PROBES
from harness.profiles import Profile
from invariants.catalog import CATALOG

TINY = Profile("tiny", 1.0, runs_per_batch=6, ops_per_run=(15,), probe_floor=0.0, must_evaluate=False, recheck_every=3)


def work(**changes):
    """A worker's result after a few small runs."""
    plan = Plan(TINY, seed=11, seconds=60, max_runs=6, machine="engine")
    return Worker(replace(plan, **changes), lambda _: None).work()


def earned() -> Result:
    """A campaign of 100 engine runs that saw and evaluated everything."""
    tallies = Tallies(runs=100)
    tallies.machine_runs["engine"] = 100
    tallies.ops.update({"step": 100})
    tallies.evaluated.update(invariant.name for invariant in CATALOG)
    tallies.probes.update(dict.fromkeys(ENGINE_PROBES, 1))
    tallies.fired.update(dict.fromkeys(FAULTS, 1))
    return Result(tallies)


def test_the_same_seed_does_the_same():
    """Two campaigns from one seed run the same ops and see the same probes."""
    first, second = work(), work()

    assert (first.tallies.ops, first.tallies.steps) == (second.tallies.ops, second.tallies.steps)
    assert first.tallies.probes == second.tallies.probes
    assert first.tallies.rechecked == 2
    assert first.diverged == []


@pytest.mark.parametrize("model", ["tiny-gemma3", "tiny-gpt-oss"])
def test_a_campaign_with_a_model_finds_nothing_in_a_healthy_engine(model):
    """The same ops from the same seed as with the stand-in, checked by other laws, the same when run twice."""
    plan = {"max_runs": 3}
    result, with_the_stand_in = work(model=model, **plan), work(**plan)

    assert (result.findings, result.diverged) == ({}, [])
    assert result.tallies.rechecked == 1
    assert result.tallies.ops == with_the_stand_in.tallies.ops
    assert result.tallies.evaluated["logits_are_those_without_a_cache"] > 50
    assert result.tallies.evaluated["every_slot_read_holds_its_prefix"] == 0
    assert result.tallies.not_applicable["every_slot_read_holds_its_prefix"] > 50


def test_a_finding_says_with_which_model_it_was_met():
    [finding] = work(model="tiny-qwen2", mutant="S110", stop_on_first=True, max_runs=None).findings.values()

    assert finding.log.header.model == "tiny-qwen2"
    assert finding.invariant in BY_ID["S110"].caught_by


def test_parts_of_an_engine_run_no_model():
    result = work(model="tiny-gemma3", machine="ledger", max_runs=2)

    assert (result.tallies.runs, result.findings) == (2, {})


@pytest.mark.parametrize("num_turns", [1, 2, 3, 15])
def test_each_machine_meets_all_lengths_of_runs(num_turns):
    """Also where the number of machines is a multiple of that of lengths."""
    profile = replace(TINY, ops_per_run=(3, 9, 30))

    met = [
        {profile.ops_of(batch, num_turns=num_turns) for batch in range(turn, 3 * num_turns, num_turns)}
        for turn in range(num_turns)
    ]

    assert met == num_turns * [{3, 9, 30}]


def test_the_first_finding_ends_a_hunt():
    """With stop_on_first one finding is kept, with its log up to the op that failed."""
    result = work(mutant="B46", stop_on_first=True, max_runs=None)

    [finding] = result.findings.values()
    assert finding.invariant == "requests_are_in_one_place"
    assert finding.log.header.mutant == "B46"
    assert result.tallies.failed_runs == 1


def test_a_failure_of_the_same_kind_is_kept_once():
    """Runs that fail are counted, findings are told apart by their fingerprint."""
    result = work(mutant="B46", max_runs=12)

    assert result.tallies.failed_runs > len(result.findings)
    assert all(name == finding.fingerprint for name, finding in result.findings.items())


@pytest.mark.parametrize(
    ("workers", "runs"),
    [pytest.param(1, [8], id="one"), pytest.param(2, [6, 2], id="two"), pytest.param(3, [6, 2, 0], id="three")],
)
def test_the_runs_of_a_campaign_are_shared_out_among_its_workers(workers, runs):
    """Batches of 6: whoever has the second does what is left."""
    assert [work(max_runs=8, worker=worker, workers=workers).tallies.runs for worker in range(workers)] == runs


def test_what_is_found_is_written_at_once(tmp_path):
    result = work(mutant="B46", stop_on_first=True, max_runs=None, out=tmp_path)

    [finding] = result.findings.values()
    assert finding.path == tmp_path / f"{slug(finding.fingerprint)}-seed11.unshrunk.oplog"
    assert OpLog.load(finding.path).ops == finding.log.ops


def test_batches_take_turns_and_half_of_the_engine_runs_have_no_swarm():
    """All machines have their turn; naming one leaves only its own."""
    turns = turns_of(None)

    assert turns.count(EngineTraffic) == turns.count(WeightedEngineTraffic) == 5
    assert {turn.machine for turn in turns} == {"engine", "pd", "ledger", "tree", "host"}
    assert turns_of("ledger") == [LedgerTraffic]


def test_the_seed_of_a_batch_depends_on_the_campaign_and_its_number_alone():
    """Known values: a change would make old seeds worthless."""
    assert [batch_seed(7, batch) for batch in (0, 1)] == [1718373188, 4149949613]
    assert batch_seed(7, 0) != batch_seed(8, 0)


def test_results_of_workers_add_up():
    """Counts are sums, of equal findings the earliest stays."""
    one, other = work(mutant="B46", stop_on_first=True), work(mutant="B46", stop_on_first=True)
    [fingerprint] = one.findings
    other.findings[fingerprint] = replace(other.findings[fingerprint], found_cpu_seconds=0.0)

    merged = merge([one, other])

    assert merged.tallies.runs == one.tallies.runs + other.tallies.runs
    assert merged.findings[fingerprint].found_cpu_seconds == 0.0


def test_an_earned_campaign_is_green():
    """Everything evaluated, every probe at its floor, no op mostly idle."""
    assert why_not_green(earned(), replace(TINY, must_evaluate=True, probe_floor=0.01)) == []


def test_an_op_that_hardly_came_is_judged_too():
    result = earned()
    result.tallies.ops.update({"complete": 8})
    result.tallies.noops.update({"complete": 5})

    assert why_not_green(result, TINY) == ["op complete: 5 of 8 were no-ops"]


@pytest.mark.parametrize(
    ("spoil", "owed"),
    [
        pytest.param(
            lambda tallies: tallies.noops.update({"step": 51}),
            "op step: 51 of 100 were no-ops",
            id="idle-op",
        ),
        pytest.param(
            lambda tallies: tallies.evaluated.pop("tree_is_well_formed"),
            "invariant tree_is_well_formed was never evaluated",
            id="vacuous-invariant",
        ),
        pytest.param(
            lambda tallies: tallies.probes.pop("chunk_parked"),
            "probe chunk_parked: seen in 0 runs, want at least 1",
            id="probe-below-its-floor",
        ),
        pytest.param(
            lambda tallies: tallies.fired.pop("forward.late"), "fault forward.late never fired", id="fault-never-fired"
        ),
    ],
)
def test_a_campaign_that_did_not_see_enough_is_red(spoil, owed):
    """Zero violations are not enough."""
    result = earned()
    spoil(result.tallies)

    assert why_not_green(result, replace(TINY, must_evaluate=True, probe_floor=0.01)) == [owed]

"""Bugs of checkers, planted in ours: a crash, a false alarm on a healthy engine, or a missed violation."""

from swarden.harness.core.mutant import Hunk, Mutants
from swarden.harness.engines.own.mutants.pools import TWO_PAGES_SHARE_A_PEER
from swarden.harness.search.mutants.unplanted import DetectedByTest

MUTANTS = Mutants()
bug = MUTANTS.bug

PORT = "swarden.harness.engines.own.adapter:SwardenEngine"

CHECK_KNOWS_NO_WINDOWS = DetectedByTest(
    id="B82",
    source="sglang pull 21499: the busy check raised NotImplementedError for a tree with windows",
    hunks=(
        Hunk(
            "swarden.invariants.laws.memory.tree:live_nodes_hold_their_pages",
            before="components = change.after.components",
            after=(
                "components = change.after.components\n    "
                "if any(one.window for one in components) and change.after.nodes:\n        raise NotImplementedError"
            ),
        ),
    ),
    detected_by="tests/harness/core/test_driver.py::test_error_in_an_invariant_is_no_finding",
)

bug(
    "B83",
    "sglang pull 27228: two batches were compared by ==, which does not compare the contents of tensors",
    at="swarden.invariants.laws.memory.tables:rows_match_their_records",
    healthy="list(record.table) != list(record.units[0])",
    broken="record.table != record.units[0]",
    caught_by=("rows_match_their_records",),
)

bug(
    "B84",
    "sglang pull 27731: one page was counted twice and another not at all, and the sum was right",
    at="swarden.invariants.laws.memory.pools:unit_has_one_owner",
    healthy="if not pool.is_partitioned:",
    broken="if len(pool.free) + len(pool.held) + pool.num_fenced != pool.capacity:",
    caught_by=("unit_has_one_owner",),
    overlooks=TWO_PAGES_SHARE_A_PEER,
)

bug(
    "B85",
    "sglang pulls 16067 and 19024: an engine counted as idle while requests waited, and their pages as leaked",
    at=f"{PORT}.has_work",
    healthy="return self.engine.has_work",
    broken="return bool(self.engine.scheduler.active)",
    caught_by=("drained_engine_is_empty",),
)

bug(
    "B86",
    "a published engine counted as idle between two chunks of a prompt, and the pages of the prompt as leaked",
    at=f"{PORT}.has_work",
    healthy="return self.engine.has_work",
    broken="return bool(self.engine.scheduler.running or len(self.engine.scheduler.waiting))",
    caught_by=("drained_engine_is_empty",),
)

bug(
    "B87",
    "sglang releases 0.5.10 to 0.5.17: a parked chunk was in no batch, so its pages were reported as leaked",
    at="swarden.harness.engines.own.capture:EngineCapture.capture",
    healthy="records = custody.with_row",
    broken="records = [custody.record(request) for request in engine.scheduler.running]",
    caught_by=(
        "unit_has_one_owner",
        "requests_are_in_one_queue",
        "records_match_request_places",
        "one_request_is_between_chunks",
        "pools_conserve_units",
    ),
)

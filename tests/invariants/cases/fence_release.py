"""Fences that outlast their launch."""

from dataclasses import replace

from swarden.invariants.contracts.fence_release import FenceReleaseCode, fences_end_with_their_launch
from swarden.invariants.events import Completed
from swarden.invariants.laws.lifecycle.flights import launch_ref
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import broken, idle
from tests.invariants.cases.flights import LOCKED_BY_FENCE

PAGE, RECEIPT = Ref("page", 9, "full"), Ref("receipt", 2)

CASES = [
    broken(
        fences_end_with_their_launch,
        "launch-completed",
        idle(Completed(7), before=LOCKED_BY_FENCE),
        found(PAGE, FenceReleaseCode.FENCED_AFTER_COMPLETION, launch=launch_ref(7)),
        found(RECEIPT, FenceReleaseCode.LOCKED_AFTER_COMPLETION, launch=launch_ref(7)),
    ),
    broken(
        fences_end_with_their_launch,
        "launch-not-in-flight",
        idle(before=replace(LOCKED_BY_FENCE, launches=())),
        found(PAGE, FenceReleaseCode.FENCED_FOR_NO_LAUNCH, launch=launch_ref(7)),
        found(RECEIPT, FenceReleaseCode.LOCKED_FOR_NO_LAUNCH, launch=launch_ref(7)),
    ),
]

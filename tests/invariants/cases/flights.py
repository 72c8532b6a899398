"""Passes out of order, and units that were not kept for those in flight."""

from dataclasses import replace

from invariants.events import Completed, Discarded, Failed, Late, Launched, Retracted
from invariants.flights import (
    fences_wait_for_a_launch,
    only_stale_results_are_discarded,
    passes_complete_in_order,
    units_in_flight_are_pinned,
)
from invariants.view import Fence, Holding, Owner
from tests.invariants.builders import (
    AFTER,
    FENCED,
    FLYING,
    FLYING_AFTER,
    R1,
    R2,
    STALE,
    broken,
    healthy,
    idle,
    in_flight,
    receipts,
    swapped,
)

LOCKED_BY_FENCE = replace(FENCED, receipts=(*(AFTER.receipts or ()), *receipts(id=2, holder=Owner("fence", 7))))
LAUNCHED = Launched(8, ((1, 21, 22),))
PRIVATE_OF_R1 = {"full": (7, 8), "swa": (5, 6)}
LEFT = {"records": (), "requests": (), "receipts": receipts(holder=Owner("fence", 8))}
VAIN = (STALE[0]._replace(launch=8),)


def without_r1(fence):
    """The pools once r1 is gone, its private pages behind a fence for that launch, and so its row."""
    return tuple(
        replace(
            pool,
            holdings=[holding for holding in pool.holdings if holding.owner != R1],
            fenced=[Fence(fence, PRIVATE_OF_R1.get(pool.name, (1,)))],
        )
        for pool in FLYING_AFTER.pools
    )


def loose(name, units, **changes):
    """Launch 8 flies while these pages of r1 in one pool have become something else."""
    [of_r1] = [one for one in FLYING_AFTER.pool(name).holdings if one.owner == R1]
    left = [unit for unit in of_r1.units if unit not in units]
    others = [one for one in FLYING_AFTER.pool(name).holdings if one.owner != R1]
    more = changes.pop("holdings", [])
    return in_flight(
        pools=swapped(FLYING_AFTER, name, holdings=[*others, of_r1._replace(units=left), *more], **changes)
    )


CASES = [
    healthy(passes_complete_in_order),
    healthy(passes_complete_in_order, FLYING, "one-behind-the-other"),
    healthy(
        passes_complete_in_order,
        in_flight(
            LAUNCHED, Late(7), before={}, launches=((*(FLYING.before.launches or ()), *(FLYING_AFTER.launches or ())))
        ),
        "late",
    ),
    healthy(passes_complete_in_order, in_flight(Failed(7, "lost"), Completed(7), launches=()), "failed"),
    broken(
        passes_complete_in_order,
        "too-many",
        in_flight(LAUNCHED, Launched(9, ((1, 22, 23),)), Completed(7), Completed(8), Completed(9), launches=()),
        ("launch 9", "is launched beside 7, 8, at most 2 may be in flight"),
    ),
    broken(
        passes_complete_in_order,
        "overtaken",
        in_flight(LAUNCHED, Completed(8), launches=FLYING.before.launches),
        ("launch 8", "is completed before launch 7"),
    ),
    broken(
        passes_complete_in_order,
        "twice",
        in_flight(LAUNCHED, Completed(7), Completed(7)),
        ("launch 7", "is completed, yet it was not in flight"),
    ),
    broken(
        passes_complete_in_order,
        "an-old-number",
        in_flight(Completed(7), Launched(8, ()), Launched(8, ()), launches=()),
        ("launch 8", "is launched after launch 8"),
        ("engine", "has the launches [] in flight, want [8, 8]"),
    ),
    broken(
        passes_complete_in_order,
        "failed-for-ever",
        in_flight(Failed(7, "lost"), launches=FLYING.before.launches),
        ("launch 7", "has failed, yet it has not completed"),
    ),
    broken(
        passes_complete_in_order,
        "forgotten",
        in_flight(LAUNCHED, Completed(7), launches=()),
        ("engine", "has the launches [] in flight, want [8]"),
    ),
    healthy(
        only_stale_results_are_discarded,
        in_flight(Completed(7), Discarded(7, 1), before={"launches": STALE}),
    ),
    healthy(
        only_stale_results_are_discarded,
        in_flight(Retracted(1, 3, ()), Completed(7), Discarded(7, 1)),
        "of-one-that-was-retracted-since",
    ),
    broken(
        only_stale_results_are_discarded,
        "though-it-counts",
        in_flight(LAUNCHED, Completed(7), Discarded(7, 1)),
        ("request r1", "[20, 21) of launch 7 is discarded, yet it counts"),
    ),
    broken(
        only_stale_results_are_discarded,
        "of-another-pass",
        in_flight(LAUNCHED, Completed(7), Discarded(8, 1), before={"launches": STALE}),
        ("request r1", "launch 8 is discarded for it, yet that pass did not complete with it"),
    ),
    healthy(fences_wait_for_a_launch, idle(before=FENCED)),
    healthy(fences_wait_for_a_launch, idle(before=LOCKED_BY_FENCE), "a-lock-waits-too"),
    healthy(fences_wait_for_a_launch, idle(Completed(7), before=FENCED, after=AFTER), "lowered-with-its-launch"),
    broken(
        fences_wait_for_a_launch,
        "lowered-too-early",
        idle(Completed(6), before=LOCKED_BY_FENCE, after=AFTER),
        ("full page 9", "left its fence, yet launch 7 has not completed"),
        ("receipt 2", "returned, yet launch 7 has not completed"),
    ),
    broken(
        fences_wait_for_a_launch,
        "left-standing",
        idle(Completed(7), before=LOCKED_BY_FENCE),
        ("full page 9", "still fenced, yet launch 7 has completed"),
        ("receipt 2", "still out, yet launch 7 has completed"),
    ),
    broken(
        fences_wait_for_a_launch,
        "for-no-pass",
        idle(before=replace(FENCED, launches=())),
        ("full page 9", "still fenced, yet launch 7 is not in flight"),
    ),
    healthy(units_in_flight_are_pinned),
    healthy(units_in_flight_are_pinned, FLYING, "its-own-and-cached"),
    healthy(
        units_in_flight_are_pinned,
        in_flight(pools=without_r1(fence=8), launches=VAIN, **LEFT),
        "of-one-that-has-ended",
    ),
    healthy(
        units_in_flight_are_pinned,
        loose("swa", [5], fenced=[Fence(9, [5])]),
        "given-up-behind-a-later-fence",
    ),
    broken(
        units_in_flight_are_pinned,
        "free",
        loose("swa", [5], free=[5, 7, 8]),
        ("swa page 5", "launch 8 reads or writes it for request r1, yet it is free"),
    ),
    broken(
        units_in_flight_are_pinned,
        "another's",
        loose("full", [8], holdings=[Holding(R2, (8,), cached=False)]),
        ("full page 8", "launch 8 reads or writes it for request r1, yet it is owned by request r2"),
    ),
    broken(
        units_in_flight_are_pinned,
        "behind-too-early-a-fence",
        loose("full", [8], fenced=[Fence(7, [8])]),
        ("full page 8", "launch 8 reads or writes it for request r1, yet its fence waits for launch 7"),
    ),
    broken(
        units_in_flight_are_pinned,
        "cached-without-a-lock",
        in_flight(pools=without_r1(fence=8), launches=VAIN, **{**LEFT, "receipts": receipts(holder=Owner("fence", 7))}),
        *(
            (
                f"{page}",
                "launch 8 reads or writes it for request r1, yet it is owned by tree n"
                + node
                + ", under no lock for it",
            )
            for page, node in (
                ("full page 1", "1"),
                ("full page 2", "1"),
                ("full page 3", "2"),
                ("full page 4", "2"),
                ("swa page 2", "2"),
            )
        ),
    ),
    broken(
        units_in_flight_are_pinned,
        "in-the-record-of-its-next-life",
        in_flight(launches=VAIN),
        *(
            (page, "launch 8 reads or writes it for request r1, yet request r1 has it in another record")
            for page in ("full page 7", "full page 8", "swa page 5", "swa page 6")
        ),
    ),
]

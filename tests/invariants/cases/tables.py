"""Records whose rows, pages or tree path are inconsistent."""

from dataclasses import replace

from swarden.invariants.laws.memory.tables import (
    TableCode,
    last_token_keeps_its_page,
    private_pages_match_frontier,
    rows_match_their_records,
    shared_pages_match_tree_path,
    unit_stands_in_one_table_place,
)
from swarden.invariants.view import ComponentView, Holding, PoolView
from swarden.invariants.violation import Ref, found, node_ref, request_ref
from tests.invariants.builders import (
    AFTER,
    HEALTHY,
    LIMITS,
    PAGE,
    R1,
    R2,
    TREE,
    WINDOW,
    after,
    broken,
    healthy,
    page,
    records,
)

FULL, SWA = (1, 2, 3, 4, 7, 8), (0, 0, 1, 2, 5, 6)

# One pool of blocks serves two groups of layers: r1 and r2 share blocks 1 and 2; the others are private.
OF_R1 = records(protected_len=4, committed_len=8, launched_len=8, allocated_len=8, units=((1, 3), (2, 4)), node=0)[0]
OF_R2 = OF_R1._replace(owner=R2, row=2, units=((1, 5), (2, 6)))
ONE_POOL = replace(
    AFTER,
    limits=LIMITS,
    components=(ComponentView("blocks", None, PAGE), ComponentView("blocks", WINDOW, PAGE)),
    pools=(
        PoolView(
            "blocks",
            "block",
            8,
            [7, 8],
            (),
            [
                Holding(TREE, (1, 2), cached=True, locks=2),
                Holding(R1, (3, 4), cached=False),
                Holding(R2, (5, 6), cached=False),
            ],
        ),
    ),
    records=(OF_R1, OF_R2),
)


def tables(*units):
    """An engine with one pool, in which r2 has these blocks instead."""
    return replace(HEALTHY, after=replace(ONE_POOL, records=(OF_R1, OF_R2._replace(units=units))))


def shared_uncomputed(*holdings):
    """Pages are shared before they are computed; r1 and r2 have unit 3 at the same place, and these hold the units."""
    change, [pool] = tables((1, 3), (2, 6)), ONE_POOL.pools
    held = replace(pool, holdings=[*holdings, Holding(R2, (6,), cached=False)])
    limits = LIMITS._replace(shares_uncomputed=True)
    return replace(change, after=replace(change.after, limits=limits, pools=(held,)))


def named_twice(unit, code, records, components, indices):
    return found(Ref("block", unit, "blocks"), code, records=records, components=components, indices=indices)


CASES = [
    broken(
        rows_match_their_records,
        "stale-row",
        after(records=records(table=(1, 2, 3, 4, 9, 8))),
        found(request_ref(1), TableCode.STALE_ROW, row=1, index=4, named=9, held=7),
    ),
    broken(
        rows_match_their_records,
        "too-few-pages",
        after(records=records(units=(FULL, SWA[:5]))),
        found(request_ref(1), TableCode.WRONG_PAGE_COUNT, component="swa", pages=5, allocated_len=21),
    ),
    broken(
        rows_match_their_records,
        "beyond-the-row",
        after(records=records(allocated_len=41, units=(range(1, 12), range(1, 12)), table=range(1, 12))),
        found(request_ref(1), TableCode.BEYOND_THE_ROW, allocated_len=41, max_context_len=40),
    ),
    broken(
        shared_pages_match_tree_path,
        "other-page",
        after(records=records(units=((1, 2, 9, 4, 7, 8), SWA))),
        found(page("full", 9), TableCode.NOT_ON_THE_PATH, record=request_ref(1), index=2, cached=3),
    ),
    broken(
        shared_pages_match_tree_path,
        "other-length",
        after(records=records(protected_len=8)),
        found(request_ref(1), TableCode.SHARES_ANOTHER_LENGTH, protected_len=8, node=node_ref(2), end=16),
    ),
    broken(
        shared_pages_match_tree_path,
        "no-node",
        after(records=records(node=0)),
        found(request_ref(1), TableCode.SHARES_NO_NODE, protected_len=16, node=node_ref(0), end=0),
    ),
    broken(
        private_pages_match_frontier,
        "page-below-the-frontier-kept",
        after(records=records(frontiers=(0, 20))),
        found(request_ref(1), TableCode.KEPT_BELOW_FRONTIER, unit=page("swa", 5), start=16, frontier=20),
    ),
    broken(
        private_pages_match_frontier,
        "windowed-page-missing",
        after(records=records(units=(FULL, (0, 0, 1, 2, 0, 6)))),
        found(request_ref(1), TableCode.PAGE_MISSING, component="swa", start=16, end=20),
    ),
    broken(
        last_token_keeps_its_page,
        "page-of-the-last-token-missing",
        after(records=records(units=(FULL, (0, 0, 1, 2, 5, 0)))),
        found(request_ref(1), TableCode.LAST_PAGE_MISSING, component="swa", position=20),
    ),
    broken(
        unit_stands_in_one_table_place,
        "in-two-groups",
        tables((1, 5), (2, 5)),
        named_twice(5, TableCode.IN_TWO_COMPONENTS, (R2, R2), (0, 1), (1, 1)),
    ),
    broken(
        unit_stands_in_one_table_place,
        "cached-for-another-group",
        tables((2, 5), (0, 6)),
        named_twice(2, TableCode.IN_TWO_COMPONENTS, (R1, R2), (1, 0), (0, 0)),
    ),
    broken(
        unit_stands_in_one_table_place,
        "at-two-page-indices",
        tables((5, 5), (2, 6)),
        named_twice(5, TableCode.IN_TWO_PLACES, (R2, R2), (0, 0), (0, 1)),
    ),
    healthy(
        unit_stands_in_one_table_place,
        shared_uncomputed(Holding(TREE, (1, 2, 3), cached=True, locks=2), Holding(R1, (4,), cached=False)),
        "cached-before-it-is-computed",
    ),
    broken(
        unit_stands_in_one_table_place,
        "in-two-requests-and-not-cached",
        shared_uncomputed(Holding(TREE, (1, 2), cached=True, locks=2), Holding(R1, (3, 4), cached=False)),
        named_twice(3, TableCode.PRIVATE_OF_TWO, (R1, R2), (0, 0), (1, 1)),
    ),
]

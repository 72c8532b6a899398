"""Reservations that are too small, transfers that never end or end without an event, and KV on the wrong pages.

r1 runs as in builders.py.  r2 is transferred from another engine: of its 22 tokens n3 has [0, 8), and pages for the
rest are reserved: full 9 10 11 12 and, for the two pages of the tail, swa 7 8.  r3 waits for pages behind r2.
"""

from dataclasses import replace
from typing import Any

import swarden.invariants.events as seen
from swarden.invariants.kinds import Place
from swarden.invariants.laws.lifecycle.handover import (
    HandoverCode,
    awaited_pages_are_due,
    delivered_transfers_never_time_out,
    due_transfers_are_taken_over,
    filled_pages_were_reserved,
    reserved_pages_cover_the_prompt,
    sent_pages_are_held,
    set_aside_requests_are_kept,
    taken_over_len_was_computed,
    transfers_keep_pages_until_released,
)
from swarden.invariants.limits import DECODE
from swarden.invariants.transition import Transition
from swarden.invariants.view import Holding, PoolView, ReceiptView, RecordView, RequestView, Snapshot
from swarden.invariants.violation import Found, Ref, found, request_ref, unit_ref
from tests.invariants.builders import AFTER, LIMITS, R2, broken, healthy, idle, nodes, peers

# All of the KV of r2 had come before the step; after it a page is awaited in each pool.
DUE = replace(AFTER, awaited={2: ((4,), (2,))}, due_transfers=frozenset({2}))
T1, T2 = seen.Owner("transfer", 1), seen.Owner("transfer", 2)
TAKEN = {"full": (9, 10, 11, 12), "swa": (7, 8), "rows": (2,)}
R2_RECORD = RecordView(
    T2, 2, 8, 8, 8, 22, (0, 16), ((5, 6, 9, 10, 11, 12), (0, 0, 0, 0, 7, 8)), (5, 6, 9, 10, 11, 12), receipt=2, node=3
)
LOCK = ReceiptView(2, T2, 3, ((3,), ()))  # n3 is out of the window of r2's next token
RUNNING, _ = AFTER.requests or ()
R2_LINKED, R3_LINKED = RequestView(2, Place.LINKED, 0, 22, 0, 9), RequestView(3, Place.LINKED, 0, 5, 0, 1)
RECORDS, RECEIPTS = AFTER.records or (), AFTER.receipts or ()
TAKES = tuple(seen.Taken(pool, units, T2) for pool, units in TAKEN.items())
RESERVED = seen.Reserved(2, 8, 22, (("full", 4), ("swa", 2)))


def held_by(owner: seen.Owner) -> tuple[PoolView, ...]:
    """The pools when `owner` has all units taken for r2, and n3 is locked for it."""
    return tuple(
        replace(
            pool,
            free=(),
            holdings=[
                *(
                    one._replace(locks=1) if (pool.name, one.units) == ("full", (5, 6)) else one
                    for one in pool.holdings
                ),
                Holding(owner, TAKEN[pool.name], cached=False),
            ],
        )
        for pool in AFTER.pools
    )


assert AFTER.counters is not None, "the engine gives counters"
R2_WAITS = replace(AFTER, requests=(RUNNING, R2_LINKED, R3_LINKED), limits=LIMITS._replace(role=DECODE))
R2_RESERVED = replace(
    R2_WAITS,
    pools=held_by(T2),
    peer_maps=peers({11: 7, 12: 8}),
    nodes=nodes(3, locks=(1, 0)),
    receipts=(*RECEIPTS, LOCK),
    records=(*RECORDS, R2_RECORD),
    counters=AFTER.counters._replace(
        free={"full": 0, "swa": 0}, evictable={"full": 0, "swa": 2}, protected={"full": 6, "swa": 2}
    ),
)
R2_RUNS = replace(
    R2_RESERVED,
    pools=held_by(R2),
    receipts=(*RECEIPTS, LOCK._replace(holder=R2)),
    records=(*RECORDS, R2_RECORD._replace(owner=R2, committed_len=22, launched_len=22)),
    requests=(RUNNING, R2_LINKED._replace(place=Place.RUNNING, num_outputs=1), R3_LINKED),
)
HANDED_OVER = replace(AFTER, records=(RECORDS[0]._replace(owner=T1),), requests=())


def arriving(*events: Any, before: Snapshot = R2_RESERVED, after: Snapshot = R2_RESERVED, **parts: Any) -> Transition:
    """A step with these events; by default pages are reserved for r2 before and after."""
    return idle(*events, before=before, after=replace(after, **parts))


def taking(*, prefix_len: int, **pages: int) -> Transition:
    """`pages` by pool are taken for r2, which has a cached prefix of `prefix_len` tokens."""
    takes = [seen.Taken(pool, tuple(range(1, count + 1)), T2) for pool, count in pages.items()]
    return idle(*takes, seen.Reserved(2, prefix_len, 22, tuple(pages.items())), before=R2_WAITS, after=R2_RESERVED)


def set_aside(*events: Any, place: Place | None) -> Transition:
    """r2 ran and was set aside after three output tokens; now it is in `place`, or in no queue."""
    later = [] if place is None else [R2_LINKED._replace(place=place, num_outputs=3)]
    return idle(seen.SetAside(2, 24), *events, before=R2_RUNS, after=replace(R2_WAITS, requests=(RUNNING, *later)))


THREE_OUTPUTS = replace(R2_WAITS, requests=(RUNNING, R2_LINKED._replace(num_outputs=3)))
WITHOUT_R2 = replace(R2_WAITS, requests=(RUNNING, R3_LINKED))
OTHER_PAGES = R2_RECORD._replace(units=((5, 6, 9, 10, 12, 11), R2_RECORD.units[1]))
OWN_IN_PREFIX = (*RECORDS, R2_RECORD._replace(units=(R2_RECORD.units[0], (0, 7, 0, 0, 0, 8))))
TREES_IN_PREFIX = (*RECORDS, R2_RECORD._replace(units=(R2_RECORD.units[0], (0, 2, 0, 0, 7, 8))))
OF_20_TOKENS = (RUNNING, R2_LINKED._replace(prompt_len=20))


def transfer(code: HandoverCode, request_id: int = 2, **values: object) -> Found:
    return found(Ref("transfer", request_id), code, **values)


def awaiting(full: tuple[int, ...], swa: tuple[int, ...], **parts: Any) -> Transition:
    """r2 awaits the KV of these pages."""
    return arriving(awaited={2: (full, swa)}, **parts)


def page_refs(pool: str, pages: tuple[int, ...]) -> tuple[Ref, ...]:
    return tuple(unit_ref(AFTER.pool(pool), page) for page in pages)


CASES = [
    broken(
        reserved_pages_cover_the_prompt,
        "no-pages-for-the-tail",
        taking(prefix_len=8, full=4, swa=1),
        found(request_ref(2), HandoverCode.RESERVED_TOO_FEW, pool="swa", taken=1, missing=2, length=22),
    ),
    broken(
        reserved_pages_cover_the_prompt,
        "wrong-count-reported",
        arriving(*TAKES, RESERVED._replace(pages=(("full", 4), ("swa", 4))), before=R2_WAITS),
        found(request_ref(2), HandoverCode.RESERVATION_MISCOUNTED, pool="swa", reported=4, taken=2),
    ),
    *(
        broken(
            sent_pages_are_held,
            name,
            idle(seen.Sent(request, pool, first, pages), before=before),
            found(request_ref(request), HandoverCode.SENT_FOREIGN_PAGES, pages=page_refs(pool, pages), first=first),
        )
        for name, before, request, pool, first, pages in (
            ("from-an-earlier-place", AFTER, 1, "full", 4, (4, 7)),
            ("from-beyond-its-end", HANDED_OVER, 1, "full", 5, (8, 9)),
            ("without-a-record", AFTER, 9, "swa", 0, (3,)),
        )
    ),
    *(
        broken(
            filled_pages_were_reserved,
            name,
            arriving(*events, seen.Filled(2, pool, places, pages), before=before),
            found(request_ref(2), HandoverCode.FILLED_OTHER_PLACES, pages=page_refs(pool, pages)),
        )
        for name, before, events, pool, places, pages in (
            ("a-place-before-its-own", R2_RESERVED, (), "full", (3, 4), (9, 10)),
            ("beyond-its-end", R2_RESERVED, (), "full", (5, 6), (12, 1)),
            ("another-page-than-was-reserved-in-the-step", R2_WAITS, (*TAKES, RESERVED), "swa", (4,), (8,)),
        )
    ),
    broken(
        filled_pages_were_reserved,
        "without-a-reservation",
        arriving(seen.Filled(2, "swa", (5,), (8,)), before=R2_WAITS, after=R2_WAITS),
        found(request_ref(2), HandoverCode.FILLED_WITHOUT_RESERVATION, pages=page_refs("swa", (8,))),
    ),
    healthy(awaited_pages_are_due, awaiting((9,), (7, 8), records=OWN_IN_PREFIX), "own-page-in-the-prefix"),
    healthy(
        awaited_pages_are_due,
        awaiting((11, 12), (7, 8), requests=(RUNNING, R2_LINKED._replace(prompt_len=20, num_outputs=3))),
        "restored-with-three-tokens",
    ),
    *(
        broken(
            awaited_pages_are_due,
            name,
            awaiting(full, swa, **parts),
            transfer(HandoverCode.AWAITS_OTHER_PAGES, pool=pool, pages=page_refs(pool, others), length=length),
        )
        for name, full, swa, parts, pool, others, length in (
            ("a-page-of-the-cached-prefix", (6, 9), (), {}, "full", (6,), 22),
            ("a-page-of-the-tree", (9,), (2, 7), {}, "swa", (2,), 22),
            ("a-page-of-the-tree-in-the-prefix", (9,), (2, 7), {"records": TREES_IN_PREFIX}, "swa", (2,), 22),
            ("a-page-that-it-has-not", (9, 0), (), {}, "full", (0,), 22),
            ("without-a-record", (9,), (), {"records": RECORDS}, "full", (9,), 22),
            ("a-page-behind-its-last-token", (11, 12), (7,), {"requests": OF_20_TOKENS}, "full", (12,), 20),
        )
    ),
    *(
        healthy(
            delivered_transfers_never_time_out,
            arriving(
                event,
                before=replace(R2_RESERVED, delivered=frozenset(delivered)),
                after=WITHOUT_R2,
                delivered=frozenset(),
            ),
            name,
        )
        for name, event, delivered in (
            ("a-message-was-lost", seen.Finished(2, seen.FinishReason.PEER_TIMEOUT), {1}),
            ("read-by-the-other-engine", seen.LetGo(2, seen.FreeCause.HANDED_OVER), {2}),
            ("aborted", seen.Finished(2, seen.FinishReason.ABORT), {2}),
        )
    ),
    broken(
        delivered_transfers_never_time_out,
        "decode-side",
        arriving(
            seen.Finished(2, seen.FinishReason.PEER_TIMEOUT),
            seen.LetGo(2, seen.FinishReason.PEER_TIMEOUT),
            before=replace(R2_RESERVED, delivered=frozenset({2})),
            after=WITHOUT_R2,
            delivered=frozenset(),
        ),
        transfer(HandoverCode.TIMED_OUT_WITH_ALL),
    ),
    broken(
        due_transfers_are_taken_over,
        "not-taken-over",
        idle(before=DUE, after=DUE),
        transfer(HandoverCode.NOT_TAKEN_OVER),
    ),
    *(
        healthy(due_transfers_are_taken_over, idle(before=was, after=now), name)
        for name, was, now in (
            ("came-in-the-step", replace(DUE, due_transfers=frozenset()), DUE),
            ("lacks-a-page", replace(DUE, due_transfers=frozenset({1})), DUE),
            ("taken-over", DUE, replace(DUE, awaited={})),
            ("begins-again", replace(DUE, awaited={}), DUE),
            ("was-paused", replace(DUE, is_paused=True), DUE),
            ("is-paused", DUE, replace(DUE, is_paused=True)),
        )
    ),
    broken(
        transfers_keep_pages_until_released,
        "ended-without-an-event",
        arriving(after=WITHOUT_R2),
        transfer(HandoverCode.ENDED_UNREPORTED),
    ),
    broken(
        transfers_keep_pages_until_released,
        "pages-changed",
        arriving(records=(*RECORDS, OTHER_PAGES)),
        transfer(HandoverCode.PAGES_CHANGED, pool="full", was=(5, 6, 9, 10, 11, 12), now=(5, 6, 9, 10, 12, 11)),
    ),
    broken(
        transfers_keep_pages_until_released,
        "began-without-an-event",
        arriving(before=R2_WAITS),
        transfer(HandoverCode.BEGAN_UNREPORTED),
    ),
    broken(
        transfers_keep_pages_until_released,
        "units-left",
        arriving(seen.LetGo(2, "abort"), after=WITHOUT_R2, pools=held_by(T2)),
        *(transfer(HandoverCode.UNITS_LEFT, units=page_refs(pool, units)) for pool, units in TAKEN.items()),
    ),
    broken(
        taken_over_len_was_computed,
        "last-token-missing",
        arriving(seen.TakenOver(2, 21, (3,)), after=R2_RUNS),
        found(request_ref(2), HandoverCode.TAKEN_OVER_AT_WRONG_LEN, length=21, computed=22),
    ),
    broken(
        taken_over_len_was_computed,
        "known-output-sent-again",
        idle(seen.TakenOver(2, 24, (3,)), before=THREE_OUTPUTS),
        found(request_ref(2), HandoverCode.KNOWN_OUTPUT_RESENT, num_tokens=1, num_outputs=3),
    ),
    broken(
        set_aside_requests_are_kept,
        "waits-for-prefill",
        set_aside(place=Place.WAITING),
        found(request_ref(2), HandoverCode.WAITS_FOR_PREFILL, place=Place.WAITING),
    ),
    broken(set_aside_requests_are_kept, "lost", set_aside(place=None), found(request_ref(2), HandoverCode.LOST)),
]

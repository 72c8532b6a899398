"""Rooms that are too large, too late or given up in secret, and KV that goes from what or to what it should not.

r1 runs as in builders.py.  r2 comes from another engine: of its 22 tokens n3 has [0, 8), and room for the rest is
taken on full 9 10 11 12 and, for the two pages of the tail, on swa 7 8; r3 waits for room behind it.
"""

from dataclasses import replace
from typing import Any

from invariants.events import Filled, Finished, HandedOver, LetGo, Refused, Reserved, Sent, SetAside, Taken, TakenOver
from invariants.handover import (
    a_decode_side_takes_what_it_lacks,
    an_empty_decode_side_makes_room,
    room_is_made_in_order,
    transfers_end_in_the_open,
    what_comes_fills_what_is_reserved,
    what_is_sent_is_held,
    what_is_taken_over_was_computed,
    who_is_set_aside_waits_for_room,
)
from invariants.limits import DECODE
from invariants.transition import Transition, When
from invariants.view import Fence, Holding, LaunchView, Owner, PoolView, ReceiptView, RecordView, RequestView, Snapshot
from tests.invariants.builders import AFTER, LIMITS, R1, R2, broken, healthy, holding, idle, nodes, peers

T1, T2 = Owner("transfer", 1), Owner("transfer", 2)
TAKEN = {"full": (9, 10, 11, 12), "swa": (7, 8), "rows": (2,)}
ROOM = RecordView(
    T2, 2, 8, 8, 8, 22, 16, ((5, 6, 9, 10, 11, 12), (0, 0, 0, 0, 7, 8)), (5, 6, 9, 10, 11, 12), receipt=2, node=3
)
LOCK = ReceiptView(2, T2, 3, ((3,), ()))  # of n3 the window is over when r2 goes on
RUNNING, _ = AFTER.requests or ()
COMING, BEHIND = RequestView(2, "linked", 0, 22, 0, 9), RequestView(3, "linked", 0, 5, 0, 1)
RECORDS, RECEIPTS = AFTER.records or (), AFTER.receipts or ()
TAKES = tuple(Taken(pool, units, T2) for pool, units in TAKEN.items())
RESERVED = Reserved(2, 8, 22, (("full", 4), ("swa", 2)))
TAKEN_OVER = TakenOver(2, 22, (3,))


def held_by(owner: Owner) -> tuple[PoolView, ...]:
    """The pools when all that was taken for r2 is the owner's, and n3 is locked for it."""
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


assert AFTER.claims is not None, "the engine makes claims"
WAITS = replace(AFTER, requests=(RUNNING, COMING, BEHIND), limits=LIMITS._replace(role=DECODE))
HAS_ROOM = replace(
    WAITS,
    pools=held_by(T2),
    peer_maps=peers({11: 7, 12: 8}),
    nodes=nodes(3, locks=(1, 0)),
    receipts=(*RECEIPTS, LOCK),
    records=(*RECORDS, ROOM),
    claims=AFTER.claims._replace(
        free={"full": 0, "swa": 0}, evictable={"full": 0, "swa": 2}, protected={"full": 6, "swa": 2}
    ),
)
GOES_ON = replace(
    HAS_ROOM,
    pools=held_by(R2),
    receipts=(*RECEIPTS, LOCK._replace(holder=R2)),
    records=(*RECORDS, ROOM._replace(owner=R2, committed_len=22, launched_len=22)),
    requests=(RUNNING, COMING._replace(place="running", num_outputs=1), BEHIND),
)
HANDED_OVER = replace(AFTER, records=(RECORDS[0]._replace(owner=T1),), requests=())


def arriving(*events: Any, before: Snapshot = HAS_ROOM, after: Snapshot = HAS_ROOM, **parts: Any) -> Transition:
    """There is room for r2, before and after, unless told otherwise."""
    return idle(*events, before=before, after=replace(after, **parts))


def linked(*events: Any, gone: tuple[int, ...] = (), room: RecordView | None = None, **changes: Any) -> Transition:
    """r2 and r3 wait for room, but for what r2 has of it and who is gone; r3 is changed."""
    before = replace(
        WAITS,
        requests=(RUNNING, COMING, BEHIND._replace(**changes)),
        records=(*RECORDS, *([] if room is None else [room])),
    )
    left = tuple(one for one in before.requests or () if one.id not in gone)
    return idle(*events, before=before, after=replace(before, requests=left))


def taking(*, prefix_len: int, **pages: int) -> Transition:
    """Room for r2 is taken, of which so much was there, on so many pages."""
    takes = [Taken(pool, tuple(range(1, count + 1)), T2) for pool, count in pages.items()]
    return idle(*takes, Reserved(2, prefix_len, 22, tuple(pages.items())), before=WAITS, after=HAS_ROOM)


def empty(*events: Any, when: When = When.STEP, left: tuple[RequestView, ...] = (COMING,), **before: Any) -> Transition:
    """r2 waits for room where nobody has anything, unless told otherwise."""
    pools = tuple(replace(one, holdings=[held for held in one.holdings if held.owner != R1]) for one in AFTER.pools)
    state = replace(WAITS, **{"records": (), "requests": (COMING,), "pools": pools} | before)
    return replace(idle(*events, before=state, after=replace(state, requests=left)), when=when)


def set_aside(*events: Any, place: str | None) -> Transition:
    """r2 ran, gave its room up after three tokens, and is in a place, or in none."""
    later = [] if place is None else [COMING._replace(place=place, num_outputs=3)]
    return idle(
        SetAside(2, 24),
        *events,
        before=GOES_ON,
        after=replace(WAITS, requests=(RUNNING, *later)),
    )


SAID_THREE = replace(WAITS, requests=(RUNNING, COMING._replace(num_outputs=3)))
WITHOUT_R2 = replace(WAITS, requests=(RUNNING, BEHIND))
ELSEWHERE = ROOM._replace(units=((5, 6, 9, 10, 12, 11), ROOM.units[1]))
WITH_MORE = ROOM._replace(units=(ROOM.units[0], (0, 0, 0, 6, 7, 8)))
NOT_EMPTY = {
    "between-steps": empty(when=When.OP),
    "in-a-pause": empty(is_paused=True),
    "somebody-has-a-record": empty(records=RECORDS),
    "a-pass-of-who-is-gone-is-in-flight": empty(launches=(LaunchView(7, (), ()),)),
    "pages-wait-behind-a-fence": empty(pools=(replace(AFTER.pools[0], fenced=[Fence(7, [7, 8])]), *AFTER.pools[1:])),
    "a-neighbour-has-pages": empty(pools=holding("swa", Owner("pressure"), (7, 8))),
}

CASES = [
    healthy(a_decode_side_takes_what_it_lacks, arriving(*TAKES, RESERVED, before=WAITS)),
    healthy(a_decode_side_takes_what_it_lacks, taking(prefix_len=0, full=6, swa=2), "nothing-was-there"),
    healthy(a_decode_side_takes_what_it_lacks, taking(prefix_len=20, full=1, swa=1), "some-of-the-tail-was-there"),
    broken(
        a_decode_side_takes_what_it_lacks,
        "windowed-pages-for-the-whole-prompt",
        taking(prefix_len=8, full=4, swa=4),
        ("request r2", "said 4, took 4 of swa for 22 tokens, lacks 2"),
    ),
    broken(
        a_decode_side_takes_what_it_lacks,
        "what-was-there-once-more",
        taking(prefix_len=8, full=6, swa=2),
        ("request r2", "said 6, took 6 of full for 22 tokens, lacks 4"),
    ),
    broken(
        a_decode_side_takes_what_it_lacks,
        "more-than-it-says",
        arriving(*TAKES, Taken("swa", (4,), T2), RESERVED, before=WAITS),
        ("request r2", "said 2, took 3 of swa for 22 tokens, lacks 2"),
    ),
    broken(
        a_decode_side_takes_what_it_lacks,
        "less-than-it-says",
        arriving(*TAKES, RESERVED._replace(pages=(("full", 4), ("swa", 4))), before=WAITS),
        ("request r2", "said 4, took 2 of swa for 22 tokens, lacks 2"),
    ),
    healthy(an_empty_decode_side_makes_room, empty(*TAKES, RESERVED)),
    healthy(an_empty_decode_side_makes_room, empty(requests=(), left=()), "nobody-waits"),
    healthy(an_empty_decode_side_makes_room, empty(Finished(2, "abort"), left=()), "gone-before-it-got-any"),
    healthy(
        an_empty_decode_side_makes_room,
        empty(Finished(2, "abort"), requests=(COMING, BEHIND), left=(BEHIND,)),
        "the-first-has-gone",
    ),
    healthy(an_empty_decode_side_makes_room, empty(Refused("full", T2, 4, 4)), "no-memory-behind-free-pages"),
    broken(
        an_empty_decode_side_makes_room,
        "none-is-made",
        empty(),
        ("request r2", "waits for room, yet nobody has any"),
    ),
    broken(
        an_empty_decode_side_makes_room,
        "more-is-asked-for-than-is-free",
        empty(Refused("swa", T2, 6, 4)),
        ("request r2", "waits for room, yet nobody has any"),
    ),
    healthy(what_is_sent_is_held, idle(Sent(1, "full", 4, (7, 8)), Sent(1, "swa", 3, (2, 5, 6)))),
    healthy(
        what_is_sent_is_held,
        idle(HandedOver(1, 21), Sent(1, "full", 4, (7, 8)), after=HANDED_OVER),
        "while-it-is-handed-over",
    ),
    healthy(what_is_sent_is_held, idle(Sent(1, "full", 4, (7,)), before=HANDED_OVER), "once-more"),
    healthy(
        what_is_sent_is_held,
        idle(Sent(1, "full", 4, (7,)), LetGo(1, "aborted"), before=HANDED_OVER, after=replace(HANDED_OVER, records=())),
        "let-go-of-in-the-step",
    ),
    healthy(
        what_is_sent_is_held,
        idle(Sent(1, "full", 4, (7,)), before=replace(AFTER, records=()), after=AFTER),
        "admitted-in-the-step",
    ),
    broken(
        what_is_sent_is_held,
        "from-a-place-too-early",
        idle(Sent(1, "full", 4, (4, 7))),
        ("request r1", "sent full pages 4, 7 from page 4 on, which it has not there"),
    ),
    broken(
        what_is_sent_is_held,
        "from-beyond-its-end",
        idle(Sent(1, "full", 5, (8, 9)), before=HANDED_OVER),
        ("request r1", "sent full pages 8, 9 from page 5 on, which it has not there"),
    ),
    broken(
        what_is_sent_is_held,
        "of-one-who-has-nothing",
        idle(Sent(9, "swa", 0, (3,))),
        ("request r9", "sent swa page 3 from page 0 on, which it has not there"),
    ),
    healthy(what_comes_fills_what_is_reserved, arriving(Filled(2, "full", (2, 3), (9, 10)))),
    healthy(
        what_comes_fills_what_is_reserved,
        arriving(Filled(2, "swa", (4, 5), (7, 8)), TAKEN_OVER, after=GOES_ON),
        "the-last-of-it",
    ),
    healthy(
        what_comes_fills_what_is_reserved,
        arriving(*TAKES, RESERVED, Filled(2, "swa", (5,), (8,)), before=WAITS),
        "reserved-just-now",
    ),
    healthy(
        what_comes_fills_what_is_reserved,
        arriving(*TAKES, RESERVED, Filled(2, "swa", (4, 5), (7, 8)), TAKEN_OVER, before=SAID_THREE, after=GOES_ON),
        "reserved-and-taken-over-in-one-step",
    ),
    broken(
        what_comes_fills_what_is_reserved,
        "a-place-before-its-own",
        arriving(Filled(2, "full", (3, 4), (9, 10))),
        ("request r2", "full pages 9, 10 filled, which is not reserved for these places"),
    ),
    broken(
        what_comes_fills_what_is_reserved,
        "beyond-its-end",
        arriving(Filled(2, "full", (5, 6), (12, 1))),
        ("request r2", "full pages 12, 1 filled, which is not reserved for these places"),
    ),
    broken(
        what_comes_fills_what_is_reserved,
        "another-page-than-was-reserved-just-now",
        arriving(*TAKES, RESERVED, Filled(2, "swa", (4,), (8,)), before=WAITS),
        ("request r2", "swa page 8 filled, which is not reserved for these places"),
    ),
    broken(
        what_comes_fills_what_is_reserved,
        "without-room",
        arriving(Filled(2, "swa", (5,), (8,)), before=WAITS, after=WAITS),
        ("request r2", "swa page 8 filled, yet nothing is reserved for it"),
    ),
    healthy(transfers_end_in_the_open, arriving()),
    healthy(transfers_end_in_the_open, arriving(*TAKES, RESERVED, before=WAITS), "room-is-made"),
    healthy(transfers_end_in_the_open, arriving(TAKEN_OVER, after=GOES_ON), "taken-over"),
    healthy(transfers_end_in_the_open, arriving(LetGo(2, "abort"), after=WITHOUT_R2), "let-go-of"),
    healthy(transfers_end_in_the_open, idle(HandedOver(1, 21), after=HANDED_OVER), "handed-over"),
    healthy(
        transfers_end_in_the_open,
        arriving(LetGo(2, "abort"), *TAKES, RESERVED, records=(*RECORDS, ELSEWHERE)),
        "let-go-of-and-reserved-anew",
    ),
    healthy(
        transfers_end_in_the_open,
        arriving(before=replace(HAS_ROOM, records=(*RECORDS, WITH_MORE))),
        "a-page-goes-that-nobody-reads-any-more",
    ),
    broken(
        transfers_end_in_the_open,
        "gone",
        arriving(after=WITHOUT_R2),
        ("transfer t2", "is gone, and was neither taken over nor let go of"),
    ),
    broken(
        transfers_end_in_the_open,
        "on-other-pages",
        arriving(records=(*RECORDS, ELSEWHERE)),
        (
            "transfer t2",
            "holds {'full': [5, 6, 9, 10, 12, 11], 'swa': [7, 8]}, "
            "it held {'full': [5, 6, 9, 10, 11, 12], 'swa': [7, 8]}",
        ),
    ),
    broken(
        transfers_end_in_the_open,
        "begun-in-secret",
        arriving(before=WAITS),
        ("transfer t2", "is there, and nobody has told of it"),
    ),
    broken(
        transfers_end_in_the_open,
        "left-behind",
        arriving(LetGo(2, "abort"), after=WITHOUT_R2, pools=held_by(T2)),
        ("transfer t2", "has ended, and has left full pages 9, 10, 11, 12"),
        ("transfer t2", "has ended, and has left swa pages 7, 8"),
        ("transfer t2", "has ended, and has left rows row 2"),
    ),
    healthy(what_is_taken_over_was_computed, arriving(TAKEN_OVER, after=GOES_ON)),
    healthy(what_is_taken_over_was_computed, idle(TakenOver(2, 24, ()), before=SAID_THREE), "set-aside-after-three"),
    healthy(what_is_taken_over_was_computed, idle(TAKEN_OVER, before=WITHOUT_R2, after=GOES_ON), "not-known-before"),
    broken(
        what_is_taken_over_was_computed,
        "without-its-last-token",
        arriving(TakenOver(2, 21, (3,)), after=GOES_ON),
        ("request r2", "taken over at 21, yet 22 are computed of it"),
    ),
    broken(
        what_is_taken_over_was_computed,
        "with-the-newest-token",
        idle(TakenOver(2, 25, ()), before=SAID_THREE),
        ("request r2", "taken over at 25, yet 24 are computed of it"),
    ),
    broken(
        what_is_taken_over_was_computed,
        "what-was-said-is-said-again",
        idle(TakenOver(2, 24, (3,)), before=SAID_THREE),
        ("request r2", "taken over with 1 and 3 output tokens, of which the first were known"),
    ),
    healthy(room_is_made_in_order, linked(RESERVED)),
    healthy(room_is_made_in_order, linked(RESERVED, RESERVED._replace(request_id=3)), "both-get-some"),
    healthy(room_is_made_in_order, linked(RESERVED._replace(request_id=3), room=ROOM), "the-first-has-it"),
    healthy(room_is_made_in_order, linked(RESERVED._replace(request_id=3), gone=(2,)), "the-first-has-gone"),
    healthy(
        room_is_made_in_order,
        linked(RESERVED._replace(request_id=3), num_outputs=1),
        "who-gave-its-room-up-is-before-the-first",
    ),
    broken(
        room_is_made_in_order,
        "the-last-comes-first",
        linked(RESERVED._replace(request_id=3)),
        ("request r2", "waits for room, yet request r3 got some"),
    ),
    healthy(who_is_set_aside_waits_for_room, set_aside(place="linked")),
    healthy(who_is_set_aside_waits_for_room, set_aside(TakenOver(2, 24, ()), place="running"), "has-it-again"),
    healthy(who_is_set_aside_waits_for_room, set_aside(Finished(2, "abort"), place=None), "has-ended"),
    broken(
        who_is_set_aside_waits_for_room,
        "in-another-queue",
        set_aside(place="waiting"),
        ("request r2", "was set aside, and is waiting"),
    ),
    broken(
        who_is_set_aside_waits_for_room,
        "forgotten",
        set_aside(place=None),
        ("request r2", "was set aside, and is nowhere"),
    ),
    broken(
        who_is_set_aside_waits_for_room,
        "ended-and-in-another-queue",
        set_aside(Finished(2, "abort"), place="waiting"),
        ("request r2", "was set aside, and is waiting"),
    ),
]

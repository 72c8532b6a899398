"""Loads that bring too much or are not paid for, and what the host has that is computed again."""

from dataclasses import replace

from invariants.events import (
    Admitted,
    Inserted,
    Loaded,
    LoadPlanned,
    TransferBegan,
    TransferEnded,
)
from invariants.loads import (
    loads_are_paid_for_once,
    loads_bring_no_more_than_is_read,
    what_the_host_has_is_not_computed_again,
    who_joins_a_load_lacks_no_more,
    who_waited_goes_on_from_what_was_loaded,
)
from tests.invariants.builders import broken, healthy
from tests.invariants.host_builders import (
    BACKED_UP,
    BEGUN,
    COPYING,
    FETCHED,
    HOSTED,
    LANDED,
    PLANNED,
    SHELVED,
    beginning,
    on_the_shelf,
    while_copying,
    with_node,
)

IN_FULL = {"units": ((11, 12), (0, 0)), "live": (True, False)}  # of n4, whose window alone is on the host
ADMITTED = Admitted(2, 8, 16, (("full", 2), ("swa", 2)), (("full", 3), ("swa", 3)))
AGAIN = PLANNED._replace(request_id=3, firm=(("full", 0), ("swa", 0)))
JOINED = AGAIN._replace(request_id=2)
LACKING_MORE = replace(COPYING, nodes=with_node(COPYING, 3, units=((0, 0), (0, 0)), live=(False, False)))
LACKING_MORE_OF_A_WINDOW = replace(COPYING, nodes=with_node(COPYING, 1, units=((1, 2), (0, 0)), live=(True, False)))
LONG_LOAD = TransferBegan(2, to_host=False, pages=(("full", (8, 9, 10, 11), (5, 6, 8, 9)), ("swa", (7, 8), (3, 4))))
AS_LONG_AS_ITS_LOAD = replace(
    COPYING, requests=tuple(one._replace(prompt_len=16 if one.id == 2 else 9) for one in COPYING.requests or ())
)


def admitting(*events, room=True, alone=False, least_load_len=8, **n4):
    """r2 is to be admitted in an engine with plenty of pages, or with as many as there are; beside r1, or alone."""
    state = replace(SHELVED, nodes=with_node(SHELVED, 4, **n4), limits=HOSTED._replace(least_load_len=least_load_len))
    if room:
        books = [replace(pool, free=range(20, 60)) if pool.name in ("full", "swa") else pool for pool in state.pools]
        state = replace(state, pools=tuple(books))
    if alone:
        state = replace(state, requests=(state.requests or ())[1:])
    return on_the_shelf(*events, before=state)


IT_IS_NOT_KNOWN_WHAT_IS_LOADED = admitting(ADMITTED, least_load_len=None)

CASES = [
    healthy(loads_bring_no_more_than_is_read, BEGUN),
    healthy(loads_bring_no_more_than_is_read, beginning(LONG_LOAD), "of-a-whole-prefix-as-much-as-there-is"),
    healthy(
        loads_bring_no_more_than_is_read,
        beginning(BACKED_UP._replace(pages=(("swa", (1, 2, 3, 4), (5, 6, 7, 8)),))),
        "a-backup-takes-a-whole-node",
    ),
    broken(
        loads_bring_no_more_than_is_read,
        "a-whole-segment",
        beginning(FETCHED._replace(pages=(("full", (9, 11, 12), (4, 5, 6)), ("swa", (6, 7, 8), (2, 3, 4))))),
        ("load 2", "brings 3 pages of swa, 2 are read"),
    ),
    healthy(loads_are_paid_for_once, BEGUN),
    healthy(loads_are_paid_for_once, beginning(FETCHED, PLANNED, AGAIN), "two-wait-for-one"),
    healthy(loads_are_paid_for_once, while_copying(AGAIN), "under-way-before"),
    healthy(
        loads_are_paid_for_once,
        beginning(LoadPlanned(2, 8, 0, (("full", 0), ("swa", 0)), (("full", 3), ("swa", 3)))),
        "refused-by-a-pool",
    ),
    broken(
        loads_are_paid_for_once,
        "charged-twice",
        beginning(FETCHED, PLANNED, AGAIN._replace(firm=PLANNED.firm)),
        ("request r3", "was promised {'full': 2, 'swa': 2} for load 2, which brings {}"),
    ),
    broken(
        loads_are_paid_for_once,
        "its-window-is-not-charged",
        beginning(FETCHED, PLANNED._replace(firm=(("full", 2), ("swa", 0)))),
        ("request r2", "was promised {'full': 2} for load 2, which brings {'full': 2, 'swa': 2}"),
    ),
    broken(
        loads_are_paid_for_once,
        "nothing-behind-it",
        beginning(FETCHED, PLANNED._replace(demand=(("full", 3), ("swa", 2)))),
        ("request r2", "is to come to need {'full': 3, 'swa': 2}, yet its load alone brings {'full': 2, 'swa': 2}"),
    ),
    broken(
        loads_are_paid_for_once,
        "for-nobody",
        beginning(FETCHED, PLANNED._replace(transfer=1), BACKED_UP._replace(transfer=3)),
        ("request r2", "was promised {'full': 2, 'swa': 2} for load 1, which brings {}"),
        ("load 2", "was begun for nobody"),
    ),
    healthy(who_joins_a_load_lacks_no_more, while_copying(JOINED)),
    healthy(who_joins_a_load_lacks_no_more, while_copying(JOINED, before=LACKING_MORE_OF_A_WINDOW), "behind-a-window"),
    healthy(
        who_joins_a_load_lacks_no_more,
        while_copying(Inserted(1, 8, 0, 16), JOINED, before=LACKING_MORE),
        "not-judged-once-something-came-in",
    ),
    broken(
        who_joins_a_load_lacks_no_more,
        "what-is-before-it-is-missing-too",
        while_copying(JOINED, before=LACKING_MORE),
        ("request r2", "waits with load 2, which brings 2 pages of full, and lacks 4"),
    ),
    healthy(who_waited_goes_on_from_what_was_loaded, LANDED),
    healthy(
        who_waited_goes_on_from_what_was_loaded,
        while_copying(TransferEnded(2, "the copy failed"), Loaded(2, 8, (5, 6))),
        "the-load-has-failed",
    ),
    healthy(
        who_waited_goes_on_from_what_was_loaded,
        while_copying(TransferEnded(1, None), Loaded(2, 8, (5, 6))),
        "another-transfer-has-ended",
    ),
    broken(
        who_waited_goes_on_from_what_was_loaded,
        "evicted-before-he-had-it",
        while_copying(TransferEnded(2, None), Loaded(2, 8, (5, 6))),
        ("request r2", "goes on from 8, 16 tokens were loaded for it"),
    ),
    healthy(
        who_waited_goes_on_from_what_was_loaded,
        while_copying(TransferEnded(2, None), Loaded(2, 8, (5, 6)), before=AS_LONG_AS_ITS_LOAD),
        "what-was-loaded-for-another-is-as-long-as-it",
    ),
    healthy(what_the_host_has_is_not_computed_again, admitting(ADMITTED._replace(start=16, end=18))),
    healthy(what_the_host_has_is_not_computed_again, admitting(PLANNED, ADMITTED), "it-was-loaded-first"),
    healthy(
        what_the_host_has_is_not_computed_again, admitting(ADMITTED, least_load_len=9), "too-little-to-be-worth-it"
    ),
    healthy(what_the_host_has_is_not_computed_again, admitting(ADMITTED, room=False, alone=True), "alone-without-room"),
    healthy(
        what_the_host_has_is_not_computed_again,
        admitting(Inserted(1, 8, 0, 16), ADMITTED),
        "not-judged-once-something-came-in",
    ),
    healthy(
        what_the_host_has_is_not_computed_again,
        admitting(ADMITTED._replace(request_id=1)),
        "the-next-chunk-of-one-who-has-begun",
    ),
    broken(
        what_the_host_has_is_not_computed_again,
        "beside-another-without-room",
        admitting(ADMITTED, room=False),
        ("request r2", "admitted at 8, with the host 16 tokens are cached"),
    ),
    broken(
        what_the_host_has_is_not_computed_again,
        "computed-again",
        admitting(ADMITTED),
        ("request r2", "admitted at 8, with the host 16 tokens are cached"),
    ),
    broken(
        what_the_host_has_is_not_computed_again,
        "a-window-alone-is-missing",
        admitting(ADMITTED, least_load_len=99, **IN_FULL),
        ("request r2", "admitted at 8, with the host 16 tokens are cached"),
    ),
]

"""Loads that restore too much or are not reserved, and prefixes on the host that are computed again."""

from dataclasses import replace

from swarden.invariants.contracts.loads import (
    LoadCode,
    host_prefixes_are_loaded,
    joined_loads_bring_all_missing_pages,
    loaded_prefixes_are_used,
    loads_are_reserved_once,
    loads_bring_only_the_window,
)
from swarden.invariants.events import Admitted, CopyEnded, Loaded
from swarden.invariants.violation import Ref, found, request_ref
from tests.invariants.builders import broken, healthy
from tests.invariants.host_builders import (
    BACKUP_BEGAN,
    BEFORE_COPYING,
    COPYING,
    HOST_LIMITS,
    LOAD_BEGAN,
    PLANNED,
    beginning,
    not_copying,
    while_copying,
    with_node,
)

ADMITTED = Admitted(2, 8, 16, (("full", 2), ("swa", 2)), (("full", 3), ("swa", 3)))
R3_JOINS = PLANNED._replace(request_id=3, firm=(("full", 0), ("swa", 0)))
R2_JOINS = R3_JOINS._replace(request_id=2)
WITHOUT_N3 = replace(COPYING, nodes=with_node(COPYING, 3, units=((0, 0), (0, 0)), live=(False, False)))
WITHOUT_N3_BEFORE = replace(BEFORE_COPYING, nodes=WITHOUT_N3.nodes)
INPUT_IS_LOADED_PREFIX = replace(
    COPYING, requests=tuple(one._replace(prompt_len=16 if one.id == 2 else 9) for one in COPYING.requests or ())
)


def admitting(*events, fits=True, load_back_threshold=8, **n4):
    """A step in which r2 may be admitted; `fits`: with many free pages."""
    state = replace(
        BEFORE_COPYING,
        nodes=with_node(BEFORE_COPYING, 4, **n4),
        limits=HOST_LIMITS._replace(load_back_threshold=load_back_threshold),
    )
    if fits:
        pools = [replace(pool, free=range(20, 60)) if pool.name in ("full", "swa") else pool for pool in state.pools]
        state = replace(state, pools=tuple(pools))
    return not_copying(*events, before=state)


LEAST_LOAD_IS_UNKNOWN = admitting(ADMITTED, load_back_threshold=None)


def reserved(request, load, pool, count, brings):
    values = {"load": Ref("load", load), "pool": pool, "brings": brings, "reserved": count}
    return found(request_ref(request), LoadCode.RESERVED_OTHER_COUNT, **values)


COMPUTED_AGAIN = found(request_ref(2), LoadCode.COMPUTED_AGAIN, start=8, cached=16)

CASES = [
    broken(
        loads_bring_only_the_window,
        "whole-node-of-a-windowed-component",
        beginning(LOAD_BEGAN._replace(pages=(("full", (9, 11, 12), (4, 5, 6)), ("swa", (6, 7, 8), (2, 3, 4))))),
        found(Ref("load", 2), LoadCode.BRINGS_TOO_MUCH, pool="swa", pages=3, most=2),
    ),
    broken(
        loads_are_reserved_once,
        "reserved-twice",
        beginning(LOAD_BEGAN, PLANNED, R3_JOINS._replace(firm=PLANNED.firm)),
        reserved(3, 2, "full", 2, 0),
        reserved(3, 2, "swa", 2, 0),
    ),
    broken(
        loads_are_reserved_once,
        "no-demand-beyond-the-load",
        beginning(LOAD_BEGAN, PLANNED._replace(demand=(("full", 3), ("swa", 2)))),
        found(request_ref(2), LoadCode.DEMAND_TOO_SMALL, load=Ref("load", 2), pool="swa", brings=2, demand=2),
    ),
    broken(
        loads_are_reserved_once,
        "for-no-request",
        beginning(LOAD_BEGAN, PLANNED._replace(job=1), BACKUP_BEGAN._replace(job=3)),
        reserved(2, 1, "full", 2, 0),
        reserved(2, 1, "swa", 2, 0),
        found(Ref("load", 2), LoadCode.LOADED_FOR_NO_REQUEST),
    ),
    broken(
        joined_loads_bring_all_missing_pages,
        "pages-before-the-load-missing",
        while_copying(R2_JOINS, before=WITHOUT_N3),
        found(request_ref(2), LoadCode.JOINED_TOO_SHORT, load=Ref("load", 2), pool="full", brings=2, lacks=4),
    ),
    broken(
        joined_loads_bring_all_missing_pages,
        "began-in-the-step-and-misses-pages",
        replace(beginning(LOAD_BEGAN._replace(pages=LOAD_BEGAN.pages[:1]), R2_JOINS), before=WITHOUT_N3_BEFORE),
        found(request_ref(2), LoadCode.JOINED_TOO_SHORT, load=Ref("load", 2), pool="full", brings=2, lacks=4),
        found(request_ref(2), LoadCode.JOINED_TOO_SHORT, load=Ref("load", 2), pool="swa", brings=0, lacks=2),
    ),
    broken(
        loaded_prefixes_are_used,
        "evicted-before-use",
        while_copying(CopyEnded(2, None), Loaded(2, 8, (5, 6))),
        found(request_ref(2), LoadCode.LOADED_BUT_UNUSED, start=8, loaded=16),
    ),
    broken(
        loaded_prefixes_are_used,
        "not-used-and-not-reported",
        while_copying(CopyEnded(2, None)),
        found(request_ref(2), LoadCode.LOADED_BUT_UNUSED, start=8, loaded=16),
    ),
    healthy(
        loaded_prefixes_are_used,
        while_copying(CopyEnded(2, None), Loaded(2, 8, (5, 6)), before=INPUT_IS_LOADED_PREFIX),
        "loaded-prefix-is-the-whole-input",
    ),
    healthy(host_prefixes_are_loaded, admitting(ADMITTED, load_back_threshold=9), "too-short-for-a-load"),
    broken(host_prefixes_are_loaded, "not-alone-with-too-few-pages", admitting(ADMITTED, fits=False), COMPUTED_AGAIN),
]

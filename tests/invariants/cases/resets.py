"""Resets beneath a request or a copy, refused resets of an idle engine, and resets that leave something behind."""

from dataclasses import replace

from swarden.invariants.events import CacheReset, Owner
from swarden.invariants.laws.lifecycle.resets import (
    ResetCode,
    idle_engine_can_be_reset,
    reset_leaves_nothing,
    reset_spares_kv_in_use,
)
from swarden.invariants.view import SessionView
from swarden.invariants.violation import Ref, found, node_ref, owner_ref, pool_ref
from tests.invariants.builders import AFTER, R1, broken, healthy, idle

DONE, REFUSED = CacheReset(True, 3, False), CacheReset(False, 3, False)
ENGINE = Ref("engine")
POOLS = tuple(replace(pool, free=range(1, pool.capacity + 1), fenced=(), holdings=()) for pool in AFTER.pools)
EMPTY = replace(AFTER, pools=POOLS, nodes=(), records=(), receipts=(), requests=(), launches=())
CACHED = replace(AFTER, records=(), requests=(), launches=())
KEPT = (AFTER.records or ())[0]._replace(owner=Owner("session", 4))


def asked(event, before=CACHED, after=None):
    return idle(event, before=before, after=before if after is None else after)


def refused_while(name, **parts):
    return healthy(idle_engine_can_be_reset, asked(REFUSED, replace(CACHED, **parts)), name)


CASES = [
    healthy(reset_spares_kv_in_use, asked(DONE, after=EMPTY)),
    healthy(reset_spares_kv_in_use, asked(REFUSED, AFTER), "refused-while-a-request-has-KV"),
    healthy(reset_spares_kv_in_use, asked(DONE, replace(CACHED, records=(KEPT,)), EMPTY), "kv-of-a-session"),
    broken(
        reset_spares_kv_in_use,
        "request-has-kv",
        asked(DONE, AFTER, EMPTY),
        found(owner_ref(R1), ResetCode.TAKEN_FROM, row=1),
    ),
    broken(
        reset_spares_kv_in_use,
        "copy-in-flight",
        asked(DONE._replace(is_copying=True), after=EMPTY),
        found(ENGINE, ResetCode.DURING_A_COPY),
    ),
    healthy(idle_engine_can_be_reset, asked(DONE, after=EMPTY)),
    refused_while("unfinished-request", requests=AFTER.requests),
    refused_while("session-keeps-kv", records=(KEPT,)),
    healthy(idle_engine_can_be_reset, asked(REFUSED._replace(idle_steps=1)), "has-just-become-idle"),
    healthy(idle_engine_can_be_reset, asked(REFUSED._replace(is_copying=True)), "copy-in-flight"),
    broken(
        idle_engine_can_be_reset,
        "refused-in-a-pause-without-kv",
        asked(REFUSED, replace(CACHED, requests=AFTER.requests, is_paused=True)),
        found(ENGINE, ResetCode.REFUSED, steps=3),
    ),
    broken(idle_engine_can_be_reset, "refused", asked(REFUSED), found(ENGINE, ResetCode.REFUSED, steps=3)),
    healthy(reset_leaves_nothing, asked(DONE, after=EMPTY)),
    healthy(reset_leaves_nothing, asked(REFUSED, AFTER), "refused"),
    broken(
        reset_leaves_nothing,
        "unit",
        asked(DONE, after=replace(EMPTY, pools=(replace(POOLS[0], free=range(1, 12)), *POOLS[1:]))),
        found(pool_ref("full"), ResetCode.UNITS_LEFT, free=11, capacity=12),
    ),
    broken(
        reset_leaves_nothing,
        "record-and-node",
        asked(DONE, after=replace(EMPTY, records=AFTER.records, nodes=(AFTER.nodes or ())[:1])),
        found(owner_ref(R1), ResetCode.RECORD_LEFT, row=1),
        found(node_ref(1), ResetCode.NODE_LEFT),
    ),
    broken(
        reset_leaves_nothing,
        "session",
        asked(DONE, after=replace(EMPTY, sessions=(SessionView(3, 0, 0, 8, False),))),
        found(Ref("session", 3), ResetCode.KV_LEFT, length=8),
    ),
]

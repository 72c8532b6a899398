"""Resets beneath a request or a copy, refused resets of an idle engine, and what resets and flushes leave behind."""

from dataclasses import replace

from swarden.invariants.events import CacheReset, Flushed, Owner, Retracted
from swarden.invariants.laws.lifecycle.resets import (
    ResetCode,
    flush_drops_what_is_idle,
    idle_engine_can_be_reset,
    reset_leaves_nothing,
    reset_spares_kv_in_use,
)
from swarden.invariants.view import SessionView
from swarden.invariants.violation import Ref, found, node_ref, owner_ref, pool_ref
from tests.invariants.builders import AFTER, R1, broken, healthy, idle, receipts

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


USED = tuple(node for node in AFTER.nodes or () if node.id != 3)  # r1 has a lock on n2, and in full also on n1
COPIED = USED[0]._replace(id=7, live=(False, False), locks=(0, 0), copies=((1, 2), ()), pins=(0, 0))


def flushed(*, nodes=USED, covers=((2, 1), (2,))):
    """A flush in the healthy state, behind which these nodes are left, with a lock that covers some of them."""
    return idle(Flushed(), after=replace(AFTER, nodes=nodes, receipts=receipts(covers=covers)))


CASES = [
    healthy(reset_spares_kv_in_use, idle(Retracted(1, 3, ()), DONE, before=AFTER, after=EMPTY), "request-was-put-back"),
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
    refused_while("unfinished-request", requests=AFTER.requests),
    refused_while("session-keeps-kv", records=(KEPT,)),
    broken(
        idle_engine_can_be_reset,
        "refused-in-a-pause-without-kv",
        asked(REFUSED, replace(CACHED, requests=AFTER.requests, is_paused=True)),
        found(ENGINE, ResetCode.REFUSED, steps=3),
    ),
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
    healthy(flush_drops_what_is_idle, flushed(covers=((2,), (2,))), "above-a-lock"),
    healthy(flush_drops_what_is_idle, flushed(covers=((2, 1, 7), (2,)), nodes=(*USED, COPIED)), "copy-under-a-lock"),
    broken(
        flush_drops_what_is_idle,
        "idle-node",
        flushed(nodes=AFTER.nodes),
        found(node_ref(3), ResetCode.IDLE_UNITS_LEFT, pool="full"),
        found(node_ref(3), ResetCode.IDLE_UNITS_LEFT, pool="swa"),
    ),
    broken(
        flush_drops_what_is_idle,
        "idle-copy",
        flushed(nodes=(*USED, COPIED)),
        found(node_ref(7), ResetCode.IDLE_COPY_LEFT),
    ),
]

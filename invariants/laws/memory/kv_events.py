"""KV events: the units that were cached and dropped, as reported to a cache-aware router."""

from collections import Counter

from invariants.events import Dropped, Stored
from invariants.invariant import invariant
from invariants.transition import Transition, When
from invariants.violation import Code, Evidence, found, pool_ref


class EventCode(Code):
    NOT_REPORTED = "not_told"
    REPORTED_NOT_DONE = "not_done"


@invariant(When.OP, needs=("nodes", "Stored", "Dropped"))
def kv_events_match_tree(change: Transition) -> Evidence:
    """In each pool the cache gains and loses as many units as its KV events report.

    With wrong events a router sends requests to engines that do not have their prefix cached.
    """
    reported = _reported(change) if Stored in change.by_type or Dropped in change.by_type else {}
    for after in change.after.pools:
        before, count = change.before.pool(after.name), reported.get(after.name, 0)
        gained = after.num_cached - before.num_cached if after is not before else 0
        if gained != count:
            code = EventCode.NOT_REPORTED if abs(gained) > abs(count) else EventCode.REPORTED_NOT_DONE
            yield found(pool_ref(after.name), code, gained=gained, reported=count)


def _reported(change: Transition) -> Counter[str]:
    """By pool, the units that its KV events report as gained; negative for lost ones."""
    reported, hosts = Counter[str](), change.after.host_pool_of
    sizes = dict(zip([one.pool for one in change.after.components], change.after.page_sizes, strict=True))
    for stored in change.events_of(Stored):
        pool = hosts[stored.component] if stored.on_host else stored.component
        reported[pool] += len(stored.key) // sizes[stored.component]
    for dropped in change.events_of(Dropped):
        pool = hosts[dropped.component] if dropped.on_host else dropped.component
        reported[pool] -= dropped.length // sizes[dropped.component]
    return reported

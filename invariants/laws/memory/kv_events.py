"""KV events: the units that were cached and dropped, as reported to a cache-aware router.

On a server: A cache-aware router has a wrong view of the cache, and sends requests to the wrong server.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import compress

from swarden.invariants.events import CopyBegan, CopyEnded, Dropped, Inserted, Recovered, Split, Stored
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, node_ref, pool_ref


class EventCode(Code):
    NOT_REPORTED = "the cache gained {gained} units (below 0: lost), but its KV events report {reported}"
    REPORTED_NOT_DONE = "the cache gained {gained} units (below 0: lost), but its KV events report {reported}"
    NOT_INSERTED = "got its {component} units, but nothing was inserted or loaded"
    NOT_RECOVERED = "a tombstone got its {component} units, but has not recovered"


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


def has_loaded_nothing(change: Transition) -> bool:
    """Has no load from the host ended?"""
    begun = {event.job for event in change.events_of(CopyBegan) if not event.to_host}
    loads = begun | {view.id for view in change.before.copy_jobs or () if not view.to_host}
    return loads.isdisjoint([event.job for event in change.events_of(CopyEnded)])


@invariant(
    When.OP, needs=("nodes", "Dropped", "Inserted", "Recovered", "Split"), on=(Stored,), given=has_loaded_nothing
)
def cached_units_were_inserted(change: Transition) -> Evidence:
    """The cache gets units on the device only by insertions and loads; a tombstone that gets some has recovered.

    The event of an insertion follows those of its units, which hold tokens of the request.  Without these events other
    laws assume that the tree did not change.  Not applicable if a load has ended.
    """
    recovered = {(event.node, event.component) for event in change.events_of(Recovered)}
    stored: list[Stored] = []
    for event in change.in_order(Stored, Inserted):
        if isinstance(event, Inserted):
            stored = [gain for gain in stored if not _belongs_to(gain, event, change)]
        elif isinstance(event, Stored) and not event.on_host:
            stored.append(event)
    for gain in stored:
        yield found(node_ref(gain.node), EventCode.NOT_INSERTED, component=gain.component)
    for node, component in _gained_by_tombstones(change):
        if (node, component) not in recovered:
            yield found(node_ref(node), EventCode.NOT_RECOVERED, component=component)


def _belongs_to(stored: Stored, inserted: Inserted, change: Transition) -> bool:
    """Can an insertion have stored these tokens: are they tokens of its request, as far as its client knows them?"""
    expected, end = change.reference.expectations.get(inserted.request_id), stored.start + len(stored.key)
    if expected is None or end > inserted.end:
        return end <= inserted.end
    tokens = expected.tokens[stored.start : end]
    return stored.namespace == expected.namespace and list(stored.key[: len(tokens)]) == tokens


def _gained_by_tombstones(change: Transition) -> Iterator[tuple[int, str]]:
    """The nodes that had units on the device during the whole step, each with a component whose units it gained."""
    pools = [component.pool for component in change.before.components]
    live: dict[int, set[str]] = {}  # by node, the components of its units on the device

    def live_of(node: int) -> set[str]:
        if node not in live:
            view = change.before.node_by_id.get(node)
            live[node] = set(compress(pools, view.live)) if view is not None else set()
        return live[node]

    for event in change.in_order(Stored, Dropped, Split):
        if isinstance(event, Split):
            live[event.upper] = set(live_of(event.node))
        elif isinstance(event, Dropped) and not event.on_host:
            live_of(event.node).discard(event.component)
        elif isinstance(event, Stored) and not event.on_host and live_of(event.node):
            live_of(event.node).add(event.component)
            yield event.node, event.component


def _reported(change: Transition) -> Counter[str]:
    """By pool, the units that its KV events report as gained; negative for lost ones."""
    reported, hosts = Counter[str](), change.after.host_pool_of
    sizes = dict(zip([component.pool for component in change.after.components], change.after.page_sizes, strict=True))
    for stored in change.events_of(Stored):
        pool = hosts[stored.component] if stored.on_host else stored.component
        reported[pool] += len(stored.key) // sizes[stored.component]
    for dropped in change.events_of(Dropped):
        pool = hosts[dropped.component] if dropped.on_host else dropped.component
        reported[pool] -= dropped.length // sizes[dropped.component]
    return reported

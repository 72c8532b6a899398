"""The host tier: what is where, and what is copied when."""

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from itertools import chain
from typing import NamedTuple

from invariants.admission import has_room_for_all
from invariants.base import Evidence, Transition, When, invariant, state_invariant
from invariants.events import (
    LEAVINGS,
    Admitted,
    Completed,
    Copied,
    CopyDropped,
    Dropped,
    Failed,
    LetGo,
    Loaded,
    LoadPlanned,
    Removed,
    Stored,
    Tombstoned,
    TransferBegan,
    TransferEnded,
)
from invariants.handover import LINKED
from invariants.matches import CHANGES_CONTENT
from invariants.prefixes import cached_pages, reachable_len
from invariants.view import BACKUP_KIND, LOAD_KIND, TREE_KIND, NodeView, Owner, PoolView, Snapshot, TransferView
from invariants.windows import first_needed_page, tail_len
from invariants.wording import deed_of, node_name, request_name, standing, unit_of

WAITING = "waiting"


class End(NamedTuple):
    """One end of a transfer in one component: the pool there, its units, and whether they are read or written."""

    pool: str
    units: Sequence[int]
    is_read: bool


@state_invariant(covers=("NODE-TIER", "TREE-STRUCT"), needs=("nodes", "transfers"), reads=("nodes",))
def copies_go_on_from_copies(change: Transition) -> Evidence:
    """The host has all of a node in a component or nothing, and only behind what it has of the nodes before it.

    Windows stand beside whole prefixes only; and on the device, too, what is read whole goes on from a root.
    A copy without what is before it could be matched by nobody.
    """
    after = change.after
    whole = [index for index, component in enumerate(after.components) if component.window is None]
    for node in change.changes.relatives:
        parent, name = after.node_by_id.get(node.parent), node_name(node.id)
        for index, component in enumerate(after.components):
            copies = node.copies[index]
            if copies and (len(copies) != len(node.units[index]) or not all(copies)):
                yield name, f"has the pages {list(copies)} on the host for {len(node.units[index])} of {component.pool}"
        for index in whole:
            pool = after.components[index].pool
            if any(node.copies) and not node.copies[index]:
                yield name, f"has copies on the host, yet none of {pool}"
            if parent is not None and node.copies[index] and not parent.copies[index]:
                yield name, f"has a copy of {pool}, {node_name(parent.id)} before it has none"
            if parent is not None and node.live[index] and not parent.live[index]:
                yield name, f"is live in {pool}, {node_name(parent.id)} before it is not"


@invariant(When.OP, covers=("INFLIGHT-PIN", "HOST-PIN", "NO-UAF"), needs=("nodes", "receipts", "transfers"))
def transfers_keep_both_ends(change: Transition) -> Evidence:
    """Until a transfer ends what it reads stays the tree's, locked here and pinned there, and what it writes its own.

    A page that is freed before it was copied is somebody else's by then (sglang pulls 26728 and 28468).
    """
    after, pins = change.after, Counter[tuple[int, int]]()
    for view in after.transfers or ():
        owner = Owner(BACKUP_KIND if view.to_host else LOAD_KIND, view.id)
        receipt = after.receipt_by_id.get(view.receipt)
        if receipt is None or receipt.holder != owner:
            yield str(owner), f"its receipt {view.receipt} is not out"
        for end in _ends(after, view):
            pool = after.pool(end.pool)
            for unit in end.units:
                found = pool.owner_of.get(unit)
                if (found is None or found.kind != TREE_KIND) if end.is_read else found != owner:
                    deed = "read" if end.is_read else "written"
                    yield unit_of(pool, unit), f"{deed} by {owner}, yet {standing(found)}"
        if not view.to_host:
            pins.update((index, unit) for index, units in enumerate(view.there) for unit in units)
    for node in after.nodes or ():
        for index, copies in enumerate(node.copies):
            read = max((pins[index, unit] for unit in copies), default=0)
            if read != node.pins[index]:
                yield (
                    node_name(node.id),
                    f"has {node.pins[index]} pins on its {after.host_pools[index]}, {read} read it",
                )


@invariant(When.OP, covers=("CONTENT", "HOST-CONS"), needs=("transfers",), on=(Copied,))
def copies_equal_their_source(change: Transition) -> Evidence:
    """When a transfer has ended well, each page holds the same here and there, to the bit."""
    for event in change.events_of(Copied):
        for here, there in event.different:
            yield unit_of(change.after.pool(event.pool), here), f"differs from page {there} on the host, its copy"


@invariant(When.OP, covers=("WINDOW-BOUND", "B57"), needs=("transfers", "windowed"), on=(TransferBegan,))
def loads_bring_no_more_than_is_read(change: Transition) -> Evidence:
    """Of a windowed component a load brings the last window and no more, however long the segment on the host is."""
    page_size = change.after.limits.page_size
    windows = {component.pool: component.window for component in change.after.components}
    for event in change.events_of(TransferBegan):
        for pool, here, _ in event.pages if not event.to_host else ():
            window = windows[pool]
            if window is not None and len(here) * page_size > tail_len(window, page_size):
                most = tail_len(window, page_size) // page_size
                yield f"load {event.transfer}", f"brings {len(here)} pages of {pool}, {most} are read"


@invariant(When.OP, covers=("ADMIT-SOUND", "BUDGET-COVER"), needs=("transfers",), on=(LoadPlanned,))
def loads_are_paid_for_once(change: Transition) -> Evidence:
    """Who is admitted with a load was promised just the pages that it brings, none where it was under way already."""
    began = {event.transfer: event for event in change.events_of(TransferBegan)}
    known = {view.id for view in change.before.transfers or ()}
    for event in change.events_of(LoadPlanned):
        load = began.pop(event.transfer, None)
        brought = {pool: len(here) for pool, here, _ in load.pages} if load is not None else {}
        firm, demand = {pool: count for pool, count in event.firm if count}, dict(event.demand)
        subject = request_name(event.request_id)
        if firm != brought:
            yield subject, f"was promised {firm} for load {event.transfer}, which brings {brought}"
        if any(demand.get(pool, 0) <= count for pool, count in brought.items()):
            yield subject, f"is to come to need {demand}, yet its load alone brings {brought}"
        known.add(event.transfer)
    for transfer in sorted(began):
        if not began[transfer].to_host and transfer not in known:
            yield f"load {transfer}", "was begun for nobody"


@invariant(When.OP, covers=("PROGRESS", "MATCH-VALID"), needs=("nodes", "requests", "transfers"), on=(LoadPlanned,))
def who_joins_a_load_lacks_no_more(change: Transition) -> Evidence:
    """Who waits with a load that was under way already lacks nothing else up to where it is to go on.

    It would compute what the host has.  Judged against the tree before the step, so only while nothing has come into it
    or left it.
    """
    before = change.before
    coming = {view.id: [len(units) for units in view.here] for view in before.transfers or () if not view.to_host}
    for event in change.events:
        if isinstance(event, CHANGES_CONTENT):
            break
        request = before.request_by_id.get(event.request_id) if isinstance(event, LoadPlanned) else None
        if isinstance(event, LoadPlanned) and request is not None and event.transfer in coming:
            lacking = _lacking(before, request.namespace, change.reference.tokens_of(request.id)[: event.length])
            for component, lacks, brings in zip(before.components, lacking, coming[event.transfer], strict=True):
                if lacks > brings:
                    said = f"which brings {brings} pages of {component.pool}, and lacks {lacks}"
                    yield request_name(request.id), f"waits with load {event.transfer}, {said}"


@invariant(When.OP, covers=("PROGRESS", "MATCH-VALID"), needs=("nodes", "requests", "transfers"), on=(Loaded,))
def who_waited_goes_on_from_what_was_loaded(change: Transition) -> Evidence:
    """A request that waited for a load goes on where that ends, unless it came to nothing.

    What has come for somebody is not evicted before he has it.
    """
    ended = {event.transfer for event in change.events_of(TransferEnded) if event.failure is None}
    loads = {view.id: view for view in change.before.transfers or () if view.id in ended}
    for event in change.events_of(Loaded):
        request = change.before.request_by_id.get(event.request_id)
        view = loads.get(request.awaits) if request is not None else None
        receipt = change.before.receipt_by_id.get(view.receipt) if view is not None else None
        path = change.before.path(receipt.node)[::-1] if receipt is not None else []
        key = list(chain.from_iterable(node.key for node in path))
        input_len = request.prompt_len + request.num_outputs if request is not None else 0
        tokens = change.reference.tokens_of(event.request_id)[:input_len]
        if event.length < len(key) < len(tokens) and list(tokens[: len(key)]) == key:
            yield request_name(event.request_id), f"goes on from {event.length}, {len(key)} tokens were loaded for it"


def it_is_known_what_is_loaded(change: Transition) -> bool:
    return change.after.limits.least_load_len is not None


@invariant(
    When.STEP,
    covers=("MATCH-VALID", "PROGRESS"),
    needs=("nodes", "requests", "transfers"),
    on=(Admitted,),
    given=it_is_known_what_is_loaded,
)
def what_the_host_has_is_not_computed_again(change: Transition) -> Evidence:
    """Who is admitted loads what the host has for it, be it a window alone (sglang pull 27391).

    Only who is alone may begin without, where there is no room for all of it.  Judged against the tree before the
    step, so only while nothing has come into it or left it.
    """
    waiting = {request.id: request for request in change.before.requests or () if request.place == WAITING}
    loading = {event.request_id for event in change.events_of(LoadPlanned)}
    others = [request for request in change.before.requests or () if request.place not in (WAITING, LINKED)]
    has_room = has_room_for_all(change.before)
    is_alone = not others and not change.before.launches
    for event in change.events:
        is_alone = is_alone or isinstance(event, (*LEAVINGS, LetGo, Failed, Completed))  # or may be by now
        if isinstance(event, CHANGES_CONTENT) or (is_alone and not has_room):
            break
        if isinstance(event, Admitted) and event.request_id in waiting.keys() - loading:
            request = waiting[event.request_id]
            tokens = change.reference.tokens_of(request.id)[: request.prompt_len + request.num_outputs]
            reach = _reach_worth_a_load(change.before, request.namespace, tokens, event.start)
            if reach is not None:
                yield request_name(request.id), f"admitted at {event.start}, with the host {reach} tokens are cached"


def the_host_keeps_up(change: Transition) -> bool:
    """Is nothing but backups begun in this step, each there at its end, and nothing under way before?"""
    return (
        not change.before.transfers
        and not change.after.transfers
        and all(event.to_host for event in change.events_of(TransferBegan))
        and all(event.failure is None for event in change.events_of(TransferEnded))
    )


@invariant(When.STEP, covers=("EVICT-EFFECT",), needs=("transfers",), on=(CopyDropped,), given=the_host_keeps_up)
def a_copy_gives_way_to_a_copy(change: Transition) -> Evidence:
    """No copy is given up for a backup that the host has no room for even then."""
    dropped = list[int]()
    for event in change.events:
        if isinstance(event, CopyDropped):
            dropped.append(event.node)
        elif isinstance(event, TransferBegan):
            dropped.clear()
    yield from ((node_name(node), "its copy was given up, and none came in its place") for node in dropped)


def copies_come_before_eviction(change: Transition) -> bool:
    """Does it write back, and is nothing amiss with its host in this step?"""
    return change.after.limits.writes_back and the_host_keeps_up(change)


@invariant(
    When.STEP, covers=("EVICT-EFFECT", "B55", "B58"), needs=("nodes", "transfers"), given=copies_come_before_eviction
)
def nothing_is_lost_while_the_host_has_room(change: Transition) -> Evidence:
    """With write-back nothing goes for good for which there is room on the host, if need be for older copies.

    Judged in steps in which nothing was being copied before, and no copy failed, where no copy is under way just then;
    what was copied in the step is not older (sglang pulls 29204 and 34046), and what gave its copy up in the step would
    have to be copied again.
    """
    newer, copied = Counter[str](), set[tuple[str, int]]()
    dropped = {event.node for event in change.events_of(CopyDropped)}
    for began in [event for event in change.events_of(TransferBegan) if event.to_host]:
        newer.update({change.after.host_pool_of[pool]: len(there) for pool, _, there in began.pages})
        copied.update((pool, unit) for pool, here, _ in began.pages for unit in here)
    under_way = set[int]()  # while the host is slow others go, as they do where it never answers
    for event in change.tree_events:
        if isinstance(event, TransferBegan):
            under_way.add(event.transfer)
        elif isinstance(event, TransferEnded):
            under_way.discard(event.transfer)
        if under_way:
            continue
        node = change.before.node_by_id.get(event.node) if isinstance(event, (Removed, Tombstoned)) else None
        is_left_over = isinstance(event, Removed) and node is not None and not all(node.live)  # it goes with a leaf
        if node is not None and isinstance(event, (Removed, Tombstoned)) and not is_left_over:
            lost = _uncopied(change, node, event, copied)
            need = _pages_of_a_backup(change.before, node, dropped)
            if lost and all(change.before.pool(pool).capacity >= count + newer[pool] for pool, count in need.items()):
                yield node_name(node.id), f"{deed_of(event)}, with no copy of its {lost} pages on the host"


@invariant(When.OP, covers=("CONS-F", "CONS-S", "KV-EVENTS"), needs=("nodes",))
def what_is_told_to_be_cached_is(change: Transition) -> Evidence:
    """What is told to come into the cache and to leave it is what the cache has more and less, in each pool.

    Whoever routes requests by these events would send them where nothing is.
    """
    page_size, told = change.after.limits.page_size, Counter[str]()
    pools = {False: {one.pool: one.pool for one in change.after.components}, True: change.after.host_pool_of}
    for stored in change.events_of(Stored):
        told[pools[stored.on_host][stored.component]] += len(stored.key) // page_size
    for dropped in change.events_of(Dropped):
        told[pools[dropped.on_host][dropped.component]] -= dropped.length // page_size
    for pool in change.after.pools:
        came = _num_cached(pool) - _num_cached(change.before.pool(pool.name))
        if came != told[pool.name]:
            yield pool.name, f"has {came:+d} cached {pool.unit}s, {told[pool.name]:+d} were told"


def _num_cached(pool: PoolView) -> int:
    return sum([len(holding.units) for holding in pool.holdings if holding.cached])


def _ends(snapshot: Snapshot, view: TransferView) -> Iterator[End]:
    """Both ends of a transfer, by component."""
    for index, component in enumerate(snapshot.components):
        yield End(component.pool, view.here[index], is_read=view.to_host)
        yield End(snapshot.host_pools[index], view.there[index], is_read=not view.to_host)


def _lacking(snapshot: Snapshot, namespace: int, tokens: Sequence[int]) -> list[int]:
    """Per component, how many pages are not on the device of those that who goes on behind `tokens` reads."""
    page_size, pages = snapshot.limits.page_size, list(cached_pages(snapshot, namespace, tokens))
    counts = []
    for index, (_, window) in enumerate(snapshot.components):
        first = 0 if window is None else first_needed_page(len(tokens), window, page_size)
        counts.append(sum(not node.units[index][place] for node, place in pages[first:]))
    return counts


def _reach_worth_a_load(snapshot: Snapshot, namespace: int, tokens: Sequence[int], start: int) -> int | None:
    """How far a request could begin if what the host has were loaded; None where that is not worth it."""
    page_size, least = snapshot.limits.page_size, snapshot.limits.least_load_len or 0
    usable = tokens[: max(0, len(tokens) - 1) // page_size * page_size]
    reach = reachable_len(snapshot, namespace, usable)
    pages = list(cached_pages(snapshot, namespace, usable[:reach]))
    has_all = all(
        node.units[index][place]
        for node, place in pages
        for index, component in enumerate(snapshot.components)
        if component.window is None
    )
    is_worth_it = has_all or reach - start >= least
    return reach if reach > start and is_worth_it else None


def _uncopied(change: Transition, node: NodeView, event: Removed | Tombstoned, copied: Set[tuple[str, int]]) -> str:
    """In which pool a node gave something up of which no copy was there, nor was made; empty where there is none."""
    for index, component in enumerate(change.before.components):
        is_meant = isinstance(event, Removed) or component.pool == event.component
        was_copied = any((component.pool, unit) in copied for unit in node.units[index])
        if is_meant and node.live[index] and not node.copies[index] and not was_copied:
            return component.pool
    return ""


def _pages_of_a_backup(snapshot: Snapshot, node: NodeView, dropped: Set[int]) -> dict[str, int]:
    """By pool on the host, the pages that it must have for a copy of a node: with those before it, but for windows
    of nodes whose copies are there."""
    path, page_size = snapshot.path(node.id), snapshot.limits.page_size
    new = [one for one in path if one is node or not any(one.copies) or one.id in dropped]
    return {
        pool: sum(len(one.key) // page_size for one in (path if component.window is None else new))
        for pool, component in zip(snapshot.host_pools, snapshot.components, strict=True)
    }

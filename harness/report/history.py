"""The history of one page, request or node of an engine, a line for each event."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile, zip_longest
from typing import NamedTuple

from swarden.harness.core.driver import Moment
from swarden.harness.core.event_log import PassedOver
from swarden.harness.core.origins import CALLED_BY
from swarden.harness.report.event_text import event_text, value_of
from swarden.harness.report.wording import listed
from swarden.invariants import events as seen
from swarden.invariants.laws.memory.router import BLOCK
from swarden.invariants.view import NodeView, Snapshot
from swarden.invariants.violation import NODE, Ref, node_ref, request_ref

UNITS = "page|row|slot|block"  # of pools
OF_REQUEST = re.compile(rf"\b{seen.REQUEST_KIND} r?(\d+)")
OF_NODE = re.compile(rf"\b{NODE} {seen.NODE_LETTER}?(\d+)")
MAX_ENTRIES = 12  # the newest of one thing's history
ACTION_LEN = 30  # columns; origins are aligned after them
NAMED_BY: Mapping[str, Sequence[str]] = {  # by kind of subject: the fields of events that have its id
    seen.REQUEST_KIND: ("request_id",),
    seen.SESSION_KIND: ("session",),
    NODE: ("node", "upper"),
    "receipt": ("receipt",),
    "copy job": ("job",),
}
WITH_CALLERS = (seen.Freed, seen.Locked, seen.LocksCounted, seen.Unlocked)


def refs_in_message(text: str, pools: Iterable[str]) -> list[Ref]:
    """The units, requests and nodes that the message of an engine's error names, each once and in this order."""
    refs = []
    if pool_names := "|".join(map(re.escape, sorted(pools, key=len, reverse=True))):  # one name may end with another
        for named in re.finditer(rf"\b({pool_names}) ({UNITS})s? \[?(\d+(?:, \d+)*)", text):
            refs += [Ref(named[2], int(unit), named[1]) for unit in named[3].split(", ")]
    refs += [request_ref(int(match[1])) for match in OF_REQUEST.finditer(text)]
    refs += [node_ref(int(match[1])) for match in OF_NODE.finditer(text)]
    return list(dict.fromkeys(refs))


def parents_of(nodes: Iterable[NodeView], moments: Sequence[Moment]) -> dict[int, int]:
    """The parent of each node, by id.

    After an error of the engine there is no snapshot: nodes that were split off since then come from the events.
    """
    parents = {node.id: node.parent for node in nodes}
    for event in moments[-1].events if moments else ():
        if isinstance(event, seen.Split) and event.upper not in parents:
            parents |= {event.upper: parents.get(event.node, 0), event.node: event.upper}
    return parents


def nodes_below(node: int, parents: Mapping[int, int]) -> list[int]:
    """The descendants of a node; a lock of a descendant locks the node too."""
    return [other for other in parents if node in _ancestors(other, parents)]


class HistoryEntry(NamedTuple):
    """The effect of one event on a subject."""

    action: str
    origin: str  # the place in the engine's code, "" if unknown; of a free or a lock, with its callers


def entries_of(
    ref: Ref, moment: Moment, below: Collection[int] = (), kinds: tuple[type, ...] = (object,)
) -> list[HistoryEntry]:
    """The events of these `kinds` in one transition that had an effect on a subject, in order."""
    entries: list[HistoryEntry] = []
    written: object = None
    for event, origin in zip_longest(moment.events, moment.origins, fillvalue=""):
        if isinstance(event, kinds) and (action := _action(event, ref, below, moment.before)):
            entry = HistoryEntry(action, origin if isinstance(event, WITH_CALLERS) else nearest(origin))
            positions = (
                (event.launch, event.start, event.end) if isinstance(event, seen.Written) and not ref.pool else None
            )
            if positions and positions == written:  # in a further pool
                begin, _, end = entries.pop().action.rpartition(", positions")
                pages = action.removeprefix("writes ").partition(", positions")[0]
                entry = entry._replace(action=f"{begin}, {pages}, positions{end}")
            entries.append(entry)
            written = positions
    return entries


def passed_over(requests: Collection[int], moments: Sequence[Moment]) -> tuple[int, list[PassedOver]]:
    """The branches by which the last step passed over these requests, and for how many steps they were the same.

    If no branch names one of these requests, all are returned.  A last moment without branches is left out.
    """
    steps = [_branches(moment, requests) for moment in (moments if moments[-1].passed_over else moments[:-1])]
    last = steps[-1] if steps else []
    same = sum(1 for _ in takewhile(lambda step: step == last, reversed(steps)))
    return same, last


def _branches(moment: Moment, requests: Collection[int]) -> list[PassedOver]:
    branches = moment.passed_over
    return list(dict.fromkeys([branch for branch in branches if branch.request_id in requests] or branches))


def nearest(origin: str) -> str:
    """The innermost frame of an origin."""
    return origin.partition(CALLED_BY)[0]


def history_of(ref: Ref, moments: Iterable[Moment], below: Collection[int] = ()) -> list[str]:
    """The newest events of a subject, oldest first, each with its origin in the engine's code if known."""
    entries = [(moment.step, *entry) for moment in moments for entry in entries_of(ref, moment, below)]
    width = max((len(action) for _, action, origin in entries if origin), default=0)
    shown = [
        f"step {step:<4}  {action:<{min(width, ACTION_LEN)}}  {origin}".rstrip()
        for step, action, origin in entries[-MAX_ENTRIES:]
    ]
    num_earlier = len(entries) - len(shown)
    return [f"… {num_earlier} earlier", *shown] if num_earlier else shown


def _action(event: object, ref: Ref, below: Collection[int], before: Snapshot | None) -> str | None:
    """The effect of an event on a subject as text; None if it had none."""
    if isinstance(event, seen.LocksCounted):
        return _locking(event, ref)
    if ref.pool:
        return _action_to_unit(event, ref.pool, ref.id)
    if isinstance(event, seen.Locked | seen.Unlocked) and event.node in below:
        return f"{type(event).__name__.lower()} by receipt {event.receipt}, with node {seen.NODE_LETTER}{event.node}"
    if ref.kind == BLOCK:
        return _action_to_block(event, ref.id)
    owned = _action_of_owner(event, seen.Owner(ref.kind, ref.id)) if ref.kind != NODE else None
    return owned or _action_named_by(event, NAMED_BY.get(ref.kind, ()), ref.id, before)


def _ancestors(node: int, parents: Mapping[int, int]) -> set[int]:
    """The nodes above `node`, up to a node with an unknown parent or a node that was found before."""
    above: set[int] = set()
    while (node := parents.get(node, 0)) and node not in above:
        above.add(node)
    return above


def _action_to_unit(event: object, pool: str, unit: int) -> str | None:
    match event:
        case seen.Taken() if event.pool == pool and unit in event.units:
            return f"taken by {event.owner}"
        case seen.Given() if event.pool == pool and unit in event.units:
            return f"given by {event.from_owner} to {event.to_owner}"
        case seen.Freed() if event.pool == pool and unit in event.units:
            fence = f", free after launch {event.after}" if event.after else ""
            return f"freed by {event.owner}{_cause(event)}{fence}"
        case seen.Written() if event.pool == pool and unit in event.pages:
            return f"written by request r{event.request_id}, positions {event.start} to {event.end - 1}"
        case seen.Filled() if event.pool == pool and unit in event.pages:
            return f"filled for request r{event.request_id}, place {event.places[event.pages.index(unit)]}"
        case seen.Sent() if event.pool == pool and unit in event.pages:
            return f"sent for request r{event.request_id}, place {event.first + event.pages.index(unit)}"
        case seen.Paired() if event.to_pool == pool and unit in event.peers:
            return f"paired with {event.from_pool} {event.units[event.peers.index(unit)]}"
        case seen.Paired() if event.from_pool == pool and unit in event.units:
            peer = event.peers[event.units.index(unit)]
            return f"paired with {event.to_pool} {peer}" if peer else f"lost its {event.to_pool} peer"
        case seen.CopyBegan():
            return _copied(event, pool, unit)
    return None


def _locking(event: seen.LocksCounted, ref: Ref) -> str | None:
    """The changes of the numbers of locks on a unit or on a node, or all those that were made for a request."""
    if ref.kind == seen.REQUEST_KIND and ref.id == event.request_id:
        ids = dict.fromkeys(count.node for count in event.counts if count.node)
        nodes = listed([f"{seen.NODE_LETTER}{node}" for node in ids])
        pools = ", ".join(dict.fromkeys(count.pool for count in event.counts))
        units = listed([unit for count in event.counts if not count.node for unit in count.units])
        return f"{_locks(event)}s {f'nodes {nodes} in {pools}' if nodes else f'{pools} {units}'}"
    counts = [
        count
        for count in event.counts
        if (count.pool == ref.pool and ref.id in count.units) or (ref.kind == NODE and ref.id == count.node)
    ]
    changed = ", ".join(f"{count.pool} {count.before} to {count.after}" for count in counts)
    by = f" by request r{event.request_id}" if event.request_id else ""
    return f"{_locks(event)}ed{by}: {changed}" if counts else None


def _locks(event: seen.LocksCounted) -> str:
    return "lock" if event.counts[0].before < event.counts[0].after else "unlock"


def _action_to_block(event: object, block: int) -> str | None:
    match event:
        case seen.BlocksStored() if block in event.hashes:
            parent = event.hashes[event.hashes.index(block) - 1] if block != event.hashes[0] else event.parent
            return f"reported as stored {_tier_of(event)}, parent {parent}"
        case seen.BlocksRemoved() if block in event.hashes:
            return f"reported as removed {_tier_of(event)}"
        case seen.BlocksCleared():
            return "reported as removed with all others"
    return None


def _tier_of(event: seen.BlocksStored | seen.BlocksRemoved) -> str:
    return f"{'on the host' if event.on_host else 'on the device'}, group {event.group}"


def _copied(event: seen.CopyBegan, pool: str, unit: int) -> str | None:
    """A copy between a device pool and its host pool; the host pool of "swa" is "host swa"."""
    for device_pool, here, there in event.pages:
        if pool == device_pool and unit in here:
            return f"copied {'to' if event.to_host else 'from'} host page {there[here.index(unit)]}"
        if pool != device_pool and pool.endswith(f" {device_pool}") and unit in there:
            return f"copied {'from' if event.to_host else 'to'} {device_pool} page {here[there.index(unit)]}"
    return None


def _action_of_owner(event: object, owner: seen.Owner) -> str | None:
    match event:
        case seen.Taken() if event.owner == owner:
            return f"takes {event.pool} {listed(event.units)}"
        case seen.Given() if event.from_owner == owner:
            return f"gives {event.pool} {listed(event.units)} to {event.to_owner}"
        case seen.Given() if event.to_owner == owner:
            return f"is given {event.pool} {listed(event.units)} by {event.from_owner}"
        case seen.Freed() if event.owner == owner:
            return f"frees {event.pool} {listed(event.units)}{_cause(event)}"
        case seen.Written() if owner == seen.Owner(seen.REQUEST_KIND, event.request_id):
            return f"writes {event.pool} {listed(event.pages)}, positions {event.start} to {event.end - 1}"
    return None


def _cause(event: seen.Freed) -> str:
    return f", {event.cause}" if event.cause else ""


def _action_named_by(event: object, fields: Sequence[str], ref_id: int, before: Snapshot | None) -> str | None:
    """An event in words if one of these fields has the id: without words of its own, its name and its fields."""
    if isinstance(event, seen.Read) or not isinstance(event, tuple):
        return None
    values: dict[str, object] = event._asdict()  # type: ignore[attr-defined]  # events are named tuples
    if ref_id not in [values.get(field) for field in fields]:
        return None
    if text := event_text(event, before):
        return text
    name = re.sub(r"(?<!^)(?=[A-Z])", " ", type(event).__name__).lower()
    fields_shown = [
        f"{field.removeprefix('num_').replace('_', ' ')} {value_of(value)}"
        for field, value in values.items()
        if value is not False and value not in ("", ()) and (field != fields[0] or value != ref_id)
    ]
    return f"{name}: {', '.join(fields_shown)}" if fields_shown else name

"""How evidence names things: swa page 17, request r3, 2 pages."""

from collections.abc import Iterable

from invariants.events import Demoted, Removed, Tombstoned
from invariants.view import FENCE, FREE, NODE_LETTER, Owner, PoolView


def unit_of(pool: PoolView, unit: int) -> str:
    return f"{pool.name} {pool.unit} {unit}"


def units_of(pool: PoolView, units: Iterable[int]) -> str:
    listed = ", ".join(map(str, units))
    return f"{pool.name} {pool.unit}{'s' if ',' in listed else ''} {listed}"


def request_name(request_id: int) -> str:
    return f"request r{request_id}"


def node_name(node_id: int) -> str:
    return f"node {NODE_LETTER}{node_id}"


def deed_of(event: Removed | Demoted | Tombstoned) -> str:
    """What an eviction did to a node."""
    if isinstance(event, Tombstoned):
        return f"gave up its {event.component} pages"
    return f"{'removed' if isinstance(event, Removed) else 'left to the host'} for {event.component}"


def standing(owner: Owner | None) -> str:
    """What can be said of a unit whose owner is `owner`."""
    if owner is None:
        return "nobody knows it"
    if owner == FREE:
        return "it is free"
    return "it waits behind a fence" if owner == FENCE else f"it is owned by {owner}"

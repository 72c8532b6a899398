"""What an engine tells of its cache and of its host tier; see events.py."""

from collections.abc import Sequence
from typing import NamedTuple

PoolCounts = tuple[tuple[str, int], ...]


class Stored(NamedTuple):
    """A node has its units of a component now, on the device or `on_host`; `key` are its tokens from `start` on."""

    node: int
    parent: int
    namespace: int
    start: int
    key: Sequence[int]
    component: str
    on_host: bool


class Dropped(NamedTuple):
    """A node of `length` tokens has its units of a component no more, on the device or `on_host`."""

    node: int
    length: int
    component: str
    on_host: bool


class Demoted(NamedTuple):
    """A node gave up all its units on the device, for want of those of `component`; the host has a copy."""

    node: int
    component: str
    in_tail: bool


class CopyDropped(NamedTuple):
    """The host gave up units of its copy of a node, those of the components with these `pools`."""

    node: int
    pools: Sequence[str]


class TransferBegan(NamedTuple):
    """Units are being copied to the host, or from there: by the pool of the component those here, and those there."""

    transfer: int
    to_host: bool
    pages: Sequence[tuple[str, Sequence[int], Sequence[int]]]


class TransferEnded(NamedTuple):
    """A copy was acknowledged; where it has a `failure` what it wrote is undefined."""

    transfer: int
    failure: str | None


class Copied(NamedTuple):
    """What a transfer that was acknowledged has left in one pool: the pairs of units, here and there, that differ."""

    transfer: int
    pool: str
    different: Sequence[tuple[int, int]]


class LoadPlanned(NamedTuple):
    """A request was admitted that waits for a transfer, so that it may go on from [0, length); `firm` units were taken
    for it at once, none where that transfer was under way already, and `demand` may follow."""

    request_id: int
    length: int
    transfer: int
    firm: PoolCounts
    demand: PoolCounts


class Loaded(NamedTuple):
    """A request waits no longer for a transfer, and goes on from [0, length), on `pages`."""

    request_id: int
    length: int
    pages: Sequence[int]

"""What the engine tells of its host tier; see events.py."""

from typing import NamedTuple

PoolCounts = tuple[tuple[str, int], ...]


class CopyDropped(NamedTuple):
    """The host gave up pages of its copy of a node, which were the `pools`'."""

    node: int
    pools: tuple[str, ...]


class TransferBegan(NamedTuple):
    """Pages are being copied to the host, or from there: per pool on the device which, and from or to which there."""

    transfer: int
    to_host: bool
    pages: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]


class TransferEnded(NamedTuple):
    """A copy is done, or came to nothing for the reason `failure`."""

    transfer: int
    failure: str | None


class LoadPlanned(NamedTuple):
    """A request was admitted and waits for `transfer`, which brings what it lacks of [0, length): `firm` pages at once,
    0 where others wait for it already; `demand` with all that may follow.

    Where a pool refused them there is no transfer (0), and it goes on from the device alone.
    """

    request_id: int
    length: int
    transfer: int
    firm: PoolCounts
    demand: PoolCounts


class Loaded(NamedTuple):
    """What a request waited for has been loaded, or not: it goes on from [0, length), on `pages`."""

    request_id: int
    length: int
    pages: tuple[int, ...]

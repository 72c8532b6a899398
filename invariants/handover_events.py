"""What is seen of KV that goes from a prefill engine to a decode engine; see events.py."""

from typing import NamedTuple

PoolCounts = tuple[tuple[str, int], ...]


class Reserved(NamedTuple):
    """A decode engine has taken `pages` for [0, length) of a request, of which it had [0, prefix_len) before."""

    request_id: int
    prefix_len: int
    length: int
    pages: PoolCounts


class Invited(NamedTuple):
    """The decode side has room for what comes behind [0, prefix_len): a prompt may be computed now."""

    request_id: int
    prefix_len: int


class Sent(NamedTuple):
    """Pages of one pool, from page index `first` of the prompt on, were read and are on their way."""

    request_id: int
    pool: str
    first: int
    pages: tuple[int, ...]


class HandedOver(NamedTuple):
    """A request has ended on the prefill side; what it holds stays until the other side has all of [0, length)."""

    request_id: int
    length: int


class Filled(NamedTuple):
    """Pages that were reserved hold now what was sent, or set aside; `places` are their page indices."""

    request_id: int
    pool: str
    places: tuple[int, ...]
    pages: tuple[int, ...]


class TakenOver(NamedTuple):
    """All of [0, length) has come, with the tokens that were said of the output; the request runs from now on."""

    request_id: int
    length: int
    tokens: tuple[int, ...]


class SetAside(NamedTuple):
    """A request on the decode side gives its pages back, and what they hold of [0, length) waits outside the pools."""

    request_id: int
    length: int


class LetGo(NamedTuple):
    """What was held for a transfer was given back: the other side has it, or nobody wants it any more."""

    request_id: int
    cause: str


HandoverEvent = Reserved | Invited | Sent | HandedOver | Filled | TakenOver | SetAside | LetGo

"""The events of transfers from a prefill engine to a decode engine; see events.py."""

from typing import NamedTuple

from engine_under_test.host_events import PoolCounts


class Reserved(NamedTuple):
    """The decode engine took `pages` for [0, length) of a request; [0, prefix_len) was cached there."""

    request_id: int
    prefix_len: int
    length: int
    pages: PoolCounts


class Invited(NamedTuple):
    """The decode engine has reserved pages for all after [0, prefix_len), so the prompt may be computed."""

    request_id: int
    prefix_len: int


class Sent(NamedTuple):
    """Pages of one pool, from page index `first` of the prompt on, were sent."""

    request_id: int
    pool: str
    first: int
    pages: tuple[int, ...]


class HandedOver(NamedTuple):
    """A request ended in the prefill engine, which holds its record until the transfer of [0, length) is complete."""

    request_id: int
    length: int


class Filled(NamedTuple):
    """Reserved pages were filled from the transfer, or from a swap; `places` are their page indices."""

    request_id: int
    pool: str
    places: tuple[int, ...]
    pages: tuple[int, ...]


class TakenOver(NamedTuple):
    """All of [0, length) has arrived, with the output `tokens` so far; the request runs from now on."""

    request_id: int
    length: int
    tokens: tuple[int, ...]


class SetAside(NamedTuple):
    """A request in the decode engine released its pages; a copy of [0, length) is kept outside the pools."""

    request_id: int
    length: int


class LetGo(NamedTuple):
    """The record that was held for a transfer was released, for this cause."""

    request_id: int
    cause: str


HandoverEvent = Reserved | Invited | Sent | HandedOver | Filled | TakenOver | SetAside | LetGo

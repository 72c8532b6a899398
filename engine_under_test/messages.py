"""What a prefill engine and a decode engine say to each other.

A room is one request on both sides; its number is the client's, is used once and is higher than those before.
"""

from typing import NamedTuple

import torch


class Ask(NamedTuple):
    """From the prefill side: it waits for an invitation; `terms` are what pages and the prompt are like there."""

    room: int
    terms: str


class Invite(NamedTuple):
    """From the decode side: it has room for what comes behind [0, prefix_len), which it has already."""

    room: int
    prefix_len: int
    terms: str


class Alive(NamedTuple):
    """The room is known, and there is nothing else to say of it."""

    room: int


class Parcel(NamedTuple):
    """Pages of one pool, from page index `first` of the prompt on; `pages` has the layout of the pool's storage."""

    room: int
    pool: str
    first: int
    num_pages: int
    pages: torch.Tensor


class Got(NamedTuple):
    """A parcel has arrived whole."""

    room: int
    pool: str
    first: int
    num_pages: int


class Finale(NamedTuple):
    """The prompt has been computed, and these output tokens were said; nothing more will come."""

    room: int
    tokens: tuple[int, ...]


class Over(NamedTuple):
    """Whoever says so has no use for the room any more: it has everything, or `reason` says why it gave up."""

    room: int
    reason: str = ""


Message = Ask | Invite | Alive | Parcel | Got | Finale | Over

"""The messages between a prefill engine and a decode engine.

A transfer moves the KV of one prompt from the prefill engine to the decode engine.  The client chooses its id.  Each id
is used once and is higher than all ids before it.
"""

from typing import NamedTuple

import torch


class TransferRequest(NamedTuple):
    """From prefill: the request waits for an invitation; `terms` describe the pages and the prompt."""

    transfer_id: int
    terms: str


class Invitation(NamedTuple):
    """From decode: it has [0, prefix_len) already, and has reserved pages for the rest of the prompt."""

    transfer_id: int
    prefix_len: int
    terms: str


class KeepAlive(NamedTuple):
    """The answer to a message that needs no other answer: the sender still knows the transfer."""

    transfer_id: int


class PageData(NamedTuple):
    """Pages of a pool, from page index `first` of the prompt on, as its storage has them, and checksums or none."""

    transfer_id: int
    pool: str
    first: int
    num_pages: int
    pages: torch.Tensor
    checksums: tuple[int, ...] = ()


class PageAck(NamedTuple):
    """Acknowledges one PageData."""

    transfer_id: int
    pool: str
    first: int
    num_pages: int


class TransferEnd(NamedTuple):
    """From prefill: the prompt is computed, `tokens` are the output so far, and no new pages follow."""

    transfer_id: int
    tokens: tuple[int, ...]


class Close(NamedTuple):
    """The sender has no more use for the transfer: it is complete, or `reason` says why it failed."""

    transfer_id: int
    reason: str = ""


Message = TransferRequest | Invitation | KeepAlive | PageData | PageAck | TransferEnd | Close

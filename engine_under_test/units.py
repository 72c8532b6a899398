"""Arithmetic of tokens, pages and owners.

Lengths and positions are in tokens; pages hold `page_size` tokens.  The KV of a position is in
slot page * page_size + offset; batch.py has the slot of a recurrent state.  A span is a range of positions in whole
pages.
"""

from collections.abc import Iterable, Sequence

from swarden.invariants.events import HANDOVER_KIND, REQUEST_KIND, SESSION_KIND, Owner


def request_owner(request_id: int) -> Owner:
    return Owner(REQUEST_KIND, request_id)


def session_owner(session_id: int) -> Owner:
    return Owner(SESSION_KIND, session_id)


def handover_owner(request_id: int) -> Owner:
    """The owner of the units that are held for a transfer; its ordinal is the request id, not the transfer id."""
    return Owner(HANDOVER_KIND, request_id)


def align_down(length: int, page_size: int) -> int:
    """The largest multiple of `page_size` that is at most `length`."""
    return length - length % page_size


def align_up(length: int, page_size: int) -> int:
    """The smallest multiple of `page_size` that is at least `length`."""
    return -(-length // page_size) * page_size


def num_pages(length: int, page_size: int) -> int:
    """The number of pages of `length` tokens that start at a page boundary."""
    return -(-length // page_size)


def pages_between(start: int, end: int, page_size: int) -> int:
    """New pages for [start, end), if the page around `start` is taken already."""
    return num_pages(end, page_size) - num_pages(start, page_size)


def lookback(window: int) -> int:
    """The number of earlier tokens that a token reads; `window` counts the token itself too."""
    return window - 1


def borders(spans: Iterable[range], start: int, end: int) -> list[int]:
    """The positions at which [start, end) enters or leaves a span, between `start` and `end` themselves."""
    inside = {border for span in spans for border in (span.start, span.stop) if start < border < end}
    return [start, *sorted(inside), end]


def overlap(spans: Iterable[range], start: int, end: int) -> bool:
    """Is a position of [start, end) in a span?"""
    return any(max(span.start, start) < min(span.stop, end) for span in spans)


def common_len(first: Sequence[int], other: Sequence[int]) -> int:
    """The length of the common prefix of two sequences."""
    length = min(len(first), len(other))
    if first[:length] == other[:length]:
        return length
    return next(index for index in range(length) if first[index] != other[index])

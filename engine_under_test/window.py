"""The formula for the windowed pages that a request still needs."""

from swarden.engine_under_test.units import align_down, align_up, lookback


def kept_len(*, window: int, page_size: int) -> int:
    """Tokens before the computed position whose pages are kept, in whole pages; at least one page.

    If a page is larger than the window, the window alone is too little: the next published prefix ends at
    align_down(position), and at least one page before that end must be live (sglang pulls 22470, 29860).
    """
    return align_up(max(lookback(window), page_size), page_size)


def window_frontier(position: int, *, window: int, page_size: int) -> int:
    """Position below which the windowed pages of a request may be freed; a multiple of `page_size`.

    `position` is the next position to be computed; it reads the `window - 1` positions before it.
    """
    return align_down(max(0, position - kept_len(window=window, page_size=page_size)), page_size)


def tail_len(*, window: int, page_size: int) -> int:
    """Tokens at the end of a cached prefix that must be live for it to match, in whole pages."""
    return align_up(lookback(window), page_size)

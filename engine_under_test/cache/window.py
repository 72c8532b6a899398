"""Which windowed pages a request still needs: the one formula."""

from engine_under_test.units import align_down, align_up, lookback


def kept_len(*, window: int, page_size: int) -> int:
    """Tokens before the position being computed that stay, in whole pages; at least one page.

    The window alone is too little where a page is larger: what is published next ends at
    align_down(position), and at least a page before that end must live (sglang pulls 22470, 29860).
    """
    return align_up(max(lookback(window), page_size), page_size)


def window_frontier(position: int, *, window: int, page_size: int) -> int:
    """Position below which the windowed pages of a request may go; a multiple of `page_size`.

    `position` is the next one to be computed; it still reads the `window - 1` before it.
    """
    return align_down(max(0, position - kept_len(window=window, page_size=page_size)), page_size)


def tail_len(*, window: int, page_size: int) -> int:
    """Tokens at the end of a cached prefix that must be live for it to match, in whole pages."""
    return align_up(lookback(window), page_size)

"""The pages that a sliding window keeps alive; `window` counts the token itself too."""

from invariants.view import HANDOVER_KIND, RecordView


def goes_on_at(record: RecordView) -> int:
    """The position that is computed next: behind the launched tokens, or behind all that another engine computes."""
    return record.allocated_len if record.owner.kind == HANDOVER_KIND else record.launched_len


def lookback(window: int) -> int:
    """How many earlier tokens a token reads."""
    return window - 1


def tail_len(window: int, page_size: int) -> int:
    """Tokens at the end of a cached prefix that must be live for it to be used, in whole pages."""
    return -(-lookback(window) // page_size) * page_size


def kept_len(window: int, page_size: int) -> int:
    """Tokens before the position to be computed that stay: a window, and a page at least (sglang pull 22470)."""
    return -(-max(lookback(window), page_size) // page_size) * page_size


def window_frontier(position: int, window: int, page_size: int) -> int:
    """Below it, windowed pages of a request whose next token is at `position` may go."""
    free_of = max(0, position - kept_len(window, page_size))
    return free_of - free_of % page_size


def first_needed_page(end: int, window: int, page_size: int) -> int:
    """The index of the first page of a prefix of `end` tokens that its continuation reads."""
    return max(0, end - lookback(window)) // page_size

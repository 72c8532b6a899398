"""The pages that a sliding window needs; `window` counts the tokens that a position sees, itself included."""

from swarden.invariants.events import HANDOVER_KIND
from swarden.invariants.view import RecordView


def next_position(record: RecordView) -> int:
    """The position that is computed next: after the launched tokens, in a transfer after all transferred tokens."""
    return record.allocated_len if record.owner.kind == HANDOVER_KIND else record.launched_len


def lookback(window: int) -> int:
    """The number of earlier tokens that a token reads."""
    return window - 1


def tail_len(window: int, page_size: int) -> int:
    """The tokens at the end of a cached prefix that must be live for the prefix to be usable, in whole pages."""
    return -(-lookback(window) // page_size) * page_size


def kept_len(window: int, page_size: int) -> int:
    """The tokens before the next position that are kept: the window, but at least a page (sglang pull 22470)."""
    return -(-max(lookback(window), page_size) // page_size) * page_size


def window_frontier(position: int, window: int, page_size: int) -> int:
    """The frontier below which a request whose next token is at `position` may free windowed pages."""
    free_of = max(0, position - kept_len(window, page_size))
    return free_of - free_of % page_size


def first_needed_page(end: int, window: int, page_size: int) -> int:
    """The index of the first page of a prefix of `end` tokens that the next token reads."""
    return max(0, end - lookback(window)) // page_size

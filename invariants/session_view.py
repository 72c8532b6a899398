"""What an invariant sees of a streaming session."""

from typing import NamedTuple


class SessionView(NamedTuple):
    """A session that is open: the request that has its turn (0: none), and of how many tokens it keeps the KV."""

    id: int
    namespace: int
    turn: int
    kept_len: int
    is_closing: bool

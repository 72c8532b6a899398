"""Changes of the numbers of locks: found by comparing the numbers before and after each call that may change them."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from swarden.harness.core.origins import request_of
from swarden.harness.kit.calls import intercept

MAX_CALLERS = 5  # callers among which the request of a call is searched
LOCKING = re.compile(r"(inc|dec)_\w*(lock|pin)|touch$|free_blocks$")  # the methods of SGLang's trees, of vLLM's pools


class LockMove(NamedTuple):
    """The number of locks on a holder, a node or a block of an engine, in a pool."""

    holder: Any
    pool: str
    before: int
    after: int


def watch_locks(
    owners: Iterable[Any],
    counts: Callable[[], Mapping[tuple[Any, str], int]],
    notice: Callable[[int, list[LockMove]], None],
) -> None:
    """Call `notice` with the request, 0 if none is known, and the numbers that a call of a LOCKING method has changed.

    `counts` has the number of locks by holder and pool; calls of such methods among each other are one call.
    """
    depth = 0

    def watching(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        before = {} if depth else counts()
        depth += 1
        try:
            return original(*args, **kwargs)
        finally:
            depth -= 1
            after = {} if depth else counts()
            moves = [LockMove(*key, before.get(key, 0), now) for key, now in after.items() if before.get(key, 0) != now]
            if moves:
                notice(request_of(sys._getframe(1), MAX_CALLERS), moves)

    for owner in owners:
        for name in filter(LOCKING.match, dir(owner)):
            intercept(owner, name, watching)

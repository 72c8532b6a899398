"""A streaming session: a conversation whose KV outlives the turns that compute it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.components import Component
from swarden.engine_under_test.units import align_down, common_len, session_owner
from swarden.invariants.events import Owner


@dataclass(slots=True, eq=False)
class Session:
    """Between two turns the session holds the `record` of the last turn, without a row, and the `tokens` of that KV.

    `record` is None while a turn holds the record, and after a release.  `turn` is the request that runs or waits as
    the turn of the session; 0 for none.
    """

    id: int
    namespace: int
    used_ms: int
    record: KVRecord | None = None
    tokens: list[int] = field(default_factory=list)
    turn: int = 0
    is_closing: bool = False

    @property
    def owner(self) -> Owner:
        return session_owner(self.id)

    def kept_len(self, prompt: Sequence[int], pools: Sequence[Component], *, page_size: int) -> int:
        """How many tokens of a prompt the record already has; the last prompt token is always computed.

        The record is cut to the end of the prompt, or to where the prompt differs, or to a page boundary before that
        at which some recurrent state is kept.  The result is 0 if the cut would lose pages of the tree, or if the
        record lacks pages that the next token reads:

            |the tree's |private          |committed_len
                   |..pages of a window gone..|frontier
                                              |window| where a turn may go on
        """
        if self.record is None:
            return 0
        length = common_len(prompt[:-1], self.tokens)
        lowest = max(self.record.protected_len, self.record.highest_frontier)  # pages below are gone
        page_ends = range(align_down(length, page_size), lowest - 1, -page_size)
        for end in chain([length], page_ends):
            if self.record.protected_len <= end and self.record.can_continue(end, pools):
                return end
        return 0

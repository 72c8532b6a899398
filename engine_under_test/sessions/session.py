"""A streaming session: a conversation whose KV outlives the turns that compute it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine_under_test.cache.record import KVRecord
from engine_under_test.units import Owner, common_len, lookback, session_owner


@dataclass(slots=True, eq=False)
class Session:
    """Between two turns it has the `record` of the last one, with no row of the request table, and the `tokens` whose
    KV is there; while a turn has the record, or where it was given up, there is none.

    `turn` is the request that runs or waits as its turn, 0 where there is none.
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

    def kept_len(self, prompt: Sequence[int], window: int | None) -> int:
        """How many tokens of a prompt need not be computed; one of them always is.

        A rewind, to where the prompt ends or goes another way, must stay behind what the tree shares, and where the
        window of the next token is all there:

            |the tree's |private          |committed_len
                   |..windowed pages gone..|frontier
                                              |window| where a turn may go on
        """
        if self.record is None:
            return 0
        length = common_len(prompt[:-1], self.tokens)
        seen_from = length if window is None else max(0, length - lookback(window))
        is_there = self.record.protected_len <= length and self.record.frontier <= seen_from
        return length if is_there else 0

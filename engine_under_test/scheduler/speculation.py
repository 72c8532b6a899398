"""Speculative decoding: draft tokens before a decode, such as those of n-grams, and their verification after it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.errors import EngineError
from swarden.engine_under_test.ports import Computed, Ports, Proposer, Wanted
from swarden.engine_under_test.request import Request
from swarden.engine_under_test.scheduler.batch import Entry
from swarden.invariants.events import Verified

LONGEST = 3  # tokens of an n-gram; a longer match is more likely right
SHORTEST = 1


class Speculation:
    """Draft and verify: up to `most` draft tokens are computed behind the newest token of a decoding request.

    A draft continues a known token, so a decoding request waits for the result of its last pass.  Without drafts,
    `most` is 0, and the request does not wait.
    """

    def __init__(self, config: EngineConfig, ports: Ports) -> None:
        self.most = config.draft_tokens
        assert ports.forward is not None, "an engine has a forward, its own or a given one"
        self._vocab_size = ports.forward.vocab_size
        self._proposer: Proposer = ports.proposer or NgramProposer()
        self._observer = ports.observer

    def add_drafts(self, entries: Sequence[Entry]) -> list[Entry]:
        """The same decodes, with the drafts of the proposer; the drafts may exceed `max_new_tokens`."""
        if not self.most or not entries:
            return list(entries)
        requests = [entry.request for entry in entries]
        wanted = [Wanted(request.id, request.namespace, request.tokens, self.most) for request in requests]
        proposed = self._proposer.propose(wanted)
        if len(proposed) != len(wanted):
            raise EngineError(f"the proposer returned {len(proposed)} drafts for {len(wanted)} requests")
        return [
            replace(entry, drafts=tuple(self._known(drafts[: self.most])))
            for entry, drafts in zip(entries, proposed, strict=True)
        ]

    def verify(self, launch: int, entry: Entry, computed: Computed) -> Computed:
        """The accepted part of a result: the accepted drafts, and the token of the model behind them."""
        if not entry.drafts or not computed.tokens:
            return computed
        accepted = num_accepted(entry.drafts, computed.tokens)
        if self._observer:
            self._observer.notice(Verified(launch, entry.request.id, accepted, tuple(computed.tokens)))
        logits = computed.logits
        if logits is not None:
            logits = logits._replace(values=logits.values[: entry.end + accepted - logits.start])
        return Computed(computed.tokens[: accepted + 1], logits)

    def _known(self, drafts: Sequence[int]) -> Iterator[int]:
        """The drafts up to the first one outside the model's vocabulary: a proposer may have a larger vocabulary."""
        size = self._vocab_size
        return takewhile(lambda token: token >= 0 and (size is None or token < size), drafts)

    def forget(self, request: Request) -> None:
        """Forget a request that has ended."""
        self._proposer.forget(request.id)


@dataclass(slots=True)
class Index:
    """The position behind the last of each n-gram of `SHORTEST` to `LONGEST` tokens, in the first `num_read` tokens."""

    num_read: int = 0
    behind: dict[tuple[int, ...], int] = field(default_factory=dict)

    def read(self, tokens: Sequence[int]) -> None:
        """Index the new tokens; costs O(new tokens)."""
        for position in range(self.num_read, len(tokens)):
            for length in range(SHORTEST, min(LONGEST, position) + 1):
                self.behind[tuple(tokens[position - length : position])] = position
        self.num_read = len(tokens)

    def find_continuation(self, tokens: Sequence[int]) -> int | None:
        """The position behind an earlier occurrence of the newest tokens; the longest n-gram is tried first."""
        for length in range(LONGEST, SHORTEST - 1, -1):
            position = self.behind.get(tuple(tokens[-length:]))
            if position is not None:
                return position
        return None


class NgramProposer:
    """Drafts from a request's own tokens, without a model; a continuation that is too short is repeated.

    Source: prompt lookup decoding, called n-gram speculation in serving engines.
    """

    def __init__(self) -> None:
        self._indices: dict[int, Index] = {}

    def propose(self, wanted: Sequence[Wanted]) -> list[list[int]]:
        return [self._draft(request) for request in wanted]

    def forget(self, request_id: int) -> None:
        self._indices.pop(request_id, None)

    def _draft(self, wanted: Wanted) -> list[int]:
        index = self._indices.setdefault(wanted.request_id, Index())
        index.read(wanted.tokens)
        position = index.find_continuation(wanted.tokens)
        if position is None:
            return []
        continuation = wanted.tokens[position : position + wanted.most]
        return [continuation[offset % len(continuation)] for offset in range(wanted.most)]


def num_accepted(drafts: Sequence[int], sampled: Sequence[int]) -> int:
    """How many leading draft tokens equal the token of the model.

    `sampled` has the model's token at each position, one more than `drafts`: the most likely token, or a sampled one.
    A draft is accepted with the probability that the model gives the token.  The token behind the accepted drafts
    comes from the same distribution.  So the output is the same as without drafts, token by token.
    """
    pairs = enumerate(zip(drafts, sampled, strict=False))
    return next((position for position, (draft, token) in pairs if draft != token), len(drafts))
